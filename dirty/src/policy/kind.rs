//! The policies, by name.

use super::rank::{Mark, Policy, RankedBy, View};

macro_rules! policies {
    ($($kind:ident in $file:ident,)*) => {
        /// The named policies.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum PolicyKind {
            $(
                #[doc = concat!("The policy that `policy/", stringify!($file), ".rs` describes.")]
                $kind,
            )*
        }

        impl PolicyKind {
            /// All policies; the first is the default.
            pub const ALL: [Self; [$(stringify!($kind)),*].len()] = [$(Self::$kind),*];

            /// Name in settings and reports.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => super::$file::$kind::NAME,)* }
            }

            /// The quantity on which ranks depend.
            #[inline]
            pub fn ranked_by(self) -> RankedBy {
                match self { $(Self::$kind => super::$file::$kind::RANKED_BY,)* }
            }

            /// Words of [`Mark`] that writers leave for each unit.
            pub fn mark_words(self) -> usize {
                match self { $(Self::$kind => super::$file::$kind::MARK_WORDS,)* }
            }

            /// Whether it matters that a unit was written again while it was dirty.
            pub(crate) fn heeds_rewrites(self) -> bool {
                match self { $(Self::$kind => super::$file::$kind::HEEDS_REWRITES,)* }
            }

            /// Bits that ranks have: a multiple of 8.
            pub fn rank_bits(self) -> u32 {
                match self { $(Self::$kind => super::$file::$kind::RANK_BITS,)* }
            }

            /// The mark that a unit gets when it is written at `epoch`, given its mark so far and
            /// whether it was dirty.
            #[inline]
            pub fn mark(self, mark: Mark, was_dirty: bool, epoch: u32) -> Mark {
                match self { $(Self::$kind => super::$file::$kind::mark(mark, was_dirty, epoch),)* }
            }

            /// The rank of a dirty unit; units of higher rank are cleaned first.
            #[inline]
            pub fn rank(self, unit: u64, mark: Mark, view: &View) -> u64 {
                match self { $(Self::$kind => super::$file::$kind::rank(unit, mark, view),)* }
            }
        }
    };
}

policies! {
    ClockPro in clock_pro,
    Fifo in fifo,
    Segmented in segmented,
    LeastRecentlyUpdated in least_recently_updated,
    Random in random,
}

impl PolicyKind {
    /// The policy with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl Default for PolicyKind {
    fn default() -> Self {
        Self::ALL[0]
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn fifo_ignores_writes_after_the_first() {
        let fifo = PolicyKind::Fifo;
        let first = fifo.mark(Mark::default(), false, 10);
        assert_eq!(fifo.mark(first, true, 90), first);
        let view = View { epoch: 100, oldest_age: 90, ..View::default() };
        assert_eq!(fifo.rank(0, first, &view), 255);
        assert!(fifo.rank(0, fifo.mark(Mark::default(), false, 95), &view) < 20);
    }

    /// The naive form of a history: for every epoch since the beginning, whether it was written.
    fn ranked_by_all_epochs(written: &[bool]) -> Vec<bool> {
        let mut newest_first: Vec<bool> = written.iter().rev().copied().take(64).collect();
        newest_first.resize(64, false);
        newest_first
    }

    #[test]
    fn least_recently_updated_orders_by_each_of_64_epochs() {
        const EPOCHS: usize = 200;
        let lru = PolicyKind::LeastRecentlyUpdated;
        // Miri takes minutes for all of them.
        for seed in 0..if cfg!(miri) { 4 } else { 200 } {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            // From units written always to units hardly ever written.
            let units: Vec<(Mark, Vec<bool>)> = (0..16)
                .map(|unit| {
                    let (mut mark, mut written) = (Mark::default(), Vec::new());
                    for epoch in 0..EPOCHS {
                        // In half the seeds the last epochs are alike for all units, so that older
                        // ones must decide.
                        let alike = seed % 2 == 0 && epoch > EPOCHS - 1 - (seed as usize % 60);
                        let writes = match alike {
                            true => epoch % 3 == 0,
                            false => random.random_range(0..=unit) == 0,
                        };
                        if writes {
                            mark = lru.mark(mark, random.random(), epoch as u32);
                            // A second write in the same epoch changes nothing that ranks depend
                            // on.
                            let again = lru.mark(mark, true, epoch as u32);
                            assert_eq!((again.epoch, again.history), (mark.epoch, mark.history));
                        }
                        written.push(writes);
                    }
                    (Mark::unpack(mark.pack()), written)
                })
                .collect();
            let view = View { epoch: EPOCHS as u32 - 1, ..View::default() };
            for (a, all_of_a) in &units {
                for (b, all_of_b) in &units {
                    let order = lru.rank(0, *b, &view).cmp(&lru.rank(0, *a, &view));
                    let naive = ranked_by_all_epochs(all_of_a).cmp(&ranked_by_all_epochs(all_of_b));
                    assert_eq!(order, naive, "seed {seed}: {a:?} {b:?}");
                }
            }
        }
    }

    #[test]
    fn the_oldest_of_64_epochs_still_breaks_a_tie() {
        let lru = PolicyKind::LeastRecentlyUpdated;
        let once = lru.mark(Mark::default(), false, 100);
        let also = |first| lru.mark(lru.mark(Mark::default(), false, first), true, 100);
        let view = View { epoch: 100, ..View::default() };
        assert!(lru.rank(0, once, &view) > lru.rank(0, also(37), &view));
        assert_eq!(lru.rank(0, once, &view), lru.rank(0, also(36), &view));
        // Nothing in the last 64 epochs, or nothing ever.
        let later = View { epoch: 164, ..View::default() };
        assert_eq!(lru.rank(0, once, &later), lru.rank(0, Mark::default(), &later));
        assert_eq!(lru.rank(0, once, &later), u64::MAX);
        // Written after the view was made.
        assert!(lru.rank(0, lru.mark(once, true, 102), &view) < lru.rank(0, once, &view));
    }

    #[test]
    fn segmented_keeps_what_was_written_again_until_it_is_too_much() {
        let s = PolicyKind::Segmented;
        let once = s.mark(Mark::default(), false, 50);
        let again = s.mark(s.mark(Mark::default(), false, 10), true, 11);
        let mut view = View { epoch: 60, oldest_age: 50, ..View::default() };
        assert!(s.rank(0, once, &view) > s.rank(0, again, &view));
        view.protected_is_over = true;
        assert!(s.rank(0, once, &view) < s.rank(0, again, &view));
    }

    #[test]
    fn old_data_go_first_beside_a_mark_that_is_newer_than_the_round_and_after_weeks() {
        let mark = |epoch| PolicyKind::Fifo.mark(Mark::default(), false, epoch);
        // Before and behind the point where numbers of epochs begin again.
        for now in [5u32, 3_000_000_000] {
            for oldest_age in [100u32, 1 << 20, 3_000_000_000] {
                let ages = [oldest_age, oldest_age / 2, 0];
                let mut marks: Vec<Mark> = ages.map(|age| mark(now.wrapping_sub(age))).to_vec();
                marks.push(mark(now.wrapping_add(2)));
                let view = View::of(RankedBy::Age, now, 0, |seen| {
                    marks.iter().for_each(|mark| seen(*mark, 1))
                });
                let ranks: Vec<u64> =
                    marks.iter().map(|mark| PolicyKind::Fifo.rank(0, *mark, &view)).collect();
                assert_eq!(ranks, [255, 127, 0, 0], "{now}, {oldest_age}");
            }
        }
    }
}
