//! Power cuts against a region on the real file device, over files that lose what was not synced:
//! the name, the size and the bytes of the image included.

use std::path::Path;
use std::sync::Arc;

use perdura_media::file::{Direct, Engine, OpenMode};
use perdura_media::{FileDevice, SimClock, SimFiles};
use perdura_region::{OpenError, Origin, Planted, Region};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::recovery::{REGION_BYTES, assign, config, memory, run};

const CUTS_PER_SEED: u64 = 40;
const STEPS: usize = 120;

/// What a server was told before the power went.
#[derive(Default)]
struct Told {
    /// The region was opened.
    is_open: bool,
    /// The flush at a warning has ended.
    is_safe: bool,
    /// States that may be found, the newest last.
    allowed: Vec<Vec<u8>>,
}

fn open_region(files: &SimFiles, mode: OpenMode, engine: Engine) -> Result<Region, OpenError> {
    let path = Path::new("/image");
    let device = FileDevice::open_in(files, path, mode, engine, Direct::Auto)?;
    let clock = Arc::new(SimClock::new(1_000));
    let region = Region::open(Arc::new(device), clock, config(Planted::None))?;
    assign(&region);
    Ok(region)
}

/// Serves until the end or the first error: writes, checkpoints, group commits, and the flush at a
/// warning.
fn serve(files: &SimFiles, seed: u64, engine: Engine) -> Told {
    let mut told = Told::default();
    let mode = OpenMode::Create { capacity_bytes: 0 };
    let Ok(region) = open_region(files, mode, engine) else { return told };
    told.is_open = true;
    let mut random = Random::seed_from_u64(seed);
    told.allowed = run(&region, &mut random, STEPS, vec![0; REGION_BYTES as usize]);
    if region.failure().is_none() {
        let last = memory(&region);
        told.allowed.push(last.clone());
        if region.close(1).is_ok() {
            (told.is_safe, told.allowed) = (true, vec![last]);
        }
    }
    told
}

/// Cuts the power at the durable operation number `cut`, or makes it fail and cuts the power at the
/// end. Returns the number of operations, or what is wrong.
fn cut_once(seed: u64, cut: u64, is_failure: bool) -> Result<u64, String> {
    let engine = if seed.is_multiple_of(2) { Engine::Uring } else { Engine::Pwrite };
    let files = SimFiles::new(seed);
    if is_failure {
        files.fail_at(cut)
    } else {
        files.cut_after(cut)
    }
    let told = serve(&files, seed, engine);
    let after = files.power_cycle(seed ^ cut);
    if !told.is_open {
        return Ok(files.ops());
    }
    let region = open_region(&after, OpenMode::Existing, engine)
        .map_err(|error| format!("the image does not open: {error}"))?;
    if !told.allowed.contains(&memory(&region)) {
        return Err(format!("memory is none of {} allowed states", told.allowed.len()));
    }
    let was_final = matches!(region.origin(), Origin::Recovered { was_final: true, .. });
    if told.is_safe && !was_final {
        return Err("the final commit was not found".into());
    }
    Ok(files.ops())
}

fn check(seed: u64, cut: u64, is_failure: bool) -> u64 {
    cut_once(seed, cut, is_failure).unwrap_or_else(|why| {
        let what = if is_failure { "failure" } else { "cut" };
        panic!(
            "seed {seed}, {what} at operation {cut}: {why}\nreplay: PERDURA_SEED={seed} \
             PERDURA_CUT={cut} PERDURA_FAILURE={is_failure} cargo test -p perdura-region --test \
             region files::replay"
        )
    })
}

/// Checks places all over the run of a seed.
fn check_many(seed: u64, is_failure: bool) {
    let ops = check(seed, u64::MAX, is_failure);
    for cut in (seed..ops).step_by(ops.div_ceil(CUTS_PER_SEED) as usize) {
        check(seed, cut, is_failure);
    }
}

#[test]
fn what_a_region_in_a_file_acknowledged_survives_every_power_cut() {
    (0..4).for_each(|seed| check_many(seed, false));
}

#[test]
fn what_a_region_in_a_file_acknowledged_survives_every_failed_call() {
    (4..6).for_each(|seed| check_many(seed, true));
}

#[test]
fn replay_one_cut_from_the_environment() {
    let read = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    if let (Some(seed), Some(cut)) = (read("PERDURA_SEED"), read("PERDURA_CUT")) {
        check(seed, cut, std::env::var("PERDURA_FAILURE").is_ok_and(|value| value == "true"));
    }
}
