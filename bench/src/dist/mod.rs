//! The distributions of YCSB's core workloads, which choose the record of an operation, in constant
//! memory.
//!
//! `zipfian` is the distribution of YCSB's workloads: ranks of 10^10 items, hashed onto the
//! records. It is flatter than Zipf's law over the records (`plain-zipfian`): a large part of its
//! mass is nearly uniform. Verdicts differ, so every result names its distribution.

mod zipf;

pub use zipf::{SCRAMBLED_ITEMS, SCRAMBLED_ZETA, THETA, Zipfian, zeta};

use rand::Rng;

use crate::hash::fnv64;

/// A distribution over the records.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Distribution {
    /// YCSB's `ScrambledZipfianGenerator`.
    Zipfian,
    /// Zipf's law over the records themselves, ranks spread over them by a bijection.
    PlainZipfian,
    /// YCSB's `SkewedLatestGenerator`: Zipf's law over ages.
    Latest,
    /// Every record is chosen with the same probability.
    Uniform,
    /// YCSB's `HotspotIntegerGenerator`: a share of the operations goes to a share of the records.
    Hotspot {
        /// Share of the records that are hot.
        records: f64,
        /// Share of the operations on hot records.
        operations: f64,
    },
    /// YCSB's `ExponentialGenerator` over ages: 95 % of the operations to the newest 85.7 % of the
    /// records.
    Exponential,
}

const HOTSPOT: Distribution = Distribution::Hotspot { records: 0.2, operations: 0.8 };
const EXPONENTIAL_PERCENTILE: f64 = 95.0;
const EXPONENTIAL_FRACTION: f64 = 0.857_142_857_1;

impl Distribution {
    /// All distributions, with YCSB's defaults.
    pub const ALL: [Self; 6] = [
        Self::Zipfian,
        Self::PlainZipfian,
        Self::Latest,
        Self::Uniform,
        HOTSPOT,
        Self::Exponential,
    ];

    /// The distribution's name in settings and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zipfian => "zipfian",
            Self::PlainZipfian => "plain-zipfian",
            Self::Latest => "latest",
            Self::Uniform => "uniform",
            Self::Hotspot { .. } => "hotspot",
            Self::Exponential => "exponential",
        }
    }

    /// The distribution of that name, with YCSB's defaults.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|distribution| distribution.name() == name)
    }
}

/// Draws records by a distribution.
#[derive(Debug, Clone)]
pub struct Chooser(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Zipfian { ranks: Zipfian, spread_over: u64 },
    PlainZipfian { ranks: Zipfian, stride: u64 },
    Latest(Zipfian),
    Uniform { loaded: u64 },
    Hotspot { loaded: u64, hot: u64, operations: f64 },
    Exponential { gamma: f64 },
}

impl Chooser {
    /// Prepares draws from `loaded` records, of which `expected_new` more may be inserted later.
    pub fn new(distribution: Distribution, loaded: u64, expected_new: u64) -> Self {
        let loaded = loaded.max(1);
        Self(match distribution {
            Distribution::Zipfian => Kind::Zipfian {
                ranks: Zipfian::with_zeta(SCRAMBLED_ITEMS, THETA, SCRAMBLED_ZETA),
                spread_over: loaded + expected_new,
            },
            Distribution::PlainZipfian => Kind::PlainZipfian {
                ranks: Zipfian::new(loaded, THETA),
                stride: coprime_stride(loaded),
            },
            Distribution::Latest => Kind::Latest(Zipfian::new(loaded, THETA)),
            Distribution::Uniform => Kind::Uniform { loaded },
            Distribution::Hotspot { records, operations } => {
                let hot = (loaded as f64 * records.clamp(0.0, 1.0)) as u64;
                Kind::Hotspot { loaded, hot: hot.clamp(1, loaded), operations }
            }
            Distribution::Exponential => {
                let range = loaded as f64 * EXPONENTIAL_FRACTION;
                Kind::Exponential { gamma: -(1.0 - EXPONENTIAL_PERCENTILE / 100.0).ln() / range }
            }
        })
    }

    /// Draws a record below `present`, the number of records that exist.
    pub fn draw(&mut self, present: u64, random: &mut impl Rng) -> u64 {
        let present = present.max(1);
        match &mut self.0 {
            // As in YCSB, a record that does not exist yet is drawn again.
            Kind::Zipfian { ranks, spread_over } => loop {
                let record = fnv64(ranks.draw(random)) % *spread_over;
                if record < present {
                    return record;
                }
            },
            Kind::PlainZipfian { ranks, stride } => {
                let rank = ranks.draw(random);
                (u128::from(rank) * u128::from(*stride) % u128::from(ranks.items())) as u64
            }
            Kind::Latest(ages) => {
                ages.grow(present);
                present - 1 - ages.draw(random).min(present - 1)
            }
            Kind::Uniform { loaded } => random.random_range(0..*loaded),
            Kind::Hotspot { loaded, hot, operations } => {
                if random.random::<f64>() < *operations || hot == loaded {
                    random.random_range(0..*hot)
                } else {
                    random.random_range(*hot..*loaded)
                }
            }
            Kind::Exponential { gamma } => loop {
                let age = (-random.random::<f64>().ln() / *gamma) as u64;
                if age < present {
                    return present - 1 - age;
                }
            },
        }
    }
}

