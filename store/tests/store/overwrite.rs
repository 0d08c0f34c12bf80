//! Values that are overwritten in place: killed at every step they are whole or absent, whoever
//! takes over the memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use perdura_media::sim::SimDevice;
use perdura_media::{Clock, SimClock};
use perdura_region::{Attachment, Config, FlushOptions, Planted, Region};
use perdura_store::{
    Access, Expiry, Heap, Key, OpenError, Store, StoreError, StoreOptions, Tx, TxError,
};

use crate::harness::*;

const BUDGET_BYTES: u64 = 512 << 10;
const NAMES: [&[u8]; 3] = [b"small", b"kilobyte", b"expiring"];
const LENGTHS: [usize; 3] = [8, 1_024, 700];
const EXPIRY_MS: u64 = 1_000_000;

fn key(index: usize) -> Key<'static> {
    Key::new(NAMES[index])
}

fn value(index: usize, byte: u8) -> Vec<u8> {
    vec![byte; LENGTHS[index]]
}

/// The operations that are killed, each with its only key. The last five go on after the first
/// bytes are overwritten.
type Operation = (Option<usize>, fn(&mut Tx<'_>, u64) -> Result<(), TxError>);
const OPERATIONS: [Operation; 9] = [
    (Some(0), |tx, _| tx.put(key(0), &value(0, 2), Expiry::None)),
    (Some(1), |tx, _| tx.put(key(1), &value(1, 2), Expiry::None)),
    (Some(2), |tx, now_ms| tx.put(key(2), &value(2, 2), Expiry::AtMs(now_ms + 2 * EXPIRY_MS))),
    (Some(1), |tx, _| tx.patch(key(1), 100, &[3; 500]).map(drop)),
    (Some(1), |tx, _| {
        tx.put(key(1), &value(1, 2), Expiry::None)?;
        tx.patch(key(1), 1, &[4; 9])?;
        tx.append(key(1), &[5; 2_000]).map(drop)
    }),
    (Some(0), |tx, _| {
        tx.put(key(0), &value(0, 2), Expiry::None)?;
        tx.put(key(0), &value(0, 3), Expiry::None)
    }),
    (Some(2), |tx, _| {
        tx.put(key(2), &value(2, 2), Expiry::Keep)?;
        tx.delete(key(2)).map(drop)
    }),
    (Some(1), |tx, now_ms| {
        // The slot has no room for so many; then a record is written that is written again.
        (2..9).try_for_each(|byte| tx.put(key(1), &value(1, byte), Expiry::None))?;
        tx.put(key(1), &value(1, 9)[1..], Expiry::None)?;
        tx.put(key(1), &value(1, 10), Expiry::AtMs(now_ms + EXPIRY_MS))?;
        tx.put(key(1), &value(1, 11), Expiry::AtMs(now_ms + 2 * EXPIRY_MS))
    }),
    (None, |tx, _| {
        tx.patch(key(1), 0, &[6; 1_024])?;
        (0..2).try_for_each(|index| tx.put(key(index), &value(index, 2), Expiry::None))?;
        tx.delete(key(2)).map(drop)
    }),
];

struct Machine {
    device: SimDevice,
    clock: Arc<SimClock>,
    planted: Planted,
}

impl Machine {
    fn new(planted: Planted) -> Self {
        Self { device: SimDevice::new(0, 5), clock: Arc::new(SimClock::new(1_000_000)), planted }
    }

    fn config(&self) -> Config {
        Config { planted: self.planted, ..config(BUDGET_BYTES) }
    }

    /// A store with the three keys, which are dirty or clean.
    fn filled(&self, is_clean: bool) -> Store {
        let device = Arc::new(self.device.clone());
        let region = Region::open(device, self.clock.clone(), self.config());
        let store = store_on(region.unwrap(), &self.clock);
        for index in 0..3 {
            let at_ms = Expiry::AtMs(self.clock.unix_ms() + EXPIRY_MS);
            let expiry = if index == 2 { at_ms } else { Expiry::None };
            let key = key(index);
            store.run(Access::Key(key), |tx| tx.put(key, &value(index, 1), expiry)).unwrap();
        }
        if is_clean {
            store.region().checkpoint().unwrap();
        }
        store
    }

    /// Runs an operation, and aborts it at its end if `aborts`.
    fn run(&self, store: &Store, operation: Operation, aborts: bool) -> Result<(), StoreError> {
        let keys: Vec<_> = (0..3).map(key).collect();
        let access = operation.0.map_or(Access::Keys(&keys), |index| Access::Key(key(index)));
        let now_ms = self.clock.unix_ms();
        store.run(access, |tx| {
            operation.1(tx, now_ms)?;
            if aborts { tx.abort("on purpose") } else { Ok(()) }
        })
    }

    /// The contents before and after an operation.
    fn before_and_after(&self, operation: Operation) -> [Model; 2] {
        let store = self.filled(false);
        let before = contents(&store);
        self.run(&store, operation, false).unwrap();
        [before, contents(&store)]
    }

    /// The store that is found after its process died: by a process that goes on with the memory,
    /// or after a holder flushed the memory and the power went. An error if it cannot be opened.
    fn after_death(&self, store: Store, by_holder: bool) -> Result<Store, OpenError> {
        let (memory, ledger) = store.region().fds();
        let [memory, ledger] = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
        drop(store);
        let region = if by_holder {
            let holder = Attachment::new(memory, ledger).unwrap();
            let options = FlushOptions { threads: 1, unix_ms: 7 };
            holder.flush(&self.device, options).unwrap();
            let device = Arc::new(self.device.power_cycle(3));
            Region::open(device, self.clock.clone(), self.config())
        } else {
            let device = Arc::new(self.device.clone());
            Region::attach(memory, ledger, device, self.clock.clone(), self.config())
        };
        let heap = Heap::open(region.unwrap()).unwrap();
        Store::open(heap, self.clock.clone(), StoreOptions::default())
    }
}

/// Kills each operation at each of its steps. Returns how many deaths left it neither whole nor
/// absent, or no store that opens, and how many there were.
fn torn(planted: Planted) -> (u32, u32) {
    let (mut torn, mut deaths) = (0, 0);
    for (number, operation) in OPERATIONS.into_iter().enumerate() {
        let both = Machine::new(Planted::None).before_and_after(operation);
        for way in 0..4 {
            let (is_clean, by_holder) = (way & 1 != 0, way & 2 != 0);
            for fuse in 1.. {
                let machine = Machine::new(planted);
                let store = machine.filled(is_clean);
                store.heap().kill_after(fuse);
                let outcome = machine.run(&store, operation, false);
                if !store.heap().is_killed() {
                    break;
                }
                deaths += 1;
                let found = machine.after_death(store, by_holder);
                let refused = found.as_ref().err().map(ToString::to_string);
                // A store with a damaged index cannot be read.
                let read = || found.ok().map(|store| contents(&store));
                let found = catch_unwind(AssertUnwindSafe(read)).ok().flatten();
                let allowed = if outcome.is_ok() { &both[1..] } else { &both[..] };
                if !found.is_some_and(|found| allowed.contains(&found)) {
                    let what = format!("operation {number}, way {way}, fuse {fuse}");
                    assert!(planted != Planted::None, "{what}: {outcome:?}: {refused:?}");
                    torn += 1;
                }
            }
        }
    }
    (torn, deaths)
}

#[test]
fn a_value_overwritten_in_place_is_whole_or_absent_after_a_death_at_any_step() {
    let (torn, deaths) = torn(Planted::None);
    assert!(torn == 0 && deaths > 150, "{torn} of {deaths}");
}

#[test]
fn overwritten_bytes_that_are_not_put_back_are_caught() {
    assert!(torn(Planted::LeaveOverwritten).0 > 0);
}

#[test]
fn an_undo_slot_without_the_old_bytes_is_caught() {
    assert!(torn(Planted::UndoWithoutBytes).0 > 0);
}

#[test]
fn a_value_of_the_same_size_takes_no_new_memory_and_makes_nothing_more_dirty() {
    let machine = Machine::new(Planted::None);
    let store = machine.filled(false);
    let dirtied = || {
        let stats = store.region().stats();
        (stats.dirtied_bytes, stats.dropped_bytes)
    };
    let before = dirtied();
    for byte in 2..10 {
        store.put(key(1), &value(1, byte)).unwrap();
        assert_eq!(store.get(key(1)).unwrap(), value(1, byte));
    }
    assert_eq!(dirtied(), before);
    store.put(key(1), &[1; 1_023]).unwrap();
    assert_ne!(dirtied(), before);
}

#[test]
fn what_an_aborted_operation_overwrote_is_as_before() {
    for operation in OPERATIONS {
        let machine = Machine::new(Planted::None);
        let store = machine.filled(false);
        let before = contents(&store);
        let aborted = machine.run(&store, operation, true);
        assert!(matches!(aborted, Err(StoreError::Aborted(_))), "{aborted:?}");
        assert!(contents(&store) == before);
    }
}

#[test]
fn more_threads_than_there_are_undo_slots_share_a_store() {
    let machine = Machine::new(Planted::None);
    let store = machine.filled(false);
    let all_run = std::sync::Barrier::new(70);
    std::thread::scope(|scope| {
        for thread in 0..70u8 {
            let (store, all_run) = (&store, &all_run);
            scope.spawn(move || {
                all_run.wait();
                let name = [thread];
                for byte in 0..20 {
                    store.put(Key::new(&name), &[byte; 300]).unwrap();
                    assert_eq!(store.get(Key::new(&name)).unwrap(), [byte; 300]);
                }
                all_run.wait();
            });
        }
    });
}

#[test]
fn values_that_one_operation_writes_very_often_take_little_memory_and_budget() {
    let keys: Vec<_> = (0..3).map(key).collect();
    for (count, access) in [(1, Access::Key(key(0))), (3, Access::Keys(&keys))] {
        let machine = Machine::new(Planted::None);
        let store = machine.filled(false);
        let (free_bytes, mut attempts) = (store.stats().free_bytes, 0);
        let all = |tx: &mut Tx<'_>| {
            attempts += 1;
            (0..50_000).try_for_each(|number| {
                let (key, value) = (key(number % count), number.to_string());
                tx.put(key, value.as_bytes(), Expiry::None)?;
                assert_eq!(tx.get(key).and_then(|entry| entry.string()), Some(value.as_bytes()));
                Ok(())
            })
        };
        store.run(access, all).unwrap();
        assert_eq!(store.get(key(49_999 % count)).unwrap(), b"49999");
        let taken_bytes = free_bytes - store.stats().free_bytes;
        assert!(attempts == 1 && taken_bytes <= 64 << 10, "{attempts}, {taken_bytes} B");
    }
}

#[test]
fn what_a_value_leads_to_is_freed_when_its_operation_puts_another_one_in_its_place() {
    let machine = Machine::new(Planted::None);
    let store = machine.filled(false);
    let (free_bytes, expiry) = (store.stats().free_bytes, Expiry::AtMs(EXPIRY_MS * 2));
    let elements: Vec<_> = (0..400u32).map(|number| [number.to_le_bytes(); 8]).collect();
    for number in 0..40u64 {
        let name = number.to_le_bytes();
        let key = Key::new(&name);
        let all = |tx: &mut Tx<'_>| {
            let elements = elements.iter().map(|element| element.as_flattened());
            tx.list_put(key, elements, expiry)?;
            // A record of the same size as that of a large list.
            tx.put(key, &[1; 32], expiry)
        };
        store.run(Access::Key(key), all).unwrap();
        assert_eq!(store.get(key).unwrap(), [1; 32]);
    }
    store.free_some(u64::MAX);
    store.heap().reclaim();
    let taken_bytes = free_bytes - store.stats().free_bytes;
    assert!(taken_bytes <= 128 << 10, "{taken_bytes}");
}

