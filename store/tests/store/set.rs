//! Sets against a naive oracle, in each of their forms, also when operations are killed at every
//! step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::harness::*;
use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::{Config, Planted, Region};
use perdura_store::{Access, Expiry, Key, Kind, SetForm, Store, StoreError};
use rand::Rng;

const BUDGET_BYTES: u64 = 1 << 20;
const SET: Key<'static> = Key { db: 0, bytes: b"set" };

type Names = BTreeSet<Vec<u8>>;

fn fresh(seed: u64) -> (Store, Arc<SimClock>, SimDevice) {
    let (device, clock) = (SimDevice::new(0, seed), Arc::new(SimClock::new(1_000_000)));
    (open(&device, &clock, BUDGET_BYTES), clock, device)
}

fn attach(store: Store, device: &SimDevice, clock: &Arc<SimClock>) -> Store {
    let (memory, ledger) = store.region().fds();
    let fds = (memory.try_clone_to_owned().unwrap(), ledger.try_clone_to_owned().unwrap());
    drop(store);
    let device = Arc::new(device.clone());
    let region = Region::attach(fds.0, fds.1, device, clock.clone(), config(BUDGET_BYTES));
    store_on(region.unwrap(), clock)
}

fn slices(members: &[Vec<u8>]) -> impl Iterator<Item = &[u8]> + Clone {
    members.iter().map(Vec::as_slice)
}

fn add(store: &Store, members: &[Vec<u8>]) -> Result<u64, StoreError> {
    store.run(Access::Key(SET), |tx| tx.set_add_all(SET, slices(members)))
}

fn remove(store: &Store, members: &[Vec<u8>]) -> Result<u64, StoreError> {
    store.run(Access::Key(SET), |tx| tx.set_remove_all(SET, slices(members)))
}

fn found_at(store: &Store, key: Key<'_>) -> Names {
    store.read(key, |entry| {
        let Some(set) = entry.and_then(|entry| entry.set()) else { return Names::new() };
        set.assert_sound();
        let mut names = Names::new();
        set.for_each(&mut |name| assert!(names.insert(name.to_vec())));
        names
    })
}

fn found(store: &Store) -> Names {
    found_at(store, SET)
}

fn form(store: &Store) -> Option<SetForm> {
    store.read(SET, |entry| entry.and_then(|entry| entry.set()).map(|set| set.form()))
}

fn ints(range: std::ops::Range<i64>) -> Vec<Vec<u8>> {
    range.map(|int| int.to_string().into_bytes()).collect()
}

fn names(range: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    range.map(|number| format!("member:{number}").into_bytes()).collect()
}

#[test]
fn a_set_grows_through_the_forms_of_redis_and_stays_in_the_last() {
    let (store, ..) = fresh(1);
    assert_eq!(add(&store, &ints(0..512)).unwrap(), 512);
    assert_eq!((form(&store), add(&store, &ints(100..200)).unwrap()), (Some(SetForm::Ints), 0));
    assert_eq!((add(&store, &ints(512..513)).unwrap(), form(&store)), (1, Some(SetForm::Table)));
    assert_eq!(remove(&store, &ints(3..600)).unwrap(), 510);
    assert_eq!((form(&store), found(&store).len()), (Some(SetForm::Table), 3));
    assert_eq!(remove(&store, &ints(0..9)).unwrap(), 3);
    assert!(store.is_empty(0));
    add(&store, &ints(-50..50)).unwrap();
    assert_eq!(add(&store, &names(0..28)).unwrap(), 28);
    assert_eq!((form(&store), add(&store, &names(28..29)).unwrap()), (Some(SetForm::Packed), 1));
    assert_eq!((form(&store), found(&store).len()), (Some(SetForm::Table), 129));
    store.delete(SET).unwrap();
    add(&store, &[vec![b'x'; 64]]).unwrap();
    assert_eq!(form(&store), Some(SetForm::Packed));
    add(&store, &[vec![b'y'; 65], b"5".to_vec()]).unwrap();
    assert_eq!((form(&store), found(&store).len()), (Some(SetForm::Table), 3));
    let long = [vec![b'z'; 70_000]];
    assert!(matches!(add(&store, &long), Err(StoreError::KeyTooLong { .. })));
    assert_eq!(remove(&store, &long).unwrap(), 0);
}

