//! Which dirty data to clean first. Pure code: numbers in, a rank out.
//!
//! A policy gives every dirty *unit* (a page in trap mode, 1 KiB in barrier mode) a rank: the
//! higher, the sooner it is cleaned. The cleaner finds the rank from which on enough bytes lie
//! ([`floor_rank`]) and copies those units in address order. So every policy costs the writer a
//! store or two, and cleaning stays sequential in memory.
//!
//! `least-recently-updated` is the paper's (Viyojit, section 5.2): for each unit a history of the
//! last 64 epochs, a bit for each in which it was written, whether it was dirty or had been
//! cleaned. Histories are compared as numbers with the newest epoch as the highest bit: the unit
//! whose latest update is longest ago goes first; of those equally long ago, the one whose update
//! before that is longer ago, and so on. Units not written for 64 epochs are equal. It costs 16 B
//! of memory a unit; the other policies 8 B or none.

pub mod hands;
pub mod pace;
pub mod sampling;
pub mod space;

/// A mark may be so many epochs newer than what a round takes for now.
const EPOCHS_AHEAD: u32 = 1 << 16;

/// The named policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PolicyKind {
    /// Two hands, after CLOCK-Pro: data written again while dirty, or soon after they were cleaned,
    /// are spared until a slower hand has cooled them. Two bits a grain.
    #[default]
    ClockPro,
    /// Oldest first, by the time data became dirty.
    Fifo,
    /// Data written once go first, oldest first; data written again are kept while they are less
    /// than 30 % of the dirty set.
    Segmented,
    /// By the history of updates in the last 64 epochs.
    LeastRecentlyUpdated,
    /// Any dirty unit, by a seeded hash.
    Random,
}

impl PolicyKind {
    /// All policies.
    pub const ALL: [Self; 5] =
        [Self::ClockPro, Self::Fifo, Self::Segmented, Self::LeastRecentlyUpdated, Self::Random];

    /// Name in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClockPro => "clock-pro",
            Self::Fifo => "fifo",
            Self::Segmented => "segmented",
            Self::LeastRecentlyUpdated => "least-recently-updated",
            Self::Random => "random",
        }
    }

    /// The policy of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Words of [`Mark`] that writers must leave for each unit.
    pub fn mark_words(self) -> usize {
        match self {
            Self::ClockPro | Self::Random => 0,
            Self::Fifo | Self::Segmented => 1,
            Self::LeastRecentlyUpdated => 2,
        }
    }

    /// The mark a unit gets when written at `epoch`, given its mark so far and whether it was
    /// dirty.
    pub fn mark(self, mark: Mark, was_dirty: bool, epoch: u32) -> Mark {
        match self {
            Self::Fifo if was_dirty => mark,
            Self::Segmented if was_dirty => Mark { again: true, ..mark },
            Self::LeastRecentlyUpdated => {
                Mark { epoch, again: was_dirty, history: mark.history_at(epoch) | 1 << 63 }
            }
            _ => Mark { epoch, again: false, history: 0 },
        }
    }

    /// Bits that ranks have: a multiple of 8.
    pub fn rank_bits(self) -> u32 {
        if self == Self::LeastRecentlyUpdated { 64 } else { 8 }
    }

    /// The rank of a dirty unit: the highest goes first.
    #[inline]
    pub fn rank(self, unit: u64, mark: Mark, view: &View) -> u64 {
        let age = mark.age_at(view.epoch);
        let by_age = |top: u64| age.min(view.oldest_age) * top / view.oldest_age.max(1);
        match self {
            Self::ClockPro => 255,
            Self::Fifo => by_age(255),
            Self::Segmented if !mark.again || view.protected_is_over => 128 + by_age(127),
            Self::Segmented => by_age(127),
            Self::LeastRecentlyUpdated => !mark.history_at(view.epoch),
            Self::Random => (unit ^ view.round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56,
        }
    }
}

/// What writers leave for a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// When it was written last (`fifo`, `segmented`: when it became dirty).
    pub epoch: u32,
    /// Written again since it became dirty.
    pub again: bool,
    /// The 64 epochs up to `epoch`, which is the highest bit; set: written in it.
    pub history: u64,
}

impl Mark {
    /// As words; a policy keeps as many as [`PolicyKind::mark_words`] says.
    pub fn pack(self) -> [u64; 2] {
        [u64::from(self.again) << 32 | u64::from(self.epoch), self.history]
    }

    /// The inverse of [`Mark::pack`].
    pub fn unpack(words: [u64; 2]) -> Self {
        Self { epoch: words[0] as u32, again: words[0] >> 32 != 0, history: words[1] }
    }

