//! Damage: every kind of structure is hurt, and it is named; whatever the bytes are, nothing
//! panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use perdura_heap::check::{self, CheckReport, RepairOptions};
use perdura_heap::{
    Bookkeeping, Config, Damage, Durability, Heap, HeapError, Kind, Logging, Memory, MemoryError,
    Offset, Ptr, Remark,
};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const MIB: usize = 1 << 20;
const SPAN: usize = 64 << 10;
const AT_ROOTS: usize = 4096;
const AT_TABLE: usize = 4096 + 1024 * 64;

/// A heap with all that a heap can have: runs, large objects, a compartment, roots, a snapshot,
/// logs of records and of transactions. Returns its bytes as a killed process leaves them.
fn sample(logging: Logging, bookkeeping: Bookkeeping) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("heap");
    let mut config = Config::default();
    config.logging = logging;
    config.bookkeeping = bookkeeping;
    let memory = Memory::file(&path, 4 * MIB as u64, Durability::Flushed).unwrap();
    let heap = Heap::open(memory, config).unwrap();
    let mut last = None;
    let mut link = |heap: &Heap, bytes: u64| {
        let next = last.map_or(0, Offset::get);
        let object = heap
            .transaction(|tx| {
                let object = tx.alloc(bytes)?;
                tx.write_bytes(object, &next.to_le_bytes())?;
                tx.set_root("list", Ptr::<u8>::new(object))?;
                Ok::<_, HeapError>(object)
            })
            .unwrap();
        last = Some(object);
    };
    for nth in 0..60 {
        link(&heap, 16 + nth * 31);
    }
    link(&heap, 200_000);
    let area = heap.compartment(Kind::Persistent, 100_000).unwrap();
    heap.set_root("area", Ptr::<u8>::new(area.offset)).unwrap();
    heap.compact().unwrap();
    for nth in 0..40 {
        link(&heap, 24 + nth * 17);
    }
    let spare = heap.persist_alloc_named(500, "spare").unwrap();
    heap.transaction(|tx| tx.write_bytes(spare, &[7; 500])).unwrap();
    heap.persist_alloc(40).unwrap();
    heap.fence();
    drop(heap);
    std::fs::read(&path).unwrap()
}

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn with(&self, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join("heap");
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn report(path: &Path, what: &str) -> CheckReport {
    let before = std::fs::read(path).unwrap();
    let report = catch_unwind(AssertUnwindSafe(|| check::heap_file(path).unwrap()));
    let report = report.unwrap_or_else(|_| panic!("a check panicked: {what}"));
    assert!(std::fs::read(path).unwrap() == before, "a check changed the file: {what}");
    assert!(!report.to_string().is_empty());
    report
}

fn open(path: &Path, config: &Config) -> Result<Heap, HeapError> {
    Heap::open(Memory::file(path, 0, Durability::Flushed).unwrap(), config.clone())
}

fn all() -> impl Iterator<Item = (Logging, Bookkeeping)> {
    [Logging::Redo, Logging::Undo].into_iter().flat_map(|logging| {
        [Bookkeeping::Logged, Bookkeeping::Conventional].map(move |kept| (logging, kept))
    })
}

#[test]
fn a_heap_that_was_killed_is_sound_and_its_leak_is_found() {
    for (logging, bookkeeping) in all() {
        let place = Place::new();
        let path = place.with(&sample(logging, bookkeeping));
        let found = report(&path, "");
        assert!(
            found.is_sound() && found.remarks.is_empty(),
            "{logging:?} {bookkeeping:?} {found}"
        );
        assert_eq!((found.objects, found.large_objects), (103, 1));
        assert_eq!((found.compartments, found.roots.len()), (1, 3));
        assert_eq!(found.leaks.unwrap().objects, 1);
        let done = check::repair(&path, RepairOptions { reclaim_leaks: true }).unwrap();
        assert_eq!(done.reclaimed.objects, 1);
        let after = done.after.unwrap();
        assert!(after.is_sound(), "{after}");
        assert_eq!((after.objects, after.leaks.unwrap().objects), (102, 0));
    }
}

/// Where each kind of structure lies in the sample: name, first byte, bytes, and whether a flip of
/// any byte of it must be named.
fn structures(bytes: &[u8]) -> Vec<(&'static str, usize, usize)> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let mut found = vec![
        ("magic, version, spans, flags, sum", 0, 40),
        ("generation", 64, 8),
        ("clock", 192, 8),
        ("settled", 256, 8),
    ];
    for index in 0..1024 {
        let at = AT_ROOTS + index * 64;
        if word(at + 56) != 0 {
            // Behind the name's end its bytes are summed, too.
            found.push(("root", at, 64));
        }
    }
    found.push(("state of a free root", AT_ROOTS + 1000 * 64 + 56, 8));
    for span in 0..bytes.len() / SPAN {
        let (at, chunk) = (AT_TABLE + span * 8, span * SPAN);
        match word(at) & 15 {
            0 => continue,
            3 => {
                found.push(("log header", chunk, 16));
            }
            5 => {
                found.push(("snapshot header", chunk, 32));
                found.push(("snapshot", chunk + 64, word(chunk + 8) as usize));
            }
            _ => {}
        }
        found.push(("span word", at, 8));
    }
    found
}

