//! Places of accesses, computed a batch at a time when they are needed, so that their number costs
//! no memory.

use rand::{RngCore, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

use super::workload::{Chain, Config, CustomOp, Memory, RandomDistribution};
use super::zipf::Ranks;
use perdura_bench::dist::coprime_stride;

/// Places in a batch: few enough to stay in the fastest cache, and enough that computing them does
/// not slow the accesses down.
pub const BATCH: usize = 128;

/// Slots of one access each, in the order in which a distribution draws them.
#[derive(Debug, Clone)]
pub struct Slots {
    random: Xoshiro256PlusPlus,
    slots: u64,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Uniform,
    /// Ranks by Zipf's law, spread over the slots by a stride that meets each slot once.
    Zipf {
        ranks: Ranks,
        stride: u64,
    },
}

impl Slots {
    /// The slots of one thread of a benchmark: equal settings give equal slots.
    pub fn new(config: &Config, slots: u64, thread: u64, stream: u64) -> Self {
        let slots = slots.max(1);
        let kind = match config.random_distribution {
            RandomDistribution::Uniform => Kind::Uniform,
            RandomDistribution::Zipf => Kind::Zipf {
                ranks: Ranks::new(slots, config.zipf_alpha),
                stride: coprime_stride(slots),
            },
        };
        // Each thread and stream has its own seed; states of 256 bits from different seeds do not
        // meet.
        let seed = SplitMix64::seed_from_u64(config.seed).next_u64() ^ (thread << 32 | stream);
        Self { random: Xoshiro256PlusPlus::seed_from_u64(seed), slots, kind }
    }

    /// Draws the next slot.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        match &self.kind {
            Kind::Uniform => scaled(self.random.next_u64(), self.slots),
            Kind::Zipf { ranks, stride } => {
                let rank = ranks.draw(&mut self.random);
                // Division of 128 bits is slow, and few ranges have so many slots that they need
                // it.
                match rank.checked_mul(*stride) {
                    Some(product) => product % self.slots,
                    None => {
                        let product = u128::from(rank) * u128::from(*stride);
                        (product % u128::from(self.slots)) as u64
                    }
                }
            }
        }
    }

    /// Fills `places` with addresses: slots of `step` bytes from `base` on.
    #[inline]
    pub fn fill(&mut self, base: *mut u8, step: u64, places: &mut [*mut u8]) {
        match &self.kind {
            Kind::Uniform => {
                let slots = self.slots;
                for place in places {
                    let slot = scaled(self.random.next_u64(), slots);
                    *place = base.wrapping_add((slot * step) as usize);
                }
            }
            Kind::Zipf { .. } => {
                for place in places {
                    *place = base.wrapping_add((self.draw() * step) as usize);
                }
            }
        }
    }

    /// Whether an event with this probability happens now.
    #[inline]
    pub fn is_in(&mut self, share: f64) -> bool {
        share > 0.0 && (self.random.next_u64() >> 11) as f64 * TO_UNIT < share
    }
}

/// Places of a thread's chains in one memory: each read at a multiple of its size, with room for
/// the whole chain around it.
#[derive(Debug, Clone)]
pub struct ChainPlaces {
    before_bytes: u64,
    /// For each read of the chain in this memory, in order: its slots, and its size in bytes.
    reads: Vec<(Slots, u64)>,
    next: usize,
}

impl ChainPlaces {
    /// Places in a thread's part of a memory.
    pub fn new(
        config: &Config,
        chain: &Chain,
        memory: Memory,
        part_bytes: u64,
        thread: u64,
    ) -> Self {
        let (before_bytes, behind_bytes) = chain.reach(memory);
        let room_bytes = part_bytes.saturating_sub(before_bytes + behind_bytes);
        let reads = chain.ops().iter().zip(0..).filter_map(|(op, number)| match op {
            CustomOp::Read { memory: own, bytes } if *own == memory => {
                Some((Slots::new(config, room_bytes / bytes + 1, thread, number), *bytes))
            }
            _ => None,
        });
        Self { before_bytes, reads: reads.collect(), next: 0 }
    }