    /// Epochs since `self.epoch`. A mark from just after `epoch` was read is as new as can be; any
    /// other may be 49 days old at a millisecond an epoch.
    #[inline]
    pub fn age_at(self, epoch: u32) -> u64 {
        match epoch.wrapping_sub(self.epoch) {
            ahead if ahead > u32::MAX - EPOCHS_AHEAD => 0,
            age => u64::from(age),
        }
    }

    /// The history of the 64 epochs up to `epoch`.
    fn history_at(self, epoch: u32) -> u64 {
        self.history.checked_shr(self.age_at(epoch) as u32).unwrap_or(0)
    }
}

/// The lowest rank that must be cleaned so that `want_bytes` are; all units of it and above are the
/// victims. `units` calls back with rank and bytes of every dirty unit, and is called once for each
/// eight bits of rank in which units that may be the last victims differ. Units may change
/// meanwhile: the result is a hint.
pub fn floor_rank(
    rank_bits: u32,
    want_bytes: u64,
    mut units: impl FnMut(&mut dyn FnMut(u64, u64)),
) -> u64 {
    // Bits from `open_bits` up are decided: they are those of `above`.
    let (mut open_bits, mut above) = (rank_bits, 0);
    let mut left_bytes = want_bytes;
    loop {
        let shift = open_bits.saturating_sub(8);
        let mut digits = [Digit::NONE; 256];
        units(&mut |rank, bytes| {
            if rank.checked_shr(open_bits).unwrap_or(0) == above {
                digits[(rank >> shift) as usize & 255].add(rank, bytes);
            }
        });
        let found = digits.iter().rev().find(|digit| {
            let is_last = digit.bytes >= left_bytes.max(1);
            left_bytes -= if is_last { 0 } else { digit.bytes };
            is_last
        });
        // All of them is not enough, or they are gone meanwhile.
        let Some(digit) = found else { return above.checked_shl(open_bits).unwrap_or(0) };
        let differ = digit.any & !digit.all;
        if differ == 0 {
            return digit.any;
        }
        // On to the highest bits in which these differ; at least eight fewer than before, unless it
        // ends.
        open_bits = 64 - differ.leading_zeros();
        above = digit.any.checked_shr(open_bits).unwrap_or(0);
    }
}

/// Ranks with one value of the eight bits looked at.
#[derive(Clone, Copy)]
struct Digit {
    bytes: u64,
    any: u64,
    all: u64,
}

impl Digit {
    const NONE: Self = Self { bytes: 0, any: 0, all: u64::MAX };

    fn add(&mut self, rank: u64, bytes: u64) {
        self.bytes += bytes;
        self.any |= rank;
        self.all &= rank;
    }
}

/// What a round of cleaning knows about the dirty set.
#[derive(Debug, Clone, Copy, Default)]
pub struct View {
    /// Now.
    pub epoch: u32,
    /// Age of the oldest dirty unit, epochs.
    pub oldest_age: u64,
    /// More than 30 % of the dirty units have been written again.
    pub protected_is_over: bool,
    /// Number of this round, for `random`; seeded.
    pub round: u64,
}

impl View {
    /// What a round at `epoch` knows; `marks` calls back with those of all dirty units, and how
    /// many have them, if the policy needs to know.
    pub fn of(
        policy: PolicyKind,
        epoch: u32,
        round: u64,
        marks: impl FnOnce(&mut dyn FnMut(Mark, u64)),
    ) -> Self {
        let mut view = Self { epoch, round, ..Self::default() };
        if matches!(policy, PolicyKind::Fifo | PolicyKind::Segmented) {
            let (mut oldest, mut units, mut again) = (0u64, 0u64, 0u64);
            marks(&mut |mark, count| {
                oldest = oldest.max(mark.age_at(epoch));
                units += count;
                again += if mark.again { count } else { 0 };
            });
            view.oldest_age = oldest;
            view.protected_is_over = again * 10 > units * 3;
        }
        view
    }
}

/// The number of the round after this one; it seeds `random`.
pub fn next_round(round: u64) -> u64 {
    round.wrapping_add(0x9e37_79b9_7f4a_7c15)
}

/// Dirty bytes to expect in the next epoch (Viyojit, section 5.3): 0.75 of this epoch's and 0.25 of
/// the previous expectation.
pub fn pressure(new_dirty_bytes: u64, previous: u64) -> u64 {
    new_dirty_bytes / 4 * 3 + new_dirty_bytes % 4 * 3 / 4 + previous / 4
}

/// Dirty bytes above which cleaning begins (Viyojit, section 5.3): the budget less the pressure.
pub fn threshold(budget_bytes: u64, pressure_bytes: u64) -> u64 {
    budget_bytes.saturating_sub(pressure_bytes)
}

