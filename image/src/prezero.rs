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

use crate::backed::Backed;
use perdura_dirty::planted::Planted;
use perdura_dirty::sys::AlignedBytes;
use perdura_dirty::{Counters, Ledger, RegionError, SegmentState};

/// So much of the free space beyond the emergency reserve is kept written: half a second of commits
/// at 64 MiB/s.
const PREZEROED_BYTES: u64 = 32 << 20;
/// At most so many bytes for each that such a commit has written: large commits gain little by it,
/// and pay for the device.
const SHARE: u64 = 8;
/// Written at a time, at most: a commit may have to wait for as much.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// What is being prezeroed.
#[derive(Debug, Default)]
pub struct Prezeroing {
    /// The segment, and how much of it has its zeros.
    at: Option<(u32, u64)>,
    /// A piece of zeros, from the first need on.
    zeros: Option<AlignedBytes>,
}

impl Prezeroing {
    /// Chooses what is to be prezeroed next, under the cleaner's lock. `single_bytes`: written
    /// by commits that were single durable writes, as far as they have not led to this yet.
    pub fn choose(&mut self, backed: &Backed, single_bytes: &mut u64) {
        let due_bytes = backed.memory.ledger.geometry().segment_bytes / SHARE;
        if self.at.is_none()
            && *single_bytes >= due_bytes
            && let Some(segment) = take_unwritten(backed)
        {
            // What was not used up in time says nothing about commits to come.
            *single_bytes = (*single_bytes - due_bytes).min(PREZEROED_BYTES / SHARE);
            self.at = Some((segment, 0));
        }
    }

    /// Writes a piece of what was chosen, if anything was.
    pub fn write_piece(&mut self, backed: &Backed) -> Result<(), RegionError> {
        let Some((segment, from)) = self.at else { return Ok(()) };
        let segment_bytes = backed.memory.ledger.geometry().segment_bytes;
        let piece_bytes = (segment_bytes / 4).min(PIECE_BYTES_MAX);
        let zeros = match &self.zeros {
            Some(zeros) => zeros,
            None => match AlignedBytes::in_huge_pages(piece_bytes as usize) {
                Ok(zeros) => self.zeros.insert(zeros),
                // A machine without a mebibyte to spare: commits go on as they are.
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

/// The free segment that would be the first to be used without having been written, if too few come
/// before it.
fn take_unwritten(backed: &Backed) -> Option<u32> {
    let ledger = &backed.memory.ledger;
    let clean = backed.space().spare_wanted();
    let mut appender = backed.log.appender.lock();
    let (written, unwritten) = appender.next_unwritten(ledger)?;
    let ahead = (PREZEROED_BYTES / ledger.geometry().segment_bytes).max(2);
    let enough = u64::from(appender.reserve_segments) + ahead;
    // It is missing meanwhile: nobody must have to make space for that.
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

/// The process that prezeroed is gone: segments that it had chosen are free.
pub fn forget_prezeroing(ledger: &Ledger) {
    for number in 0..ledger.segments().load(Acquire) as u32 {
        let entry = ledger.segment(number);
        if entry.state() == SegmentState::Zeroed {
            entry.set_state(SegmentState::Free);
        }
    }
}
