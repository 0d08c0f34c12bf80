//! A held lane: its memory, its allocator, and the volatile state that its user keeps with it.

use std::any::Any;

use perdura_region::{Heat, LaneGuard, LaneId, Need};

use crate::classes::{CLASSES, class_bytes, class_of, class_spans};
use crate::error::Stop;
use crate::layout::{OBJECT_BYTES_MAX, SPAN_BYTES};
use crate::runs::Frozen;
use crate::span_word::SpanWord;
use crate::spans::Spans;

/// Most empty runs of a class that are kept without asking whether it is worth a sweep of the
/// class's free list to give them back.
const EMPTY_RUNS_KEPT: u32 = 8;
/// Most empty runs of all classes that a lane keeps while it takes another one from the pool.
/// Values that grow leave empty runs behind in each class that they grow through.
const EMPTY_RUNS_KEPT_IN_ALL: u32 = 4;

/// A lane's state between operations, none of which is durable.
pub(crate) struct LaneState {
    pub(crate) classes: Vec<ClassList>,
    /// Runs, by first span and length, that go back to the pool once the budget has room for the
    /// change of the span table.
    pub(crate) pending: Vec<(u64, u32)>,
    /// Lists of objects that operations use, kept for their capacity.
    pub(crate) scratch: [Vec<u64>; 2],
    /// Runs of which no slot is handed out.
    pub(crate) frozen: Vec<Frozen>,
    /// Whether the free lists have the slots that were free when the heap was opened.
    pub(crate) is_searched: bool,
    /// Whether the last object that was written was overwritten in place: likely the next one will
    /// be, too.
    overwrites: bool,
    /// State of the heap's user.
    user: Box<dyn Any + Send>,
}

/// A lane's slots of one size class.
#[derive(Default)]
pub(crate) struct ClassList {
    /// Offsets of free slots. The slot freed last is taken first: its grains are likely to be dirty
    /// or in a cache still.
    pub free: Vec<u64>,
    /// Offset of the first slot of the newest run that was never handed out.
    pub bump: u64,
    /// Offset behind the newest run's last slot; equal to `bump` if no slot is left.
    pub bump_end: u64,
    /// Runs of this class.
    pub runs: u32,
    /// Runs of which no slot is used.
    pub empty_runs: u32,
}

impl LaneState {
    pub fn new() -> Self {
        let classes = (0..CLASSES).map(|_| ClassList::default()).collect();
        Self {
            classes,
            pending: Vec::new(),
            scratch: [const { Vec::new() }; 2],
            frozen: Vec::new(),
            is_searched: false,
            overwrites: false,
            user: Box::new(()),
        }
    }

    /// Enters a run that was there when the heap was opened; `free` are its free slots, the lowest
    /// last.
    pub fn enter_run(&mut self, class: usize, free: Vec<u64>) {
        let list = &mut self.classes[class];
        list.runs += 1;
        list.free.extend(free);
    }
}

/// A lane while it is held. Dropping it releases the lane.
pub struct Lane<'h> {
    pub(crate) spans: &'h Spans,
    pub(crate) guard: LaneGuard<'h>,
    state: Option<Box<LaneState>>,
    /// Whether spans of the reserve may be taken.
    pub(crate) uses_reserve: bool,
}

impl<'h> Lane<'h> {
    #[inline]
    pub(crate) fn new(spans: &'h Spans, mut guard: LaneGuard<'h>) -> Self {
        let state = guard.take_user().and_then(|user| user.downcast().ok());
        let state = state.unwrap_or_else(|| Box::new(LaneState::new()));
        Self { spans, guard, state: Some(state), uses_reserve: false }
    }

    /// The lane that is held.
    pub fn id(&self) -> LaneId {
        self.guard.lane()
    }