/// Dirty bytes to expect while what is being cleaned is on its way to the device, beside the
/// pressure: as many as the last time, or nearly as many as before if that was more: one flush of
/// the device in ten takes ten times as long as the others, and room for it costs a hundredth of
/// the budget. Where a write takes longer than an epoch the paper's pressure alone makes writers
/// wait.
pub fn lead(net_dirtied_bytes: u64, previous: u64) -> u64 {
    net_dirtied_bytes.max(previous - previous.div_ceil(64))
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn pressure_weighs_this_epoch_three_to_one() {
        assert_eq!(pressure(100, 0), 75);
        assert_eq!(pressure(0, 100), 25);
        assert_eq!(pressure(400, 400), 400);
        assert_eq!(threshold(100, 250), 0);
    }

    #[test]
    fn lead_follows_a_rise_at_once_and_a_fall_slowly() {
        assert_eq!(lead(800, 0), 800);
        assert_eq!(lead(0, 800), 787);
        assert_eq!(lead(0, 7), 6);
        assert_eq!(lead(0, 0), 0);
    }

    #[test]
    fn fifo_ignores_writes_after_the_first() {
        let fifo = PolicyKind::Fifo;
        let first = fifo.mark(Mark::default(), false, 10);
        assert_eq!(fifo.mark(first, true, 90), first);
        let view = View { epoch: 100, oldest_age: 90, ..View::default() };
        assert_eq!(fifo.rank(0, first, &view), 255);
        assert!(fifo.rank(0, fifo.mark(Mark::default(), false, 95), &view) < 20);
    }

    /// The naive form of a history: every epoch since the beginning, written or not.
    fn ranked_by_all_epochs(written: &[bool]) -> Vec<bool> {
        let mut newest_first: Vec<bool> = written.iter().rev().copied().take(64).collect();
        newest_first.resize(64, false);
        newest_first
    }

    #[test]
    fn least_recently_updated_orders_by_each_of_64_epochs() {
        const EPOCHS: usize = 200;
        let lru = PolicyKind::LeastRecentlyUpdated;
        for seed in 0..200 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            // From units written always to units hardly ever written.
            let units: Vec<(Mark, Vec<bool>)> = (0..16)
                .map(|unit| {
                    let (mut mark, mut written) = (Mark::default(), Vec::new());
                    for epoch in 0..EPOCHS {
                        // Half the seeds let a run of epochs pass alike, so that old ones must
                        // decide.
                        let alike = seed % 2 == 0 && epoch > EPOCHS - 1 - (seed as usize % 60);
                        let writes = match alike {
                            true => epoch % 3 == 0,
                            false => random.random_range(0..=unit) == 0,
                        };
                        if writes {
                            mark = lru.mark(mark, random.random(), epoch as u32);
                            // Again in the same epoch changes nothing that counts.
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
                let view = View::of(PolicyKind::Fifo, now, 0, |seen| {
                    marks.iter().for_each(|mark| seen(*mark, 1))
                });
                let ranks: Vec<u64> =
                    marks.iter().map(|mark| PolicyKind::Fifo.rank(0, *mark, &view)).collect();
                assert_eq!(ranks, [255, 127, 0, 0], "{now}, {oldest_age}");
            }
        }
    }

    #[test]
    fn the_floor_is_where_a_full_sort_would_put_it() {
        for seed in 0..500 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let (bits, shared) = ([8, 64][seed as usize % 2], random.random_range(0..64));
            let alike = random.random::<u64>() << shared.min(63);
            let mut units: Vec<(u64, u64)> = (0..random.random_range(0..200))
                .map(|_| {
                    let rank = random.random::<u64>() & random.random::<u64>();
                    let rank = if shared > 0 { alike | (rank % (1 << shared)) } else { rank };
                    (rank >> (64 - bits), random.random_range(1..100))
                })
                .collect();
            let all_bytes: u64 = units.iter().map(|unit| unit.1).sum();
            let want_bytes = random.random_range(1..all_bytes + 50);
            let mut passes = 0;
            let floor = floor_rank(bits, want_bytes, |f| {
                passes += 1;
                units.iter().for_each(|(rank, bytes)| f(*rank, *bytes));
            });
            assert!(passes <= bits / 8, "seed {seed}: {passes} passes");
            units.sort_unstable_by_key(|unit| std::cmp::Reverse(unit.0));
            let mut sum = 0;
            let last = units.iter().find(|unit| {
                sum += unit.1;
                sum >= want_bytes
            });
            assert_eq!(floor, last.map_or(0, |unit| unit.0), "seed {seed}");
        }
    }
}
