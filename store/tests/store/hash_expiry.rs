//! Hashes with fields that expire, against a naive oracle, also when operations are killed at every
//! step.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::harness::*;
use perdura_media::sim::SimDevice;
use perdura_media::{Clock, SimClock};
use perdura_region::{Config, Planted, Region};
use perdura_store::{
    Access, Eviction, EvictionPolicy, Expiry, FIELD_EXPIRY_MAX_MS, Heap, Key, Kind, Store,
    StoreError, StoreOptions, Tx, TxError,
};
use rand::Rng;

const BUDGET_BYTES: u64 = 1 << 20;
const HASH: Key<'static> = Key { db: 0, bytes: b"hash" };
const OTHER: Key<'static> = Key { db: 1, bytes: b"other" };
const BOTH: Access<'static> = Access::Keys(&[HASH, OTHER]);

type Fields = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

fn fresh(seed: u64) -> (Store, Arc<SimClock>, SimDevice) {
    let (device, clock) = (SimDevice::new(0, seed), Arc::new(SimClock::new(1_000_000)));
    (open(&device, &clock, BUDGET_BYTES), clock, device)
}

fn reattach(store: Store, device: &SimDevice, clock: &Arc<SimClock>, config: Config) -> Region {
    let (memory, ledger) = store.region().fds();
    let fds = (memory.try_clone_to_owned().unwrap(), ledger.try_clone_to_owned().unwrap());
    drop(store);
    let device = Arc::new(device.clone());
    Region::attach(fds.0, fds.1, device, clock.clone(), config).unwrap()
}

