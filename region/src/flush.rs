//! The emergency flush: everything dirty goes to the SSD, sequentially, by any process that has
//! memory, ledger and image.
//!
//! The processes that wrote the data are not needed. The steps are:
//!
//! 1. Put back the bytes that such a process was overwriting ([`Ledger::put_back`]).
//! 2. Redo the frames that it left half done: they are completed and written again, to the same
//!    places with the same bytes, so that writes which are still on their way do no harm.
//! 3. Write the dirty grains, in address order and by several threads ([`Stream`]), to the free
//!    segments that cleaning may never use.
//! 4. Flush the device.
//! 5. Commit.
//!
//! Until the commit, the ledger records only which segments the flush took, so a flush that fails
//! or is killed is repeated as a whole from memory. The grains' new locations are noted after the
//! commit, when no battery is running any more.

mod stream;

use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::sync::atomic::fence;

use perdura_media::{Device, DeviceError};

use perdura_dirty::extent::runs;
use perdura_dirty::planted::Planted;
use perdura_dirty::sys::Mapping;
use perdura_dirty::{BufferState, Ledger, RegionError, SegmentState};
use perdura_image::format::Layout;
use perdura_image::slots::{SlotContents, write_slot};
use perdura_image::{frame_bytes, free_buffer, free_segment, kept_bytes, seal};
use stream::{Placed, Stream};

/// Settings of a flush.
#[derive(Debug, Clone, Copy)]
pub struct FlushOptions {
    /// Threads that copy and write.
    pub threads: usize,
    /// The time that the commit records, milliseconds since 1970.
    pub unix_ms: u64,
}

/// The outcome of a flush.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlushReport {
    /// Dirty bytes written.
    pub dirty_bytes: u64,
    /// Bytes written to the device, frames and commit slots.
    pub device_bytes: u64,
    /// Bytes of half-done frames that were written again.
    pub redone_bytes: u64,
    /// Extents written.
    pub extents: u64,
}

/// The outcome of redoing half-done frames, and the bytes of the budget's account that belong to
/// them.
pub(crate) struct Redone {
    pub written_bytes: u64,
    /// Bytes of the frames on the account, which are durable now.
    pub charged_bytes: u64,
    /// Bytes on the account that are still dirty.
    pub dirty_bytes: u64,
}

/// Completes and writes the frames that a stopped process left in its buffers. They are durable on
/// return. The caller corrects the budget's account: the writers may be gone with their credit, or
/// go on with it.
pub(crate) fn redo(
    ledger: &Ledger,
    layout: &Layout,
    device: &dyn Device,
) -> Result<Redone, DeviceError> {
    let image_id = ledger.image_id().load(Acquire);
    let mut written_bytes = 0;
    for number in 0..ledger.geometry().buffers {
        let buffer = ledger.buffer(number);
        if buffer.state() == BufferState::Free {
            continue;
        }
        let segment = buffer.segment().load(Acquire) as u32;
        let at = buffer.segment_offset().load(Acquire);
        let len = frame_bytes(&buffer);
        seal(ledger, &buffer, image_id, ledger.epoch().load(Relaxed));
        // SAFETY: the process that filled the buffer is gone or stopped; nobody else writes it.
        let bytes = unsafe { buffer.stored_mut(len as usize) };
        device.write_at(layout.segment_at(segment) + at, bytes)?;
        ledger.segment(segment).used_bytes().fetch_max(at + kept_bytes(&buffer), AcqRel);
        written_bytes += len;
    }
    sync(ledger, device)?;
    let mut charged_bytes = 0;
    for number in 0..ledger.geometry().buffers {
        charged_bytes += ledger.buffer(number).charged_bytes().swap(0, Relaxed);
        free_buffer(ledger, number);
    }
    let segments = ledger.segments().load(Acquire) as u32;
    for number in 0..segments {
        let entry = ledger.segment(number);
        if entry.used_bytes().load(Acquire) == 0 && entry.state() == SegmentState::Used {
            entry.set_state(SegmentState::Free);
        }
    }
    // An interrupted epoch never closes. Its data become part of the current epoch, with newer
    // contents.
    let parity = ledger.epoch().load(Acquire);
    let mut dirty_grains = 0;
    let words = ledger.words_in_use();
    let bitmaps = ledger.bitmap(parity)[..words].iter().zip(&ledger.bitmap(parity ^ 1)[..words]);
    for (current, closing) in bitmaps {
        let owed = closing.load(Acquire);
        if owed != 0 {
            current.fetch_or(owed, AcqRel);
            closing.store(0, Release);
        }
        dirty_grains += u64::from(current.load(Relaxed).count_ones());
    }
    ledger.closing().store(0, Release);
    let dirty_bytes = dirty_grains << ledger.geometry().grain_shift;
    Ok(Redone { written_bytes, charged_bytes, dirty_bytes })
}

