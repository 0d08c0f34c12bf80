//! Values that are moved to a shelf and back while operations go on, against the same oracle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::harness::*;
use parking_lot::Mutex;
use perdura_media::sim::SimDevice;
use perdura_media::{Clock, SimClock};
use perdura_region::Region;
use perdura_store::{
    FAR_ROOT_NAME, FarAddress, FarCursor, FarError, FarStorage, FarValue, FoundRun, Heap, Key,
    OpenError, Store, StoreError, StoreOptions, TxError, Unreadable,
};
use rand::Rng;

/// A value with its key's database and name.
type Kept = (u8, Box<[u8]>, Box<[u8]>);

/// A storage that is as simple as one can be: a map.
#[derive(Default)]
struct Shelf {
    kept: Mutex<BTreeMap<FarAddress, Kept>>,
    found: Mutex<Vec<FarAddress>>,
    next: AtomicU64,
    /// Reads fail while this is not 0; each failure takes 1 away.
    failures: AtomicU64,
    /// Uses from which on a value goes back to memory.
    keeps_from: AtomicU64,
    /// What happens while a value is being read.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Shelf {
    fn put(&self, db: u8, key: &[u8], kind: u8, value: &[u8]) -> FarAddress {
        let offset = self.next.fetch_add(16, Ordering::Relaxed);
        let (device, value_bytes) = ((offset / 16 % 3) as u16, value.len() as u32);
        let at = FarAddress { device, offset, record_bytes: 7, value_bytes, checksum: 9, kind };
        self.kept.lock().insert(at, (db, key.into(), value.into()));
        at
    }
}

impl FarStorage for Shelf {
    fn read(&self, wanted: &[FarValue]) -> Vec<Result<Box<[u8]>, FarError>> {
        let meanwhile = self.meanwhile.lock().take();
        let kept = self.kept.lock().clone();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        let fails = |value: &FarValue, why: &str| FarError {
            device: value.at.device,
            place: "shelf".into(),
            why: why.into(),
        };
        let read = |value: &FarValue| {
            let left = self.failures.load(Ordering::Relaxed);
            if left > 0 {
                self.failures.store(left - 1, Ordering::Relaxed);
                return Err(fails(value, "it is told to fail"));
            }
            match kept.get(&value.at) {
                Some((db, key, bytes)) if (*db, key) == (value.db, &value.key) => Ok(bytes.clone()),
                other => Err(fails(value, &format!("{value:?}, kept: {other:?}"))),
            }
        };
        wanted.iter().map(read).collect()
    }

    fn freed(&self, at: FarAddress, _was_found: bool) {
        assert!(self.kept.lock().remove(&at).is_some(), "{at:?} is freed and was not kept");
    }

    fn found(&self, at: FarAddress) {
        self.found.lock().push(at);
    }

    fn make_room(&self) -> bool {
        false
    }

    fn keeps_near(&self, uses: u8, _: FarAddress) -> bool {
        u64::from(uses) >= self.keeps_from.load(Ordering::Relaxed)
    }
}

fn open_far(region: Region, clock: &Arc<SimClock>, shelf: &Arc<Shelf>) -> Store {
    let options = StoreOptions { defer_rebuild: true, ..StoreOptions::default() };
    let heap = Heap::open(region).unwrap();
    heap.set_root(FAR_ROOT_NAME, 1).unwrap();
    Store::open_with_far(heap, clock.clone(), options, shelf.clone()).unwrap()
}

/// Moves some values to the shelf, and some of those there to another place.
fn shelve(store: &Store, shelf: &Shelf, cursor: &mut FarCursor, random: &mut Random) {
    let mut values = Vec::new();
    store.near_values(cursor, random.random_range(1..20), |near| {
        values.push((near.key.db, near.key.bytes.to_vec(), near.kind, near.value.to_vec()));
    });
    for (db, name, kind, value) in values {
        if random.random_ratio(1, 3) {
            continue;
        }
        let at = shelf.put(db, &name, kind, &value);
        let done = store.make_far(Key { db, bytes: &name }, &value, at, false).unwrap();
        assert!(done, "nobody has changed the value");
    }
    let some: Vec<_> = shelf.kept.lock().iter().map(|(at, kept)| (*at, kept.clone())).collect();
    for (from, (db, name, value)) in some.into_iter().filter(|_| random.random_ratio(1, 16)) {
        let key = Key { db, bytes: &name };
        let to = shelf.put(db, &name, from.kind, &value);
        assert!(store.move_far(key, from, to).unwrap(), "the key has the address");
        assert!(!store.move_far(key, from, to).unwrap(), "the key has another address");
    }
}