#[test]
fn a_long_value_has_the_expiry_of_the_last_attempt() {
    let machine = Machine::new(Planted::None);
    let store = machine.filled(false);
    let (now_ms, mut attempts) = (machine.clock.unix_ms(), 0);
    let put = |tx: &mut Tx<'_>| {
        attempts += 1;
        tx.put(key(0), &[1; 200_000], Expiry::AtMs(now_ms + attempts))
    };
    store.run(Access::Key(key(0)), put).unwrap();
    let found = store
        .run(Access::Key(key(0)), |tx| Ok(tx.get(key(0)).and_then(|entry| entry.expire_at_ms)));
    assert!(attempts > 1, "a long value is written outside of an attempt");
    assert_eq!(found.unwrap(), Some(now_ms + attempts));
}

#[test]
fn a_value_that_is_overwritten_goes_away_when_the_new_one_does() {
    let machine = Machine::new(Planted::None);
    let store = machine.filled(false);
    let now_ms = machine.clock.unix_ms();
    let times = [Expiry::None, Expiry::AtMs(now_ms + 5), Expiry::AtMs(now_ms + 500), Expiry::Keep];
    let mut expected = Vec::new();
    for (number, len) in (0..128u8).zip([8, 300].into_iter().cycle()) {
        let expiries = [usize::from(number / 2), usize::from(number / 8), usize::from(number / 32)];
        let (name, mut last) = ([number], Expiry::None);
        let put = |tx: &mut Tx<'_>, byte: u8, expiry: Expiry| {
            tx.put(Key::new(&name), &vec![byte; len], expiry)
        };
        for (byte, expiry) in (0..).zip(expiries.map(|index| times[index % 4])) {
            last = if expiry == Expiry::Keep { last } else { expiry };
            if number % 3 == 0 {
                // The record is one that the operation has written itself.
                let all = |tx: &mut Tx<'_>| {
                    put(tx, byte, times[1])?;
                    tx.delete(Key::new(&name))?;
                    put(tx, byte, last)?;
                    put(tx, byte + 1, last)
                };
                store.run(Access::Key(Key::new(&name)), all).unwrap();
            } else {
                store.run(Access::Key(Key::new(&name)), |tx| put(tx, byte + 1, expiry)).unwrap();
            }
        }
        expected.push((name, len, last));
    }
    for (after_ms, gone) in [(0, 0), (5, 1), (600, 2)] {
        machine.clock.advance_ns(after_ms * 1_000_000);
        for (name, len, last) in &expected {
            let is_there = !times[1..=gone].contains(last);
            let value = is_there.then(|| vec![3; *len]);
            assert_eq!(store.get(Key::new(name)), value, "{name:?}: {last:?}");
        }
    }
}
