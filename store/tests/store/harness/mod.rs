//! A store on a simulated device, an oracle beside it, and operations drawn from a seed.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod in_place;
pub mod lists;
mod oracle;
pub mod streams;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::{Config, Region};
use perdura_store::{
    Access, End, Entry, Expiry, Heap, Key, Kind, Store, StoreError, StoreOptions, Tx, TxError,
};
use rand::{Rng, SeedableRng};
pub use rand_xoshiro::Xoshiro256PlusPlus as Random;

use lists::draw_list;
pub use oracle::apply_to_model;
use streams::{Change, StreamModel, apply_change, draw_change, model_of};

pub const REGION_BYTES: u64 = 24 << 20;

pub fn config(budget_bytes: u64) -> Config {
    Config {
        segment_bytes: Some(64 << 10),
        reserved_bytes: Some(REGION_BYTES),
        lanes: Some(5),
        thread: false,
        checkpoint_every: None,
        ..Config::new(REGION_BYTES, budget_bytes)
    }
}

pub fn store_on(region: Region, clock: &Arc<SimClock>) -> Store {
    Store::open(Heap::open(region).unwrap(), clock.clone(), StoreOptions::default()).unwrap()
}

/// Whatever needs the rebuild waits for it; what does not goes on without.
pub fn deferred_on(region: Region, clock: &Arc<SimClock>) -> Store {
    let options = StoreOptions { defer_rebuild: true, ..StoreOptions::default() };
    Store::open(Heap::open(region).unwrap(), clock.clone(), options).unwrap()
}

