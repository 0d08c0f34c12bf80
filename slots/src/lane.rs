//! A held lane: its memory, its allocator, its user's volatile state.

use std::any::Any;
use std::sync::atomic::Ordering::Relaxed;

use perdura_region::{Heat, LaneGuard, LaneId, Need};

use crate::classes::{CLASSES, class_bytes, class_of, class_spans};
use crate::error::Stop;
use crate::heap::Heap;
use crate::layout::{OBJECT_BYTES_MAX, SPAN_BYTES, SpanWord};

/// Empty runs a class may keep before it looks whether giving some back is worth a sweep of its
/// list.
const EMPTY_RUNS_KEPT: u32 = 8;

/// What a lane remembers between operations; none of it is durable.
pub(crate) struct LaneState {
    classes: Vec<ClassList>,
    /// Runs to give back to the pool, once the budget has room for the span table's change.
    pub(crate) pending: Vec<(u64, u32)>,
    /// Lists of operations, kept for their capacity.
    pub(crate) scratch: [Vec<u64>; 2],
    /// The lists know what was free when the heap was opened.
    pub(crate) is_searched: bool,
    user: Box<dyn Any + Send>,
}

#[derive(Default)]
struct ClassList {
    /// Free slots, last freed first out: their grains are likely to be dirty, or in a cache, still.
    free: Vec<u64>,
    bump: u64,
    bump_end: u64,
    runs: u32,
    empty_runs: u32,
}

impl LaneState {
    pub fn new() -> Self {
        let classes = (0..CLASSES).map(|_| ClassList::default()).collect();
        Self {
            classes,
            pending: Vec::new(),
            scratch: [const { Vec::new() }; 2],
            is_searched: false,
            user: Box::new(()),
        }
    }

    /// Enters a run found on open; `free` are its free slots, lowest last.
    pub fn enter_run(&mut self, class: usize, free: Vec<u64>) {
        let list = &mut self.classes[class];
        list.runs += 1;
        list.free.extend(free);
    }
}

/// A lane while it is held. Dropping it releases the lane.
pub struct Lane<'h> {
    heap: &'h Heap,
    pub(crate) guard: LaneGuard<'h>,
    state: Option<Box<LaneState>>,
}

impl<'h> Lane<'h> {
    pub(crate) fn new(heap: &'h Heap, mut guard: LaneGuard<'h>) -> Self {
        let state = guard.take_user().and_then(|user| user.downcast().ok());
        Self { heap, guard, state: Some(state.unwrap_or_else(|| Box::new(LaneState::new()))) }
    }

    /// Which lane.
    pub fn id(&self) -> LaneId {
        self.guard.lane()
    }