#[test]
fn a_byte_changed_in_any_structure_is_named_and_nothing_panics() {
    let mut random = Random::seed_from_u64(1);
    for (logging, bookkeeping) in all() {
        let bytes = sample(logging, bookkeeping);
        let place = Place::new();
        let mut config = Config::default();
        config.bookkeeping = bookkeeping;
        for (name, start, len) in structures(&bytes) {
            for at in start..start + len {
                // Others in each of the kinds of heaps; the more the shorter the structure.
                if random.random_range(0..len) > if len > 64 { 6 } else { 20 } {
                    continue;
                }
                let change = random.random_range(1..=255);
                let what = format!(
                    "{name} at {at:#x} changed by {change:#x}, {logging:?} {bookkeeping:?}"
                );
                let mut hurt = bytes.clone();
                hurt[at] ^= change;
                let path = place.with(&hurt);
                let found = report(&path, &what);
                assert!(!found.is_sound() || !found.remarks.is_empty(), "not named: {what}");
                let opened = catch_unwind(AssertUnwindSafe(|| {
                    open(&path, &config).and_then(|heap| heap.roots().map(|_| ()))
                }));
                assert!(opened.is_ok(), "opening panicked: {what}");
            }
        }
    }
}

#[test]
fn an_unknown_flag_of_the_superblock_is_refused_by_place_and_value() {
    const AT_FLAGS: usize = 24;
    const AT_CHECKSUM: usize = 32;
    let mut bytes = sample(Logging::Redo, Bookkeeping::Logged);
    bytes[AT_FLAGS] = 2;
    let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..AT_CHECKSUM]).to_le_bytes();
    bytes[AT_CHECKSUM..][..8].copy_from_slice(&sum);
    let place = Place::new();
    let refused = open(&place.with(&bytes), &Config::default()).map(drop);
    let at_flags =
        |error: &HeapError| matches!(error, HeapError::Corrupt { offset: 24, value: 2, .. });
    assert!(refused.as_ref().is_err_and(at_flags), "{refused:?}");
}

