//! Measures how many page writes one core replays in a second: generated traces, each policy, with
//! and without checkpoints.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::time::{Duration, Instant};

use perdura_dirty::policy::PolicyKind;
use perdura_plan::sizing::{Replay, ReplayConfig};
use perdura_plan::trace::{Op, Record};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const PAGES: u64 = 256 << 10;
const WRITES: usize = 8_000_000;

fn main() {
    let only = std::env::args().nth(1);
    for (name, skew) in [("uniform", 1.0f64), ("skewed", 4.0), ("very skewed", 10.0)] {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        // A page's number as a power of a uniform number: the higher, the hotter are the first.
        let writes: Vec<Record> = (0..WRITES as u64)
            .map(|number| {
                let page = (random.random::<f64>().powf(skew) * PAGES as f64) as u64;
                let page = page.wrapping_mul(0x9e37_79b1) % PAGES;
                let (offset_bytes, time_ns) = (page * 4096, number * 20_000);
                Record { time_ns, offset_bytes, len_bytes: 4096, volume: 0, op: Op::Write }
            })
            .collect();
        for policy in PolicyKind::ALL {
            if only.as_deref().is_some_and(|only| only != policy.name()) {
                continue;
            }
            for checkpoint_every in [None, Some(Duration::from_secs(1))] {
                let config = ReplayConfig {
                    policy,
                    checkpoint_every,
                    ..ReplayConfig::new(PAGES * 4096, PAGES * 4096 / 8)
                };
                let mut replay = Replay::new(&config).unwrap();
                let began = Instant::now();
                for batch in writes.chunks(8192) {
                    replay.add(batch).unwrap();
                }
                let outcome = replay.finish();
                let rate = WRITES as f64 / began.elapsed().as_secs_f64() / 1e6;
                println!(
                    "{name:12} {:24} checkpoints {:5}: {rate:6.1} M/s, {:.2} bytes a byte {:?}, {} \
                     stalls, {:.4} of the time",
                    policy.name(),
                    checkpoint_every.is_some(),
                    outcome.device_bytes_per_user_byte(),
                    outcome.device,
                    outcome.stalls,
                    outcome.stalled_share(),
                );
            }
        }
    }
}
