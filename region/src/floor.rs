//! A round's choice: from which rank on dirty data are its victims, or whether it spares what is
//! hot.

use std::sync::atomic::Ordering::*;

use crate::core::{Core, unit_shift};
use perdura_dirty::geometry::WORD_GRAINS;
use perdura_dirty::policy::{self, Mark, RankedBy, View};

/// Victims are the units of this rank and above, or what is cold.
pub(crate) struct Floor {
    view: View,
    rank: u64,
    /// False: there was too little that is cold.
    pub spares: bool,
}

impl Floor {
    /// For about `want_bytes`. `round` differs from round to round.
    pub fn plan(core: &Core, round: u64, want_bytes: u64) -> Self {
        let view = View::of(core.policy.ranked_by(), core.tick.load(Relaxed), round, |seen| {
            for_dirty_units(core, |_, mark, _| seen(mark, 1));
        });
        let mut floor = Self { view, rank: 0, spares: true };
        if core.policy.ranked_by() == RankedBy::Heat {
            return floor;
        }
        floor.rank = policy::floor_rank(core.policy.rank_bits(), want_bytes, |found| {
            for_dirty_units(core, |unit, mark, bytes| {
                found(core.policy.rank(unit, mark, &floor.view), bytes);
            });
        });
        floor
    }

    /// Of a bitmap word's dirty grains, those to be cleaned.
    pub fn victims(&self, core: &Core, word: usize, dirty: u64) -> u64 {
        if core.policy.ranked_by() == RankedBy::Heat {
            return if self.spares { dirty & core.heat.cold(word) } else { dirty };
        }
        let mut victims = 0;
        for_units_of_word(core, word, dirty, |unit, mark, bits| {
            if core.policy.rank(unit, mark, &self.view) >= self.rank {
                victims |= bits;
            }
        });
        victims
    }
}

fn for_dirty_units(core: &Core, mut f: impl FnMut(u64, Mark, u64)) {
    let parity = core.parity();
    let shift = core.ledger.geometry().grain_shift;
    core.for_dirty_words(parity, 0, core.words_in_use(), |word, dirty| {
        for_units_of_word(core, word, dirty, |unit, mark, bits| {
            f(unit, mark, u64::from(bits.count_ones()) << shift);
        });
        true
    });
}

fn for_units_of_word(core: &Core, word: usize, dirty: u64, mut f: impl FnMut(u64, Mark, u64)) {
    let shift = core.ledger.geometry().grain_shift;
    let per_unit = 1u64 << (unit_shift(shift) - shift);
    let mut at = 0;
    while at < WORD_GRAINS {
        let bits = dirty & perdura_dirty::extent::mask(at, per_unit);
        if bits != 0 {
            let unit = (word as u64 * WORD_GRAINS + at) / per_unit;
            f(unit, core.mark_of(unit), bits);
        }
        at += per_unit;
    }
}
