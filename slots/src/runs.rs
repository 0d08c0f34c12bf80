//! Runs of slots as a whole: finding them, keeping their free slots back while the user empties
//! them, and a reserve of spans for whoever does that.
//!
//! A heap whose objects change their sizes over time has free slots of the old size in every run
//! and no span for the new one. Its user can empty a run: the run is *frozen*, so that no slot of
//! it is handed out; the user moves what is in it; and when it is *thawed* an empty run goes back
//! to the pool.

use std::sync::atomic::Ordering::Relaxed;

use perdura_region::LaneId;

use crate::classes::class_bytes;
use crate::heap::Heap;
use crate::lane::Lane;
use crate::layout::SPAN_BYTES;
use crate::span_word::SpanWord;

/// A run of slots of one size, as it was found without a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Region offset of the first slot.
    pub offset: u64,
    /// Bytes of the run's spans.
    pub len_bytes: u64,
    /// The lane that owns the run.
    pub lane: LaneId,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Slots that are used.
    pub used: u32,
}

impl Run {
    /// Region offsets of the run's slots, used or not.
    pub fn slots(&self) -> impl Iterator<Item = u64> + use<> {
        let (offset, slot_bytes) = (self.offset, self.slot_bytes);
        (0..self.len_bytes / slot_bytes).map(move |slot| offset + slot * slot_bytes)
    }
}

/// A run of which no slot is handed out.
pub(crate) struct Frozen {
    /// The run's first span.
    pub start: u64,
    class: usize,
    /// Free slots of the run.
    pub free: Vec<u64>,
}

impl Heap {
    /// The first run of slots that begins at `offset` or behind it; `None` at the heap's end.
    pub fn run_from(&self, offset: u64) -> Option<Run> {
        let spans = &self.spans;
        let first = offset.div_ceil(SPAN_BYTES).max(spans.layout.first_span());
        (first..spans.end()).find_map(|start| self.run_at(start))
    }

    fn run_at(&self, start: u64) -> Option<Run> {
        match self.spans.head_of(start)? {
            SpanWord::Small { class, lane, spans } => Some(Run {
                offset: start * SPAN_BYTES,
                len_bytes: u64::from(spans) * SPAN_BYTES,
                lane,
                slot_bytes: class_bytes(usize::from(class)),
                used: self.spans.used(start),
            }),
            SpanWord::Free | SpanWord::Large { .. } => None,
        }
    }

    /// Keeps so many spans for lanes that [`Lane::use_reserve`]: others find memory used up before.
    pub fn set_reserve(&self, bytes: u64) {
        self.spans.reserve.store(bytes / SPAN_BYTES, Relaxed);
    }
}

impl Lane<'_> {
    /// Lets this hold of the lane take spans of the reserve.
    pub fn use_reserve(&mut self) {
        self.uses_reserve = true;
    }

    /// Whether a run is still this lane's, as long, and with slots of the same size. It may have
    /// changed hands since it was found without the lane's lock; if not, its memory may be read.
    #[inline]
    pub fn has_run(&self, run: &Run) -> bool {
        self.class_of_run(run).is_some()
    }

    /// The class of a run, if it is as [`Lane::has_run`] says.
    fn class_of_run(&self, run: &Run) -> Option<usize> {
        match self.spans.head_of(run.offset / SPAN_BYTES)? {
            SpanWord::Small { class, lane, spans } => {
                let class = usize::from(class);
                let is_same = lane == self.id()
                    && class_bytes(class) == run.slot_bytes
                    && u64::from(spans) * SPAN_BYTES == run.len_bytes;
                is_same.then_some(class)
            }
            SpanWord::Large { .. } | SpanWord::Free => None,
        }
    }

    /// Slots of a run of this lane that are used.
    #[inline]
    pub fn used_slots(&self, run: &Run) -> u32 {
        self.spans.used(run.offset / SPAN_BYTES)
    }

    /// Hands out no slot of a run from now on. Returns false if the run is not this lane's any
    /// more, or is frozen already.
    pub fn freeze_run(&mut self, run: &Run) -> bool {
        let (start, all) = (run.offset / SPAN_BYTES, self.spans);
        let Some(class) = self.class_of_run(run) else { return false };
        let state = self.state_mut();
        let is_frozen = state.frozen.iter().any(|frozen| frozen.start == start);
        if is_frozen || !state.is_searched {
            return false;
        }
        let list = &mut state.classes[class];
        let is_of_run = |slot: &u64| (run.offset..run.offset + run.len_bytes).contains(slot);
        let free = std::mem::take(&mut list.free).into_iter();
        let (mut of_run, others): (Vec<_>, _) = free.partition(is_of_run);
        list.free = others;
        if list.bump != list.bump_end && all.run_of(list.bump).0 == start {
            // Slots that were never handed out stand in no list.
            of_run.extend((list.bump..list.bump_end).step_by(run.slot_bytes as usize));
            (list.bump, list.bump_end) = (0, 0);
        }
        state.frozen.push(Frozen { start, class, free: of_run });
        true
    }

    /// Ends [`Lane::freeze_run`]. Returns whether the run was empty; it goes back to the pool then.
    pub fn thaw_run(&mut self, run: &Run) -> bool {
        let start = run.offset / SPAN_BYTES;
        let used = self.spans.used(start);
        let state = self.state_mut();
        let Some(index) = state.frozen.iter().position(|frozen| frozen.start == start) else {
            return false;
        };
        let Frozen { class, free, .. } = state.frozen.swap_remove(index);
        let list = &mut state.classes[class];
        if used > 0 {
            list.free.extend(free);
            return false;
        }
        list.run_bytes -= run.len_bytes;
        list.empty_bytes -= run.len_bytes;
        state.pending.push((start, (run.len_bytes / SPAN_BYTES) as u32));
        true
    }
}
