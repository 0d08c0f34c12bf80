//! Several threads on a device that records every command. Bytes are compared with an oracle, and
//! commands with requests, for each step.

mod noting;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::*;
use noting::{Noting, Wrong};

const THREADS: u64 = 6;
const BLOCK_BYTES: u64 = 16;
/// Blocks of a thread. Blocks of all threads alternate, so that requests of several are adjacent.
const BLOCKS: u64 = 12;

/// Fewer tags than threads, and fewer tickets, so that every kind of waiting occurs.
fn scarce(planted: PlantedPath) -> PathSettings {
    PathSettings {
        tags: 2,
        requests: 4,
        merge_bytes_max: 4 * BLOCK_BYTES,
        expiry: Duration::from_nanos(20),
        spin_max_bytes: BLOCK_BYTES as usize,
        planted,
    }
}

/// A request of a thread.
struct Asked {
    access: Access,
    offset_bytes: u64,
    len_bytes: u64,
    began_ps: u64,
    ended_ps: u64,
}

/// One thread's requests to its own blocks. Panics if a read returns other bytes than were written
/// last.
fn work<H: Hardware>(path: &IoPath<H>, thread: u64, requests: usize, seed: u64) -> Vec<Asked> {
    let mut random = Random::seed_from_u64(seed * 100 + thread);
    let mut oracle = vec![0u8; (BLOCKS * BLOCK_BYTES) as usize];
    let one = |_| {
        let block = random.random_range(0..BLOCKS);
        let len = random.random_range(1..=BLOCK_BYTES as usize);
        let len = if random.random_bool(0.7) { BLOCK_BYTES as usize } else { len };
        let offset_bytes = (block * THREADS + thread) * BLOCK_BYTES;
        let mine = &mut oracle[(block * BLOCK_BYTES) as usize..][..len];
        let began_ps = path.hardware().now_ps();
        let access = if random.random_bool(0.5) { Access::Read } else { Access::Write };
        if access == Access::Write {
            random.fill(mine);
            path.write(offset_bytes, mine).unwrap();
        } else {
            let mut found = vec![0xA5; len];
            path.read(offset_bytes, &mut found).unwrap();
            assert_eq!(found, mine, "seed {seed}, thread {thread}, offset {offset_bytes}");
        }
        let ended_ps = path.hardware().now_ps();
        Asked { access, offset_bytes, len_bytes: len as u64, began_ps, ended_ps }
    };
    (0..requests).map(one).collect()
}

