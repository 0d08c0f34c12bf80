//! A snapshot has each key once, as it was when the snapshot began, whatever operations do
//! meanwhile.

use std::sync::{Arc, Mutex};

use crate::harness::*;
use perdura_media::sim::SimDevice;
use perdura_media::{Clock, SimClock};
use perdura_store::{
    Access, End, Entry, Expiry, Key, Kind, SnapshotError, SnapshotSink, Store, StoreError, Tx,
    TxError,
};
use rand::Rng;

#[derive(Default)]
struct Taken(Mutex<Model>);

impl SnapshotSink for Taken {
    fn take(&self, key: Key<'_>, entry: &Entry<'_>) {
        let value = match entry.kind {
            Kind::String => Value::String(entry.string().unwrap().to_vec()),
            Kind::Hash => {
                let mut fields = std::collections::BTreeMap::new();
                entry.for_each_field(&mut |name, value| {
                    fields.insert(name.to_vec(), value.to_vec());
                });
                assert_eq!(entry.hash_len(), Some(fields.len() as u64));
                Value::Hash(fields)
            }
            Kind::Sorted => {
                let mut members = std::collections::BTreeMap::new();
                entry.sorted().unwrap().for_each(0..u64::MAX, false, &mut |name, score| {
                    members.insert(name.to_vec(), score.to_bits());
                });
                Value::Sorted(members)
            }
            Kind::List => {
                let mut elements = std::collections::VecDeque::new();
                let list = entry.list().unwrap();
                list.for_each(0..u64::MAX, false, &mut |e| elements.push_back(e.to_vec()));
                Value::List(elements)
            }
            Kind::Stream => Value::Stream(streams::model_of(&entry.stream().unwrap())),
            Kind::Set => {
                let mut members = std::collections::BTreeSet::new();
                entry.set().unwrap().for_each(&mut |name| {
                    members.insert(name.to_vec());
                });
                Value::Set(members)
            }
        };
        let name = (key.db, key.bytes.to_vec());
        let before = self.0.lock().unwrap().insert(name, (Arc::new(value), entry.expire_at_ms));
        assert!(before.is_none(), "{key:?} twice");
    }
}

fn begin(store: &Store) -> (Arc<Taken>, perdura_store::Snapshot<'_>) {
    let taken = Arc::new(Taken::default());
    let sink: Arc<dyn SnapshotSink> = taken.clone();
    (taken, store.snapshot(&sink).unwrap())
}

#[test]
fn a_snapshot_has_every_key_once_as_it_was_at_the_beginning() {
    let (mut met, mut written) = (0, 0);
    for seed in 0..4 {
        let clock = Arc::new(SimClock::new(1_000_000));
        let store = open(&SimDevice::new(0, seed), &clock, 2 << 20);
        let (mut random, mut model) = (seeded(seed), Model::new());
        let change = |random: &mut Random, model: &mut Model| {
            let step = draw(random, clock.unix_ms());
            apply(&store, &step).unwrap();
            apply_to_model(model, &step, clock.unix_ms());
            clock.advance_ns(3_000_000);
        };
        for _ in 0..3 {
            (0..random.random_range(50..700)).for_each(|_| change(&mut random, &mut model));
            let then = live(&model, clock.unix_ms());
            let (taken, mut snapshot) = begin(&store);
            let per_step = random.random_range(1..4);
            while snapshot.step(random.random_range(1..20)) {
                (0..per_step).for_each(|_| change(&mut random, &mut model));
                written += per_step;
            }
            drop(snapshot);
            let taken = taken.0.lock().unwrap();
            met += taken.len();
            for (key, found) in taken.iter() {
                assert!(then.get(key) == Some(found), "seed {seed}: {key:?} is not as it was");
            }
            let now_ms = clock.unix_ms();
            for (key, (_, expire_at_ms)) in &then {
                let is_gone = expire_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
                assert!(is_gone || taken.contains_key(key), "seed {seed}: {key:?} is missing");
            }
        }
    }
    assert!(met > 300 && written > 1000, "{met} keys, {written} changes");
}

