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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::geometry::{BLOCK_BYTES, GRAIN_SHIFT_TRAP, Geometry};
    use crate::lanes::Lanes;
    use crate::memory::Memory;
    use crate::policy::PolicyKind;

    const UNITS_DIRTY: u64 = 40;

    /// Memory in which every third unit has some dirty grains. The units were first written one
    /// after another, from the last one on.
    fn aged(grain_shift: u32) -> (Tracked, u64) {
        let geometry = Geometry::new(64 * BLOCK_BYTES, grain_shift, None, 4).unwrap();
        let memory = Memory::in_test(geometry, PolicyKind::Fifo);
        let per_unit = 1 << (unit_shift(grain_shift) - grain_shift);
        for unit in (0..UNITS_DIRTY).rev().map(|number| number * 3) {
            memory.hints.mark_written(unit, false);
            (0..4).for_each(|_| memory.hints.advance());
            let grain = unit * per_unit;
            let bits = crate::extent::mask(grain % WORD_GRAINS, per_unit.div_ceil(2));
            let word = (grain / WORD_GRAINS) as usize;
            memory.ledger.dirty_word(0, word).fetch_or(bits, Relaxed);
            memory.summary(0).mark(word);
        }
        (Tracked::new(Arc::new(memory), Lanes::new(1, 64), None), per_unit)
    }

    #[test]
    fn every_dirty_grain_of_a_word_is_in_its_unit_with_the_mark_of_that() {
        for shift in [6, 8, 10, GRAIN_SHIFT_TRAP] {
            let (tracked, per_unit) = aged(shift);
            let mut units = Vec::new();
            let words = tracked.memory.ledger.words_in_use();
            for word in 0..words {
                let dirty = tracked.memory.ledger.dirty_word(0, word).load(Relaxed);
                let mut seen = 0;
                for_units_of_word(&tracked, word, dirty, |unit, mark, bits| {
                    let first = unit * per_unit - word as u64 * WORD_GRAINS;
                    assert_eq!(bits, crate::extent::mask(first, per_unit.div_ceil(2)));
                    assert_eq!(mark.pack(), tracked.memory.hints.mark_of(unit).pack());
                    assert_ne!(mark.pack(), Mark::default().pack());
                    seen |= bits;
                    units.push(unit);
                });
                assert_eq!(seen, dirty, "2^{shift}, word {word}");
            }
            assert_eq!(units, Vec::from_iter((0..UNITS_DIRTY).map(|number| number * 3)));
        }
    }

    #[test]
    fn the_victims_are_dirty_grains_of_the_oldest_units_and_enough_of_them() {
        for shift in [6, 8, GRAIN_SHIFT_TRAP] {
            let (tracked, per_unit) = aged(shift);
            let unit_bytes = per_unit.div_ceil(2) << shift;
            for wanted in [1, 10, UNITS_DIRTY] {
                let floor = Floor::plan(&tracked, 0, wanted * unit_bytes);
                let mut are_taken = Vec::new();
                for word in 0..tracked.memory.ledger.words_in_use() {
                    let dirty = tracked.memory.ledger.dirty_word(0, word).load(Relaxed);
                    let victims = floor.victims(&tracked, word, dirty);
                    assert_eq!(victims & !dirty, 0);
                    for_units_of_word(&tracked, word, dirty, |_, _, bits| {
                        assert!([0, bits].contains(&(victims & bits)), "half a unit");
                        are_taken.push(victims & bits != 0);
                    });
                }
                // The unit with the highest number was written first.
                assert!(are_taken.is_sorted(), "2^{shift}: {are_taken:?}");
                let taken = are_taken.iter().filter(|is_taken| **is_taken).count() as u64;
                assert!((wanted..=wanted + 2).contains(&taken), "2^{shift}: {taken} of {wanted}");
            }
        }
    }
}