#[test]
fn damaged_logs_lose_what_is_damaged_and_no_more() {
    for logging in [Logging::Redo, Logging::Undo] {
        let bytes = sample(logging, Bookkeeping::Logged);
        let place = Place::new();
        let mut random = Random::seed_from_u64(2);
        let mut named = 0;
        let mut tried = 0;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        for span in 0..bytes.len() / SPAN {
            if word(AT_TABLE + span * 8) & 15 != 3 {
                continue;
            }
            let chunk = span * SPAN;
            let used = (64..SPAN).rev().find(|at| bytes[chunk + at] != 0).unwrap();
            for _ in 0..60 {
                let at = chunk + random.random_range(64..=used);
                let mut hurt = bytes.clone();
                hurt[at] ^= random.random_range(1..=255_u8);
                let path = place.with(&hurt);
                let what = format!("log at {at:#x}, {logging:?}");
                let found = report(&path, &what);
                tried += 1;
                named += u32::from(!found.is_sound() || !found.remarks.is_empty());
                let opened =
                    catch_unwind(AssertUnwindSafe(|| open(&path, &Config::default()).map(drop)));
                assert!(opened.is_ok(), "opening panicked: {what}");
            }
        }
        // Groups are summed; a record alone has no room for a sum, and may become another that is
        // as good.
        assert!(tried > 0 && named * 100 >= tried * 97, "{named} of {tried} were named");
    }
}

#[test]
fn what_can_be_mended_is_mended_and_the_rest_is_left_alone() {
    let mut random = Random::seed_from_u64(3);
    let bytes = sample(Logging::Redo, Bookkeeping::Logged);
    let place = Place::new();
    let objects = report(&place.with(&bytes), "").objects;
    let mut mended = 0;
    for (name, start, len) in structures(&bytes) {
        for at in (start..start + len).step_by(if len > 64 { 331 } else { 11 }) {
            let change = random.random_range(1..=255);
            let what = format!("{name} at {at:#x} changed by {change:#x}");
            let mut hurt = bytes.clone();
            hurt[at] ^= change;
            let path = place.with(&hurt);
            let done = check::repair(&path, RepairOptions::default()).unwrap();
            match done.after {
                None => {
                    assert!(!done.before.is_repairable(), "{what}");
                    assert!(std::fs::read(&path).unwrap() == hurt, "{what}: changed all the same");
                }
                Some(after) => {
                    assert!(after.is_sound() && after.remarks.is_empty(), "{what}: {after}");
                    assert!(after.objects <= objects, "{what}");
                    if name == "root" {
                        assert_eq!((after.roots.len(), after.objects), (2, objects), "{what}");
                    }
                    open(&path, &Config::default()).unwrap().close().unwrap();
                    mended += 1;
                }
            }
        }
    }
    assert!(mended > 10, "{mended}");
}

#[test]
fn any_bytes_end_in_an_error_or_a_heap() {
    let place = Place::new();
    for seed in 0..60 {
        let mut random = Random::seed_from_u64(seed);
        let (logging, bookkeeping) = all().nth(seed as usize % 4).unwrap();
        let mut bytes = sample(logging, bookkeeping);
        let what = format!("seed {seed}");
        match seed % 5 {
            0 => random.fill(&mut bytes[40..2 * SPAN]),
            1 => {
                let start = random.random_range(0..bytes.len() - 5000);
                random.fill(&mut bytes[start..start + 5000]);
            }
            2 => {
                // Whole spans change places.
                let spans = bytes.len() / SPAN;
                let (a, b) = (random.random_range(2..spans), random.random_range(2..spans));
                let one = bytes[a * SPAN..(a + 1) * SPAN].to_vec();
                bytes.copy_within(b * SPAN..(b + 1) * SPAN, a * SPAN);
                bytes[b * SPAN..(b + 1) * SPAN].copy_from_slice(&one);
            }
            3 => {
                for _ in 0..random.random_range(1..200) {
                    let at = random.random_range(0..bytes.len());
                    bytes[at] = random.random();
                }
            }
            _ => {
                for _ in 0..random.random_range(1..40) {
                    let at = AT_TABLE + random.random_range(0..bytes.len() / SPAN * 8);
                    bytes[at] ^= 1 << random.random_range(0..8);
                }
            }
        }
        let path = place.with(&bytes);
        let found = report(&path, &what);
        let mut config = Config::default();
        config.bookkeeping = bookkeeping;
        let opened = catch_unwind(AssertUnwindSafe(|| match open(&path, &config) {
            Ok(heap) => heap.persist_alloc(100).map(drop),
            Err(error) => Err(error),
        }));
        let opened = opened.unwrap_or_else(|_| panic!("opening panicked: {what}"));
        if opened.is_err() {
            assert!(!found.is_sound() || found.objects > 0, "{what}: {opened:?} and {found}");
        }
    }
}