    /// Borrows bytes of this lane's memory.
    #[inline]
    pub fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        self.guard.bytes(offset, len)
    }

    /// Reads the 8-byte word at `offset`, which is a multiple of 8.
    #[inline(always)]
    pub fn load(&self, offset: u64) -> u64 {
        self.guard.load(offset)
    }

    /// Notes for the next start that the object at `offset` was read.
    #[inline]
    pub fn note_access(&self, offset: u64) {
        self.guard.note_access(offset);
    }

    /// How likely it is that an object which replaces the object at `offset` is soon replaced
    /// itself.
    pub fn heat_of_successor(&self, offset: u64) -> Heat {
        self.guard.heat_of_successor(offset)
    }

    /// Bytes that the object at `offset` has room for: its slot, or its spans.
    pub fn usable_bytes(&self, offset: u64) -> u64 {
        match self.spans.run_of(offset) {
            (_, SpanWord::Small { class, .. }) => class_bytes(usize::from(class)),
            (_, SpanWord::Large { spans, .. }) => u64::from(spans) * SPAN_BYTES,
            (_, SpanWord::Free) => 0,
        }
    }

    /// Bytes of the lane's slots that are free.
    pub(crate) fn free_slot_bytes(&self) -> u64 {
        let Some(state) = &self.state else { return 0 };
        let of = |(class, list): (usize, &ClassList)| {
            list.free.len() as u64 * class_bytes(class) + list.bump_end - list.bump
        };
        state.classes.iter().enumerate().map(of).sum()
    }

    /// Whether the lane was searched for free memory since the heap was opened, without an error.
    pub fn is_searched(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.is_searched)
    }

    /// The volatile state that the heap's user keeps with this lane, if it was set.
    pub fn user<T: 'static>(&self) -> Option<&T> {
        self.state.as_ref()?.user.downcast_ref()
    }

    /// The volatile state that the heap's user keeps with this lane, to be changed.
    pub fn user_mut<T: 'static>(&mut self) -> Option<&mut T> {
        self.state_mut().user.downcast_mut()
    }

    /// Replaces the volatile state that the heap's user keeps with this lane.
    pub fn set_user<T: Send + 'static>(&mut self, user: T) {
        self.state_mut().user = Box::new(user);
    }

    /// Starts loading into the cache the memory that an object of `bytes` would get now, unless the
    /// object is likely to be overwritten in place.
    pub fn prefetch_alloc(&self, bytes: u64) {
        let state = self.state.as_ref().filter(|state| !state.overwrites).zip(class_of(bytes));
        if let Some(&slot) = state.and_then(|(state, class)| state.classes[class].free.last()) {
            self.guard.prefetch_filled(slot, bytes);
        }
    }

    /// Starts loading into the cache the ledger's entry of the object at `offset`, which may soon
    /// be replaced by one of `bytes`; and the object itself if it is likely to be overwritten in
    /// place.
    #[inline]
    pub fn prefetch_replaced(&self, offset: u64, bytes: u64) {
        match self.state.as_ref().is_some_and(|state| state.overwrites) {
            true => self.guard.prefetch_filled(offset, bytes),
            false => self.guard.prefetch_entry(offset),
        }
    }

    /// Fills part of an object that no reference leads to.
    ///
    /// # Errors
    /// [`Stop::Need`] if the lane must be released and the need waited for.
    pub fn write_unreached(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Stop> {
        self.spans.fuse.burn()?;
        self.guard.write(offset, bytes).map_err(Stop::Need)
    }

    /// Frees an object that no reference leads to any more. The object is free at once, so an
    /// operation that may still be rolled back must not call this. Dirty grains of the object cease
    /// to count.
    pub fn free_unreached(&mut self, offset: u64) {
        self.release(offset);
    }

    /// The lane's volatile state, to be changed.
    pub(crate) fn state_mut(&mut self) -> &mut LaneState {
        match &mut self.state {
            Some(state) => state,
            None => unreachable!("a lane has its state until it is dropped"),
        }
    }

    /// Notes that an object was overwritten in place.
    pub(crate) fn note_overwritten(&mut self) {
        let state = self.state_mut();
        if !state.overwrites {
            state.overwrites = true;
        }
    }

    /// Takes memory for an object of `bytes`.
    pub(crate) fn alloc(&mut self, bytes: u64) -> Result<u64, Stop> {
        self.state_mut().overwrites = false;
        let Some(class) = class_of(bytes) else { return self.alloc_large(bytes) };
        let list = &mut self.state_mut().classes[class];
        if let Some(offset) = list.free.pop() {
            self.note_taken(class, offset);
            return Ok(offset);
        }
        if list.bump == list.bump_end {
            self.refill(class)?;
        }
        let list = &mut self.state_mut().classes[class];
        let offset = list.bump;
        list.bump += class_bytes(class);
        self.note_taken(class, offset);
        Ok(offset)
    }

    /// Counts the slot at `offset` as used.
    fn note_taken(&mut self, class: usize, offset: u64) {
        if self.spans.count_used(self.spans.run_of(offset).0, 1) == 0 {
            self.state_mut().classes[class].empty_runs -= 1;
        }
    }

    fn refill(&mut self, class: usize) -> Result<(), Stop> {
        let classes = &self.state_mut().classes;
        if classes.iter().map(|list| list.empty_runs).sum::<u32>() > EMPTY_RUNS_KEPT_IN_ALL {
            self.trim_classes();
        }
        let spans = class_spans(class);
        let word = SpanWord::Small { class: class as u8, lane: self.id(), spans: spans as u32 };
        let start = self.spans.take(&mut self.guard, spans, word, self.uses_reserve)?;
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
        Ok(self.spans.take(&mut self.guard, spans, word, self.uses_reserve)? * SPAN_BYTES)
    }

    /// Frees an object's memory and drops its dirty grains.
    pub(crate) fn release(&mut self, offset: u64) {
        let (start, word) = self.spans.run_of(offset);
        match word {
            SpanWord::Small { class, lane, .. } => {
                assert_eq!(lane, self.id(), "object {offset:#x} is freed in another lane");
                self.guard.drop_dirty(offset, class_bytes(usize::from(class)));
                if self.leaves_to_rebuild(start) {
                    return;
                }
                let emptied = self.spans.count_used(start, -1) == 1;
                let state = self.state_mut();
                let list = &mut state.classes[usize::from(class)];
                list.empty_runs += u32::from(emptied);
                match state.frozen.iter_mut().find(|frozen| frozen.start == start) {
                    Some(frozen) => return frozen.free.push(offset),
                    None => list.free.push(offset),
                }
                if list.empty_runs > EMPTY_RUNS_KEPT && list.empty_runs * 4 > list.runs {
                    self.trim(usize::from(class));
                }
            }
            SpanWord::Large { spans, .. } => {
                assert_eq!(offset, start * SPAN_BYTES, "no object begins at {offset:#x}");
                self.guard.drop_dirty(offset, u64::from(spans) * SPAN_BYTES);
                if self.leaves_to_rebuild(start) {
                    return;
                }
                self.state_mut().pending.push((start, spans));
            }
            SpanWord::Free => panic!("object {offset:#x} is freed twice"),
        }
    }

    /// Whether a freed object is left to the lane's search for free memory, which is still to come
    /// and finds all objects of this run that no reference leads to by then.
    fn leaves_to_rebuild(&mut self, start: u64) -> bool {
        !self.state_mut().is_searched && self.spans.is_unsearched(start)
    }

    /// Takes all runs without a used slot out of a class's free list, to be given back.
    fn trim(&mut self, class: usize) {
        let all = self.spans;
        let spans = class_spans(class) as u32;
        let state = self.state_mut();
        let list = &mut state.classes[class];
        let before = state.pending.len();
        if list.bump != list.bump_end && all.used_of(list.bump) == 0 {
            // Slots that were never handed out stand in no list: their run is found by `bump`.
            state.pending.push((all.run_of(list.bump).0, spans));
            (list.bump, list.bump_end) = (0, 0);
        }
        let bumped = state.pending.get(before).map(|run| run.0);
        let mut emptied = Vec::new();
        list.free.retain(|&offset| {
            if all.used_of(offset) > 0 {
                return true;
            }
            emptied.push(all.run_of(offset).0);
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

    /// Gives every empty run back to the pool. Returns how many spans went back, and the need that
    /// the other runs wait for.
    pub(crate) fn trim_all(&mut self) -> (u64, Option<Need>) {
        self.trim_classes();
        self.give_back()
    }

    fn trim_classes(&mut self) {
        for class in 0..CLASSES {
            if self.state_mut().classes[class].empty_runs > 0 {
                self.trim(class);
            }
        }
    }

    /// Gives pending runs back to the pool, as far as the budget allows now. Returns as
    /// [`Lane::trim_all`].
    fn give_back(&mut self) -> (u64, Option<Need>) {
        let mut pending = std::mem::take(&mut self.state_mut().pending);
        if pending.is_empty() {
            return (0, None);
        }
        for &(start, spans) in &pending {
            // Grains that objects of the run shared were left dirty when each object was freed.
            self.guard.drop_dirty(start * SPAN_BYTES, u64::from(spans) * SPAN_BYTES);
        }
        let outcome = self.spans.give_back(&mut self.guard, &mut pending);
        self.state_mut().pending = pending;
        outcome
    }
}

impl Drop for Lane<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.state_mut().pending.is_empty() && !self.spans.fuse.is_burnt() {
            // Runs that are left wait for the lane's next holder, or for `Heap::reclaim`.
            let _ = self.give_back();
        }
        if let Some(state) = self.state.take() {
            self.guard.restore_user(state);
        }
    }
}
