//! The heap of a region: open, spans, roots.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use parking_lot::Mutex;
use perdura_region::{LaneGuard, LaneId, Need, Region, RegionError, Unreadable};

use crate::error::{HeapError, Stop};
use crate::lane::Lane;
use crate::layout::*;
use crate::pool::Pool;

/// Volatile copy of a span table word, and what is known of the run it heads.
pub(crate) struct Span {
    /// As in the table, or [`CONTINUATION`] with the distance to the head.
    pub word: AtomicU64,
    /// Used slots; while the run is searched for free ones, where its marks begin.
    pub used: AtomicU32,
}

/// Marks, in the volatile copy only, a later span of a run of slots.
pub(crate) const CONTINUATION: u64 = 0xff;

/// A heap on a region.
pub struct Heap {
    pub(crate) region: Region,
    pub(crate) layout: Layout,
    pub(crate) spans: Box<[Span]>,
    /// A bit per span: it heads a run that was there when the heap was opened and that nobody has
    /// searched for free memory yet.
    pub(crate) unsearched: Box<[AtomicU64]>,
    /// Held by who searches a lane; a bit per slot, see [`crate::Marks`].
    pub(crate) marks: Mutex<Vec<u64>>,
    /// Steps until the heap plays dead; `u64::MAX`: never.
    fuse: AtomicU64,
}

/// Memory in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeapStats {
    /// Bytes of the region.
    pub region_bytes: u64,
    /// Bytes in spans that nobody has.
    pub free_bytes: u64,
}

impl Heap {
    /// Opens the heap in `region`, or makes one if the region is new. Operations that a killed
    /// process had not committed are rolled back. The last lane becomes the meta lane.
    ///
    /// All of it can be used at once, but memory that was in use before is not found free until
    /// [`Heap::rebuild_lane`] has searched it: allocation is from spans that nobody has.
    ///
    /// # Errors
    /// The region holds something else, was made for another number of lanes, is too small, or
    /// cannot be read.
    pub fn open(region: Region) -> Result<Self, HeapError> {
        Unreadable::catch(|| Self::open_readable(region))?
    }

    fn open_readable(region: Region) -> Result<Self, HeapError> {
        if region.lanes() < 2 {
            return Err(HeapError::Lanes { stored: 2, found: u64::from(region.lanes()) });
        }
        let layout = Layout::of(region.geometry(), region.lanes());
        let spans = (0..layout.spans_max)
            .map(|_| Span { word: AtomicU64::new(0), used: AtomicU32::new(0) })
            .collect();
        let unsearched = (0..layout.spans_max.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let (fuse, marks) = (AtomicU64::new(u64::MAX), Mutex::default());
        let heap = Self { region, layout, spans, unsearched, marks, fuse };
        let needed_bytes = (layout.first_span() + 1) * SPAN_BYTES;
        if heap.region.len_bytes() < needed_bytes {
            let region_bytes = heap.region.len_bytes();
            return Err(HeapError::TooSmall { region_bytes, needed_bytes });
        }
        let blocks = heap.region.geometry().blocks() as u64;
        for block in 0..blocks {
            heap.region.assign_block(block, heap.meta());
        }
        heap.check_or_format()?;
        for lane in heap.lanes() {
            heap.region.assign_block(layout.lane_block(lane) / SPAN_BYTES, lane);
        }
        heap.load_spans()?;
        heap.roll_back_all()?;
        Ok(heap)
    }

    /// The region below.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Lanes that users may lock: all but the meta lane.
    pub fn shards(&self) -> u16 {
        self.layout.shards
    }

    /// The lanes that users may lock, ascending.
    pub fn lanes(&self) -> impl Iterator<Item = LaneId> + use<> {
        (0..self.layout.shards).map(LaneId)
    }

    /// Locks one lane.
    pub fn lock(&self, lane: LaneId) -> Lane<'_> {
        assert!(lane.0 < self.layout.shards, "lane {} is not for users", lane.0);
        Lane::new(self, self.region.lock(lane))
    }

