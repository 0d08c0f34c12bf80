//! The commit of a redo transaction: both logs are written, a fence makes them durable, then memory
//! changes.

use super::Tx;
use super::writes::{LogAs, Write};
use crate::config::{Logging, Planted};
use crate::core::Core;
use crate::engine::NoMemory;
use crate::engine::classes::UNIT_BYTES;
use crate::error::HeapError;
use crate::layout::{GROUP_LAST, Record, STAMP_MASK};
use crate::log::append::PieceHead;
use crate::log::fold::{Fold, fold_soon};
use crate::log::group::{Entry, HEAD_WORDS, OBJECT_ENTRY_MAX, PIECE_WORDS_MAX, sum_of};
use crate::log::logger::{Logger, LoggerState};
use crate::log::settle::settle;
use crate::sys::{LINE_BYTES, Own};

impl Tx<'_> {
    /// Makes all changes final. If this returns an error, nothing was changed.
    #[inline]
    pub(super) fn commit(&mut self) -> Result<(), HeapError> {
        self.note_births(true);
        if self.heap.core.config.planted.is(Planted::FreeBeforeCommit) {
            self.record_freed_early()?;
        }
        let committed = match self.logging {
            Logging::Redo => self.commit_redo(),
            Logging::Undo => self.commit_undo(),
        };
        if let Err(error) = committed {
            self.note_births(false);
            return Err(error);
        }
        self.note_deaths();
        self.done = true;
        self.give_freed();
        Ok(())
    }

    fn commit_redo(&mut self) -> Result<(), HeapError> {
        if self.writes.list.is_empty()
            && self.writes.fresh.is_empty()
            && self.writes.freed.is_empty()
        {
            return Ok(());
        }
        let core = &*self.heap.core;
        self.settle_fresh();
        let logger = self.heap.logger(self.local)?;
        let mut written = self.write_group(core, logger);
        if written.is_err() && fold_soon(core)? == Fold::Done {
            // The fold has given room back.
            written = self.write_group(core, logger);
        }
        let mut state = written?;
        core.memory.fence();
        for write in &self.writes.list {
            // The lines are written back when the group is settled: see `crate::log::settle`.
            core.memory.write(write.offset, self.writes.bytes_of(write));
            state.note_home(write.offset, u64::from(write.len));
        }
        state.note_applied(&core.memory);
        state.written.changed_bytes += self.writes.bytes.len() as u64;
        Ok(())
    }

    /// The most words that the group takes, and the most bytes of its objects.
    fn log_size(&self) -> (usize, u64) {
        let records = self.writes.fresh.len() + self.writes.freed.len();
        self.writes.list.iter().fold((HEAD_WORDS + records, 0), |(words, bytes), write| match write
            .log
        {
            LogAs::Words => (words + (write.len as usize / 8 + 2) * 2, bytes),
            LogAs::Object => (
                words + write.len.div_ceil(OBJECT_ENTRY_MAX as u32) as usize * 3,
                bytes + u64::from(write.len).next_multiple_of(LINE_BYTES),
            ),
        })
    }

    /// Makes the contents of fresh objects durable, before any reference can lead to them.
    #[inline]
    pub(super) fn settle_fresh(&mut self) {
        if !self.writes.direct.is_empty() {
            self.write_fresh_back();
        }
    }

    fn write_fresh_back(&mut self) {
        let memory = &self.heap.core.memory;
        for (offset, len) in &self.writes.direct {
            memory.flush(*offset, *len);
        }
        memory.fence();
        self.writes.direct.clear();
    }

    /// The planted bug: records what was freed as if no transaction had freed it.
    fn record_freed_early(&self) -> Result<(), HeapError> {
        let core = &self.heap.core;
        let logger = self.heap.logger(self.local)?;
        for (offset, _) in &self.writes.freed {
            core.record_free(logger, *offset)?;
        }
        Ok(())
    }

    /// Notes the objects that begin to exist. With conventional bookkeeping this comes before the
    /// commit, and freed objects are noted behind it: a crash in between leaks.
    fn note_births(&self, begin: bool) {
        let core = &self.heap.core;
        if let Some(conventional) = &core.conventional {
            self.writes.fresh.iter().for_each(|(offset, _)| {
                conventional.note(&core.memory, core.layout, *offset, begin)
            });
        }
    }

    fn note_deaths(&self) {
        let core = &self.heap.core;
        if let Some(conventional) = &core.conventional
            && !self.writes.freed.is_empty()
        {
            // No record tells a write to a freed object from one to the object that takes its
            // place.
            settle(core);
            self.writes.freed.iter().for_each(|(offset, _)| {
                conventional.note(&core.memory, core.layout, *offset, false)
            });
        }
    }

    /// Writes the group, which counts after a fence. A group that fails has no last piece.
    fn write_group<'l>(
        &self,
        core: &Core,
        logger: &'l Logger,
    ) -> Result<Own<'l, LoggerState>, NoMemory> {
        let (words, object_bytes) = self.log_size();
        let mut state = logger.begin_group(core, words, object_bytes)?;
        let seq = logger.draw_seq(core, &mut state);
        let mut pieces = Pieces::new(seq, 0, 0, &mut state, core, logger);
        let mut changes = self.writes.list.iter();
        let written = self
            .push_records(&mut pieces)
            .and_then(|()| changes.try_for_each(|w| pieces.push_change(w, self.writes.bytes_of(w))))
            .and_then(|()| pieces.append(GROUP_LAST));
        state.end_group();
        written.map(|()| state)
    }

    /// Enters the records of objects that were taken and freed.
    #[inline]
    pub(super) fn push_records(&self, pieces: &mut Pieces<'_>) -> Result<(), NoMemory> {
        if self.heap.core.conventional.is_some() {
            return Ok(());
        }
        let stamp = (pieces.seq & STAMP_MASK) as u32;
        for (offset, _) in &self.writes.fresh {
            pieces.push(Entry::Record(Record::Alloc { unit: offset / UNIT_BYTES, stamp }))?;
        }
        let planted = self.heap.core.config.planted.is(Planted::FreeBeforeCommit);
        for (offset, _) in self.writes.freed.iter().filter(|_| !planted) {
            pieces.push(Entry::Record(Record::Free { unit: offset / UNIT_BYTES, stamp }))?;
        }
        Ok(())
    }
}