fn life(seed: u64, budget_bytes: u64, steps: usize) {
    let what = format!("seed {seed}, budget {budget_bytes}");
    let device = SimDevice::new(0, seed);
    let clock = Arc::new(SimClock::new(1_000_000));
    let shelf = Arc::new(Shelf::default());
    shelf.keeps_from.store([1, 3, 256][seed as usize % 3], Ordering::Relaxed);
    let mut random = seeded(seed);
    let mut model = Model::new();
    let (mut cursor, mut reads) = (FarCursor::default(), 0);
    let opened = Region::open(Arc::new(device.clone()), clock.clone(), config(budget_bytes));
    let mut store = open_far(opened.unwrap(), &clock, &shelf);
    for round in 0..4 {
        for number in 0..steps {
            if number % 20 == 10 {
                store.rebuild_next().unwrap();
            }
            if random.random_ratio(1, 4) {
                shelve(&store, &shelf, &mut cursor, &mut random);
            }
            // One failure is as if the value had moved meanwhile.
            shelf.failures.store(random.random_range(0..2), Ordering::Relaxed);
            let step = draw(&mut random, clock.unix_ms());
            apply(&store, &step).unwrap_or_else(|error| panic!("{what}: {step:?}: {error}"));
            apply_to_model(&mut model, &step, clock.unix_ms());
            shelf.failures.store(0, Ordering::Relaxed);
            clock.advance_ns(3_000_000);
        }
        shelve(&store, &shelf, &mut cursor, &mut random);
        let expected = live(&model, clock.unix_ms());
        assert_same(&contents(&store), &expected, &what);
        for ((db, name), (value, _)) in &expected {
            let key = Key { db: *db, bytes: name };
            if let Value::String(value) = &**value {
                assert_eq!(store.get(key).as_deref(), Some(&value[..]), "{what}");
            }
        }
        while store.rebuild_next().unwrap() {}
        store.expire_some(10_000).unwrap();
        // Nothing is kept for nobody, and nothing was freed that a key has.
        let kept: Vec<_> = shelf.kept.lock().keys().copied().collect();
        let far = |(db, name): &(u8, Vec<u8>)| store.far_address(Key { db: *db, bytes: name });
        let mut in_store: Vec<_> = live(&model, clock.unix_ms()).keys().filter_map(far).collect();
        in_store.sort_unstable();
        assert_eq!(kept, in_store, "{what}, round {round}");
        shelf.found.lock().clear();
        reads += store.far_stats().reads;
        let (memory, ledger) = store.region().fds();
        let fds = (memory.try_clone_to_owned().unwrap(), ledger.try_clone_to_owned().unwrap());
        if round % 2 == 1 {
            store.region().close(2).unwrap();
        }
        drop(store);
        let (device, clock2) = (Arc::new(device.clone()), clock.clone());
        let region = match round % 2 {
            0 => Region::attach(fds.0, fds.1, device, clock2, config(budget_bytes)),
            _ => Region::open(device, clock2, config(budget_bytes)),
        };
        store = open_far(region.unwrap(), &clock, &shelf);
        if round == 2 {
            while store.rebuild_next().unwrap() {}
            let mut found = shelf.found.lock().clone();
            found.sort_unstable();
            assert_eq!(found, in_store, "{what}: found after the opening");
        }
    }
    store.flush_all().unwrap();
    while store.rebuild_next().unwrap() {}
    assert!(reads > 0, "{what}");
}

#[test]
fn any_operations_agree_with_the_oracle_while_values_come_and_go() {
    for seed in 0..number("PERDURA_SEEDS").unwrap_or(6) {
        life(seed, 1 << 20, 300);
    }
}

#[test]
fn a_tiny_budget_changes_nothing_for_far_values_either() {
    for seed in 100..100 + number("PERDURA_SEEDS").unwrap_or(3) {
        life(seed, 256 << 10, 150);
    }
}

