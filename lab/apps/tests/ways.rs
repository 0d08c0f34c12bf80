//! Every way has the behaviour that applications need, and all give the same results.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use perdura_apps::access::Access;
use perdura_apps::error::{AppError, Result};
use perdura_apps::kinds::{self, App, Named, Random, Size};
use perdura_apps::measure::{Measured, Settings, measure};
use perdura_apps::ways::{HeapSettings, HeapWay, Places, Way};
use rand::{Rng, SeedableRng};

/// Mapped files and block I/O work on any file system; a device only makes them slow.
fn places(dir: &Path) -> Places {
    Places { ram_dir: dir.join("ram"), disk_dir: dir.join("disk"), heap_bytes: 64 << 20 }
}

fn each(check: impl Fn(Way, &dyn Access)) {
    for way in Way::ALL {
        println!("{}", way.name());
        let dir = tempfile::tempdir().unwrap();
        check(way, &*way.open(&places(dir.path())).unwrap());
    }
}

fn put(access: &dyn Access, name: &str, bytes: &[u8]) {
    let mut output = access.put(name, 10).unwrap();
    for piece in bytes.chunks(1000) {
        output.write(piece).unwrap();
    }
    output.finish().unwrap();
}

fn whole(access: &dyn Access, name: &str) -> Vec<u8> {
    access.get(name).unwrap().whole(4096).unwrap().to_vec()
}

fn bytes(seed: u64, len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    Random::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}

#[test]
fn what_was_put_is_got_in_pieces_of_any_length() {
    each(|_, access| {
        for len_bytes in [0, 1, 4095, 4096, 4097, 1_000_003] {
            let expected = bytes(1, len_bytes);
            put(access, "in-data", &expected);
            assert!(whole(access, "in-data") == expected);
            for piece_bytes in [1 << 20, 4096, 777] {
                let mut input = access.get("in-data").unwrap();
                assert_eq!(input.len_bytes(), len_bytes);
                let mut found = Vec::new();
                loop {
                    let piece = input.next(piece_bytes).unwrap();
                    if piece.is_empty() {
                        break;
                    }
                    found.extend_from_slice(piece);
                }
                assert!(found == expected, "{len_bytes} B by {piece_bytes}");
            }
        }
    });
}

#[test]
fn names_are_there_until_they_are_removed() {
    each(|way, access| {
        let missing = access.get("in-none").err().unwrap();
        assert!(matches!(missing, AppError::Missing { .. }), "{missing}");
        assert!(missing.to_string().contains(way.name()));
        for number in 0..600 {
            put(access, &format!("in-{number}"), &bytes(number, 10));
        }
        assert_eq!(access.names().unwrap().len(), 600);
        for number in 0..600 {
            assert!(whole(access, &format!("in-{number}")) == bytes(number, 10));
            assert!(access.remove(&format!("in-{number}")).unwrap());
            assert!(!access.remove(&format!("in-{number}")).unwrap());
        }
        assert_eq!(access.names().unwrap(), Vec::<String>::new());
    });
}

#[test]
fn a_reader_keeps_what_it_opened_when_the_name_is_put_again_or_removed() {
    each(|_, access| {
        let (old, new) = (bytes(1, 100_000), bytes(2, 50_000));
        put(access, "in-data", &old);
        let mut reader = access.get("in-data").unwrap();
        put(access, "in-data", &new);
        let mut second = access.get("in-data").unwrap();
        assert!(access.remove("in-data").unwrap());
        assert!(reader.whole(4096).unwrap() == old);
        assert!(second.whole(4096).unwrap() == new);
    });
}

#[test]
fn an_output_given_up_leaves_nothing_in_memory() {
    for way in [Way::Dram, Way::Heap, Way::HeapIo, Way::HeapOrdered] {
        let dir = tempfile::tempdir().unwrap();
        let access = way.open(&places(dir.path())).unwrap();
        let mut output = access.put("in-data", 100).unwrap();
        output.write(&[1; 50]).unwrap();
        drop(output);
        assert!(access.get("in-data").is_err(), "{}", way.name());
    }
}

