//! The public face: create or open a region, attach to one that a holder kept, write it, flush it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use perdura_media::{Clock, Device};

use crate::ahead::forget_ahead;
use crate::announce::{LaneGuard, Need};
use crate::assemble::{appender, grow_durably, new_memory, spawn_cleaner};
use crate::attachment::{adopt, map_region, take_over};
use crate::clean::{Cleaner, Pump};
use crate::config::{check_grain, checked};
use crate::core::{Core, hint_tables};
use crate::error::OpenError;
use crate::flush::{FlushOptions, FlushReport, commit_all, flush_all, settle};
use crate::format::Layout;
use crate::image;
use crate::load::Loading;
use crate::loaded::load_or_defer;
use crate::recover::{Tail, recover};
use crate::tracking::{PageTracker, Service, Tracking, TrackingKind};
use crate::trapped::TrappedMemory;
use perdura_dirty::apart::Apart;
use perdura_dirty::count::count_live;
use perdura_dirty::error::RegionError;
use perdura_dirty::geometry::{BLOCK_BYTES, Geometry};
use perdura_dirty::huge_pages::HugePages;
use perdura_dirty::lanes::{LaneId, Lanes};
use perdura_dirty::ledger::Ledger;
use perdura_dirty::policy::pace::QUEUE_DEPTH;
use perdura_dirty::stats::Stats;
use perdura_dirty::summary::Summary;
use perdura_dirty::sys::{SharedMemory, prefetch};
use perdura_dirty::waited::Waited;

pub use crate::attachment::Attachment;
pub use crate::config::Config;
pub use perdura_dirty::geometry::BUDGET_MIN_BYTES;
pub use perdura_dirty::geometry::REGION_MIN_BYTES;

/// How long a final flush waits for prepared writes.
const PREPARED_WAIT: Duration = Duration::from_millis(20);

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
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
    service: Option<Service>,
    origin: Origin,
}

impl Region {
    /// Opens the image on `device`, or creates one if the device is empty.
    pub fn open(
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        config: Config,
    ) -> Result<Self, OpenError> {
        let config = checked(config)?;
        match image::read_superblock(&*device)? {
            None => Self::create(device, clock, config),
            Some((geometry, image_id)) => Self::load(device, clock, config, geometry, image_id),
        }
    }

    fn create(
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        config: Config,
    ) -> Result<Self, OpenError> {
        let geometry = config.geometry()?;
        let image_id =
            config.seed ^ clock.unix_ms().rotate_left(32) ^ u64::from(std::process::id());
        let segments =
            geometry.segments_wanted(config.log_percent, config.region_bytes, config.budget_bytes);
        device.grow(Layout::of(&geometry).segment_at(segments))?;
        let ledger = Ledger::create(geometry, image_id, config.region_bytes)?;
        ledger.segments().store(u64::from(segments), Release);
        ledger.life().store(1, Release);
        let memory = new_memory(&geometry)?;
        image::prepare(&*device, &geometry)?;
        let (to, made) = (Arc::clone(&device), Origin::Created);
        let region = Self::start(to, clock, config, memory, ledger, made, None)?;
        // Last: an image without a commit could not be told from one that lost it.
        image::publish(&*device, &geometry, image_id)?;
        Ok(region)
    }

    fn load(
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        mut config: Config,
        geometry: Geometry,
        image_id: u64,
    ) -> Result<Self, OpenError> {
        check_grain(&geometry, &config)?;
        let ledger = Ledger::create(geometry, image_id, 0)?;
        let memory = new_memory(&geometry)?;
        let planted = config.planted;
        let (found, loading) =
            recover(&*device, &geometry, image_id, &ledger, Tail::Committed, planted)?;
        let loading = load_or_defer(&*device, &config, &ledger, &memory, loading)?;
        let header = &found.slot.header;
        config.region_bytes = config.region_bytes.max(header.region_bytes.get());
        let segments = geometry
            .segments_wanted(config.log_percent, config.region_bytes, config.budget_bytes)
            .max(header.segments.get())
            .max(found.segments_used);
        grow_durably(&*device, Layout::of(&geometry).segment_at(segments))?;
        ledger.region_bytes().store(config.region_bytes, Release);
        ledger.segments().store(u64::from(segments), Release);
        ledger.epoch().store(header.epoch.get() + 1, Release);
        ledger.next_seq().store(found.seq_max + 1, Release);
        ledger.commits().store(header.commit.get(), Release);
        ledger.slot_turn().store(found.slot.turn ^ 1, Release);
        ledger.life().store(u64::from(header.life.get()) + 1, Release);
        if let Some(offset_bytes) = found.slot.flawed_copy_at {
            tracing::warn!(
                offset_bytes,
                "a copy of the newest commit is damaged or was cut off; the other is whole"
            );
        }
        let origin = Origin::Recovered {
            flawed_commit_at: found.slot.flawed_copy_at,
            was_final: header.is_final.get() != 0,
            commit_unix_ms: header.unix_ms.get(),
            tail_frames: found.tail_frames,
        };
        Self::start(device, clock, config, memory, ledger, origin, loading)
    }

