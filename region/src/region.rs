//! The region as its users see it: bytes, lanes, budget and counters.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::thread::JoinHandle;

use perdura_dirty::geometry::{BLOCK_BYTES, Geometry};
use perdura_dirty::planted::Planted;
use perdura_dirty::promise::Terms;
use perdura_dirty::sys::prefetch;
use perdura_dirty::{Guest, LaneGuard, LaneId, Need, RegionError, Service, SetupError, Stats};
use perdura_image::{Backed, LoadProgress, Unreadable};
use perdura_media::Device;
use rustix::io::Errno;

use crate::running::Running;
use crate::trapped::TrappedMemory;

/// Where the contents of an opened region came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The image is new, and all bytes are zero.
    Created,
    /// The contents are those of the image.
    Recovered {
        /// Whether the last run ended with a completed flush.
        was_final: bool,
        /// When the newest checkpoint was committed, milliseconds since 1970.
        commit_unix_ms: u64,
        /// Group commits that were applied after that checkpoint.
        tail_frames: u64,
        /// Place on the device of a copy of the newest commit that is damaged, or was being written
        /// when the run ended. The other copy was used.
        flawed_commit_at: Option<u64>,
    },
    /// A holder kept the memory, and nothing was read.
    Attached,
}

/// A range of memory, all of it durable, of which at most the budget is not yet on the SSD.
///
/// Dropping a region stops its thread and does not flush; memory that a holder has stays as it is.
/// Call [`Region::close`] for a final flush.
pub struct Region {
    running: Arc<Running>,
    thread: Option<JoinHandle<()>>,
    service: Option<Service>,
    origin: Origin,
}

impl Region {
    /// A region from its running parts.
    pub(crate) fn new(
        running: Arc<Running>,
        thread: Option<JoinHandle<()>>,
        service: Option<Service>,
        origin: Origin,
    ) -> Self {
        Self { running, thread, service, origin }
    }

    /// Starts to bring faults of trap mode to the region.
    pub(crate) fn serve(&mut self, service: Service) {
        self.service = Some(service);
    }

    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    fn backed(&self) -> &Backed {
        &self.running.backed
    }

    /// Where the region's contents came from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Bytes of the region that can be used now.
    #[inline]
    pub fn len_bytes(&self) -> u64 {
        self.backed().memory.region_bytes()
    }

    /// The number of lanes.
    pub fn lanes(&self) -> u16 {
        self.backed().tracked.lanes.count()
    }

