//! One thread's end of the logs: a chunk of words, a chunk of objects.
//!
//! Invariants: a chunk of words is zero behind what was appended. Records follow each other; a
//! group begins with a line and fills whole ones. Where a reader meets a zero word it goes on at
//! the next line, and where a line begins with one the log ends: of a group cut off anywhere no
//! part is taken for anything else. Records are fenced before a group behind them, or the next
//! chunk, is written. `applied` says which groups recovery need not put in place again because they
//! were copied home, which counts as long as the caches live: within one boot, or where memory is
//! kept. A chunk is used again only when all of its groups are settled ([`super::settle`]), and it
//! has no records. Of each kind a log has two where there is room: one that is full rests until the
//! others' groups of its time are over, too, and so nobody need be asked to end them.

use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::fold::{Fold, fold_soon};
use super::group::{PIECE_WORDS_MAX, seal};
use super::settle::{advance, settle, write_back};
use super::{Written, logs_keep, objects_keep};
use crate::core::Core;
use crate::engine::classes::SPAN_BYTES;
use crate::engine::{Kind, NoMemory};
use crate::layout::{
    AT_APPLIED, AT_CLEARING, CHUNK_BYTES, CHUNK_HEAD, GROUP_UNDONE, Record, SpanWord, sealed,
};
use crate::sys::{LINE_BYTES, Own, Owned, Visit, prefetch_for_write};

/// As many home ranges are written back together.
const HOMES_MAX: usize = 128;

/// A full chunk that waits until its groups are settled; at zero: none.
#[derive(Debug, Default, Clone, Copy)]
struct Resting {
    chunk: u64,
    /// Of its newest group.
    last_seq: u64,
}

impl Resting {
    /// Takes the chunk, if its groups are over, and leaves another in its place.
    fn change_for(&mut self, full: Self, settled: u64) -> Option<u64> {
        if self.chunk == 0 || self.last_seq >= settled {
            return None;
        }
        Some(std::mem::replace(self, full).chunk)
    }
}

/// A thread's logs. Apart from other threads': each of them writes to its own all the time.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Logger {
    pub id: u16,
    /// No later than its oldest group that is not settled; `u64::MAX`: there is none.
    pub oldest: AtomicU64,
    /// As [`LoggerState::undoing`], for who does not want to visit.
    is_undoing: AtomicBool,
    state: Owned<LoggerState>,
}

/// Positions are offsets in the heap; zero: no chunk.
#[derive(Debug, Default)]
pub(crate) struct LoggerState {
    pub chunk: u64,
    /// Bytes of the chunk that are used.
    pub at: u64,
    /// Bytes of it that were written back.
    flushed: u64,
    /// Bytes of it that its owner has fenced since.
    fenced: u64,
    /// A record since the chunk was begun, or a part of a group that began before it: it must stay
    /// until it is folded.
    has_records: bool,
    /// Of the newest group.
    last_seq: u64,
    resting: Resting,
    objects: u64,
    objects_at: u64,
    resting_objects: Resting,
    /// Chunks that are full, and must stay until they are folded.
    pub closed: Vec<u64>,
    /// Object chunks likewise.
    pub closed_objects: Vec<u64>,
    /// Home ranges of groups that were not written back yet.
    pub homes: Vec<(u64, u32)>,
    /// A transaction, by its sequence, has changed memory in place, and may have to be undone from
    /// this log.
    undoing: Option<u64>,
    /// Where in the chunk the group begins that is being written.
    group_at: Option<u64>,
    /// What transactions cost.
    pub written: Written,
    /// Words of the piece that is being made; kept for its capacity.
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