    /// Offset of the chain's next read in this memory, from the beginning of the part; none if it
    /// has no reads there.
    #[inline]
    pub fn next_read(&mut self) -> Option<u64> {
        let (slots, bytes) = self.reads.get_mut(self.next)?;
        let place = self.before_bytes + slots.draw() * *bytes;
        self.next = if self.next + 1 == self.reads.len() { 0 } else { self.next + 1 };
        Some(place)
    }
}

/// Scales an integer of 53 bits to the range from 0 to 1.
const TO_UNIT: f64 = 1.0 / (1u64 << 53) as f64;

/// A number below `slots`: the high half of a product, which is uniform to one part in 2^64 /
/// slots.
#[inline]
fn scaled(random: u64, slots: u64) -> u64 {
    ((u128::from(random) * u128::from(slots)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(config: &Config, slots: u64, draws: u64) -> Vec<u64> {
        let mut stream = Slots::new(config, slots, 0, 0);
        let mut counts = vec![0; slots as usize];
        (0..draws).for_each(|_| counts[stream.draw() as usize] += 1);
        counts
    }

    #[test]
    fn uniform_slots_are_met_alike() {
        let counts = counts(&Config::default(), 100, 1_000_000);
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 500), "{counts:?}");
    }

    #[test]
    fn zipf_follows_its_law_for_exponents_below_and_above_one() {
        for alpha in [0.5, 0.9, 1.0, 1.5] {
            let zipf = RandomDistribution::Zipf;
            let config =
                Config { random_distribution: zipf, zipf_alpha: alpha, ..Config::default() };
            let mut counts = counts(&config, 1000, 1_000_000);
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let zeta: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-alpha)).sum();
            for rank in [1u32, 2, 10, 100] {
                let expected = 1e6 * f64::from(rank).powf(-alpha) / zeta;
                let found = counts[rank as usize - 1] as f64;
                let off = (found - expected).abs();
                assert!(
                    off < 6.0 * expected.sqrt() + 0.02 * expected,
                    "{alpha}, {rank}: {found} {expected}"
                );
            }
        }
    }

    #[test]
    fn threads_have_streams_of_their_own_and_seeds_repeat_them() {
        let drawn = |seed, thread| {
            let mut stream = Slots::new(&Config { seed, ..Config::default() }, 1 << 40, thread, 0);
            (0..4).map(|_| stream.draw()).collect::<Vec<_>>()
        };
        assert_eq!(drawn(1, 0), drawn(1, 0));
        assert_ne!(drawn(1, 0), drawn(1, 1));
        assert_ne!(drawn(1, 0), drawn(2, 0));
    }

    #[test]
    fn chains_keep_to_their_part_wherever_they_go() {
        let chain: Chain = "r_64,rd_64,w_64_none_-128,r_1024,w_256_none_1024".parse().unwrap();
        let part_bytes = 8 << 10;
        let mut places =
            ChainPlaces::new(&Config::default(), &chain, Memory::Persistent, part_bytes, 0);
        let mut met = [0; 2];
        for _ in 0..10_000 {
            let (line, node) = (places.next_read().unwrap(), places.next_read().unwrap());
            assert!(
                line >= 128 && line.is_multiple_of(64) && node.is_multiple_of(1024),
                "{line} {node}"
            );
            assert!(node + 1024 + 256 <= part_bytes && line + 64 <= part_bytes);
            met[0] = met[0].max(line);
            met[1] = met[1].max(node);
        }
        assert_eq!(met, [6 << 10 | 768, 6 << 10], "up to the last that has room");
    }

    #[test]
    fn places_are_whole_steps_apart() {
        let mut stream = Slots::new(&Config::default(), 10, 0, 0);
        let mut places = [std::ptr::null_mut(); 100];
        let base = std::ptr::without_provenance_mut(1 << 20);
        stream.fill(base, 256, &mut places);
        for place in places {
            let offset = place.addr() - base.addr();
            assert!(offset % 256 == 0 && offset < 2560);
        }
    }

    #[test]
    fn events_happen_as_often_as_they_should() {
        let mut stream = Slots::new(&Config::default(), 10, 0, 0);
        let count = (0..100_000).filter(|_| stream.is_in(0.3)).count();
        assert!(count.abs_diff(30_000) < 800, "{count}");
        assert!(!stream.is_in(0.0) && stream.is_in(1.0));
    }
}
