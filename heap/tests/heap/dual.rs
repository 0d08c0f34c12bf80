//! The heap against a naive oracle: what was allocated and written is there again, whatever was
//! open.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use perdura_heap::{
    Bookkeeping, Config, Durability, Heap, HeapError, Kind, LogAs, Logging, Memory, Offset, Opened,
    Ptr, Records, Tap,
};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const MIB: u64 = 1 << 20;

fn open(path: &Path, mib: u64, durability: Durability, config: &Config) -> Heap {
    Heap::open(Memory::file(path, mib * MIB, durability).unwrap(), config.clone()).unwrap()
}

fn configs() -> Vec<(Durability, Config)> {
    let mut all = Vec::new();
    for durability in [Durability::Flushed, Durability::Ordered] {
        for logging in [Logging::Redo, Logging::Undo] {
            for records in [Records::Hybrid, Records::Words, Records::Objects] {
                for bookkeeping in [Bookkeeping::Logged, Bookkeeping::Conventional] {
                    let mut config = Config::default();
                    config.logging = logging;
                    config.records = records;
                    config.bookkeeping = bookkeeping;
                    all.push((durability, config));
                }
            }
        }
    }
    all
}

#[derive(Clone, Default)]
struct Model {
    objects: BTreeMap<Offset, Vec<u8>>,
    root: Option<Offset>,
}

fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.random()).collect()
}

fn size(random: &mut Random) -> u64 {
    match random.random_range(0..20) {
        0 => random.random_range(1..300_000),
        1..4 => random.random_range(1..20_000),
        _ => random.random_range(1..1025),
    }
}

struct Abort;

impl From<HeapError> for Abort {
    fn from(error: HeapError) -> Self {
        assert!(matches!(error, HeapError::OutOfMemory { .. }), "{error}");
        Self
    }
}

/// Changes in a transaction, and to the model that it will be true of.
fn change(
    tx: &mut perdura_heap::Tx<'_>,
    random: &mut Random,
    model: &mut Model,
) -> Result<(), Abort> {
    for _ in 0..random.random_range(1..6) {
        let some = model.objects.keys().nth(random.random_range(0..model.objects.len().max(1)));
        match (random.random_range(0..8), some.copied()) {
            (0 | 1, _) | (_, None) => {
                let len = size(random);
                let object = tx.alloc(len)?;
                let fill = bytes(random, len as usize);
                tx.write_bytes(object, &fill)?;
                assert!(model.objects.insert(object, fill).is_none());
            }
            (2, Some(object)) if model.root != Some(object) => {
                tx.free(object)?;
                model.objects.remove(&object);
            }
            (3, Some(object)) => {
                tx.set_root("it", Ptr::<u8>::new(object))?;
                model.root = Some(object);
            }
            (_, Some(object)) => {
                let content = model.objects.get_mut(&object).unwrap();
                let len = random.random_range(1..content.len().min(5000) + 1);
                let at = random.random_range(0..content.len() - len + 1);
                let fill = bytes(random, len);
                let log = if random.random() { LogAs::Words } else { LogAs::Object };
                tx.write_as(Offset::new(object.get() + at as u64).unwrap(), &fill, log)?;
                content[at..at + len].copy_from_slice(&fill);
            }
        }
    }
    let mut out = Vec::new();
    if let Some((object, content)) = model.objects.iter().next_back() {
        out.resize(content.len(), 0);
        tx.read_bytes(*object, &mut out)?;
        assert_eq!(&out, content, "what a transaction reads");
    }
    Ok(())
}

fn check(heap: &Heap, model: &Model, what: &str) {
    for (object, content) in &model.objects {
        assert!(heap.is_object(*object), "{what}: {object:?} is gone");
        assert!(heap.usable_bytes(*object).unwrap() >= content.len() as u64);
        let mut out = vec![0; content.len()];
        heap.read_bytes(*object, &mut out).unwrap();
        assert!(out == *content, "{what}: {object:?} of {} bytes changed", content.len());
    }
    assert_eq!(heap.root::<u8>("it").unwrap().and_then(Ptr::offset), model.root, "{what}");
}

