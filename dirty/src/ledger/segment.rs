//! A log segment in the ledger: its state, and the bytes that it holds.

use crate::sync::{AtomicU64, Ordering::*};

/// The state of a log segment, by the number that the ledger holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum SegmentState {
    /// Nothing in the segment is needed: the log may continue there.
    Free = 0,
    /// The segment holds frames, or is being filled with them.
    Used = 1,
    /// The segment is being prezeroed, and cannot be taken meanwhile.
    Zeroed = 2,
}

impl SegmentState {
    /// Every state.
    pub(crate) const ALL: [Self; 3] = [Self::Free, Self::Used, Self::Zeroed];

    /// The allowed transitions. A state may always be set again, because recovery sets it for each
    /// frame that it finds.
    const ALLOWED: [(Self, Self); 4] = [
        (Self::Free, Self::Used),
        (Self::Used, Self::Free),
        (Self::Free, Self::Zeroed),
        (Self::Zeroed, Self::Free),
    ];

    /// Whether a segment may go from this state to `next`.
    pub(crate) fn may_become(self, next: Self) -> bool {
        self == next || Self::ALLOWED.contains(&(self, next))
    }

    /// The state that a word stands for; `Err` has the word if it stands for none.
    pub(crate) fn of_word(word: u64) -> Result<Self, u64> {
        Self::ALL.into_iter().find(|state| *state as u64 == word).ok_or(word)
    }
}

/// The first word of an entry: its low half is the state, the next bit says whether the space was
/// ever written, and behind that is how many 4 KiB blocks were written since the segment was begun.
const STATE_MASK: u64 = 0xffff_ffff;
const WRITTEN_BLOCKS_SHIFT: u32 = 33;

/// The ledger's entry of one log segment.
pub struct SegmentEntry<'l> {
    pub(super) words: &'l [AtomicU64],
}

impl<'l> SegmentEntry<'l> {
    /// The state of the segment.
    ///
    /// # Panics
    /// The word stands for no state. Attaching checks the word, so a program damaged it since then.
    pub fn state(&self) -> SegmentState {
        match SegmentState::of_word(self.found_state()) {
            Ok(state) => state,
            Err(word) => panic!("a segment of the unknown state {word}"),
        }
    }

    /// The word of the state, which may stand for none.
    pub(super) fn found_state(&self) -> u64 {
        self.words[0].load(Acquire) & STATE_MASK
    }

    /// Changes the state. Only one thread does so at a time: the one that takes the segment or
    /// frees it.
    ///
    /// # Panics
    /// The transition is not allowed.
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

    /// Sets the count of written bytes to zero, because the segment is about to be filled.
    pub fn begin_writing(&self) {
        self.words[0].fetch_and((1 << WRITTEN_BLOCKS_SHIFT) - 1, AcqRel);
    }

    /// Counts bytes written to the segment since [`SegmentEntry::begin_writing`]. From three
    /// quarters of the segment on all its space counts as written.
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
    fn a_segment_was_written_from_three_quarters_on_and_for_good() {
        let words: [AtomicU64; 4] = Default::default();
        let entry = SegmentEntry { words: &words };
        entry.set_state(SegmentState::Used);
        let segment_bytes = 1 << 20;
        for _ in 0..3 {
            // Frames that were forgotten, because the segment was begun anew.
            entry.count_written(700 << 10, segment_bytes);
            entry.begin_writing();
        }
        for pages in [1, 128, 62] {
            entry.count_written(pages * 4096, segment_bytes);
            assert!(!entry.was_written(), "{pages}");
        }
        entry.count_written(4096, segment_bytes);
        assert!(entry.was_written());
        entry.begin_writing();
        assert_eq!((entry.state(), entry.was_written()), (SegmentState::Used, true));
        entry.set_state(SegmentState::Free);
        entry.count_written(4096, segment_bytes);
        assert_eq!((entry.state(), entry.was_written()), (SegmentState::Free, true));
        // One long frame is enough, whichever segment it is in.
        let words: [AtomicU64; 4] = Default::default();
        let entry = SegmentEntry { words: &words };
        entry.count_written(48 << 20, 64 << 20);
        assert!(entry.was_written());
    }

    #[test]
    fn only_a_free_segment_gets_zeros_and_none_is_filled_while_it_gets_them() {
        use SegmentState::*;
        assert!(Free.may_become(Zeroed) && Zeroed.may_become(Free));
        assert!(!Zeroed.may_become(Used) && !Used.may_become(Zeroed));
        assert_eq!(SegmentState::of_word(3), Err(3));
    }
}
