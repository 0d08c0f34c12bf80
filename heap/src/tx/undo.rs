//! Undo transactions: what memory held is logged durably, then memory changes in place.
//!
//! A piece of the log for each change, whole before the change it undoes. The commit is a last piece, behind the
//! changed lines; a transaction that is undone gets a last piece, too, so that recovery leaves it alone.

use std::sync::atomic::Ordering::AcqRel;

use super::commit::Pieces;
use super::writes::Write;
use super::{LogAs, Tx};
use crate::error::HeapError;
use crate::layout::{GROUP_LAST, GROUP_UNDO};
use crate::log::group::Entry;

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
        let mut state = logger.own();
        let (seq, index) = match self.undoing {
            Some(at) => at,
            None => {
                logger.begin_group(core, &mut state, WORDS_AT_FIRST, 0)?;
                state.is_undoing = true;
                (core.logs.clock.fetch_add(1, AcqRel), 0)
            }
        };
        self.undoing = Some((seq, index));
        let write = Write { offset, len: bytes.len() as u32, at: 0, log };
        let mut pieces = Pieces::new(seq, index, GROUP_UNDO, &mut state, core, logger);
        pieces.push_change(&write, &old)?;
        self.undoing = Some((seq, pieces.finish(0)?));
        drop(state);
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
        let mut state = logger.own();
        let (seq, index) = match self.undoing {
            Some(at) => at,
            None => {
                logger.begin_group(core, &mut state, WORDS_AT_FIRST, 0)?;
                (core.logs.clock.fetch_add(1, AcqRel), 0)
            }
        };
        // Whatever fails from here on, the transaction is undone, and its end is logged.
        self.undoing = Some((seq, index));
        let mut pieces = Pieces::new(seq, index, GROUP_UNDO, &mut state, core, logger);
        for record in self.records(seq) {
            pieces.push(Entry::Record(record))?;
        }
        pieces.finish(GROUP_LAST)?;
        state.written.changed_bytes += self.writes.bytes.len() as u64;
        state.end_group();
        state.is_undoing = false;
        drop(state);
        core.memory.fence();
        self.undoing = None;
        Ok(())
    }

    /// Says in the log that a transaction that was undone is over.
    pub(super) fn end_undo(&mut self) {
        let Some((seq, index)) = self.undoing.take() else { return };
        let core = &*self.heap.core;
        let Ok(logger) = self.heap.logger(self.local) else { return };
        let mut state = logger.own();
        let pieces = Pieces::new(seq, index, GROUP_UNDO, &mut state, core, logger);
        // Without room for it the log says nothing newer either: recovery would put back, once more, what was put
        // back just now.
        let _ = pieces.finish(GROUP_LAST);
        state.end_group();
        state.is_undoing = false;
        drop(state);
        core.memory.fence();
    }
}
