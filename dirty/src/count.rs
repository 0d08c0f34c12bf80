//! Counting live bytes anew from the locations of all grains: after a flush, or after a kill
//! between two counters.

use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use crate::error::SetupError;
use crate::ledger::{Ledger, SegmentState};
use crate::locations::{NO_LOCATION, for_runs};
use rustix::io::Errno;

/// Bytes of locations that are read at a time.
const PIECE_BYTES: usize = 512 << 10;
/// Pieces that are worth one thread more.
const PIECES_PER_THREAD: usize = 16;
const THREADS_MAX: usize = 4;

/// Sets the live bytes of all segments. Locations are read as a file and not through the mapping:
/// for a large region this is several times faster than page faults, and pages that were never
/// written get no memory.
pub fn count_live(ledger: &Ledger) -> Result<(), SetupError> {
    let segments = ledger.segments().load(Acquire) as u32;
    let grain_bytes = ledger.geometry().grain_bytes();
    let location_bytes = ledger.location_bytes();
    let end = ledger.region_bytes().load(Acquire) / grain_bytes * location_bytes;
    let end = end as usize;
    let grains: Vec<AtomicU64> = (0..segments).map(|_| AtomicU64::new(0)).collect();
    let next = AtomicUsize::new(0);
    let wrong =
        |source: Errno| SetupError::Memory { what: "ledger", len_bytes: end as u64, source };
    let count = || -> Result<(), Errno> {
        let mut bytes = vec![0; PIECE_BYTES];
        loop {
            let from = next.fetch_add(PIECE_BYTES, Relaxed);
            let Some(len) = end.checked_sub(from).filter(|len| *len > 0) else { return Ok(()) };
            let piece = &mut bytes[..len.min(PIECE_BYTES)];
            ledger.read_locations(from as u64, piece)?;
            for_runs(location_bytes, piece, |location, len| {
                // A location that does not exist is passed over here; its use asserts it.
                if location != NO_LOCATION
                    && let Some(grains) = grains.get(location as usize - 1)
                {
                    grains.fetch_add(len, Relaxed);
                }
            });
        }
    };
    let threads = (end / PIECE_BYTES / PIECES_PER_THREAD).clamp(1, THREADS_MAX);
    std::thread::scope(|scope| {
        let spawn = || std::thread::Builder::new().spawn_scoped(scope, count).ok();
        let helpers: Vec<_> = (1..threads).filter_map(|_| spawn()).collect();
        let own = count();
        helpers.into_iter().fold(own, |outcome, helper| match helper.join() {
            Ok(theirs) => outcome.and(theirs),
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
    .map_err(wrong)?;
    for (number, grains) in (0..segments).zip(grains) {
        let (entry, live_bytes) = (ledger.segment(number), grains.into_inner() * grain_bytes);
        entry.live_bytes().store(live_bytes, Relaxed);
        // The last commit may still need a segment without live bytes; the next commit frees it.
        if live_bytes > 0 {
            entry.set_state(SegmentState::Used);
        }
    }
    ledger.uncounted().store(0, Release);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::Extent;
    use crate::geometry::{BLOCK_BYTES, GRAIN_SHIFT_BARRIER, Geometry};

    /// More locations than a piece has, in an odd number of pieces and a rest, of two bytes and of
    /// four each.
    #[test]
    fn every_grain_counts_for_its_segment_once_in_whichever_piece_its_location_lies() {
        for (segment_bytes, location_bytes) in [(None, 2), (Some(64 << 10), 4)] {
            let reserved_bytes = 1 << 30;
            let shift = GRAIN_SHIFT_BARRIER;
            let geometry = Geometry::new(reserved_bytes, shift, segment_bytes, 4).unwrap();
            let piece_grains = PIECE_BYTES as u64 / location_bytes;
            let region_bytes = ((5 * piece_grains) << shift) + BLOCK_BYTES;
            let ledger = Ledger::create(geometry, 7, region_bytes).unwrap();
            assert_eq!(ledger.location_bytes(), location_bytes);
            ledger.segments().store(6, Relaxed);
            ledger.uncounted().store(1, Relaxed);
            (0..6).for_each(|number| ledger.segment(number).live_bytes().store(99, Relaxed));
            let last = region_bytes >> shift;
            for (grain, len, segment) in [
                (0, 1, 0),
                (7, 5, 4),
                (piece_grains - 3, 8, 1),
                (3 * piece_grains, 1, 1),
                (4 * piece_grains + 9, 2, 0),
                (last - 1, 1, 4),
                // Beyond the region, and beyond the log.
                (last, 1, 1),
                (last - 9, 2, 6),
            ] {
                ledger.locations().set(Extent { grain, len }, segment + 1);
            }
            count_live(&ledger).unwrap();
            let segments = || (0..6).map(|number| ledger.segment(number));
            let live: Vec<_> = segments().map(|entry| entry.live_bytes().load(Relaxed)).collect();
            assert_eq!(live, [3, 9, 0, 0, 6, 0].map(|grains| grains << shift));
            let used: Vec<_> = segments().map(|entry| entry.state()).collect();
            let (used_now, free) = (SegmentState::Used, SegmentState::Free);
            assert_eq!(used, [used_now, used_now, free, free, used_now, free]);
            assert_eq!(ledger.uncounted().load(Relaxed), 0);
        }
    }
}
