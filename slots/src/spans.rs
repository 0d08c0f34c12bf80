//! The spans of a heap: whose they are, durably in the span table and in a volatile copy of it.
//!
//! The volatile copy is read without a lock: a span's entry changes only while the lane that owns
//! the span is held.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use perdura_region::{LaneGuard, LaneId, Need, Region, RegionError};
use zerocopy::FromZeros;

use crate::error::{HeapError, Stop};
use crate::fuse::Fuse;
use crate::layout::{BLOCK_SPANS, Layout, SPAN_BYTES};
use crate::pool::Pool;
use crate::span_word::SpanWord;

/// Marks, in the volatile copy only, a later span of a run of slots; the distance to the run's
/// first span stands in the upper half of the word.
const CONTINUATION: u64 = 0xff;

/// The spans of a region, with the region itself, its layout and the planned death of tests.
pub(crate) struct Spans {
    pub region: Region,
    pub layout: Layout,
    pub fuse: Fuse,
    entries: Box<[Entry]>,
    /// A bit for each span that heads a run which was there when the heap was opened, and which no
    /// thread has searched for free memory yet.
    unsearched: Box<[AtomicU64]>,
    /// Spans that are left to lanes that may use the reserve.
    pub reserve: AtomicU64,
}

/// The volatile copy's entry for one span, zeros if the span is free.
#[derive(FromZeros)]
struct Entry {
    /// The word of the span table, or [`CONTINUATION`].
    word: AtomicU64,
    /// Used slots of the run that begins here; while the run is searched for free slots, the index
    /// of the word where its marks begin.
    used: AtomicU32,
}

impl Spans {
    /// All spans of a region, free until the span table is loaded.
    pub fn new(region: Region, layout: Layout) -> Self {
        // Most of them are for memory that the region may grow by: they are not touched here.
        let entries = match <[Entry]>::new_box_zeroed_with_elems(layout.spans_max as usize) {
            Ok(entries) => entries,
            Err(_) => panic!("no memory for the entries of {} spans", layout.spans_max),
        };
        let unsearched = (0..layout.spans_max.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let reserve = AtomicU64::new(0);
        Self { region, layout, fuse: Fuse::unlit(), entries, unsearched, reserve }
    }

    /// The span behind the last one of the region at its present size.
    pub fn end(&self) -> u64 {
        self.region.len_bytes() / SPAN_BYTES
    }

    /// Locks the lane that header, span table and pool belong to.
    pub fn lock_meta(&self) -> LaneGuard<'_> {
        self.region.lock(self.layout.meta())
    }

