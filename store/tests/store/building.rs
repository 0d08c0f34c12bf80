//! Values of which an attempt cannot write all are built where nobody sees them: they are there as
//! a whole or not at all, cut off at any step and at any durable operation, and nothing leaks.

use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use crate::harness::*;
use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::{Config, Planted, Region, RegionError};
use perdura_store::{
    Access, Audience, Changed, DATABASES, Delivery, End, Event, Expiry, Key, Listener, Store,
    StoreError, StreamId, StreamPart, Tx, TxError,
};

const BUDGET_BYTES: u64 = 128 << 10;
const FROM: Key<'static> = Key { db: 0, bytes: b"from" };
const ELEMENTS: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Hash,
    ExpiringHash,
    Sorted,
    List,
    Set,
    Stream,
}

const FORMS: [Form; 6] =
    [Form::Hash, Form::ExpiringHash, Form::Sorted, Form::List, Form::Set, Form::Stream];

/// An operation on the value of [`FROM`].
#[derive(Debug, Clone, Copy, PartialEq)]
enum Act {
    /// It is put anew, with other elements.
    Put,
    Copy,
    Rename,
}

/// A key of the same shard as [`FROM`], or of another one.
fn other_key(store: &Store, is_near: bool) -> Vec<u8> {
    let fits = |name: &String| {
        let near = |tx: &mut Tx<'_>| Ok(tx.holds(Key { db: 1, bytes: name.as_bytes() }));
        store.run(Access::Key(FROM), near).unwrap() == is_near
    };
    (0..).map(|n| format!("to {n}")).find(fits).unwrap().into_bytes()
}

fn put(tx: &mut Tx<'_>, form: Form, first: usize, expiry: Expiry) -> Result<(), TxError> {
    let name = |n| format!("a name of some length {n:05}").into_bytes();
    let names: Vec<Vec<u8>> = (first..first + ELEMENTS).map(name).collect();
    let all = || names.iter().map(Vec::as_slice);
    match form {
        Form::Hash => tx.hash_put(FROM, all().zip(all()), expiry),
        Form::ExpiringHash => {
            let at = |n: usize| n.is_multiple_of(3).then_some(5_000_000 + n as u64);
            let fields = names.iter().enumerate();
            let fields: Vec<_> =
                fields.map(|(n, name)| (name.clone(), name.clone(), at(n))).collect();
            tx.hash_put_expiring(FROM, &fields, expiry)
        }
        Form::Sorted => {
            let scores = (0..ELEMENTS).map(|n| (n % 7) as f64);
            tx.sorted_put_all(FROM, all().zip(scores), expiry)
        }
        // Longer than the others, so that they need as much.
        Form::List => tx.list_put(FROM, all().chain(all()).chain(all()), expiry),
        Form::Set => tx.set_put(FROM, all(), expiry),
        Form::Stream => tx.stream_put(FROM, &parts(&names), expiry),
    }
}

/// A stream of entries with these names, all of which one consumer of two has got.
fn parts(names: &[Vec<u8>]) -> Vec<StreamPart> {
    let id = |n: usize| StreamId { ms: 1 + n as u64, seq: 0 };
    let entry = |(n, name): (usize, &Vec<u8>)| {
        StreamPart::Entry(id(n), vec![(b"field".to_vec(), name.clone())])
    };
    let mut parts: Vec<StreamPart> = names.iter().enumerate().map(entry).collect();
    let (last_id, added) = (id(names.len()), names.len() as u64 + 5);
    parts.push(StreamPart::Ends { last_id, added, max_deleted: StreamId::MIN });
    let (group, consumer): (Arc<[u8]>, Arc<[u8]>) = ((*b"group").into(), (*b"consumer").into());
    parts.push(StreamPart::Group { name: group.clone(), last_id, entries_read: Some(3) });
    for name in [consumer.clone(), (*b"other").into()] {
        let (seen_ms, active_ms) = (77, (name == consumer).then_some(66));
        parts.push(StreamPart::Consumer { group: group.clone(), name, seen_ms, active_ms });
    }
    parts.extend((0..names.len()).map(|n| {
        let delivery = Delivery { id: id(n), delivered_ms: 50 + n as u64, deliveries: 2 };
        StreamPart::Pending { group: group.clone(), consumer: consumer.clone(), delivery }
    }));
    parts
}

