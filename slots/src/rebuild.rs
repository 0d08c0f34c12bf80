//! Finding free memory: all slots of the runs that were there when the heap was opened, but for
//! those of objects that references lead to.

use perdura_region::LaneId;

use crate::classes::class_bytes;
use crate::error::HeapError;
use crate::heap::Heap;
use crate::lane::Lane;
use crate::layout::SPAN_BYTES;
use crate::span_word::SpanWord;
use crate::spans::Spans;

/// The objects of one lane that references lead to: a bit for each slot of the runs that are
/// searched.
pub struct Marks<'h> {
    spans: &'h Spans,
    bits: &'h mut [u64],
    lane: LaneId,
}

impl Marks<'_> {
    /// Notes that a reference leads to the object at `offset`.
    ///
    /// # Errors
    /// No object of the lane begins at `offset`, or another reference has led there.
    pub fn mark(&mut self, offset: u64) -> Result<(), HeapError> {
        let no_object = HeapError::NoObject { lane: self.lane, offset };
        if offset >= self.spans.region.len_bytes() {
            return Err(no_object);
        }
        let (start, word) = self.spans.run_of(offset);
        let Some(run) = Slots::of(word).filter(|run| run.lane == self.lane) else {
            return Err(no_object);
        };
        let inside = offset - start * SPAN_BYTES;
        let slot = inside / run.bytes;
        if !inside.is_multiple_of(run.bytes) || slot >= run.slots {
            return Err(no_object);
        }
        // Objects allocated since the heap was opened lie in other runs, and are counted already.
        if self.spans.is_unsearched(start) {
            let (word, bit) = (self.first_word(start) + slot / 64, 1 << (slot % 64));
            if self.bits[word as usize] & bit != 0 {
                return Err(HeapError::ReachedTwice { offset });
            }
            self.bits[word as usize] |= bit;
        }
        Ok(())
    }

    /// Whether a slot of a run that is searched was marked.
    fn has(&self, start: u64, slot: u64) -> bool {
        self.bits[(self.first_word(start) + slot / 64) as usize] & 1 << (slot % 64) != 0
    }

    /// The index of the word where a run's marks begin.
    fn first_word(&self, start: u64) -> u64 {
        u64::from(self.spans.used(start))
    }
}

/// A run as slots of one size; a large object is a run of one slot.
struct Slots {
    /// Size class of the slots; `None` for a large object.
    class: Option<usize>,
    lane: LaneId,
    /// Spans of the run.
    spans: u32,
    /// Bytes of each slot.
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
    /// Finds the free memory of all lanes; see [`Heap::rebuild_lane`].
    ///
    /// # Errors
    /// The errors of [`Heap::rebuild_lane`].
    pub fn rebuild<E: From<HeapError>>(
        &self,
        mut trace: impl FnMut(&mut Lane<'_>, &mut Marks<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for lane in self.lanes() {
            self.rebuild_lane(lane, &mut trace)?;
        }
        Ok(())
    }

    /// Finds the free memory of a lane, unless that was done before: everything that was in use
    /// when the heap was opened and that `trace` does not mark now. The lane is held meanwhile.
    /// Objects of that time which are freed before the search are found free by it.
    ///
    /// # Errors
    /// `trace` returned an error or marked an object that does not exist. Nothing was found free
    /// then.
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
        let spans = &self.spans;
        let mut words = 0;
        for (start, run) in unsearched_runs(spans, lane) {
            // An index of 32 bits reaches over slots of 8 TiB.
            assert!(u32::try_from(words).is_ok(), "lane {} has too many slots", lane.0);
            spans.set_used(start, words as u32);
            words += run.slots.div_ceil(64);
        }
        // A trace that ended early, by an error or a panic, has left marks.
        bits.clear();
        bits.resize(words as usize, 0);
        let mut marks = Marks { spans, bits: &mut bits, lane };
        trace(&mut held, &mut marks)?;
        enter_free(spans, &mut held, &marks);
        Ok(())
    }
}

fn enter_free(spans: &Spans, lane: &mut Lane<'_>, marks: &Marks<'_>) {
    for (start, run) in unsearched_runs(spans, lane.id()) {
        let free = (0..run.slots).rev().filter(|slot| !marks.has(start, *slot));
        let free: Vec<u64> = free.map(|slot| start * SPAN_BYTES + slot * run.bytes).collect();
        let used = (run.slots - free.len() as u64) as u32;
        spans.set_used(start, used);
        match run.class {
            _ if used == 0 => lane.state_mut().pending.push((start, run.spans)),
            Some(class) => lane.state_mut().enter_run(class, run.spans, free),
            None => {}
        }
        spans.note_searched(start);
    }
    lane.state_mut().is_searched = true;
}

/// The runs of a lane that were there when the heap was opened and were not searched since, each
/// with its first span.
fn unsearched_runs(spans: &Spans, lane: LaneId) -> impl Iterator<Item = (u64, Slots)> {
    let all = spans.layout.first_span()..spans.end();
    let run = move |start| Some((start, Slots::of(spans.run_of(start * SPAN_BYTES).1)?));
    let heads = all.filter(|start| spans.is_unsearched(*start)).filter_map(run);
    heads.filter(move |(_, run)| run.lane == lane)
}
