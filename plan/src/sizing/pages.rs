//! The pages of a replayed region, with the bits that a region in trap mode keeps for each: dirty,
//! owed to a checkpoint, open, hot.
//!
//! The cleaner's hands go over all words of the region, but only words up to the highest page that
//! was met are kept. Pages are numbered in the order of their first write, so no page behind that
//! one was ever written, and a hand that passes there finds nothing.

use std::ops::Range;

use perdura_dirty::Planes;
use perdura_dirty::policy::{Mark, PolicyKind, RankedBy};

use super::ages::Ages;
use crate::trace::PAGE_BYTES;

/// How many pages a word of a bitmap has.
pub(super) const WORD_PAGES: usize = 64;

/// A bitmap and which of its words are not zero. Words behind those kept are zero.
#[derive(Debug, Default)]
pub(super) struct Bits {
    words: Vec<u64>,
    /// The words that are not zero, a bit each.
    summary: Vec<u64>,
}

impl Bits {
    fn reach(&mut self, words: usize) {
        self.words.resize(words, 0);
        self.summary.resize(words.div_ceil(64), 0);
    }

    #[inline]
    pub fn word(&self, word: usize) -> u64 {
        self.words[word]
    }

    #[inline]
    pub fn set(&mut self, word: usize, bits: u64) {
        self.words[word] |= bits;
        self.summary[word / 64] |= 1 << (word % 64);
    }

    #[inline]
    pub fn clear(&mut self, word: usize, bits: u64) {
        self.words[word] &= !bits;
        if self.words[word] == 0 {
            self.summary[word / 64] &= !(1 << (word % 64));
        }
    }

    /// The first word from `from` on, before `to`, that is not zero.
    #[inline]
    pub fn next(&self, from: usize, to: usize) -> Option<usize> {
        let mut group = from / 64;
        let mut marks = self.summary.get(group)? & u64::MAX << (from % 64);
        while marks == 0 {
            group += 1;
            if group * 64 >= to {
                return None;
            }
            marks = *self.summary.get(group)?;
        }
        let word = group * 64 + marks.trailing_zeros() as usize;
        (word < to).then_some(word)
    }

    fn take_all(&mut self) {
        for (group, marks) in self.summary.iter_mut().enumerate() {
            while *marks != 0 {
                self.words[group * 64 + marks.trailing_zeros() as usize] = 0;
                *marks &= *marks - 1;
            }
        }
    }
}

/// The pages of a replayed region.
#[derive(Debug)]
pub(super) struct Pages {
    /// The pages that are open: stores to them are not noticed.
    pub open: Bits,
    pub open_count: u64,
    dirty: [Bits; 2],
    /// Which of the two bitmaps is that of the current epoch.
    parity: usize,
    /// Whether the other bitmap holds what a checkpoint still owes.
    pub is_closing: bool,
    heat: Vec<Planes>,
    marks: Vec<Mark>,
    /// The marks of the current epoch's dirty pages, where the policy goes by marks.
    pub ages: Ages,
    /// For each word, where policies go by marks, an epoch before which no page that is dirty in
    /// the current epoch has a mark.
    oldest: Vec<u32>,
    pub policy: PolicyKind,
    recency: bool,
    /// The words of the region, which the policy's hands go round.
    pub words: usize,
}

impl Pages {
    pub fn new(region_bytes: u64, policy: PolicyKind, recency: bool) -> Self {
        Self {
            open: Bits::default(),
            open_count: 0,
            dirty: Default::default(),
            parity: 0,
            is_closing: false,
            heat: Vec::new(),
            marks: Vec::new(),
            ages: Ages::default(),
            oldest: Vec::new(),
            policy,
            recency,
            words: (region_bytes / PAGE_BYTES).div_ceil(WORD_PAGES as u64) as usize,
        }
    }

