//! The pages of a replayed region: dirty, owed, open, hot; as a region in trap mode has them, a bit each.

use perdura_region::Planes;
use perdura_region::policy::hands::Stretch;
use perdura_region::policy::{Mark, PolicyKind, View, floor_rank};

use crate::trace::PAGE_BYTES;

/// Pages of a bitmap word.
pub(super) const WORD_PAGES: usize = 64;

/// A bitmap and which of its words are not zero.
#[derive(Debug)]
pub(super) struct Bits {
    words: Vec<u64>,
    /// A bit a word.
    summary: Vec<u64>,
}

impl Bits {
    fn new(words: usize) -> Self {
        Self { words: vec![0; words], summary: vec![0; words.div_ceil(64)] }
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

/// The pages.
#[derive(Debug)]
pub(super) struct Pages {
    /// A store to an open page is not noticed.
    pub open: Bits,
    pub open_count: u64,
    dirty: [Bits; 2],
    /// Of the current epoch's bitmap.
    parity: usize,
    /// The other bitmap is what a checkpoint still owes.
    pub is_closing: bool,
    heat: Vec<Planes>,
    marks: Vec<Mark>,
    policy: PolicyKind,
    recency: bool,
    /// Words in use.
    pub words: usize,
}

impl Pages {
    pub fn new(region_bytes: u64, policy: PolicyKind, recency: bool) -> Self {
        let words = (region_bytes / PAGE_BYTES).div_ceil(WORD_PAGES as u64) as usize;
        let marks = if policy.mark_words() > 0 { words * WORD_PAGES } else { 0 };
        Self {
            open: Bits::new(words),
            open_count: 0,
            dirty: [Bits::new(words), Bits::new(words)],
            parity: 0,
            is_closing: false,
            heat: vec![Planes::default(); words],
            marks: vec![Mark::default(); marks],
            policy,
            recency,
            words,
        }
    }

    pub fn current(&self) -> &Bits {
        &self.dirty[self.parity]
    }

    pub fn owed(&self) -> &Bits {
        &self.dirty[self.parity ^ 1]
    }

    /// The epoch's bitmap, or the one that a checkpoint owes.
    pub fn bits(&self, owed: bool) -> &Bits {
        if owed { self.owed() } else { self.current() }
    }

    pub fn clear_dirty(&mut self, owed: bool, word: usize, bits: u64) {
        self.dirty[self.parity ^ usize::from(owed)].clear(word, bits);
    }

    /// A store is let through to a page that is closed, and not owed; `was_dirty` says whether it costs budget.
    #[inline]
    pub fn enter(&mut self, word: usize, bit: u64, was_dirty: bool, epoch: u32) {
        if was_dirty {
            self.heat[word] = self.heat[word].warmed(bit);
        } else {
            self.dirty[self.parity].set(word, bit);
        }
        if !self.marks.is_empty() {
            let page = word * WORD_PAGES + bit.trailing_zeros() as usize;
            self.marks[page] = self.policy.mark(self.marks[page], was_dirty, epoch);
        }
        self.open.set(word, bit);
        self.open_count += 1;
    }

    /// Write-protects pages: the next store to them is noticed.
    pub fn close(&mut self, word: usize, bits: u64) -> u64 {
        let closed = self.open.word(word) & bits;
        self.open_count -= u64::from(closed.count_ones());
        self.open.clear(word, closed);
        u64::from(closed.count_ones())
    }

    /// Pages that were closed to be copied and were not are opened again.
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

    /// The instant between two epochs: all that is dirty is owed, and closed.
    pub fn cut(&mut self) {
        self.open.take_all();
        self.open_count = 0;
        self.parity ^= 1;
        self.is_closing = true;
    }

    /// Pages of the current epoch were cleaned.
    pub fn cleaned(&mut self, word: usize, bits: u64) {
        if self.recency {
            self.heat[word] = self.heat[word].cleaned(bits);
        }
    }

    /// The cooling hand passes these words, round and round.
    pub fn cool(&mut self, words: std::ops::Range<usize>) {
        if self.policy == PolicyKind::ClockPro && self.recency {
            for word in words {
                let word = word % self.words.max(1);
                self.heat[word] = self.heat[word].cooled(self.dirty[self.parity].word(word));
            }
        }
    }

    fn for_dirty_pages(&self, mut f: impl FnMut(usize)) {
        let (bits, mut at) = (self.current(), 0);
        while let Some(word) = bits.next(at, self.words) {
            let mut left = bits.word(word);
            while left != 0 {
                f(word * WORD_PAGES + left.trailing_zeros() as usize);
                left &= left - 1;
            }
            at = word + 1;
        }
    }
}

/// A round's choice, as the region's `floor` makes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Floor {
    view: View,
    rank: u64,
}

impl Floor {
    /// For about `want_bytes`.
    pub fn plan(pages: &Pages, epoch: u32, round: u64, want_bytes: u64) -> Self {
        let policy = pages.policy;
        let view = View::of(policy, epoch, round, |seen| {
            pages.for_dirty_pages(|page| seen(pages.marks[page]));
        });
        if policy == PolicyKind::ClockPro {
            return Self { view, rank: 0 };
        }
        let rank = floor_rank(policy.rank_bits(), want_bytes, |found| {
            pages.for_dirty_pages(|page| {
                found(policy.rank(page as u64, pages.mark(page), &view), PAGE_BYTES);
            });
        });
        Self { view, rank }
    }

    /// Of a word's dirty pages, those to be cleaned.
    pub fn victims(&self, pages: &Pages, stretch: &Stretch, word: usize, dirty: u64) -> u64 {
        if pages.policy == PolicyKind::ClockPro {
            return if stretch.spares { dirty & pages.heat[word].cold() } else { dirty };
        }
        let (mut victims, mut left) = (0, dirty);
        while left != 0 {
            let bit = left & left.wrapping_neg();
            let page = word * WORD_PAGES + bit.trailing_zeros() as usize;
            if pages.policy.rank(page as u64, pages.mark(page), &self.view) >= self.rank {
                victims |= bit;
            }
            left &= left - 1;
        }
        victims
    }
}

impl Pages {
    fn mark(&self, page: usize) -> Mark {
        self.marks.get(page).copied().unwrap_or_default()
    }
}