#[test]
fn an_open_heap_agrees_with_its_log_and_a_file_in_use_is_refused() {
    for (logging, bookkeeping) in all() {
        let place = Place::new();
        let path = place.with(&sample(logging, bookkeeping));
        let mut config = Config::default();
        (config.logging, config.bookkeeping) = (logging, bookkeeping);
        let heap = open(&path, &config).unwrap();
        let mut random = Random::seed_from_u64(4);
        let mut held = Vec::new();
        for step in 0..3000 {
            if held.len() < 50 || random.random() {
                held.push(heap.persist_alloc(random.random_range(1..3000)).unwrap());
            } else {
                let nth = random.random_range(0..held.len());
                heap.persist_free(held.swap_remove(nth)).unwrap();
            }
            if step % 500 == 0 {
                let found = heap.check().unwrap();
                assert!(found.is_sound() && found.remarks.is_empty(), "{found}");
                assert_eq!(found.objects, 103 + held.len() as u64);
                assert_eq!(found.leaks.unwrap().objects, 1 + held.len() as u64);
            }
        }
        let taken = check::heap_file(&path).unwrap_err();
        assert!(matches!(taken, HeapError::Memory(MemoryError::InUse { .. })), "{taken}");
        assert!(heap.transaction(|_| heap.check().map(drop)).is_err());
    }
}

#[test]
fn no_heap_and_a_part_of_one_are_named() {
    let place = Place::new();
    for other in [
        vec![0; MIB * 2],
        vec![],
        vec![1; 7],
        vec![1; 100],
        b"something else entirely ".repeat(100_000),
    ] {
        let path = place.with(&other);
        for refused in [
            check::heap_file(&path).unwrap_err(),
            check::repair(&path, RepairOptions::default()).unwrap_err(),
        ] {
            assert!(matches!(refused, HeapError::NotAHeap { .. }), "{}: {refused}", other.len());
        }
        assert!(std::fs::read(&path).unwrap() == other, "a repair changed it");
    }
    let bytes = sample(Logging::Redo, Bookkeeping::Logged);
    let mut headless = bytes.clone();
    headless[..4096].fill(0);
    for (part, expected) in [
        (&bytes[..MIB * 2], "missing"),
        (&bytes[..10_000], "a heap of 10000 bytes"),
        (&headless[..], "superblock"),
    ] {
        let found = report(&place.with(part), expected);
        assert!(found.to_string().contains(expected), "{expected}: {found}");
        assert!(!found.is_sound() && !found.is_repairable());
    }
    assert!(check::heap_file(Path::new("/nowhere/at/all")).is_err());
}

#[test]
fn a_log_that_ends_in_the_middle_is_cut_and_said() {
    let bytes = sample(Logging::Redo, Bookkeeping::Logged);
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let span = (0..bytes.len() / SPAN).find(|span| word(AT_TABLE + span * 8) & 15 == 3).unwrap();
    let place = Place::new();
    // The first group's first entry: all behind it cannot be read any more.
    let mut hurt = bytes.clone();
    hurt[span * SPAN + 64 + 40] ^= 1;
    let path = place.with(&hurt);
    let found = report(&path, "");
    assert!(found.damage.iter().any(|damage| matches!(damage, Damage::LogCut { .. })), "{found}");
    assert!(open(&path, &Config::default()).is_err());
    let done = check::repair(&path, RepairOptions::default()).unwrap();
    assert!(done.after.unwrap().is_sound());
    // The last group: as if the power had failed while it was written.
    let used = (64..SPAN).rev().find(|at| bytes[span * SPAN + at] != 0).unwrap();
    let last = used / 8 * 8;
    let mut torn = bytes.clone();
    // The record of the leak is last; the group before it ends there.
    torn[span * SPAN + last..span * SPAN + last + 8].fill(0);
    torn[span * SPAN + last - 16] ^= 1;
    let found = report(&place.with(&torn), "");
    assert!(found.remarks.iter().any(|remark| matches!(remark, Remark::Torn { .. })), "{found}");
}

