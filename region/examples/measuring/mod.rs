//! Shared code of the examples that measure: places to write to, a real device, medians.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use perdura_media::file::{Direct, Engine, FileDevice, OpenMode};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

/// Makes an image in `PERDURA_BENCH_DIR`, or in the working directory. The second value removes the
/// image when it is dropped.
pub fn device() -> (Arc<FileDevice>, tempfile::TempDir) {
    let place = std::env::var("PERDURA_BENCH_DIR").unwrap_or_else(|_| ".".into());
    let dir = tempfile::tempdir_in(place).unwrap();
    let mode = OpenMode::Create { capacity_bytes: 1 << 20 };
    let device = FileDevice::open(&dir.path().join("image"), mode, Engine::Auto, Direct::Auto);
    (Arc::new(device.unwrap()), dir)
}

/// Places in a region, as multiples of `step` bytes. They are uniform, or follow Zipf's law with
/// 0.99 over records of 1 KiB, spread by a hash (the generator of Gray et al.), and are uniform
/// within a record.
pub fn places(region_bytes: u64, count: u64, skewed: bool, step: u64) -> Vec<u64> {
    let mut random = Random::seed_from_u64(1);
    if !skewed {
        return (0..count).map(|_| random.random_range(0..region_bytes / step) * step).collect();
    }
    const THETA: f64 = 0.99;
    let records = region_bytes / 1024;
    let zeta = |n: u64| (1..=n).map(|rank| (rank as f64).powf(-THETA)).sum::<f64>();
    let (zeta_2, zeta_n) = (zeta(2), zeta(records));
    let alpha = 1.0 / (1.0 - THETA);
    let eta = (1.0 - (2.0 / records as f64).powf(1.0 - THETA)) / (1.0 - zeta_2 / zeta_n);
    (0..count)
        .map(|_| {
            let u: f64 = random.random();
            let rank = match u * zeta_n {
                uz if uz < 1.0 => 0,
                uz if uz < 1.0 + 0.5f64.powf(THETA) => 1,
                _ => (records as f64 * (eta * u - eta + 1.0).powf(alpha)) as u64,
            };
            let record = rank.min(records - 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % records;
            record * 1024 + random.random_range(0..1024 / step) * step
        })
        .collect()
}

pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