    /// Locks a lane for writing or reading its blocks.
    #[inline]
    pub fn lock(&self, lane: LaneId) -> LaneGuard<'_> {
        LaneGuard::new(&self.backed().tracked, self.backed(), lane)
    }

    /// Locks a lane with budget bytes obtained by [`Region::satisfy`].
    #[inline]
    pub fn lock_with(&self, lane: LaneId, credit_bytes: u64) -> LaneGuard<'_> {
        self.running.lock_with(lane, credit_bytes)
    }

    /// Reads the 8-byte word at `offset`, which must be aligned, without its lane. The value is a
    /// hint, unless the caller knows that only [`LaneGuard::store`] changes the word.
    #[inline]
    pub fn peek(&self, offset: u64) -> u64 {
        self.backed().memory.map.words(offset, 1)[0].load(Acquire)
    }

    /// Prefetches the cache lines of a range that is about to be read. Any range is allowed.
    #[inline]
    pub fn prefetch(&self, offset: u64, len: u64) {
        for line in (offset..offset.saturating_add(len)).step_by(64) {
            prefetch(self.backed().memory.map.base().wrapping_add(line as usize));
        }
    }

    /// Waits until what a writer needs is there. Must be called with no lane held. Returns the
    /// budget bytes that were taken, to be passed to [`Region::lock_with`].
    #[inline]
    pub fn satisfy(&self, need: Need) -> Result<u64, RegionError> {
        self.running.satisfy(need)
    }

    /// Returns an error if the final flush has begun.
    #[inline]
    pub fn check_open(&self) -> Result<(), RegionError> {
        self.backed().memory.check_open()
    }

    /// The bug that is planted in this region, for the rooms above that have planted bugs.
    pub fn planted(&self) -> Planted {
        self.backed().memory.planted
    }

    /// Assigns a block that is not in use to a lane.
    pub fn assign_block(&self, block: u64, lane: LaneId) {
        self.backed().tracked.lanes.assign(block, lane);
    }

    /// The memory of trap mode, for code that just stores; `None` in barrier mode.
    pub fn trapped(&self) -> Option<TrappedMemory<'_>> {
        TrappedMemory::new(&self.running)
    }

    /// Admits a process that maps parts of the memory ([`Region::fds`]) and stores to them. `uffd`
    /// is a userfaultfd that the process has opened and sent.
    ///
    /// # Errors
    /// The region's tracking is not [`crate::TrapKind::Guests`], or the system refuses.
    pub fn admit_guest(&self, uffd: OwnedFd) -> Result<Guest, SetupError> {
        let tracker = self.backed().tracked.pages();
        let refused = SetupError::Tracking { mode: "another process", source: Errno::OPNOTSUPP };
        Guest::admit(tracker.ok_or(refused)?, uffd)
    }

    /// Makes a consistent checkpoint: the state of one moment during the call is durable on return.
    pub fn checkpoint(&self) -> Result<(), RegionError> {
        self.running.open_cleaner()?.checkpoint(self.backed(), false)
    }

    /// Makes all writes that were completed before the call durable. Cheaper than a checkpoint, but
    /// frees no segments.
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

    /// Bytes on the budget's account: dirty, on their way to the device, or promised to writers.
    pub fn used_bytes(&self) -> u64 {
        self.backed().memory.ledger.budget_used().load(Acquire)
    }

    /// Largest value of [`Region::used_bytes`] since the budget was last set.
    pub fn used_bytes_max(&self) -> u64 {
        self.backed().memory.ledger.budget_high().load(Acquire)
    }

    /// A reading of all counters.
    pub fn stats(&self) -> Stats {
        self.backed().tracked.read_stats()
    }

    /// The first failure of the device, if it has failed.
    pub fn failure(&self) -> Option<&str> {
        self.backed().memory.failure()
    }

    /// The device of the image, for reading beside the region.
    pub fn device(&self) -> Arc<dyn Device> {
        Arc::clone(&self.backed().log.device)
    }

    /// Number of the newest commit.
    pub fn commits(&self) -> u64 {
        self.backed().memory.ledger.commits().load(Acquire)
    }

    /// Whether the newest commit covers all writes that were completed before the call, as far as
    /// is known without waiting for the cleaner.
    pub fn is_committed(&self) -> bool {
        let backed = self.backed();
        let dirtied = backed.tracked.dirtied_bytes();
        let is_unchanged = self.used_bytes() == 0
            || backed.tracked.pages().is_none()
                && backed.memory.stats.checkpoints.load(Relaxed) > 0
                && dirtied == backed.log.dirtied_committed.load(Relaxed);
        // Cleaning and group commits make writes durable in frames that no slot covers yet.
        let ledger = &backed.memory.ledger;
        is_unchanged && ledger.next_seq().load(Acquire) == ledger.commit_seq().load(Acquire) + 1
    }

    /// Asks commits to free no segments while there is ample space, or not any more: a backup reads
    /// segments that only older commits need. No writer ever waits for it.
    pub fn hold_segments(&self, is_held: bool) {
        self.backed().log.hold(is_held);
    }

    /// Text that says how the device is driven.
    pub fn describe_device(&self) -> String {
        self.backed().log.device.describe()
    }

    /// Bytes that the log takes on the device.
    pub fn log_bytes(&self) -> u64 {
        self.backed().memory.ledger.segments().load(Acquire)
            * self.backed().memory.ledger.geometry().segment_bytes
    }

    /// Descriptors of memory and ledger, which a holder needs.
    pub fn fds(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.backed().memory.file.fd(), self.backed().memory.ledger.memory().fd())
    }

    /// The sizes that the image was made with.
    pub fn geometry(&self) -> &Geometry {
        self.backed().memory.ledger.geometry()
    }

    /// Sets the terms that the budget rests on. From now on the rate of the cleaner's own writes is
    /// compared with them, and a slower device lowers the budget.
    pub fn watch_rate(&self, terms: &Terms) -> Result<(), RegionError> {
        let mut cleaner = self.running.open_cleaner()?;
        cleaner.outlet.rate.watch(&self.backed().memory, terms);
        Ok(())
    }

    /// Most bytes that may be dirty now: the budget in force, or less while the budget is being
    /// lowered or the device is slower than proven.
    pub fn budget_now_bytes(&self) -> u64 {
        let memory = &self.backed().memory;
        memory.budget.wanted_limit(&memory.ledger)
    }

    /// Loads the next segment of an image whose loading was deferred
    /// ([`defer_load`](crate::Config::defer_load)). Several threads may call this. Returns false if
    /// no segment is left to begin with; other threads may still be loading theirs.
    ///
    /// # Errors
    /// The segment is damaged or cannot be read. Others can still be loaded. A thread that touches
    /// data of this one unwinds with [`Unreadable`].
    pub fn load_next(&self) -> Result<bool, Unreadable> {
        self.backed().loads.load_next(self.backed().place())
    }

    /// Loads everything that is left, segments that other threads have begun included.
    ///
    /// # Errors
    /// The errors of [`Region::load_next`].
    pub fn load_all(&self) -> Result<(), Unreadable> {
        self.backed().loads.load_all(self.backed().place())
    }

    /// About how often each block of the region was used lately, a byte a block: see
    /// [`BlockHeat`](perdura_dirty::BlockHeat).
    pub fn heat(&self) -> Vec<u8> {
        let memory = &self.backed().memory;
        memory.block_heat.bytes(memory.region_bytes().div_ceil(BLOCK_BYTES) as usize)
    }

    /// The heat of so many equal parts of the memory, at a cost that does not grow with it.
    pub fn heat_of_parts(&self, parts: usize) -> Vec<u8> {
        let memory = &self.backed().memory;
        memory.block_heat.parts(memory.region_bytes().div_ceil(BLOCK_BYTES) as usize, parts)
    }

    /// How far deferred loading has come; `None` if everything is in memory.
    pub fn load_progress(&self) -> Option<LoadProgress> {
        self.backed().loads.progress()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(tracker) = self.running.backed.tracked.pages() {
            tracker.retire();
        }
        // Dropped before the memory, which fault handlers read.
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