    /// For the thread whose log this is.
    #[inline]
    pub fn own(&self) -> Own<'_, LoggerState> {
        self.state.own()
    }

    /// For a thread that uses none of its own logs at the time.
    pub fn visit(&self) -> Visit<'_, LoggerState> {
        self.state.visit()
    }

    /// Appends a record; durable when this returns if `is_durable`, together with all appended
    /// before.
    ///
    /// # Errors
    /// There is no room for the log; nothing was recorded.
    #[inline]
    pub fn record(&self, core: &Core, record: Record, is_durable: bool) -> Result<(), NoMemory> {
        let mut state = self.own();
        if state.chunk == 0 || state.at >= state.end() {
            state = self.with_room(core, state, |state| self.next_chunk(core, state))?;
        }
        let memory = &core.memory;
        memory.store_word(state.chunk + state.at, record.encode());
        state.at += 8;
        state.has_records = true;
        if state.at.is_multiple_of(LINE_BYTES) {
            // Chunks are zeroed past the caches.
            prefetch_for_write(memory.base().wrapping_add((state.chunk + state.at) as usize));
        }
        if is_durable {
            state.write_records_back(core);
            // Who visits before that fence has no reason to wait for this record: nobody knows of
            // it.
            state.fenced = state.at;
            drop(state);
            memory.fence();
        } else if state.at.is_multiple_of(LINE_BYTES) {
            state.write_records_back(core);
        }
        Ok(())
    }

    /// Makes all that was appended durable.
    pub fn drain(&self, core: &Core) {
        let mut state = self.own();
        state.write_records_back(core);
        state.fenced = state.at;
        drop(state);
        core.memory.fence();
    }

    /// Runs `f`, which takes room for the log; if there is none, once more after a fold, which
    /// gives some back.
    fn with_room<'l>(
        &'l self,
        core: &Core,
        mut state: Own<'l, LoggerState>,
        f: impl Fn(&mut LoggerState) -> Result<(), NoMemory>,
    ) -> Result<Own<'l, LoggerState>, NoMemory> {
        if let Err(error) = f(&mut state) {
            let folded = if state.undoing.is_some() {
                core.logs.ask_for_fold();
                Fold::Busy
            } else {
                drop(state);
                fold_soon(core)?
            };
            if folded == Fold::Busy {
                return Err(error);
            }
            state = self.own();
            f(&mut state)?;
        }
        Ok(state)
    }

    /// Begins a new chunk of words. The old one stays if it has what must; else it is used again.
    fn next_chunk(&self, core: &Core, state: &mut LoggerState) -> Result<(), NoMemory> {
        if state.chunk != 0 {
            // Before anything in the next chunk can be durable.
            state.make_records_durable(core);
            let is_settled = state.last_seq < core.logs.settled.load(Acquire);
            if !state.has_records && state.group_at.is_none() && is_settled {
                state.begin_again(core, state.chunk);
                return Ok(());
            }
        }
        let old = state.chunk;
        self.take_chunk(core, state)?;
        if old != 0 {
            state.closed.push(old);
        }
        core.note_chunk(old != 0);
        // The pieces of a group that lie in the chunk before stay there, and so must the others.
        state.has_records = state.group_at.is_some();
        state.group_at = state.group_at.map(|_| CHUNK_HEAD);
        Ok(())
    }

    /// Begins a chunk of words that the log did not have; what becomes of the last one is the
    /// caller's business.
    fn take_chunk(&self, core: &Core, state: &mut LoggerState) -> Result<(), NoMemory> {
        let memory = &core.memory;
        let span = core.engine.take_spans(Kind::Persistent, 1, logs_keep(core))?;
        let chunk = span * SPAN_BYTES;
        memory.zero(chunk, CHUNK_BYTES);
        memory.store_word(chunk + AT_CLEARING, sealed(0));
        memory.store_word(chunk + AT_APPLIED, sealed(0));
        memory.flush(chunk, CHUNK_HEAD);
        memory.fence();
        let generation = core.logs.generation_bits();
        let word = SpanWord::Log { logger: self.id, generation };
        memory.persist_word(core.layout.table_word(span), word.encode());
        state.written.prepared_lines += CHUNK_BYTES / LINE_BYTES + 2;
        state.start_at(chunk);
        Ok(())
    }

    /// Begins a group of about `words` words whose objects take `object_bytes` of lines in all.
    pub fn begin_group(
        &self,
        core: &Core,
        words: usize,
        object_bytes: u64,
    ) -> Result<Own<'_, LoggerState>, NoMemory> {
        // A chunk cannot be used again with a group in it, so it is looked for now.
        let len = words.min(PIECE_WORDS_MAX) as u64 * 8 + 2 * LINE_BYTES;
        let mut state = self.own();
        let is_full = |state: &LoggerState| state.chunk == 0 || state.at + len > CHUNK_BYTES;
        let may_clear =
            |state: &LoggerState| state.chunk != 0 && is_full(state) && !state.has_records;
        let may_rewind = |state: &LoggerState| {
            state.objects != 0 && state.objects_at + object_bytes > CHUNK_BYTES
        };
        let has_end = may_clear(&state) || may_rewind(&state);
        if has_end || state.homes.len() >= HOMES_MAX {
            self.write_homes_back(core, &mut state);
        }
        if has_end {
            core.logs.note_clock();
            drop(state);
            advance(core);
            state = self.own();
            if may_clear(&state) {
                self.change_chunk(core, &mut state);
            }
            if may_rewind(&state) {
                state.change_objects(core);
            }
            if may_clear(&state) || may_rewind(&state) {
                drop(state);
                settle(core);
                state = self.own();
            }
        }
        if is_full(&state) {
            state = self.with_room(core, state, |state| self.next_chunk(core, state))?;
        }
        if state.objects != 0 && state.last_seq < core.logs.settled.load(Acquire) {
            // No group needs them any more.
            state.objects_at = CHUNK_HEAD;
        }
        state.group_at = Some(state.at);
        Ok(state)
    }

    /// Writes the homes of all groups back, so that they hinder nobody's settling.
    fn write_homes_back(&self, core: &Core, state: &mut LoggerState) {
        assert!(state.undoing.is_none(), "a group begins while another may have to be undone");
        write_back(core, &mut state.homes);
        self.oldest.store(u64::MAX, Release);
    }

    /// Lets the full chunk of words rest, and begins the one that rested if that may be used again,
    /// or a second one if there is plenty of room. Otherwise nothing changes.
    fn change_chunk(&self, core: &Core, state: &mut LoggerState) {
        let full = Resting { chunk: state.chunk, last_seq: state.last_seq };
        let settled = core.logs.settled.load(Acquire);
        if let Some(chunk) = state.resting.change_for(full, settled) {
            state.begin_again(core, chunk);
        } else if state.resting.chunk == 0
            && has_plenty(core)
            && self.take_chunk(core, state).is_ok()
        {
            state.resting = full;
            core.note_chunk(false);
        }
    }

    /// Whether an undo transaction is open. A hint, but for the thread whose log it is.
    pub fn is_undoing(&self) -> bool {
        self.is_undoing.load(Relaxed)
    }

    /// From now on memory changes in place, and may have to be put back from this log; `None`: no
    /// longer.
    pub fn set_undoing(&self, state: &mut LoggerState, undoing: Option<u64>) {
        state.undoing = undoing;
        self.is_undoing.store(undoing.is_some(), Relaxed);
    }

    /// The sequence of a group that was begun.
    pub fn draw_seq(&self, core: &Core, state: &mut LoggerState) -> u64 {
        if self.oldest.load(Relaxed) == u64::MAX {
            self.oldest.store(core.logs.clock.load(Acquire), Release);
        }
        state.last_seq = core.logs.clock.fetch_add(1, SeqCst);
        state.last_seq
    }

    /// Room for `len` bytes of an object in the object log: whole lines.
    pub fn place_object(
        &self,
        core: &Core,
        state: &mut LoggerState,
        len: u64,
    ) -> Result<u64, NoMemory> {
        let mut at = state.objects_at;
        if state.objects == 0 || at + len > CHUNK_BYTES {
            let span = core.engine.take_spans(Kind::Persistent, 1, logs_keep(core))?;
            let generation = core.logs.generation_bits();
            let word = SpanWord::Objects { logger: self.id, generation };
            core.memory.persist_word(core.layout.table_word(span), word.encode());
            let has_closed = state.objects != 0;
            if has_closed {
                state.closed_objects.push(state.objects);
            }
            state.objects = span * SPAN_BYTES;
            // Its span word.
            state.written.prepared_lines += 1;
            core.note_chunk(has_closed);
            at = CHUNK_HEAD;
        }
        state.objects_at = (at + len).next_multiple_of(LINE_BYTES);
        Ok(state.objects + at)
    }

    /// Appends a piece of a group: head and entries in `state.words`, whose first
    /// [`super::group::HEAD_WORDS`] are free. It fills whole lines and is durable after a fence.
    pub fn append_piece(
        &self,
        core: &Core,
        state: &mut LoggerState,
        piece: PieceHead,
    ) -> Result<(), NoMemory> {
        assert!(state.words.len() <= PIECE_WORDS_MAX + 8, "a piece of {} words", state.words.len());
        let padded = (state.words.len() as u64 * 8).next_multiple_of(LINE_BYTES);
        let end = if piece.flags & GROUP_UNDONE == 0 { state.end() } else { CHUNK_BYTES };
        if state.chunk == 0 || state.at.next_multiple_of(LINE_BYTES) + padded > end {
            self.next_chunk(core, state)?;
        }
        // A reader goes on behind what is missing of a line: what was recorded before must not be.
        state.make_records_durable(core);
        state.at = state.at.next_multiple_of(LINE_BYTES);
        let mut words = std::mem::take(&mut state.words);
        words.resize((padded / 8) as usize, 0);
        seal(&mut words, piece.seq, piece.index, piece.flags, piece.objects_sum);
        core.memory.write_lines(state.chunk + state.at, zerocopy::IntoBytes::as_bytes(&*words));
        state.words = words;
        state.at += padded;
        // The group's own fence follows: nothing is recorded before it.
        (state.flushed, state.fenced) = (state.at, state.at);
        state.written.word_log_bytes += padded;
        Ok(())
    }
}

