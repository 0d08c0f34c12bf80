//! Undo transactions: what memory held is logged durably, then memory changes in place.
//!
//! A piece of the log for each change, whole before the change it undoes. The commit is a last
//! piece, behind the changed lines; a transaction that is undone gets a last piece, too, so that
//! recovery leaves it alone.

use super::commit::Pieces;
use super::writes::Write;
use super::{LogAs, Tx};
use crate::core::Core;
use crate::engine::NoMemory;
use crate::error::HeapError;
use crate::layout::{GROUP_LAST, GROUP_UNDO, GROUP_UNDONE};
use crate::log::logger::{Logger, LoggerState};
use crate::sys::Own;

/// Room that a group wants in its chunk when it begins; it may go on in the next.
const WORDS_AT_FIRST: usize = 64;

impl Tx<'_> {
    /// Logs what a range holds and changes it.
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
        // Also of what failed later some pieces may be there.
        self.undoing = Some((seq, pieces.index));
        drop(state);
        logged?;
        core.memory.fence();
        self.writes.push(offset, &old, log);
        core.memory.write(offset, bytes);
        Ok(())
    }

    /// Puts back what changes since the `from`th have overwritten, the newest first.
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
        // If it failed, the transaction is undone, and its end is logged.
        self.undoing = Some((seq, pieces.index));
        logged?;
        state.written.changed_bytes += self.writes.bytes.len() as u64;
        // While the log is held: who settles would say that the group is over.
        core.memory.fence();
        state.end_group();
        logger.set_undoing(&mut state, None);
        drop(state);
        self.undoing = None;
        Ok(())
    }

    /// This transaction's group, begun if need be: its sequence and the next piece's place.
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

    /// Says in the log that a transaction that was undone is over.
    pub(super) fn end_undo(&mut self) {
        let Some((seq, index)) = self.undoing.take() else { return };
        let core = &*self.heap.core;
        let Ok(logger) = self.heap.logger(self.local) else { return };
        let mut state = logger.own();
        let flags = GROUP_UNDO | GROUP_UNDONE;
        let ended = Pieces::new(seq, index, flags, &mut state, core, logger).append(GROUP_LAST);
        // Else recovery would put back once more what was put back just now, over what comes after
        // it.
        assert!(ended.is_ok(), "no room in the log for a transaction's end, which was kept free");
        state.end_group();
        logger.set_undoing(&mut state, None);
        drop(state);
        core.memory.fence();
    }
}