fn act(store: &Store, form: Form, act: Act, to: Key<'_>) -> Result<(), StoreError> {
    let keys = [FROM, to];
    match act {
        Act::Put => store.run(Access::Key(FROM), |tx| put(tx, form, 7, Expiry::AtMs(9_000_000))),
        Act::Copy => store.run(Access::Keys(&keys), |tx| tx.copy(FROM, to).map(drop)),
        Act::Rename => store.run(Access::Keys(&keys), |tx| tx.rename(FROM, to).map(drop)),
    }
}

fn planted(bug: Planted) -> Config {
    Config { planted: bug, ..config(BUDGET_BYTES) }
}

struct Case {
    store: Store,
    clock: Arc<SimClock>,
    device: SimDevice,
    empty_bytes: u64,
    to: Vec<u8>,
}

/// A store with a value at both keys, all of it durable.
fn prepared(form: Form, is_near: bool, bug: Planted) -> Case {
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1_000_000)));
    let region = Region::open(Arc::new(device.clone()), clock.clone(), planted(bug)).unwrap();
    let store = store_on(region, &clock);
    let (empty_bytes, to) = (store.stats().free_bytes, other_key(&store, is_near));
    store.run(Access::Key(FROM), |tx| put(tx, form, 0, Expiry::None)).unwrap();
    let key = Key { db: 1, bytes: &to };
    let elements: Vec<Vec<u8>> = (0..300).map(|n| format!("old {n:020}").into_bytes()).collect();
    let push = |tx: &mut Tx<'_>| tx.list_push(key, End::Back, elements.iter().map(Vec::as_slice));
    store.run(Access::Key(key), push).unwrap();
    store.region().checkpoint().unwrap();
    Case { store, clock, device, empty_bytes, to }
}

/// The contents before and after.
fn states(form: Form, what: Act, is_near: bool) -> (Model, Model) {
    let case = prepared(form, is_near, Planted::None);
    let before = contents(&case.store);
    act(&case.store, form, what, Key { db: 1, bytes: &case.to }).unwrap();
    let after = contents(&case.store);
    assert_ne!(before, after);
    assert!(case.store.region().used_bytes_max() <= BUDGET_BYTES);
    (before, after)
}

/// Looks whether all memory that is not used by keys is free.
fn assert_no_leak(store: &Store, empty_bytes: u64, what: &str) {
    store.flush_all().unwrap();
    store.heap().reclaim();
    assert_eq!(store.stats().free_bytes, empty_bytes, "{what}: a leak");
}

/// Acts, killed after `fuse` steps of the heap. Returns whether the act got through.
fn killed_inside(form: Form, what: Act, is_near: bool, fuse: u64, states: &(Model, Model)) -> bool {
    let Case { store, clock, device, empty_bytes, to } = prepared(form, is_near, Planted::None);
    store.heap().kill_after(fuse);
    let outcome = act(&store, form, what, Key { db: 1, bytes: &to });
    let got_through = outcome.is_ok() && !store.heap().is_killed();
    let store = if fuse.is_multiple_of(2) {
        store.region().close(1).unwrap();
        drop(store);
        open(&device.power_cycle(fuse), &clock, BUDGET_BYTES)
    } else {
        let (memory, ledger) = store.region().fds();
        let fds = (memory.try_clone_to_owned().unwrap(), ledger.try_clone_to_owned().unwrap());
        drop(store);
        let device = Arc::new(device.clone());
        let region = Region::attach(fds.0, fds.1, device, clock.clone(), config(BUDGET_BYTES));
        store_on(region.unwrap(), &clock)
    };
    let name = format!("{what:?} of {form:?}, near {is_near}, killed after {fuse}");
    let found = contents(&store);
    let (before, after) = states;
    assert!(found == *after || (outcome.is_err() && found == *before), "{name}");
    assert_no_leak(&store, empty_bytes, &name);
    got_through
}

#[test]
fn a_value_that_is_built_is_whole_or_absent_after_a_death_at_any_step() {
    let acts = [(Act::Put, true), (Act::Copy, true), (Act::Copy, false), (Act::Rename, false)];
    for (at, form) in FORMS.into_iter().enumerate() {
        for (what, is_near) in [acts[at % 4], acts[(at + 1) % 4]] {
            let states = states(form, what, is_near);
            let gets_through = |fuse| killed_inside(form, what, is_near, fuse, &states);
            let (mut low, mut high) = (0, 1 + at as u64);
            while !gets_through(high) {
                (low, high) = (high, 4 * high);
            }
            while high - low > 1 {
                let middle = low.midpoint(high);
                *if gets_through(middle) { &mut high } else { &mut low } = middle;
            }
        }
    }
}

