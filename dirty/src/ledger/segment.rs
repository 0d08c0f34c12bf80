//! A log segment as the ledger knows it: what it is used for, and what it holds.

use std::sync::atomic::{AtomicU64, Ordering::*};

/// What a log segment is used for, by the number that the ledger holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum SegmentState {
    /// Nothing in it is needed: the log may go on there.
    Free = 0,
    /// It holds frames, or is being filled with them.
    Used = 1,
    /// It would be free, but gets zeros, so that later writes to it are cheaper.
    Zeroed = 2,
}

impl SegmentState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Free, Self::Used, Self::Zeroed];

    /// Which states may follow which. A state may always be set again: recovery tells it of each
    /// frame that it finds.
    const ALLOWED: [(Self, Self); 4] = [
        (Self::Free, Self::Used),
        (Self::Used, Self::Free),
        (Self::Free, Self::Zeroed),
        (Self::Zeroed, Self::Free),
    ];

    /// Whether a segment of this state may come to have another.
    pub fn may_become(self, next: Self) -> bool {
        self == next || Self::ALLOWED.contains(&(self, next))
    }

    /// The state that a word holds; `Err`: the word, which no state has.
    pub fn of_word(word: u64) -> Result<Self, u64> {
        Self::ALL.into_iter().find(|state| *state as u64 == word).ok_or(word)
    }
}

/// The first word of an entry: its low half is the state, the next bit says whether the space was
/// ever written, and behind that is how many 4 KiB blocks were written since the segment was begun.
const STATE_MASK: u64 = 0xffff_ffff;
const WRITTEN_BLOCKS_SHIFT: u32 = 33;

/// One log segment, as the ledger knows it.
pub struct SegmentEntry<'l> {
    pub(super) words: &'l [AtomicU64],
}

impl<'l> SegmentEntry<'l> {
    /// What the segment is used for.
    ///
    /// # Panics
    /// The word holds no state: whoever attached has checked it, so this process wrote it.
    pub fn state(&self) -> SegmentState {
        match SegmentState::of_word(self.found_state()) {
            Ok(state) => state,
            Err(word) => panic!("a segment of the unknown state {word}"),
        }
    }

    /// The state's word, whatever it holds.
    pub(super) fn found_state(&self) -> u64 {
        self.words[0].load(Acquire) & STATE_MASK
    }

    /// Changes the state. One owner changes it at a time: who takes the segment, or who frees it.
    ///
    /// # Panics
    /// The table of states does not allow it.
    pub fn set_state(&self, state: SegmentState) {
        let before = self.state();
        assert!(before.may_become(state), "a segment that is {before:?} becomes {state:?}");
        // Another thread may be counting what is written to the segment, in the same word.
        let _ = self.words[0]
            .fetch_update(AcqRel, Relaxed, |word| Some(word & !STATE_MASK | state as u64));
    }

    /// Whether the segment's space on the device has been written at least once (not only
    /// reserved).
    pub fn was_written(&self) -> bool {
        self.words[0].load(Acquire) >> 32 & 1 == 1
    }

    /// Remembers that the segment's space on the device has been written.
    pub fn set_written(&self) {
        self.words[0].fetch_or(1 << 32, AcqRel);
    }

    /// Begins to count anew what is written to the segment, which is about to be filled.
    pub fn begin_writing(&self) {
        self.words[0].fetch_and((1 << WRITTEN_BLOCKS_SHIFT) - 1, AcqRel);
    }

    /// Counts bytes written to the segment since [`SegmentEntry::begin_writing`]; at three quarters
    /// of it all its space counts as written.
    pub fn count_written(&self, bytes: u64, segment_bytes: u64) {
        let word = self.words[0].fetch_add((bytes / 4096) << WRITTEN_BLOCKS_SHIFT, AcqRel);
        let written_bytes = (word >> WRITTEN_BLOCKS_SHIFT) * 4096 + bytes;
        if written_bytes * 4 >= segment_bytes * 3 {
            self.set_written();
        }
    }

    /// Bytes of frames in the segment, from its start.
    pub fn used_bytes(&self) -> &'l AtomicU64 {
        &self.words[1]
    }

    /// Sequence number of the segment's first frame.
    pub fn first_seq(&self) -> &'l AtomicU64 {
        &self.words[2]
    }

    /// Bytes of grains whose newest copy the segment holds.
    pub fn live_bytes(&self) -> &'l AtomicU64 {
        &self.words[3]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_free_segment_gets_zeros_and_none_is_filled_while_it_gets_them() {
        use SegmentState::*;
        assert!(Free.may_become(Zeroed) && Zeroed.may_become(Free));
        assert!(!Zeroed.may_become(Used) && !Used.may_become(Zeroed));
        assert_eq!(SegmentState::of_word(3), Err(3));
    }
}