    /// Goes on with memory and ledger that another process left behind.
    pub fn attach(
        memory: OwnedFd,
        ledger: OwnedFd,
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        config: Config,
    ) -> Result<Self, OpenError> {
        let mut config = checked(config)?;
        let ledger = Ledger::attach(adopt("ledger", ledger)?)?;
        check_grain(ledger.geometry(), &config)?;
        let memory = take_over(&ledger, memory, config.planted)?;
        let layout = Layout::of(ledger.geometry());
        forget_ahead(&ledger);
        let is_whole = ledger.loading().load(Acquire) == 0;
        let mut loading = None;
        if !is_whole && ledger.flushed().load(Acquire) == 0 {
            // Who loaded it is gone, and with it the knowledge of what was loaded. What is dirty
            // was: with that in the image, too, loading begins anew. Where frames lie follows from
            // the threads' race; without a thread of its own a region repeats itself.
            let threads = if config.thread { 4 } else { 1 };
            let options = FlushOptions { threads, unix_ms: clock.unix_ms() };
            let map = map_region(&memory)?;
            drop(commit_all(&ledger, &map, &layout, &*device, options)?);
        }
        let is_read_anew = ledger.flushed().load(Acquire) != 0;
        if is_read_anew {
            // Somebody flushed everything and was killed before the ledger knew where it went.
            ledger.forget_places();
            let (image_id, tail) = (ledger.image_id().load(Acquire), Tail::Committed);
            let planted = config.planted;
            let (_, found) =
                recover(&*device, ledger.geometry(), image_id, &ledger, tail, planted)?;
            ledger.uncounted().store(0, Release);
            loading = load_or_defer(&*device, &config, &ledger, &memory, found)?;
            ledger.flushed().store(0, Release);
        }
        let settled = settle(&ledger, &layout, &*device)?;
        // The credit of those who wrote is gone with them.
        ledger.budget_used().store(settled.dirty_bytes, Release);
        if ledger.uncounted().load(Acquire) != 0 {
            count_live(&ledger)?;
        }
        let in_use = ledger.region_bytes().load(Acquire);
        config.region_bytes = config.region_bytes.max(in_use);
        let segments = ledger.geometry().segments_wanted(
            config.log_percent,
            config.region_bytes,
            config.budget_bytes,
        );
        let segments = u64::from(segments).max(ledger.segments().load(Acquire));
        grow_durably(&*device, layout.segment_at(segments as u32))?;
        ledger.segments().store(segments, Release);
        ledger.region_bytes().store(config.region_bytes, Release);
        let region = Self::start(device, clock, config, memory, ledger, Origin::Attached, loading)?;
        if is_read_anew {
            // The image's last commit is a final one, and no longer true.
            region.checkpoint()?;
        }
        Ok(region)
    }

