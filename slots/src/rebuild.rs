//! Opening: who owns which span, what was cut in the middle; and, sooner or later, which slots are
//! free.

use std::sync::atomic::Ordering::Relaxed;

use perdura_region::LaneId;

use crate::classes::{CLASSES, class_bytes, class_spans};
use crate::error::HeapError;
use crate::heap::Heap;
use crate::lane::Lane;
use crate::layout::{Layout, SPAN_BYTES, SpanWord};
use crate::log::{Undo, read, set_word, void_left};
use crate::pool::Pool;

/// Objects found reachable: a bit for each slot of the runs that are searched.
pub struct Marks<'h> {
    heap: &'h Heap,
    bits: &'h mut [u64],
    lane: LaneId,
}

impl Marks<'_> {
    /// The object at `offset` is reachable in the lane being traced.
    ///
    /// # Errors
    /// There is no such object, or it was marked before.
    pub fn mark(&mut self, offset: u64) -> Result<(), HeapError> {
        let corrupt =
            || HeapError::Corrupt { what: "object", offset, value: u64::from(self.lane.0) };
        if offset >= self.heap.region.len_bytes() {
            return Err(corrupt());
        }
        let (start, word) = self.heap.run_of(offset);
        let run = Slots::of(word).filter(|run| run.lane == self.lane).ok_or_else(corrupt)?;
        let inside = offset - start * SPAN_BYTES;
        let slot = inside / run.bytes;
        if !inside.is_multiple_of(run.bytes) || slot >= run.slots {
            return Err(corrupt());
        }
        // What was allocated since open is counted already.
        if self.heap.is_unsearched(start) {
            let (word, bit) = (self.first_word(start) + slot / 64, 1 << (slot % 64));
            if self.bits[word as usize] & bit != 0 {
                return Err(corrupt());
            }
            self.bits[word as usize] |= bit;
        }
        Ok(())
    }

    /// Whether a slot of a run that is searched was marked.
    fn has(&self, start: u64, slot: u64) -> bool {
        self.bits[(self.first_word(start) + slot / 64) as usize] & 1 << (slot % 64) != 0
    }

    /// Where a run's marks begin.
    fn first_word(&self, start: u64) -> u64 {
        u64::from(self.heap.spans[start as usize].used.load(Relaxed))
    }
}

/// A run as slots of one size; a large object is one slot.
struct Slots {
    class: Option<usize>,
    lane: LaneId,
    spans: u32,
    bytes: u64,
    slots: u64,
}

impl Slots {
    fn of(word: SpanWord) -> Option<Self> {
        let (class, lane, spans) = match word {
            SpanWord::Small { class, lane, spans } => (Some(usize::from(class)), lane, spans),
            SpanWord::Large { lane, spans } => (None, lane, spans),
            SpanWord::Free => return None,
        };
        let run_bytes = u64::from(spans) * SPAN_BYTES;
        let bytes = class.map_or(run_bytes, class_bytes);
        Some(Self { class, lane, spans, bytes, slots: run_bytes / bytes })
    }
}

impl Heap {
    /// Finds free memory in all lanes; see [`Heap::rebuild_lane`].
    ///
    /// # Errors
    /// As [`Heap::rebuild_lane`].
    pub fn rebuild<E: From<HeapError>>(
        &self,
        mut trace: impl FnMut(&mut Lane<'_>, &mut Marks<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for lane in self.lanes() {
            self.rebuild_lane(lane, &mut trace)?;
        }
        Ok(())
    }