fn one_far_value() -> (SimDevice, Arc<SimClock>, Arc<Shelf>, Store) {
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1_000_000)));
    let shelf = Arc::new(Shelf::default());
    shelf.keeps_from.store(256, Ordering::Relaxed);
    let region = Region::open(Arc::new(device.clone()), clock.clone(), config(1 << 20));
    let store = open_far(region.unwrap(), &clock, &shelf);
    store.put(Key::new(b"a"), &[7; 100]).unwrap();
    let at = shelf.put(0, b"a", 0, &[7; 100]);
    assert!(store.make_far(Key::new(b"a"), &[7; 100], at, false).unwrap());
    (device, clock, shelf, store)
}

#[test]
fn a_value_that_was_changed_meanwhile_stays_in_memory() {
    let (_, _, shelf, store) = one_far_value();
    store.put(Key::new(b"a"), &[8; 100]).unwrap();
    let at = shelf.put(0, b"a", 0, &[7; 100]);
    assert!(!store.make_far(Key::new(b"a"), &[7; 100], at, false).unwrap());
    assert!(!store.make_far(Key::new(b"b"), &[7; 100], at, false).unwrap());
    assert_eq!(store.get(Key::new(b"a")), Some(vec![8; 100]));
}

#[test]
fn a_device_that_does_not_answer_fails_reads_and_not_writes() {
    let (_, _, shelf, store) = one_far_value();
    let key = Key::new(b"a");
    shelf.failures.store(u64::MAX, Ordering::Relaxed);
    let read = Unreadable::catch(|| store.get(key));
    assert!(matches!(read, Err(Unreadable::Far(FarError { device: 0, .. }))), "{read:?}");
    let refused = store.run(perdura_store::Access::Key(key), |tx| tx.append(key, b"x"));
    assert!(matches!(refused, Err(StoreError::Far(_))), "{refused:?}");
    assert!(store.watch(key).key() == key, "whether there is a key needs no device");
    assert_eq!(store.look(key, |entry| entry.unwrap().string_len()), Some(100));
    store.put(key, b"new").unwrap();
    assert_eq!(store.get(key), Some(b"new".to_vec()));
}

#[test]
fn a_write_that_only_moves_a_value_breaks_no_watch() {
    let (_, _, shelf, store) = one_far_value();
    let key = Key::new(b"a");
    let watch = store.watch(key);
    let from = store.far_address(key).unwrap();
    let to = shelf.put(0, b"a", 0, &[7; 100]);
    assert!(store.move_far(key, from, to).unwrap());
    let kept = store.run(perdura_store::Access::Key(key), |tx| Ok(tx.is_unchanged(&watch)));
    assert!(kept.unwrap());
}

#[test]
fn values_that_are_read_ahead_are_read_once() {
    let (_, _, shelf, store) = one_far_value();
    let names: Vec<_> = (0..10).map(|number| format!("key {number}").into_bytes()).collect();
    for name in &names {
        store.put(Key::new(name), &[5; 80]).unwrap();
        let at = shelf.put(0, name, 0, &[5; 80]);
        assert!(store.make_far(Key::new(name), &[5; 80], at, false).unwrap());
    }
    let wanted: Vec<_> = names.iter().filter_map(|name| store.far_value(Key::new(name))).collect();
    store.fetch_ahead(wanted);
    assert!(names.iter().all(|name| store.far_value(Key::new(name)).is_none()), "all are here");
    assert_eq!(store.far_stats().reads, 10);
    shelf.failures.store(u64::MAX, Ordering::Relaxed);
    assert!(names.iter().all(|name| store.get(Key::new(name)) == Some(vec![5; 80])));
    assert_eq!(store.far_stats().reads, 10);
}

#[test]
fn a_store_with_far_values_is_not_opened_without_its_devices() {
    let (device, clock, _, store) = one_far_value();
    store.region().close(1).unwrap();
    drop(store);
    let region = Region::open(Arc::new(device), clock.clone(), config(1 << 20)).unwrap();
    let opened = Store::open(Heap::open(region).unwrap(), clock, StoreOptions::default());
    assert!(matches!(opened, Err(OpenError::NeedsDevices)));
}