/// Whether chunks may rest: there is room for all that logs and objects may need first.
fn has_plenty(core: &Core) -> bool {
    core.engine.free_for_persistent() > 4 * objects_keep(core, core.logs.count())
}

/// What stands at the head of a piece.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PieceHead {
    pub seq: u64,
    pub index: u32,
    pub flags: u8,
    pub objects_sum: u64,
}

impl LoggerState {
    /// See [`Logger::set_undoing`].
    pub fn undoing(&self) -> Option<u64> {
        self.undoing
    }

    /// Notes that a piece contains records.
    pub fn note_records(&mut self) {
        self.has_records = true;
    }

    /// A range was changed by a group that is durable: to be written back before the group is
    /// settled.
    pub fn note_home(&mut self, offset: u64, len: u64) {
        self.homes.push((offset, len as u32));
    }

    /// Says that all groups so far were copied home.
    pub fn note_applied(&self, core: &Core) {
        core.memory.store_word(self.chunk + AT_APPLIED, sealed(self.last_seq));
    }

    /// Where a chunk ends for all but the line that says that a transaction was undone: there is
    /// always room for that.
    fn end(&self) -> u64 {
        CHUNK_BYTES - if self.undoing.is_some() { LINE_BYTES } else { 0 }
    }

    /// The group is complete, or given up.
    pub fn end_group(&mut self) {
        self.group_at = None;
    }