#[test]
fn a_byte_changed_in_a_link_is_named_and_a_torn_link_does_not_count() {
    let place = Place::new();
    let path = place.dir.path().join("heap");
    let memory = Memory::file(&path, 2 * MIB as u64, Durability::Flushed).unwrap();
    let heap = Heap::open(memory, Config::default()).unwrap();
    let table = heap.persist_alloc_named(64, "table").unwrap();
    heap.transaction(|tx| tx.write_bytes(table, &[0; 64])).unwrap();
    let mut objects = Vec::new();
    for nth in 0..10 {
        let word = Offset::new(table.get() + 8 * (nth % 4)).unwrap();
        objects.push(heap.replace_at(word, 40).unwrap());
    }
    drop(heap);
    let bytes = std::fs::read(&path).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let span = (0..bytes.len() / SPAN).find(|span| word(AT_TABLE + span * 8) & 15 == 3).unwrap();
    let used = (64..SPAN).rev().find(|at| bytes[span * SPAN + at] != 0).unwrap();
    // The last link has three words: its head, a free and an allocation.
    let last = span * SPAN + used / 8 * 8;
    for at in last - 16..last + 8 {
        let mut hurt = bytes.clone();
        hurt[at] ^= 1 << (at % 7);
        let found = report(&place.with(&hurt), "a byte of a link");
        assert!(!found.is_sound(), "byte {at}: {found}");
    }
    let mut torn = bytes.clone();
    torn[last..last + 8].fill(0);
    let path = place.with(&torn);
    let found = report(&path, "a torn link");
    assert!(found.is_sound() && found.objects == 5, "{found}");
    assert!(found.remarks.iter().any(|remark| matches!(remark, Remark::Torn { .. })), "{found}");
    let heap = open(&path, &Config::default()).unwrap();
    assert!(heap.is_object(objects[5]), "the object that the torn link would have freed is gone");
    drop(heap);
    // Behind a torn link nothing is written before the link is whole.
    torn[last + 64..last + 72].copy_from_slice(&word(last).to_le_bytes());
    let found = report(&place.with(&torn), "a link that is not whole in the middle");
    assert!(!found.is_sound(), "{found}");
}

#[test]
fn what_is_left_in_a_chunk_that_was_being_cleared_is_neither_undone_nor_damage() {
    let place = Place::new();
    let path = place.dir.path().join("heap");
    let mut config = Config::default();
    config.logging = Logging::Undo;
    let memory = Memory::file(&path, 4 * MIB as u64, Durability::Flushed).unwrap();
    let heap = Heap::open(memory, config.clone()).unwrap();
    let object = heap.persist_alloc_named(64, "it").unwrap();
    heap.compact().unwrap();
    for value in 1..=9_u8 {
        heap.transaction(|tx| tx.write_bytes(object, &[value; 16])).unwrap();
    }
    drop(heap);
    let bytes = std::fs::read(&path).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let span = (0..bytes.len() / SPAN).find(|span| word(AT_TABLE + span * 8) & 15 == 3).unwrap();
    let chunk = span * SPAN;
    let used = (64..SPAN).rev().find(|at| bytes[chunk + at] != 0).unwrap();
    // It says that it is being cleared, durably; then it is, and its lines arrive in any order.
    let clearing = 1_u64;
    let tag = (clearing + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    let mut random = Random::seed_from_u64(5);
    for _ in 0..60 {
        let mut cut = bytes.clone();
        cut[chunk..chunk + 8].copy_from_slice(&(clearing | tag << 48).to_le_bytes());
        for line in 1..=used / 64 {
            if random.random() {
                cut[chunk + line * 64..chunk + (line + 1) * 64].fill(0);
            }
        }
        let path = place.with(&cut);
        for boot in [[1, 1], [0, 0]] {
            let mut config = config.clone();
            config.boot_id = Some(boot);
            let heap = open(&path, &config).unwrap();
            let mut found = [0; 16];
            heap.read_bytes(object, &mut found).unwrap();
            assert_eq!(found, [9; 16], "a transaction that had committed was undone");
        }
    }
}

/// The last word of the only log, which is a record: where it lies, and the word.
fn last_record(bytes: &[u8]) -> (usize, u64) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let span = (0..bytes.len() / SPAN).find(|span| word(AT_TABLE + span * 8) & 15 == 3).unwrap();
    let used = (64..SPAN).rev().find(|at| bytes[span * SPAN + at] != 0).unwrap();
    let last = span * SPAN + used / 8 * 8;
    (last, word(last))
}