#[test]
fn a_large_value_moves_to_another_key_of_its_shard_in_few_steps() {
    for form in FORMS {
        let states = states(form, Act::Rename, true);
        let mut fuse = 1;
        while !killed_inside(form, Act::Rename, true, fuse, &states) {
            fuse += 1;
        }
        assert!(fuse < 100, "{form:?}: {fuse} steps of the heap");
    }
}

#[test]
fn a_value_that_is_built_is_whole_or_absent_after_a_power_cut() {
    for (at, form) in FORMS.into_iter().enumerate() {
        let what = if at % 2 == 0 { Act::Copy } else { Act::Put };
        let states = states(form, what, false);
        let cut_at = |cut: u64| {
            let Case { store, clock, device, empty_bytes, to } =
                prepared(form, false, Planted::None);
            let before = device.ops();
            device.cut_after(before.saturating_add(cut));
            let outcome = act(&store, form, what, Key { db: 1, bytes: &to });
            let outcome = outcome.and_then(|()| Ok(store.region().commit_group()?));
            let is_cut =
                matches!(outcome, Err(StoreError::NotDurable(RegionError::Latched { .. })));
            assert!(outcome.is_ok() || is_cut, "{outcome:?}");
            let ops = device.ops() - before;
            drop(store);
            let store = open(&device.power_cycle(cut), &clock, BUDGET_BYTES);
            let (found, name) = (contents(&store), format!("{form:?} cut at {cut}"));
            assert!(found == states.1 || (outcome.is_err() && found == states.0), "{name}");
            assert_no_leak(&store, empty_bytes, &name);
            ops
        };
        let ops = cut_at(u64::MAX);
        assert!(ops > 5, "{form:?}: {ops} durable operations only");
        (0..ops).for_each(|cut| assert!(cut_at(cut) <= ops));
    }
}

#[test]
fn several_values_are_built_for_one_operation_and_none_is_left_of_one_that_aborts() {
    let Case { store, empty_bytes, to, .. } = prepared(Form::Hash, false, Planted::None);
    let (to, third) = (Key { db: 1, bytes: &to }, Key { db: 1, bytes: b"third" });
    let keys = [FROM, to, third];
    let before = contents(&store);
    let aborted = store.run(Access::Keys(&keys), |tx| {
        tx.copy(FROM, to)?;
        tx.copy(to, third)?;
        tx.abort::<()>("enough")
    });
    assert!(matches!(aborted, Err(StoreError::Aborted("enough"))), "{aborted:?}");
    assert_eq!(contents(&store), before);
    let copied = store.run(Access::Keys(&keys), |tx| Ok((tx.copy(FROM, to)?, tx.copy(to, third)?)));
    assert_eq!(copied.unwrap(), (true, true));
    let found = contents(&store);
    let value = |key: Key<'_>| found[&(key.db, key.bytes.to_vec())].clone();
    assert!(value(FROM) == value(to) && value(to) == value(third));
    assert_no_leak(&store, empty_bytes, "after several");
}

/// The databases of the keys that a store has told of.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<u8>>);

impl Listener for Told {
    fn changed(&self, keys: &[Changed], _: bool) {
        self.0.lock().unwrap().extend(keys.iter().map(|changed| changed.db));
    }
}

impl Audience for Told {
    fn hear(&self, events: &[Event]) {
        self.0.lock().unwrap().extend(events.iter().map(|event| event.db));
    }
}

/// Otherwise a client that watches any key ends the server, and one that wants to know of all
/// changes is told of keys that do not exist.
#[test]
fn nobody_hears_of_the_keys_under_which_values_are_built() {
    for form in FORMS {
        let Case { store, to, .. } = prepared(form, false, Planted::None);
        let watch = store.watch(Key { db: 0, bytes: b"any" });
        act(&store, form, Act::Put, FROM).unwrap();
        let (changes, events) = (Arc::new(Told::default()), Arc::new(Told::default()));
        store.listen(Some(changes.clone()));
        store.announce(u32::MAX, Some(events.clone()));
        act(&store, form, Act::Copy, Key { db: 1, bytes: &to }).unwrap();
        drop(watch);
        let told = |told: &Told| std::mem::take(&mut *told.0.lock().unwrap());
        assert_eq!(told(&changes), [1], "{form:?}");
        assert!(told(&events).into_iter().all(|db| db < DATABASES), "{form:?}");
    }
}