    /// Runs `f` with the meta lane until `f` needs nothing more.
    pub fn with_meta<R>(
        &self,
        mut f: impl FnMut(&mut LaneGuard<'_>) -> Result<R, Need>,
    ) -> Result<R, RegionError> {
        let mut credit = 0;
        loop {
            let mut meta = self.region.lock_with(self.layout.meta(), credit);
            match f(&mut meta) {
                Ok(done) => return Ok(done),
                Err(need) => {
                    drop(meta);
                    credit = self.region.satisfy(need)?;
                }
            }
        }
    }

    /// First span and span table word of the run that `offset` lies in. Of a large object only the
    /// first span is known here.
    pub fn run_of(&self, offset: u64) -> (u64, SpanWord) {
        let mut span = offset / SPAN_BYTES;
        let mut word = self.entries[span as usize].word.load(Relaxed);
        if word as u8 == CONTINUATION as u8 {
            span -= word >> 32;
            word = self.entries[span as usize].word.load(Relaxed);
        }
        match SpanWord::from_copy(word) {
            Some(word) => (span, word),
            None => panic!("the copy of the span table holds {word:#x} for span {span}"),
        }
    }

    /// The span table word of the run that begins with this span; `None` if none does.
    pub fn head_of(&self, start: u64) -> Option<SpanWord> {
        let word = self.entries.get(start as usize)?.word.load(Relaxed);
        (word as u8 != CONTINUATION as u8).then(|| SpanWord::from_copy(word)).flatten()
    }

    /// The shard lane that owns `offset`; `None` for the heap's own tables and for free spans.
    pub fn lane_at(&self, offset: u64) -> Option<LaneId> {
        if offset >= self.region.len_bytes() {
            return None;
        }
        self.layout.lane_of_block(offset).or_else(|| {
            // Inside a large object the run's first span is found by walking back.
            let mut span = offset / SPAN_BYTES;
            while span >= self.layout.first_span() {
                let (start, word) = self.run_of(span * SPAN_BYTES);
                if let Some((lane, spans)) = word.run() {
                    return (offset / SPAN_BYTES < start + spans).then_some(lane);
                }
                span -= 1;
            }
            None
        })
    }

    /// Used slots of the run that `offset` lies in.
    pub fn used_of(&self, offset: u64) -> u32 {
        self.used(self.run_of(offset).0)
    }

    /// The count kept with the run that begins at `start`.
    pub fn used(&self, start: u64) -> u32 {
        self.entries[start as usize].used.load(Relaxed)
    }

    /// Sets the count kept with the run that begins at `start`.
    #[inline]
    pub fn set_used(&self, start: u64, used: u32) {
        self.entries[start as usize].used.store(used, Relaxed);
    }

    /// Changes the count of used slots of the run that begins at `start`, and returns the count
    /// before. The caller holds the run's lane, so no other thread counts.
    pub fn count_used(&self, start: u64, change: i32) -> u32 {
        let before = self.used(start);
        self.set_used(start, before.wrapping_add_signed(change));
        before
    }

    /// Whether the run that begins at `start` was there when the heap was opened, and its lane was
    /// not searched since.
    pub fn is_unsearched(&self, start: u64) -> bool {
        self.unsearched[(start / 64) as usize].load(Relaxed) & 1 << (start % 64) != 0
    }

    /// Notes that the run that begins at `start` was searched for free memory.
    pub fn note_searched(&self, start: u64) {
        self.unsearched[(start / 64) as usize].fetch_and(!(1 << (start % 64)), Relaxed);
    }

    /// Enters a run that the span table has when the heap is opened.
    pub fn enter_found(&self, start: u64, word: SpanWord) {
        self.enter(start, word);
        self.unsearched[(start / 64) as usize].fetch_or(1 << (start % 64), Relaxed);
        let Some((lane, spans)) = word.run() else { return };
        for block in start / BLOCK_SPANS..(start + spans).div_ceil(BLOCK_SPANS) {
            self.region.assign_block(block, lane);
        }
    }

    /// Takes contiguous spans for a held lane, from those that are free in its own blocks or from
    /// the pool, and returns the first of them.
    pub fn take(
        &self,
        lane: &mut LaneGuard<'_>,
        own: &mut Pool,
        spans: u64,
        word: SpanWord,
        uses_reserve: bool,
    ) -> Result<u64, Stop> {
        self.fuse.burn()?;
        let mut meta = self.lock_meta();
        let (taken, is_own) = match own.take(spans) {
            Some(start) => (start..start + spans, true),
            None => (self.take_blocks(&mut meta, lane.lane(), spans, uses_reserve)?, false),
        };
        let (start, end) = (taken.start, taken.start + spans);
        meta.deposit(lane.withdraw());
        let stored = meta.store(self.layout.table_word(start), word.encode());
        lane.deposit(meta.withdraw());
        if let Err(need) = stored {
            self.put(&mut meta, own, start, taken.end - start);
            return Err(Stop::Need(need));
        }
        if !is_own {
            (start / BLOCK_SPANS..taken.end / BLOCK_SPANS)
                .for_each(|block| lane.adopt_block(block));
        }
        if end < taken.end {
            own.put(end, taken.end - end);
        }
        self.enter(start, word);
        Ok(start)
    }

    /// Takes whole blocks with room for so many spans from the pool.
    fn take_blocks(
        &self,
        meta: &mut LaneGuard<'_>,
        lane: LaneId,
        spans: u64,
        uses_reserve: bool,
    ) -> Result<Range<u64>, Stop> {
        let pool = pool_of(meta);
        pool.extend(self.end());
        let reserve = if uses_reserve { 0 } else { self.reserve.load(Relaxed) };
        let free = pool.free_spans().saturating_sub(reserve);
        let whole = spans.next_multiple_of(BLOCK_SPANS);
        match (whole <= free).then(|| pool.take(whole)).flatten() {
            Some(start) => Ok(start..start + whole),
            None => {
                let (needed_bytes, free_bytes) = (whole * SPAN_BYTES, free * SPAN_BYTES);
                Err(Stop::OutOfMemory { needed_bytes, free_bytes, lane })
            }
        }
    }

    /// Gives runs of a held lane back, and to the pool the blocks that have none left. Returns how
    /// many spans the pool got, and the need that the runs left in `runs` wait for.
    pub fn give_back(
        &self,
        lane: &mut LaneGuard<'_>,
        own: &mut Pool,
        runs: &mut Vec<(u64, u32)>,
    ) -> (u64, Option<Need>) {
        let (mut returned, mut needed) = (0, None);
        let mut meta = self.lock_meta();
        meta.deposit(lane.withdraw());
        while let Some(&(start, spans)) = runs.last() {
            if self.fuse.burn().is_err() {
                break;
            }
            let word = self.layout.table_word(start);
            if let Err(need) = meta.store(word, SpanWord::Free.encode()) {
                needed = Some(need);
                break;
            }
            runs.pop();
            for span in start..start + u64::from(spans) {
                self.entries[span as usize].word.store(0, Relaxed);
            }
            returned += self.put(&mut meta, own, start, u64::from(spans));
        }
        lane.deposit(meta.withdraw());
        (returned, needed)
    }

    /// Adds spans to those that are free in a lane's own blocks, and gives blocks that have become
    /// free as a whole to the pool. Returns how many spans the pool got.
    fn put(&self, meta: &mut LaneGuard<'_>, own: &mut Pool, start: u64, spans: u64) -> u64 {
        own.put(start, spans);
        let whole = own.take_blocks(start);
        if whole.is_empty() {
            return 0;
        }
        for block in whole.start / BLOCK_SPANS..whole.end / BLOCK_SPANS {
            meta.adopt_block(block);
        }
        pool_of(meta).put(whole.start, whole.end - whole.start);
        whole.end - whole.start
    }

    /// Spans that belong to no lane, at the region's present size.
    pub fn free_spans(&self) -> u64 {
        let mut meta = self.lock_meta();
        let pool = pool_of(&mut meta);
        pool.extend(self.end());
        pool.free_spans()
    }

    /// Enters a run in the volatile copy.
    fn enter(&self, start: u64, word: SpanWord) {
        let spans = match word {
            SpanWord::Small { spans, .. } => u64::from(spans),
            // Of a large object nobody asks for another span than the first.
            SpanWord::Large { .. } | SpanWord::Free => 1,
        };
        for later in 1..spans {
            let head = CONTINUATION | later << 32;
            self.entries[(start + later) as usize].word.store(head, Relaxed);
        }
        self.set_used(start, 0);
        self.entries[start as usize].word.store(word.encode(), Relaxed);
    }

    /// Reads the span table, gives every block to its lane, and all free blocks to the pool.
    /// Returns, for each lane, the spans that are free in its blocks.
    pub fn load(&self) -> Result<Vec<Pool>, HeapError> {
        let end = self.end();
        let mut span = self.layout.first_span();
        let mut free = FreeSpans::new(end, usize::from(self.layout.shards));
        let mut free_from = span;
        // The lane of the run that ends at `free_from`.
        let mut before = None;
        let mut meta = self.lock_meta();
        while span < end {
            let offset = self.layout.table_word(span);
            let value = meta.load(offset);
            let corrupt = || HeapError::Corrupt { what: "span table", offset, value };
            let word = SpanWord::from_table(value).ok_or_else(corrupt)?;
            let Some((lane, spans)) = word.run() else {
                span += 1;
                continue;
            };
            let shares_block = span / BLOCK_SPANS * BLOCK_SPANS < free_from;
            let is_others = before.is_some_and(|before| shares_block && before != lane);
            if lane.0 >= self.layout.shards || span + spans > end || is_others {
                return Err(corrupt());
            }
            for later in span + 1..span + spans {
                // A word that is not zero would be believed once this run is given back.
                let offset = self.layout.table_word(later);
                match meta.load(offset) {
                    0 => {}
                    value => return Err(HeapError::Corrupt { what: "span table", offset, value }),
                }
            }
            self.enter_found(span, word);
            free.put(free_from..span, before, Some(lane));
            span += spans;
            (free_from, before) = (span, Some(lane));
        }
        free.put(free_from..end, before, None);
        meta.set_user(free.blocks);
        Ok(free.of_lanes)
    }
}

/// The free spans that are found when the heap is opened.
struct FreeSpans {
    /// Whole blocks.
    blocks: Pool,
    /// Spans in the blocks of each lane.
    of_lanes: Vec<Pool>,
}

impl FreeSpans {
    fn new(end: u64, lanes: usize) -> Self {
        let of_lanes = (0..lanes).map(|_| Pool::default()).collect();
        Self { blocks: Pool::up_to(end), of_lanes }
    }

    /// Enters free spans between a run of the lane `before` and one of the lane `after`: those in
    /// the same block as a run are its lane's.
    fn put(&mut self, spans: Range<u64>, before: Option<LaneId>, after: Option<LaneId>) {
        let first = spans.start.next_multiple_of(BLOCK_SPANS).min(spans.end);
        let last = (spans.end / BLOCK_SPANS * BLOCK_SPANS).max(first);
        for (lane, part) in [(before, spans.start..first), (after, last..spans.end)] {
            if let Some(lane) = lane.filter(|_| !part.is_empty()) {
                self.of_lanes[usize::from(lane.0)].put(part.start, part.end - part.start);
            }
        }
        if first < last {
            self.blocks.put(first, last - first);
        }
    }
}

fn pool_of<'m>(meta: &'m mut LaneGuard<'_>) -> &'m mut Pool {
    match meta.user::<Pool>() {
        Some(pool) => pool,
        None => panic!("spans are taken from a heap whose span table was not loaded"),
    }
}