pub fn open(device: &SimDevice, clock: &Arc<SimClock>, budget_bytes: u64) -> Store {
    let region = Region::open(Arc::new(device.clone()), clock.clone(), config(budget_bytes));
    store_on(region.unwrap(), clock)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    String(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    /// Scores by name, as bits.
    Sorted(BTreeMap<Vec<u8>, u64>),
    List(VecDeque<Vec<u8>>),
    Set(BTreeSet<Vec<u8>>),
    Stream(StreamModel),
}

/// The contents that a store should have: for each database and key, the value and its expiry.
/// Copies share the values: there are copies of each step's state.
pub type Model = BTreeMap<(u8, Vec<u8>), (Arc<Value>, Option<u64>)>;

fn value_of(tx: &Tx<'_>, key: Key<'_>, entry: &Entry<'_>) -> Value {
    match entry.kind {
        Kind::String => Value::String(entry.string().unwrap().to_vec()),
        Kind::Hash => {
            let mut fields = BTreeMap::new();
            tx.hash_for_each(key, &mut |field, value| {
                assert!(fields.insert(field.to_vec(), value.to_vec()).is_none());
            })
            .unwrap();
            assert_eq!(entry.hash_len(), Some(fields.len() as u64));
            assert!(!fields.is_empty());
            Value::Hash(fields)
        }
        Kind::Sorted => {
            let sorted = entry.sorted().unwrap();
            sorted.assert_sound();
            let mut members = BTreeMap::new();
            sorted.for_each(0..u64::MAX, false, &mut |name, score| {
                assert!(members.insert(name.to_vec(), score.to_bits()).is_none());
            });
            assert_eq!(sorted.len(), members.len() as u64);
            assert!(!members.is_empty());
            Value::Sorted(members)
        }
        Kind::List => {
            let list = entry.list().unwrap();
            list.assert_sound();
            let mut elements = VecDeque::new();
            list.for_each(0..u64::MAX, false, &mut |element| elements.push_back(element.to_vec()));
            Value::List(elements)
        }
        Kind::Set => {
            let set = entry.set().unwrap();
            set.assert_sound();
            let mut members = BTreeSet::new();
            set.for_each(&mut |name| assert!(members.insert(name.to_vec())));
            assert!(!members.is_empty());
            Value::Set(members)
        }
        Kind::Stream => Value::Stream(model_of(&entry.stream().unwrap())),
    }
}

/// All that a store holds, read by scanning.
pub fn contents(store: &Store) -> Model {
    let mut model = Model::new();
    for db in 0..2 {
        let (mut cursor, mut keys) = (0, Vec::new());
        loop {
            cursor = store.scan(db, cursor, 7, |key, _| keys.push(key.to_vec()));
            if cursor == 0 {
                break;
            }
        }
        for bytes in keys {
            let key = Key { db, bytes: &bytes };
            let found = store
                .run(Access::Key(key), |tx| {
                    // The value may have to be read from elsewhere first.
                    let Some(entry) = tx.get(key) else { return Err(TxError::Again) };
                    Ok((Arc::new(value_of(tx, key, &entry)), entry.expire_at_ms))
                })
                .unwrap();
            assert!(model.insert((db, bytes), found).is_none(), "a key was met twice");
        }
    }
    model
}

pub fn live(model: &Model, now_ms: u64) -> Model {
    let mut live = model.clone();
    live.retain(|_, (_, at)| at.is_none_or(|at| at > now_ms));
    live
}

/// One operation, drawn before it is run, so that it can be run on store and oracle alike.
#[derive(Clone)]
pub enum Step {
    Put(Vec<(u8, Vec<u8>)>, Vec<u8>, Expiry),
    Delete(u8, Vec<u8>),
    Expire(u8, Vec<u8>, Option<u64>),
    Append(u8, Vec<u8>, Vec<u8>),
    Patch(u8, Vec<u8>, u64, Vec<u8>),
    Move(u8, Vec<u8>, u8, Vec<u8>, bool),
    HashSet(u8, Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>),
    HashDelete(u8, Vec<u8>, Vec<Vec<u8>>),
    SortedAdd(u8, Vec<u8>, Vec<(Vec<u8>, f64)>),
    SortedRemove(u8, Vec<u8>, Vec<Vec<u8>>),
    SortedRemoveRanks(u8, Vec<u8>, u64, u64),
    ListPush(u8, Vec<u8>, End, Vec<Vec<u8>>),
    ListCut(u8, Vec<u8>, End, u64),
    /// A pop at one end, pushes at the other and at the same one, in one operation.
    ListTurn(u8, Vec<u8>, End, u64, Vec<Vec<u8>>),
    ListSet(u8, Vec<u8>, u64, Vec<u8>),
    ListInsert(u8, Vec<u8>, u64, Vec<u8>),
    ListRemove(u8, Vec<u8>, Vec<u8>, u64, bool),
    SetAdd(u8, Vec<u8>, Vec<Vec<u8>>),
    SetRemove(u8, Vec<u8>, Vec<Vec<u8>>),
    Stream(u8, Vec<u8>, Vec<Change>),
    Aborted(u8, Vec<u8>, Vec<u8>),
    FlushDb(u8),
    FlushAll,
}

impl std::fmt::Debug for Step {
    /// Enough to tell which it is: values are long.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self {
            Self::Put(keys, value, expiry) => {
                let keys: Vec<_> = keys.iter().map(|(db, key)| (db, text(key))).collect();
                write!(f, "Put({keys:?}, {} bytes, {expiry:?})", value.len())
            }
            Self::Delete(db, key) => write!(f, "Delete({db}, {})", text(key)),
            Self::Expire(db, key, at) => write!(f, "Expire({db}, {}, {at:?})", text(key)),
            Self::Append(db, key, tail) => {
                write!(f, "Append({db}, {}, {} bytes)", text(key), tail.len())
            }
            Self::Patch(db, key, offset, bytes) => {
                write!(f, "Patch({db}, {}, {offset}, {} bytes)", text(key), bytes.len())
            }
            Self::Move(db, from, to_db, to, is_copy) => {
                let (from, to) = (text(from), text(to));
                write!(f, "Move({db}, {from}, {to_db}, {to}, copy {is_copy})")
            }
            Self::HashSet(db, key, fields) => {
                write!(f, "HashSet({db}, {}, {} fields)", text(key), fields.len())
            }
            Self::HashDelete(db, key, fields) => {
                write!(f, "HashDelete({db}, {}, {} fields)", text(key), fields.len())
            }
            Self::SortedAdd(db, key, members) => {
                write!(f, "SortedAdd({db}, {}, {} members)", text(key), members.len())
            }
            Self::SortedRemove(db, key, members) => {
                write!(f, "SortedRemove({db}, {}, {} members)", text(key), members.len())
            }
            Self::SortedRemoveRanks(db, key, from, to) => {
                write!(f, "SortedRemoveRanks({db}, {}, {from}..{to})", text(key))
            }
            Self::ListPush(db, key, end, elements) => {
                write!(f, "ListPush({db}, {}, {end:?}, {} elements)", text(key), elements.len())
            }
            Self::ListCut(db, key, end, count) => {
                write!(f, "ListCut({db}, {}, {end:?}, {count})", text(key))
            }
            Self::ListTurn(db, key, end, count, elements) => {
                let len = elements.len();
                write!(f, "ListTurn({db}, {}, {end:?}, {count}, {len} elements)", text(key))
            }
            Self::ListSet(db, key, index, element) => {
                write!(f, "ListSet({db}, {}, {index}, {} bytes)", text(key), element.len())
            }
            Self::ListInsert(db, key, index, element) => {
                write!(f, "ListInsert({db}, {}, {index}, {} bytes)", text(key), element.len())
            }
            Self::ListRemove(db, key, element, most, down) => {
                let element = text(element);
                write!(f, "ListRemove({db}, {}, {element}, {most}, {down})", text(key))
            }
            Self::SetAdd(db, key, members) => {
                write!(f, "SetAdd({db}, {}, {} members)", text(key), members.len())
            }
            Self::SetRemove(db, key, members) => {
                write!(f, "SetRemove({db}, {}, {} members)", text(key), members.len())
            }
            Self::Stream(db, key, changes) => {
                let names = changes.iter().map(|change| {
                    let all = format!("{change:?}");
                    all[..all.len().min(40)].to_string()
                });
                write!(f, "Stream({db}, {}, {:?})", text(key), names.collect::<Vec<_>>())
            }
            Self::Aborted(db, key, _) => write!(f, "Aborted({db}, {})", text(key)),
            Self::FlushDb(db) => write!(f, "FlushDb({db})"),
            Self::FlushAll => write!(f, "FlushAll"),
        }
    }
}