fn run(
    store: &Store,
    op: impl FnMut(&mut Tx<'_>) -> Result<(), TxError>,
) -> Result<(), StoreError> {
    store.run(BOTH, op)
}

/// What a hash shows, by every way of asking.
fn found(store: &Store, key: Key<'_>) -> Fields {
    let mut fields = Fields::new();
    let is_there = store.read(key, |entry| {
        let Some(entry) = entry else { return false };
        assert_eq!(entry.kind, Kind::Hash);
        entry.for_each_expiring_field(&mut |field| {
            let value = (field.value.to_vec(), field.expire_at_ms);
            assert!(fields.insert(field.name.to_vec(), value).is_none());
        });
        assert_eq!(entry.hash_len(), Some(fields.len() as u64));
        true
    });
    assert_eq!(is_there, !fields.is_empty());
    let mut walked = Fields::new();
    store
        .run(Access::Key(key), |tx| {
            walked.clear();
            assert_eq!((tx.has(key), tx.hash_len(key)?), (is_there, fields.len() as u64));
            tx.hash_for_each(key, &mut |field, value| {
                walked.insert(field.to_vec(), (value.to_vec(), None));
            })?;
            for (field, (value, at_ms)) in &mut walked {
                assert_eq!(tx.hash_get(key, field)?, Some(&value[..]));
                *at_ms = tx.hash_expiry(key, field)?.unwrap();
            }
            Ok(())
        })
        .unwrap();
    assert!(walked == fields);
    fields
}

fn live(fields: &Fields, now_ms: u64) -> Fields {
    let is_live = |at_ms: &Option<u64>| at_ms.is_none_or(|at_ms| at_ms > now_ms);
    let live = fields.iter().filter(|(_, (_, at_ms))| is_live(at_ms));
    live.map(|(field, value)| (field.clone(), value.clone())).collect()
}

fn name(random: &mut Random, names: u32) -> Vec<u8> {
    format!("f{}", random.random_range(0..names)).into_bytes()
}

/// Asks for each field by its name, also for those that have expired.
fn ask_each(store: &Store, fields: &Fields, names: u32) {
    for number in 0..names {
        let name = format!("f{number}").into_bytes();
        let want = fields.get(&name).map(|(value, _)| value.clone());
        let got = store.hash_get(HASH, &name, |value| value.map(<[u8]>::to_vec)).unwrap();
        assert!(got == want, "f{number}");
    }
}

/// One operation at random, on the store and the oracle.
fn step(store: &Store, fields: &mut Fields, names: u32, random: &mut Random, now_ms: u64) {
    *fields = live(fields, now_ms);
    let field = name(random, names);
    let value = vec![b'v'; random.random_range(0..400)];
    match random.random_range(0..100) {
        0..30 => {
            let set = || [(&field[..], &value[..]), (b"f1", b"second")].into_iter();
            let mut new = 0;
            run(store, |tx| tx.hash_set_all(HASH, set()).map(|count| new = count)).unwrap();
            let before = fields.len();
            fields.extend(set().map(|(field, value)| (field.to_vec(), (value.to_vec(), None))));
            assert_eq!(new, (fields.len() - before) as u64);
        }
        30..45 => {
            let old = fields.get(&field).and_then(|(_, at_ms)| *at_ms);
            let mut is_new = false;
            run(store, |tx| tx.hash_change(HASH, &field, &value).map(|new| is_new = new)).unwrap();
            assert_eq!(is_new, fields.insert(field, (value, old)).is_none());
        }
        45..60 => {
            let mut was_there = false;
            run(store, |tx| tx.hash_delete(HASH, &field).map(|was| was_there = was)).unwrap();
            assert_eq!(was_there, fields.remove(&field).is_some());
        }
        60..97 => {
            let at_ms = now_ms + random.random_range(1..3_000);
            let at_ms = random.random_bool(0.85).then_some(at_ms);
            let mut was_there = false;
            run(store, |tx| tx.hash_set_expiry(HASH, &field, at_ms).map(|was| was_there = was))
                .unwrap();
            let own = fields.get_mut(&field);
            assert_eq!(was_there, own.is_some());
            own.into_iter().for_each(|own| own.1 = at_ms);
        }
        97 => drop(store.expire_some(50).unwrap()),
        // There and back: each of these makes a hash anew.
        98 => run(store, |tx| {
            tx.rename(HASH, OTHER)?;
            tx.copy(OTHER, HASH)?;
            tx.delete(OTHER).map(drop)
        })
        .unwrap(),
        _ => {
            let all: Vec<_> = fields
                .iter()
                .map(|(name, (value, at))| (name.clone(), value.clone(), *at))
                .collect();
            run(store, |tx| tx.hash_put_expiring(HASH, &all, Expiry::None)).unwrap();
        }
    }
}

fn life(seed: u64, names: u32, planted: Planted) {
    let what = format!("seed {seed}, {names} names");
    let (device, clock) = (SimDevice::new(0, seed), Arc::new(SimClock::new(1_000_000)));
    let config = || Config { planted, ..config(BUDGET_BYTES) };
    let region = Region::open(Arc::new(device.clone()), clock.clone(), config()).unwrap();
    let mut store = store_on(region, &clock);
    let (mut random, mut fields) = (seeded(seed), Fields::new());
    for number in 1..=1_500 {
        step(&store, &mut fields, names, &mut random, clock.unix_ms());
        clock.advance_ns(random.random_range(0..10_000_000));
        let look = if number < 200 { 7 } else { 100 };
        if number % look == 0 {
            let fields = live(&fields, clock.unix_ms());
            assert!(found(&store, HASH) == fields, "{what}: {number}");
            ask_each(&store, &fields, names);
        }
        if number % 300 == 0 {
            let region = reattach(store, &device, &clock, config());
            // Not searched yet, so that the sweep does nothing, and nothing is shown for that.
            store = deferred_on(region, &clock);
            assert!(found(&store, HASH) == live(&fields, clock.unix_ms()), "{what}: attached");
            while store.rebuild_next().unwrap() {}
        }
        if number % 500 == 0 {
            // All that expires has gone, and the memory with it.
            clock.advance_ns(3_000_000_000);
            store.expire_some(10_000).unwrap();
            let left = live(&fields, clock.unix_ms());
            assert!(found(&store, HASH) == left, "{what}: swept");
            assert_eq!(store.len(0), u64::from(!left.is_empty()), "{what}");
        }
    }
    store.flush_all().unwrap();
    store.heap().reclaim();
    assert_eq!(store.stats().free_bytes, fresh(1).0.stats().free_bytes, "{what}: memory leaked");
}

#[test]
fn fields_that_expire_agree_with_the_oracle() {
    for seed in 0..number("PERDURA_SEEDS").unwrap_or(3) {
        life(seed, 6, Planted::None);
        life(seed, 40, Planted::None);
        life(seed, 600, Planted::None);
    }
}

#[test]
#[should_panic]
fn a_field_that_stays_in_the_tree_is_found_out() {
    life(0, 40, Planted::KeepFieldExpiry);
}

/// Runs `operation` on a hash, killed after `fuse` steps of the heap. Returns whether it got
/// through before.
fn killed_inside(
    before: &Fields,
    wait_ms: u64,
    operation: &dyn Fn(&Store) -> Result<(), StoreError>,
    after: &(Fields, Fields),
    fuse: u64,
) -> bool {
    let (store, clock, device) = fresh(fuse);
    let empty_bytes = store.stats().free_bytes;
    prepare(&store, before);
    clock.advance_ns(wait_ms * 1_000_000);
    store.heap().kill_after(fuse);
    let outcome = operation(&store);
    assert!(matches!(outcome, Ok(()) | Err(StoreError::Killed)), "{outcome:?}");
    let got_through = outcome.is_ok() && !store.heap().is_killed();
    let store = if fuse.is_multiple_of(3) {
        store.region().close(1).unwrap();
        drop(store);
        open(&device.power_cycle(fuse), &clock, BUDGET_BYTES)
    } else {
        store_on(reattach(store, &device, &clock, config(BUDGET_BYTES)), &clock)
    };
    let found = (found(&store, HASH), found(&store, OTHER));
    let unchanged = (live(before, clock.unix_ms()), Fields::new());
    assert!(found == *after || (outcome.is_err() && found == unchanged), "killed after {fuse}");
    // It goes on working.
    run(&store, |tx| {
        tx.hash_set(HASH, b"f1", b"later")?;
        tx.hash_set_expiry(HASH, b"f1", Some(9_000_000)).map(drop)
    })
    .unwrap();
    store.expire_some(1_000).unwrap();
    store.flush_all().unwrap();
    store.heap().reclaim();
    assert_eq!(store.stats().free_bytes, empty_bytes, "killed after {fuse}: memory leaked");
    got_through
}

/// Makes the hash field by field, by the operations that commands use.
fn prepare(store: &Store, fields: &Fields) {
    let pairs = || fields.iter().map(|(name, (value, _))| (&name[..], &value[..]));
    run(store, |tx| tx.hash_set_all(HASH, pairs()).map(drop)).unwrap();
    for (name, (_, at_ms)) in fields.iter().filter(|(_, (_, at_ms))| at_ms.is_some()) {
        run(store, |tx| tx.hash_set_expiry(HASH, name, *at_ms).map(drop)).unwrap();
    }
}

fn killed_everywhere(
    before: &Fields,
    wait_ms: u64,
    operation: &dyn Fn(&Store) -> Result<(), StoreError>,
    stride: u64,
) {
    let (store, clock, _) = fresh(1);
    prepare(&store, before);
    clock.advance_ns(wait_ms * 1_000_000);
    operation(&store).unwrap();
    let after = (found(&store, HASH), found(&store, OTHER));
    let mut fuse = 1;
    while !killed_inside(before, wait_ms, operation, &after, fuse) {
        fuse += stride;
    }
}

/// So many fields, of which the first `expiring` expire, one a second from 1,001 s on.
fn numbered(count: u64, expiring: u64) -> Fields {
    let at_ms = |n: u64| (n < expiring).then_some(1_001_000 + n * 1_000);
    (0..count).map(|n| (format!("f{n}").into_bytes(), (vec![b'v'; 20], at_ms(n)))).collect()
}

fn expire(field: &'static [u8], at_ms: Option<u64>) -> impl Fn(&Store) -> Result<(), StoreError> {
    move |store| run(store, |tx| tx.hash_set_expiry(HASH, field, at_ms).map(drop))
}

#[test]
fn expiries_killed_at_any_step_are_whole_or_absent() {
    // A packed hash gets a table, a table's root moves, a field joins others, moves, and leaves.
    killed_everywhere(&numbered(5, 0), 0, &expire(b"f2", Some(2_000_000)), 1);
    killed_everywhere(&numbered(300, 0), 0, &expire(b"f2", Some(2_000_000)), 5);
    killed_everywhere(&numbered(300, 70), 0, &expire(b"f299", Some(1_030_500)), 3);
    killed_everywhere(&numbered(5, 3), 0, &expire(b"f0", Some(1_500_000)), 1);
    killed_everywhere(&numbered(5, 1), 0, &expire(b"f0", None), 1);
    killed_everywhere(&numbered(5, 3), 0, &expire(b"f1", None), 1);
}

#[test]
fn changes_of_expiring_fields_killed_at_any_step_are_whole_or_absent() {
    let set = |store: &Store| run(store, |tx| tx.hash_set(HASH, b"f0", b"new").map(drop));
    killed_everywhere(&numbered(5, 1), 0, &set, 1);
    killed_everywhere(&numbered(80, 70), 0, &set, 1);
    let change = |store: &Store| run(store, |tx| tx.hash_change(HASH, b"f0", b"new").map(drop));
    killed_everywhere(&numbered(5, 1), 0, &change, 1);
    killed_everywhere(&numbered(80, 70), 0, &change, 1);
    let delete = |store: &Store| {
        run(store, |tx| {
            tx.hash_delete(HASH, b"f1")?;
            tx.hash_delete(HASH, b"f0").map(drop)
        })
    };
    killed_everywhere(&numbered(2, 2), 0, &delete, 1);
    killed_everywhere(&numbered(80, 70), 0, &delete, 1);
    let copy = |store: &Store| run(store, |tx| tx.copy(HASH, OTHER).map(drop));
    killed_everywhere(&numbered(70, 60), 0, &copy, 29);
    let rename = |store: &Store| run(store, |tx| tx.rename(HASH, OTHER).map(drop));
    killed_everywhere(&numbered(10, 5), 4_000, &rename, 1);
}

#[test]
fn a_sweep_killed_at_any_step_loses_no_field_that_is_left() {
    let sweep = |store: &Store| store.expire_some(100).map(drop);
    killed_everywhere(&numbered(5, 3), 2_000, &sweep, 1);
    killed_everywhere(&numbered(5, 3), 10_000, &sweep, 1);
    killed_everywhere(&numbered(100, 90), 70_000, &sweep, 13);
    // All of them: the key goes.
    killed_everywhere(&numbered(5, 5), 10_000, &sweep, 1);
}

#[test]
fn a_hash_without_live_fields_is_no_key() {
    let (store, clock, _) = fresh(1);
    prepare(&store, &numbered(3, 3));
    run(&store, |tx| tx.set_expiry(HASH, Some(5_000_000)).map(drop)).unwrap();
    clock.advance_ns(3_500_000_000);
    let mut met = 0;
    store.scan(0, 0, 100, |_, _| met += 1);
    assert_eq!((met, store.random_key(0)), (0, None));
    run(&store, |tx| {
        assert!(!tx.has(HASH) && !tx.copy(HASH, OTHER)? && !tx.delete(HASH)?);
        Ok(())
    })
    .unwrap();
    prepare(&store, &numbered(3, 3));
    clock.advance_ns(10_000_000_000);
    // A new hash of the name has nothing of the old one, its key's expiry included.
    run(&store, |tx| {
        tx.hash_set(HASH, b"f0", b"new").map(drop)?;
        assert_eq!(tx.look(HASH).unwrap().expire_at_ms, None);
        Ok(())
    })
    .unwrap();
    assert_eq!(found(&store, HASH), Fields::from([(b"f0".to_vec(), (b"new".to_vec(), None))]));
    let latest = Some(FIELD_EXPIRY_MAX_MS);
    run(&store, |tx| tx.hash_set_expiry(HASH, b"f0", latest).map(drop)).unwrap();
    assert_eq!(found(&store, HASH)[&b"f0"[..]].1, latest);
}

#[test]
fn a_key_keeps_its_expiry_when_its_fields_get_some() {
    let (store, clock, device) = fresh(1);
    for count in [5, 300] {
        prepare(&store, &numbered(count, 0));
        let expiry = |at_ms| run(&store, |tx| tx.set_expiry(HASH, at_ms).map(drop)).unwrap();
        let asked = || store.look(HASH, |entry| entry.unwrap().expire_at_ms);
        expiry(Some(2_000_000));
        expire(b"f0", Some(1_500_000))(&store).unwrap();
        assert_eq!((asked(), store.keys_with_expiry(0)), (Some(2_000_000), 1));
        expiry(None);
        expiry(Some(1_600_000));
        expiry(None);
        assert_eq!((asked(), found(&store, HASH).len()), (None, count as usize));
        // The key's mark of expiry is there for its fields.
        assert_eq!(store.keys_with_expiry(0), 1);
        store.delete(HASH).unwrap();
        assert_eq!(store.keys_with_expiry(0), 0);
        prepare(&store, &numbered(count, 0));
        expire(b"f0", Some(1_500_000))(&store).unwrap();
        assert_eq!((asked(), store.keys_with_expiry(0)), (None, 1));
        store.delete(HASH).unwrap();
        assert_eq!(store.keys_with_expiry(0), 0);
    }
    // Keys that never expire themselves are not evicted as such.
    prepare(&store, &numbered(5, 3));
    let policy = EvictionPolicy::ExpiringSoonest;
    store.set_eviction(Eviction { policy, ..Eviction::default() });
    assert_eq!(store.evict_some(3).unwrap(), 0);
    let region = reattach(store, &device, &clock, config(BUDGET_BYTES));
    let store = Store::open(Heap::open(region).unwrap(), clock, StoreOptions::default()).unwrap();
    assert_eq!(found(&store, HASH), numbered(5, 3));
}