/// The pieces of a group while they are made.
pub(super) struct Pieces<'p> {
    seq: u64,
    /// Number of the next piece.
    pub index: u32,
    /// Flags of every piece.
    flags: u8,
    objects_sum: u64,
    has_records: bool,
    state: &'p mut LoggerState,
    core: &'p Core,
    logger: &'p Logger,
}

impl<'p> Pieces<'p> {
    pub fn new(
        seq: u64,
        index: u32,
        flags: u8,
        state: &'p mut LoggerState,
        core: &'p Core,
        logger: &'p Logger,
    ) -> Self {
        state.words.clear();
        state.words.resize(HEAD_WORDS, 0);
        Self { seq, index, flags, objects_sum: 0, has_records: false, state, core, logger }
    }

    pub fn push(&mut self, entry: Entry) -> Result<(), NoMemory> {
        if self.state.words.len() + entry.words() > PIECE_WORDS_MAX {
            self.append_before_more()?;
        }
        self.has_records |= matches!(entry, Entry::Record(_));
        entry.push(&mut self.state.words);
        Ok(())
    }

    /// Enters a change of `bytes` in the log that the change asks for.
    pub fn push_change(&mut self, write: &Write, bytes: &[u8]) -> Result<(), NoMemory> {
        if write.log == LogAs::Words {
            let mut offset = write.offset;
            let mut rest = bytes;
            while !rest.is_empty() {
                // A part ends at a word's boundary, so that one store puts a whole word in place.
                let len = rest.len().min(8 - (offset % 8) as usize);
                let mut value = [0; 8];
                value[..len].copy_from_slice(&rest[..len]);
                let value = u64::from_le_bytes(value);
                self.push(Entry::Short { offset, len: len as u8, value })?;
                offset += len as u64;
                rest = &rest[len..];
            }
            return Ok(());
        }
        let mut offset = write.offset;
        for part in bytes.chunks(OBJECT_ENTRY_MAX as usize) {
            // The entry's piece is decided before the bytes are placed, because the piece's sum
            // covers them.
            if self.state.words.len() + 3 > PIECE_WORDS_MAX {
                self.append_before_more()?;
            }
            let len = part.len() as u64;
            let from = self.logger.place_object(self.core, self.state, len)?;
            self.core.memory.write_lines(from, part);
            self.objects_sum = sum_of(self.objects_sum, part);
            self.state.written.object_log_bytes += len.next_multiple_of(LINE_BYTES);
            self.push(Entry::Object { offset, len: part.len() as u32, from })?;
            offset += len;
        }
        Ok(())
    }

    /// Appends a piece that others follow. The piece is whole before they come, so that a log is
    /// torn at its end only.
    fn append_before_more(&mut self) -> Result<(), NoMemory> {
        self.append(0)?;
        self.core.memory.fence();
        Ok(())
    }

    /// Appends the entries that are left as a piece with these flags.
    pub fn append(&mut self, flags: u8) -> Result<(), NoMemory> {
        let (seq, index, flags) = (self.seq, self.index, self.flags | flags);
        let head = PieceHead { seq, index, flags, objects_sum: self.objects_sum };
        self.logger.append_piece(self.core, self.state, head)?;
        if self.has_records {
            self.state.note_records();
        }
        self.index += 1;
        self.objects_sum = 0;
        self.has_records = false;
        self.state.words.clear();
        self.state.words.resize(HEAD_WORDS, 0);
        Ok(())
    }
}