#[test]
fn a_set_of_thousands_agrees_with_the_oracle() {
    for seed in 0..number("PERDURA_SEEDS").unwrap_or(3) {
        let what = format!("seed {seed}");
        let (mut store, clock, device) = fresh(seed);
        let (mut random, mut oracle) = (seeded(seed), Names::new());
        for round in 0..40 {
            let most = if round < 25 { 20_000 } else { 3_000 };
            for _ in 0..150 {
                let count = if random.random_bool(0.9) { 1 } else { 20 };
                let member = |_| format!("m{}", random.random_range(0..most)).into_bytes();
                let members: Vec<Vec<u8>> = (0..count).map(member).collect();
                let before = oracle.len();
                if random.random_bool(if round < 25 { 0.9 } else { 0.2 }) {
                    let added = add(&store, &members).unwrap();
                    oracle.extend(members);
                    assert_eq!(added as usize, oracle.len() - before, "{what}");
                } else {
                    let removed = remove(&store, &members).unwrap();
                    oracle.retain(|name| !members.contains(name));
                    assert_eq!(removed as usize, before - oracle.len(), "{what}");
                }
            }
            if round % 10 == 9 {
                store = attach(store, &device, &clock);
                assert!(found(&store) == oracle, "{what}");
            }
        }
        let (mut cursor, mut met) = (0, Names::new());
        loop {
            cursor = store.read(SET, |entry| {
                let set = entry.and_then(|entry| entry.set()).unwrap();
                set.scan(cursor, 7, &mut |name| assert!(met.insert(name.to_vec())))
            });
            if cursor == 0 {
                break;
            }
        }
        assert!(met == oracle, "{what}: scan");
        store.delete(SET).unwrap();
        store.flush_all().unwrap();
        store.heap().reclaim();
        assert_eq!(store.stats().free_bytes, fresh(1).0.stats().free_bytes, "{what}: leaked");
    }
}

/// Many sets beside each other, so that one that is written beyond its slot spoils another.
#[test]
fn small_sets_agree_with_the_oracle_and_leave_each_other_alone() {
    let (store, ..) = fresh(1);
    let (mut random, mut oracle) = (seeded(7), BTreeMap::<Vec<u8>, Names>::new());
    for step in 0..6_000 {
        let name = format!("set:{}", random.random_range(0..40)).into_bytes();
        let key = Key { db: 0, bytes: &name };
        let only_ints = name.len().is_multiple_of(2);
        let count = random.random_range(1..4);
        // Some sets have so few members that they lose the last one again and again.
        let reach = if name.ends_with(b"3") { 2 } else { 60 };
        let member = |_| {
            let number =
                random.random_range(-reach..reach) * if step % 50 == 0 { 1_000 } else { 1 };
            let text = if only_ints { number.to_string() } else { format!("m{number}") };
            text.into_bytes()
        };
        let members: Vec<Vec<u8>> = (0..count).map(member).collect();
        let set = oracle.entry(name.clone()).or_default();
        let before = set.len();
        let changed = if random.random_bool(0.5) {
            set.extend(members.iter().cloned());
            store.run(Access::Key(key), |tx| tx.set_add_all(key, slices(&members)))
        } else {
            set.retain(|name| !members.contains(name));
            store.run(Access::Key(key), |tx| tx.set_remove_all(key, slices(&members)))
        };
        assert_eq!(changed.unwrap() as usize, before.abs_diff(set.len()), "step {step}");
        if step % 40 == 0 {
            for (name, set) in &oracle {
                let key = Key { db: 0, bytes: name };
                assert!(found_at(&store, key) == *set, "step {step}");
                assert_eq!(store.look(key, |entry| entry.is_some()), !set.is_empty());
            }
        }
    }
}

/// Draws each time, and counts how often each member was met.
fn counts_of(store: &Store, draws: u64, distinct: u64, seed: u64) -> BTreeMap<Vec<u8>, u64> {
    let mut random = seeded(seed);
    let mut draw = |below: u64| random.random_range(0..below);
    let mut counts = BTreeMap::new();
    store.read(SET, |entry| {
        let set = entry.and_then(|entry| entry.set()).unwrap();
        for _ in 0..draws {
            if distinct == 0 {
                set.pick(&mut draw, &mut |name| *counts.entry(name.to_vec()).or_insert(0) += 1);
                continue;
            }
            let mut picked = Names::new();
            set.pick_distinct(distinct, &mut draw, &mut |name| {
                assert!(picked.insert(name.to_vec()), "picked twice");
            });
            assert_eq!(picked.len() as u64, distinct.min(set.len()));
            picked.into_iter().for_each(|name| *counts.entry(name).or_insert(0) += 1);
        }
    });
    counts
}

/// Whether counts are as even as chance makes them: chi squared, with a wide margin.
fn assert_fair(counts: &BTreeMap<Vec<u8>, u64>, members: u64, what: &str) {
    assert_eq!(counts.len() as u64, members, "{what}: some were never drawn");
    let sum: u64 = counts.values().sum();
    let expected = sum as f64 / members as f64;
    let off = |count: &u64| (*count as f64 - expected).powi(2) / expected;
    let chi: f64 = counts.values().map(off).sum();
    let freedom = members as f64 - 1.0;
    assert!((chi - freedom).abs() < 6.0 * (2.0 * freedom).sqrt(), "{what}: chi squared {chi}");
}

