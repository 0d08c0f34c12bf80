//! A heap that is reopened on a crash state, compared with the oracle and used again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use perdura_heap::{Heap, Offset, Opened as HeapOpened, Tap};

use super::broken::Broken;
use super::contents::Contents;
use super::explore::{End, Reopened, Subject, is_drawn};
use super::oracle::{Difference, Expected, Held};
use super::settings::{FIRST_BOOT, Settings};
use super::sys::{Bytes, memory_of};
use super::trace::{Recorder, States, Trace};

/// Bytes of the objects that are allocated after a recovery, to see that none lies in an object
/// that must have survived.
const SIZES_AFTER: [u64; 5] = [16, 64, 160, 1_000, 70_000];

/// Bytes that are written to each end of such an object.
const END_BYTES: u64 = 1_000;

/// A heap and the states that it may be in.
pub(crate) struct HeapSubject {
    pub settings: Settings,
    /// Number of the boot in which the operation was recorded. Only a later boot may bring freed
    /// objects back.
    pub boot: u64,
    /// Decides which heaps are used again, and which memory is compared whole.
    pub seed: u64,
    /// The contents that the heap should have after each step; at most 64.
    pub states: Vec<Expected>,
}

impl Tap for Recorder {
    fn store(&self, offset: u64, bytes: &[u8]) {
        Self::store(self, offset, bytes);
    }

    fn flush(&self, line_offset: u64) {
        Self::flush(self, line_offset);
    }

    fn fence(&self) {
        Self::fence(self);
    }

    fn stream(&self, offset: u64, bytes: &[u8]) {
        Self::stream(self, offset, bytes);
    }

    fn empty(&self, offset: u64, len: u64) {
        Self::empty(self, offset, len);
    }
}

/// A heap opened on a crash state.
struct Opened {
    heap: Heap,
    bytes: Bytes,
    recovery: Trace,
    held: Held,
    freed_may_return: bool,
}

impl Subject for HeapSubject {
    type Broken = Broken;

    fn reopen(&self, contents: &Contents, end: End) -> Result<Reopened, Broken> {
        catching(|| {
            let opened = self.open(contents, end)?;
            let states = opened.states(&self.states);
            // One heap in four is used again, which takes half as long as a recovery: states are
            // many, and the tables of free memory are made in few ways.
            let is_used = is_drawn(contents.hash(), self.seed ^ 1, 4);
            if let Some(state) = states.numbers().last()
                && is_used
            {
                opened.use_again(&self.states[state])?;
            }
            Ok(Reopened { states, recovery: opened.recovery })
        })
    }

    fn explain(&self, contents: &Contents, end: End, allowed: States) -> Broken {
        let explained = catching(|| {
            let opened = self.open(contents, end)?;
            let found = allowed.numbers().filter_map(|state| {
                let expected = self.states.get(state)?;
                Some((expected.step, opened.difference(expected)?))
            });
            Ok(Broken::NoState(found.collect()))
        });
        explained.unwrap_or_else(|broken| broken)
    }
}

impl HeapSubject {
    fn open(&self, contents: &Contents, end: End) -> Result<Opened, Broken> {
        let (memory, bytes) = memory_of(contents)?;
        let recorder = Arc::new(Recorder::default());
        let config = self.settings.config(&recorder, FIRST_BOOT + end.boot);
        let heap = Heap::open(memory, config).map_err(Broken::Open)?;
        let recovery = recorder.take();
        let mut after = contents.clone();
        recovery.events.iter().for_each(|event| event.change(&mut after));
        // All of the memory is compared in one case of 256 only: that takes longer than the
        // recovery.
        let is_whole = is_drawn(contents.hash(), self.seed ^ 2, 256);
        if let Some(offset) = bytes.first_difference(&after, is_whole) {
            return Err(Broken::Untapped { when: "recovery", offset });
        }
        let held = held_by(&heap, &self.states)?;
        let freed_may_return = end.boot > self.boot;
        Ok(Opened { heap, bytes, recovery, held, freed_may_return })
    }
}

impl Opened {
    /// The numbers of those `states` that were found.
    fn states(&self, states: &[Expected]) -> States {
        states
            .iter()
            .enumerate()
            .filter(|(_, expected)| self.difference(expected).is_none())
            .fold(States(0), |so_far, (number, _)| so_far.or(States::one(number)))
    }

    fn difference(&self, expected: &Expected) -> Option<Difference> {
        expected.difference(&self.held, self.freed_may_return, &|offset, len| {
            self.bytes.read(offset, len)
        })
    }

    /// Allocates objects and writes their bytes: no object that must be there may change.
    fn use_again(&self, expected: &Expected) -> Result<(), Broken> {
        let mut now = expected.clone();
        let mut held = self.held.clone();
        now.maybe.extend(held.allocated.keys().filter(|at| !expected.objects.contains_key(at)));
        for len in SIZES_AFTER {
            let step = "an allocation";
            let offset =
                self.heap.persist_alloc(len).map_err(|error| Broken::Refused { step, error })?;
            let usable_bytes = self.heap.usable_bytes(offset).unwrap_or(len);
            if held.allocated.contains_key(&offset.get()) {
                let next = offset.get();
                let difference = Difference::Overlap { offset: next, usable_bytes, next };
                return Err(Broken::Later { step, difference });
            }
            // Of a large object both ends are written. That its bytes are nobody else's is known
            // from the lengths, and each page that is touched takes time.
            for at in [0, len - len.min(END_BYTES)] {
                self.bytes.write(
                    offset.get() + at,
                    &[0xa5; END_BYTES as usize][..len.min(END_BYTES) as usize],
                );
            }
            held.allocated.insert(offset.get(), usable_bytes);
            now.alloc(offset.get(), len, None);
        }
        let step = "five allocations";
        match now.difference(&held, true, &|offset, len| self.bytes.read(offset, len)) {
            Some(difference) => Err(Broken::Later { step, difference }),
            None => Ok(()),
        }
    }
}

/// Runs `f`; a panic is a failure like others. The heap's caches of this thread are of no use to
/// the next heap, which has caches of its own.
fn catching<R>(f: impl FnOnce() -> Result<R, Broken>) -> Result<R, Broken> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Broken::Panicked(text.unwrap_or("without a message").to_owned()))
    })
}

/// The contents that the heap reports: those of the known objects that are allocated, and the
/// number of all objects.
fn held_by(heap: &Heap, states: &[Expected]) -> Result<Held, Broken> {
    let mut held = Held::default();
    for root in heap.roots().map_err(|error| Broken::Refused { step: "roots", error })? {
        held.roots.insert(root.name, (root.type_id, root.object.map_or(0, Offset::get)));
    }
    let known = states.iter().flat_map(|state| state.objects.keys().chain(&state.maybe));
    for offset in known.filter_map(|offset| Offset::new(*offset)) {
        if heap.is_object(offset)
            && let Ok(usable_bytes) = heap.usable_bytes(offset)
        {
            held.allocated.insert(offset.get(), usable_bytes);
        }
    }
    for compartment in heap.compartments() {
        held.compartments.insert(compartment.offset.get(), compartment.len_bytes);
    }
    held.objects = match heap.opened() {
        HeapOpened::Made => 0,
        HeapOpened::Recovered(found) => found.objects,
    };
    Ok(held)
}
