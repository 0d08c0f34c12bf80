//! Changing bytes in place so that the change is whole or absent after a kill, with the old bytes
//! in the thread's undo slot meanwhile.

use super::LaneGuard;
use crate::backing::Need;
use crate::ledger::UNDO_BYTES_MAX;
use crate::thread_number::thread_number;

impl LaneGuard<'_> {
    /// Announces a range, keeps its bytes in the thread's undo slot, and returns the range to be
    /// filled. [`LaneGuard::commit_overwrite`] or [`LaneGuard::undo_overwrite`] must follow before
    /// the lane is released. `None`: the range is too long or capacity memory, or the thread has no
    /// slot or uses it already; nothing was done.
    ///
    /// # Errors
    /// The errors of [`LaneGuard::announce`]. Nothing is kept then.
    pub fn begin_overwrite(&mut self, offset: u64, len: usize) -> Result<Option<&mut [u8]>, Need> {
        if len == 0 || len > UNDO_BYTES_MAX || self.tracked.is_trapped() || self.is_capacity(offset)
        {
            return Ok(None);
        }
        let memory = &*self.tracked.memory;
        let Some(number) = thread_number() else { return Ok(None) };
        let slot = memory.ledger.undo_slot(number);
        if slot.kept().is_some() {
            return Ok(None);
        }
        self.announce_as(offset, len as u64, None)?;
        // SAFETY: as in `announced_mut`.
        let bytes = unsafe { memory.map.bytes_mut(offset, len) };
        slot.keep(offset, bytes, memory.planted);
        self.undo = Some(number);
        Ok(Some(bytes))
    }

    /// The range that is being overwritten: its offset and the bytes that it had.
    pub fn overwritten(&self) -> Option<(u64, &[u8])> {
        let slot = self.tracked.memory.ledger.undo_slot(self.undo?);
        slot.kept().map(|(offset, len)| (offset, slot.bytes(len)))
    }

    /// Makes the overwriting final, in one store.
    pub fn commit_overwrite(&mut self) {
        if let Some(number) = self.undo.take() {
            self.tracked.memory.ledger.undo_slot(number).close();
        }
    }

    /// Puts the old bytes back.
    pub fn undo_overwrite(&mut self) {
        if let Some((offset, old)) = self.overwritten() {
            // SAFETY: as in `announced_mut`; the kept bytes lie in the ledger, not in the region.
            unsafe { self.tracked.memory.map.bytes_mut(offset, old.len()) }.copy_from_slice(old);
        }
        self.commit_overwrite();
    }
}