    fn start(
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        config: Config,
        memory: SharedMemory,
        ledger: Ledger,
        origin: Origin,
        loading: Option<Loading>,
    ) -> Result<Self, OpenError> {
        let map = map_region(&memory)?;
        let geometry = *ledger.geometry();
        let (heat, marks) = hint_tables(&ledger, config.policy)?;
        let used = ledger.budget_used().load(Acquire);
        // The budget proper is put in force at the end, when the log has room for its flush.
        let limit = BUDGET_MIN_BYTES.max(used);
        ledger.budget_limit().store(limit, Release);
        ledger.budget_high().store(used, Release);
        // Only the part in use can hold bits; reading the rest would give it memory.
        let words_in_use = ledger.words_in_use();
        let summary = |parity| Summary::of(&geometry, &ledger.bitmap(parity)[..words_in_use]);
        let summaries = [summary(0), summary(1)];
        let tracking = match config.tracking {
            TrackingKind::Barrier => Tracking::Barrier,
            TrackingKind::Trap(kind) => {
                let region_bytes = ledger.region_bytes().load(Acquire);
                let (epoch, seal) = (config.epoch, config.seal_mapping);
                let tracker = PageTracker::new(kind, &map, &geometry, region_bytes, epoch, seal)?;
                Tracking::Pages(Box::new(tracker))
            }
        };
        let queue = device.queue(QUEUE_DEPTH)?;
        let lanes = Lanes::new(config.lanes.unwrap_or(geometry.lanes()), geometry.blocks());
        loading.iter().flat_map(Loading::blocks).for_each(|block| lanes.set_unloaded(block));
        let core = Arc::new(Core {
            layout: Layout::of(&geometry),
            appender: Apart(Waited::new(appender(&ledger, limit))),
            budget_change: Mutex::new(()),
            cleaner: Apart(Mutex::new(Cleaner::new(queue, config.seed))),
            ahead: Mutex::default(),
            lanes,
            loading: RwLock::new(loading.map(Arc::new)),
            tracking,
            budget: Apart::default(),
            stats: Default::default(),
            tick: Apart(AtomicU32::new(1)),
            failure: OnceLock::new(),
            policy: config.policy,
            recency: config.recency,
            log_percent: config.log_percent,
            // A kill may have left a gap in the frames' numbers, and the region may have grown:
            // group commits count only behind a commit that knows both.
            groups_need_commit: AtomicBool::new(origin == Origin::Attached),
            huge_pages: HugePages::new(&map, &ledger),
            locked: map.lock_in_memory(),
            buffers: OnceLock::new(),
            kind_change: Default::default(),
            compression: config.compression,
            planted: config.planted,
            memory,
            map,
            ledger,
            device,
            clock,
            heat,
            marks,
            summaries,
        });
        // From here on the image is in use: the commit says so, and lets go of what recovery did
        // not need.
        if origin != Origin::Attached {
            core.cleaner.lock().commit_checkpoint(&core, false)?;
        }
        if !config.thread || core.loading.read().is_none() {
            core.settle_buffers();
        }
        let thread = config.thread.then(|| spawn_cleaner(&core, &config)).transpose()?;
        let mut region = Self { core, thread, service: None, origin };
        region.service = Service::start(&region.core)?;
        region.set_budget(config.budget_bytes)?;
        Ok(region)
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// How the region came to its contents.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Bytes in use.
    pub fn len_bytes(&self) -> u64 {
        self.core.region_bytes()
    }

    /// Lanes there are.
    pub fn lanes(&self) -> u16 {
        self.core.lanes.count()
    }

    /// Locks a lane.
    pub fn lock(&self, lane: LaneId) -> LaneGuard<'_> {
        LaneGuard::new(&self.core, lane)
    }

