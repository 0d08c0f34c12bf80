//! Opening: who owns which span, what was cut in the middle, and which slots are free.

use std::sync::atomic::Ordering::Relaxed;

use perdura_region::LaneId;

use crate::classes::{CLASSES, class_bytes, class_spans};
use crate::error::HeapError;
use crate::heap::Heap;
use crate::lane::{Lane, LaneState};
use crate::layout::{GRAIN_BYTES, Layout, SPAN_BYTES, SpanWord};
use crate::log::{Undo, read, set_word, void_left};
use crate::pool::Pool;

/// Objects found reachable: a bit per grain of the region.
pub struct Marks<'h> {
    heap: &'h Heap,
    bits: Vec<u64>,
    lane: LaneId,
}

impl Marks<'_> {
    /// The object at `offset` is reachable in the lane being traced.
    ///
    /// # Errors
    /// There is no such object, or it was marked before.
    pub fn mark(&mut self, offset: u64) -> Result<(), HeapError> {
        let corrupt = HeapError::Corrupt { what: "object", offset, value: u64::from(self.lane.0) };
        if offset >= self.heap.region.len_bytes() {
            return Err(corrupt);
        }
        let (start, word) = self.heap.run_of(offset);
        let inside = offset - start * SPAN_BYTES;
        let fits = match word {
            SpanWord::Small { class, lane, .. } => {
                lane == self.lane && inside.is_multiple_of(class_bytes(usize::from(class)))
            }
            SpanWord::Large { lane, .. } => lane == self.lane && inside == 0,
            SpanWord::Free => false,
        };
        if !fits || self.has(offset) {
            return Err(corrupt);
        }
        let grain = offset / GRAIN_BYTES;
        self.bits[(grain / 64) as usize] |= 1 << (grain % 64);
        self.heap.spans[start as usize].used.fetch_add(1, Relaxed);
        Ok(())
    }

    fn has(&self, offset: u64) -> bool {
        let grain = offset / GRAIN_BYTES;
        self.bits[(grain / 64) as usize] & 1 << (grain % 64) != 0
    }
}

impl Heap {
    /// Finds free memory: all that `trace` does not mark, lane by lane. To be called once, after open.
    ///
    /// # Errors
    /// What `trace` returns; an object marked that does not exist; the region refuses.
    pub fn rebuild<E: From<HeapError>>(
        &self,
        mut trace: impl FnMut(&mut Lane<'_>, &mut Marks<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let grains = self.region.len_bytes() / GRAIN_BYTES;
        let bits = vec![0; grains.div_ceil(64) as usize];
        let mut marks = Marks { heap: self, bits, lane: LaneId(0) };
        for lane in self.lanes() {
            marks.lane = lane;
            let mut lane = Lane::new(self, self.region.lock(lane));
            trace(&mut lane, &mut marks)?;
        }
        self.enter_free(&marks)?;
        Ok(())
    }

    fn enter_free(&self, marks: &Marks<'_>) -> Result<(), HeapError> {
        let end = self.region.len_bytes() / SPAN_BYTES;
        let mut pool = Pool::up_to(end);
        let mut lanes: Vec<LaneState> = self.lanes().map(|_| LaneState::new()).collect();
        let mut span = self.layout.first_span();
        while span < end {
            let (start, word) = self.run_of(span * SPAN_BYTES);
            debug_assert_eq!(start, span);
            let spans = match word {
                SpanWord::Free => 1,
                SpanWord::Small { spans, .. } | SpanWord::Large { spans, .. } => u64::from(spans),
            };
            if self.spans[span as usize].used.load(Relaxed) == 0 {
                self.forget_run(span, spans)?;
                pool.put(span, spans);
            } else if let SpanWord::Small { class, lane, .. } = word {
                let bytes = class_bytes(usize::from(class));
                let slots = spans * SPAN_BYTES / bytes;
                let all = (0..slots).rev().map(|slot| span * SPAN_BYTES + slot * bytes);
                let free = all.filter(|slot| !marks.has(*slot));
                lanes[usize::from(lane.0)].enter_run(usize::from(class), free);
            }
            span += spans;
        }
        for (lane, state) in self.lanes().zip(lanes) {
            self.lock(lane).enter_rebuilt(state);
        }
        self.region.lock(self.meta()).set_user(pool);
        Ok(())
    }

    /// Returns a run to the meta lane.
    fn forget_run(&self, start: u64, spans: u64) -> Result<(), HeapError> {
        set_word(&self.region, self.meta(), self.layout.table_word(start), 0)?;
        for span in start..start + spans {
            self.spans[span as usize].word.store(0, Relaxed);
            self.region.assign_block(span, self.meta());
        }
        Ok(())
    }

    /// Reads the span table and gives every block to its lane.
    pub(crate) fn load_spans(&self) -> Result<(), HeapError> {
        let end = self.region.len_bytes() / SPAN_BYTES;
        let mut span = self.layout.first_span();
        while span < end {
            let offset = self.layout.table_word(span);
            let value = self.region.lock(self.meta()).load(offset);
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
            for block in span..span + spans {
                self.region.assign_block(block, lane);
            }
            span += spans;
        }
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

impl Lane<'_> {
    /// Installs the free lists found on open; the user's state stays.
    fn enter_rebuilt(&mut self, state: LaneState) {
        self.state_mut().take_lists(state);
    }
}

impl Layout {
    /// The lane whose lane block `offset` lies in.
    pub fn lane_of_block(&self, offset: u64) -> Option<LaneId> {
        let span = (offset / SPAN_BYTES).checked_sub(self.header_spans)?;
        (span < u64::from(self.shards)).then_some(LaneId(span as u16))
    }
}
