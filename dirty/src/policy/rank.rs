//! The trait of a policy, and what a policy knows: marks of units and a view of the dirty set.

/// Epochs by which a mark may be newer than the epoch that a round has read.
const EPOCHS_AHEAD: u32 = 1 << 16;

/// A way to choose which dirty data are cleaned first. The policies are known at compile time, so
/// that a choice costs no call through a pointer.
pub trait Policy {
    /// Name in settings and reports.
    const NAME: &'static str;
    /// The quantity on which ranks depend.
    const RANKED_BY: RankedBy;
    /// Words of 8 B of [`Mark`] that writers leave for each unit: 0 if ranks need no mark, 1
    /// without the history, 2 with it.
    const MARK_WORDS: usize;
    /// Whether it matters that a unit was written again while it was dirty. In trap mode dirty
    /// pages are protected again to see this, which is done only if it matters.
    const HEEDS_REWRITES: bool;
    /// Bits that ranks have: a multiple of 8.
    const RANK_BITS: u32 = 8;

    /// The mark that a unit gets when it is written at `epoch`, given its mark so far and whether
    /// it was dirty.
    fn mark(mark: Mark, was_dirty: bool, epoch: u32) -> Mark {
        let _ = (mark, was_dirty);
        Mark { epoch, again: false, history: 0 }
    }

    /// The rank of a dirty unit; units of higher rank are cleaned first.
    fn rank(unit: u64, mark: Mark, view: &View) -> u64;
}

/// The quantity on which the ranks of a policy depend. A search for victims that knows it need not
/// look at every unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankedBy {
    /// Units are not ranked, because the cleaner's two hands find the cold grains.
    Heat,
    /// The age of a unit's mark and whether the unit was written again. An older unit never ranks
    /// below a younger one, if both were written again or neither was.
    Age,
    /// The history in a unit's mark. A unit whose last write is older never ranks below another.
    History,
    /// The unit's number and the round.
    Number,
    /// Anything else, so that every dirty unit must be looked at.
    Unit,
}

/// The mark that writers leave for a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// Epoch in which the unit was last written (`fifo`, `segmented`: in which it became dirty).
    pub epoch: u32,
    /// Whether the unit was written again since it became dirty.
    pub again: bool,
    /// A bit for each of the 64 epochs up to `epoch`, which is the highest bit; set if the unit was
    /// written in it.
    pub history: u64,
}

impl Mark {
    /// Packs the mark into words. A policy keeps as many of them as [`Policy::MARK_WORDS`] says.
    pub fn pack(self) -> [u64; 2] {
        [u64::from(self.again) << 32 | u64::from(self.epoch), self.history]
    }

    /// Unpacks words that [`Mark::pack`] made.
    pub fn unpack(words: [u64; 2]) -> Self {
        Self { epoch: words[0] as u32, again: words[0] >> 32 != 0, history: words[1] }
    }

    /// Epochs since `self.epoch`; 0 for a mark that was made just after `epoch` was read. Any other
    /// mark may be up to 49 days old at a millisecond an epoch.
    #[inline]
    pub fn age_at(self, epoch: u32) -> u64 {
        match epoch.wrapping_sub(self.epoch) {
            ahead if ahead > u32::MAX - EPOCHS_AHEAD => 0,
            age => u64::from(age),
        }
    }

    /// The history of the 64 epochs up to `epoch`.
    #[inline]
    pub(super) fn history_at(self, epoch: u32) -> u64 {
        self.history.checked_shr(self.age_at(epoch) as u32).unwrap_or(0)
    }
}

/// The view of the dirty set that a cleaning round has.
#[derive(Debug, Clone, Copy, Default)]
pub struct View {
    /// Number of the current epoch.
    pub epoch: u32,
    /// Age of the oldest dirty unit, epochs.
    pub(crate) oldest_age: u64,
    /// Whether more than 30 % of the dirty units were written again.
    pub(crate) protected_is_over: bool,
    /// Number of the round, which seeds the policy `random`.
    pub round: u64,
}

impl View {
    /// What a round at `epoch` knows; `marks` calls back with the marks of all dirty units, and how
    /// many units have each, if ranks need to know.
    pub fn of(
        ranked_by: RankedBy,
        epoch: u32,
        round: u64,
        marks: impl FnOnce(&mut dyn FnMut(Mark, u64)),
    ) -> Self {
        let mut view = Self { epoch, round, ..Self::default() };
        if matches!(ranked_by, RankedBy::Age | RankedBy::Unit) {
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

    /// The rank of a mark by its age alone: `top` for the oldest unit of the dirty set, 0 for the
    /// newest.
    #[inline]
    pub fn by_age(&self, mark: Mark, top: u64) -> u64 {
        mark.age_at(self.epoch).min(self.oldest_age) * top / self.oldest_age.max(1)
    }
}