/// Flushes everything, commits that as final, and notes it in the ledger. Nobody may write to the
/// region meanwhile.
pub(crate) fn flush_all(
    ledger: &Ledger,
    map: &Mapping,
    layout: &Layout,
    device: &dyn Device,
    options: FlushOptions,
) -> Result<FlushReport, RegionError> {
    if ledger.flushed().load(Acquire) != 0 {
        // Another process has flushed, and was killed before it could note that in the ledger.
        return Ok(FlushReport::default());
    }
    let report = commit_all(ledger, map, layout, device, options)?.note(ledger);
    // Nobody writes any more, so credit is worth nothing.
    ledger.budget_used().store(0, Release);
    Ok(report)
}

/// A flush that is durable but not yet noted in the ledger. If the process is killed before
/// [`Committed::note`], the next one that uses the memory reads the locations from the image (see
/// [`crate::Region::attach`]).
#[must_use = "the ledger still holds everything dirty"]
pub(crate) struct Committed {
    report: FlushReport,
    placed: Vec<Placed>,
    /// Bytes on the budget's account that are durable now.
    counted_bytes: u64,
}

/// The part of a flush that must end within the warning: up to the durable commit.
pub(crate) fn commit_all(
    ledger: &Ledger,
    map: &Mapping,
    layout: &Layout,
    device: &dyn Device,
    options: FlushOptions,
) -> Result<Committed, RegionError> {
    let failed = |error: DeviceError| RegionError::Latched { cause: error.to_string() };
    ledger
        .put_back(map, Planted::None)
        .map_err(|source| RegionError::DamagedLedger { source: Arc::new(source) })?;
    let redone = redo(ledger, layout, device).map_err(failed)?;
    let mut report = FlushReport { redone_bytes: redone.written_bytes, ..FlushReport::default() };
    let segments = ledger.segments().load(Acquire) as u32;
    let mut free: Vec<u32> = (0..segments)
        .filter(|number| ledger.segment(*number).state() == SegmentState::Free)
        .collect();
    // Space that was written before is up to twice as fast to write as space that is only reserved.
    free.sort_by_key(|number| !ledger.segment(*number).was_written());
    let threads = flush_threads(options.threads);
    let written = Stream::new(ledger, map, layout, device, &free)
        .run(threads)
        .and_then(|written| sync(ledger, device).map(|()| written).map_err(failed));
    let written = match written {
        Ok(written) => written,
        Err(error) => {
            undo(ledger, &free);
            return Err(error);
        }
    };
    let needed: Vec<bool> =
        (0..segments).map(|number| ledger.segment(number).state() == SegmentState::Used).collect();
    let slot = SlotContents {
        needed: &needed,
        last_seq: ledger.next_seq().load(Acquire) - 1,
        is_final: true,
        unix_ms: options.unix_ms,
    };
    let slot_bytes = write_slot(ledger, layout, device, &slot, false).map_err(failed)?;
    report.dirty_bytes = written.dirty_bytes;
    report.device_bytes = written.device_bytes + report.redone_bytes + slot_bytes;
    report.extents = written.extents;
    ledger.flushed().store(1, Release);
    let counted_bytes = redone.charged_bytes + redone.dirty_bytes;
    Ok(Committed { report, placed: written.placed, counted_bytes })
}

impl Committed {
    /// Notes in the ledger that the flushed grains are clean, and their locations, and takes them
    /// off the account. Credit that writers hold, or take at this moment, stays on the account.
    pub(crate) fn note(self, ledger: &Ledger) -> FlushReport {
        let bitmap = ledger.bitmap(ledger.epoch().load(Acquire));
        let locations = ledger.locations();
        ledger.uncounted().store(1, Relaxed);
        fence(Release);
        for at in &self.placed {
            for (word, bits) in at.words(bitmap) {
                for run in runs(word, bits) {
                    locations.set(run, at.segment + 1);
                }
            }
        }
        for at in &self.placed {
            for (word, bits) in at.words(bitmap) {
                bitmap[word].fetch_and(!bits, AcqRel);
            }
        }
        ledger.budget_used().fetch_sub(self.counted_bytes, AcqRel);
        ledger.flushed().store(0, Release);
        self.report
    }
}

