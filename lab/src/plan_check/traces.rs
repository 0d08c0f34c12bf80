//! Generated traces: pages and times of writes are drawn at random.

use perdura_plan::trace::{Op, Record};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use perdura_bench::dist::{Chooser, Distribution};

/// Distribution of the pages that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// By Zipf's law, as YCSB draws keys (0.99), spread over the pages.
    Zipf,
    /// Nine writes in ten go to a tenth of the pages.
    HotCold,
    /// Every page is equally likely.
    Uniform,
}

impl Kind {
    /// All distributions.
    pub const ALL: [Self; 3] = [Self::Zipf, Self::HotCold, Self::Uniform];

    /// Name of the distribution on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Zipf => "zipf",
            Self::HotCold => "hot-cold",
            Self::Uniform => "uniform",
        }
    }

    /// The distribution with a name, if there is one.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// `count` page writes over `pages` pages at independent random times, `per_s` a second on average.
#[must_use]
pub fn generated(kind: Kind, seed: u64, pages: u64, count: u64, per_s: f64) -> Vec<Record> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut zipf = Chooser::new(Distribution::PlainZipfian, pages, 0);
    let mut time_s = 0.0;
    (0..count)
        .map(|_| {
            let page = match kind {
                Kind::Zipf => zipf.draw(pages, &mut random),
                Kind::HotCold if random.random_range(0..10) > 0 => {
                    random.random_range(0..pages.div_ceil(10))
                }
                Kind::HotCold | Kind::Uniform => random.random_range(0..pages),
            };
            // Times between independent arrivals.
            time_s -= (1.0 - random.random::<f64>()).ln() / per_s;
            let (time_ns, offset_bytes) = ((time_s * 1e9) as u64, page * 4096);
            Record { time_ns, offset_bytes, len_bytes: 4096, volume: 0, op: Op::Write }
        })
        .collect()
}