#[test]
fn each_member_is_drawn_equally_often() {
    let (store, ..) = fresh(1);
    add(&store, &ints(0..40)).unwrap();
    assert_fair(&counts_of(&store, 8_000, 0, 1), 40, "integers");
    assert_fair(&counts_of(&store, 3_000, 5, 2), 40, "five of the integers");
    add(&store, &names(0..10)).unwrap();
    assert_fair(&counts_of(&store, 8_000, 0, 3), 50, "packed");
    assert_fair(&counts_of(&store, 1_000, 30, 4), 50, "most of the packed ones");
    // Between two doublings of the table, buckets hold half or twice as many as others.
    add(&store, &names(10..3_000)).unwrap();
    assert_fair(&counts_of(&store, 300_000, 0, 5), 3_040, "table");
    assert_fair(&counts_of(&store, 1_000, 300, 6), 3_040, "a tenth of the table");
    // Nearly empty: the table is walked.
    remove(&store, &names(0..2_980)).unwrap();
    assert_fair(&counts_of(&store, 12_000, 0, 7), 60, "what is left of a table");
    remove(&store, &[&names(2_981..3_000)[..], &ints(0..40)].concat()).unwrap();
    assert_eq!(counts_of(&store, 10, 0, 8).len(), 1);
}

#[test]
fn a_member_added_to_a_large_set_dirties_what_changed() {
    let (store, ..) = fresh(1);
    let all = names(0..50_100);
    for some in all[..50_000].chunks(100) {
        add(&store, some).unwrap();
    }
    let mut dirtied = Vec::new();
    for member in all[50_000..].chunks(1) {
        store.region().checkpoint().unwrap();
        let before = store.region().used_bytes();
        add(&store, member).unwrap();
        dirtied.push(store.region().used_bytes() - before);
    }
    let mean = dirtied.iter().sum::<u64>() / dirtied.len() as u64;
    println!("a member of a set of 50,000 dirties {mean} bytes on average");
    // Half of them split a bucket and change its chain, too.
    assert!(mean <= 1_024, "{dirtied:?}");
}

#[test]
fn memory_is_asked_for_ahead_where_a_member_has_memory_of_its_own() {
    let (store, ..) = fresh(1);
    let place = store.place(SET);
    let field = |member: &[u8]| {
        let key = store.prefetch_bucket(&place)?;
        store.prefetch_field_bucket(store.prefetch_record(&key)?, member)
    };
    assert!(field(b"member:1").is_none(), "there is no such key");
    add(&store, &names(0..3)).unwrap();
    assert!(field(b"member:1").is_none(), "it is in the record");
    add(&store, &names(3..5_000)).unwrap();
    for member in &names(0..5_000) {
        store.prefetch_field_record(&field(member).unwrap());
    }
    store.put(SET, b"a string").unwrap();
    assert!(field(b"member:1").is_none());
}

/// Runs `operation` on a set of these members, killed after `fuse` steps of the heap. Returns
/// whether it got through before.
fn killed_inside(
    members: &[Vec<u8>],
    operation: &dyn Fn(&Store) -> Result<u64, StoreError>,
    after: &Names,
    fuse: u64,
) -> bool {
    let (store, clock, device) = fresh(fuse);
    add(&store, members).unwrap();
    let before = found(&store);
    store.heap().kill_after(fuse);
    let outcome = operation(&store);
    let got_through = outcome.is_ok() && !store.heap().is_killed();
    let store = if fuse.is_multiple_of(3) {
        store.region().close(1).unwrap();
        drop(store);
        open(&device.power_cycle(fuse), &clock, BUDGET_BYTES)
    } else {
        attach(store, &device, &clock)
    };
    let found = found(&store);
    assert!(found == *after || (outcome.is_err() && found == before), "killed after {fuse}");
    store.flush_all().unwrap();
    store.heap().reclaim();
    let empty_bytes = fresh(1).0.stats().free_bytes;
    assert_eq!(store.stats().free_bytes, empty_bytes, "killed after {fuse}: memory leaked");
    got_through
}

fn killed_everywhere(
    members: &[Vec<u8>],
    operation: &dyn Fn(&Store) -> Result<u64, StoreError>,
    stride: u64,
) {
    let after = {
        let (store, ..) = fresh(1);
        add(&store, members).unwrap();
        operation(&store).unwrap();
        found(&store)
    };
    let mut fuse = 1;
    while !killed_inside(members, operation, &after, fuse) {
        fuse += stride;
    }
}

