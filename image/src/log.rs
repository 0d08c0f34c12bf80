//! The log of an image that is in use: its device and its appender.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use perdura_dirty::{CachePadded, Ledger, Rank, RegionError, SegmentState, Waited};
use perdura_media::Device;

use crate::append::Appender;
use crate::codec::Compression;
use crate::format::Layout;

/// The log of one image.
pub struct Log {
    /// The device of the image.
    pub device: Arc<dyn Device>,
    /// Offsets of slots and segments on the device.
    pub layout: Layout,
    /// Appends frames to the log. Locked after the cleaner and after lanes.
    pub appender: CachePadded<Waited<Appender>>,
    /// Whether frames are compressed on their way to the device.
    pub compression: Compression,
    /// Size of the log as a multiple of the region, percent.
    pub(crate) percent: u64,
    /// The log keeps space for this budget though a smaller one may be in force, bytes.
    ready_bytes: AtomicU64,
    /// Whether a backup reads segments that only older commits need.
    is_held: AtomicBool,
    /// Bytes that had become dirty before the cut of the last commit, since the region was opened.
    pub dirtied_committed: AtomicU64,
}

impl Log {
    /// Makes the log of an image that was opened or made, sized for a budget.
    pub fn new(
        device: Arc<dyn Device>,
        ledger: &Ledger,
        budget_bytes: u64,
        compression: Compression,
        percent: u64,
    ) -> Self {
        Self {
            device,
            layout: Layout::of(ledger.geometry()),
            appender: CachePadded(Waited::new(Rank::Appender, appender(ledger, budget_bytes))),
            compression,
            percent,
            ready_bytes: AtomicU64::new(0),
            is_held: AtomicBool::new(false),
            dirtied_committed: AtomicU64::new(0),
        }
    }

    /// Keeps space for a budget of `bytes`, so that it can be in force again at once, besides that
    /// for the budget in force. 0 gives the space to data, from the next change of the budget on.
    pub fn keep_ready_for(&self, bytes: u64) {
        self.ready_bytes.store(bytes, Relaxed);
    }

    /// Asks commits to free no segments while there is ample space, or not any more.
    pub fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Relaxed);
    }

    /// Whether commits should free no segments while there is ample space.
    pub fn is_held(&self) -> bool {
        self.is_held.load(Relaxed)
    }

    /// The budget that the log has space for while `budget_bytes` are in force, bytes.
    pub fn sized_for(&self, budget_bytes: u64) -> u64 {
        budget_bytes.max(self.ready_bytes.load(Relaxed))
    }

    /// The error for a writer when only the emergency reserve is left.
    pub fn full(&self) -> RegionError {
        let appender = self.appender.lock();
        RegionError::LogFull {
            free_segments: appender.free_segments.len() as u32,
            reserve_segments: appender.reserve_segments,
        }
    }
}

/// Makes an appender over the segments that are free in the ledger.
pub(crate) fn appender(ledger: &Ledger, budget_bytes: u64) -> Appender {
    let geometry = ledger.geometry();
    let segments = ledger.segments().load(Acquire) as u32;
    let is_free = |number: &u32| ledger.segment(*number).state() == SegmentState::Free;
    let mut free: Vec<u32> = (0..segments).filter(is_free).collect();
    // Cleaning begins with segments that were never written, which are slower to write. The
    // emergency flush gets segments that were written before.
    free.sort_by_key(|number| ledger.segment(*number).was_written());
    Appender::new(
        (0..geometry.buffers).rev().collect(),
        VecDeque::from(free),
        geometry.reserve_segments(budget_bytes),
        geometry.frame_bytes_max(budget_bytes),
    )
}