/// Tables are split while they are walked, and some keys are written before the walk comes to them.
#[test]
fn keys_that_come_meanwhile_are_not_in_it_although_the_tables_grow() {
    let clock = Arc::new(SimClock::new(1_000_000));
    let store = open(&SimDevice::new(0, 5), &clock, 8 << 20);
    let put = |from: u64, to: u64, value: &[u8]| {
        for n in from..to {
            store.put(Key::new(n.to_string().as_bytes()), value).unwrap();
        }
    };
    put(0, 3000, b"then");
    let (taken, mut snapshot) = begin(&store);
    let mut next = 3000;
    while snapshot.step(7) {
        put(next, next + 40, b"later");
        put(next % 3000, next % 3000 + 3, b"changed");
        store.delete(Key::new((next * 7 % 3000).to_string().as_bytes())).unwrap();
        next += 40;
    }
    drop(snapshot);
    let taken = taken.0.lock().unwrap();
    assert_eq!(taken.len(), 3000);
    assert!(taken.values().all(|(value, _)| **value == Value::String(b"then".to_vec())));
    assert!(next > 6000, "{next}");
}

#[test]
fn an_emptied_database_is_handed_out_first_and_large_values_are_whole() {
    let clock = Arc::new(SimClock::new(1_000_000));
    let store = open(&SimDevice::new(0, 6), &clock, 8 << 20);
    let names: Vec<Vec<u8>> = (0..2000).map(|n| format!("member {n}").into_bytes()).collect();
    let all = || names.iter().map(Vec::as_slice);
    let keys = ["set", "list", "hash", "sorted"].map(|name| Key::new(name.as_bytes()));
    let [set, list, hash, sorted] = keys;
    store
        .run(Access::Everything, |tx| {
            tx.set_put(set, all(), Expiry::None)?;
            tx.list_put(list, all(), Expiry::None)?;
            tx.hash_put(hash, all().zip(all()), Expiry::None)?;
            tx.sorted_put_all(sorted, all().zip(0..).map(|(n, s)| (n, f64::from(s))), Expiry::None)
        })
        .unwrap();
    let (taken, mut snapshot) = begin(&store);
    // The same sink cannot have two.
    let sink: Arc<dyn SnapshotSink> = taken.clone();
    assert!(matches!(store.snapshot(&sink), Err(SnapshotError::Busy)));
    let refused = store.run(Access::Everything, |tx| {
        tx.list_remove(list, b"member 7", 1, false)?;
        tx.set_add_all(set, [&b"new"[..]].into_iter())?;
        tx.hash_set(hash, b"member 1", b"new")?;
        tx.sorted_remove(sorted, b"member 3")?;
        tx.abort::<()>("on purpose")
    });
    assert!(matches!(refused, Err(StoreError::Aborted(_))));
    store.flush_all().unwrap();
    store.put(Key::new(b"new"), b"value").unwrap();
    while snapshot.step(100) {}
    drop(snapshot);
    let taken = taken.0.lock().unwrap();
    assert_eq!(taken.len(), 4);
    let of = |key: Key<'_>| &taken[&(0, key.bytes.to_vec())].0;
    assert_eq!(**of(list), Value::List(names.iter().cloned().collect()));
    assert_eq!(**of(set), Value::Set(names.iter().cloned().collect()));
    let pairs = names.iter().map(|name| (name.clone(), name.clone()));
    assert_eq!(**of(hash), Value::Hash(pairs.collect()));
    let scores = names.iter().zip(0..).map(|(name, n)| (name.clone(), f64::from(n).to_bits()));
    assert_eq!(**of(sorted), Value::Sorted(scores.collect()));
    // Nothing is left of it: the next one has what is there then.
    let (taken, mut snapshot) = begin(&store);
    while snapshot.step(100) {}
    assert_eq!(taken.0.lock().unwrap().len(), 1);
}

const HASH: Key<'static> = Key { db: 0, bytes: b"hash" };
const LIST: Key<'static> = Key { db: 0, bytes: b"list" };
const SET: Key<'static> = Key { db: 0, bytes: b"set" };
const SORTED: Key<'static> = Key { db: 0, bytes: b"sorted" };
const STRING: Key<'static> = Key { db: 0, bytes: b"string" };

