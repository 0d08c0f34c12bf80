//! The choice of a cleaning round, with the same result as the region's `floor`. For policies that
//! go by marks it does not look at every dirty page.

use perdura_dirty::policy::hands::Stretch;
use perdura_dirty::policy::{Mark, PolicyKind, RankedBy, View, floor_rank};

use super::pages::{Pages, for_bits};
use crate::trace::PAGE_BYTES;

/// The rank from which on pages are victims; cold pages are victims, too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Floor {
    view: View,
    rank: u64,
}

impl Floor {
    /// Plans victims for about `want_bytes`.
    pub fn plan(pages: &Pages, epoch: u32, round: u64, want_bytes: u64) -> Self {
        let policy = pages.policy;
        let view = View::of(policy.ranked_by(), epoch, round, |seen| {
            pages.ages.marks().for_each(|(mark, pages)| seen(mark, pages));
        });
        let rank = match policy.ranked_by() {
            RankedBy::Heat => 0,
            RankedBy::Age => by_age(pages, &view, want_bytes),
            RankedBy::History => by_history(pages, &view, want_bytes),
            RankedBy::Number => by_number(pages, &view, want_bytes),
            RankedBy::Unit => by_unit(pages, &view, want_bytes),
        };
        Self { view, rank }
    }

    /// The dirty pages of a word that are to be cleaned, as bits.
    pub fn victims(&self, pages: &mut Pages, stretch: &Stretch, word: usize, dirty: u64) -> u64 {
        let policy = pages.policy;
        if policy.ranked_by() == RankedBy::Heat {
            return if stretch.spares { dirty & pages.cold(word) } else { dirty };
        }
        let goes_by_marks = matches!(policy.ranked_by(), RankedBy::Age | RankedBy::History);
        if goes_by_marks && self.highest(policy, pages.oldest_of(word)) < self.rank {
            return 0;
        }
        let mut victims = 0;
        for_bits(word, dirty, |page| {
            if policy.rank(page as u64, pages.mark_of(page), &self.view) >= self.rank {
                victims |= 1 << (page % 64);
            }
        });
        if goes_by_marks && victims == 0 {
            pages.renew_oldest(word, self.view.epoch);
        }
        victims
    }

    /// The highest rank that a page can have whose mark is of this epoch or a later one.
    fn highest(&self, policy: PolicyKind, epoch: u32) -> u64 {
        policy.rank(0, Mark { epoch, again: false, history: 1 << 63 }, &self.view)
    }
}

/// Plans where pages of one epoch have one rank, or two.
fn by_age(pages: &Pages, view: &View, want_bytes: u64) -> u64 {
    let policy = pages.policy;
    floor_rank(policy.rank_bits(), want_bytes, |found| {
        for (mark, count) in pages.ages.marks() {
            found(policy.rank(0, mark, view), count * PAGE_BYTES);
        }
    })
}

/// Finds the floor by histories. A page whose last write is in an earlier epoch always has a higher
/// rank, so histories are compared only within the epoch of the last victim.
fn by_history(pages: &Pages, view: &View, want_bytes: u64) -> u64 {
    let policy = pages.policy;
    let mut left_bytes = want_bytes.max(1);
    let last = pages.ages.epochs().find(|(_, count)| {
        let is_last = count * PAGE_BYTES >= left_bytes;
        left_bytes -= if is_last { 0 } else { count * PAGE_BYTES };
        is_last
    });
    // All of them is not enough.
    let Some((epoch, count)) = last else { return 0 };
    // Too long ago for histories to differ, as nearly always: where writes are spread all victims
    // are.
    let of = |history| policy.rank(0, Mark { epoch, again: false, history }, view);
    if of(1 << 63) == of(u64::MAX) {
        return of(u64::MAX);
    }
    let mut ranks = Vec::with_capacity(count as usize);
    pages.for_dirty_pages_since(epoch, view.epoch, |page| {
        let mark = pages.mark_of(page);
        if mark.epoch == epoch {
            ranks.push(policy.rank(0, mark, view));
        }
    });
    floor_rank(policy.rank_bits(), left_bytes, |found| {
        ranks.iter().for_each(|rank| found(*rank, PAGE_BYTES));
    })
}

