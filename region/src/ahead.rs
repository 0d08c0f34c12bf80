//! Writing free segments before the log goes into them, so that who waits for a durable frame waits half as long.
//!
//! A file system keeps a journal of which reserved space has been written. A durable write into such as was not waits for the
//! journal, too. So zeros are written behind the clients' backs, a piece at a time, to the next few free segments, once
//! group commits are single durable writes.
//!
//! A segment that gets its zeros is neither free nor used, in the ledger, too: it is chosen under the cleaner's lock (a
//! flush, a drill and a proof hold it while they choose theirs), written under nobody's, and is for the taking only
//! afterwards. The write is a system call that a kill does not outlive, so whoever attaches finds none on its way. Zeros
//! are no frame; a segment that got some of them is as free as before.

use std::sync::atomic::Ordering::*;

use parking_lot::MutexGuard;

use crate::clean::Cleaner;
use crate::core::Core;
use crate::error::RegionError;
use crate::ledger::{Ledger, SEGMENT_FREE, SEGMENT_ZEROED};
use crate::planted::Planted;
use crate::stats::Counters;
use crate::sys::AlignedBytes;

/// So much of the free space is kept written: half a second of commits at 64 MiB/s.
const AHEAD_BYTES: u64 = 32 << 20;
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
    pub fn choose_ahead(&self, _cleaner: &Cleaner) -> MutexGuard<'_, Ahead> {
        let mut ahead = self.ahead.lock();
        if ahead.at.is_none() {
            ahead.at = self.take_unwritten().map(|segment| (segment, 0));
        }
        ahead
    }

    /// The free segment that would be the first to be used without having been written, if too few come before it.
    fn take_unwritten(&self) -> Option<u32> {
        let clean = self.spare_wanted();
        let mut appender = self.appender.lock();
        let (written, unwritten) = appender.next_unwritten(&self.ledger)?;
        let enough = (AHEAD_BYTES / self.ledger.geometry().segment_bytes).max(2);
        // It is missing meanwhile: nobody must have to make space for that.
        if written as u64 >= enough || appender.spare_segments() <= clean + 1 {
            return None;
        }
        if self.planted != Planted::ZeroUntaken {
            appender.free_segments.remove(written);
            self.ledger.segment(unwritten).set_state(SEGMENT_ZEROED);
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
            if entry.state() == SEGMENT_ZEROED {
                entry.set_state(SEGMENT_FREE);
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
        if entry.state() == SEGMENT_ZEROED {
            entry.set_state(SEGMENT_FREE);
        }
    }
}
