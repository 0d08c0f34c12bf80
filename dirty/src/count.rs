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