    /// Makes room for the pages up to this one, before the page is stored to.
    pub fn reach(&mut self, page: u32) {
        let words = page as usize / WORD_PAGES + 1;
        if words <= self.heat.len() {
            return;
        }
        assert!(words <= self.words, "a page behind the region");
        self.open.reach(words);
        self.dirty.iter_mut().for_each(|bits| bits.reach(words));
        self.heat.resize(words, Planes::default());
        if self.policy.mark_words() > 0 {
            self.marks.resize(words * WORD_PAGES, Mark::default());
            self.oldest.resize(words, 0);
        }
    }

    pub fn current(&self) -> &Bits {
        &self.dirty[self.parity]
    }

    pub fn owed(&self) -> &Bits {
        &self.dirty[self.parity ^ 1]
    }

    /// The bitmap of the current epoch, or the one of what a checkpoint owes.
    pub fn bits(&self, owed: bool) -> &Bits {
        if owed { self.owed() } else { self.current() }
    }

    pub fn clear_dirty(&mut self, owed: bool, word: usize, bits: u64) {
        self.dirty[self.parity ^ usize::from(owed)].clear(word, bits);
        if !owed && !self.marks.is_empty() {
            for_bits(word, bits, |page| self.ages.remove(self.marks[page]));
        }
    }

    /// A store is let through to a page that is closed, and not owed; `was_dirty` says whether it
    /// costs budget.
    #[inline]
    pub fn enter(&mut self, word: usize, bit: u64, was_dirty: bool, epoch: u32) {
        if !self.marks.is_empty() {
            self.mark(word, bit, was_dirty, epoch);
        }
        if was_dirty {
            self.heat[word] = self.heat[word].warmed(bit);
        } else {
            self.dirty[self.parity].set(word, bit);
        }
        self.open.set(word, bit);
        self.open_count += 1;
    }

    fn mark(&mut self, word: usize, bit: u64, was_dirty: bool, epoch: u32) {
        let page = word * WORD_PAGES + bit.trailing_zeros() as usize;
        let before = self.marks[page];
        let after = self.policy.mark(before, was_dirty, epoch);
        if !was_dirty {
            self.ages.add(after);
        } else if after != before {
            self.ages.replace(before, after);
        }
        if self.current().word(word) == 0 {
            self.oldest[word] = epoch;
        }
        self.marks[page] = after;
    }

    /// The mark of a page; a default one where the policy does not go by marks.
    #[inline]
    pub fn mark_of(&self, page: usize) -> Mark {
        self.marks.get(page).copied().unwrap_or_default()
    }

    /// The earliest epoch that the marks of a word's dirty pages may have.
    #[inline]
    pub fn oldest_of(&self, word: usize) -> u32 {
        self.oldest[word]
    }

    /// Finds the earliest epoch of a word's marks again.
    pub fn renew_oldest(&mut self, word: usize, epoch: u32) {
        let mut age = 0;
        for_bits(word, self.current().word(word), |page| {
            age = age.max(self.marks[page].age_at(epoch));
        });
        self.oldest[word] = epoch.wrapping_sub(age as u32);
    }

    /// Write-protects pages, so that the next store to them is noticed.
    pub fn close(&mut self, word: usize, bits: u64) -> u64 {
        let closed = self.open.word(word) & bits;
        self.open_count -= u64::from(closed.count_ones());
        self.open.clear(word, closed);
        u64::from(closed.count_ones())
    }

    /// Opens pages again that were closed to be copied and were not copied.
    pub fn reopen(&mut self, word: usize, bits: u64) {
        let bits = bits & self.current().word(word) & !self.owed().word(word);
        if bits != 0 {
            self.open_count += u64::from((bits & !self.open.word(word)).count_ones());
            self.open.set(word, bits);
        }
    }

