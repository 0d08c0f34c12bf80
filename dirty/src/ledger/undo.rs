//! Undo slots: the old bytes of a range that a thread is overwriting.
//!
//! Each thread has a slot of its own, which stays in that processor's cache. A slot lies in the
//! ledger and not in the region: so keeping bytes in one makes nothing dirty, and no cleaner copies
//! it. The price is that whoever takes over the memory of a dead process, to go on or to flush it,
//! puts the kept bytes back before it reads the region ([`Ledger::put_back`]).
//! ```text
//! a word for each slot, 64 B apart: offset of the range, 48 bits | bytes of the range << 48
//!                                   0: nothing is kept
//! then the bytes that the range had, 4 KiB for each slot
//! ```
//! The word is stored after the bytes are kept and before the range changes. To store 0 is the
//! commit of the change. No checkpoint, flush or cleaning of a living process meets a slot in use,
//! because the thread holds the range's lane meanwhile.

use std::sync::atomic::{AtomicU64, Ordering::*, fence};

use super::Ledger;
use crate::planted::Planted;
use crate::sys::Mapping;
use crate::thread_number::THREAD_NUMBERS;

/// Most bytes that a slot keeps: a few kilobytes stay in the nearest cache, and of longer ranges
/// the second copy costs more than a new record.
pub const UNDO_BYTES_MAX: usize = 4096;
/// Slots of a ledger; a thread without a number has none.
const UNDO_SLOTS: u64 = THREAD_NUMBERS as u64;
/// All words together fill a page, so that looking at them takes no more memory.
const WORD_STEP_BYTES: u64 = 64;
const AT_BYTES: u64 = UNDO_SLOTS * WORD_STEP_BYTES;
/// Bytes of all slots.
pub(super) const UNDO_TOTAL_BYTES: u64 = AT_BYTES + UNDO_SLOTS * UNDO_BYTES_MAX as u64;
const LEN_SHIFT: u32 = 48;

/// The undo slot of one thread.
#[derive(Clone, Copy)]
pub(crate) struct UndoSlot<'l> {
    map: &'l Mapping,
    word: &'l AtomicU64,
    bytes_at: u64,
}

impl<'l> UndoSlot<'l> {
    /// The range whose old bytes the slot keeps: its offset and its length.
    pub(crate) fn kept(&self) -> Option<(u64, usize)> {
        range_of(self.word.load(Relaxed))
    }

    /// Keeps the bytes `old` of the range at `offset`, which may change from now on. Only the
    /// slot's thread may call this.
    pub(crate) fn keep(&self, offset: u64, old: &[u8], planted: Planted) {
        assert!(old.len() <= UNDO_BYTES_MAX && offset < 1 << LEN_SHIFT && self.kept().is_none());
        let word = offset | (old.len() as u64) << LEN_SHIFT;
        if planted.is(Planted::UndoWithoutBytes) {
            self.word.store(word, Release);
            return;
        }
        // That the slot is closed is visible to any process before its bytes change.
        fence(Release);
        // SAFETY: no other thread uses this slot, and the only other reference into it is given by
        // `bytes`, which borrows a slot that is in use.
        unsafe { self.map.bytes_mut(self.bytes_at, old.len()) }.copy_from_slice(old);
        self.word.store(word, Release);
        // The word is visible to any process before the first byte of the range changes.
        fence(Release);
    }

    /// The first `len` of the bytes that are kept.
    pub(crate) fn bytes(&self, len: usize) -> &'l [u8] {
        // SAFETY: `keep` alone changes them, and only while nothing is kept.
        unsafe { self.map.bytes(self.bytes_at, len) }
    }

    /// Makes the change of the range final, or ends the undoing of it.
    pub(crate) fn close(&self) {
        self.word.store(0, Release);
    }
}

impl Ledger {
    /// The undo slot of a thread.
    #[inline]
    pub(crate) fn undo_slot(&self, number: u64) -> UndoSlot<'_> {
        assert!(number < UNDO_SLOTS, "undo slot {number} does not exist");
        let at = self.offsets.undo;
        let word = &self.map.words(at + number * WORD_STEP_BYTES, 1)[0];
        let bytes_at = at + AT_BYTES + number * UNDO_BYTES_MAX as u64;
        UndoSlot { map: &self.map, word, bytes_at }
    }

    /// Puts back the bytes of every range that a dead process was overwriting. The grains of such a
    /// range are dirty, because they were announced before. No process may write to the region.
    pub fn put_back(&self, map: &Mapping, planted: Planted) {
        for slot in (0..UNDO_SLOTS).map(|number| self.undo_slot(number)) {
            let Some((offset, len)) = slot.kept() else { continue };
            if !planted.is(Planted::LeaveOverwritten) {
                // SAFETY: nobody reads or writes the region until the memory is taken over.
                unsafe { map.bytes_mut(offset, len) }.copy_from_slice(slot.bytes(len));
            }
            slot.close();
        }
    }

    /// The first undo slot that names a range which the region does not have, and its word.
    pub(super) fn damaged_undo(&self) -> Option<(u64, u64)> {
        (0..UNDO_SLOTS).find_map(|number| {
            let slot = self.undo_slot(number);
            let word = slot.word.load(Acquire);
            let (offset, len) = range_of(word)?;
            // Read after the word: a region grows before a range of the new part is named.
            let region_bytes = self.region_bytes().load(Acquire);
            let is_range = (1..=UNDO_BYTES_MAX).contains(&len);
            let fits = is_range && offset + len as u64 <= region_bytes;
            (!fits).then_some((number, word))
        })
    }
}

/// The range that a slot's word names: its offset and its length.
fn range_of(word: u64) -> Option<(u64, usize)> {
    (word != 0).then_some((word & ((1 << LEN_SHIFT) - 1), (word >> LEN_SHIFT) as usize))
}