#[test]
fn whatever_committed_is_there_again_and_nothing_else() {
    for (number, (durability, config)) in configs().into_iter().enumerate() {
        let seed = 100 + number as u64;
        let what = format!("seed {seed} {durability:?} {config:?}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("heap");
        let mut random = Random::seed_from_u64(seed);
        let mut heap = open(&path, 48, durability, &config);
        assert_eq!(heap.opened(), Opened::Made);
        let mut model = Model::default();
        for step in 0..400 {
            match random.random_range(0..24) {
                0 => {
                    if random.random() {
                        heap.close().unwrap();
                    } else {
                        // As a process that was killed.
                        drop(heap);
                    }
                    heap = open(&path, 48, durability, &config);
                    let Opened::Recovered(found) = heap.opened() else { panic!("{what}") };
                    assert_eq!(found.objects, model.objects.len() as u64, "{what} step {step}");
                    check(&heap, &model, &format!("{what} step {step}"));
                }
                1 => heap.compact().unwrap(),
                2..5 => {
                    let len = size(&mut random);
                    let Ok(object) = heap.persist_alloc(len) else { continue };
                    let fill = bytes(&mut random, len as usize);
                    heap.transaction(|tx| tx.write_bytes(object, &fill)).unwrap();
                    assert!(model.objects.insert(object, fill).is_none(), "{what}");
                }
                5..7 => {
                    let nth = random.random_range(0..model.objects.len().max(1));
                    let Some(object) = model.objects.keys().nth(nth).copied() else { continue };
                    if model.root != Some(object) {
                        heap.persist_free(object).unwrap();
                        model.objects.remove(&object);
                        assert!(heap.persist_free(object).is_err(), "{what}: freed twice");
                    }
                }
                _ => {
                    let mut after = model.clone();
                    let outcome = heap.transaction(|tx| {
                        change(tx, &mut random, &mut after)?;
                        let mut inner = after.clone();
                        let nested = tx.nested(|tx| {
                            change(tx, &mut random, &mut inner)?;
                            if random.random() { Ok(()) } else { Err(Abort) }
                        });
                        if nested.is_ok() {
                            after = inner;
                            change(tx, &mut random, &mut after)?;
                        }
                        if random.random_bool(0.8) { Ok(()) } else { Err(Abort) }
                    });
                    if outcome.is_ok() {
                        model = after;
                    }
                }
            }
            if step % 10 == 0 {
                check(&heap, &model, &format!("{what} step {step}"));
            }
        }
        check(&heap, &model, &what);
    }
}

#[test]
fn threads_share_no_object_and_lose_none() {
    for durability in [Durability::Flushed, Durability::Ordered] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("heap");
        let heap = open(&path, 256, durability, &Config::default());
        let left = std::sync::Mutex::new(Vec::new());
        let (tx, rx) = std::sync::mpsc::channel::<Offset>();
        let rx = std::sync::Mutex::new(rx);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (heap, left, tx, rx) = (&heap, &left, tx.clone(), &rx);
                scope.spawn(move || {
                    let mut random = Random::seed_from_u64(thread);
                    let mut mine = Vec::new();
                    for step in 0..60_000_u64 {
                        if mine.len() < 500 || random.random() {
                            let object = heap.persist_alloc(random.random_range(16..1025)).unwrap();
                            let mark = thread << 32 | step;
                            // SAFETY: an object of this thread's own, of 16 bytes at least.
                            unsafe { heap.pointer(object).cast::<u64>().write(mark) };
                            mine.push((object, mark));
                        } else {
                            let nth = random.random_range(0..mine.len());
                            let (object, mark) = mine.swap_remove(nth);
                            // SAFETY: as above.
                            let found = unsafe { heap.pointer(object).cast::<u64>().read() };
                            assert_eq!(found, mark, "an object was given to two");
                            // Another thread frees it.
                            if random.random_bool(0.2) {
                                tx.send(object).unwrap()
                            } else {
                                heap.persist_free(object).unwrap();
                            }
                        }
                        if let Ok(object) = rx.lock().unwrap().try_recv() {
                            heap.persist_free(object).unwrap();
                        }
                    }
                    left.lock().unwrap().extend(mine);
                });
            }
        });
        for object in rx.into_inner().unwrap().try_iter() {
            heap.persist_free(object).unwrap();
        }
        let left = left.into_inner().unwrap();
        assert!(heap.stats().folds > 0, "the log was folded meanwhile");
        drop(heap);
        let heap = open(&path, 256, durability, &Config::default());
        let Opened::Recovered(found) = heap.opened() else { panic!() };
        assert_eq!(found.objects, left.len() as u64);
        for (object, mark) in left {
            assert!(heap.is_object(object));
            // SAFETY: an object of 16 bytes at least.
            assert_eq!(unsafe { heap.pointer(object).cast::<u64>().read() }, mark);
        }
    }
}

