//! Where the cleaner's two hands stand: the one that takes what is cold, and the one that cools.
//! Pure: bitmap words.

use std::ops::Range;

/// Words the cleaner's hand passes for one that the cooling hand passes.
const WORDS_PER_COOLED: usize = 8;

/// Both hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hands {
    /// Where the next sweep begins.
    pub next: usize,
    /// The cooling hand, in eighths of a word.
    cooled: usize,
}

/// What is left of one choice of victims: at most two revolutions, of which the first may spare
/// everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revolutions {
    words_in_use: usize,
    words_left: usize,
}

/// A sweep over these words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// First word.
    pub from: usize,
    /// The word behind the last.
    pub to: usize,
    /// Whether what is hot is spared.
    pub spares: bool,
}

impl Revolutions {
    /// Both, of so many words.
    pub fn of(words_in_use: usize) -> Self {
        Self { words_in_use, words_left: words_in_use * 2 }
    }

    /// Where to sweep next, if it is not over: a whole revolution that spares what is hot, then a
    /// whole one that does not, wherever the hand stands.
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

    /// The sweep of `stretch` ended before `next`. Returns the words that the cooling hand passes
    /// meanwhile, to be taken round the words in use.
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
                    // Sweeps end early now and then.
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
