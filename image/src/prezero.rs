//! Prezeroing: free segments are filled with zeros before the log goes there, so that a thread
//! which waits for a durable frame waits half as long.
//!
//! A file system keeps a journal of the reserved space that has been written. A durable write to
//! unwritten space waits for the journal, too. So, once group commits are single durable writes,
//! zeros are written to the next few free segments in the background, a piece at a time.
//!
//! A segment that is being prezeroed is neither free nor used, in the ledger, too. It is chosen
//! under the cleaner's lock (which a flush, a drill and a proof hold while they choose segments),
//! written under no such lock, and free again only afterwards. The write is a system call, so after
//! a kill none is on its way. Zeros are no frame: a segment with some of them is as free as before.

use std::sync::atomic::Ordering::*;

use crate::backed::Backed;
use perdura_dirty::planted::Planted;
use perdura_dirty::sys::AlignedBytes;
use perdura_dirty::{Counters, Ledger, RegionError, SegmentState};

/// Bytes of free segments beyond the emergency reserve that are kept prezeroed: half a second of
/// commits at 64 MiB/s.
const PREZEROED_BYTES: u64 = 32 << 20;
/// Most bytes that are prezeroed for each byte that a single-write commit has written, because
/// large commits gain little from it.
const SHARE: u64 = 8;
/// Most bytes that are written at a time, because a commit may have to wait for them.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// The state of prezeroing.
#[derive(Debug, Default)]
pub struct Prezeroing {
    /// The segment that is being prezeroed, and how many of its bytes are done.
    at: Option<(u32, u64)>,
    /// A piece of zeros, allocated at the first need.
    zeros: Option<AlignedBytes>,
}

impl Prezeroing {
    /// Chooses the segment to be prezeroed next, under the cleaner's lock. `single_bytes` were
    /// written by commits of a single durable write and have not led to prezeroing yet.
    pub fn choose(&mut self, backed: &Backed, single_bytes: &mut u64) {
        let due_bytes = backed.memory.ledger.geometry().segment_bytes / SHARE;
        // After a failure nothing is committed any more, and the list of free segments may name
        // some that a failed flush has taken.
        if backed.memory.check().is_ok()
            && self.at.is_none()
            && *single_bytes >= due_bytes
            && let Some(segment) = take_unwritten(backed)
        {
            // Older bytes are forgotten, because they say nothing about the commits to come.
            *single_bytes = (*single_bytes - due_bytes).min(PREZEROED_BYTES / SHARE);
            self.at = Some((segment, 0));
        }
    }

    /// Writes a piece of zeros to the chosen segment, if there is one.
    pub fn write_piece(&mut self, backed: &Backed) -> Result<(), RegionError> {
        let Some((segment, from)) = self.at else { return Ok(()) };
        let segment_bytes = backed.memory.ledger.geometry().segment_bytes;
        let piece_bytes = (segment_bytes / 4).min(PIECE_BYTES_MAX);
        let zeros = match &self.zeros {
            Some(zeros) => zeros,
            None => match AlignedBytes::in_huge_pages(piece_bytes as usize) {
                Ok(zeros) => self.zeros.insert(zeros),
                // The machine has no mebibyte to spare, so commits go without prezeroing.
                Err(_) => return Ok(()),
            },
        };
        let at = backed.log.layout.segment_at(segment) + from;
        backed
            .log
            .device
            .write_at(at, zeros.as_slice())
            .map_err(|error| backed.memory.latch(&error))?;
        Counters::add(&backed.memory.stats.prezeroed_bytes, piece_bytes);
        let done = from + piece_bytes;
        self.at = (done < segment_bytes).then_some((segment, done));
        if self.at.is_none() {
            let mut appender = backed.log.appender.lock();
            let entry = backed.memory.ledger.segment(segment);
            entry.set_written();
            if entry.state() == SegmentState::Zeroed {
                entry.set_state(SegmentState::Free);
                appender.add_free(&backed.memory.ledger, segment);
                backed.note_space(&appender);
            }
        }
        Ok(())
    }
}

/// Takes the first unwritten segment in the order of use, if too few written ones come before it.
fn take_unwritten(backed: &Backed) -> Option<u32> {
    let ledger = &backed.memory.ledger;
    let clean = backed.space().spare_wanted();
    let mut appender = backed.log.appender.lock();
    let (written, unwritten) = appender.next_unwritten(ledger)?;
    let ahead = (PREZEROED_BYTES / ledger.geometry().segment_bytes).max(2);
    let enough = u64::from(appender.reserve_segments) + ahead;
    // The segment is missing meanwhile, which must not make anybody make space.
    if written as u64 >= enough || appender.spare_segments() <= clean + 1 {
        return None;
    }
    if !backed.memory.planted.is(Planted::ZeroUntaken) {
        appender.free_segments.remove(written);
        ledger.segment(unwritten).set_state(SegmentState::Zeroed);
        backed.note_space(&appender);
    }
    Some(unwritten)
}

/// Frees the segments that a process which is gone was prezeroing.
pub fn forget_prezeroing(ledger: &Ledger) {
    for number in 0..ledger.segments().load(Acquire) as u32 {
        let entry = ledger.segment(number);
        if entry.state() == SegmentState::Zeroed {
            entry.set_state(SegmentState::Free);
        }
    }
}