#[test]
fn a_pool_holds_what_a_map_holds() {
    const SEED: u64 = 5;
    each(|_, access| {
        let mut pool = access.pool("pool-test").unwrap();
        let mut random = Random::seed_from_u64(SEED);
        let mut oracle: HashMap<u64, Vec<u8>> = HashMap::new();
        for step in 0..3000 {
            let ids: Vec<u64> = oracle.keys().copied().collect();
            let pick = random.random_range(0..ids.len().max(1));
            // Maps have no order, so the objects' numbers are sorted: the seed alone decides the
            // pick.
            let mut sorted = ids;
            sorted.sort_unstable();
            match (random.random_range(0..10), sorted.get(pick)) {
                (0..4, _) | (_, None) => {
                    let value = bytes(step, random.random_range(1..3000));
                    let id = pool.alloc(value.len()).unwrap();
                    assert!(id != 0 && id < 1 << 48, "{id:#x} of seed {SEED}");
                    pool.write(id, 0, &value).unwrap();
                    assert!(oracle.insert(id, value).is_none(), "{id:#x} of seed {SEED}");
                }
                (4..6, Some(id)) => {
                    pool.free(*id, oracle.remove(id).unwrap().len()).unwrap();
                }
                (6..8, Some(id)) => {
                    let value = oracle.get_mut(id).unwrap();
                    let at = random.random_range(0..value.len());
                    value[at] ^= 1;
                    pool.write(*id, at, &value[at..=at]).unwrap();
                }
                (_, Some(id)) => {
                    let value = &oracle[id];
                    let at = random.random_range(0..value.len());
                    let found = pool.read(*id, at, value.len() - at).unwrap();
                    assert!(found == &value[at..], "{id:#x} of seed {SEED}");
                }
            }
            if step % 500 == 0 {
                pool.sync().unwrap();
            }
        }
        for (id, value) in &oracle {
            assert!(pool.read(*id, 0, value.len()).unwrap() == value, "{id:#x} of seed {SEED}");
        }
    });
}

#[test]
fn calls_are_counted_as_the_application_makes_them() {
    each(|way, access| {
        put(access, "in-data", &bytes(1, 10_000));
        access.tally().take();
        whole(access, "in-data");
        put(access, "out-data", &bytes(1, 2_500));
        let calls = access.tally().take();
        assert_eq!((calls.reads, calls.read_bytes), (3, 10_000), "{}", way.name());
        assert_eq!((calls.writes, calls.write_bytes), (3, 2_500), "{}", way.name());
        let is_in_memory = matches!(way, Way::Dram | Way::Heap | Way::HeapIo | Way::HeapOrdered);
        assert_eq!(calls.system() == 0, is_in_memory, "{}: {calls:?}", way.name());
        let waits = matches!(way, Way::MmapSync | Way::Block);
        assert_eq!(calls.syncs > 0, waits, "{}: {calls:?}", way.name());
    });
}

/// Held by tests that count memory, for it is counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

fn measure_alone(app: &dyn App, settings: &Settings) -> Result<Measured> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    measure(app, settings)
}

fn heap(dir: &Path, settings: HeapSettings) -> HeapWay {
    HeapWay::create("heap", dir.join("heap"), settings).unwrap()
}

const SETTINGS: HeapSettings = HeapSettings { len_bytes: 64 << 20, flushed: true, capacity: true };

#[test]
fn finished_data_are_there_when_a_heap_is_opened_again_and_unfinished_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let access = heap(dir.path(), SETTINGS);
    for number in 0..500 {
        put(&access, &format!("in-{number}"), &bytes(number, 100 + number as usize));
    }
    put(&access, "in-3", &bytes(1003, 9_000));
    access.remove("in-4").unwrap();
    let mut unfinished = access.put("in-unfinished", 100).unwrap();
    unfinished.write(&[1; 100]).unwrap();
    // As in a killed process: not even its own clean-up runs.
    std::mem::forget(unfinished);
    let access = access.reopen(SETTINGS).unwrap();
    assert_eq!(access.names().unwrap().len(), 499);
    for number in (0..500).filter(|number| *number != 3 && *number != 4) {
        let expected = bytes(number, 100 + number as usize);
        assert!(whole(&access, &format!("in-{number}")) == expected, "in-{number}");
    }
    assert!(whole(&access, "in-3") == bytes(1003, 9_000));
}

