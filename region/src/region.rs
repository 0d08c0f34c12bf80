//! The public face of a region: its bytes, lanes, budget and counters.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::thread::JoinHandle;

use perdura_dirty::geometry::Geometry;
use perdura_dirty::promise::Terms;
use perdura_dirty::sys::prefetch;
use perdura_dirty::{LaneGuard, LaneId, Need, RegionError, Service, Stats};
use perdura_image::{Backed, LoadProgress, Unreadable};

use crate::running::Running;
use crate::trapped::TrappedMemory;

pub use crate::attachment::Attachment;
pub use crate::config::Config;
pub use perdura_dirty::geometry::{BUDGET_MIN_BYTES, REGION_MIN_BYTES};

/// How an opened region came to its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A new image, all zeros.
    Created,
    /// Loaded from the image.
    Recovered {
        /// The last run ended with a completed flush.
        was_final: bool,
        /// When that commit was made, milliseconds since 1970.
        commit_unix_ms: u64,
        /// Group commits applied after it.
        tail_frames: u64,
        /// Where on the device a copy of the newest commit is damaged, or was being written when
        /// the run ended; the other copy was used.
        flawed_commit_at: Option<u64>,
    },
    /// Memory kept by a holder; nothing was read.
    Attached,
}

/// A range of memory, all of it durable, with at most the budget not yet on the SSD.
///
/// Cheap to share by reference; dropping it stops its thread without flushing (memory held
/// elsewhere stays as it is). Call [`Region::close`] for a final flush.
pub struct Region {
    running: Arc<Running>,
    thread: Option<JoinHandle<()>>,
    service: Option<Service>,
    origin: Origin,
}

impl Region {
    /// A region whose parts run.
    pub(crate) fn new(
        running: Arc<Running>,
        thread: Option<JoinHandle<()>>,
        service: Option<Service>,
        origin: Origin,
    ) -> Self {
        Self { running, thread, service, origin }
    }

    /// From now on faults are brought to the region.
    pub(crate) fn serve(&mut self, service: Service) {
        self.service = Some(service);
    }

    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    fn backed(&self) -> &Backed {
        &self.running.backed
    }

    /// How the region came to its contents.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Bytes in use.
    pub fn len_bytes(&self) -> u64 {
        self.backed().memory.region_bytes()
    }

    /// Lanes there are.
    pub fn lanes(&self) -> u16 {
        self.backed().tracked.lanes.count()
    }