/// Copies a large hash while another thread changes it and removes the copy, in one operation each:
/// wherever both are there, they are equal. Returns false if they were not.
fn copies_are_never_old(bug: Planted) -> bool {
    let Case { store, to, .. } = prepared(Form::Hash, false, bug);
    let (to, keys) = (Key { db: 1, bytes: &to }, [FROM, Key { db: 1, bytes: &to }]);
    let (begun, has_begun) = channel();
    let all = |entry: perdura_store::Entry<'_>| {
        let mut fields = BTreeMap::new();
        entry.for_each_field(&mut |name, value| drop(fields.insert(name.to_vec(), value.to_vec())));
        fields
    };
    std::thread::scope(|scope| {
        let change = |round: u32| {
            let text = round.to_string();
            let changed = store.run(Access::Keys(&keys), |tx| {
                tx.delete(to)?;
                tx.hash_set(FROM, b"round", text.as_bytes())
            });
            changed.unwrap();
        };
        scope.spawn(move || has_begun.into_iter().for_each(change));
        for round in 0..8 {
            let mut attempts = 0;
            let copied = store.run(Access::Keys(&keys), |tx| {
                attempts += 1;
                let done = tx.copy(FROM, to);
                if attempts == 1 {
                    begun.send(round).unwrap();
                }
                done.map(drop)
            });
            copied.unwrap();
            let is_equal = store.run(Access::Keys(&keys), |tx| {
                let copy = tx.get(to).map(all);
                Ok(copy.is_none_or(|copy| tx.get(FROM).map(all) == Some(copy)))
            });
            if !is_equal.unwrap() {
                drop(begun);
                return false;
            }
        }
        drop(begun);
        true
    })
}

#[test]
fn a_value_that_changes_while_its_copy_is_built_is_built_again() {
    assert!(copies_are_never_old(Planted::None));
}

#[test]
fn a_copy_that_is_not_compared_with_what_is_wanted_is_caught() {
    assert!(!copies_are_never_old(Planted::LinkUnseen), "the bug went unnoticed");
}

#[test]
fn a_value_that_is_freed_when_it_moves_is_caught() {
    let caught = FORMS.into_iter().any(|form| {
        let Case { store, empty_bytes, to, .. } = prepared(form, true, Planted::FreeMoved);
        let wanted = contents(&store).remove(&(0, FROM.bytes.to_vec()));
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            act(&store, form, Act::Rename, Key { db: 1, bytes: &to }).unwrap();
            store.heap().reclaim();
            let found = contents(&store).remove(&(1, to.clone()));
            assert_no_leak(&store, empty_bytes, "after a move");
            found == wanted
        }));
        !unwound.unwrap_or(false)
    });
    assert!(caught, "the bug went unnoticed");
}

#[test]
fn a_small_stream_that_grew_in_its_record_moves_with_all_its_entries() {
    let Case { store, to, .. } = prepared(Form::Set, true, Planted::None);
    let (to, keys) = (Key { db: 1, bytes: &to }, [FROM, Key { db: 1, bytes: &to }]);
    store.run(Access::Key(FROM), |tx| tx.delete(FROM)).unwrap();
    let add = |key: Key<'_>, ms: u64| {
        let pair: (&[u8], &[u8]) = (b"field", b"some value");
        let id = StreamId { ms, seq: 0 };
        let limits = store.chunk_limits();
        store.run(Access::Key(key), |tx| tx.stream_add(key, id, &[pair], limits)).unwrap();
    };
    (1..6).for_each(|ms| add(FROM, ms));
    let before = contents(&store).remove(&(0, FROM.bytes.to_vec()));
    assert!(store.run(Access::Keys(&keys), |tx| tx.rename(FROM, to)).unwrap());
    assert_eq!(contents(&store).remove(&(1, to.bytes.to_vec())), before);
    (6..9).for_each(|ms| add(to, ms));
    let len = store.read(to, |entry| entry.and_then(|entry| entry.stream()).map(|s| s.len()));
    assert_eq!(len, Some(8));
    contents(&store);
}