#[test]
fn what_is_replaced_or_removed_is_free_again() {
    let dir = tempfile::tempdir().unwrap();
    let access = heap(dir.path(), SETTINGS);
    for round in 0..100 {
        put(&access, "in-data", &bytes(round, 3 << 20));
        let mut pool = access.pool("pool-test").unwrap();
        for _ in 0..300 {
            pool.alloc(4096).unwrap();
        }
    }
    let used = access.usage().unwrap().persistent_bytes;
    assert!(used < 40 << 20, "{used} B");
}

#[test]
fn what_an_application_allocates_lies_in_capacity_memory() {
    let dir = tempfile::tempdir().unwrap();
    let access = heap(dir.path(), SETTINGS);
    let within = |bytes: &[u8]| access.addresses().contains(&bytes.as_ptr().addr());
    let scratch = access.scratch();
    let outside = vec![1u8; 1000];
    let entered = scratch.enter();
    let mut inside = vec![1u8; 1000];
    let zeroed = vec![0u8; 100_000];
    assert!(within(&inside) && within(&zeroed) && !within(&outside));
    assert!(zeroed.iter().all(|byte| *byte == 0));
    inside.resize(1_000_000, 2);
    assert!(within(&inside));
    drop(entered);
    let after = vec![1u8; 1000];
    assert!(!within(&after));
    // Memory is freed by its own source, whichever thread frees it.
    drop((inside, zeroed, outside));
}

#[test]
fn a_full_heap_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let access = heap(dir.path(), SETTINGS);
    let error = access.put("in-data", 1 << 30).err().unwrap().to_string();
    assert!(error.starts_with("heap: allocate data: "), "{error}");
}

#[test]
fn all_ways_of_all_applications_have_equal_results() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { ways: Way::ALL.to_vec(), rounds: 2, places: places(dir.path()) };
    for app in kinds::all(Size::Small, 12) {
        let measured = measure_alone(&*app, &settings).unwrap();
        assert!(measured.results > 0 && measured.result_bytes > 0, "{measured:?}");
        let calls = |way: usize| {
            let calls = &measured.ways[way].calls;
            (calls.reads, calls.read_bytes, calls.writes, calls.write_bytes)
        };
        for (at, way) in measured.ways.iter().enumerate() {
            assert_eq!(calls(at), calls(0), "{} of {}, seed 12", way.way, measured.app);
            assert_eq!(way.run_ns.len(), 2);
        }
        let heap = &measured.ways[1];
        assert!(heap.usage.capacity_peak_bytes > 0, "{heap:?}");
        assert!(heap.memory.malloc_peak_bytes < measured.ways[0].memory.malloc_peak_bytes);
    }
}

/// An application that gives another result by one way.
struct Wrong(Way);

impl App for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn about(&self) -> String {
        "differs by one way".into()
    }

    fn inputs(&self) -> Result<Vec<Named>> {
        Ok(Vec::new())
    }

    fn run(&self, access: &dyn Access) -> Result<()> {
        let mut output = access.put("out-result", 1)?;
        output.write(&[u8::from(access.way() == self.0.name())])?;
        output.finish()
    }
}

#[test]
fn a_result_that_differs_is_found() {
    for wrong in [Way::Heap, Way::Block] {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { ways: Way::ALL.to_vec(), rounds: 1, places: places(dir.path()) };
        let error = measure_alone(&Wrong(wrong), &settings).unwrap_err().to_string();
        assert!(
            error.starts_with("wrong: out-result has digest ") && error.contains(wrong.name()),
            "{error}"
        );
    }
}

/// An application that keeps memory it allocated.
struct Keeper;

impl App for Keeper {
    fn name(&self) -> &'static str {
        "keeper"
    }

    fn about(&self) -> String {
        "leaves an allocation behind".into()
    }

    fn inputs(&self) -> Result<Vec<Named>> {
        Ok(Vec::new())
    }

    fn run(&self, _access: &dyn Access) -> Result<()> {
        std::mem::forget(vec![1u8; 100]);
        Ok(())
    }
}

#[test]
fn what_outlives_a_run_in_capacity_memory_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let places = places(dir.path());
    let ways = vec![Way::Dram, Way::HeapIo];
    measure_alone(&Keeper, &Settings { ways, rounds: 1, places: places.clone() }).unwrap();
    let settings = Settings { ways: vec![Way::Heap], rounds: 1, places };
    let error = measure_alone(&Keeper, &settings).unwrap_err();
    assert!(matches!(error, AppError::CapacityInUse { live: 1, .. }), "{error}");
}
