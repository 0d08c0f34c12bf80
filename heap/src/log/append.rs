//! Appending to a thread's logs: records, groups and the bytes of objects, and the chunks that they
//! take.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use super::fold::{Fold, fold_soon};
use super::group::{PIECE_WORDS_MAX, seal};
use super::logger::{Logger, LoggerState, Resting};
use super::settle::{advance, settle, write_back};
use crate::core::Core;
use crate::engine::classes::{SPAN_BYTES, UNIT_BYTES};
use crate::engine::{Kind, NoMemory, ThreadCache};
use crate::layout::{
    AT_APPLIED, AT_CLEARING, CHUNK_BYTES, CHUNK_HEAD, GROUP_UNDONE, Record, SpanWord, sealed,
};
use crate::sys::{LINE_BYTES, Own, prefetch_for_write};

/// Most home ranges that a thread leaves to be written back together.
pub(super) const HOMES_MAX: usize = 128;

impl Core {
    /// Records that an object begins to exist; durable when this returns.
    #[inline]
    pub fn record_alloc(&self, logger: &Logger, offset: u64) -> Result<(), NoMemory> {
        if let Some(conventional) = &self.conventional {
            conventional.note(&self.memory, self.layout, offset, true);
            return Ok(());
        }
        let record = Record::Alloc { unit: offset / UNIT_BYTES, stamp: self.stamp() };
        logger.record(self, record, true)
    }

    /// Records that an object ceases to exist; durable with the thread's next durable operation.
    #[inline]
    pub fn record_free(&self, logger: &Logger, offset: u64) -> Result<(), NoMemory> {
        if let Some(conventional) = &self.conventional {
            conventional.note(&self.memory, self.layout, offset, false);
            return Ok(());
        }
        let record = Record::Free { unit: offset / UNIT_BYTES, stamp: self.stamp() };
        logger.record(self, record, false)
    }

    /// Takes back the slots of a thread that ends, and leaves its log to the next thread.
    pub fn leave(&self, cache: &ThreadCache, logger: Option<Arc<Logger>>) {
        if self.is_forked() {
            // The thread of the parent process still has them.
            return;
        }
        if let Some(logger) = &logger {
            logger.drain(self);
        }
        self.engine.flush_cache(cache);
        if let Some(logger) = logger {
            self.logs.release(logger);
        }
    }
}
/// The head of a piece of a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PieceHead {
    pub seq: u64,
    pub index: u32,
    pub flags: u8,
    pub objects_sum: u64,
}