#[test]
fn an_object_allocated_twice_is_kept_and_one_freed_twice_is_not() {
    let place = Place::new();
    let path = place.dir.path().join("heap");
    let memory = Memory::file(&path, 2 * MIB as u64, Durability::Flushed).unwrap();
    let heap = Heap::open(memory, Config::default()).unwrap();
    let old = heap.persist_alloc(500).unwrap();
    heap.compact().unwrap();
    let new = heap.persist_alloc(200).unwrap();
    heap.fence();
    let allocated = std::fs::read(&path).unwrap();
    heap.persist_free(old).unwrap();
    heap.fence();
    drop(heap);
    let freed = std::fs::read(&path).unwrap();
    for (bytes, object, sum, objects) in [(allocated, new, 2, 2), (freed, old, -1, 1)] {
        let (last, record) = last_record(&bytes);
        assert_eq!(record >> 28, object.get() / 16, "the last record is of the object");
        let mut twice = bytes.clone();
        twice[last + 8..last + 16].copy_from_slice(&record.to_le_bytes());
        let path = place.with(&twice);
        let found = report(&path, "a record that is there twice");
        let named = |damage: &Damage| {
            matches!(damage, Damage::Sum { offset, sum: found }
            if *offset == object.get() && *found == sum)
        };
        assert!(found.damage.iter().any(named), "{found}");
        let after = check::repair(&path, RepairOptions::default()).unwrap().after.unwrap();
        assert!(after.is_sound(), "{after}");
        assert_eq!(after.objects, objects, "{after}");
        let heap = open(&path, &Config::default()).unwrap();
        assert!(heap.is_object(new));
        assert_eq!(heap.is_object(old), sum > 0);
    }
}

#[test]
fn an_object_where_none_can_begin_is_named_by_its_place_and_dropped() {
    let place = Place::new();
    let path = place.dir.path().join("heap");
    let memory = Memory::file(&path, 2 * MIB as u64, Durability::Flushed).unwrap();
    let heap = Heap::open(memory, Config::default()).unwrap();
    let object = heap.persist_alloc(500).unwrap();
    heap.fence();
    drop(heap);
    let bytes = std::fs::read(&path).unwrap();
    let (last, record) = last_record(&bytes);
    let unit = object.get() / 16;
    assert_eq!(record >> 28, unit);
    // In the object, and in a span that nothing was allocated from.
    for stray in [unit + 1, unit + 31, unit + 3 * (SPAN as u64 / 16)] {
        let mut hurt = bytes.clone();
        let other = record & ((1 << 28) - 1) | stray << 28;
        hurt[last + 8..last + 16].copy_from_slice(&other.to_le_bytes());
        let path = place.with(&hurt);
        let found = report(&path, "a stray");
        let named = |damage: &Damage| {
            matches!(damage, Damage::Stray { offset }
            if *offset == stray * 16)
        };
        assert!(found.damage.iter().any(named), "{stray}: {found}");
        assert!(open(&path, &Config::default()).is_err());
        let after = check::repair(&path, RepairOptions::default()).unwrap().after.unwrap();
        assert!(after.is_sound() && after.objects == 1, "{after}");
        assert!(open(&path, &Config::default()).unwrap().is_object(object));
    }
}
