//! How a block changes its kind: with its writers excluded and, unless the block is idle, with the
//! cleaner held and the closing epoch drained. An idle block is clean and the image has no copy of
//! it; it need not wait for a checkpoint to end.
//!
//! The process may be killed at any instruction and leave memory and ledger to another one, which
//! fixes the order of steps:
//!
//! - To capacity: take budget; mark all grains dirty that the image has copies of; punch out the
//!   memory, so that the block is persistent and zero; clean the dirty zeros; change the kind.
//! - To persistent: punch out the memory; change the kind. A process that finds the block between
//!   the two steps empties it again.
//!
//! The protection of pages is private to the process and ends with it.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::Ordering::*;
use std::time::Duration;

use crate::clean::Cleaner;
use crate::running::Running;
use perdura_dirty::extent::for_words;
use perdura_dirty::geometry::{BLOCK_BYTES, WORD_GRAINS};
use perdura_dirty::{
    Counters, Inside, Kind, KindBits, LaneId, LaneState, NO_LOCATION, Need, PageTracker,
    RankedGuard, RegionError, WaitedGuard,
};
use perdura_image::{Pump, Refusal, Source};

/// Time that a change which holds up cuts waits for another change of kind.
const OTHER_WAIT: Duration = Duration::from_millis(1);

/// Keeps the writers of a block out until it is dropped.
enum Excluded<'c> {
    Lane(
        LaneId,
        #[expect(dead_code, reason = "dropping it lets them in")] WaitedGuard<'c, LaneState>,
    ),
    Pages {
        tracker: &'c PageTracker,
        word: usize,
        bits: u64,
        /// Dropped after the pages are released: fields drop after `drop` has run.
        _inside: Option<Inside<'c>>,
    },
}

impl Drop for Excluded<'_> {
    fn drop(&mut self) {
        if let Self::Pages { tracker, word, bits, .. } = self {
            tracker.release(*word, *bits, 0);
        }
    }
}

/// A bitmap word of a block.
struct Part {
    word: usize,
    /// Bits of the block's grains in this word.
    mask: u64,
    /// Bits of those grains that the image has a copy of.
    located: u64,
}

/// The reason why a block was not emptied yet.
enum Lack {
    /// Budget of so many bytes is missing.
    Room(u64),
    /// A free segment of the log is missing.
    Segment,
}

impl Running {
    /// Changes the kind of an idle block. Returns false if the block is not idle, or if another
    /// change of kind does not end soon.
    pub(super) fn change_idle(&self, block: u64, kind: Kind) -> Result<bool, RegionError> {
        self.backed.memory.check_open()?;
        if self.backed.tracked.lanes.is_unloaded(block) {
            return Ok(false);
        }
        let Some(_excluded) = self.exclude_idle(block) else { return Ok(false) };
        let bitmaps = [0, 1].map(|parity| self.backed.memory.ledger.bitmap(parity));
        let is_used = |part: &Part| {
            let dirty = bitmaps.iter().fold(0, |bits, map| bits | map[part.word].load(Acquire));
            part.located != 0 || dirty & part.mask != 0
        };
        if self.parts(block).iter().any(is_used) {
            return Ok(false);
        }
        let one = self.kind_change.one.try_lock_for(OTHER_WAIT);
        let Some(one) = one else { return Ok(false) };
        match kind {
            // Another thread was first.
            kind if self.backed.memory.ledger.kind(block) == kind => {}
            Kind::Capacity => {
                // The block is all zeros, but zeros that were read have memory.
                self.take_memory(block)?;
                self.enter_capacity(block, &one)?;
            }
            Kind::Persistent => self.enter_persistent(block, &one)?,
        }
        Ok(true)
    }