fn key(random: &mut Random) -> (u8, Vec<u8>) {
    let keys = if random.random_bool(0.5) { 30 } else { 600 };
    let number = random.random_range(0..keys);
    if random.random_bool(0.05) {
        return (0, format!("set:{}", number % 9).into_bytes());
    }
    if random.random_bool(0.05) {
        return (0, format!("names:{}", number % 9).into_bytes());
    }
    (u8::from(random.random_bool(0.1)), format!("key:{number}").into_bytes())
}

fn bytes(random: &mut Random, largest: usize) -> Vec<u8> {
    let len = match random.random_range(0..100) {
        0..60 => random.random_range(0..300),
        60..95 => random.random_range(0..5_000),
        95..99 => random.random_range(0..60_000),
        _ => random.random_range(0..400_000),
    };
    let fill: u8 = random.random();
    let mut bytes = vec![fill; len.min(largest)];
    for byte in bytes.iter_mut().step_by(61) {
        *byte = random.random();
    }
    bytes
}

pub fn draw(random: &mut Random, now_ms: u64) -> Step {
    let (db, name) = key(random);
    match random.random_range(0..1180) {
        0..260 => {
            let count = if random.random_bool(0.8) { 1 } else { random.random_range(2..6) };
            let keys = (0..count).map(|_| key(random)).collect();
            let expiry = match random.random_range(0..4) {
                0 => Expiry::Keep,
                1 => Expiry::AtMs(now_ms + random.random_range(1..5_000)),
                _ => Expiry::None,
            };
            Step::Put(keys, bytes(random, usize::MAX), expiry)
        }
        260..340 => {
            let (sets, count) = if random.random_bool(0.8) { (9, 3) } else { (3, 200) };
            let name = format!("set:{}", random.random_range(0..sets)).into_bytes();
            let member = |random: &mut Random| {
                let name = format!("m{}", random.random_range(0..400)).into_bytes();
                (name, f64::from(random.random_range(-40..40)) / 4.0)
            };
            Step::SortedAdd(db, name, (0..count).map(|_| member(random)).collect())
        }
        340..390 => {
            let name = format!("set:{}", random.random_range(0..9)).into_bytes();
            if random.random_bool(0.3) {
                let from = random.random_range(0..300);
                let to = from + random.random_range(0..200);
                return Step::SortedRemoveRanks(db, name, from, to);
            }
            let count = if random.random_bool(0.8) { 3 } else { 100 };
            let member = |_| format!("m{}", random.random_range(0..400)).into_bytes();
            Step::SortedRemove(db, name, (0..count).map(member).collect())
        }
        390..430 => {
            let (sets, count) = if random.random_bool(0.8) { (9, 3) } else { (3, 200) };
            let name = format!("names:{}", random.random_range(0..sets)).into_bytes();
            let only_ints = random.random_bool(0.5);
            Step::SetAdd(0, name, (0..count).map(|_| member_of_set(random, only_ints)).collect())
        }
        430..450 => {
            let name = format!("names:{}", random.random_range(0..9)).into_bytes();
            let count = if random.random_bool(0.8) { 3 } else { 300 };
            let members = (0..count).map(|_| member_of_set(random, false)).collect();
            Step::SetRemove(0, name, members)
        }
        450..500 => Step::Delete(db, name),
        500..560 => {
            let at = random.random_bool(0.7).then(|| now_ms + random.random_range(1..5_000));
            Step::Expire(db, name, at)
        }
        560..680 => Step::Append(db, name, bytes(random, 40_000)),
        680..740 => {
            let offset = random.random_range(0..2_000);
            Step::Patch(db, name, offset, bytes(random, 30_000))
        }
        740..800 => {
            let (to_db, to) = key(random);
            Step::Move(db, name, to_db, to, random.random_bool(0.5))
        }
        800..910 => {
            let count = if random.random_bool(0.9) { 3 } else { 150 };
            let field = |random: &mut Random| {
                let field = format!("f{}", random.random_range(0..300)).into_bytes();
                (field, bytes(random, 300))
            };
            Step::HashSet(db, name, (0..count).map(|_| field(random)).collect())
        }
        910..970 => {
            let count = if random.random_bool(0.8) { 3 } else { 300 };
            let field = |n: u32| format!("f{n}").into_bytes();
            let all = count == 300;
            let fields =
                (0..count).map(|n| field(if all { n } else { random.random_range(0..300) }));
            Step::HashDelete(db, name, fields.collect())
        }
        970..996 => Step::Aborted(db, name, bytes(random, 2_000)),
        996..999 => Step::FlushDb(db),
        999 => Step::FlushAll,
        _ if random.random_bool(0.4) => {
            let name = format!("stream:{}", random.random_range(0..4)).into_bytes();
            let changes = [1, 1, 4][random.random_range(0..3)];
            Step::Stream(db, name, (0..changes).map(|_| draw_change(random)).collect())
        }
        _ => draw_list(random, db),
    }
}