/// Ways to change a value whose elements are named by their numbers.
type Change = (Key<'static>, fn(&mut Tx<'_>) -> Result<(), TxError>);
const CHANGES: [Change; 22] = [
    (HASH, |tx| tx.hash_set(HASH, b"1", b"new").map(drop)),
    (HASH, |tx| tx.hash_set(HASH, b"new", b"1").map(drop)),
    (HASH, |tx| tx.hash_change(HASH, b"2", b"new").map(drop)),
    (HASH, |tx| tx.hash_delete(HASH, b"3").map(drop)),
    (HASH, |tx| tx.set_expiry(HASH, Some(8_000_000)).map(drop)),
    (SET, |tx| tx.set_add_all(SET, [&b"new"[..]].into_iter()).map(drop)),
    (SET, |tx| tx.set_remove_all(SET, [&b"1"[..]].into_iter()).map(drop)),
    (SORTED, |tx| tx.sorted_add(SORTED, b"new", 1.5).map(drop)),
    (SORTED, |tx| tx.sorted_add(SORTED, b"1", 3.5).map(drop)),
    (SORTED, |tx| tx.sorted_remove(SORTED, b"2").map(drop)),
    (SORTED, |tx| tx.sorted_remove_ranks(SORTED, 0..1).map(drop)),
    (LIST, |tx| tx.list_push(LIST, End::Back, [&b"new"[..]].into_iter()).map(drop)),
    (LIST, |tx| tx.list_push(LIST, End::Front, [&b"new"[..]].into_iter()).map(drop)),
    (LIST, |tx| tx.list_set(LIST, 2, b"other").map(drop)),
    (LIST, |tx| tx.list_insert(LIST, 1, b"inserted")),
    (LIST, |tx| tx.list_remove(LIST, b"3", 1, false).map(drop)),
    (LIST, |tx| tx.list_cut(LIST, End::Front, 2).map(drop)),
    (STRING, |tx| tx.append(STRING, b"tail").map(drop)),
    (STRING, |tx| tx.patch(STRING, 1, b"part").map(drop)),
    (STRING, |tx| tx.put(STRING, b"another", Expiry::None)),
    (HASH, |tx| tx.hash_set_expiry(HASH, b"4", Some(8_000_000)).map(drop)),
    (STRING, |tx| tx.delete(STRING).map(drop)),
];

#[test]
fn every_way_to_change_a_value_hands_it_out_first_and_is_seen_by_who_watches_it() {
    for count in [8, 600] {
        let clock = Arc::new(SimClock::new(1_000_000));
        let store = open(&SimDevice::new(0, 7), &clock, 8 << 20);
        let names: Vec<Vec<u8>> = (0..count).map(|n| n.to_string().into_bytes()).collect();
        let all = || names.iter().map(Vec::as_slice);
        let scores = (0..count).map(f64::from);
        store
            .run(Access::Everything, |tx| {
                tx.put(STRING, &vec![1; count as usize], Expiry::None)?;
                tx.set_put(SET, all(), Expiry::None)?;
                tx.list_put(LIST, all(), Expiry::None)?;
                tx.hash_put(HASH, all().zip(all()), Expiry::None)?;
                tx.sorted_put_all(SORTED, all().zip(scores.clone()), Expiry::None)
            })
            .unwrap();
        for (number, (key, change)) in CHANGES.into_iter().enumerate() {
            let (before, watch) = (contents(&store), store.watch(key));
            let (taken, mut snapshot) = begin(&store);
            store.run(Access::Key(key), change).unwrap();
            let is_unchanged = store.run(Access::Key(key), |tx| Ok(tx.is_unchanged(&watch)));
            assert!(!is_unchanged.unwrap(), "change {number} of {count} elements");
            while snapshot.step(100) {}
            drop(snapshot);
            let is_as_before = *taken.0.lock().unwrap() == before;
            assert!(is_as_before, "change {number} of {count} elements");
            // All but that of one field's expiry are among the contents.
            assert!(number == 20 || contents(&store) != before, "change {number}");
        }
    }
}