impl Logger {
    /// Appends a record. If `is_durable`, the record is durable when this returns, and all records
    /// before it.
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
            // A chunk is zeroed past the caches, so its next line is loaded ahead.
            prefetch_for_write(memory.base().wrapping_add((state.chunk + state.at) as usize));
        }
        if is_durable {
            state.write_records_back(&core.memory);
            // A thread that visits before the fence below need not write this record back: nobody
            // knows of the record yet.
            state.fenced = state.at;
            drop(state);
            memory.fence();
        } else if state.at.is_multiple_of(LINE_BYTES) {
            state.write_records_back(&core.memory);
        }
        Ok(())
    }

    /// Makes everything that was appended durable.
    pub fn drain(&self, core: &Core) {
        let mut state = self.own();
        state.write_records_back(&core.memory);
        state.fenced = state.at;
        drop(state);
        core.memory.fence();
    }

    /// Runs `f`, which takes room for the log. If there is none, `f` runs once more after a fold,
    /// which gives room back.
    pub(super) fn with_room<'l>(
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

    /// Begins a new chunk of words. The old chunk is used again, unless it holds something that
    /// must stay.
    pub(super) fn next_chunk(&self, core: &Core, state: &mut LoggerState) -> Result<(), NoMemory> {
        if state.chunk != 0 {
            // Records must be durable before anything in the next chunk can be.
            state.make_records_durable(&core.memory);
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
        // The pieces of a group that lie in the chunk before must stay there, so the pieces in this
        // chunk must stay, too.
        state.has_records = state.group_at.is_some();
        state.group_at = state.group_at.map(|_| CHUNK_HEAD);
        Ok(())
    }

    /// Takes a chunk of words from the heap and begins it. The caller decides what becomes of the
    /// chunk before.
    fn take_chunk(&self, core: &Core, state: &mut LoggerState) -> Result<(), NoMemory> {
        let memory = &core.memory;
        let span = core.engine.take_spans(Kind::Persistent, 1, core.logs_keep())?;
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
        // A chunk that holds a part of this group cannot be used again, so chunks are changed
        // before the group begins.
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
                Self::change_objects(core, &mut state);
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
            // No group needs the objects any more.
            state.objects_at = CHUNK_HEAD;
        }
        state.group_at = Some(state.at);
        Ok(state)
    }

    /// Writes back the ranges that this log's groups have changed, so that these groups hinder no
    /// other thread's settling.
    pub(super) fn write_homes_back(&self, core: &Core, state: &mut LoggerState) {
        assert!(state.undoing.is_none(), "a group begins while another may have to be undone");
        write_back(core, &mut state.homes);
        self.oldest.store(u64::MAX, Release);
    }

    /// Lets the full chunk of words rest, and begins the chunk that rested if it can be used again,
    /// or a second chunk if there is plenty of room. Otherwise nothing changes.
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

    /// Draws the sequence of a group that was begun.
    #[inline]
    pub fn draw_seq(&self, core: &Core, state: &mut LoggerState) -> u64 {
        if self.oldest.load(Relaxed) == u64::MAX {
            self.oldest.store(core.logs.clock.load(Acquire), Release);
        }
        state.last_seq = core.logs.clock.fetch_add(1, SeqCst);
        state.last_seq
    }

    /// Takes whole lines of the object log for `len` bytes, and returns their offset.
    pub fn place_object(
        &self,
        core: &Core,
        state: &mut LoggerState,
        len: u64,
    ) -> Result<u64, NoMemory> {
        let mut at = state.objects_at;
        if state.objects == 0 || at + len > CHUNK_BYTES {
            let span = core.engine.take_spans(Kind::Persistent, 1, core.logs_keep())?;
            let generation = core.logs.generation_bits();
            let word = SpanWord::Objects { logger: self.id, generation };
            core.memory.persist_word(core.layout.table_word(span), word.encode());
            let has_closed = state.objects != 0;
            if has_closed {
                state.closed_objects.push(state.objects);
            }
            state.objects = span * SPAN_BYTES;
            // The line of the chunk's span word.
            state.written.prepared_lines += 1;
            core.note_chunk(has_closed);
            at = CHUNK_HEAD;
        }
        state.objects_at = (at + len).next_multiple_of(LINE_BYTES);
        Ok(state.objects + at)
    }

    /// Appends a piece of a group: head and entries in `state.words`, whose first
    /// [`super::group::HEAD_WORDS`] are free. The piece fills whole lines and is durable after a
    /// fence.
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
        // A reader skips the rest of a line whose words are missing, so earlier records must not be
        // missing.
        state.make_records_durable(&core.memory);
        state.at = state.at.next_multiple_of(LINE_BYTES);
        let mut words = std::mem::take(&mut state.words);
        words.resize((padded / 8) as usize, 0);
        seal(&mut words, piece.seq, piece.index, piece.flags, piece.objects_sum);
        core.memory.write_lines(state.chunk + state.at, zerocopy::IntoBytes::as_bytes(&*words));
        state.words = words;
        state.at += padded;
        // The group's own fence follows before anything else is recorded.
        (state.flushed, state.fenced) = (state.at, state.at);
        state.written.word_log_bytes += padded;
        Ok(())
    }

    /// Changes the chunk of objects as [`Logger::change_chunk`] does the chunk of words.
    fn change_objects(core: &Core, state: &mut LoggerState) {
        let full = Resting { chunk: state.objects, last_seq: state.last_seq };
        let settled = core.logs.settled.load(Acquire);
        if let Some(chunk) = state.resting_objects.change_for(full, settled) {
            (state.objects, state.objects_at) = (chunk, CHUNK_HEAD);
        } else if state.resting_objects.chunk == 0 && has_plenty(core) {
            // The next chunk is taken when an object is placed.
            state.resting_objects = full;
            (state.objects, state.objects_at) = (0, 0);
        }
    }
}

