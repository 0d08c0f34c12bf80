//! A held lane: its memory, its allocator, and the volatile state that its user keeps with it.

use std::any::Any;

use perdura_region::{Heat, LaneGuard, LaneId, Need};

use crate::classes::{CLASSES, LASTING, class_bytes, class_of, run_spans, shorter_run_spans};
use crate::error::Stop;
use crate::layout::{OBJECT_BYTES_MAX, SPAN_BYTES};
use crate::pool::Pool;
use crate::runs::Frozen;
use crate::span_word::SpanWord;
use crate::spans::Spans;

/// Bytes of a class's empty runs that are kept without asking whether it is worth a sweep of the
/// class's free list to give them back.
const EMPTY_KEPT_BYTES: u64 = 64 << 10;
/// Bytes of the empty runs of all classes that a small lane keeps while it takes another run.
/// Values that grow leave empty runs behind in each class that they grow through.
const EMPTY_KEPT_IN_ALL_BYTES: u64 = 16 << 10;
/// The part of a large lane's runs that may be empty while it takes another run.
const EMPTY_KEPT_PART: u64 = 32;

/// A lane's state between operations, none of which is durable.
pub(crate) struct LaneState {
    pub(crate) classes: Vec<ClassList>,
    /// Spans that are free in the lane's blocks.
    pub(crate) own: Pool,
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
    /// Bytes of the runs of this class.
    pub run_bytes: u64,
    /// Bytes of the runs of which no slot is used.
    pub empty_bytes: u64,
}

