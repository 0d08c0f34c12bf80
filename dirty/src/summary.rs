//! A summary of a dirty bitmap: the parts that may hold bits, so that a sweep of a few records does
//! not look at the whole bitmap.
//!
//! The summary has a bit for each block, or for each bitmap word where a word covers more than a
//! block. It is private to a process and built anew on attach. A clear bit means that the bitmap is
//! zero there; a set bit promises nothing. To change a bit takes a locked instruction, which waits
//! for all stores of the record before it, so there are few bits and they rarely change.

use crate::geometry::{BLOCK_BYTES, Geometry};
use crate::sync::{AtomicU64, Ordering::*};
use crate::sys::prefetch;

/// The summary of one bitmap.
pub struct Summary {
    marks: Box<[AtomicU64]>,
    /// Log2 of the bitmap words for each bit of the summary.
    group_shift: u32,
}

impl Summary {
    /// Makes the summary of a bitmap of which only `words` may hold bits.
    pub(crate) fn of(geometry: &Geometry, words: &[AtomicU64]) -> Self {
        let group_bytes = geometry.word_bytes().min(BLOCK_BYTES);
        let group_shift = (BLOCK_BYTES / group_bytes).trailing_zeros();
        let marks = geometry.words().div_ceil(64 << group_shift);
        let marks = (0..marks).map(|_| AtomicU64::new(0)).collect();
        let summary = Self { marks, group_shift };
        for (word, bits) in words.iter().enumerate() {
            if bits.load(Relaxed) != 0 {
                summary.mark(word);
            }
        }
        summary
    }

    /// Notes that a word has become non-zero; called after its bits are set.
    pub fn mark(&self, word: usize) {
        let (marks, bit) = self.place(word >> self.group_shift);
        marks.fetch_or(bit, AcqRel);
    }

    /// Notes that a word has become non-zero, without a locked instruction if the bit is set
    /// already. The caller holds the lane of the word's block, without which nobody clears the bit.
    #[inline]
    pub(crate) fn mark_held(&self, word: usize) {
        let (marks, bit) = self.place(word >> self.group_shift);
        if marks.load(Relaxed) & bit == 0 {
            marks.fetch_or(bit, AcqRel);
        }
    }

    /// Calls `f` with each word from `from` up to `to` that is not zero, and its bits; stops when
    /// `f` returns false. `clean` is called with the first word of each marked group that holds
    /// nothing.
    pub(crate) fn for_dirty_words(
        &self,
        bitmap: &[AtomicU64],
        from: usize,
        to: usize,
        mut clean: impl FnMut(usize),
        mut f: impl FnMut(usize, u64) -> bool,
    ) {
        let mut at = from;
        while at < to
            && let Some(group) = self.marked_from(at >> self.group_shift)
        {
            let (begin, end) = (group << self.group_shift, (group + 1) << self.group_shift);
            if begin >= to {
                return;
            }
            let first = at.max(begin);
            // Writers change most of the bitmap between two sweeps, so it comes from the caches of
            // other processors.
            bitmap[begin..].iter().skip(end - begin).step_by(8).take(2).for_each(|next| {
                prefetch(std::ptr::from_ref(next).cast());
            });
            let mut is_clean = first == begin && end <= to;
            for (word, bits) in (first..).zip(&bitmap[first..end.min(to)]) {
                let bits = bits.load(Relaxed);
                if bits != 0 {
                    is_clean = false;
                    if !f(word, bits) {
                        return;
                    }
                }
            }
            if is_clean {
                clean(begin);
            }
            at = end;
        }
    }

    /// The first marked group at or behind `group`.
    fn marked_from(&self, group: usize) -> Option<usize> {
        let marks = self.marks.get(group / 64)?.load(Relaxed) >> (group % 64);
        if marks != 0 {
            return Some(group + marks.trailing_zeros() as usize);
        }
        // Most words of the summary are zero; a group commit of a few records looks at all of them.
        let rest = &self.marks[group / 64 + 1..];
        let skipped = rest.iter().position(|marks| marks.load(Relaxed) != 0)?;
        let at = group / 64 + 1 + skipped;
        Some(at * 64 + self.marks[at].load(Relaxed).trailing_zeros() as usize)
    }