    /// Locks one lane with budget bytes that [`Region::satisfy`] returned.
    pub fn lock_with(&self, lane: LaneId, credit_bytes: u64) -> Lane<'_> {
        assert!(lane.0 < self.layout.shards, "lane {} is not for users", lane.0);
        Lane::new(self, self.region.lock_with(lane, credit_bytes))
    }

    /// Where a lane's root area of [`LANE_ROOT_BYTES`] lies: zeros at first.
    pub fn lane_roots(&self, lane: LaneId) -> u64 {
        self.layout.lane_roots(lane)
    }

    /// Value of a named root.
    pub fn root(&self, name: &str) -> Option<u64> {
        let meta = self.region.lock(self.meta());
        let at = find_root(&meta, name)?;
        Some(meta.load(at + ROOT_NAME_BYTES as u64))
    }

    /// Sets a named root, in one word store if it exists. Names have at most 24 bytes.
    ///
    /// # Errors
    /// All roots are taken, or the region refuses.
    pub fn set_root(&self, name: &str, value: u64) -> Result<(), HeapError> {
        assert!(!name.is_empty() && name.len() <= ROOT_NAME_BYTES, "root name {name:?}");
        self.with_meta(|meta| {
            if let Some(at) = find_root(meta, name) {
                return Ok(Ok(meta.store(at + ROOT_NAME_BYTES as u64, value)?));
            }
            let Some(at) = free_root(meta) else {
                return Ok(Err(HeapError::RootsFull { roots_max: ROOTS_MAX }));
            };
            meta.store(at + ROOT_NAME_BYTES as u64, value)?;
            // The first word last: it makes the root exist.
            for (index, word) in name_words(name).into_iter().enumerate().rev() {
                meta.store(at + index as u64 * 8, word)?;
            }
            Ok(Ok(()))
        })?
    }

    /// Memory in use.
    pub fn stats(&self) -> HeapStats {
        let mut meta = self.region.lock(self.meta());
        let region_spans = self.region.len_bytes() / SPAN_BYTES;
        let free_spans = meta.user::<Pool>().map_or(0, |pool| {
            pool.extend(region_spans);
            pool.free_spans()
        });
        HeapStats { region_bytes: self.region.len_bytes(), free_bytes: free_spans * SPAN_BYTES }
    }

    /// Gives the empty runs of all lanes back to the pool, waiting for the little budget that
    /// takes: what to try before giving up for want of memory. No lane may be held. Returns the
    /// bytes given back.
    pub fn reclaim(&self) -> u64 {
        let mut spans = 0;
        for lane in self.lanes() {
            let mut credit = 0;
            loop {
                let (returned, need) = self.lock_with(lane, credit).trim_all();
                spans += returned;
                // A region that refuses has no use for the memory either.
                match need.map(|need| self.region.satisfy(need)) {
                    Some(Ok(granted)) => credit = granted,
                    Some(Err(_)) | None => break,
                }
            }
        }
        spans * SPAN_BYTES
    }

    /// From `steps` steps on this heap behaves as if its process had been killed: the step does not
    /// happen, nothing is rolled back, and everything after it stops with [`Stop::Killed`]. For
    /// tests.
    pub fn kill_after(&self, steps: u64) {
        self.fuse.store(steps, Relaxed);
    }

    /// Whether the heap plays dead.
    pub fn is_killed(&self) -> bool {
        self.fuse.load(Relaxed) == 0
    }

    /// One step nearer to the planned death.
    pub(crate) fn burn(&self) -> Result<(), Stop> {
        match self.fuse.load(Relaxed) {
            u64::MAX => Ok(()),
            0 => Err(Stop::Killed),
            left => {
                self.fuse.store(left - 1, Relaxed);
                if left == 1 { Err(Stop::Killed) } else { Ok(()) }
            }
        }
    }

    pub(crate) fn meta(&self) -> LaneId {
        LaneId(self.layout.shards)
    }

    /// Head of the run that `offset` lies in, and what it is.
    pub(crate) fn run_of(&self, offset: u64) -> (u64, SpanWord) {
        let mut span = offset / SPAN_BYTES;
        let mut word = self.spans[span as usize].word.load(Relaxed);
        if word as u8 == CONTINUATION as u8 {
            span -= word >> 32;
            word = self.spans[span as usize].word.load(Relaxed);
        }
        (span, SpanWord::decode(word).unwrap_or(SpanWord::Free))
    }

    /// Notes a run in the volatile copy of the span table.
    pub(crate) fn mirror(&self, start: u64, word: SpanWord) {
        let spans = match word {
            SpanWord::Small { spans, .. } => u64::from(spans),
            // Only the head of a large object is ever asked for.
            SpanWord::Large { .. } | SpanWord::Free => 1,
        };
        for later in 1..spans {
            let head = CONTINUATION | later << 32;
            self.spans[(start + later) as usize].word.store(head, Relaxed);
        }
        self.spans[start as usize].used.store(0, Relaxed);
        self.spans[start as usize].word.store(word.encode(), Relaxed);
    }

    /// Takes contiguous spans from the pool for a held lane.
    pub(crate) fn take_spans(
        &self,
        lane: &mut LaneGuard<'_>,
        spans: u64,
        word: SpanWord,
    ) -> Result<u64, Stop> {
        self.burn()?;
        let region_spans = self.region.len_bytes() / SPAN_BYTES;
        let mut meta = self.region.lock(self.meta());
        let Some(pool) = meta.user::<Pool>() else { panic!("the heap was not opened") };
        pool.extend(region_spans);
        let Some(start) = pool.take(spans) else {
            let free_bytes = pool.free_spans() * SPAN_BYTES;
            return Err(Stop::OutOfMemory { needed_bytes: spans * SPAN_BYTES, free_bytes });
        };
        meta.deposit(lane.withdraw());
        let stored = meta.store(self.layout.table_word(start), word.encode());
        lane.deposit(meta.withdraw());
        if let Err(need) = stored {
            if let Some(pool) = meta.user::<Pool>() {
                pool.put(start, spans);
            }
            return Err(Stop::Need(need));
        }
        for span in start..start + spans {
            lane.adopt_block(span);
        }
        self.mirror(start, word);
        Ok(start)
    }

    /// Gives runs of a held lane back to the pool. Returns how many spans, and what those left over
    /// wait for.
    pub(crate) fn return_spans(
        &self,
        lane: &mut LaneGuard<'_>,
        runs: &mut Vec<(u64, u32)>,
    ) -> (u64, Option<Need>) {
        let (mut returned, mut needed) = (0, None);
        let mut meta = self.region.lock(self.meta());
        meta.deposit(lane.withdraw());
        while let Some(&(start, spans)) = runs.last() {
            if self.burn().is_err() {
                break;
            }
            let word = self.layout.table_word(start);
            if let Err(need) = meta.store(word, SpanWord::Free.encode()) {
                needed = Some(need);
                break;
            }
            runs.pop();
            for span in start..start + u64::from(spans) {
                meta.adopt_block(span);
                self.spans[span as usize].word.store(0, Relaxed);
            }
            if let Some(pool) = meta.user::<Pool>() {
                pool.put(start, u64::from(spans));
            }
            returned += u64::from(spans);
        }
        lane.deposit(meta.withdraw());
        (returned, needed)
    }

    /// Runs `f` with the meta lane until it needs nothing.
    fn with_meta<R>(
        &self,
        mut f: impl FnMut(&mut LaneGuard<'_>) -> Result<R, Need>,
    ) -> Result<R, RegionError> {
        let mut credit = 0;
        loop {
            let mut meta = self.region.lock_with(self.meta(), credit);
            match f(&mut meta) {
                Ok(done) => return Ok(done),
                Err(need) => {
                    drop(meta);
                    credit = self.region.satisfy(need)?;
                }
            }
        }
    }

    fn check_or_format(&self) -> Result<(), HeapError> {
        let lanes = u64::from(self.region.lanes());
        let meta = self.region.lock(self.meta());
        let (magic, version) = (meta.load(AT_MAGIC), meta.load(AT_VERSION));
        let (stored, spans) = (meta.load(AT_LANES), meta.load(AT_SPANS));
        drop(meta);
        match magic {
            0 => {}
            MAGIC if !(VERSION_WHOLE_GRAINS..=VERSION).contains(&version) => {
                return Err(HeapError::Version { found: version, supported: VERSION });
            }
            MAGIC if stored != lanes => return Err(HeapError::Lanes { stored, found: lanes }),
            MAGIC if spans != self.layout.spans_max => {
                let (what, offset) = ("heap header", AT_SPANS);
                return Err(HeapError::Corrupt { what, offset, value: spans });
            }
            // All else is the same in both.
            MAGIC if version != VERSION => {
                return Ok(self.with_meta(|meta| meta.store(AT_VERSION, VERSION))?);
            }
            MAGIC => return Ok(()),
            found => return Err(HeapError::NotAHeap { found }),
        }
        self.with_meta(|meta| {
            meta.store(AT_VERSION, VERSION)?;
            meta.store(AT_LANES, lanes)?;
            meta.store(AT_SPANS, self.layout.spans_max)?;
            meta.store(AT_KINDS, self.layout.kinds_at())?;
            // Last: it makes the heap exist. All else is right when zero.
            meta.store(AT_MAGIC, MAGIC)
        })?;
        Ok(())
    }
}

fn find_root(meta: &LaneGuard<'_>, name: &str) -> Option<u64> {
    let words = name_words(name);
    (0..ROOTS_MAX).map(|index| AT_ROOTS + index * ROOT_BYTES).find(|&at| {
        words.iter().enumerate().all(|(index, word)| meta.load(at + index as u64 * 8) == *word)
    })
}

fn free_root(meta: &LaneGuard<'_>) -> Option<u64> {
    (0..ROOTS_MAX).map(|index| AT_ROOTS + index * ROOT_BYTES).find(|&at| meta.load(at) == 0)
}

fn name_words(name: &str) -> [u64; 3] {
    let mut bytes = [0; ROOT_NAME_BYTES];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    let (words, _) = bytes.as_chunks::<8>();
    [0, 1, 2].map(|index| u64::from_le_bytes(words[index]))
}