/// Plans with a look at every page, for a policy that draws another number each round.
fn by_number(pages: &Pages, view: &View, want_bytes: u64) -> u64 {
    let policy = pages.policy;
    let mut counts = [0u64; 256];
    pages.for_dirty_pages(|page| {
        counts[policy.rank(page as u64, Mark::default(), view) as usize & 255] += 1;
    });
    floor_rank(policy.rank_bits(), want_bytes, |found| {
        for (rank, count) in (0..).zip(counts).filter(|(_, count)| *count > 0) {
            found(rank, count * PAGE_BYTES);
        }
    })
}

/// All pages are looked at, as the region does it: nothing is known of the ranks.
fn by_unit(pages: &Pages, view: &View, want_bytes: u64) -> u64 {
    let policy = pages.policy;
    floor_rank(policy.rank_bits(), want_bytes, |found| {
        pages.for_dirty_pages(|page| {
            found(policy.rank(page as u64, pages.mark_of(page), view), PAGE_BYTES);
        });
    })
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::super::pages::WORD_PAGES;
    use super::*;

    /// Plans with a look at every page, as the region does it.
    fn plainly(pages: &Pages, epoch: u32, round: u64, want_bytes: u64) -> Floor {
        let policy = pages.policy;
        let view = View::of(policy.ranked_by(), epoch, round, |seen| {
            pages.for_dirty_pages(|page| seen(pages.mark_of(page), 1));
        });
        let rank = floor_rank(policy.rank_bits(), want_bytes, |found| {
            pages.for_dirty_pages(|page| {
                found(policy.rank(page as u64, pages.mark_of(page), &view), PAGE_BYTES);
            });
        });
        Floor { view, rank }
    }

    #[test]
    fn victims_are_those_that_a_look_at_every_page_would_find() {
        const WORDS: usize = 12;
        const STRETCH: Stretch = Stretch { from: 0, to: WORDS, spares: false };
        let is_ranked = |policy: &PolicyKind| policy.ranked_by() != RankedBy::Heat;
        let policies: Vec<_> = PolicyKind::ALL.into_iter().filter(is_ranked).collect();
        for seed in 0..160 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let policy = policies[seed as usize % policies.len()];
            let region_bytes = (WORDS * WORD_PAGES) as u64 * PAGE_BYTES;
            let mut pages = Pages::new(region_bytes, policy, true);
            pages.reach((WORDS * WORD_PAGES) as u32 - 1);
            // Some begin where the numbers of epochs end.
            let mut epoch = if seed % 3 == 0 { u32::MAX - 40 } else { 1 };
            for step in 0..300u64 {
                epoch = epoch.wrapping_add([0, 1, 1, 90][random.random_range(0..4usize)]);
                for _ in 0..random.random_range(0..60) {
                    let page = random.random_range(0..WORDS * WORD_PAGES);
                    let page = if random.random() { page / 16 } else { page };
                    let (word, bit) = (page / WORD_PAGES, 1 << (page % WORD_PAGES));
                    let was_dirty = pages.current().word(word) & bit != 0;
                    pages.enter(word, bit, was_dirty, epoch);
                }
                if random.random_range(0..100) == 0 {
                    (0..WORDS).for_each(|word| pages.clear_dirty(true, word, u64::MAX));
                    pages.cut();
                }
                let want_bytes = random.random_range(0..120) * PAGE_BYTES;
                let floor = Floor::plan(&pages, epoch, step, want_bytes);
                let plain = plainly(&pages, epoch, step, want_bytes);
                let told = format!("seed {seed}, step {step}, {}", policy.name());
                assert_eq!(floor.rank, plain.rank, "{told}: {want_bytes}");
                for word in 0..WORDS {
                    let dirty = pages.current().word(word);
                    let mut expected = 0;
                    for_bits(word, dirty, |page| {
                        let rank = policy.rank(page as u64, pages.mark_of(page), &plain.view);
                        expected |= u64::from(rank >= plain.rank) << (page % WORD_PAGES);
                    });
                    let victims = floor.victims(&mut pages, &STRETCH, word, dirty);
                    assert_eq!(victims, expected, "{told}: word {word}");
                    // Now and then they are cleaned, or some of them.
                    let cleaned = [0, victims, victims & random.random::<u64>()];
                    pages.clear_dirty(false, word, cleaned[random.random_range(0..3usize)]);
                }
            }
        }
    }
}