    /// Closes about `batch` open pages from word `from` on. Returns how many, and where to go on.
    pub fn close_open(&mut self, from: usize, batch: u64) -> (u64, Option<usize>) {
        let (mut pages, mut at) = (0, from);
        while let Some(word) = self.open.next(at, self.words) {
            if pages >= batch {
                return (pages, Some(word));
            }
            pages += self.close(word, u64::MAX);
            at = word + 1;
        }
        (pages, None)
    }

    /// Cuts between two epochs: all that is dirty is owed, and closed.
    pub fn cut(&mut self) {
        self.open.take_all();
        self.open_count = 0;
        self.parity ^= 1;
        self.is_closing = true;
        self.ages.clear();
    }

    /// Notes that pages of the current epoch were cleaned.
    pub fn cleaned(&mut self, word: usize, bits: u64) {
        if self.recency {
            self.heat[word] = self.heat[word].cleaned(bits);
        }
    }

    /// Lets the cooling hand pass these words, round and round.
    pub fn cool(&mut self, words: Range<usize>) {
        if self.policy.ranked_by() != RankedBy::Heat || !self.recency {
            return;
        }
        // A round at a time; of each what was met.
        let mut from = words.start;
        while from < words.end && self.words > 0 {
            let round = from - from % self.words;
            let to = words.end.min(round + self.words);
            let met = from - round..self.heat.len().min(to - round);
            for word in met {
                self.heat[word] = self.heat[word].cooled(self.dirty[self.parity].word(word));
            }
            from = to;
        }
    }

    /// The pages of a word without heat, as bits.
    pub fn cold(&self, word: usize) -> u64 {
        self.heat[word].cold()
    }

    /// Calls back with dirty pages, among them all whose mark is of `epoch`; `now` is the epoch
    /// that ages are told from.
    #[inline]
    pub fn for_dirty_pages_since(&self, epoch: u32, now: u32, mut f: impl FnMut(usize)) {
        let (bits, mut at) = (self.current(), 0);
        while let Some(word) = bits.next(at, self.words) {
            if now.wrapping_sub(self.oldest[word]) >= now.wrapping_sub(epoch) {
                for_bits(word, bits.word(word), &mut f);
            }
            at = word + 1;
        }
    }

    /// Calls back with each page that is dirty in the current epoch.
    #[inline]
    pub fn for_dirty_pages(&self, mut f: impl FnMut(usize)) {
        let (bits, mut at) = (self.current(), 0);
        while let Some(word) = bits.next(at, self.words) {
            for_bits(word, bits.word(word), &mut f);
            at = word + 1;
        }
    }
}

/// Calls back with each page of a word's bits.
#[inline]
pub(super) fn for_bits(word: usize, mut bits: u64, mut f: impl FnMut(usize)) {
    while bits != 0 {
        f(word * WORD_PAGES + bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn the_cooling_hand_cools_what_was_met_as_if_it_went_over_all_words() {
        for seed in 0..200 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let words = random.random_range(1..200usize);
            let met = random.random_range(1..=words);
            let region_bytes = (words * WORD_PAGES) as u64 * PAGE_BYTES;
            let mut pages = Pages::new(region_bytes, PolicyKind::ClockPro, true);
            pages.reach((met * WORD_PAGES) as u32 - 1);
            for _ in 0..met * 40 {
                let (word, bit) = (random.random_range(0..met), 1 << random.random_range(0..64));
                pages.enter(word, bit, random.random_range(0..3) > 0, 1);
            }
            let mut heat = pages.heat.clone();
            heat.resize(words, Planes::default());
            let from = random.random_range(0..words);
            let range = from..from + random.random_range(0..3 * words);
            for word in range.clone() {
                let word = word % words;
                let dirty = if word < met { pages.current().word(word) } else { 0 };
                heat[word] = heat[word].cooled(dirty);
            }
            pages.cool(range.clone());
            assert_eq!(pages.heat[..], heat[..met], "seed {seed}: {range:?} of {words}, {met} met");
            assert!(heat[met..].iter().all(|planes| *planes == Planes::default()));
        }
    }
}
