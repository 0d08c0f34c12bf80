//! A thread's logger: the chunks of words and of objects that the thread appends to.
//!
//! Invariants:
//! - A chunk of words is zero behind the last record or group. Records follow each other; a group
//!   begins with a line and fills whole lines.
//! - A reader that meets a zero word goes on at the next line, and the log ends where a line begins
//!   with a zero word. So no part of a group that was cut off is taken for anything else.
//! - Records are fenced before a group behind them, or the next chunk, is written.
//! - The word `applied` names the groups that recovery need not put in place again, because they
//!   were copied home. The word counts as long as the caches live: within one boot, or where memory
//!   is kept.
//! - A chunk is used again only if it has no records and all of its groups are settled
//!   ([`super::settle`]).
//!
//! Of each kind a logger has two chunks where there is room. A full chunk rests until the groups of
//! other loggers from the same time are over, too, so that no other thread need be asked to end
//! them.

use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicBool, AtomicU64};

use perdura_dirty::{Held, Rank, taking};

use crate::config::Planted;
use crate::core::Core;
use crate::layout::{AT_APPLIED, AT_CLEARING, CHUNK_BYTES, CHUNK_HEAD, sealed};
use crate::memory::Memory;
use crate::sys::{LINE_BYTES, Own, Owned, Visit};

/// Bytes and lines that one thread's transactions have written to the logs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Written {
    pub word_log_bytes: u64,
    pub object_log_bytes: u64,
    pub changed_bytes: u64,
    pub prepared_lines: u64,
}

/// A full chunk that waits until its groups are settled.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Resting {
    pub chunk: u64,
    /// Sequence of the chunk's newest group.
    pub last_seq: u64,
}

impl Resting {
    /// Takes the chunk if its groups are settled, and leaves a full one in its place.
    pub fn change_for(&mut self, full: Self, settled: u64) -> Option<u64> {
        if self.chunk == 0 || self.last_seq >= settled {
            return None;
        }
        Some(std::mem::replace(self, full).chunk)
    }
}

/// A thread's logger, aligned so that it shares no line with another one: each thread writes to its
/// own logger all the time.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Logger {
    pub id: u16,
    /// A sequence that is not later than that of the logger's oldest group which is not settled;
    /// `u64::MAX` if there is no such group.
    pub oldest: AtomicU64,
    /// Whether [`LoggerState::undoing`] is set, for threads that do not visit the logger.
    is_undoing: AtomicBool,
    state: Owned<LoggerState>,
}

/// The state of a logger. Chunks are named by their offset in the heap; 0 stands for no chunk.
#[derive(Debug, Default)]
pub(crate) struct LoggerState {
    pub chunk: u64,
    /// Bytes of the chunk of words that are used.
    pub at: u64,
    /// Bytes of the chunk of words that were written back.
    pub(super) flushed: u64,
    /// Bytes of the chunk of words that its owner has written back and fenced.
    pub(super) fenced: u64,
    /// Whether the chunk of words has a record, or a part of a group that began in the chunk
    /// before. Such a chunk must stay until it is folded.
    pub(super) has_records: bool,
    /// Sequence of the newest group.
    pub(super) last_seq: u64,
    pub(super) resting: Resting,
    pub(super) objects: u64,
    pub(super) objects_at: u64,
    pub(super) resting_objects: Resting,
    /// Full chunks of words that must stay until they are folded.
    pub closed: Vec<u64>,
    /// Full chunks of objects that must stay until they are folded.
    pub closed_objects: Vec<u64>,
    /// Ranges that groups have changed and that were not written back yet, by offset and length.
    pub homes: Vec<(u64, u32)>,
    /// Sequence of the transaction that has changed memory in place and may have to be undone from
    /// this log.
    pub(super) undoing: Option<u64>,
    /// Where in the chunk of words the group begins that is being written.
    pub(super) group_at: Option<u64>,
    /// Bytes and lines that transactions have written to this log.
    pub written: Written,
    /// Words of the piece of a group that is being made; kept for its capacity.
    pub words: Vec<u64>,
}

impl Logger {
    pub fn new(id: u16) -> Self {
        Self {
            id,
            oldest: AtomicU64::new(u64::MAX),
            is_undoing: AtomicBool::new(false),
            state: Owned::default(),
        }
    }

    /// The state, for the thread whose log this is.
    #[inline]
    pub fn own(&self) -> Own<'_, LoggerState> {
        self.state.own()
    }

    /// The state, for another thread, which must not be using its own log at the time.
    pub fn visit(&self) -> Held<Visit<'_, LoggerState>> {
        taking(Rank::Logger(self.id), || self.state.visit())
    }

    /// Whether an undo transaction is open. Only the thread whose log this is can rely on the
    /// answer.
    pub fn is_undoing(&self) -> bool {
        self.is_undoing.load(Relaxed)
    }

    /// Notes the sequence of an undo transaction that begins to change memory in place, or `None`
    /// when the transaction has ended.
    pub fn set_undoing(&self, state: &mut LoggerState, undoing: Option<u64>) {
        state.undoing = undoing;
        self.is_undoing.store(undoing.is_some(), Relaxed);
    }
}

impl LoggerState {
    /// Sequence of the undo transaction that is open.
    pub fn undoing(&self) -> Option<u64> {
        self.undoing
    }

