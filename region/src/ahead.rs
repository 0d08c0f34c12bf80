//! Writing free segments before the log goes into them, so that who waits for a durable frame waits
//! half as long.
//!
//! A file system keeps a journal of which reserved space has been written. A durable write into
//! such as was not waits for the journal, too. So zeros are written behind the clients' backs, a
//! piece at a time, to the next few free segments, once group commits are single durable writes.
//!
//! A segment that gets its zeros is neither free nor used, in the ledger, too: it is chosen under
//! the cleaner's lock (a flush, a drill and a proof hold it while they choose theirs), written
//! under nobody's, and is for the taking only afterwards. The write is a system call that a kill
//! does not outlive, so whoever attaches finds none on its way. Zeros are no frame; a segment that
//! got some of them is as free as before.

use std::sync::atomic::Ordering::*;

use parking_lot::MutexGuard;

use crate::clean::Cleaner;
use crate::core::Core;
use perdura_dirty::error::RegionError;
use perdura_dirty::ledger::{Ledger, SegmentState};
use perdura_dirty::planted::Planted;
use perdura_dirty::stats::Counters;
use perdura_dirty::sys::AlignedBytes;

/// So much of the free space beyond the emergency reserve is kept written: half a second of commits
/// at 64 MiB/s.
const AHEAD_BYTES: u64 = 32 << 20;
/// At most so many bytes for each that such a commit has written: large commits gain little by it,
/// and pay for the device.
const SHARE: u64 = 8;
/// Written at a time, at most: a commit may have to wait for as much.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// What is being written ahead.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// The segment, and how much of it has its zeros.
    at: Option<(u32, u64)>,
    /// A piece of zeros, from the first need on.
    zeros: Option<AlignedBytes>,
}

impl Core {
    /// Chooses what is to be written ahead next; then the cleaner may go.
    pub fn choose_ahead(&self, cleaner: &mut Cleaner) -> MutexGuard<'_, Ahead> {
        let mut ahead = self.ahead.lock();
        let due_bytes = self.ledger.geometry().segment_bytes / SHARE;
        if ahead.at.is_none()
            && cleaner.single_bytes >= due_bytes
            && let Some(segment) = self.take_unwritten()
        {
            // What was not used up in time says nothing about commits to come.
            cleaner.single_bytes = (cleaner.single_bytes - due_bytes).min(AHEAD_BYTES / SHARE);
            ahead.at = Some((segment, 0));
        }
        ahead
    }

    /// The free segment that would be the first to be used without having been written, if too few
    /// come before it.
    fn take_unwritten(&self) -> Option<u32> {
        let clean = self.space().spare_wanted();
        let mut appender = self.appender.lock();
        let (written, unwritten) = appender.next_unwritten(&self.ledger)?;
        let ahead = (AHEAD_BYTES / self.ledger.geometry().segment_bytes).max(2);
        let enough = u64::from(appender.reserve_segments) + ahead;
        // It is missing meanwhile: nobody must have to make space for that.
        if written as u64 >= enough || appender.spare_segments() <= clean + 1 {
            return None;
        }
        if !self.planted.is(Planted::ZeroUntaken) {
            appender.free_segments.remove(written);
            self.ledger.segment(unwritten).set_state(SegmentState::Zeroed);
            self.note_space(&appender);
        }
        Some(unwritten)
    }
}

impl Ahead {
    /// Writes a piece of what was chosen, if anything was.
    pub fn write_piece(&mut self, core: &Core) -> Result<(), RegionError> {
        let Some((segment, from)) = self.at else { return Ok(()) };
        let segment_bytes = core.ledger.geometry().segment_bytes;
        let piece_bytes = (segment_bytes / 4).min(PIECE_BYTES_MAX);
        let zeros = match &self.zeros {
            Some(zeros) => zeros,
            None => match AlignedBytes::in_huge_pages(piece_bytes as usize) {
                Ok(zeros) => self.zeros.insert(zeros),
                // A machine without a mebibyte to spare: commits go on as they are.
                Err(_) => return Ok(()),
            },
        };
        let at = core.layout.segment_at(segment) + from;
        core.device.write_at(at, zeros.as_slice()).map_err(|error| core.latch(&error))?;
        Counters::add(&core.stats.written_ahead_bytes, piece_bytes);
        let done = from + piece_bytes;
        self.at = (done < segment_bytes).then_some((segment, done));
        if self.at.is_none() {
            let mut appender = core.appender.lock();
            let entry = core.ledger.segment(segment);
            entry.set_written();
            if entry.state() == SegmentState::Zeroed {
                entry.set_state(SegmentState::Free);
                appender.add_free(&core.ledger, segment);
                core.note_space(&appender);
            }
        }
        Ok(())
    }
}