#[derive(Default)]
struct Counter {
    lines: AtomicU64,
    fences: AtomicU64,
}

impl Tap for Counter {
    fn store(&self, _: u64, _: &[u8]) {}
    fn flush(&self, _: u64) {
        self.lines.fetch_add(1, Relaxed);
    }
    fn fence(&self) {
        self.fences.fetch_add(1, Relaxed);
    }
}

impl Counter {
    fn per(&self, operations: u64, f: impl FnOnce()) -> (f64, f64) {
        let before = (self.lines.load(Relaxed), self.fences.load(Relaxed));
        f();
        let lines = self.lines.load(Relaxed) - before.0;
        let fences = self.fences.load(Relaxed) - before.1;
        (lines as f64 / operations as f64, fences as f64 / operations as f64)
    }
}

#[test]
fn an_allocation_writes_one_line_back_and_a_small_transaction_two() {
    let counter = Arc::new(Counter::default());
    let mut config = Config::default();
    config.tap = Some(counter.clone());
    let memory = Memory::anonymous(256 * MIB, Durability::Flushed).unwrap();
    let heap = Heap::open(memory, config).unwrap();
    let mut objects = Vec::new();
    let (lines, fences) = counter.per(20_000, || {
        objects.extend((0..20_000).map(|n| heap.persist_alloc(16 + n % 1009).unwrap()));
    });
    // Chunks of the log are zeroed: 1,024 lines for 8,000 records, and folds.
    assert!((1.0..=1.5).contains(&lines), "{lines} lines an allocation");
    assert!((1.0..=1.1).contains(&fences), "{fences} fences an allocation");
    let (lines, fences) = counter.per(20_000, || {
        for object in objects.drain(..) {
            heap.persist_free(object).unwrap();
        }
    });
    assert!(lines <= 0.6 && fences <= 0.1, "{lines} lines, {fences} fences a free");
    let object = heap.persist_alloc(128).unwrap();
    heap.transaction(|tx| tx.write_bytes(object, &[1; 64])).unwrap();
    heap.persist(object, 64);
    for at in 0..16 {
        let place = Offset::new(object.get() + at * 4).unwrap();
        let (lines, fences) = counter.per(1, || {
            heap.transaction(|tx| tx.write_bytes(place, &[at as u8; 64])).unwrap();
        });
        assert!(lines <= 2.0 && fences <= 2.0, "{lines} lines and {fences} fences for 64 bytes");
    }
}

#[test]
fn a_compartment_keeps_what_its_kind_promises() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("heap");
    let heap = open(&path, 16, Durability::Flushed, &Config::default());
    let kept = heap.compartment(Kind::Persistent, 100_000).unwrap();
    let lost = heap.compartment(Kind::Capacity, 100_000).unwrap();
    assert_eq!((kept.len_bytes, lost.len_bytes), (131_072, 131_072));
    let last = Offset::new(kept.offset.get() + kept.len_bytes - 8).unwrap();
    heap.transaction(|tx| tx.write_bytes(last, b"the last")).unwrap();
    assert!(heap.transaction(|tx| tx.write_bytes(lost.offset, b"x")).is_err(), "not persistent");
    // SAFETY: inside the compartments, which nobody else uses.
    unsafe {
        heap.pointer(kept.offset).write_bytes(7, 4096);
        heap.pointer(lost.offset).write_bytes(9, 100_000);
    }
    heap.persist(kept.offset, 4096);
    drop(heap);
    let heap = open(&path, 16, Durability::Flushed, &Config::default());
    assert_eq!(heap.compartments(), [kept]);
    let mut out = [0; 8];
    heap.read_bytes(last, &mut out).unwrap();
    assert_eq!(&out, b"the last");
    heap.read_bytes(kept.offset, &mut out).unwrap();
    assert_eq!(out, [7; 8]);
    // What capacity memory held is nowhere in the file.
    let bytes = std::fs::read(&path).unwrap();
    assert!(!bytes.windows(64).any(|window| window == [9; 64]), "capacity contents can be read");
    heap.remove_compartment(kept).unwrap();
    assert!(matches!(heap.remove_compartment(kept), Err(HeapError::NoObject { .. })));
    drop(heap);
    assert_eq!(open(&path, 16, Durability::Flushed, &Config::default()).compartments(), []);
}

