//! The number of keys after an opening, against a naive count by scanning: whether the number was
//! saved or is counted, whatever ended the life before, and while others write.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::harness::{Random, apply, config, deferred_on, draw, number, seeded};
use perdura_media::sim::SimDevice;
use perdura_media::{Clock, SimClock};
use perdura_region::{Config, Planted, Region};
use perdura_store::{Heap, Key, Store, StoreError, StoreOptions};
use rand::Rng;

const BUDGET_BYTES: u64 = 1 << 20;
const LIVES: usize = 12;

/// Openings that a run has seen.
#[derive(Default)]
struct Openings {
    /// The number of keys was known without counting.
    known: u64,
    /// The keys had to be counted.
    counted: u64,
}

/// Keys of a database and those of them that expire. The scan leaves out what has expired, so
/// nothing may have.
fn naive_count(store: &Store, db: u8) -> (u64, u64) {
    let (mut keys, mut with_expiry, mut cursor) = (0, 0, 0);
    loop {
        cursor = store.scan(db, cursor, 100, |_, entry| {
            keys += 1;
            with_expiry += u64::from(entry.expire_at_ms.is_some());
        });
        if cursor == 0 {
            return (keys, with_expiry);
        }
    }
}

fn compare(store: &Store, when: &str) -> Result<(), String> {
    for db in 0..2 {
        let found = (store.len(db), store.keys_with_expiry(db));
        let naive = naive_count(store, db);
        if found != naive {
            return Err(format!("{when}: database {db}: {found:?}, by scanning {naive:?}"));
        }
    }
    Ok(())
}

/// A machine that runs one store after another.
struct Machine {
    device: SimDevice,
    clock: Arc<SimClock>,
    random: Random,
    planted: Planted,
}

impl Machine {
    fn config(&mut self) -> Config {
        let defer_load = self.random.random_bool(0.7);
        Config { defer_load, planted: self.planted, ..config(BUDGET_BYTES) }
    }

    fn adopt(&self, region: Region) -> Result<Store, String> {
        let options = StoreOptions { defer_rebuild: true, ..StoreOptions::default() };
        Store::open(Heap::open(region).unwrap(), self.clock.clone(), options)
            .map_err(|error| format!("opening: {error}"))
    }

    fn open(&mut self) -> Result<Store, String> {
        let config = self.config();
        let region = Region::open(Arc::new(self.device.clone()), self.clock.clone(), config);
        self.adopt(region.unwrap())
    }

    fn attach(&mut self, store: Store) -> Result<Store, String> {
        let (memory, ledger) = store.region().fds();
        let held = (memory.try_clone_to_owned().unwrap(), ledger.try_clone_to_owned().unwrap());
        drop(store);
        let (device, config) = (Arc::new(self.device.clone()), self.config());
        let region = Region::attach(held.0, held.1, device, self.clock.clone(), config);
        self.adopt(region.unwrap())
    }

    /// Random operations. False if the process was killed in one of them.
    fn work(&mut self, store: &Store, steps: usize) -> Result<bool, String> {
        for _ in 0..steps {
            let step = draw(&mut self.random, self.clock.unix_ms());
            match apply(store, &step) {
                Ok(()) => {}
                Err(StoreError::Killed) => return Ok(false),
                // Nothing has changed then.
                Err(StoreError::OutOfMemory { .. }) => {}
                Err(error) => panic!("{step:?}: {error}"),
            }
            if self.random.random_bool(0.01) {
                store.rebuild_next().map_err(|error| format!("rebuilding: {error}"))?;
            }
        }
        Ok(true)
    }

    /// Lets time pass. Behind it what has expired is removed, and the numbers of shards that do not
    /// change are saved.
    fn pass_time(&self, store: &Store) -> Result<(), String> {
        self.clock.advance_ns(400_000_000);
        // Only shards whose keys are counted are swept.
        store.len(0);
        store.expire_some(1 << 20).unwrap();
        if (0..2).any(|db| store.counted(db) != naive_count(store, db)) {
            // And only shards that were searched.
            while store.rebuild_next().map_err(|error| format!("rebuilding: {error}"))? {}
            store.expire_some(1 << 20).unwrap();
        }
        for _ in 0..2 {
            store.save_quiet_counts().unwrap();
        }
        Ok(())
    }

    /// Ends the life of a store in one of the ways, and begins the next one.
    fn end(&mut self, store: Store) -> Result<Store, String> {
        match self.random.random_range(0..4) {
            // SIGTERM.
            0 => {
                store.save_counts();
                store.region().close(1).unwrap();
                drop(store);
                self.open()
            }
            // The server is killed between two operations, its holder is not.
            1 => self.attach(store),
            // Both are killed.
            2 => {
                store.region().checkpoint().unwrap();
                let steps = self.random.random_range(0..20);
                self.work(&store, steps)?;
                drop(store);
                self.device = self.device.power_cycle(self.random.random());
                self.open()
            }
            // The server is killed inside an operation.
            _ => {
                store.heap().kill_after(self.random.random_range(1..200));
                while self.work(&store, 1)? {}
                self.attach(store)
            }
        }
    }
}