/// Flushes the device. The ledger says so meanwhile, for a holder that watches.
fn sync(ledger: &Ledger, device: &dyn Device) -> Result<(), DeviceError> {
    ledger.syncing().store(1, Release);
    let outcome = device.flush();
    ledger.syncing().store(0, Release);
    outcome
}

/// The number of threads that a flush uses: at most 4, because the emergency reserve has room for
/// the unfilled segments of so many.
pub(crate) fn flush_threads(wanted: usize) -> usize {
    wanted.clamp(1, 4)
}

/// Frees the buffers and segments of a failed attempt, whose frames may be lost though their writes
/// completed. The ledger still has all their grains as dirty, in their former locations.
fn undo(ledger: &Ledger, taken_from: &[u32]) {
    for number in 0..ledger.geometry().buffers {
        free_buffer(ledger, number);
    }
    for &number in taken_from {
        free_segment(ledger, number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_media::{FaultPlan, FaultyDevice, RealClock, SimClock, SimDevice};

    use super::*;
    use crate::Config;
    use crate::LaneId;
    use crate::Region;
    use crate::testing::write;
    use perdura_dirty::extent::Extent;
    use perdura_dirty::geometry::{BLOCK_BYTES, GRAIN_SHIFT_TRAP, Geometry};
    use perdura_dirty::sys::SharedMemory;
    use perdura_image::{Appender, Tail, Target, recover};

    /// Settings with the smallest log, which has no room for the same flush twice.
    fn tight(blocks: u64, budget_blocks: u64) -> Config {
        Config {
            segment_bytes: Some(64 << 10),
            log_percent: 125,
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            ..Config::new(blocks * BLOCK_BYTES, budget_blocks * BLOCK_BYTES)
        }
    }

    #[test]
    fn who_is_killed_between_the_commit_and_the_note_has_flushed_all_the_same() {
        let device = Arc::new(SimDevice::new(0, 1));
        let clock = Arc::new(SimClock::new(1_000));
        let config = || tight(8, 4);
        let fill = |region: &Region, block: u64, byte| {
            write(region, block * BLOCK_BYTES, &[byte; 40_000]);
        };
        let first = Region::open(device.clone(), clock.clone(), config()).unwrap();
        for block in 0..8 {
            fill(&first, block, 1);
        }
        first.checkpoint().unwrap();
        for block in 2..6 {
            fill(&first, block, 2);
        }
        let backed = &first.running().backed;
        let options = FlushOptions { threads: 2, unix_ms: 1 };
        let committed = commit_all(
            &backed.memory.ledger,
            &backed.memory.map,
            &backed.log.layout,
            &*device,
            options,
        );
        drop(committed.unwrap());
        // The holder is asked to flush next, then a server takes over.
        let again = flush_all(
            &backed.memory.ledger,
            &backed.memory.map,
            &backed.log.layout,
            &*device,
            options,
        )
        .unwrap();
        assert_eq!(again, FlushReport::default());
        let (memory, ledger) = first.fds();
        let fds = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
        drop(first);
        let [memory, ledger] = fds;
        let second =
            Region::attach(memory, ledger, device.clone(), clock.clone(), config()).unwrap();
        fill(&second, 0, 3);
        let ledger = &second.running().backed.memory.ledger;
        let (geometry, image_id) = (ledger.geometry(), ledger.image_id().load(Acquire));
        let image = Ledger::create(*geometry, image_id, 0).unwrap();
        let (tail, planted) = (Tail::Committed, Planted::None);
        let (found, _) = recover(&*device, geometry, image_id, &image, tail, planted).unwrap();
        assert_eq!(found.slot.header.is_final.get(), 0, "the region is in use again");
        second.close(1).unwrap();
        drop(second);
        let third = Region::open(device, clock, config()).unwrap();
        let lane = third.lock(LaneId(0));
        for (block, byte) in [3, 1, 2, 2, 2, 2, 1, 1].into_iter().enumerate() {
            assert_eq!(lane.bytes(block as u64 * BLOCK_BYTES, 40_000), [byte; 40_000], "{block}");
        }
    }

    /// Flushes like a process that is killed when everything is written and nothing is committed.
    fn killed_flush(region: &Region) {
        let backed = &region.running().backed;
        redo(&backed.memory.ledger, &backed.log.layout, &*backed.log.device).unwrap();
        let segments = backed.memory.ledger.segments().load(Acquire) as u32;
        let free: Vec<u32> = (0..segments)
            .filter(|n| backed.memory.ledger.segment(*n).state() == SegmentState::Free)
            .collect();
        Stream::new(
            &backed.memory.ledger,
            &backed.memory.map,
            &backed.log.layout,
            &*backed.log.device,
            &free,
        )
        .run(2)
        .unwrap();
    }

    #[test]
    fn a_flush_that_was_killed_leaves_room_for_whoever_goes_on() {
        // The log is the smallest one and full of scattered records, and the whole budget is dirty.
        for (budget_blocks, is_attached) in [(64, true), (64, false), (16, true), (16, false)] {
            let blocks = 256;
            let device = Arc::new(SimDevice::new(0, 1));
            let clock = Arc::new(SimClock::new(1_000));
            let config = || tight(blocks, budget_blocks);
            let region = Region::open(device.clone(), clock.clone(), config()).unwrap();
            for step in 0..3 * blocks * 512 {
                let record = step * 7_919 % (blocks * 512);
                write(&region, record * 128, &[1; 64]);
            }
            assert!(region.used_bytes() >= region.budget_bytes() / 10 * 9);
            killed_flush(&region);
            if is_attached {
                let (memory, ledger) = region.fds();
                let [memory, ledger] = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
                drop(region);
                let config = config();
                let region = Region::attach(memory, ledger, device, clock, config).unwrap();
                region.close(1).unwrap();
            } else {
                let backed = &region.running().backed;
                let options = FlushOptions { threads: 4, unix_ms: 1 };
                flush_all(
                    &backed.memory.ledger,
                    &backed.memory.map,
                    &backed.log.layout,
                    &*device,
                    options,
                )
                .unwrap();
            }
        }
    }

    #[test]
    fn a_flush_that_failed_leaves_every_segment_free_that_was_free_before() {
        let device = SimDevice::new(0, 1);
        let clock = Arc::new(SimClock::new(1_000));
        let region = Region::open(Arc::new(device.clone()), clock, tight(8, 4)).unwrap();
        for block in 0..4 {
            write(&region, block * BLOCK_BYTES, &[1; 40_000]);
        }
        let backed = &region.running().backed;
        let (ledger, map) = (&backed.memory.ledger, &backed.memory.map);
        let free = || -> Vec<u32> {
            let segments = ledger.segments().load(Acquire) as u32;
            let is_free = |number: &u32| ledger.segment(*number).state() == SegmentState::Free;
            (0..segments).filter(is_free).collect()
        };
        let before = free();
        let plan = Arc::new(FaultPlan::new());
        // Redoing frames flushes the device once; the flush of the data fails.
        plan.fail_flush(2);
        let faulty = FaultyDevice::new(device, plan, Arc::new(RealClock));
        let options = FlushOptions { threads: 2, unix_ms: 1 };
        let failed = flush_all(ledger, map, &backed.log.layout, &faulty, options);
        assert!(matches!(failed, Err(RegionError::Latched { .. })), "{failed:?}");
        assert_eq!(free(), before);
    }

    #[test]
    fn a_kill_between_a_table_entry_and_its_fill_leaves_an_image_that_opens() {
        let geometry = Geometry::new(4 * BLOCK_BYTES, GRAIN_SHIFT_TRAP, None, 4).unwrap();
        let (layout, device) = (Layout::of(&geometry), SimDevice::new(0, 1));
        device.grow(layout.segment_at(2)).unwrap();
        let memory = SharedMemory::create("test", geometry.reserved_bytes).unwrap();
        let map = memory.map().unwrap();
        let ledger = Ledger::create(geometry, 7, geometry.reserved_bytes).unwrap();
        ledger.segments().store(2, Relaxed);
        let mut appender = Appender::new(vec![0], [0, 1].into(), 0, geometry.segment_bytes);
        appender.append(&ledger, &map, Extent { grain: 5, len: 1 }, true).unwrap();
        // Appending grain 6 extends the table's entry. The process dies after that store, and
        // before the store to the word that counts filled bytes.
        ledger.buffer(0).table()[0].store(Extent { grain: 5, len: 2 }.pack(), Relaxed);
        let options = FlushOptions { threads: 1, unix_ms: 1 };
        flush_all(&ledger, &map, &layout, &device, options).unwrap();
        let found = SharedMemory::create("test", geometry.reserved_bytes).unwrap().map().unwrap();
        let empty = Ledger::create(geometry, 7, 0).unwrap();
        let recovered = recover(&device, &geometry, 7, &empty, Tail::Committed, Planted::None);
        let device: &dyn Device = &device;
        let (ledger, map) = (&empty, &found);
        let to = Target { device, ledger, map, loaded: &|_| {}, huge_pages: None };
        recovered.unwrap().1.load_all(&to, 1).unwrap();
    }
}