    /// Locks a lane.
    pub fn lock(&self, lane: LaneId) -> LaneGuard<'_> {
        LaneGuard::new(&self.backed().tracked, self.backed(), lane)
    }

    /// Locks a lane with budget bytes obtained by [`Region::satisfy`].
    pub fn lock_with(&self, lane: LaneId, credit_bytes: u64) -> LaneGuard<'_> {
        self.running.lock_with(lane, credit_bytes)
    }

    /// The 8-byte word at `offset` (aligned), read without its lane: a hint, unless the caller
    /// knows that the word is only ever changed by [`LaneGuard::store`].
    #[inline]
    pub fn peek(&self, offset: u64) -> u64 {
        self.backed().memory.map.words(offset, 1)[0].load(Acquire)
    }

    /// Starts loading the cache lines of a range that is about to be looked at. A hint: any range
    /// is allowed.
    #[inline]
    pub fn prefetch(&self, offset: u64, len: u64) {
        for line in (offset..offset.saturating_add(len)).step_by(64) {
            prefetch(self.backed().memory.map.base().wrapping_add(line as usize));
        }
    }

    /// Blocks until what a writer needs is there; call it with no lane held. Returns budget bytes
    /// taken, to be passed to [`Region::lock_with`].
    pub fn satisfy(&self, need: Need) -> Result<u64, RegionError> {
        self.running.satisfy(need)
    }

    /// Refuses once the final flush has begun.
    pub fn check_open(&self) -> Result<(), RegionError> {
        self.backed().memory.check_open()
    }

    /// Gives a block that is not in use to a lane.
    pub fn assign_block(&self, block: u64, lane: LaneId) {
        self.backed().tracked.lanes.assign(block, lane);
    }

    /// The bytes, for code that just stores; `None` in barrier mode.
    pub fn trapped(&self) -> Option<TrappedMemory<'_>> {
        TrappedMemory::new(&self.running)
    }

    /// Makes the state of this moment durable: a consistent checkpoint.
    pub fn checkpoint(&self) -> Result<(), RegionError> {
        self.running.open_cleaner()?.checkpoint(self.backed(), false)
    }

    /// Makes everything done so far durable before it returns; cheaper than a checkpoint, does not
    /// free segments.
    pub fn commit_group(&self) -> Result<(), RegionError> {
        let (running, backed) = (&*self.running, self.backed());
        let mut cleaner = running.open_cleaner()?;
        if self.thread.is_none() {
            running.choose_prezeroing(&mut cleaner).write_piece(backed)?;
        }
        cleaner.group_commit(backed)
    }

    /// Budget in force, bytes.
    pub fn budget_bytes(&self) -> u64 {
        self.backed().memory.ledger.budget_limit().load(Acquire)
    }

    /// Bytes that a loss without flush would take now: dirty, on their way, or promised to writers.
    pub fn used_bytes(&self) -> u64 {
        self.backed().memory.ledger.budget_used().load(Acquire)
    }

    /// Largest [`Region::used_bytes`] since the budget was set.
    pub fn used_bytes_max(&self) -> u64 {
        self.backed().memory.ledger.budget_high().load(Acquire)
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.backed().tracked.read_stats()
    }

    /// First failure of the device, if it failed.
    pub fn failure(&self) -> Option<&str> {
        self.backed().memory.failure()
    }

    /// How the device works.
    pub fn describe_device(&self) -> String {
        self.backed().log.device.describe()
    }

    /// Bytes the log may take on the device.
    pub fn log_bytes(&self) -> u64 {
        self.backed().memory.ledger.segments().load(Acquire)
            * self.backed().memory.ledger.geometry().segment_bytes
    }

    /// Descriptors of memory and ledger, to be handed to a holder.
    pub fn fds(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.backed().memory.file.fd(), self.backed().memory.ledger.memory().fd())
    }

    /// The sizes the image was made with.
    pub fn geometry(&self) -> &Geometry {
        self.backed().memory.ledger.geometry()
    }

    /// Says what the budget rests on. From now on the cleaner's own writes are held against it.
    pub fn watch_rate(&self, terms: &Terms) -> Result<(), RegionError> {
        let mut cleaner = self.running.open_cleaner()?;
        cleaner.outlet.rate.watch(&self.backed().memory, terms);
        Ok(())
    }

    /// Most bytes that may be dirty now: the budget in force, or less while it is being lowered or
    /// the device is slower than was proven.
    pub fn budget_now_bytes(&self) -> u64 {
        let memory = &self.backed().memory;
        memory.budget.wanted_limit(&memory.ledger)
    }

    /// Loads a piece of what recovery left to be loaded on first use ([`Config::defer_load`]), a
    /// segment of the image; several threads may. False: nothing is left to be taken up, though
    /// others may still be at work.
    ///
    /// # Errors
    /// The piece is damaged or cannot be read. What else there is can still be loaded; who touches
    /// this unwinds with [`Unreadable`].
    pub fn load_next(&self) -> Result<bool, Unreadable> {
        self.backed().loads.load_next(self.backed().place())
    }

    /// Loads all that is left, whoever has taken it up.
    ///
    /// # Errors
    /// As [`Region::load_next`].
    pub fn load_all(&self) -> Result<(), Unreadable> {
        self.backed().loads.load_all(self.backed().place())
    }

    /// How far loading has come; `None`: everything is in memory.
    pub fn load_progress(&self) -> Option<LoadProgress> {
        self.backed().loads.progress()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(tracker) = self.running.backed.tracked.pages() {
            tracker.retire();
        }
        // Before the memory goes: handlers look into it.
        drop(self.service.take());
        self.running.backed.memory.budget.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the cleaner's thread panicked");
        }
        if let Some(mut cleaner) = self.running.try_cleaner() {
            cleaner.outlet.quiesce();
        }
    }
}