#[test]
fn capacity_memory_is_a_plain_heap() {
    let memory = Memory::anonymous(256 * MIB, Durability::Flushed).unwrap();
    let heap = Heap::open(memory, Config::default()).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let heap = &heap;
            scope.spawn(move || {
                let mut random = Random::seed_from_u64(seed);
                let mut held: Vec<(std::ptr::NonNull<u8>, u64, u8)> = Vec::new();
                for _ in 0..20_000 {
                    let len = size(&mut random);
                    let fill = random.random();
                    if held.len() < 100 || random.random() {
                        let align = 1 << random.random_range(0..13);
                        let memory = heap.cap_alloc_aligned(len, align).unwrap();
                        assert_eq!(memory.as_ptr() as u64 % align, 0);
                        assert!(heap.cap_usable_bytes(memory).unwrap() >= len);
                        // SAFETY: an object of `len` bytes, this thread's own.
                        unsafe { memory.as_ptr().write_bytes(fill, len as usize) };
                        held.push((memory, len, fill));
                        if held.len() < 200 {
                            continue;
                        }
                    }
                    let nth = random.random_range(0..held.len());
                    let (memory, old, fill) = held.swap_remove(nth);
                    let memory = match random.random_range(0..4) {
                        0 => heap.cap_realloc(memory, len).unwrap(),
                        _ => memory,
                    };
                    // SAFETY: as above; what fits both sizes was kept.
                    let bytes = unsafe {
                        std::slice::from_raw_parts(memory.as_ptr(), old.min(len) as usize)
                    };
                    assert!(bytes.iter().all(|byte| *byte == fill), "seed {seed}");
                    heap.cap_free(memory).unwrap();
                }
            });
        }
    });
    // With other threads about, the memory might be somebody else's by the second time.
    let memory = heap.cap_alloc(100).unwrap();
    heap.cap_free(memory).unwrap();
    assert!(matches!(heap.cap_free(memory), Err(HeapError::FreedTwice { .. })));
    let foreign = std::ptr::NonNull::from(&heap).cast();
    assert!(matches!(heap.cap_free(foreign), Err(HeapError::Foreign { .. })));
    assert!(matches!(heap.cap_alloc(0), Err(HeapError::Size { .. })));
    assert!(matches!(heap.cap_alloc(1 << 40), Err(HeapError::Size { .. })));
    assert!(matches!(heap.cap_alloc(300 * MIB), Err(HeapError::Size { .. })));
    assert!(matches!(heap.cap_alloc(256 * MIB), Err(HeapError::OutOfMemory { .. })));
}

#[test]
fn a_panic_inside_a_transaction_leaves_nothing() {
    for logging in [Logging::Redo, Logging::Undo] {
        let mut config = Config::default();
        config.logging = logging;
        let memory = Memory::anonymous(16 * MIB, Durability::Flushed).unwrap();
        let heap = Heap::open(memory, config).unwrap();
        let object = heap.persist_alloc_named(64, "mine").unwrap();
        heap.transaction(|tx| tx.write_bytes(object, &[1; 64])).unwrap();
        let free_bytes = heap.stats().free_bytes;
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            heap.transaction(|tx| {
                tx.write_bytes(object, &[2; 64])?;
                tx.alloc(200_000)?;
                if tx.free(object).is_ok() {
                    panic!("on purpose");
                }
                Ok::<(), HeapError>(())
            })
        }));
        assert!(caught.is_err());
        let mut out = [0; 64];
        heap.read_bytes(object, &mut out).unwrap();
        assert_eq!((out, heap.stats().free_bytes), ([1; 64], free_bytes));
        heap.transaction(|tx| tx.write_bytes(object, &[3; 64])).unwrap();
        let nested = heap.transaction(|_| heap.transaction(|_| Ok::<(), HeapError>(())));
        assert!(matches!(nested, Err(HeapError::InTransaction { .. })));
    }
}

#[test]
fn nothing_goes_round_a_transaction_that_may_have_made_or_changed_it() {
    let memory = Memory::anonymous(4 * MIB, Durability::Flushed).unwrap();
    let heap = Heap::open(memory, Config::default()).unwrap();
    let object = heap.persist_alloc(64).unwrap();
    let area = heap.compartment(Kind::Persistent, 4096).unwrap();
    let undone: Result<(), HeapError> = heap.transaction(|tx| {
        let fresh = tx.alloc(32)?;
        for result in [
            heap.persist_free(fresh),
            heap.persist_free(object),
            heap.persist_realloc(object, 1000).map(drop),
            heap.remove_compartment(area),
        ] {
            assert!(matches!(result, Err(HeapError::InTransaction { .. })), "{result:?}");
        }
        Err(HeapError::Null)
    });
    assert!(matches!(undone, Err(HeapError::Null)));
    heap.remove_compartment(area).unwrap();
    heap.persist_free(object).unwrap();
    assert_eq!(heap.leaks().unwrap().objects, 0);
}