    /// Writes back what was appended; durable after the owner's fence.
    fn write_records_back(&mut self, core: &Core) {
        core.memory.flush(self.chunk + self.flushed, self.at - self.flushed);
        self.flushed = self.at;
    }

    fn make_records_durable(&mut self, core: &Core) {
        if self.fenced < self.at {
            self.write_records_back(core);
            core.memory.fence();
            self.fenced = self.at;
        }
    }

    /// For a visitor, whose fence does not cover what the owner has written back: writes back what
    /// was not fenced.
    pub fn write_unfenced_back(&self, core: &Core) {
        core.memory.flush(self.chunk + self.fenced, self.at - self.fenced);
    }

    /// As [`Logger::change_chunk`], for the object log.
    fn change_objects(&mut self, core: &Core) {
        let full = Resting { chunk: self.objects, last_seq: self.last_seq };
        let settled = core.logs.settled.load(Acquire);
        if let Some(chunk) = self.resting_objects.change_for(full, settled) {
            (self.objects, self.objects_at) = (chunk, CHUNK_HEAD);
        } else if self.resting_objects.chunk == 0 && has_plenty(core) {
            // The next one is taken when an object is placed.
            self.resting_objects = full;
            (self.objects, self.objects_at) = (0, 0);
        }
    }

    /// Uses a chunk again, which has nothing that must stay.
    fn begin_again(&mut self, core: &Core, chunk: u64) {
        let memory = &core.memory;
        memory.persist_word(chunk + AT_CLEARING, sealed(1));
        memory.zero(chunk + CHUNK_HEAD, CHUNK_BYTES - CHUNK_HEAD);
        memory.persist_word(chunk + AT_CLEARING, sealed(0));
        self.written.prepared_lines += (CHUNK_BYTES - CHUNK_HEAD) / LINE_BYTES + 2;
        self.start_at(chunk);
    }

    fn start_at(&mut self, chunk: u64) {
        self.chunk = chunk;
        self.at = CHUNK_HEAD;
        (self.flushed, self.fenced) = (CHUNK_HEAD, CHUNK_HEAD);
        self.has_records = false;
    }

    /// Takes all chunks out of use, to be folded: words and objects.
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