/// Whether there is so much room that full chunks may rest: more than logs and objects may need
/// first.
fn has_plenty(core: &Core) -> bool {
    core.engine.free_for_persistent() > 4 * core.objects_keep()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::error::HeapError;
    use crate::heap::Heap;
    use crate::memory::{Durability, Memory};
    use crate::ptr::Offset;

    fn heap() -> Result<Heap, HeapError> {
        Heap::open(Memory::anonymous(16 << 20, Durability::Flushed)?, Config::default())
    }

    /// A logger with one open chunk, in which is a word.
    fn logger(core: &Core) -> Result<Arc<Logger>, HeapError> {
        let logger = core.logs.acquire().ok_or(HeapError::Busy)?;
        let mut state = logger.own();
        assert!(logger.next_chunk(core, &mut state).is_ok());
        core.memory.store_word(state.chunk + CHUNK_HEAD, 7);
        drop(state);
        Ok(logger)
    }

    #[test]
    fn a_chunk_is_begun_again_only_if_nothing_in_it_must_stay() -> Result<(), HeapError> {
        const SETTLED: u64 = 10;
        for (has_records, group_at, last_seq, begins_again) in [
            (false, None, 0, true),
            (false, None, SETTLED - 1, true),
            (false, None, SETTLED, false),
            (false, None, SETTLED + 1, false),
            (true, None, SETTLED - 1, false),
            (false, Some(640), SETTLED - 1, false),
        ] {
            let heap = heap()?;
            let core = &heap.core;
            let logger = logger(core)?;
            core.logs.settled.store(SETTLED, Release);
            core.logs.clock.store(SETTLED + 2, Release);
            let mut state = logger.own();
            let old = state.chunk;
            assert_eq!(state.written.prepared_lines, 1024 + 2);
            state.at = CHUNK_HEAD + 8;
            state.last_seq = last_seq;
            (state.has_records, state.group_at) = (has_records, group_at);
            assert!(logger.next_chunk(core, &mut state).is_ok());
            let case = (has_records, group_at, last_seq);
            assert_eq!(state.chunk == old, begins_again, "{case:?}");
            let closed = if begins_again { vec![] } else { vec![old] };
            let closed_bytes = closed.len() as u64 * CHUNK_BYTES;
            assert_eq!(state.closed, closed, "{case:?}");
            assert_eq!(core.logs.closed_bytes.load(Relaxed), closed_bytes, "{case:?}");
            let word = core.memory.load(old + CHUNK_HEAD);
            assert_eq!(word, if begins_again { 0 } else { 7 }, "{case:?}");
            // A group that goes on has its later pieces in a chunk that must stay, too.
            assert_eq!(state.has_records, group_at.is_some(), "{case:?}");
            assert_eq!(state.group_at, group_at.map(|_| CHUNK_HEAD), "{case:?}");
            assert_eq!((state.at, state.fenced), (CHUNK_HEAD, CHUNK_HEAD));
            // A chunk that is begun again keeps the header's line.
            let lines = if begins_again { 1023 + 2 } else { 1024 + 2 };
            assert_eq!(state.written.prepared_lines, 1024 + 2 + lines, "{case:?}");
        }
        Ok(())
    }

    #[test]
    fn objects_take_whole_lines_and_a_chunk_that_is_full_is_kept_until_it_is_folded()
    -> Result<(), HeapError> {
        let heap = heap()?;
        let core = &heap.core;
        let logger = logger(core)?;
        let mut state = logger.own();
        let lines = state.written.prepared_lines;
        let mut place = |len| logger.place_object(core, &mut state, len).unwrap_or(0);
        let first = place(1);
        assert_eq!(first % CHUNK_BYTES, CHUNK_HEAD);
        assert_eq!((place(65), place(64)), (first + 64, first + 192));
        // Up to the last byte of the chunk.
        let rest = CHUNK_BYTES - CHUNK_HEAD - 256;
        assert_eq!(place(rest), first + 256);
        let second = place(rest + 256);
        assert_eq!(second % CHUNK_BYTES, CHUNK_HEAD);
        assert_ne!(second, first);
        assert_eq!((state.objects, state.objects_at), (second - CHUNK_HEAD, CHUNK_BYTES));
        assert_eq!(state.closed_objects, [first - CHUNK_HEAD]);
        assert_eq!(core.logs.closed_bytes.load(Relaxed), CHUNK_BYTES);
        // A line of the span table for each chunk.
        assert_eq!(state.written.prepared_lines - lines, 2);
        Ok(())
    }

    /// Changes `len` bytes by a transaction, over and over, until logs were written `times` over.
    fn change(heap: &Heap, place: Offset, len: u64, times: u64) -> Result<(), HeapError> {
        let logged = || heap.stats().word_log_bytes.max(heap.stats().object_log_bytes);
        let mut round = 0_u64;
        while logged() < times * CHUNK_BYTES {
            round += 1;
            heap.transaction(|tx| {
                let bytes = vec![round as u8; len as usize];
                tx.write_bytes(place, &bytes)
            })?;
        }
        Ok(())
    }

    #[test]
    fn one_thread_uses_its_chunks_again_and_again() -> Result<(), HeapError> {
        for len in [8, 60, 3_000, 20_000] {
            let heap = heap()?;
            let place = heap.persist_alloc(20_000)?;
            heap.compact()?;
            change(&heap, place, len, 3)?;
            let before = heap.stats();
            change(&heap, place, len, 12)?;
            let stats = heap.stats();
            assert_eq!(heap.core.logs.closed_bytes.load(Relaxed), 0, "{len} bytes");
            assert_eq!((stats.folds, stats.free_bytes), (before.folds, before.free_bytes));
        }
        Ok(())
    }

    #[test]
    fn few_lines_are_left_to_be_written_back() -> Result<(), HeapError> {
        for links in [true, false] {
            let heap = heap()?;
            let place = heap.persist_alloc(8 * 500)?;
            let logger = Arc::clone(&heap.core.logs.all()[0]);
            for at in 0..500_u64 {
                let word = Offset::of(place.get() + at * 8);
                match links {
                    true => _ = heap.alloc_into(word, 64)?,
                    false => heap.transaction(|tx| tx.write_bytes(word, &at.to_le_bytes()))?,
                }
                let left = logger.visit().homes.len();
                assert!((1..=HOMES_MAX).contains(&left), "{left} ranges after {at}");
                // No group that is not settled is earlier than what the log says.
                let oldest = logger.oldest.load(Acquire);
                let last = logger.own().last_seq;
                let first = last - (left as u64 - 1);
                assert!(
                    (last.saturating_sub(HOMES_MAX as u64)..=first).contains(&oldest),
                    "{oldest} {first}"
                );
            }
        }
        Ok(())
    }
}