    fn exclude_idle(&self, block: u64) -> Option<Excluded<'_>> {
        match self.backed.tracked.pages() {
            None => Some(self.exclude_lane(block)),
            Some(tracker) => {
                let (word, bits) = self.pages_of(block);
                let _inside = Some(tracker.lock_idle(word, bits)?);
                Some(Excluded::Pages { tracker, word, bits, _inside })
            }
        }
    }

    fn exclude_lane(&self, block: u64) -> Excluded<'_> {
        let (lane, held) = self.backed.tracked.lanes.lock_owner_of(block * BLOCK_BYTES);
        Excluded::Lane(lane, held)
    }

    /// The bitmap word of a block in trap mode, and the block's bits in that word.
    fn pages_of(&self, block: u64) -> (usize, u64) {
        let pages = BLOCK_BYTES / self.backed.memory.ledger.geometry().grain_bytes();
        let first = block * pages;
        ((first / WORD_GRAINS) as usize, perdura_dirty::extent::mask(first % WORD_GRAINS, pages))
    }

    /// Makes a block capacity memory. Returns the bytes of zeros that are on their way to the
    /// device.
    pub(super) fn make_capacity(&self, block: u64) -> Result<u64, RegionError> {
        let mut credit_bytes = 0;
        loop {
            let outcome = match self.open_cleaner() {
                Ok(mut cleaner) => self.try_make_capacity(&mut cleaner, block, &mut credit_bytes),
                Err(error) => Err(error),
            };
            // Credit that was not needed, or was not enough, is given back: a thread that waits for
            // budget must hold none.
            self.backed
                .memory
                .budget
                .give_back(&self.backed.memory.ledger, std::mem::take(&mut credit_bytes));
            match outcome? {
                ControlFlow::Break(written_bytes) => return Ok(written_bytes),
                ControlFlow::Continue(bytes) => {
                    credit_bytes = self.satisfy(Need::Room { bytes })?
                }
            }
        }
    }

    /// The bitmap words of a block.
    fn parts(&self, block: u64) -> Vec<Part> {
        let grains = BLOCK_BYTES / self.backed.memory.ledger.geometry().grain_bytes();
        let locations = self.backed.memory.ledger.locations();
        let mut parts = Vec::new();
        let Ok(()) = for_words(block * grains, (block + 1) * grains, |word, mask| {
            let located = (0..WORD_GRAINS)
                .filter(|bit| mask & 1 << bit != 0)
                .filter(|bit| locations.of(word as u64 * WORD_GRAINS + bit) != NO_LOCATION)
                .fold(0, |bits, bit| bits | 1 << bit);
            parts.push(Part { word, mask, located });
            Ok::<(), std::convert::Infallible>(())
        });
        parts
    }

    /// By how many the number of stretches of capacity blocks grows when this block's kind changes.
    fn runs_more(&self, block: u64) -> i64 {
        let is_capacity = |block: Option<u64>| {
            block.is_some_and(|block| self.backed.memory.ledger.kind(block) == Kind::Capacity)
        };
        let neighbours = [block.checked_sub(1), Some(block + 1)].map(is_capacity);
        let by_capacity = 1 - neighbours.map(i64::from).iter().sum::<i64>();
        if is_capacity(Some(block)) { -by_capacity } else { by_capacity }
    }

    /// Refuses a change that would split the mapping into too many parts.
    fn admit(&self, block: u64) -> Result<(), RegionError> {
        let refused = |why| {
            Err(RegionError::KindRefused {
                block,
                kind: self.backed.memory.ledger.kind(block),
                why,
            })
        };
        match self.backed.tracked.pages() {
            Some(tracker) if !tracker.admits_runs(self.runs_more(block)) => refused(
                "each stretch of capacity blocks splits the mapping, and a quarter of \
                 vm.max_map_count are in use: change \
                 neighbouring blocks, or raise it",
            ),
            _ => Ok(()),
        }
    }

    /// Makes an emptied persistent block capacity memory. Its writers are excluded.
    fn enter_capacity(&self, block: u64, _one: &RankedGuard<'_, ()>) -> Result<(), RegionError> {
        self.admit(block)?;
        self.kind_change.step()?;
        self.enter_kind(block, KindBits::Capacity);
        self.kind_change.step()?;
        if let Some(tracker) = self.backed.tracked.pages()
            && let Err(error) = tracker.set_protected(block, false)
        {
            // Some pages may be open now. If they cannot be closed either, the block stays capacity
            // memory, and faults open the other pages.
            if tracker.set_protected(block, true).is_ok() {
                self.enter_kind(block, KindBits::Persistent);
            }
            return Err(error);
        }
        Ok(())
    }

    /// Empties a capacity block and makes it persistent memory, which is clean. Its writers are
    /// excluded.
    fn enter_persistent(&self, block: u64, _one: &RankedGuard<'_, ()>) -> Result<(), RegionError> {
        self.admit(block)?;
        let protect = || match self.backed.tracked.pages() {
            Some(tracker) => tracker.set_protected(block, true),
            None => Ok(()),
        };
        // If a later step fails, the block is still capacity memory, and stores open its pages
        // again.
        protect()?;
        self.kind_change.step()?;
        let bits = self.backed.memory.ledger.kinds()[block as usize].load(Acquire);
        if bits == KindBits::BoundCapacity.to_byte() {
            let (offset, len) = (block * BLOCK_BYTES, BLOCK_BYTES as usize);
            let refused = |source| RegionError::NotEmptied { block, source };
            self.backed.memory.map.unbind(offset, len).map_err(refused)?;
        }
        self.take_memory(block)?;
        self.kind_change.step()?;
        // The kernel may drop the protection of pages that lose their memory, so they are protected
        // again.
        protect()?;
        self.enter_kind(block, KindBits::Persistent);
        Ok(())
    }

    /// Stores the kind of a block in the ledger, and counts stretches of capacity blocks.
    fn enter_kind(&self, block: u64, kind: KindBits) {
        if let Some(tracker) = self.backed.tracked.pages() {
            tracker.count_runs(self.runs_more(block));
        }
        self.backed.memory.ledger.kinds()[block as usize].store(kind.to_byte(), Release);
    }

    fn take_memory(&self, block: u64) -> Result<(), RegionError> {
        let emptied = self.backed.memory.file.punch(block * BLOCK_BYTES, BLOCK_BYTES);
        emptied.map_err(|source| RegionError::NotEmptied { block, source })
    }

    /// Refuses blocks that the region does not have. Refuses everything after a device has failed.
    pub(super) fn check_blocks(&self, blocks: &Range<u64>) -> Result<(), RegionError> {
        self.backed.memory.check()?;
        let region_blocks = self.backed.memory.region_bytes() / BLOCK_BYTES;
        if blocks.start <= blocks.end && blocks.end <= region_blocks {
            return Ok(());
        }
        Err(RegionError::Blocks { first: blocks.start, end: blocks.end, region_blocks })
    }

    /// Empties a block and makes it capacity memory. `Continue` holds the bytes of credit that this
    /// needs.
    fn try_make_capacity(
        &self,
        cleaner: &mut Cleaner,
        block: u64,
        credit_bytes: &mut u64,
    ) -> Result<ControlFlow<u64, u64>, RegionError> {
        let backed = &self.backed;
        self.backed.memory.check()?;
        // Checked before the block is emptied.
        self.admit(block)?;
        // The locations of its grains are known only when the block is loaded.
        self.backed.load_block(block)?;
        if backed.memory.ledger.closing().load(Acquire) != 0 {
            // A checkpoint ran out of space. The data that it has not written must be written
            // before they change.
            cleaner.finish_closing_epoch(backed, 0)?;
        }
        let mut written_bytes = 0;
        loop {
            // Done before the writers are excluded: making space may move grains of this very
            // block.
            cleaner.ensure_space(backed)?;
            let excluded = self.exclude(cleaner, block)?;
            if backed.memory.ledger.kind(block) == Kind::Capacity {
                // Another thread was first.
                return Ok(ControlFlow::Break(written_bytes));
            }
            match self.empty(cleaner, block, &excluded, credit_bytes, &mut written_bytes)? {
                None => {}
                Some(Lack::Room(bytes)) => return Ok(ControlFlow::Continue(bytes)),
                Some(Lack::Segment) => {
                    drop(excluded);
                    cleaner.ensure_space(backed)?;
                    if backed.log.appender.lock().spare_segments() == 0 {
                        return Err(backed.log.full());
                    }
                    continue;
                }
            }
            self.enter_capacity(block, &self.kind_change.one.lock())?;
            return Ok(ControlFlow::Break(written_bytes));
        }
    }

    /// Punches out the memory of a persistent block, and writes zeros for the grains that the image
    /// has copies of. `Some` says why that could not be done; the block is then as it was, or
    /// empty.
    fn empty(
        &self,
        cleaner: &mut Cleaner,
        block: u64,
        excluded: &Excluded<'_>,
        credit_bytes: &mut u64,
        written_bytes: &mut u64,
    ) -> Result<Option<Lack>, RegionError> {
        let backed = &self.backed;
        let (parity, shift) = (backed.memory.parity(), backed.memory.ledger.geometry().grain_shift);
        let bytes_of = |bits: u64| u64::from(bits.count_ones()) << shift;
        let parts = self.parts(block);
        let dirty = |part: &Part| backed.memory.ledger.dirty_word(parity, part.word).load(Acquire);
        let needed_bytes = parts.iter().map(|part| bytes_of(part.located & !dirty(part))).sum();
        if needed_bytes > *credit_bytes {
            return Ok(Some(Lack::Room(needed_bytes)));
        }
        *credit_bytes -= needed_bytes;
        Counters::add(&backed.memory.stats.dirtied_bytes, needed_bytes);
        for part in parts.iter().filter(|part| part.located != 0) {
            self.kind_change.step()?;
            backed.memory.ledger.dirty_word(parity, part.word).fetch_or(part.located, AcqRel);
            backed.memory.summary(parity).mark(part.word);
        }
        self.kind_change.step()?;
        self.take_memory(block)?;
        let mut dropped_bytes = 0;
        for part in &parts {
            loop {
                let owed = dirty(part) & part.located;
                if owed == 0 {
                    break;
                }
                self.kind_change.step()?;
                let mut appender = backed.log.appender.lock();
                let (done, refusal) =
                    backed.append_bits_of(Source::Zeros, &mut appender, parity, part.word, owed);
                drop(appender);
                *written_bytes += bytes_of(done);
                cleaner.outlet.in_flight_bytes += bytes_of(done);
                Counters::add(&backed.memory.stats.cleaned_bytes, bytes_of(done));
                match refusal {
                    None => {}
                    Some(Refusal::NoBuffer) => cleaner.outlet.pump(backed, Pump::One).map(drop)?,
                    Some(Refusal::NoSegment) => return Ok(Some(Lack::Segment)),
                }
            }
            self.kind_change.step()?;
            // The image has no copies of these grains, so no zeros need be written.
            let unwritten = part.mask & !part.located;
            let before =
                backed.memory.ledger.dirty_word(parity, part.word).fetch_and(!unwritten, AcqRel);
            dropped_bytes += bytes_of(before & unwritten);
        }
        backed.memory.budget.give_back(&backed.memory.ledger, dropped_bytes);
        if let Excluded::Lane(lane, _) = excluded {
            backed.tracked.lanes.count_written(*lane, 0, dropped_bytes);
        }
        Ok(None)
    }

    /// Empties a block and makes it persistent memory, which is clean.
    pub(super) fn make_persistent(&self, block: u64) -> Result<(), RegionError> {
        let mut cleaner = self.open_cleaner()?;
        let _excluded = self.exclude(&mut cleaner, block)?;
        match self.backed.memory.ledger.kind(block) {
            Kind::Capacity => self.enter_persistent(block, &self.kind_change.one.lock()),
            // Another thread was first.
            Kind::Persistent => Ok(()),
        }
    }

    /// Makes the written zeros durable, so that they leave the account.
    pub(super) fn make_zeros_durable(&self) -> Result<(), RegionError> {
        let backed = &self.backed;
        let mut cleaner = self.open_cleaner()?;
        backed.log.appender.lock().close_frame(&backed.memory.ledger, 0);
        cleaner.outlet.pump(backed, Pump::Durable).map(drop)
    }

    /// Keeps the writers of a block out: by its lane, or by closing and locking all its pages.
    fn exclude(&self, cleaner: &mut Cleaner, block: u64) -> Result<Excluded<'_>, RegionError> {
        let Some(tracker) = self.backed.tracked.pages() else {
            return Ok(self.exclude_lane(block));
        };
        let (word, bits) = self.pages_of(block);
        while tracker.close_all(word, bits).is_none() {
            // A prepared write that holds a page may wait for budget.
            cleaner.serve_faults_in_place(&self.backed)?;
            self.backed.memory.check_open()?;
        }
        Ok(Excluded::Pages { tracker, word, bits, _inside: None })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_media::{RealClock, SimDevice};

    use super::*;
    use crate::Config;
    use crate::Region;
    use crate::TrackingKind;
    use crate::TrapKind;
    use crate::attachment::Attachment;
    use crate::flush::FlushOptions;

    const BLOCKS: u64 = 8;
    const BLOCK: u64 = 2;

    fn config(tracking: TrackingKind) -> Config {
        Config {
            tracking,
            segment_bytes: Some(64 << 10),
            // A small budget makes small frames, so that emptying a block takes several steps.
            budget_bytes: 128 << 10,
            lanes: Some(1),
            checkpoint_every: None,
            ..Config::new(BLOCKS * BLOCK_BYTES, 128 << 10)
        }
    }

    fn put(region: &Region, offset: u64, bytes: &[u8]) {
        match region.trapped() {
            Some(memory) => memory.write(offset, bytes),
            None => crate::testing::write(region, offset, bytes),
        }
    }

    fn block(region: &Region) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        region.running().backed.memory.map.copy_out(BLOCK * BLOCK_BYTES, &mut bytes);
        bytes
    }

    /// Kills a region at step `fuse` of a change of kind. The block has old and newer copies in the
    /// image, and dirty grains with and without a copy; or none of these if `is_idle`. Returns
    /// whether the change ended before the kill, the block's bytes before it, and its bytes after
    /// it.
    fn killed(
        tracking: TrackingKind,
        to: Kind,
        is_idle: bool,
        fuse: u64,
    ) -> (bool, Vec<u8>, Vec<u8>) {
        let (device, clock) = (Arc::new(SimDevice::new(0, 1)), Arc::new(RealClock));
        let region = Region::open(device.clone(), clock.clone(), config(tracking)).unwrap();
        let at = BLOCK * BLOCK_BYTES;
        for byte in [1, 2].into_iter().filter(|_| !is_idle) {
            put(&region, at, &[byte; 30_000]);
            region.checkpoint().unwrap();
        }
        if to == Kind::Persistent {
            region.set_kind(BLOCK..BLOCK + 1, Kind::Capacity).unwrap();
        }
        if to == Kind::Persistent || !is_idle {
            put(&region, at + 20_000, &[3; 30_000]);
        }
        let before = block(&region);
        region.running().kind_change.fuse.light(fuse);
        let is_through = region.set_kind(BLOCK..BLOCK + 1, to).is_ok();
        let (memory, ledger) = region.fds();
        let held = || [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
        let [fds, again] = [held(), held()];
        drop(region);
        // A holder flushes first; then the image is opened, and the memory is attached to.
        let [memory, ledger] = fds;
        let holder = Attachment::new(memory, ledger).unwrap();
        let options = FlushOptions { threads: 1, unix_ms: 7 };
        holder.flush(&*device, options).unwrap();
        drop(holder);
        let image = Arc::new(device.power_cycle(fuse));
        let region = Region::open(image.clone(), clock.clone(), config(tracking)).unwrap();
        let from_image = block(&region);
        drop(region);
        let [memory, ledger] = again;
        let region = Region::attach(memory, ledger, image, clock, config(tracking)).unwrap();
        let after = block(&region);
        assert_eq!(region.kind(BLOCK), Kind::Persistent);
        assert!(from_image == after, "{tracking:?} to {to}, step {fuse}: the image differs");
        (is_through, before, after)
    }

    #[test]
    fn killed_at_any_step_a_block_is_as_it_was_or_empty_and_the_image_agrees() {
        let modes = [
            TrackingKind::Barrier,
            TrackingKind::Trap(TrapKind::Auto),
            TrackingKind::Trap(TrapKind::Mprotect),
        ];
        for tracking in modes {
            let both = [Kind::Capacity, Kind::Persistent];
            for (to, is_idle) in both.into_iter().flat_map(|to| [(to, false), (to, true)]) {
                let (mut whole, mut empty) = (0, 0);
                for fuse in 0.. {
                    let (is_through, before, after) = killed(tracking, to, is_idle, fuse);
                    let is_empty = after.iter().all(|byte| *byte == 0);
                    let is_whole = to == Kind::Capacity && after == before;
                    assert!(is_empty || is_whole, "{tracking:?} to {to}, step {fuse}");
                    (whole, empty) = (whole + u64::from(is_whole), empty + u64::from(is_empty));
                    if is_through {
                        assert!(is_empty);
                        break;
                    }
                }
                assert!(empty > 2, "{whole}, {empty}");
                assert!(whole > 1 || is_idle || to == Kind::Persistent, "{whole}, {empty}");
            }
        }
    }

    #[test]
    fn an_idle_block_does_not_wait_for_who_holds_the_cleaner() {
        for tracking in [TrackingKind::Barrier, TrackingKind::Trap(TrapKind::Auto)] {
            let device = Arc::new(SimDevice::new(0, 1));
            let region = Region::open(device, Arc::new(RealClock), config(tracking)).unwrap();
            let cleaner = region.running().any_cleaner();
            for kind in [Kind::Capacity, Kind::Persistent, Kind::Capacity] {
                region.set_kind(0..BLOCKS, kind).unwrap();
                assert_eq!(region.kind(BLOCK), kind);
            }
            drop(cleaner);
        }
    }

    /// Between the look at a block's kind and the exclusion of its writers another thread may have
    /// changed it, and somebody may have used it since.
    #[test]
    fn a_block_that_another_thread_has_changed_first_stays_as_it_is() {
        for tracking in [
            TrackingKind::Barrier,
            TrackingKind::Trap(TrapKind::Auto),
            TrackingKind::Trap(TrapKind::Mprotect),
        ] {
            let device = Arc::new(SimDevice::new(0, 1));
            let region = Region::open(device, Arc::new(RealClock), config(tracking)).unwrap();
            let running = region.running();
            // Where stretches of capacity blocks are limited, they are counted once.
            let assert_stretches = |count: i64| {
                let Some(tracker) = running.backed.tracked.pages() else { return };
                let Ok(most) = i64::try_from(tracker.open_pages_max) else { return };
                let admitted = [0, 1].map(|more| tracker.admits_runs(most - count + more));
                assert_eq!(admitted, [true, false], "{tracking:?}: not {count} stretches");
            };
            assert!(running.change_idle(BLOCK, Kind::Persistent).unwrap());
            assert_stretches(0);
            put(&region, BLOCK * BLOCK_BYTES, &[1; 5_000]);
            running.make_persistent(BLOCK).unwrap();
            assert!(block(&region).starts_with(&[1; 5_000]), "{tracking:?}");
            region.set_kind(BLOCK..BLOCK + 1, Kind::Capacity).unwrap();
            put(&region, BLOCK * BLOCK_BYTES, &[2; 5_000]);
            assert!(running.change_idle(BLOCK, Kind::Capacity).unwrap());
            assert!(block(&region).starts_with(&[2; 5_000]), "{tracking:?}");
            assert_stretches(1);
            assert_eq!(running.make_capacity(BLOCK).unwrap(), 0);
            assert!(block(&region).starts_with(&[2; 5_000]), "{tracking:?}");
            assert_stretches(1);
        }
    }
}