/// Runs all threads, and returns the commands that were issued, or the first wrong one.
fn run(
    step: Step,
    settings: &PathSettings,
    threads: u64,
    seed: u64,
) -> Result<(usize, usize), Wrong> {
    const REQUESTS: usize = 150;
    let capacity_bytes = THREADS * BLOCKS * BLOCK_BYTES;
    let path = IoPath::new(Noting::new(capacity_bytes, seed), step, settings).unwrap();
    let asked: Vec<Asked> = std::thread::scope(|scope| {
        let path = &path;
        let spawn = |thread| scope.spawn(move || work(path, thread, REQUESTS, seed));
        let running: Vec<_> = (0..threads).map(spawn).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let commands = path.hardware().commands()?;
    for access in [Access::Read, Access::Write] {
        let requested = asked.iter().filter(|a| a.access == access).map(|a| a.len_bytes).sum();
        let issued = commands.iter().filter(|c| c.access == access).map(|c| c.len_bytes).sum();
        if requested != issued {
            return Err(Wrong::Bytes { access, requested, issued });
        }
    }
    for request in &asked {
        let end = request.offset_bytes + request.len_bytes;
        let carries = |c: &&noting::Noted| {
            c.access == request.access
                && c.offset_bytes <= request.offset_bytes
                && end <= c.offset_bytes + c.len_bytes
                && request.began_ps <= c.issued_ps
                && c.due_ps <= request.ended_ps
        };
        if !commands.iter().any(|command| carries(&command)) {
            return Err(Wrong::NoCommand { offset_bytes: request.offset_bytes });
        }
    }
    Ok((asked.len(), commands.len()))
}

#[test]
fn every_step_carries_the_right_bytes_and_each_request_in_one_command() {
    for step in Step::ALL {
        let mut merged = 0;
        for seed in 0..40 {
            let (requests, commands) = run(step, &scarce(PlantedPath::None), THREADS, seed)
                .unwrap_or_else(|wrong| panic!("{step}, seed {seed}: {wrong:?}"));
            merged += requests - commands;
        }
        assert_eq!(merged > 0, step == Step::Base, "{step}: {merged} merged");
    }
}

#[test]
fn every_step_carries_the_right_bytes_over_the_emulator_in_real_and_in_virtual_time() {
    use perdura_media::emulator::{Emulator, Pace};
    let pcm = perdura_media::profile::System::find("pcie-pcm").unwrap();
    for pace in [Pace::Real, Pace::Virtual] {
        for step in Step::ALL {
            let capacity_bytes = (THREADS * BLOCKS * BLOCK_BYTES).next_multiple_of(4096);
            let emulator = Emulator::anonymous(&pcm, capacity_bytes, pace).unwrap();
            let path = IoPath::new(&emulator, step, &scarce(PlantedPath::None)).unwrap();
            let asked: Vec<Asked> = std::thread::scope(|scope| {
                let spawn = |thread| {
                    let path = &path;
                    scope.spawn(move || work(path, thread, 200, 9))
                };
                let running: Vec<_> = (0..THREADS).map(spawn).collect();
                running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            for request in &asked {
                // The controller alone takes six microseconds.
                assert!(request.ended_ps - request.began_ps > 6_000_000, "{step}, {pace:?}");
            }
        }
    }
}

#[test]
fn one_tag_and_one_ticket_are_enough_for_all() {
    let settings = PathSettings { tags: 1, requests: 1, ..scarce(PlantedPath::None) };
    for step in Step::ALL {
        for seed in 0..20 {
            let ran = run(step, &settings, THREADS, seed);
            assert!(ran.is_ok(), "{step}, seed {seed}: {ran:?}");
        }
    }
}

#[test]
fn planted_bugs_of_the_driver_are_caught() {
    // Bugs in the order of requests are caught in `elevator`; these are the ones that a device can
    // see.
    for (planted, step, threads) in [
        (PlantedPath::MergeDirections, Step::Base, THREADS),
        (PlantedPath::MergeOverGap, Step::Base, THREADS),
        (PlantedPath::FreeTagAtIssue, Step::Base, THREADS),
        (PlantedPath::FreeTagAtIssue, Step::Unscheduled, THREADS),
        (PlantedPath::FreeTagAtIssue, Step::Atomic, THREADS),
        (PlantedPath::FreeTagAtIssue, Step::Spin, THREADS),
        (PlantedPath::ReturnWhenCopied, Step::Base, 1),
        (PlantedPath::ReturnWhenCopied, Step::Unscheduled, 1),
        (PlantedPath::ReturnWhenCopied, Step::Atomic, 1),
        (PlantedPath::ReturnWhenCopied, Step::Spin, 1),
    ] {
        let caught = (0..200).any(|seed| run(step, &scarce(planted), threads, seed).is_err());
        assert!(caught, "{planted:?} in {step} is not caught");
    }
}

#[test]
fn parts_of_a_request_add_up_and_hold_what_the_step_has() {
    let settings = PathSettings::default();
    for step in Step::ALL {
        let path = IoPath::new(Noting::new(1 << 16, 1), step, &settings).unwrap();
        let began_ps = path.hardware().now_ps();
        let parts = path.write_timed(4096, &[7; 4096]).unwrap();
        // Two readings of the clock, which advances with each, lie outside.
        assert_eq!(parts.total_ps() + 2, path.hardware().now_ps() - began_ps, "{step}");
        assert!(parts.ps(Part::Hardware) > 0, "{step}: {parts:?}");
        assert_eq!(parts.ps(Part::Scheduler) > 0, step == Step::Base, "{step}: {parts:?}");
        let has_queue = matches!(step, Step::Base | Step::Unscheduled);
        assert_eq!(parts.ps(Part::Queue) > 0, has_queue, "{step}: {parts:?}");
    }
}

#[test]
fn small_requests_spin_and_large_ones_sleep() {
    let settings = PathSettings { spin_max_bytes: 512, ..PathSettings::default() };
    let path = IoPath::new(Noting::new(1 << 16, 1), Step::Spin, &settings).unwrap();
    path.read(0, &mut [0; 512]).unwrap();
    assert_eq!(path.hardware().waits(), [1, 0]);
    path.read(0, &mut [0; 513]).unwrap();
    assert_eq!(path.hardware().waits(), [1, 1]);
}

#[test]
fn what_is_not_on_the_device_is_refused_and_nothing_is_issued() {
    let settings = PathSettings::default();
    for step in Step::ALL {
        let path = IoPath::new(Noting::new(4096, 1), step, &settings).unwrap();
        for (offset_bytes, len) in [(4096, 1), (4095, 2), (0, 4097), (u64::MAX, 1), (u64::MAX, 2)] {
            let error = path.write(offset_bytes, &vec![0; len]).unwrap_err();
            assert!(matches!(error, DeviceError::OutOfRange { .. }), "{error}");
        }
        path.read(4096, &mut []).unwrap();
        assert_eq!(path.hardware().commands().unwrap().len(), 0);
    }
}

#[test]
fn bounds_that_cannot_be_are_named() {
    let usual = PathSettings::default();
    let refused = |settings: PathSettings| {
        IoPath::new(Noting::new(4096, 1), Step::Base, &settings).unwrap_err().to_string()
    };
    for tags in [0, 65] {
        let error = refused(PathSettings { tags, ..usual });
        assert_eq!(error, format!("tags is {tags}: expected 1 to 64"));
    }
    let error = refused(PathSettings { requests: 31, ..usual });
    assert_eq!(error, "requests is 31: expected 32 to 1024");
    assert!("fast".parse::<Step>().unwrap_err().to_string().contains("base, unscheduled"));
    for step in Step::ALL {
        assert_eq!(step.name().parse(), Ok(step));
    }
}