#[test]
fn threads_that_make_roots_at_once_lose_none_and_share_none() {
    const EACH: usize = 60;
    for logging in [Logging::Redo, Logging::Undo] {
        let mut config = Config::default();
        config.logging = logging;
        let memory = Memory::anonymous(4 * MIB, Durability::Flushed).unwrap();
        let heap = Heap::open(memory, config).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let heap = &heap;
                scope.spawn(move || {
                    for index in 0..EACH {
                        let name = format!("{thread} {index}");
                        heap.persist_alloc_named(16, &name).unwrap();
                        if index % 3 == 0 {
                            heap.remove_root(&name).unwrap();
                        }
                        heap.roots().unwrap();
                    }
                });
            }
        });
        assert_eq!(heap.roots().unwrap().len(), 4 * EACH * 2 / 3);
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let heap = &heap;
                    scope.spawn(move || {
                        (0..EACH)
                            .filter(|at| heap.persist_alloc_named(16, &format!("one {at}")).is_ok())
                            .count()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, EACH, "each name for one thread");
    }
}

#[test]
fn addresses_are_aligned_as_asked() {
    let memory = Memory::anonymous(64 * MIB, Durability::Ordered).unwrap();
    let heap = Heap::open(memory, Config::default()).unwrap();
    for shift in 4..=24 {
        let align = 1_u64 << shift;
        let capacity = heap.cap_alloc_aligned(100, align).unwrap();
        assert!(capacity.addr().get().is_multiple_of(align as usize), "{align}");
        let object = heap.persist_alloc_aligned(100, align).unwrap();
        assert!(heap.pointer(object).addr().is_multiple_of(align as usize), "{align}");
        heap.cap_free(capacity).unwrap();
        heap.persist_free(object).unwrap();
    }
    let refused = heap.cap_alloc_aligned(100, 1 << 40);
    assert!(matches!(refused, Err(HeapError::Alignment { .. })), "{refused:?}");
}

#[test]
fn a_root_that_another_transaction_makes_or_removes_is_refused_until_it_ends() {
    for logging in [Logging::Redo, Logging::Undo] {
        let mut config = Config::default();
        config.logging = logging;
        let memory = Memory::anonymous(4 * MIB, Durability::Flushed).unwrap();
        let heap = Heap::open(memory, config).unwrap();
        let object = Ptr::<u8>::new(heap.persist_alloc(16).unwrap());
        heap.set_root("old", object).unwrap();
        heap.set_root("kept", object).unwrap();
        let elsewhere = |f: &(dyn Fn() -> Result<(), HeapError> + Sync)| {
            std::thread::scope(|scope| scope.spawn(f).join().unwrap())
        };
        let undone: Result<(), HeapError> = heap.transaction(|tx| {
            tx.set_root("new", object)?;
            tx.remove_root("old")?;
            for name in ["new", "old"] {
                let refused = elsewhere(&|| heap.set_root(name, object));
                assert!(matches!(refused, Err(HeapError::RootTaken { .. })), "{name}: {refused:?}");
            }
            tx.set_root("kept", Ptr::<u8>::NULL)?;
            let refused = elsewhere(&|| heap.remove_root("kept"));
            assert!(matches!(refused, Err(HeapError::RootTaken { .. })), "{refused:?}");
            elsewhere(&|| heap.set_root("third", object))?;
            Err(HeapError::Null)
        });
        assert!(matches!(undone, Err(HeapError::Null)), "{undone:?}");
        let names: Vec<_> = heap.roots().unwrap().into_iter().map(|root| root.name).collect();
        assert_eq!(names, ["kept", "old", "third"], "{logging:?}");
        assert_eq!(heap.root("kept").unwrap(), Some(object));
        heap.set_root("new", object).unwrap();
    }
}

#[test]
fn threads_that_name_one_collection_make_one() {
    use perdura_heap::collections::PVec;
    for _ in 0..50 {
        let memory = Memory::anonymous(2 * MIB, Durability::Flushed).unwrap();
        let heap = Heap::open(memory, Config::default()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let named = heap.transaction(|tx| PVec::<u64>::named(tx, "it"));
                    assert!(matches!(named, Ok(_) | Err(HeapError::RootTaken { .. })));
                });
            }
        });
        let found = heap.leaks().unwrap();
        assert_eq!((found.objects, found.leaks), (1, 0));
    }
}