/// Names that are integers, in several widths, and names that are not.
fn member_of_set(random: &mut Random, only_ints: bool) -> Vec<u8> {
    let number: i64 = random.random_range(-150..150);
    let number = number << (random.random_range(0..3) * 16);
    match only_ints || random.random_bool(0.5) {
        true => number.to_string().into_bytes(),
        false => format!("m{number}").into_bytes(),
    }
}

/// Runs a step on the store.
pub fn apply(store: &Store, step: &Step) -> Result<(), StoreError> {
    let one = |db: u8, bytes| Key { db, bytes };
    if in_place::apply(store, step).is_some() {
        return Ok(());
    }
    let done = match step {
        Step::Put(keys, value, expiry) => {
            let keys: Vec<Key<'_>> = keys.iter().map(|(db, key)| one(*db, key)).collect();
            store.run(Access::Keys(&keys), |tx| {
                keys.iter().try_for_each(|key| tx.put(*key, value, *expiry))
            })
        }
        Step::Delete(db, key) => store.delete(one(*db, key)).map(drop),
        Step::Expire(db, key, at) => {
            let key = one(*db, key);
            store.run(Access::Key(key), |tx| tx.set_expiry(key, *at)).map(drop)
        }
        Step::Append(db, key, tail) => {
            let key = one(*db, key);
            store.run(Access::Key(key), |tx| tx.append(key, tail)).map(drop)
        }
        Step::Patch(db, key, offset, bytes) => {
            let key = one(*db, key);
            store.run(Access::Key(key), |tx| tx.patch(key, *offset, bytes)).map(drop)
        }
        Step::Move(db, from, to_db, to, is_copy) => {
            let (from, to) = (one(*db, from), one(*to_db, to));
            let run = |tx: &mut Tx<'_>| match is_copy {
                true => tx.copy(from, to),
                false => tx.rename(from, to),
            };
            store.run(Access::Keys(&[from, to]), run).map(drop)
        }
        Step::HashSet(db, key, fields) => {
            let key = one(*db, key);
            let fields = || fields.iter().map(|(name, value)| (&name[..], &value[..]));
            store.run(Access::Key(key), |tx| tx.hash_set_all(key, fields()).map(drop))
        }
        Step::HashDelete(db, key, fields) => {
            let key = one(*db, key);
            store.run(Access::Key(key), |tx| {
                fields.iter().try_for_each(|name| tx.hash_delete(key, name).map(drop))
            })
        }
        Step::SortedAdd(db, key, members) => {
            let key = one(*db, key);
            store.run(Access::Key(key), |tx| {
                members
                    .iter()
                    .try_for_each(|(name, score)| tx.sorted_add(key, name, *score).map(drop))
            })
        }
        Step::SortedRemove(db, key, members) => {
            let key = one(*db, key);
            store.run(Access::Key(key), |tx| {
                members.iter().try_for_each(|name| tx.sorted_remove(key, name).map(drop))
            })
        }
        Step::SortedRemoveRanks(db, key, from, to) => {
            let key = one(*db, key);
            store.run(Access::Key(key), |tx| tx.sorted_remove_ranks(key, *from..*to)).map(drop)
        }
        Step::ListPush(db, key, end, elements) => {
            let (key, elements) = (one(*db, key), || elements.iter().map(Vec::as_slice));
            store.run(Access::Key(key), |tx| tx.list_push(key, *end, elements()).map(drop))
        }
        Step::ListCut(db, key, end, count) => {
            let key = one(*db, key);
            store.run(Access::Key(key), |tx| tx.list_cut(key, *end, *count).map(drop))
        }
        Step::ListTurn(db, key, end, count, elements) => {
            let (key, elements) = (one(*db, key), || elements.iter().map(Vec::as_slice));
            let other = if *end == End::Front { End::Back } else { End::Front };
            store.run(Access::Key(key), |tx| {
                tx.list_cut(key, *end, *count)?;
                tx.list_push(key, other, elements())?;
                tx.list_push(key, *end, elements()).map(drop)
            })
        }
        Step::ListSet(db, key, index, element) => {
            let key = one(*db, key);
            store.run(Access::Key(key), |tx| tx.list_set(key, *index, element).map(drop))
        }
        Step::ListInsert(db, key, index, element) => {
            let key = one(*db, key);
            store.run(Access::Key(key), |tx| {
                let len = tx.list(key)?.map_or(0, |list| list.len());
                if *index <= len && len > 0 { tx.list_insert(key, *index, element) } else { Ok(()) }
            })
        }
        Step::ListRemove(db, key, element, most, down) => {
            let key = one(*db, key);
            let run = |tx: &mut Tx<'_>| tx.list_remove(key, element, *most, *down).map(drop);
            store.run(Access::Key(key), run)
        }
        Step::SetAdd(db, key, members) => {
            let (key, members) = (one(*db, key), members.iter().map(Vec::as_slice));
            store.run(Access::Key(key), |tx| tx.set_add_all(key, members.clone()).map(drop))
        }
        Step::SetRemove(db, key, members) => {
            let (key, members) = (one(*db, key), members.iter().map(Vec::as_slice));
            store.run(Access::Key(key), |tx| tx.set_remove_all(key, members.clone()).map(drop))
        }
        Step::Stream(db, key, changes) => {
            let key = one(*db, key);
            store.run(Access::Key(key), |tx| {
                changes.iter().try_for_each(|change| apply_change(tx, key, change))
            })
        }
        Step::Aborted(db, key, value) => {
            let key = one(*db, key);
            let run = |tx: &mut Tx<'_>| {
                tx.put(key, value, Expiry::None)?;
                tx.delete(key)?;
                tx.put(key, value, Expiry::None)?;
                tx.abort::<()>("on purpose")
            };
            store.run(Access::Key(key), run)
        }
        Step::FlushDb(db) => store.flush_db(*db),
        Step::FlushAll => store.flush_all(),
    };
    match done {
        Err(StoreError::WrongType(_) | StoreError::Aborted(_)) => Ok(()),
        other => other,
    }
}

/// Members in order.
pub fn ranked(members: &BTreeMap<Vec<u8>, u64>) -> Vec<(f64, Vec<u8>)> {
    let mut ranked: Vec<_> =
        members.iter().map(|(name, score)| (f64::from_bits(*score), name.clone())).collect();
    ranked.sort_by(|a, b| a.partial_cmp(b).unwrap());
    ranked
}

/// Panics with the first difference, not with two whole stores.
pub fn assert_same(found: &Model, expected: &Model, what: &str) {
    for (key, value) in expected {
        let name = String::from_utf8_lossy(&key.1).into_owned();
        match found.get(key) {
            None => panic!("{what}: {}/{name} is missing", key.0),
            Some(other) => assert!(other == value, "{what}: {}/{name} differs", key.0),
        }
    }
    if let Some(key) = found.keys().find(|key| !expected.contains_key(*key)) {
        panic!("{what}: {}/{} should not be there", key.0, String::from_utf8_lossy(&key.1));
    }
}

/// A number from the environment: replay commands name them.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

pub fn seeded(seed: u64) -> Random {
    Random::seed_from_u64(seed)
}
