//! Opening a region: creating an image, loading one, or attaching to memory that a holder kept.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use perdura_dirty::geometry::BUDGET_MIN_BYTES;
use perdura_dirty::policy::pace::QUEUE_DEPTH;
use perdura_dirty::sys::SharedMemory;
use perdura_dirty::{
    Lanes, Ledger, Memory, MemoryParts, PageTracker, Service, Tracked, TrackingKind, count_live,
};
use perdura_image::format::Layout;
use perdura_image::superblock::{self, Head, read_superblock};
use perdura_image::{
    Backed, ImageError, Key, Loading, Loads, Log, OpenError, Tail, forget_prezeroing, grow_durably,
    recover,
};
use perdura_media::{Clock, Device};

use crate::capacity::take_over;
use crate::clean::Cleaner;
use crate::config::{Config, check_grain, check_size, checked};
use crate::flush::{FlushOptions, commit_all, redo};
use crate::load_first::load_or_defer;
use crate::memory_files::{adopt, map_region, new_ledger, new_memory, reserve};
use crate::region::{Origin, Region};
use crate::running::Running;
use crate::thread::spawn_cleaner;

impl Region {
    /// Opens the image on `device`, or creates one if the device has none.
    pub fn open(
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        config: Config,
    ) -> Result<Self, OpenError> {
        let config = checked(config)?;
        match read_superblock(&*device)? {
            None => Self::create(device, clock, config),
            Some(head) => Self::load(device, clock, config, &head),
        }
    }

    pub(crate) fn create(
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        config: Config,
    ) -> Result<Self, OpenError> {
        let geometry = config.geometry()?;
        let image_id = config.seed ^ clock.unix_ms().rotate_left(32);
        let segments =
            geometry.segments_wanted(config.log_percent, config.region_bytes, config.budget_bytes);
        device.grow(Layout::of(&geometry).segment_at(segments))?;
        let ledger = new_ledger(&config, geometry, image_id, config.region_bytes)?;
        ledger.segments().store(u64::from(segments), Release);
        ledger.incarnation().store(1, Release);
        let memory = new_memory(&config, &geometry, config.region_bytes)?;
        let image_key = config.key.as_ref().map(|_| Key::random()).transpose()?;
        if let Some(image_key) = &image_key {
            ledger.set_key_words(image_key.words());
        }
        superblock::prepare(&*device, &geometry)?;
        let keys = config.key.clone().zip(image_key);
        let (to, made) = (Arc::clone(&device), Origin::Created);
        let region = Self::start(to, clock, config, memory, ledger, made, None)?;
        // Published last, after the first commit: an image without a commit could not be told from
        // one that lost its commit.
        let keys = keys.as_ref().map(|(key, image_key)| (key, image_key));
        superblock::publish(&*device, &geometry, image_id, keys)?;
        Ok(region)
    }

