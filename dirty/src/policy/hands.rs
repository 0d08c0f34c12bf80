//! The positions of the cleaner's two hands: one takes cold grains, the other cools. Pure
//! arithmetic over numbers of bitmap words.

use std::ops::Range;

/// Words that the cleaner's hand passes for each word that the cooling hand passes.
const WORDS_PER_COOLED: usize = 8;

/// The positions of both hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hands {
    /// Bitmap word at which the next sweep begins.
    pub next: usize,
    /// Position of the cooling hand, in eighths of a word.
    cooled: usize,
}

/// The words that are left of one choice of victims: at most two revolutions, of which the first
/// may spare everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revolutions {
    words_in_use: usize,
    words_left: usize,
}

/// A sweep over a range of bitmap words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// First word of the sweep.
    pub from: usize,
    /// The word behind the last.
    pub to: usize,
    /// Whether hot grains are spared.
    pub spares: bool,
}

impl Revolutions {
    /// Two revolutions of `words_in_use` words each.
    pub fn of(words_in_use: usize) -> Self {
        Self { words_in_use, words_left: words_in_use * 2 }
    }

    /// The next sweep; `None` after both revolutions. A whole revolution spares hot grains, then a
    /// whole one does not, wherever the hand stands.
    pub fn next(&self, hands: &Hands) -> Option<Stretch> {
        if self.words_left == 0 {
            return None;
        }
        let from = if hands.next < self.words_in_use { hands.next } else { 0 };
        let spared_left = self.words_left.saturating_sub(self.words_in_use);
        let part = if spared_left > 0 { spared_left } else { self.words_left };
        let to = self.words_in_use.min(from + part);
        Some(Stretch { from, to, spares: spared_left > 0 })
    }

    /// Notes that the sweep of `stretch` ended before word `next`. Returns the words that the
    /// cooling hand passes meanwhile, to be taken modulo the words in use.
    pub fn swept(&mut self, hands: &mut Hands, stretch: Stretch, next: usize) -> Range<usize> {
        let passed = next - stretch.from;
        self.words_left -= passed.min(self.words_left);
        hands.next = next;
        let before = hands.cooled / WORDS_PER_COOLED;
        hands.cooled += passed;
        let cooled = before..hands.cooled / WORDS_PER_COOLED;
        hands.cooled %= (self.words_in_use * WORDS_PER_COOLED).max(1);
        cooled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_two_revolutions_meets_every_word_once_wherever_the_hand_stands() {
        for words in 1..20 {
            for start in 0..=words {
                let mut hands = Hands { next: start, cooled: 3 };
                let mut left = Revolutions::of(words);
                let mut met = [vec![0; words], vec![0; words]];
                while let Some(stretch) = left.next(&hands) {
                    // Sweeps may end early.
                    let next = stretch.to.min(stretch.from + 3);
                    (stretch.from..next)
                        .for_each(|word| met[usize::from(stretch.spares)][word] += 1);
                    left.swept(&mut hands, stretch, next);
                }
                assert_eq!(met, [vec![1; words], vec![1; words]], "{words} words from {start}");
            }
        }
    }

    #[test]
    fn one_word_is_cooled_for_eight_that_are_passed() {
        let (words, mut hands) = (40, Hands::default());
        let mut cooled = vec![0; words];
        for _ in 0..8 {
            let mut left = Revolutions::of(words);
            while let Some(stretch) = left.next(&hands) {
                let next = stretch.to.min(stretch.from + 7);
                let range = left.swept(&mut hands, stretch, next);
                range.for_each(|word| cooled[word % words] += 1);
            }
        }
        assert_eq!(cooled, vec![2; words]);
    }
}