impl LaneState {
    pub fn new() -> Self {
        let classes = (0..CLASSES).map(|_| ClassList::default()).collect();
        Self {
            classes,
            own: Pool::default(),
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
    pub fn enter_run(&mut self, class: usize, spans: u32, free: Vec<u64>) {
        let list = &mut self.classes[class];
        list.run_bytes += u64::from(spans) * SPAN_BYTES;
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
    #[inline]
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

    /// Whether an object of `bytes` would get a slot of the size that the object at `offset` has.
    pub fn is_slot_for(&self, offset: u64, bytes: u64) -> bool {
        let class = self.spans.run_of(offset).1;
        matches!(class, SpanWord::Small { class, .. } if class_of(bytes) == Some(class.into()))
    }

    /// Takes over spans that are free in the lane's blocks.
    pub(crate) fn own_spans(&mut self, own: Pool) {
        self.state_mut().own = own;
    }

    /// Bytes of the lane's blocks that are free: slots, and spans without slots.
    pub(crate) fn free_slot_bytes(&self) -> u64 {
        let Some(state) = &self.state else { return 0 };
        let of = |(class, list): (usize, &ClassList)| {
            list.free.len() as u64 * class_bytes(class) + list.bump_end - list.bump
        };
        let slots: u64 = state.classes.iter().enumerate().map(of).sum();
        slots + state.own.free_spans() * SPAN_BYTES
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

    /// Starts loading into the cache an object, or its first `bytes`, which are soon read and
    /// changed, or freed, and the ledger's entry of it.
    #[inline]
    pub fn prefetch_changed(&self, offset: u64, bytes: u64) {
        self.guard.prefetch_filled(offset, bytes);
    }

    /// Fills part of an object that no reference leads to.
    ///
    /// # Errors
    /// [`Stop::Need`] if the lane must be released and the need waited for.
    #[inline]
    pub fn write_unreached(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Stop> {
        self.spans.fuse.burn()?;
        self.guard.write(offset, bytes).map_err(Stop::Need)
    }

    /// Announces bytes that no reference leads to, for the caller to fill.
    ///
    /// # Errors
    /// [`Stop::Need`] if the lane must be released and the need waited for.
    #[inline]
    pub fn fill_unreached(&mut self, offset: u64, len: usize) -> Result<&mut [u8], Stop> {
        self.spans.fuse.burn()?;
        self.guard.announced_mut(offset, len, None).map_err(Stop::Need)
    }

    /// Frees an object that no reference leads to any more. The object is free at once, so an
    /// operation that may still be rolled back must not call this. Dirty grains of the object cease
    /// to count.
    #[inline]
    pub fn free_unreached(&mut self, offset: u64) {
        self.release(offset);
    }

    /// The lane's volatile state, to be changed.
    #[inline]
    pub(crate) fn state_mut(&mut self) -> &mut LaneState {
        match &mut self.state {
            Some(state) => state,
            None => unreachable!("a lane has its state until it is dropped"),
        }
    }

    /// Notes that an object was overwritten in place.
    #[inline]
    pub(crate) fn note_overwritten(&mut self) {
        let state = self.state_mut();
        if !state.overwrites {
            state.overwrites = true;
        }
    }

    /// Takes memory for an object of `bytes`.
    pub(crate) fn alloc(&mut self, bytes: u64) -> Result<u64, Stop> {
        self.state_mut().overwrites = false;
        match class_of(bytes) {
            Some(class) => self.alloc_slot(class),
            None => self.alloc_large(bytes),
        }
    }

    /// Takes a grain that is to last.
    pub(crate) fn alloc_lasting_grain(&mut self) -> Result<u64, Stop> {
        self.alloc_slot(LASTING)
    }

    fn alloc_slot(&mut self, class: usize) -> Result<u64, Stop> {
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
        let (start, word) = self.spans.run_of(offset);
        if self.spans.count_used(start, 1) == 0 {
            self.state_mut().classes[class].empty_bytes -= bytes_of(word);
        }
    }

    fn refill(&mut self, class: usize) -> Result<(), Stop> {
        let classes = &self.state_mut().classes;
        let sum = |of: fn(&ClassList) -> u64| classes.iter().map(of).sum::<u64>();
        let kept_bytes = EMPTY_KEPT_IN_ALL_BYTES.max(sum(|list| list.run_bytes) / EMPTY_KEPT_PART);
        if sum(|list| list.empty_bytes) > kept_bytes {
            self.trim_classes();
            // What cannot go back now, for want of budget, goes back when the lane is released.
            self.give_back();
        }
        let state = self.state_mut();
        let wanted = run_spans(class, state.classes[class].run_bytes);
        // What is left of the lane's blocks is used first, even by shorter runs.
        let lengths = std::iter::successors(Some(wanted), |spans| shorter_run_spans(class, *spans));
        let mut spans = { lengths }.find(|spans| state.own.has(*spans)).unwrap_or(wanted);
        // Of the reserve a lane takes as little as it can, because other classes may need some.
        let mut uses_reserve = false;
        let start = loop {
            let word = SpanWord::Small { class: class as u8, lane: self.id(), spans: spans as u32 };
            let stop = match self.take_spans(spans, word, uses_reserve) {
                Ok(start) => break start,
                Err(stop) => stop,
            };
            match (stop, shorter_run_spans(class, spans)) {
                // Less may be left, in one piece, than a run of a large class is to have.
                (Stop::OutOfMemory { .. }, Some(shorter)) => spans = shorter,
                (Stop::OutOfMemory { .. }, None) if self.uses_reserve && !uses_reserve => {
                    uses_reserve = true;
                }
                (stop, _) => return Err(stop),
            }
        };
        let (run_bytes, slot_bytes) = (spans * SPAN_BYTES, class_bytes(class));
        let list = &mut self.state_mut().classes[class];
        list.bump = start * SPAN_BYTES;
        list.bump_end = list.bump + run_bytes / slot_bytes * slot_bytes;
        list.run_bytes += run_bytes;
        list.empty_bytes += run_bytes;
        Ok(())
    }

    fn alloc_large(&mut self, bytes: u64) -> Result<u64, Stop> {
        assert!(bytes <= OBJECT_BYTES_MAX, "an object of {bytes} bytes");
        let spans = bytes.div_ceil(SPAN_BYTES);
        let word = SpanWord::Large { lane: self.id(), spans: spans as u32 };
        Ok(self.take_spans(spans, word, self.uses_reserve)? * SPAN_BYTES)
    }

    fn take_spans(&mut self, spans: u64, word: SpanWord, uses_reserve: bool) -> Result<u64, Stop> {
        let Some(state) = &mut self.state else { unreachable!("a lane has its state") };
        self.spans.take(&mut self.guard, &mut state.own, spans, word, uses_reserve)
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
                list.empty_bytes += if emptied { bytes_of(word) } else { 0 };
                match state.frozen.iter_mut().find(|frozen| frozen.start == start) {
                    Some(frozen) => return frozen.free.push(offset),
                    None => list.free.push(offset),
                }
                if list.empty_bytes > EMPTY_KEPT_BYTES && list.empty_bytes * 4 > list.run_bytes {
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
        let run_of = |offset: u64| {
            let (start, word) = all.run_of(offset);
            (start, (bytes_of(word) / SPAN_BYTES) as u32)
        };
        let state = self.state_mut();
        let list = &mut state.classes[class];
        let mut emptied = Vec::new();
        if list.bump != list.bump_end && all.used_of(list.bump) == 0 {
            // Slots that were never handed out stand in no list: their run is found by `bump`.
            emptied.push(run_of(list.bump));
            (list.bump, list.bump_end) = (0, 0);
        }
        list.free.retain(|&offset| {
            if all.used_of(offset) > 0 {
                return true;
            }
            emptied.push(run_of(offset));
            false
        });
        emptied.sort_unstable();
        emptied.dedup();
        let gone_bytes =
            emptied.iter().map(|(_, spans)| u64::from(*spans) * SPAN_BYTES).sum::<u64>();
        list.run_bytes -= gone_bytes;
        list.empty_bytes -= gone_bytes;
        state.pending.append(&mut emptied);
    }

    /// Gives every empty run back to the pool. Returns how many spans went back, and the need that
    /// the other runs wait for.
    pub(crate) fn trim_all(&mut self) -> (u64, Option<Need>) {
        self.trim_classes();
        self.give_back()
    }

    fn trim_classes(&mut self) {
        for class in 0..CLASSES {
            if self.state_mut().classes[class].empty_bytes > 0 {
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
        let Some(state) = &mut self.state else { unreachable!("a lane has its state") };
        let outcome = self.spans.give_back(&mut self.guard, &mut state.own, &mut pending);
        state.pending = pending;
        outcome
    }
}

/// Bytes of a run with this word.
fn bytes_of(word: SpanWord) -> u64 {
    word.run().map_or(0, |(_, spans)| spans * SPAN_BYTES)
}

impl Drop for Lane<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.state_mut().pending.is_empty() && !self.spans.fuse.is_burnt() {
            // Runs that are left wait for the lane's next holder, or for `Heap::reclaim`.
            self.give_back();
        }
        if let Some(state) = self.state.take() {
            self.guard.restore_user(state);
        }
    }
}
