//! Traces that are hard to count: equal times, windows that end on a record, wide requests, several
//! volumes.

use perdura_plan::trace::{Op, Record};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A trace, the time at which it starts, and windows that suit it.
pub struct Case {
    pub records: Vec<Record>,
    pub start_ns: u64,
    pub windows_ns: Vec<u64>,
}

/// One of many kinds by seed.
pub fn case(seed: u64, records_max: usize) -> Case {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let count = rng.random_range(0..=records_max);
    let unit_ns = [1, 7, 1000, 1_000_000_000][rng.random_range(0..4)];
    let step_max = [0u64, 1, 3, 50][rng.random_range(0..4)];
    let volumes = [1u32, 1, 2, 5][rng.random_range(0..4)];
    let pages = [1u64, 10, 300, 100_000, 1 << 51][rng.random_range(0..5)];
    let wide = [1u64, 1, 3, 40, 5000][rng.random_range(0..5)].min(pages);
    let writes = [0.0, 0.1, 0.5, 0.9, 1.0][rng.random_range(0..5)];
    let start_ns = rng.random_range(0..1 << 60);
    // Some traces begin after their start, as a volume does whose first record is a later one.
    let mut time_ns = start_ns + rng.random_range(0..3) * unit_ns * rng.random_range(0..50);
    let mut made = Vec::new();
    for _ in 0..if wide > 100 { count.min(60) } else { count } {
        time_ns += rng.random_range(0..=step_max) * unit_ns;
        let width = rng.random_range(1..=wide);
        // Squared: low pages are hotter.
        let place: f64 = rng.random();
        let first = (((pages - width) as f64 + 0.5) * place * place) as u64;
        let offset = rng.random_range(0..4096u64);
        let last = (first + width - 1) * 4096
            + rng.random_range(if width == 1 { offset } else { 0 }..4096);
        let offset_bytes = first * 4096 + offset;
        let op = if rng.random_bool(writes) { Op::Write } else { Op::Read };
        let volume = rng.random_range(0..volumes);
        made.push(Record { time_ns, offset_bytes, len_bytes: last + 1 - offset_bytes, volume, op });
        if rng.random_bool(0.1) {
            made.extend(made.last().copied());
        }
    }
    let mut windows_ns: Vec<u64> = (0..rng.random_range(1..=6))
        .map(|_| unit_ns * [1, 2, 3, 10, 60, 100_000][rng.random_range(0..6)])
        .collect();
    windows_ns.sort_unstable();
    windows_ns.dedup();
    Case { records: made, start_ns, windows_ns }
}