    /// Finds the free memory of a lane, if nobody did: all that was in use when the heap was opened
    /// and that `trace` does not mark now. The lane is held meanwhile. Until then, what is freed
    /// there of that memory is left for this to find.
    ///
    /// # Errors
    /// What `trace` returns; an object marked that does not exist. Nothing was found free then.
    pub fn rebuild_lane<E: From<HeapError>>(
        &self,
        lane: LaneId,
        trace: impl FnOnce(&mut Lane<'_>, &mut Marks<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut bits = self.marks.lock();
        let mut held = self.lock(lane);
        if held.state_mut().is_searched {
            return Ok(());
        }
        let mut words = 0;
        for (start, run) in self.unsearched_runs(lane) {
            // As many words as 32 bits count are slots of 8 TiB.
            assert!(u32::try_from(words).is_ok(), "lane {} has too many slots", lane.0);
            self.spans[start as usize].used.store(words as u32, Relaxed);
            words += run.slots.div_ceil(64);
        }
        // A trace that ended early, by an error or a panic, leaves marks.
        bits.clear();
        bits.resize(words as usize, 0);
        let mut marks = Marks { heap: self, bits: &mut bits, lane };
        trace(&mut held, &mut marks)?;
        self.enter_free(&mut held, &marks);
        Ok(())
    }

    /// Whether every lane was searched; until then [`HeapStats::free_bytes`] leaves out what will
    /// be found.
    pub fn is_rebuilt(&self) -> bool {
        self.unsearched.iter().all(|bits| bits.load(Relaxed) == 0)
    }

    fn enter_free(&self, lane: &mut Lane<'_>, marks: &Marks<'_>) {
        for (start, run) in self.unsearched_runs(lane.id()) {
            let free = (0..run.slots).rev().filter(|slot| !marks.has(start, *slot));
            let free: Vec<u64> = free.map(|slot| start * SPAN_BYTES + slot * run.bytes).collect();
            let used = (run.slots - free.len() as u64) as u32;
            self.spans[start as usize].used.store(used, Relaxed);
            match run.class {
                _ if used == 0 => lane.state_mut().pending.push((start, run.spans)),
                Some(class) => lane.state_mut().enter_run(class, free),
                None => {}
            }
            self.unsearched[(start / 64) as usize].fetch_and(!(1 << (start % 64)), Relaxed);
        }
        lane.state_mut().is_searched = true;
    }

    /// The lane's runs that were there when the heap was opened and were not searched since, by
    /// their first span.
    fn unsearched_runs(&self, lane: LaneId) -> impl Iterator<Item = (u64, Slots)> {
        let spans = self.layout.first_span()..self.region.len_bytes() / SPAN_BYTES;
        let run = move |start| Some((start, Slots::of(self.run_of(start * SPAN_BYTES).1)?));
        let heads = spans.filter(|start| self.is_unsearched(*start)).filter_map(run);
        heads.filter(move |(_, run)| run.lane == lane)
    }

    /// Whether a run was there when the heap was opened, and its lane was not searched since.
    pub(crate) fn is_unsearched(&self, start: u64) -> bool {
        self.unsearched[(start / 64) as usize].load(Relaxed) & 1 << (start % 64) != 0
    }

    /// Reads the span table, gives every block to its lane, and what nobody has to the pool.
    pub(crate) fn load_spans(&self) -> Result<(), HeapError> {
        let end = self.region.len_bytes() / SPAN_BYTES;
        let mut span = self.layout.first_span();
        let mut pool = Pool::up_to(end);
        let mut free_from = span;
        let mut meta = self.region.lock(self.meta());
        while span < end {
            let offset = self.layout.table_word(span);
            let value = meta.load(offset);
            let corrupt = || HeapError::Corrupt { what: "span table", offset, value };
            let word = SpanWord::decode(value).ok_or_else(corrupt)?;
            let (lane, spans) = match word {
                SpanWord::Free => {
                    span += 1;
                    continue;
                }
                SpanWord::Small { class, lane, spans } => {
                    let class = usize::from(class);
                    if class >= CLASSES || class_spans(class) != u64::from(spans) {
                        return Err(corrupt());
                    }
                    (lane, u64::from(spans))
                }
                SpanWord::Large { lane, spans } => (lane, u64::from(spans)),
            };
            if lane.0 >= self.layout.shards || span + spans > end {
                return Err(corrupt());
            }
            self.mirror(span, word);
            self.unsearched[(span / 64) as usize].fetch_or(1 << (span % 64), Relaxed);
            for block in span..span + spans {
                self.region.assign_block(block, lane);
            }
            if free_from < span {
                pool.put(free_from, span - free_from);
            }
            span += spans;
            free_from = span;
        }
        if free_from < end {
            pool.put(free_from, end - free_from);
        }
        meta.set_user(pool);
        Ok(())
    }

    /// Undoes what a killed process had begun and not committed.
    pub(crate) fn roll_back_all(&self) -> Result<(), HeapError> {
        for lane in self.lanes() {
            let head = self.layout.lane_block(lane);
            let undo = {
                let guard = self.region.lock(lane);
                let len = self.region.len_bytes();
                let bytes = |offset: u64, bytes: usize| {
                    let inside = offset.checked_add(bytes as u64).is_some_and(|end| end <= len);
                    (inside && self.lane_at(offset) == Some(lane))
                        .then(|| guard.bytes(offset, bytes))
                };
                read(&bytes, head).map_err(|(offset, value)| HeapError::Corrupt {
                    what: "undo log",
                    offset,
                    value,
                })?
            };
            for undo in undo.into_iter().rev() {
                self.put_back(head, undo)?;
            }
            void_left(&self.region, lane, head)?;
        }
        Ok(())
    }

    fn put_back(&self, head: u64, undo: Undo) -> Result<(), HeapError> {
        let at = match &undo {
            Undo::Word { offset, .. } | Undo::Bytes { offset, .. } => *offset,
        };
        let lane = self.lane_at(at).ok_or(HeapError::Corrupt {
            what: "undo log",
            offset: head,
            value: at,
        })?;
        match undo {
            Undo::Word { offset, old } => set_word(&self.region, lane, offset, old)?,
            Undo::Bytes { offset, old } => {
                let mut credit = 0;
                while let Err(need) = self.region.lock_with(lane, credit).write(offset, &old) {
                    credit = self.region.satisfy(need)?;
                }
            }
        }
        Ok(())
    }

    /// The shard lane that owns `offset`.
    pub(crate) fn lane_at(&self, offset: u64) -> Option<LaneId> {
        if offset >= self.region.len_bytes() {
            return None;
        }
        self.layout.lane_of_block(offset).or_else(|| {
            // Inside a large object only the region knows; its head is found by walking back.
            let mut span = offset / SPAN_BYTES;
            while span >= self.layout.first_span() {
                match self.run_of(span * SPAN_BYTES) {
                    (_, SpanWord::Free) => span -= 1,
                    (
                        start,
                        SpanWord::Small { lane, spans, .. } | SpanWord::Large { lane, spans },
                    ) => {
                        let inside = offset / SPAN_BYTES < start + u64::from(spans);
                        return inside.then_some(lane);
                    }
                }
            }
            None
        })
    }
}

impl Layout {
    /// The lane whose lane block `offset` lies in.
    pub fn lane_of_block(&self, offset: u64) -> Option<LaneId> {
        let span = (offset / SPAN_BYTES).checked_sub(self.header_spans)?;
        (span < u64::from(self.shards)).then_some(LaneId(span as u16))
    }
}