    /// Bytes of this lane's memory.
    #[inline]
    pub fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        self.guard.bytes(offset, len)
    }

    /// The 8-byte word at `offset` (aligned).
    #[inline]
    pub fn load(&self, offset: u64) -> u64 {
        self.guard.load(offset)
    }

    /// How likely an object that replaces the one at `offset` will be replaced again soon.
    pub fn heat_of_successor(&self, offset: u64) -> Heat {
        self.guard.heat_of_successor(offset)
    }

    /// Bytes an object has room for: its slot, or its spans.
    pub fn usable_bytes(&self, offset: u64) -> u64 {
        match self.heap.run_of(offset) {
            (_, SpanWord::Small { class, .. }) => class_bytes(usize::from(class)),
            (_, SpanWord::Large { spans, .. }) => u64::from(spans) * SPAN_BYTES,
            (_, SpanWord::Free) => 0,
        }
    }

    /// The heap user's volatile state of this lane, if it was set.
    pub fn user<T: 'static>(&self) -> Option<&T> {
        self.state.as_ref()?.user.downcast_ref()
    }

    /// As [`Lane::user`], to be changed.
    pub fn user_mut<T: 'static>(&mut self) -> Option<&mut T> {
        self.state_mut().user.downcast_mut()
    }

    /// Replaces the heap user's volatile state of this lane.
    pub fn set_user<T: Send + 'static>(&mut self, user: T) {
        self.state_mut().user = Box::new(user);
    }

    /// Starts loading the memory that an object of `bytes` would get now.
    pub fn prefetch_alloc(&self, bytes: u64) {
        let state = self.state.as_ref().zip(class_of(bytes));
        if let Some(&slot) = state.and_then(|(state, class)| state.classes[class].free.last()) {
            self.guard.prefetch_filled(slot, bytes);
        }
    }

    /// Starts loading what is kept about the object at `offset`, which may soon be replaced.
    #[inline]
    pub fn prefetch_entry(&self, offset: u64) {
        self.guard.prefetch_entry(offset);
    }

    /// Fills part of an object that nothing reaches.
    ///
    /// # Errors
    /// [`Stop::Need`]: release the lane and wait.
    pub fn write_unreached(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Stop> {
        self.heap.burn()?;
        self.guard.write(offset, bytes).map_err(Stop::Need)
    }

    /// Frees an object that nothing reaches any more: at once, so not from inside an operation that
    /// may still be rolled back. Its dirty grains cease to count.
    pub fn free_unreached(&mut self, offset: u64) {
        self.release(offset);
    }

    pub(crate) fn state_mut(&mut self) -> &mut LaneState {
        match &mut self.state {
            Some(state) => state,
            None => unreachable!("a lane has its state until it is dropped"),
        }
    }

    /// Takes memory for an object of `bytes`.
    pub(crate) fn alloc(&mut self, bytes: u64) -> Result<u64, Stop> {
        let Some(class) = class_of(bytes) else { return self.alloc_large(bytes) };
        let list = &mut self.state_mut().classes[class];
        if let Some(offset) = list.free.pop() {
            if self.heap.count_used(offset, 1) == 0 {
                self.state_mut().classes[class].empty_runs -= 1;
            }
            return Ok(offset);
        }
        if list.bump == list.bump_end {
            self.refill(class)?;
        }
        let list = &mut self.state_mut().classes[class];
        let offset = list.bump;
        list.bump += class_bytes(class);
        if self.heap.count_used(offset, 1) == 0 {
            self.state_mut().classes[class].empty_runs -= 1;
        }
        Ok(offset)
    }

    fn refill(&mut self, class: usize) -> Result<(), Stop> {
        let spans = class_spans(class);
        let word = SpanWord::Small { class: class as u8, lane: self.id(), spans: spans as u32 };
        let start = self.heap.take_spans(&mut self.guard, spans, word)?;
        let slots = spans * SPAN_BYTES / class_bytes(class);
        let list = &mut self.state_mut().classes[class];
        list.bump = start * SPAN_BYTES;
        list.bump_end = list.bump + slots * class_bytes(class);
        list.runs += 1;
        list.empty_runs += 1;
        Ok(())
    }

    fn alloc_large(&mut self, bytes: u64) -> Result<u64, Stop> {
        assert!(bytes <= OBJECT_BYTES_MAX, "an object of {bytes} bytes");
        let spans = bytes.div_ceil(SPAN_BYTES);
        let word = SpanWord::Large { lane: self.id(), spans: spans as u32 };
        Ok(self.heap.take_spans(&mut self.guard, spans, word)? * SPAN_BYTES)
    }

    /// Puts an object's memory back and drops its dirty grains.
    pub(crate) fn release(&mut self, offset: u64) {
        let (start, word) = self.heap.run_of(offset);
        match word {
            SpanWord::Small { class, lane, .. } => {
                assert_eq!(lane, self.id(), "object {offset:#x} is freed in another lane");
                self.guard.drop_dirty(offset, class_bytes(usize::from(class)));
                if self.leaves_to_rebuild(start) {
                    return;
                }
                let emptied = self.heap.count_used_of(start, -1) == 1;
                let list = &mut self.state_mut().classes[usize::from(class)];
                list.free.push(offset);
                list.empty_runs += u32::from(emptied);
                if list.empty_runs > EMPTY_RUNS_KEPT && list.empty_runs * 4 > list.runs {
                    self.trim(usize::from(class));
                }
            }
            SpanWord::Large { spans, .. } => {
                assert_eq!(offset, start * SPAN_BYTES, "object {offset:#x} is not one");
                self.guard.drop_dirty(offset, u64::from(spans) * SPAN_BYTES);
                if self.leaves_to_rebuild(start) {
                    return;
                }
                self.state_mut().pending.push((start, spans));
            }
            SpanWord::Free => panic!("object {offset:#x} is freed twice"),
        }
    }

    /// The lane's search for free memory is still to come, and finds what is unreachable in this
    /// run by then.
    fn leaves_to_rebuild(&mut self, start: u64) -> bool {
        !self.state_mut().is_searched && self.heap.is_unsearched(start)
    }

    /// Takes all runs without a used slot out of a class's list, to be given back.
    fn trim(&mut self, class: usize) {
        let heap = self.heap;
        let spans = class_spans(class) as u32;
        let state = self.state_mut();
        let list = &mut state.classes[class];
        let before = state.pending.len();
        if list.bump != list.bump_end && heap.used_of(list.bump) == 0 {
            // Slots never handed out lie behind the bump only; the run is found through them, too.
            state.pending.push((heap.run_of(list.bump).0, spans));
            (list.bump, list.bump_end) = (0, 0);
        }
        let bumped = state.pending.get(before).map(|run| run.0);
        let mut emptied = Vec::new();
        list.free.retain(|&offset| {
            if heap.used_of(offset) > 0 {
                return true;
            }
            emptied.push(heap.run_of(offset).0);
            false
        });
        emptied.sort_unstable();
        emptied.dedup();
        let others = emptied.into_iter().filter(|start| Some(*start) != bumped);
        state.pending.extend(others.map(|start| (start, spans)));
        let gone = (state.pending.len() - before) as u32;
        list.runs -= gone;
        list.empty_runs -= gone;
    }

    /// Gives every empty run back to the pool. Returns how many spans, and what the rest waits for.
    pub(crate) fn trim_all(&mut self) -> (u64, Option<Need>) {
        for class in 0..CLASSES {
            if self.state_mut().classes[class].empty_runs > 0 {
                self.trim(class);
            }
        }
        self.give_back()
    }

    /// Gives pending runs back to the pool, as far as the budget allows now.
    fn give_back(&mut self) -> (u64, Option<Need>) {
        let mut pending = std::mem::take(&mut self.state_mut().pending);
        if pending.is_empty() {
            return (0, None);
        }
        for &(start, spans) in &pending {
            // What its objects shared was left dirty when each was freed.
            self.guard.drop_dirty(start * SPAN_BYTES, u64::from(spans) * SPAN_BYTES);
        }
        let outcome = self.heap.return_spans(&mut self.guard, &mut pending);
        self.state_mut().pending = pending;
        outcome
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        if !self.state_mut().pending.is_empty() && !self.heap.is_killed() {
            // What is left waits for the next holder, or for `Heap::reclaim`.
            let _ = self.give_back();
        }
        if let Some(state) = self.state.take() {
            self.guard.restore_user(state);
        }
    }
}

impl Heap {
    fn used_of(&self, offset: u64) -> u32 {
        self.spans[self.run_of(offset).0 as usize].used.load(Relaxed)
    }

    /// Changes the used slots of an object's run; returns the count before. The run's lane is held,
    /// so nobody else counts.
    fn count_used(&self, offset: u64, change: i32) -> u32 {
        self.count_used_of(self.run_of(offset).0, change)
    }

    /// As `count_used`, by the run's first span.
    fn count_used_of(&self, start: u64, change: i32) -> u32 {
        let used = &self.spans[start as usize].used;
        let before = used.load(Relaxed);
        used.store(before.wrapping_add_signed(change), Relaxed);
        before
    }
}
