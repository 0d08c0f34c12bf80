//! The choice of a cleaning round: the lowest rank that is cleaned, or whether hot data are spared.

use crate::geometry::WORD_GRAINS;
use crate::hints::unit_shift;
use crate::policy::{self, Mark, RankedBy, View};
use crate::tracked::Tracked;

/// Which dirty grains a cleaning round takes: units of a rank and above, or cold grains.
pub struct Floor {
    view: View,
    rank: u64,
    /// Whether hot grains are spared; false if too few grains are cold.
    pub spares: bool,
}

impl Floor {
    /// Chooses victims of about `want_bytes`. `round` is the number of the round.
    pub fn plan(tracked: &Tracked, round: u64, want_bytes: u64) -> Self {
        let hints = &tracked.memory.hints;
        let view = View::of(hints.policy.ranked_by(), hints.epoch(), round, |seen| {
            for_dirty_units(tracked, |_, mark, _| seen(mark, 1));
        });
        let mut floor = Self { view, rank: 0, spares: true };
        if hints.policy.ranked_by() == RankedBy::Heat {
            return floor;
        }
        floor.rank =
            policy::floor_rank(tracked.memory.hints.policy.rank_bits(), want_bytes, |found| {
                for_dirty_units(tracked, |unit, mark, bytes| {
                    found(tracked.memory.hints.policy.rank(unit, mark, &floor.view), bytes);
                });
            });
        floor
    }

    /// The victims among the dirty grains of a bitmap word.
    pub fn victims(&self, tracked: &Tracked, word: usize, dirty: u64) -> u64 {
        if tracked.memory.hints.policy.ranked_by() == RankedBy::Heat {
            return if self.spares { dirty & tracked.memory.hints.heat.cold(word) } else { dirty };
        }
        let mut victims = 0;
        for_units_of_word(tracked, word, dirty, |unit, mark, bits| {
            if tracked.memory.hints.policy.rank(unit, mark, &self.view) >= self.rank {
                victims |= bits;
            }
        });
        victims
    }
}

fn for_dirty_units(tracked: &Tracked, mut f: impl FnMut(u64, Mark, u64)) {
    let parity = tracked.memory.parity();
    let shift = tracked.memory.ledger.geometry().grain_shift;
    tracked.for_dirty_words(parity, 0, tracked.memory.ledger.words_in_use(), |word, dirty| {
        for_units_of_word(tracked, word, dirty, |unit, mark, bits| {
            f(unit, mark, u64::from(bits.count_ones()) << shift);
        });
        true
    });
}

fn for_units_of_word(
    tracked: &Tracked,
    word: usize,
    dirty: u64,
    mut f: impl FnMut(u64, Mark, u64),
) {
    let shift = tracked.memory.ledger.geometry().grain_shift;
    let per_unit = 1u64 << (unit_shift(shift) - shift);
    let mut at = 0;
    while at < WORD_GRAINS {
        let bits = dirty & crate::extent::mask(at, per_unit);
        if bits != 0 {
            let unit = (word as u64 * WORD_GRAINS + at) / per_unit;
            f(unit, tracked.memory.hints.mark_of(unit), bits);
        }
        at += per_unit;
    }
}
