//! The lowest rank that is cleaned.

/// The highest rank such that the units of this rank and above have `want_bytes`: these are the
/// victims. `units` calls back with rank and bytes of every dirty unit. It is called once for each
/// eight bits of rank in which the units that may be the last victims differ. Units may change
/// meanwhile, so the result is a hint.
pub fn floor_rank(
    rank_bits: u32,
    want_bytes: u64,
    mut units: impl FnMut(&mut dyn FnMut(u64, u64)),
) -> u64 {
    // The bits from `open_bits` up are decided, and are those of `above`.
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
        // All units together are not enough, or they were cleaned meanwhile.
        let Some(digit) = found else { return above.checked_shl(open_bits).unwrap_or(0) };
        let differ = digit.any & !digit.all;
        if differ == 0 {
            return digit.any;
        }
        // The next pass looks at the highest bits in which these units differ: at least eight fewer
        // than before, unless this was the last.
        open_bits = 64 - differ.leading_zeros();
        above = digit.any.checked_shr(open_bits).unwrap_or(0);
    }
}

/// The units whose ranks have one value in the eight bits of a pass.
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

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

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