/// A number near the golden section of `n` without a divisor in common with it: its multiples meet
/// every number below `n` once, far from each other.
pub fn coprime_stride(n: u64) -> u64 {
    let from = ((n as f64 * 0.618_033_988_749_895) as u64).max(1);
    (from..).find(|stride| gcd(*stride, n) == 1).unwrap_or(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus as Random;

    use super::*;

    const RECORDS: u64 = 1000;
    const DRAWS: usize = 200_000;

    fn counts(distribution: Distribution, present: u64) -> Vec<usize> {
        let mut random = Random::seed_from_u64(7);
        let mut chooser = Chooser::new(distribution, RECORDS, present - RECORDS);
        let mut counts = vec![0; present as usize];
        for _ in 0..DRAWS {
            counts[chooser.draw(present, &mut random) as usize] += 1;
        }
        counts
    }

    fn share(counts: &[usize]) -> f64 {
        counts.iter().sum::<usize>() as f64 / DRAWS as f64
    }

    #[test]
    fn plain_zipf_follows_the_law_and_meets_every_rank_at_another_record() {
        let mut sorted = counts(Distribution::PlainZipfian, RECORDS);
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let zeta = zeta(RECORDS, THETA);
        assert!((share(&sorted[..1]) - 1.0 / zeta).abs() < 0.005);
        assert!((share(&sorted[1..2]) - 0.5f64.powf(THETA) / zeta).abs() < 0.005);
        let stride = coprime_stride(RECORDS);
        let met: std::collections::HashSet<_> =
            (0..RECORDS).map(|rank| rank * stride % RECORDS).collect();
        assert_eq!(met.len(), RECORDS as usize);
    }

    #[test]
    fn ycsbs_zipf_is_hashed_ranks_of_ten_billion() {
        let counts = counts(Distribution::Zipfian, RECORDS);
        // The hottest record has rank 0's share and a thousandth of the rest.
        let hottest = fnv64(0) % RECORDS;
        let expected = 1.0 / SCRAMBLED_ZETA;
        let found = counts[hottest as usize] as f64 / DRAWS as f64;
        assert!((found - expected - 0.001).abs() < 0.004, "{found} {expected}");
        assert_eq!(counts.iter().max(), Some(&counts[hottest as usize]));
        // It is flatter than Zipf's law over the records: each record is drawn.
        assert!(counts.iter().all(|count| *count > 0));
    }

    #[test]
    fn latest_prefers_the_newest_and_follows_inserts() {
        let counts = counts(Distribution::Latest, RECORDS + 100);
        assert_eq!(counts.iter().max(), counts.last());
        let zeta = zeta(RECORDS + 100, THETA);
        assert!((share(&counts[counts.len() - 1..]) - 1.0 / zeta).abs() < 0.005);
    }

    #[test]
    fn uniform_is_flat() {
        let counts = counts(Distribution::Uniform, RECORDS);
        let mean = DRAWS as f64 / RECORDS as f64;
        assert!(counts.iter().all(|count| (*count as f64 - mean).abs() < mean * 0.4));
    }

    #[test]
    fn a_hotspot_is_a_fifth_of_the_records_with_four_fifths_of_the_operations() {
        let counts = counts(HOTSPOT, RECORDS);
        assert!((share(&counts[..RECORDS as usize / 5]) - 0.8).abs() < 0.01);
        let uneven = |part: &[usize]| *part.iter().max().unwrap() > 2 * *part.iter().min().unwrap();
        assert!(!uneven(&counts[..RECORDS as usize / 5]));
    }

    #[test]
    fn exponential_gives_95_of_a_hundred_to_the_newest_six_sevenths() {
        let counts = counts(Distribution::Exponential, RECORDS);
        let newest = (RECORDS as f64 * EXPONENTIAL_FRACTION) as usize;
        // A draw before the first record is repeated, so a little more than 95 %.
        let expected = 0.95 / (1.0 - 0.05f64.powf(1.0 / EXPONENTIAL_FRACTION));
        let found = share(&counts[counts.len() - newest..]);
        assert!((found - expected).abs() < 0.005, "{found} {expected}");
    }

    #[test]
    fn names_lead_back_to_their_distributions() {
        for distribution in Distribution::ALL {
            assert_eq!(Distribution::parse(distribution.name()), Some(distribution));
        }
    }

    #[test]
    fn one_record_is_enough_for_every_distribution() {
        let mut random = Random::seed_from_u64(1);
        for distribution in Distribution::ALL {
            let mut chooser = Chooser::new(distribution, 1, 0);
            assert!((0..100).all(|_| chooser.draw(1, &mut random) == 0), "{distribution:?}");
        }
    }
}
