//! Changing memory in place so that all changes of an operation are whole or absent after a kill,
//! with the old bytes in the thread's undo slot meanwhile.

use std::sync::atomic::AtomicU64;

use super::LaneGuard;
use crate::backing::Need;
use crate::ledger::{UNDO_BYTES_MAX, UndoSlot};
use crate::thread_number::thread_number;
use crate::tracked::Tracked;

/// What an operation has changed in the lanes that it holds, in the undo slot of its thread.
/// [`Undo::close`] makes the changes final; before the lanes are released, that or
/// [`Undo::put_back`] must be called.
pub struct Undo<'r> {
    tracked: &'r Tracked,
    /// `None`: the thread has no slot, or the region has traps instead of announcements.
    slot: Option<UndoSlot<'r>>,
    /// Bytes of the entries in the slot.
    used: usize,
}

impl<'r> Undo<'r> {
    /// Whether nothing is kept.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The ranges that are kept, the first first: their offsets, and the bytes that they had.
    pub fn entries(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let slot = self.slot.filter(|_| self.used > 0);
        slot.into_iter().flat_map(|slot| slot.entries().flatten())
    }

    /// Makes all changes final, in one store.
    #[inline]
    pub fn close(&mut self) {
        if self.used > 0
            && let Some(slot) = &self.slot
        {
            slot.close();
            self.used = 0;
        }
    }

    /// Puts the old bytes back.
    #[cold]
    pub fn put_back(&mut self) {
        if let Some(slot) = self.slot.filter(|_| self.used > 0) {
            // SAFETY: the operation still holds the lanes of the ranges.
            unsafe { slot.put_back(&self.tracked.memory.map) };
        }
        self.close();
    }

    #[inline]
    fn keep(&mut self, offset: u64, old: &[u8]) -> bool {
        let kept = self
            .slot
            .and_then(|slot| slot.keep(self.used, offset, old, self.tracked.memory.planted));
        self.used = kept.unwrap_or(self.used);
        kept.is_some()
    }
}

impl<'r> LaneGuard<'r> {
    /// The undo slot of the calling thread, for an operation that holds this lane.
    #[inline]
    pub fn undo(&self) -> Undo<'r> {
        let tracked = self.tracked;
        let number = if tracked.is_trapped() { None } else { thread_number() };
        Undo {
            tracked,
            slot: number.map(|number| tracked.memory.ledger.undo_slot(number)),
            used: 0,
        }
    }

    /// Announces a range, keeps its bytes in `undo`, and returns the range to be filled. `None`:
    /// the range is too long or capacity memory, or the slot has no room for it; it must not be
    /// changed then.
    ///
    /// # Errors
    /// The errors of [`LaneGuard::announce`]. Nothing is kept then.
    #[inline]
    pub fn keep(
        &mut self,
        undo: &mut Undo<'_>,
        offset: u64,
        len: usize,
    ) -> Result<Option<&mut [u8]>, Need> {
        let can_be_kept = (1..=UNDO_BYTES_MAX).contains(&len) && undo.slot.is_some();
        if !can_be_kept || !self.announce_as(offset, len as u64, None)? {
            return Ok(None);
        }
        // SAFETY: as in `announced_mut`.
        let bytes = unsafe { self.tracked.memory.map.bytes_mut(offset, len) };
        Ok(undo.keep(offset, bytes).then_some(bytes))
    }

    /// Keeps the 8-byte word at `offset`, a multiple of 8, as [`LaneGuard::keep`] does, to be
    /// changed in one store.
    ///
    /// # Errors
    /// The errors of [`LaneGuard::announce`]. Nothing is kept then.
    #[inline]
    pub fn keep_word(
        &mut self,
        undo: &mut Undo<'_>,
        offset: u64,
    ) -> Result<Option<&AtomicU64>, Need> {
        if undo.slot.is_none() || !self.announce_as(offset, 8, None)? {
            return Ok(None);
        }
        let old = self.load(offset);
        let is_kept = undo.keep(offset, &old.to_le_bytes());
        Ok(is_kept.then(|| &self.tracked.memory.map.words(offset, 1)[0]))
    }
}
