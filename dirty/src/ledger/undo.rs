//! Undo slots: the old bytes of the ranges that a thread's operation is overwriting.
//!
//! Each thread has a slot of its own, which stays in that processor's cache. A slot lies in the
//! ledger and not in the region: so keeping bytes in one makes nothing dirty, and no cleaner copies
//! it. The price is that whoever takes over the memory of a dead process, to go on or to flush it,
//! puts the kept bytes back before it reads the region ([`Ledger::put_back`]).
//! ```text
//! a word for each slot, 64 B apart: bytes of its entries; 0: nothing is kept
//! then 4,160 B for the entries of each slot, one behind the other:
//!   offset of the range, 48 bits | bytes of the range << 48
//!   the bytes that the range had, padded to 8
//! ```
//! An entry counts once the word covers it, which is before the range changes. To store 0 is the
//! commit of all changes. No checkpoint, flush or cleaning of a living process meets a slot in use,
//! because the thread holds the lanes of the ranges meanwhile.

use std::sync::atomic::{AtomicU64, Ordering::*, fence};

use super::{Ledger, unknown};
use crate::error::SetupError;
use crate::planted::Planted;
use crate::sys::Mapping;
use crate::thread_number::THREAD_NUMBERS;

/// Most bytes of a range: a few kilobytes stay in the nearest cache, and of longer ranges the
/// second copy costs more than a new record.
pub const UNDO_BYTES_MAX: usize = 4096;
/// Slots of a ledger; a thread without a number has none.
const UNDO_SLOTS: u64 = THREAD_NUMBERS as u64;
/// All words together fill a page, so that looking at them takes no more memory.
const WORD_STEP_BYTES: u64 = 64;
const AT_ENTRIES: u64 = UNDO_SLOTS * WORD_STEP_BYTES;
/// Bytes of a slot's entries: room for the longest range.
const ENTRIES_BYTES: usize = UNDO_BYTES_MAX + 64;
/// Bytes of all slots.
pub(super) const UNDO_TOTAL_BYTES: u64 = AT_ENTRIES + UNDO_SLOTS * ENTRIES_BYTES as u64;
const HEAD_BYTES: usize = 8;
const LEN_SHIFT: u32 = 48;

/// The undo slot of one thread.
#[derive(Clone, Copy)]
pub(crate) struct UndoSlot<'l> {
    map: &'l Mapping,
    word: &'l AtomicU64,
    entries_at: u64,
}

impl<'l> UndoSlot<'l> {
    /// Keeps the bytes `old` of the range at `offset`, which may change from now on, behind `used`
    /// bytes of entries. Only the slot's thread may call this. Returns the bytes of the entries
    /// then; `None` if there is no room, or the slot has other entries than those.
    #[inline]
    pub(crate) fn keep(
        &self,
        used: usize,
        offset: u64,
        old: &[u8],
        planted: Planted,
    ) -> Option<usize> {
        let end = used + HEAD_BYTES + old.len().next_multiple_of(8);
        if end > ENTRIES_BYTES || self.word.load(Relaxed) != used as u64 {
            return None;
        }
        assert!((1..=UNDO_BYTES_MAX).contains(&old.len()) && offset < 1 << LEN_SHIFT);
        // That earlier entries no longer count is visible to any process before their bytes change.
        fence(Release);
        let head = offset | (old.len() as u64) << LEN_SHIFT;
        let at = self.entries_at + used as u64;
        // SAFETY: no other thread uses this slot, and references into its entries are given only to
        // those that the word covers.
        let entry = unsafe { self.map.bytes_mut(at, HEAD_BYTES + old.len()) };
        let (first, bytes) = entry.split_at_mut(HEAD_BYTES);
        first.copy_from_slice(&head.to_le_bytes());
        if !planted.is(Planted::UndoWithoutBytes) {
            bytes.copy_from_slice(old);
        }
        self.word.store(end as u64, Release);
        // The word is visible to any process before the first byte of the range changes.
        fence(Release);
        Some(end)
    }

    /// The ranges that are kept, the first first: their offsets, and the bytes that they had. After
    /// an entry that no program writes comes its first word as the error.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Result<(u64, &'l [u8]), u64>> + use<'l> {
        let (slot, end) = (*self, self.word.load(Relaxed) as usize);
        let mut at = 0;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            // SAFETY: `keep` changes only bytes behind those that the word covers.
            let bytes_at =
                |at: usize, len| unsafe { slot.map.bytes(slot.entries_at + at as u64, len) };
            let mut head = [0; HEAD_BYTES];
            let is_whole = end <= ENTRIES_BYTES && at + HEAD_BYTES <= end;
            if is_whole {
                head.copy_from_slice(bytes_at(at, HEAD_BYTES));
            }
            let head = u64::from_le_bytes(head);
            let (offset, len) = (head & ((1 << LEN_SHIFT) - 1), (head >> LEN_SHIFT) as usize);
            let from = at + HEAD_BYTES;
            at = from + len.next_multiple_of(8);
            if !(1..=UNDO_BYTES_MAX).contains(&len) || at > end {
                at = end;
                return Some(Err(head));
            }
            Some(Ok((offset, bytes_at(from, len))))
        })
    }

    /// Puts the bytes of all ranges back, the last first, in the region that is mapped at `region`.
    ///
    /// # Safety
    /// No other thread reads or writes the ranges.
    pub(crate) unsafe fn put_back(&self, region: &Mapping) {
        let entries: Vec<_> = self.entries().flatten().collect();
        for (offset, old) in entries.into_iter().rev() {
            // SAFETY: the caller's promise; the kept bytes lie in the ledger, not in the region.
            unsafe { region.bytes_mut(offset, old.len()) }.copy_from_slice(old);
        }
    }

    /// Makes the changes of all ranges final, or ends the undoing of them.
    #[inline]
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
        let entries_at = at + AT_ENTRIES + number * ENTRIES_BYTES as u64;
        UndoSlot { map: &self.map, word, entries_at }
    }

    /// Puts back the bytes of every range that a dead process was overwriting. The grains of such a
    /// range are dirty, because they were announced before. No process may write to the region.
    ///
    /// # Errors
    /// A slot has an entry that no program writes, or of a range that the region does not have.
    /// Nothing was put back then.
    pub fn put_back(&self, map: &Mapping, planted: Planted) -> Result<(), SetupError> {
        let slots = || (0..UNDO_SLOTS).map(|number| self.undo_slot(number));
        let region_bytes = self.region_bytes().load(Acquire);
        for (number, slot) in (0..).zip(slots()) {
            for entry in slot.entries() {
                let is_inside =
                    |(offset, old): &(u64, &[u8])| offset + old.len() as u64 <= region_bytes;
                let damaged = match entry {
                    Ok(entry) if is_inside(&entry) => None,
                    Ok((offset, _)) => Some(offset),
                    Err(head) => Some(head),
                };
                unknown("undo slot", number, damaged)?;
            }
        }
        for slot in slots() {
            if !planted.is(Planted::LeaveOverwritten) {
                // SAFETY: nobody reads or writes the region until the memory is taken over.
                unsafe { slot.put_back(map) };
            }
            slot.close();
        }
        Ok(())
    }

    /// The first undo slot that says it has more entries than there is room for, and its word.
    pub(super) fn damaged_undo(&self) -> Option<(u64, u64)> {
        let words = (0..UNDO_SLOTS).map(|number| (number, self.undo_slot(number).word));
        words
            .map(|(number, word)| (number, word.load(Acquire)))
            .find(|(_, used)| *used > ENTRIES_BYTES as u64)
    }
}