#[test]
fn a_value_that_changes_while_it_is_read_is_read_again() {
    let (_, _, shelf, store) = one_far_value();
    let (store, key) = (Arc::new(store), Key::new(b"a"));
    let (writer, other) = (store.clone(), shelf.clone());
    *shelf.meanwhile.lock() = Some(Box::new(move || {
        writer.put(Key::new(b"a"), &[8; 100]).unwrap();
        let at = other.put(0, b"a", 0, &[8; 100]);
        assert!(writer.make_far(Key::new(b"a"), &[8; 100], at, false).unwrap());
    }));
    assert_eq!(store.get(key), Some(vec![8; 100]));
    let writer = store.clone();
    *shelf.meanwhile.lock() = Some(Box::new(move || {
        writer.put(Key::new(b"a"), b"near").unwrap();
    }));
    let found = store.run(perdura_store::Access::Key(key), |tx| {
        let Some(entry) = tx.get(key) else { return Err(TxError::Again) };
        Ok(entry.string().map(<[u8]>::to_vec))
    });
    assert_eq!(found.unwrap(), Some(b"near".to_vec()));
}

#[test]
fn one_operation_may_need_any_number_of_far_values() {
    let (_, _, shelf, store) = one_far_value();
    let names: Vec<_> = (0..300).map(|number| format!("key {number}").into_bytes()).collect();
    let keys: Vec<_> = names.iter().map(|name| Key::new(name)).collect();
    for key in &keys {
        store.put(*key, &[5; 80]).unwrap();
        let at = shelf.put(0, key.bytes, 0, &[5; 80]);
        assert!(store.make_far(*key, &[5; 80], at, false).unwrap());
    }
    let lens = store.run(perdura_store::Access::Keys(&keys), |tx| {
        keys.iter().map(|key| tx.append(*key, b"tail")).collect::<Result<Vec<_>, _>>()
    });
    assert_eq!(lens.unwrap(), vec![84; 300]);
}

#[test]
fn a_value_that_is_used_often_comes_back_whichever_operation_reads_it() {
    for reads_in_operation in [false, true] {
        let (_, _, shelf, store) = one_far_value();
        shelf.keeps_from.store(3, Ordering::Relaxed);
        let key = Key::new(b"a");
        for _ in 0..4 {
            let found = match reads_in_operation {
                false => store.get(key),
                true => store
                    .run(perdura_store::Access::Key(key), |tx| {
                        let Some(entry) = tx.get(key) else { return Err(TxError::Again) };
                        Ok(entry.string().map(<[u8]>::to_vec))
                    })
                    .unwrap(),
            };
            assert_eq!(found, Some(vec![7; 100]));
        }
        assert_eq!(store.far_address(key), None, "{reads_in_operation}");
        assert!(shelf.kept.lock().is_empty(), "the place is free again");
    }
}

#[test]
fn a_run_that_has_anything_else_than_values_is_left_alone() {
    let (_, _, shelf, store) = one_far_value();
    // Strings, and the fields of a hash with a table, whose records take the same slots: the hash
    // is in the shard of some of the strings.
    let names: Vec<_> = (0..4000).map(|number| format!("string {number}").into_bytes()).collect();
    let hash = Key::new(b"a hash");
    for (number, name) in names.iter().enumerate() {
        store.put(Key::new(name), &[3; 190]).unwrap();
        if number >= 400 {
            continue;
        }
        let field = format!("field  {number}").into_bytes();
        let set = |tx: &mut perdura_store::Tx<'_>| tx.hash_set(hash, &field, &[4; 190]).map(drop);
        store.run(perdura_store::Access::Key(hash), set).unwrap();
    }
    while store.rebuild_next().unwrap() {}
    let (mut from, mut emptied, mut others) = (0, 0, 0);
    loop {
        let mut cold = Vec::new();
        let found = store.begin_emptying(
            &mut from,
            |_, _| true,
            |near| cold.push((near.key.bytes.to_vec(), near.kind, near.value.to_vec())),
        );
        match found {
            FoundRun::End => break,
            FoundRun::Other => others += 1,
            FoundRun::Emptying(run) => {
                for (name, kind, value) in cold {
                    let at = shelf.put(0, &name, kind, &value);
                    assert!(store.make_far(Key::new(&name), &value, at, true).unwrap());
                }
                let len_bytes = run.len_bytes();
                assert_eq!(store.end_emptying(run).unwrap(), len_bytes, "values moved in vain");
                emptied += 1;
            }
        }
    }
    assert!(emptied > 0 && others > 0, "{emptied} runs emptied, {others} others");
    let far = names.iter().filter(|name| store.far_address(Key::new(name)).is_some()).count();
    assert!(far > 0 && far < names.len(), "{far} strings are far: none shared a run with fields");
}
