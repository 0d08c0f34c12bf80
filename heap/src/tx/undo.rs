//! Undo transactions: the old bytes are logged durably, then memory changes in place.
//!
//! Each change has a piece of the log, which is whole before the change. The commit is a last
//! piece, behind the changed lines. A transaction that is undone gets a last piece, too, so that
//! recovery leaves it alone.

use super::Tx;
use super::commit::Pieces;
use super::writes::{LogAs, Write};
use crate::core::Core;
use crate::engine::NoMemory;
use crate::error::HeapError;
use crate::layout::{GROUP_LAST, GROUP_UNDO, GROUP_UNDONE};
use crate::log::logger::{Logger, LoggerState};
use crate::sys::Own;

/// Words that a group wants in its chunk when it begins. The group may go on in the next chunk.
const WORDS_AT_FIRST: usize = 64;

impl Tx<'_> {
    /// Logs the bytes of a range, and changes them.
    pub(super) fn change_in_place(
        &mut self,
        offset: u64,
        bytes: &[u8],
        log: LogAs,
    ) -> Result<(), HeapError> {
        let core = &*self.heap.core;
        let mut old = vec![0; bytes.len()];
        core.memory.read(offset, &mut old);
        let logger = self.heap.logger(self.local)?;
        let (mut state, seq, index) = self.at_group(core, logger)?;
        let write = Write { offset, len: bytes.len() as u32, at: 0, log };
        let mut pieces = Pieces::new(seq, index, GROUP_UNDO, &mut state, core, logger);
        let logged = pieces.push_change(&write, &old).and_then(|()| pieces.append(0));
        // If this fails, some pieces of the group may be in the log already.
        self.undoing = Some((seq, pieces.index));
        drop(state);
        logged?;
        core.memory.fence();
        self.writes.push(offset, &old, log);
        core.memory.write(offset, bytes);
        Ok(())
    }

    /// Puts back the bytes that changes from number `from` on have overwritten, the newest first.
    pub(super) fn put_back(&mut self, from: usize) {
        let memory = &self.heap.core.memory;
        for write in self.writes.list[from..].iter().rev() {
            memory.write(write.offset, self.writes.bytes_of(write));
            memory.flush(write.offset, u64::from(write.len));
        }
        memory.fence();
    }

    pub(super) fn commit_undo(&mut self) -> Result<(), HeapError> {
        let is_idle = self.undoing.is_none();
        if is_idle && self.writes.fresh.is_empty() && self.writes.freed.is_empty() {
            return Ok(());
        }
        let core = &*self.heap.core;
        self.settle_fresh();
        for write in &self.writes.list {
            core.memory.flush(write.offset, u64::from(write.len));
        }
        core.memory.fence();
        let logger = self.heap.logger(self.local)?;
        let (mut state, seq, index) = self.at_group(core, logger)?;
        let mut pieces = Pieces::new(seq, index, GROUP_UNDO, &mut state, core, logger);
        let logged = self.push_records(&mut pieces).and_then(|()| pieces.append(GROUP_LAST));
        // If this fails, the transaction is undone, and its end is logged.
        self.undoing = Some((seq, pieces.index));
        logged?;
        state.written.changed_bytes += self.writes.bytes.len() as u64;
        // The log is held during the fence, or a thread that settles would note that the group is
        // over.
        core.memory.fence();
        state.end_group();
        logger.set_undoing(&mut state, None);
        drop(state);
        self.undoing = None;
        Ok(())
    }

    /// Sequence and next piece of this transaction's group, which is begun if need be.
    fn at_group<'l>(
        &mut self,
        core: &Core,
        logger: &'l Logger,
    ) -> Result<(Own<'l, LoggerState>, u64, u32), NoMemory> {
        if let Some((seq, index)) = self.undoing {
            return Ok((logger.own(), seq, index));
        }
        let mut state = logger.begin_group(core, WORDS_AT_FIRST, 0)?;
        let seq = logger.draw_seq(core, &mut state);
        logger.set_undoing(&mut state, Some(seq));
        self.undoing = Some((seq, 0));
        Ok((state, seq, 0))
    }

    /// Notes in the log that a transaction which was undone is over.
    pub(super) fn end_undo(&mut self) {
        let Some((seq, index)) = self.undoing.take() else { return };
        let core = &*self.heap.core;
        let Ok(logger) = self.heap.logger(self.local) else { return };
        let mut state = logger.own();
        let flags = GROUP_UNDO | GROUP_UNDONE;
        let ended = Pieces::new(seq, index, flags, &mut state, core, logger).append(GROUP_LAST);
        // Without this piece a recovery would put back the old bytes once more, over later changes.
        assert!(ended.is_ok(), "no room in the log for a transaction's end, which was kept free");
        state.end_group();
        logger.set_undoing(&mut state, None);
        drop(state);
        core.memory.fence();
    }
}