/// Who wrote ahead is gone: what was chosen is free.
pub(crate) fn forget_ahead(ledger: &Ledger) {
    for number in 0..ledger.segments().load(Acquire) as u32 {
        let entry = ledger.segment(number);
        if entry.state() == SegmentState::Zeroed {
            entry.set_state(SegmentState::Free);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_media::{SimClock, SimDevice};

    use super::*;
    use crate::Config;
    use crate::LaneId;
    use crate::Region;
    use crate::testing::write;
    use perdura_dirty::geometry::BLOCK_BYTES;
    use perdura_dirty::ledger::SegmentState;

    const BLOCKS: u64 = 64;

    fn config() -> Config {
        Config {
            segment_bytes: Some(64 << 10),
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            ..Config::new(BLOCKS * BLOCK_BYTES, 8 * BLOCK_BYTES)
        }
    }

    fn open(device: &SimDevice) -> Region {
        Region::open(Arc::new(device.clone()), Arc::new(SimClock::new(1_000)), config()).unwrap()
    }

    fn value(step: u64) -> u8 {
        (step % 251) as u8 + 1
    }

    fn commit(region: &Region, step: u64) {
        let offset = step * 7_919 % (BLOCKS * 64) * 1024;
        write(region, offset, &[value(step); 1024]);
        region.commit_group().unwrap();
    }

    fn zeroed(ledger: &Ledger) -> Option<u32> {
        (0..ledger.segments().load(Acquire) as u32)
            .find(|number| ledger.segment(*number).state() == SegmentState::Zeroed)
    }

    /// Commits until a segment has some of its zeros, and is missing.
    fn half_zeroed(region: &Region) -> (u32, u64) {
        let ledger = &region.core().ledger;
        for step in 0.. {
            commit(region, step);
            if let Some(segment) = zeroed(ledger) {
                return (segment, step);
            }
        }
        unreachable!()
    }

    #[test]
    fn what_commits_go_to_was_written_before_and_enough_is_left_to_the_flush() {
        let device = SimDevice::new(0, 1);
        let region = open(&device);
        let core = region.core();
        let written = |n| core.ledger.segment(n).was_written();
        let mut opened = Vec::new();
        for step in 0..2_000 {
            let free: Vec<u32> = core.appender.lock().free_segments.iter().copied().collect();
            let left = free.iter().filter(|n| written(**n)).count();
            commit(&region, step);
            let taken = free
                .into_iter()
                .filter(|n| core.ledger.segment(*n).state() == SegmentState::Used)
                .map(|n| (n, left));
            opened.extend(taken);
        }
        let reserve = core.appender.lock().reserve_segments as usize;
        let later = opened.iter().skip_while(|(_, left)| *left <= reserve);
        assert!(later.clone().count() > opened.len() / 4, "{reserve}: {opened:?}");
        assert!(later.clone().all(|(n, left)| written(*n) && *left >= reserve), "{opened:?}");
        let stats = region.stats();
        let log_bytes = region.log_bytes();
        assert!((1..=log_bytes).contains(&stats.written_ahead_bytes), "{stats:?}");
        assert!(stats.device_bytes + stats.written_ahead_bytes >= device.written_bytes() / 10 * 9);
    }

    #[test]
    fn without_group_commits_nothing_is_written_ahead() {
        let region = open(&SimDevice::new(0, 1));
        for step in 0..200 {
            write(&region, step * 1024, &[1; 1024]);
            region.checkpoint().unwrap();
        }
        assert_eq!(region.stats().written_ahead_bytes, 0);
    }

    #[test]
    fn nobody_takes_a_segment_that_gets_zeros() {
        let device = SimDevice::new(0, 1);
        let region = open(&device);
        let (segment, step) = half_zeroed(&region);
        let ledger = &region.core().ledger;
        region.drill(true, 2).unwrap();
        assert_eq!(zeroed(ledger), Some(segment), "taken by a drill");
        // Whoever wrote ahead goes on where it was.
        for step in step + 1..step + 20 {
            commit(&region, step);
        }
        assert!(ledger.segment(segment).was_written());
        let free = region.core().appender.lock().free_segments.clone();
        let mut once = free.iter().copied().collect::<Vec<_>>();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), free.len(), "free twice");

        let region = open(&SimDevice::new(0, 2));
        let (segment, _) = half_zeroed(&region);
        region.close(2).unwrap();
        assert_eq!(zeroed(&region.core().ledger), Some(segment), "taken by a flush");
    }

    #[test]
    fn who_attaches_finds_a_segment_free_that_had_got_some_of_its_zeros() {
        let device = SimDevice::new(0, 1);
        let region = open(&device);
        let (segment, last) = half_zeroed(&region);
        let (memory, ledger) = region.fds();
        let [memory, ledger] = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
        drop(region);
        let (device, clock) = (Arc::new(device), Arc::new(SimClock::new(1_000)));
        let region = Region::attach(memory, ledger, device.clone(), clock, config()).unwrap();
        let core = region.core();
        assert_eq!(core.ledger.segment(segment).state(), SegmentState::Free);
        assert!(core.appender.lock().free_segments.contains(&segment));
        commit(&region, last + 1);
        drop(region);
        let region = open(&device.power_cycle(3));
        for step in 0..=last + 1 {
            let offset = step * 7_919 % (BLOCKS * 64) * 1024;
            assert_eq!(region.lock(LaneId(0)).bytes(offset, 1024), [value(step); 1024]);
        }
    }
}
