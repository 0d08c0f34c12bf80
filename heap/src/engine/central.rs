//! The runs of one class that have free slots, as a list that the class's lock guards.
//!
//! Free slots are not listed one by one: a refill searches their states. So it takes neighbours,
//! and touches no free memory.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::classes::{SPAN_BYTES, class_info};
use super::spans::{CACHED, FREE, Slot, Span, listed};
use super::{Bin, Engine, Kind, NoMemory};

/// Runs without objects that a class keeps for itself.
const EMPTY_KEPT: u32 = 1;

/// Both ends of the list, as the first span of a run plus one; zero stands for no run.
#[derive(Debug, Default)]
pub(super) struct Central {
    first: u32,
    last: u32,
    empty: u32,
}

impl Central {
    /// Moves up to `wanted` free slots into a bin, and at least one.
    pub fn fill(
        &mut self,
        engine: &Engine,
        bin: &Bin,
        kind: Kind,
        class: usize,
        wanted: u32,
    ) -> Result<(), NoMemory> {
        let mut left = wanted;
        while left > 0 {
            if self.first == 0 {
                if left < wanted {
                    return Ok(());
                }
                let start = engine.new_run(kind, class)?;
                self.enter(engine, start, class_info(class).slots);
            }
            left -= self.take_from(engine, bin, u64::from(self.first) - 1, class, left);
        }
        Ok(())
    }

    /// Enters a run with `free` free slots.
    pub fn enter(&mut self, engine: &Engine, start: u64, free: u32) {
        let entry = &engine.spans.lists[start as usize];
        entry[listed::FREE].store(free, Relaxed);
        entry[listed::CURSOR].store(0, Relaxed);
        if free > 0 {
            self.link(engine, start);
        }
        if let Span::Slots { class, .. } = engine.spans.get(start) {
            self.empty += u32::from(free == class_info(usize::from(class)).slots);
        }
    }

    /// Takes a slot back into its run, which may go back to the pool if `may_release`.
    pub fn give(&mut self, engine: &Engine, offset: u64, may_release: bool) {
        let Some(Slot { kind, class, start, states, slot }) = engine.spans.slot_at(offset) else {
            unreachable!("a cache holds slots only, not {offset:#x}")
        };
        let state = engine.spans.state(states, slot);
        assert_eq!(state.load(Relaxed), CACHED, "object {offset:#x} was freed twice");
        state.store(FREE, Relaxed);
        let entry = &engine.spans.lists[start as usize];
        let free = entry[listed::FREE].load(Relaxed) + 1;
        entry[listed::FREE].store(free, Relaxed);
        if free == 1 {
            self.link(engine, start);
        }
        let cursor = &entry[listed::CURSOR];
        cursor.store(cursor.load(Relaxed).min(slot), Relaxed);
        if free == class_info(class).slots {
            self.empty += 1;
            if may_release && self.empty > EMPTY_KEPT {
                self.empty -= 1;
                self.unlink(engine, start);
                engine.release_run(kind, start, u64::from(class_info(class).spans));
            }
        }
    }

    fn take_from(
        &mut self,
        engine: &Engine,
        bin: &Bin,
        start: u64,
        class: usize,
        wanted: u32,
    ) -> u32 {
        let info = class_info(class);
        let entry = &engine.spans.lists[start as usize];
        let free = entry[listed::FREE].load(Relaxed);
        let Span::Slots { states, .. } = engine.spans.get(start) else {
            unreachable!("the list of a class holds runs of slots only")
        };
        self.empty -= u32::from(free == info.slots);
        let (mut at, mut taken) = (entry[listed::CURSOR].load(Relaxed), 0);
        let bytes = engine.spans.states_of(states, info.slots);
        while taken < wanted.min(free) {
            let state = &bytes[at as usize];
            if state.load(Relaxed) == FREE {
                state.store(CACHED, Relaxed);
                bin.push(start * SPAN_BYTES + u64::from(at) * u64::from(info.bytes), u32::MAX);
                taken += 1;
            }
            at += 1;
        }
        entry[listed::CURSOR].store(at, Relaxed);
        entry[listed::FREE].store(free - taken, Relaxed);
        if taken == free {
            self.unlink(engine, start);
        }
        taken
    }

    /// Puts a run at the end of the list.
    fn link(&mut self, engine: &Engine, start: u64) {
        let name = start as u32 + 1;
        field(engine, name, listed::NEXT).store(0, Relaxed);
        field(engine, name, listed::BEFORE).store(self.last, Relaxed);
        match self.last {
            0 => self.first = name,
            last => field(engine, last, listed::NEXT).store(name, Relaxed),
        }
        self.last = name;
    }

    fn unlink(&mut self, engine: &Engine, start: u64) {
        let name = start as u32 + 1;
        let next = field(engine, name, listed::NEXT).load(Relaxed);
        let before = field(engine, name, listed::BEFORE).load(Relaxed);
        match before {
            0 => self.first = next,
            before => field(engine, before, listed::NEXT).store(next, Relaxed),
        }
        match next {
            0 => self.last = before,
            next => field(engine, next, listed::BEFORE).store(before, Relaxed),
        }
    }
}

fn field(engine: &Engine, name: u32, which: usize) -> &AtomicU32 {
    &engine.spans.lists[name as usize - 1][which]
}
