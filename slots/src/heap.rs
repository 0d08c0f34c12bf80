//! An open heap: its lanes, its roots, and counts of its memory.

use parking_lot::Mutex;
use perdura_region::{LaneId, Region, Unreadable};

use crate::error::HeapError;
use crate::lane::Lane;
use crate::layout::{ROOTS_MAX, SPAN_BYTES};
use crate::open;
use crate::roots;
use crate::spans::Spans;

/// A heap on a region, shared by reference between threads.
pub struct Heap {
    pub(crate) spans: Spans,
    /// Bits of [`crate::Marks`], locked by the thread that searches a lane; kept for their
    /// capacity.
    pub(crate) marks: Mutex<Vec<u64>>,
}

/// Memory of a heap that is in use and that is free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeapStats {
    /// Bytes of the region at its present size.
    pub region_bytes: u64,
    /// Bytes in blocks that belong to no lane.
    pub free_bytes: u64,
}

impl Heap {
    /// Opens the heap in `region`, or makes one if the region is new. Operations that a killed
    /// process had not committed are rolled back. The last lane becomes the meta lane.
    ///
    /// All of the heap can be used at once, but memory that was in use before is not found free
    /// until [`Heap::rebuild_lane`] has searched it: until then allocation takes spans that belong
    /// to no lane.
    ///
    /// # Errors
    /// The region holds something else, was made for another number of lanes, is too small, is
    /// damaged, or cannot be read.
    pub fn open(region: Region) -> Result<Self, HeapError> {
        let spans = Unreadable::catch(|| open::open(region))??;
        Ok(Self { spans, marks: Mutex::default() })
    }

    /// The region that the heap lies in.
    pub fn region(&self) -> &Region {
        &self.spans.region
    }

    /// The number of lanes that users may lock: all but the meta lane.
    pub fn shards(&self) -> u16 {
        self.spans.layout.shards
    }

    /// The lanes that users may lock, ascending.
    pub fn lanes(&self) -> impl Iterator<Item = LaneId> + use<> {
        (0..self.shards()).map(LaneId)
    }

    /// Locks one lane.
    #[inline]
    pub fn lock(&self, lane: LaneId) -> Lane<'_> {
        assert!(lane.0 < self.shards(), "lane {} is not for users", lane.0);
        Lane::new(&self.spans, self.spans.region.lock(lane))
    }

    /// Locks one lane, with budget bytes that [`Region::satisfy`] returned.
    #[inline]
    pub fn lock_with(&self, lane: LaneId, credit_bytes: u64) -> Lane<'_> {
        assert!(lane.0 < self.shards(), "lane {} is not for users", lane.0);
        Lane::new(&self.spans, self.spans.region.lock_with(lane, credit_bytes))
    }

    /// The region offset of a lane's root area of [`crate::LANE_ROOT_BYTES`], which begins as
    /// zeros.
    pub fn lane_roots(&self, lane: LaneId) -> u64 {
        self.spans.layout.lane_roots(lane)
    }

    /// The value of a named root.
    pub fn root(&self, name: &str) -> Option<u64> {
        roots::load(&self.spans.lock_meta(), name)
    }

    /// Sets a named root, in one word store if it exists. Names have at most 24 bytes.
    ///
    /// # Errors
    /// All roots are taken, or the region refuses.
    pub fn set_root(&self, name: &str, value: u64) -> Result<(), HeapError> {
        match self.spans.with_meta(|meta| roots::store(meta, name, value))? {
            true => Ok(()),
            false => Err(HeapError::RootsFull { roots_max: ROOTS_MAX }),
        }
    }

    /// Counts the heap's memory.
    pub fn stats(&self) -> HeapStats {
        let free_bytes = self.spans.free_spans() * SPAN_BYTES;
        HeapStats { region_bytes: self.spans.region.len_bytes(), free_bytes }
    }

    /// Bytes of free slots, and of spans without slots, in the blocks of lanes. Each lane is held
    /// for a moment.
    pub fn free_slot_bytes(&self) -> u64 {
        self.lanes().map(|lane| self.lock(lane).free_slot_bytes()).sum()
    }

    /// Gives the empty runs of all lanes back to the pool, and waits for the little budget that
    /// this takes: a caller tries it before giving up for want of memory. No lane may be held.
    /// Returns the bytes given back.
    pub fn reclaim(&self) -> u64 {
        let mut spans = 0;
        for lane in self.lanes() {
            let mut credit = 0;
            loop {
                let (returned, need) = self.lock_with(lane, credit).trim_all();
                spans += returned;
                // A region that refuses has no use for the memory either.
                match need.map(|need| self.spans.region.satisfy(need)) {
                    Some(Ok(granted)) => credit = granted,
                    Some(Err(_)) | None => break,
                }
            }
        }
        spans * SPAN_BYTES
    }

    /// After `steps` more steps this heap behaves as if its process had been killed: the step does
    /// not happen, nothing is rolled back, and everything after it stops with
    /// [`crate::Stop::Killed`]. For tests.
    pub fn kill_after(&self, steps: u64) {
        self.spans.fuse.light(steps);
    }

    /// Whether [`Heap::kill_after`] has let the heap die.
    pub fn is_killed(&self) -> bool {
        self.spans.fuse.is_burnt()
    }
}