    fn load(
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        mut config: Config,
        head: &Head,
    ) -> Result<Self, OpenError> {
        let (geometry, image_id) = (head.geometry, head.image_id);
        check_grain(&geometry, &config)?;
        check_size(&geometry, config.region_bytes)?;
        let image_key = head.image_key(config.key.as_ref())?;
        let ledger = new_ledger(&config, geometry, image_id, 0)?;
        if let Some(image_key) = image_key {
            ledger.set_key_words(image_key.words());
        }
        let memory = new_memory(&config, &geometry, config.region_bytes)?;
        let planted = config.planted;
        let (found, loading) =
            recover(&*device, &geometry, image_id, &ledger, Tail::Committed, planted)?;
        let header = &found.slot.header;
        config.region_bytes = config.region_bytes.max(header.region_bytes.get());
        reserve(&memory, config.region_bytes)?;
        let loading = load_or_defer(&*device, &config, &ledger, &memory, loading)?;
        let segments = geometry
            .segments_wanted(config.log_percent, config.region_bytes, config.budget_bytes)
            .max(header.segments.get())
            .max(found.segments_used);
        // Before the first frame of this version is written.
        superblock::renew(&*device, head)?;
        grow_durably(&*device, Layout::of(&geometry).segment_at(segments))?;
        ledger.region_bytes().store(config.region_bytes, Release);
        ledger.segments().store(u64::from(segments), Release);
        ledger.epoch().store(header.epoch.get() + 1, Release);
        ledger.next_seq().store(found.seq_max + 1, Release);
        ledger.commits().store(header.commit.get(), Release);
        ledger.commit_unix_ms().store(header.unix_ms.get(), Release);
        ledger.slot_turn().store(found.slot.turn ^ 1, Release);
        ledger.incarnation().store(u64::from(header.incarnation.get()) + 1, Release);
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

    /// Attaches to the memory and the ledger that another process left.
    pub fn attach(
        memory: OwnedFd,
        ledger: OwnedFd,
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        config: Config,
    ) -> Result<Self, OpenError> {
        let mut config = checked(config)?;
        let ledger = Ledger::attach(adopt("ledger", ledger)?)?;
        let Some(head) = read_superblock(&*device)? else {
            return Err(ImageError::NotAnImage { found: 0 }.into());
        };
        check_key(&head, &ledger, config.key.as_ref())?;
        superblock::renew(&*device, &head)?;
        check_grain(ledger.geometry(), &config)?;
        check_size(ledger.geometry(), config.region_bytes)?;
        let memory = take_over(&ledger, memory, config.planted)?;
        reserve(&memory, config.region_bytes)?;
        ledger.put_back(&map_region(&memory)?, config.planted)?;
        let layout = Layout::of(ledger.geometry());
        forget_prezeroing(&ledger);
        let is_whole = ledger.loading().load(Acquire) == 0;
        let mut loading = None;
        if !is_whole && ledger.flushed().load(Acquire) == 0 {
            // The process that loaded the image is gone, and with it the knowledge of which grains
            // are in memory. Dirty grains are: they are flushed to the image, then loading begins
            // again. A region without a thread flushes with one thread, because the places of
            // frames must not depend on a race there.
            let threads = if config.thread { 4 } else { 1 };
            let options = FlushOptions { threads, unix_ms: clock.unix_ms() };
            let map = map_region(&memory)?;
            drop(commit_all(&ledger, &map, &layout, &*device, options)?);
        }
        let is_read_anew = ledger.flushed().load(Acquire) != 0;
        if is_read_anew {
            // A process flushed everything and was killed before it noted the locations in the
            // ledger.
            ledger.forget_places();
            let (image_id, tail) = (ledger.image_id().load(Acquire), Tail::Committed);
            let planted = config.planted;
            let (_, found) =
                recover(&*device, ledger.geometry(), image_id, &ledger, tail, planted)?;
            ledger.uncounted().store(0, Release);
            loading = load_or_defer(&*device, &config, &ledger, &memory, found)?;
            ledger.flushed().store(0, Release);
        }
        let redone = redo(&ledger, &layout, &*device)?;
        // Credit of earlier writers ended with them.
        ledger.budget_used().store(redone.dirty_bytes, Release);
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
            // The image's last commit is marked as final, which is no longer true.
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
        let used = ledger.budget_used().load(Acquire);
        // The wanted budget comes in force at the end, when the log has room for its flush.
        let limit = BUDGET_MIN_BYTES.max(used);
        ledger.budget_limit().store(limit, Release);
        ledger.budget_high().store(used, Release);
        // A guard that asked for it may be gone.
        ledger.short_queue().store(0, Relaxed);
        let geometry = *ledger.geometry();
        let memory = Arc::new(Memory::new(MemoryParts {
            file: memory,
            map,
            ledger,
            clock,
            policy: config.policy,
            recency: config.recency,
            planted: config.planted,
        })?);
        memory.block_heat.restore(&config.heat);
        let tracker = match config.tracking {
            TrackingKind::Barrier => None,
            TrackingKind::Trap(kind) => {
                let (epoch, seal) = (config.epoch, config.seal_mapping);
                Some(Arc::new(PageTracker::new(kind, Arc::clone(&memory), epoch, seal)?))
            }
        };
        let lanes = Lanes::new(config.lanes.unwrap_or(geometry.lanes()), geometry.blocks());
        loading.iter().flat_map(Loading::blocks).for_each(|block| lanes.set_unloaded(block));
        let queue = device.queue(QUEUE_DEPTH)?;
        let log = Log::new(device, &memory.ledger, limit, config.compression, config.log_percent);
        let tracked = Tracked::new(memory, lanes, tracker);
        let backed = Backed::new(tracked, log, Loads::new(loading));
        // A kill may have left a gap in the numbers of frames, and the region may have grown. Group
        // commits count only after a checkpoint that records both.
        let groups_need_commit = origin == Origin::Attached;
        let cleaner = Cleaner::new(queue, config.seed, groups_need_commit);
        let running = Arc::new(Running::new(backed, cleaner));
        // From here on the image is in use. This commit records that, and frees segments that
        // recovery did not need.
        if origin != Origin::Attached {
            running.any_cleaner().commit_checkpoint(&running.backed, false)?;
        }
        if !config.thread || running.backed.loads.left().is_none() {
            running.prepare_buffers();
        }
        let thread = config.thread.then(|| spawn_cleaner(&running, &config)).transpose()?;
        // If a later step fails, dropping the region stops the thread.
        let mut region = Self::new(Arc::clone(&running), thread, None, origin);
        if let Some(tracker) = running.backed.tracked.pages() {
            region.serve(Service::start(tracker)?);
        }
        region.set_budget(config.budget_bytes)?;
        Ok(region)
    }
}

/// Refuses whoever does not have the key of the image to which held memory belongs, though the
/// memory has it.
fn check_key(head: &Head, ledger: &Ledger, key: Option<&Key>) -> Result<(), OpenError> {
    match head.image_key(key)?.map(|image_key| image_key.words()) == ledger.key_words() {
        true => Ok(()),
        false => Err(ImageError::WrongKey.into()),
    }
}