fn run(seed: u64, planted: Planted) -> Result<Openings, String> {
    let what = format!(
        "replay: PERDURA_SEED={seed} cargo test -p perdura-store --test store counts::replay; \
         seed {seed}"
    );
    let (clock, random) = (Arc::new(SimClock::new(1_000_000)), seeded(seed));
    let mut machine = Machine { device: SimDevice::new(0, seed), clock, random, planted };
    let mut openings = Openings::default();
    let mut store = machine.open()?;
    for life in 0..LIVES {
        let when = format!("{what}, life {life}");
        let steps = machine.random.random_range(0..300);
        machine.work(&store, steps)?;
        compare(&store, &when)?;
        if machine.random.random_bool(0.6) {
            machine.pass_time(&store).map_err(|why| format!("{when}: {why}"))?;
            compare(&store, &when)?;
            let steps = machine.random.random_range(0..4);
            machine.work(&store, steps)?;
        }
        if machine.random.random_bool(0.7) {
            while store.rebuild_next().map_err(|error| format!("{when}: {error}"))? {}
        }
        store = machine.end(store)?;
        let is_known = (0..2).all(|db| store.counted(db) == naive_count(&store, db));
        *(if is_known { &mut openings.known } else { &mut openings.counted }) += 1;
        if machine.random.random_bool(0.5) {
            compare(&store, &when)?;
        }
    }
    while store.rebuild_next().map_err(|error| format!("{what}: {error}"))? {}
    compare(&store, &what)?;
    Ok(openings)
}

#[test]
fn the_number_of_keys_is_that_of_a_naive_count_after_any_end() {
    let mut all = Openings::default();
    for seed in 0..number("PERDURA_SEEDS").unwrap_or(12) {
        let openings = run(seed, Planted::None).unwrap_or_else(|why| panic!("{why}"));
        all.known += openings.known;
        all.counted += openings.counted;
    }
    println!("{} openings knew the number, {} counted", all.known, all.counted);
    assert!(all.known > 20 && all.counted > 20, "{} known, {} counted", all.known, all.counted);
}

#[test]
fn a_saved_number_that_stays_when_the_number_changes_is_caught() {
    let caught = (0..12).filter(|seed| run(*seed, Planted::KeepSavedCount).is_err()).count();
    assert!(caught >= 10, "caught with {caught} of 12 seeds");
}

#[test]
fn replay_one_run_from_the_environment() {
    if let Some(seed) = number("PERDURA_SEED") {
        run(seed, Planted::None).unwrap_or_else(|why| panic!("{why}"));
    }
}

fn filled(device: &SimDevice, clock: &Arc<SimClock>, keys: u32) -> Store {
    let config = Config { defer_load: true, ..config(BUDGET_BYTES) };
    let region = Region::open(Arc::new(device.clone()), clock.clone(), config).unwrap();
    let store = deferred_on(region, clock);
    for number in 0..keys {
        store.put(Key::new(&number.to_le_bytes()), &[1; 300]).unwrap();
    }
    store
}

#[test]
fn after_a_clean_end_the_number_is_known_without_loading_or_searching() {
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1)));
    let first = filled(&device, &clock, 8_000);
    while first.rebuild_next().unwrap() {}
    first.save_counts();
    first.region().close(1).unwrap();
    drop(first);
    let second = filled(&device, &clock, 0);
    let loaded_bytes = || second.region().load_progress().unwrap().loaded_bytes;
    let before = loaded_bytes();
    assert_eq!((second.len(0), second.counted(0), second.stats().keys), (8_000, (8_000, 0), 8_000));
    assert_eq!(loaded_bytes(), before);
    for number in 7_000..9_000u32 {
        second.put(Key::new(&number.to_le_bytes()), b"new").unwrap();
    }
    for number in 0..500u32 {
        assert!(second.delete(Key::new(&number.to_le_bytes())).unwrap());
    }
    assert_eq!(second.len(0), 8_500);
    // The search for free memory compares its own count.
    while second.rebuild_next().unwrap() {}
    assert_eq!(second.len(0), 8_500);
    second.flush_db(0).unwrap();
    assert_eq!(second.len(0), 0);
}

#[test]
fn keys_are_counted_exactly_while_others_write() {
    const BEFORE: u32 = 6_000;
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1)));
    let first = filled(&device, &clock, BEFORE);
    // Nothing was saved: all shards are counted.
    first.region().close(1).unwrap();
    drop(first);
    let store = filled(&device, &clock, 0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers = [0, 1, 2u32].map(|writer| {
            let store = &store;
            scope.spawn(move || {
                // Each removes keys of its own and adds as many others, twice as many in the end.
                for number in (writer..BEFORE / 2).step_by(3) {
                    assert!(store.delete(Key::new(&number.to_le_bytes())).unwrap());
                    for new in [BEFORE + 2 * number, BEFORE + 2 * number + 1] {
                        store.put(Key::new(&new.to_le_bytes()), b"new").unwrap();
                    }
                }
            })
        });
        let looks = scope.spawn(|| {
            let mut looks = 0;
            while !is_over.load(Relaxed) || looks == 0 {
                let len = store.len(0);
                assert!(
                    (u64::from(BEFORE) - 3..=u64::from(BEFORE) * 3 / 2).contains(&len),
                    "{len}"
                );
                looks += 1;
            }
            looks
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Relaxed);
        println!("counted {} times meanwhile", looks.join().unwrap());
    });
    let expected = u64::from(BEFORE) * 3 / 2;
    assert_eq!((store.len(0), naive_count(&store, 0).0), (expected, expected));
    while store.rebuild_next().unwrap() {}
    assert_eq!(store.len(0), expected);
}