    /// Notes that a piece contains records.
    pub fn note_records(&mut self) {
        self.has_records = true;
    }

    /// Notes a range that a durable group has changed, and that must be written back before the
    /// group is settled.
    pub fn note_home(&mut self, offset: u64, len: u64) {
        self.homes.push((offset, len as u32));
    }

    /// Notes in the chunk that all its groups so far were copied home.
    pub fn note_applied(&self, memory: &Memory) {
        memory.store_word(self.chunk + AT_APPLIED, sealed(self.last_seq));
    }

    /// The end of a chunk for records and groups: while an undo transaction is open, the last line
    /// is kept for the note that the transaction was undone.
    pub(super) fn end(&self) -> u64 {
        CHUNK_BYTES - if self.undoing.is_some() { LINE_BYTES } else { 0 }
    }

    /// Notes that the group which was being written is complete, or is given up.
    pub fn end_group(&mut self) {
        self.group_at = None;
    }

    /// Writes back all words that were appended. They are durable after the owner's next fence.
    pub(super) fn write_records_back(&mut self, memory: &Memory) {
        memory.flush(self.chunk + self.flushed, self.at - self.flushed);
        self.flushed = self.at;
    }

    pub(super) fn make_records_durable(&mut self, memory: &Memory) {
        if self.fenced < self.at {
            self.write_records_back(memory);
            memory.fence();
            self.fenced = self.at;
        }
    }

    /// Writes back all words that the owner has not fenced, for a visitor: a visitor's fence does
    /// not cover lines that the owner has written back.
    pub fn write_unfenced_back(&self, memory: &Memory) {
        memory.flush(self.chunk + self.fenced, self.at - self.fenced);
    }

    /// Clears a chunk that has nothing that must stay, and uses it again.
    pub fn begin_again(&mut self, core: &Core, chunk: u64) {
        let memory = &core.memory;
        if !core.config.planted.is(Planted::ClearUnmarked) {
            memory.persist_word(chunk + AT_CLEARING, sealed(1));
        }
        memory.zero(chunk + CHUNK_HEAD, CHUNK_BYTES - CHUNK_HEAD);
        memory.persist_word(chunk + AT_CLEARING, sealed(0));
        self.written.prepared_lines += (CHUNK_BYTES - CHUNK_HEAD) / LINE_BYTES + 2;
        self.start_at(chunk);
    }

    pub(super) fn start_at(&mut self, chunk: u64) {
        self.chunk = chunk;
        self.at = CHUNK_HEAD;
        (self.flushed, self.fenced) = (CHUNK_HEAD, CHUNK_HEAD);
        self.has_records = false;
    }

    /// Takes all chunks out of use, so that they can be folded. Returns those of words and those of
    /// objects.
    pub fn detach(&mut self) -> (Vec<u64>, Vec<u64>) {
        let mut words = std::mem::take(&mut self.closed);
        words.extend([self.resting.chunk, self.chunk].iter().filter(|chunk| **chunk != 0));
        let mut objects = std::mem::take(&mut self.closed_objects);
        objects.extend([self.resting_objects.chunk, self.objects].iter().filter(|c| **c != 0));
        (self.resting, self.resting_objects) = Default::default();
        (self.chunk, self.objects, self.objects_at) = (0, 0, 0);
        (self.at, self.flushed, self.fenced) = (0, 0, 0);
        self.has_records = false;
        (words, objects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resting_chunk_is_used_when_its_groups_are_settled() {
        let full = Resting { chunk: 7 << 16, last_seq: 90 };
        for (chunk, last_seq, is_used) in
            [(0, 0, false), (3 << 16, 49, true), (3 << 16, 50, false), (3 << 16, 51, false)]
        {
            let mut resting = Resting { chunk, last_seq };
            assert_eq!(resting.change_for(full, 50), is_used.then_some(chunk));
            let left = if is_used { (full.chunk, 90) } else { (chunk, last_seq) };
            assert_eq!((resting.chunk, resting.last_seq), left);
        }
    }

    #[test]
    fn all_chunks_of_a_log_are_taken_out_of_use_at_once() {
        let chunks = |n: u64| (0..n).map(|chunk| chunk << 16).collect::<Vec<_>>();
        let mut state = LoggerState {
            chunk: 1 << 16,
            at: 640,
            flushed: 640,
            fenced: 128,
            has_records: true,
            resting: Resting { chunk: 2 << 16, last_seq: 5 },
            objects: 3 << 16,
            objects_at: 128,
            resting_objects: Resting { chunk: 4 << 16, last_seq: 5 },
            closed: vec![5 << 16, 6 << 16],
            closed_objects: vec![7 << 16],
            ..LoggerState::default()
        };
        let (words, objects) = state.detach();
        let mut all = [words.clone(), objects.clone()].concat();
        all.sort_unstable();
        assert_eq!(all, chunks(8)[1..]);
        assert_eq!((words.len(), objects.len()), (4, 3));
        // Nothing is left, and a log without chunks has none to give.
        assert_eq!(state.detach(), (vec![], vec![]));
        assert_eq!((state.at, state.flushed, state.fenced, state.objects_at), (0, 0, 0, 0));
        assert!(!state.has_records && state.end() == CHUNK_BYTES);
        state.undoing = Some(1);
        assert_eq!(state.end(), CHUNK_BYTES - LINE_BYTES);
    }
}