#[test]
fn changes_killed_at_any_step_are_whole_or_absent() {
    // Behind the others in the same slot; between them; to a wider width.
    killed_everywhere(&ints(0..6), &|store| add(store, &ints(6..7)), 1);
    killed_everywhere(&names(0..3), &|store| add(store, &names(3..4)), 1);
    killed_everywhere(&ints(0..6), &|store| add(store, &ints(-1..0)), 1);
    killed_everywhere(&ints(0..6), &|store| add(store, &ints(70_000..70_001)), 1);
    // From integers to names, and to a table.
    killed_everywhere(&ints(0..20), &|store| add(store, &names(0..1)), 1);
    killed_everywhere(&names(0..128), &|store| add(store, &names(128..130)), 23);
    // A bucket of a table is split.
    killed_everywhere(&names(0..300), &|store| add(store, &names(300..312)), 7);
    killed_everywhere(&names(0..20), &|store| remove(store, &names(5..9)), 1);
    killed_everywhere(&names(0..300), &|store| remove(store, &names(5..9)), 1);
    killed_everywhere(&names(0..300), &|store| remove(store, &names(0..300)), 37);
    killed_everywhere(&names(0..300), &|store| store.delete(SET).map(u64::from), 1);
    let put = |store: &Store| {
        let (few, run) = (names(7..11), Access::Key(SET));
        store.run(run, |tx| tx.set_put(SET, slices(&few), Expiry::None)).map(|()| 0)
    };
    killed_everywhere(&names(0..300), &put, 1);
}

#[test]
fn a_large_set_is_copied_renamed_replaced_and_expires() {
    let (store, clock, _) = fresh(1);
    let (other, both) = (Key { db: 1, bytes: b"other" }, names(0..2_000));
    let keys = [SET, other];
    let put =
        |tx: &mut perdura_store::Tx<'_>| tx.set_put(SET, slices(&both), Expiry::AtMs(2_000_000));
    store.run(Access::Key(SET), put).unwrap();
    assert!(store.run(Access::Keys(&keys), |tx| tx.copy(SET, other)).unwrap());
    add(&store, &ints(0..1)).unwrap();
    assert!(found_at(&store, other) == both.iter().cloned().collect());
    assert!(store.run(Access::Keys(&keys), |tx| tx.rename(SET, other)).unwrap());
    assert_eq!((found_at(&store, other).len(), found(&store).len()), (2_001, 0));
    clock.advance_ns(2_000_000_000_000);
    assert!(found_at(&store, other).is_empty());
    store.expire_some(100).unwrap();
    add(&store, &both).unwrap();
    assert_eq!(store.look(SET, |entry| entry.map(|entry| entry.kind)), Some(Kind::Set));
    store.put(SET, b"a string").unwrap();
    assert!(matches!(add(&store, &both), Err(StoreError::WrongType(_))));
    assert!(matches!(remove(&store, &both), Err(StoreError::WrongType(_))));
    store.flush_all().unwrap();
    store.heap().reclaim();
    assert_eq!(store.stats().free_bytes, fresh(1).0.stats().free_bytes, "memory leaked");
}

#[test]
fn a_set_many_times_the_budget_grows_is_reopened_and_goes() {
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1_000_000)));
    let budget_bytes = 256 << 10;
    let store = open(&device, &clock, budget_bytes);
    let all = names(0..30_000);
    for members in all.chunks(7) {
        add(&store, members).unwrap();
    }
    assert!(store.region().used_bytes_max() <= budget_bytes);
    store.region().close(1).unwrap();
    drop(store);
    let store = open(&device, &clock, budget_bytes);
    assert!(found(&store) == all.iter().cloned().collect());
    let refused = remove(&store, &all[1..]);
    assert!(matches!(refused, Err(StoreError::TransactionTooLarge { .. })), "{refused:?}");
    // The key goes at once, the members piece by piece behind it.
    assert!(store.delete(SET).unwrap());
    store.flush_all().unwrap();
    store.heap().reclaim();
    let empty = open(&SimDevice::new(0, 1), &clock, budget_bytes).stats().free_bytes;
    assert_eq!(store.stats().free_bytes, empty, "memory leaked");
}

#[test]
fn a_number_of_members_that_stays_when_one_is_removed_is_caught() {
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1_000_000)));
    let planted = Config { planted: Planted::KeepFieldCount, ..config(BUDGET_BYTES) };
    let region = Region::open(Arc::new(device), clock.clone(), planted).unwrap();
    let store = store_on(region, &clock);
    add(&store, &names(0..200)).unwrap();
    remove(&store, &names(3..4)).unwrap();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| found(&store)));
    assert!(caught.is_err(), "the bug went unnoticed");
}
