//! Which dirty data to clean first. Pure code: numbers in, a class out.
//!
//! A policy gives every dirty *unit* (a page in trap mode, 1 KiB in barrier mode) a class from 0 (keep)
//! to 255 (clean first). The cleaner counts classes over the dirty set, finds the class from which on
//! enough bytes lie, and copies those units in address order. So every policy costs the writer at most one
//! store, and cleaning stays sequential in memory.
//!
//! `least-recently-updated` follows the paper (Viyojit, section 5.2), which keeps a history of 64 epochs per
//! page: the latest update counts up to 64 epochs back, and an update in the epoch before it breaks ties. Of
//! the older history 32 epochs are kept, and only the latest of them is looked at.

/// The named policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PolicyKind {
    /// Second chance: data written again since the hand last passed are spared once. Costs writers
    /// nothing but a bit, works per grain.
    #[default]
    SecondChance,
    /// Oldest first, by the time data became dirty.
    Fifo,
    /// Data written once go first, oldest first; data written again are kept while they are less than
    /// 30 % of the dirty set.
    Segmented,
    /// By the latest update, up to 64 epochs back; see the module's text for what is kept.
    LeastRecentlyUpdated,
    /// Any dirty unit, by a seeded hash.
    Random,
}

impl PolicyKind {
    /// All policies.
    pub const ALL: [Self; 5] =
        [Self::SecondChance, Self::Fifo, Self::Segmented, Self::LeastRecentlyUpdated, Self::Random];

    /// Name in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::SecondChance => "second-chance",
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

    /// Whether writers must leave a mark per unit.
    pub fn needs_marks(self) -> bool {
        matches!(self, Self::Fifo | Self::Segmented | Self::LeastRecentlyUpdated)
    }

    /// The mark a unit gets when written at `epoch`, given its mark so far and whether it was dirty.
    ///
    /// Layout: low 32 bits an epoch, high 32 bits the policy's own (history, or "written again").
    pub fn mark(self, mark: u64, was_dirty: bool, epoch: u32) -> u64 {
        let since = |mark: u64| epoch.wrapping_sub(mark as u32);
        match self {
            Self::Fifo if was_dirty => mark,
            Self::Segmented if was_dirty => mark | 1 << 32,
            Self::LeastRecentlyUpdated if was_dirty => {
                let history = ((mark >> 32) << 1 | 1).checked_shl(since(mark).saturating_sub(1));
                let history = if since(mark) == 0 { mark >> 32 } else { history.unwrap_or(0) };
                (history & 0xffff_ffff) << 32 | u64::from(epoch)
            }
            _ => u64::from(epoch),
        }
    }

    /// The class of a dirty unit: 255 goes first.
    pub fn class(self, unit: u64, mark: u64, view: &View) -> u8 {
        let age = u64::from(view.epoch.wrapping_sub(mark as u32));
        let by_age =
            |age: u64, top: u64| (age.min(view.oldest_age) * top / view.oldest_age.max(1)) as u8;
        match self {
            Self::SecondChance => 255,
            Self::Fifo => by_age(age, 255),
            Self::Segmented if mark >> 32 == 0 => 128 + by_age(age, 127),
            Self::Segmented if view.protected_is_over => 128 + by_age(age, 127),
            Self::Segmented => by_age(age, 127),
            // Up to 64 epochs back the epochs tell, two classes each: one for a unit written again in
            // the epoch before its last, one for a unit that was not.
            Self::LeastRecentlyUpdated => {
                (age.min(64) * 2 + u64::from(mark >> 32 & 2 == 0)).min(255) as u8
            }
            Self::Random => {
                let mixed = (unit ^ view.round).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (mixed >> 56) as u8
            }
        }
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

/// Dirty bytes to expect in the next epoch (Viyojit, section 5.3): 0.75 of this epoch's and 0.25 of the
/// previous expectation.
pub fn pressure(new_dirty_bytes: u64, previous: u64) -> u64 {
    new_dirty_bytes / 4 * 3 + new_dirty_bytes % 4 * 3 / 4 + previous / 4
}

/// Dirty bytes above which cleaning begins (Viyojit, section 5.3): the budget less the pressure.
pub fn threshold(budget_bytes: u64, pressure_bytes: u64) -> u64 {
    budget_bytes.saturating_sub(pressure_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_weighs_this_epoch_three_to_one() {
        assert_eq!(pressure(100, 0), 75);
        assert_eq!(pressure(0, 100), 25);
        assert_eq!(pressure(400, 400), 400);
        assert_eq!(threshold(100, 250), 0);
    }

    #[test]
    fn fifo_ignores_writes_after_the_first() {
        let fifo = PolicyKind::Fifo;
        let first = fifo.mark(0, false, 10);
        assert_eq!(fifo.mark(first, true, 90), first);
        let view = View { epoch: 100, oldest_age: 90, ..View::default() };
        assert_eq!(fifo.class(0, first, &view), 255);
        assert!(fifo.class(0, fifo.mark(0, false, 95), &view) < 20);
    }

    #[test]
    fn least_recently_updated_sees_repeated_writes() {
        let lru = PolicyKind::LeastRecentlyUpdated;
        let once = lru.mark(0, false, 10);
        let again = lru.mark(once, true, 60);
        let view = View { epoch: 61, oldest_age: 51, ..View::default() };
        assert!(lru.class(0, once, &view) > lru.class(0, again, &view));
        // Equally recent: the one that was also written the epoch before is kept longer.
        let steady = lru.mark(lru.mark(lru.mark(0, false, 58), true, 59), true, 60);
        assert!(lru.class(0, again, &view) > lru.class(0, steady, &view));
    }

    #[test]
    fn segmented_keeps_what_was_written_again_until_it_is_too_much() {
        let s = PolicyKind::Segmented;
        let once = s.mark(0, false, 50);
        let again = s.mark(s.mark(0, false, 10), true, 11);
        let mut view = View { epoch: 60, oldest_age: 50, ..View::default() };
        assert!(s.class(0, once, &view) > s.class(0, again, &view));
        view.protected_is_over = true;
        assert!(s.class(0, once, &view) < s.class(0, again, &view));
    }
}