    /// Clears the mark of a word's group if the group is zero. A thread that uses [`Summary::mark`]
    /// may be setting bits at this moment, first in the bitmap and then in the summary. So the mark
    /// is cleared first and the bitmap is looked at again after that, or a bit could be missed for
    /// ever.
    pub(crate) fn unmark_if_clean(&self, bitmap: &[AtomicU64], word: usize) {
        let group = word >> self.group_shift;
        let words = group << self.group_shift..(group + 1) << self.group_shift;
        let is_clean = || bitmap[words.clone()].iter().all(|bits| bits.load(Acquire) == 0);
        if is_clean() {
            let (marks, bit) = self.place(group);
            marks.fetch_and(!bit, AcqRel);
            if !is_clean() {
                marks.fetch_or(bit, AcqRel);
            }
        }
    }

    fn place(&self, group: usize) -> (&AtomicU64, u64) {
        (&self.marks[group / 64], 1 << (group % 64))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::geometry::{GRAIN_SHIFT_BARRIER, GRAIN_SHIFT_TRAP};

    fn bitmap(geometry: &Geometry) -> Box<[AtomicU64]> {
        (0..geometry.words()).map(|_| AtomicU64::new(0)).collect()
    }

    fn seen(summary: &Summary, bitmap: &[AtomicU64], from: usize, to: usize) -> Vec<usize> {
        let mut words = Vec::new();
        let clean = |word| summary.unmark_if_clean(bitmap, word);
        summary.for_dirty_words(bitmap, from, to, clean, |word, bits| {
            assert_eq!(bits, bitmap[word].load(Relaxed));
            words.push(word);
            true
        });
        words
    }

    #[test]
    fn every_word_with_bits_is_found_and_no_other() {
        for shift in [GRAIN_SHIFT_BARRIER, GRAIN_SHIFT_TRAP] {
            let geometry = Geometry::new(1000 * BLOCK_BYTES, shift, None, 4).unwrap();
            let (bitmap, words) = (bitmap(&geometry), geometry.words());
            let summary = Summary::of(&geometry, &bitmap);
            let mut dirty = Vec::new();
            for step in 0..40 {
                let word = step * 1_999 % words;
                bitmap[word].store(1 << (step % 64), Relaxed);
                summary.mark_held(word);
                dirty.push(word);
                dirty.sort_unstable();
                let between = (word + words / 2) % words;
                for (from, to) in [
                    (0, words),
                    (word, words),
                    (0, word),
                    (word, word + 1),
                    // These end where nothing is marked.
                    (0, between),
                    (between, words),
                ] {
                    let expected: Vec<_> =
                        dirty.iter().copied().filter(|word| (from..to).contains(word)).collect();
                    assert_eq!(seen(&summary, &bitmap, from, to), expected, "{from}..{to}");
                }
            }
            // Words that were cleaned since are not reported, and their marks are gone.
            for word in dirty.drain(..) {
                bitmap[word].store(0, Relaxed);
            }
            assert!(seen(&summary, &bitmap, 0, words).is_empty());
            assert_eq!(summary.marked_from(0), None);
        }
    }

    #[test]
    fn no_bit_is_lost_while_marks_are_forgotten() {
        let geometry = Geometry::new(BLOCK_BYTES, GRAIN_SHIFT_BARRIER, None, 4).unwrap();
        let bitmap = bitmap(&geometry);
        let summary = Summary::of(&geometry, &bitmap);
        let done = AtomicBool::new(false);
        let mut found = 0;
        let set = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut set = 0;
                for step in 0..400_000usize {
                    let (word, bit) = (step % 16, 1 << (step / 16 % 64));
                    let before = bitmap[word].fetch_or(bit, AcqRel);
                    set += u32::from(before & bit == 0);
                    summary.mark(word);
                }
                done.store(true, Release);
                set
            });
            let mut is_last = false;
            while !is_last {
                // Once more when nothing is set any longer.
                is_last = done.load(Acquire);
                let clean = |word| summary.unmark_if_clean(&bitmap, word);
                summary.for_dirty_words(&bitmap, 0, 16, clean, |word, _| {
                    found += bitmap[word].swap(0, AcqRel).count_ones();
                    true
                });
            }
            writer.join().unwrap()
        });
        assert_eq!(found, set);
    }
}