    /// Locks a lane with budget bytes obtained by [`Region::satisfy`].
    pub fn lock_with(&self, lane: LaneId, credit_bytes: u64) -> LaneGuard<'_> {
        self.core.lock_with(lane, credit_bytes)
    }

    /// The 8-byte word at `offset` (aligned), read without its lane: a hint, unless the caller
    /// knows that the word is only ever changed by [`LaneGuard::store`].
    #[inline]
    pub fn peek(&self, offset: u64) -> u64 {
        self.core.map.words(offset, 1)[0].load(Acquire)
    }

    /// Starts loading the cache lines of a range that is about to be looked at. A hint: any range
    /// is allowed.
    #[inline]
    pub fn prefetch(&self, offset: u64, len: u64) {
        for line in (offset..offset.saturating_add(len)).step_by(64) {
            prefetch(self.core.map.base().wrapping_add(line as usize));
        }
    }

    /// Blocks until what a writer needs is there; call it with no lane held. Returns budget bytes
    /// taken, to be passed to [`Region::lock_with`].
    pub fn satisfy(&self, need: Need) -> Result<u64, RegionError> {
        self.core.satisfy(need)
    }

    /// Refuses once the final flush has begun.
    pub fn check_open(&self) -> Result<(), RegionError> {
        self.core.check_open()
    }

    /// Gives a block that is not in use to a lane.
    pub fn assign_block(&self, block: u64, lane: LaneId) {
        self.core.lanes.assign(block, lane);
    }

    /// The bytes, for code that just stores; `None` in barrier mode.
    pub fn trapped(&self) -> Option<TrappedMemory<'_>> {
        TrappedMemory::new(&self.core)
    }

    /// Makes the state of this moment durable: a consistent checkpoint.
    pub fn checkpoint(&self) -> Result<(), RegionError> {
        self.core.open_cleaner()?.checkpoint(&self.core, false)
    }

    /// Makes everything done so far durable before it returns; cheaper than a checkpoint, does not
    /// free segments.
    pub fn commit_group(&self) -> Result<(), RegionError> {
        let core = &self.core;
        let mut cleaner = core.open_cleaner()?;
        if self.thread.is_none() {
            core.choose_ahead(&mut cleaner).write_piece(core)?;
        }
        cleaner.group_commit(core)
    }

    /// Sets the budget. A smaller one makes writers wait; returns once the dirty set fits it. A
    /// larger one may need a larger log: if the device has no room for that, nothing changes.
    pub fn set_budget(&self, bytes: u64) -> Result<(), RegionError> {
        let core = &self.core;
        let refused = |why| Err(RegionError::Budget { asked_bytes: bytes, why });
        if bytes < BUDGET_MIN_BYTES {
            return refused("below 128 KiB nothing can proceed");
        }
        let geometry = core.ledger.geometry();
        if geometry.reserve_segments(bytes) > geometry.segments_max / 2 {
            return refused(
                "the image was made for a smaller region: its log cannot hold such a flush",
            );
        }
        // One change at a time: each leaves the limits as it found them or as it was asked to.
        let _changing = core.budget_change.lock();
        let before = self.budget_bytes();
        if bytes > before {
            self.fit_log_for(bytes)?;
        }
        core.budget.begin_shrink(bytes);
        let outcome = self.reach_budget(bytes);
        if outcome.is_err() {
            core.budget.abandon_change();
            core.size_reserve_for(before);
        }
        outcome
    }

    pub(crate) fn reach_budget(&self, bytes: u64) -> Result<(), RegionError> {
        let core = &self.core;
        loop {
            let seen = core.budget.version();
            let mut cleaner = core.open_cleaner()?;
            core.check()?;
            let used = core.ledger.budget_used().load(SeqCst);
            if used <= bytes {
                core.fit_log(core.region_bytes(), bytes)?;
                cleaner.ensure_space(core)?;
                // Frames of the size that went with another budget: the time to write them again is
                // reckoned by this one.
                core.appender.lock().close_frame(&core.ledger, 0);
                cleaner.pump(core, Pump::Durable)?;
                if core.coverable_bytes() < bytes {
                    return Err(core.log_full());
                }
                if core.budget.commit_limit(&core.ledger, bytes) {
                    return Ok(());
                }
                continue;
            }
            let gained = cleaner.make_room(core, used - bytes)?;
            drop(cleaner);
            if gained == 0 {
                core.reclaim_credit();
                core.budget.wait(&*core.clock, seen, Duration::from_millis(1));
            }
        }
    }

    /// Makes room in the log for the emergency flush of `budget_bytes`, without changing the
    /// budget.
    pub(crate) fn fit_log_for(&self, budget_bytes: u64) -> Result<(), RegionError> {
        let core = &self.core;
        let _cleaner = core.open_cleaner()?;
        core.fit_log(core.region_bytes(), budget_bytes)?;
        core.fit_log(core.region_bytes(), self.budget_bytes())
    }

    /// Enlarges the region online, and its log with it.
    pub fn grow(&self, region_bytes: u64) -> Result<(), OpenError> {
        let core = &self.core;
        let geometry = core.ledger.geometry();
        let region_bytes = region_bytes.next_multiple_of(BLOCK_BYTES);
        if region_bytes > geometry.reserved_bytes {
            return Err(OpenError::Setting {
                name: "memory",
                value: format!("{region_bytes} bytes"),
                expected: "at most the size reserved when the image was created",
            });
        }
        let mut cleaner = core.open_cleaner()?;
        core.fit_log(region_bytes.max(core.region_bytes()), self.budget_bytes())?;
        if let (Some(tracker), true) = (core.tracking.pages(), region_bytes > core.region_bytes()) {
            tracker.extend(&core.map, core.region_bytes(), region_bytes)?;
        }
        if core.ledger.region_bytes().fetch_max(region_bytes, AcqRel) < region_bytes {
            // A group commit does not say how large the region is: the commit before it must.
            cleaner.checkpoint(core, false)?;
        }
        Ok(())
    }

    /// Budget in force, bytes.
    pub fn budget_bytes(&self) -> u64 {
        self.core.ledger.budget_limit().load(Acquire)
    }

    /// Bytes that a loss without flush would take now: dirty, on their way, or promised to writers.
    pub fn used_bytes(&self) -> u64 {
        self.core.ledger.budget_used().load(Acquire)
    }

    /// Largest [`Region::used_bytes`] since the budget was set.
    pub fn used_bytes_max(&self) -> u64 {
        self.core.ledger.budget_high().load(Acquire)
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.core.read_stats()
    }

    /// First failure of the device, if it failed.
    pub fn failure(&self) -> Option<&str> {
        self.core.failure.get().map(String::as_str)
    }

    /// How the device works.
    pub fn describe_device(&self) -> String {
        self.core.device.describe()
    }

    /// Bytes the log may take on the device.
    pub fn log_bytes(&self) -> u64 {
        self.core.ledger.segments().load(Acquire) * self.core.ledger.geometry().segment_bytes
    }

    /// Descriptors of memory and ledger, to be handed to a holder.
    pub fn fds(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.core.memory.fd(), self.core.ledger.memory().fd())
    }

    /// The sizes the image was made with.
    pub fn geometry(&self) -> &Geometry {
        self.core.ledger.geometry()
    }

    /// Refuses writers from now on and ends their waits, as [`Region::close`] does first: for a
    /// thread that sees the warning while another one, which would close the region, writes.
    pub fn refuse_writers(&self) {
        self.core.budget.close();
    }

    /// Stops intake for good, flushes everything, commits it as final.
    ///
    /// A writer that holds a lane ends its operation first; one that waits for budget gets
    /// [`RegionError::Closed`], and so does whoever tries to change anything later. Lanes may still
    /// be locked to read, once the flush is over. In trap mode every page is closed for good: a
    /// thread that stores waits until the process ends or the region is dropped.
    pub fn close(&self, threads: usize) -> Result<FlushReport, RegionError> {
        let core = &self.core;
        core.budget.close();
        let mut cleaner = core.cleaner.lock();
        let mut lanes = Vec::new();
        match &core.tracking {
            Tracking::Barrier => lanes
                .extend((0..core.lanes.count()).map(|lane| core.lanes.lock(LaneId(lane)).lock())),
            Tracking::Pages(tracker) => {
                // An emergency does not wait for a peer's bytes: what is still being transferred
                // then is flushed as it is, and a system call that goes on gets EFAULT.
                tracker.prepared.begin_shut();
                tracker.prepared.is_empty_within(&*core.clock, PREPARED_WAIT);
                tracker.shut(core)?;
            }
        }
        core.appender.lock().close_frame(&core.ledger, 0);
        cleaner.quiesce();
        let options = FlushOptions { threads, unix_ms: core.clock.unix_ms() };
        let report = flush_all(&core.ledger, &core.map, &core.layout, &*core.device, options);
        // Whoever gets a lane from here on finds the region closed and can only read.
        for mut lane in lanes {
            lane.credit_bytes = 0;
        }
        // No zeros are on their way any more, and none will be: who goes on from here has the
        // device to himself.
        drop(core.ahead.lock());
        if let Err(RegionError::Latched { cause }) = &report {
            let _ = core.failure.set(cause.clone());
        }
        report
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(tracker) = self.core.tracking.pages() {
            tracker.retire();
        }
        // Before the core goes: handlers look into it.
        drop(self.service.take());
        self.core.budget.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the cleaner's thread panicked");
        }
        if let Some(mut cleaner) = self.core.cleaner.try_lock() {
            cleaner.quiesce();
        }
    }
}
