//! A value that is put as a whole, as RESTORE does, in the place of another one: killed at any step
//! it is there or the other one is, and nothing leaks. Larger than the budget, it goes in parts.

use std::sync::Arc;

use crate::harness::*;
use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::Region;
use perdura_store::{Access, Expiry, Key, Store, StoreError};

const BUDGET_BYTES: u64 = 1 << 20;
const KEY: Key<'static> = Key { db: 0, bytes: b"key" };

/// The kinds of values that are put as a whole.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Put {
    Hash,
    Sorted,
    List,
    Set,
}

fn put(store: &Store, kind: Put, count: usize, expiry: Expiry) -> Result<(), StoreError> {
    put_long(store, kind, (count, 3), expiry)
}

/// Puts so many elements, whose names have a number of so many digits.
fn put_long(
    store: &Store,
    kind: Put,
    (count, digits): (usize, usize),
    expiry: Expiry,
) -> Result<(), StoreError> {
    let name = |n| format!("name {n:0digits$}").into_bytes();
    let names: Vec<Vec<u8>> = (0..count).map(name).collect();
    let all = || names.iter().map(Vec::as_slice);
    store.run(Access::Key(KEY), |tx| match kind {
        Put::Hash => tx.hash_put(KEY, all().zip(all()), expiry),
        Put::Sorted => {
            let scores = (0..count).map(|n| (n % 7) as f64);
            tx.sorted_put_all(KEY, all().zip(scores), expiry)
        }
        Put::List => tx.list_put(KEY, all(), expiry),
        Put::Set => tx.set_put(KEY, all(), expiry),
    })
}

fn fresh(seed: u64) -> (Store, Arc<SimClock>, SimDevice) {
    let (device, clock) = (SimDevice::new(0, seed), Arc::new(SimClock::new(1_000_000)));
    (open(&device, &clock, BUDGET_BYTES), clock, device)
}

/// Puts `new` over `old`, killed after `fuse` steps of the heap. Returns whether it got through.
fn killed_inside(old: (Put, usize), new: (Put, usize), after: &Model, fuse: u64) -> bool {
    let (store, clock, device) = fresh(fuse);
    let empty_bytes = store.stats().free_bytes;
    put(&store, old.0, old.1, Expiry::None).unwrap();
    let before = contents(&store);
    store.heap().kill_after(fuse);
    let outcome = put(&store, new.0, new.1, Expiry::AtMs(9_000_000));
    let got_through = outcome.is_ok() && !store.heap().is_killed();
    let store = if fuse.is_multiple_of(3) {
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
    let found = contents(&store);
    let is_whole = found == *after || (outcome.is_err() && found == before);
    assert!(is_whole, "{old:?} to {new:?} killed after {fuse}");
    store.flush_all().unwrap();
    store.heap().reclaim();
    assert_eq!(store.stats().free_bytes, empty_bytes, "{old:?} to {new:?}, {fuse}: a leak");
    got_through
}

#[test]
fn a_whole_value_killed_at_any_step_is_there_or_the_one_before_is() {
    let cases = [
        ((Put::Hash, 3), (Put::Hash, 5), 1),
        ((Put::List, 300), (Put::Hash, 600), 29),
        ((Put::Hash, 600), (Put::Sorted, 150), 7),
        ((Put::Sorted, 150), (Put::Set, 200), 7),
        ((Put::Set, 200), (Put::List, 400), 1),
    ];
    for (old, new, stride) in cases {
        let after = {
            let (store, ..) = fresh(1);
            put(&store, new.0, new.1, Expiry::AtMs(9_000_000)).unwrap();
            contents(&store)
        };
        let mut fuse = 1;
        while !killed_inside(old, new, &after, fuse) {
            fuse += stride;
        }
    }
}

#[test]
fn a_whole_value_that_is_larger_than_the_budget_goes_in_parts() {
    for kind in [Put::Hash, Put::Sorted, Put::List, Put::Set] {
        let (device, clock) = (SimDevice::new(0, 3), Arc::new(SimClock::new(1_000_000)));
        let budget_bytes = 256 << 10;
        let store = open(&device, &clock, budget_bytes);
        put_long(&store, kind, (600, 1_000), Expiry::None).unwrap();
        assert_eq!(contents(&store).len(), 1);
        // The tables and trees of these elements are more than the budget, too.
        put(&store, kind, 50_000, Expiry::None).unwrap();
        let len = match &*contents(&store)[&(0, KEY.bytes.to_vec())].0 {
            Value::Hash(fields) => fields.len(),
            Value::Sorted(members) => members.len(),
            Value::List(elements) => elements.len(),
            Value::Set(members) => members.len(),
            _ => 0,
        };
        assert_eq!(len, 50_000, "{kind:?}");
        let region = store.region();
        assert!(region.used_bytes_max() <= region.budget_bytes(), "{kind:?}");
        // Without elements there is no key.
        put(&store, kind, 0, Expiry::None).unwrap();
        assert!(contents(&store).is_empty(), "{kind:?}");
    }
}
