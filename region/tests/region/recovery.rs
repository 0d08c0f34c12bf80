//! Power cuts against a region: after each of them, memory is as it was at a commit.

use std::sync::Arc;

use perdura_image::format::Layout;
use perdura_media::sim::SimDevice;
use perdura_media::{BlockBuf, Device, SimClock};
use perdura_region::{
    BLOCK_BYTES, Config, ImageError, LaneId, Need, OpenError, Origin, Planted, Region, RegionError,
};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

pub const REGION_BYTES: u64 = 32 * BLOCK_BYTES;
const LANES: u16 = 4;

pub fn config(planted: Planted) -> Config {
    Config {
        segment_bytes: Some(64 << 10),
        reserved_bytes: Some(REGION_BYTES),
        lanes: Some(LANES),
        thread: false,
        checkpoint_every: None,
        planted,
        ..Config::new(REGION_BYTES, 256 << 10)
    }
}

fn open(device: &SimDevice, planted: Planted) -> Region {
    let clock = Arc::new(SimClock::new(1_000));
    let region = Region::open(Arc::new(device.clone()), clock, config(planted)).unwrap();
    assign(&region);
    region
}

/// Gives each block to a lane.
pub fn assign(region: &Region) {
    for block in 0..REGION_BYTES / BLOCK_BYTES {
        region.assign_block(block, LaneId((block % u64::from(LANES)) as u16));
    }
}

/// Writes bytes as every user must: announces under the lane, and waits without it.
fn write(region: &Region, offset: u64, bytes: &[u8]) -> Result<(), RegionError> {
    let mut credit = 0;
    loop {
        let lane = LaneId((offset / BLOCK_BYTES % u64::from(LANES)) as u16);
        let need: Need = match region.lock_with(lane, credit).write(offset, bytes) {
            Ok(()) => return Ok(()),
            Err(need) => need,
        };
        credit = region.satisfy(need)?;
    }
}

pub fn memory(region: &Region) -> Vec<u8> {
    let block = |block| {
        let lane = region.lock(LaneId((block % u64::from(LANES)) as u16));
        lane.bytes(block * BLOCK_BYTES, BLOCK_BYTES as usize).to_vec()
    };
    (0..REGION_BYTES / BLOCK_BYTES).map(block).collect::<Vec<_>>().concat()
}

/// Writes, and makes checkpoints and group commits, until the power fails. Returns the states that
/// may be found afterwards, the newest last.
pub fn run(region: &Region, random: &mut Random, steps: usize, start: Vec<u8>) -> Vec<Vec<u8>> {
    let mut now = start.clone();
    let mut allowed = vec![start];
    for _ in 0..steps {
        let choice = random.random_range(0..100);
        if choice < 94 {
            let block = random.random_range(0..REGION_BYTES / BLOCK_BYTES);
            let len = [8usize, 64, 200, 1088, 5000][random.random_range(0..5)];
            let offset = block * BLOCK_BYTES + random.random_range(0..BLOCK_BYTES - len as u64);
            let bytes: Vec<u8> = (0..len).map(|_| random.random()).collect();
            if write(region, offset, &bytes).is_err() {
                return allowed;
            }
            now[offset as usize..offset as usize + len].copy_from_slice(&bytes);
        } else {
            allowed.push(now.clone());
            let committed = if choice < 97 { region.commit_group() } else { region.checkpoint() };
            if committed.is_err() {
                return allowed;
            }
            allowed = vec![now.clone()];
        }
        assert!(region.used_bytes_max() <= region.budget_bytes());
    }
    allowed
}

/// Cuts the power at the durable operation number `cut` of a run with `seed`. Returns what is wrong
/// if the promise is broken.
fn cut_once(seed: u64, cut: u64, planted: Planted) -> Result<u64, String> {
    let device = SimDevice::new(0, seed);
    let mut random = Random::seed_from_u64(seed);
    let mut state = vec![0; REGION_BYTES as usize];
    let region = open(&device, planted);
    device.cut_after(device.ops() + cut);
    let allowed = run(&region, &mut random, 400, state.clone());
    let ops = device.ops();
    drop(region);
    let device = device.power_cycle(seed ^ cut);
    let clock = Arc::new(SimClock::new(2_000));
    let region = Region::open(Arc::new(device.clone()), clock, config(planted))
        .map_err(|error| format!("does not open: {error}"))?;
    drop(region);
    let region = open(&device, planted);
    state = memory(&region);
    if !allowed.contains(&state) {
        return Err(format!("memory after the cut is none of {} allowed states", allowed.len()));
    }
    // The image goes on working: after a second run and a clean end, all data are there.
    let mut later = run(&region, &mut random, 50, state);
    let last = memory(&region);
    later.push(last.clone());
    region.close(1).map_err(|error| format!("final flush: {error}"))?;
    drop(region);
    let region = open(&device, planted);
    if !matches!(region.origin(), Origin::Recovered { was_final: true, .. }) {
        return Err("the final commit was not found".into());
    }
    if memory(&region) != last {
        return Err("memory differs after a clean end".into());
    }
    Ok(ops)
}

fn replay(seed: u64, cut: u64) -> String {
    format!(
        "replay: PERDURA_SEED={seed} PERDURA_CUT={cut} cargo test -p perdura-region \
         --test region recovery::replay"
    )
}

#[test]
fn every_cut_leaves_a_committed_state() {
    for seed in 0..4 {
        let ops = cut_once(seed, u64::MAX / 2, Planted::None).unwrap();
        for cut in 0..ops.min(120) {
            if let Err(why) = cut_once(seed, cut, Planted::None) {
                panic!("seed {seed}, cut {cut}: {why}\n{}", replay(seed, cut));
            }
        }
    }
}

#[test]
fn a_cut_while_an_image_is_made_leaves_one_that_opens_empty() {
    let device = SimDevice::new(0, 0);
    drop(open(&device, Planted::None));
    for cut in 0..device.ops() {
        for outcome in 0..8 {
            let device = SimDevice::new(0, cut);
            device.cut_after(cut);
            let clock = Arc::new(SimClock::new(1_000));
            let config = config(Planted::None);
            assert!(Region::open(Arc::new(device.clone()), clock, config).is_err());
            let device = device.power_cycle(outcome);
            let region = open(&device, Planted::None);
            assert!(memory(&region).iter().all(|byte| *byte == 0), "cut {cut}, outcome {outcome}");
            write(&region, 0, b"works").unwrap();
            region.close(1).unwrap();
            drop(region);
            assert!(memory(&open(&device, Planted::None)).starts_with(b"works"));
        }
    }
}

#[test]
fn a_group_commit_after_growing_is_not_lost() {
    let device = SimDevice::new(0, 5);
    let reserve = || Config { reserved_bytes: Some(4 * REGION_BYTES), ..config(Planted::None) };
    let open = |device: &SimDevice| {
        let clock = Arc::new(SimClock::new(1_000));
        Region::open(Arc::new(device.clone()), clock, reserve()).unwrap()
    };
    let region = open(&device);
    region.grow(3 * REGION_BYTES).unwrap();
    (0..3 * REGION_BYTES / BLOCK_BYTES).for_each(|block| region.assign_block(block, LaneId(0)));
    let write = |region: &Region, offset: u64, bytes: &[u8]| {
        let first = region.lock(LaneId(0)).write(offset, bytes);
        if let Err(need) = first {
            let credit = region.satisfy(need).unwrap();
            region.lock_with(LaneId(0), credit).write(offset, bytes).unwrap();
        }
    };
    write(&region, 3 * REGION_BYTES - 64, b"in the new part");
    region.commit_group().unwrap();
    drop(region);
    let region = open(&device.power_cycle(1));
    assert_eq!(region.len_bytes(), 3 * REGION_BYTES);
    (0..3 * REGION_BYTES / BLOCK_BYTES).for_each(|block| region.assign_block(block, LaneId(0)));
    assert!(region.lock(LaneId(0)).bytes(3 * REGION_BYTES - 64, 15) == b"in the new part");
    // Segments that only the group commits used belong to the log now.
    region.grow(4 * REGION_BYTES).unwrap();
    write(&region, 3 * REGION_BYTES - 64, b"again in it....");
    region.checkpoint().unwrap();
}

#[test]
fn a_budget_raised_far_beyond_the_first_gets_a_log_for_its_flush() {
    let device = SimDevice::new(0, 6);
    let region = open(&device, Planted::None);
    let log_bytes = region.log_bytes();
    region.set_budget(REGION_BYTES).unwrap();
    assert!(region.log_bytes() >= log_bytes + REGION_BYTES);
    let mut random = Random::seed_from_u64(6);
    run(&region, &mut random, 600, vec![0; REGION_BYTES as usize]);
    let (before, budget_bytes) = (memory(&region), region.budget_bytes());
    device.set_energy_bytes(Some(region.geometry().flush_bytes(budget_bytes) + (64 << 10)));
    region.close(1).unwrap();
    drop(region);
    assert!(memory(&open(&device.power_cycle(6), Planted::None)) == before);
}

#[test]
fn a_group_commit_behind_dead_frames_of_its_segment_is_found_again_and_again() {
    let device = SimDevice::new(0, 7);
    let region = open(&device, Planted::None);
    // An empty frame begins the segment. The checkpoint does not name this segment, because it has
    // no live data.
    region.commit_group().unwrap();
    region.checkpoint().unwrap();
    write(&region, 0, b"behind it").unwrap();
    region.commit_group().unwrap();
    drop(region);
    let mut device = device.power_cycle(7);
    for life in 0..3 {
        let region = open(&device, Planted::None);
        assert!(memory(&region).starts_with(b"behind it"), "life {life}");
        drop(region);
        device = device.power_cycle(life);
    }
}

#[test]
fn replay_one_cut_from_the_environment() {
    let read = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    if let (Some(seed), Some(cut)) = (read("PERDURA_SEED"), read("PERDURA_CUT")) {
        cut_once(seed, cut, Planted::None).unwrap();
    }
}

#[test]
fn a_skipped_flush_is_caught() {
    let caught =
        (0..8).any(|seed| (0..60).any(|cut| cut_once(seed, cut, Planted::SkipFlush).is_err()));
    assert!(caught);
}

#[test]
fn memory_left_by_a_killed_process_is_taken_up_again() {
    for seed in 0..20 {
        let device = SimDevice::new(0, seed);
        let region = open(&device, Planted::None);
        let mut random = Random::seed_from_u64(seed);
        run(&region, &mut random, 300, vec![0; REGION_BYTES as usize]);
        let before = memory(&region);
        let (memory_fd, ledger_fd) = region.fds();
        let fds =
            (memory_fd.try_clone_to_owned().unwrap(), ledger_fd.try_clone_to_owned().unwrap());
        drop(region);
        let clock = Arc::new(SimClock::new(3_000));
        let attached =
            Region::attach(fds.0, fds.1, Arc::new(device.clone()), clock, config(Planted::None))
                .unwrap();
        for block in 0..REGION_BYTES / BLOCK_BYTES {
            attached.assign_block(block, LaneId((block % u64::from(LANES)) as u16));
        }
        assert_eq!(memory(&attached), before);
        run(&attached, &mut random, 100, before);
        let last = memory(&attached);
        attached.close(2).unwrap();
        drop(attached);
        let device = device.power_cycle(seed);
        assert!(memory(&open(&device, Planted::None)) == last, "seed {seed}");
    }
}

#[test]
fn a_closed_region_can_be_read_and_refuses_to_be_changed() {
    let device = SimDevice::new(0, 1);
    let region = open(&device, Planted::None);
    write(&region, 0, b"before").unwrap();
    // A writer takes budget before the close, and comes with it afterwards.
    let credit = region.satisfy(Need::Room { bytes: 4096 }).unwrap();
    let in_time = region.lock(LaneId(1));
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| region.close(1).unwrap());
        while region.check_open().is_ok() {
            std::thread::yield_now();
        }
        // The lane was locked before the close, so this write is flushed.
        let mut in_time = in_time;
        in_time.write(BLOCK_BYTES, b"in time").unwrap();
        drop(in_time);
        closing.join().unwrap();
    });
    let mut late = region.lock_with(LaneId(0), credit);
    assert_eq!(late.bytes(0, 6), b"before");
    let need = late.write(0, b"after.").unwrap_err();
    drop(late);
    assert!(matches!(region.satisfy(need), Err(RegionError::Closed)));
    assert!(matches!(write(&region, 64, b"after"), Err(RegionError::Closed)));
    assert_eq!(region.used_bytes(), 0);
    let last = memory(&region);
    region.close(1).unwrap();
    drop(region);
    let region = open(&device.power_cycle(1), Planted::None);
    assert!(memory(&region) == last);
    assert!(memory(&region)[BLOCK_BYTES as usize..].starts_with(b"in time"));
}

/// Makes a run that ends without a flush after two checkpoints: the newest commit, and an older
/// one.
fn with_two_commits(seed: u64) -> (SimDevice, Vec<u8>, [u64; 4]) {
    let device = SimDevice::new(0, seed);
    let region = open(&device, Planted::None);
    write(&region, 0, b"older").unwrap();
    region.checkpoint().unwrap();
    write(&region, 0, b"newer").unwrap();
    region.checkpoint().unwrap();
    let last = memory(&region);
    let layout = Layout::of(region.geometry());
    drop(region);
    // Commit 1 makes the image, so commit 3 is in the first slot again.
    let (newest, older) = (0, 1);
    let places = [(newest, 0), (newest, 1), (older, 0), (older, 1)];
    (device.power_cycle(seed), last, places.map(|(slot, copy)| layout.slot_at(slot, copy)))
}

fn flawed_commit_at(region: &Region) -> Option<u64> {
    match region.origin() {
        Origin::Recovered { flawed_commit_at, .. } => flawed_commit_at,
        origin => panic!("{origin:?}"),
    }
}

#[test]
fn a_flipped_bit_in_the_newest_commit_is_told_and_costs_nothing() {
    let mut random = Random::seed_from_u64(1);
    let (device, last, _) = with_two_commits(0);
    let region = open(&device, Planted::None);
    assert_eq!(flawed_commit_at(&region), None);
    assert!(memory(&region) == last);
    for seed in 0..40 {
        let (device, last, places) = with_two_commits(seed);
        let at = places[(seed % 2) as usize];
        // The damaged byte is in the header or in the first entries of the table.
        device.flip_bit(at + random.random_range(0..160), random.random_range(0..8));
        let region = open(&device, Planted::None);
        assert_eq!(flawed_commit_at(&region), Some(at), "seed {seed}");
        assert!(memory(&region) == last, "seed {seed}");
        // The next commit in this slot removes the flaw.
        region.checkpoint().unwrap();
        write(&region, 0, b"later").unwrap();
        region.checkpoint().unwrap();
        drop(region);
        let region = open(&device.power_cycle(seed), Planted::None);
        assert_eq!(flawed_commit_at(&region), None, "seed {seed}");
        assert!(memory(&region).starts_with(b"later"), "seed {seed}");
    }
}

#[test]
fn an_image_that_lost_its_head_is_refused_and_not_made_anew() {
    let (device, _, _) = with_two_commits(1);
    let zeros = BlockBuf::zeroed(8192);
    device.write_at(0, &zeros).unwrap();
    let before = device.snapshot();
    let clock = Arc::new(SimClock::new(2_000));
    let refused = Region::open(Arc::new(device.clone()), clock.clone(), config(Planted::None));
    let Err(OpenError::Image(ImageError::LostHead { found_at })) = refused else {
        panic!("{:?}", refused.err())
    };
    assert_eq!(found_at, 8192);
    assert!(device.snapshot() == before);
    // A slot that nobody wrote counts as new.
    let device = SimDevice::new(8 << 20, 1);
    Region::open(Arc::new(device), clock, config(Planted::None)).unwrap();
}

/// Two flaws at once cannot be told from a commit that was never written. The fault model allows
/// for that.
#[test]
fn both_copies_of_the_newest_commit_damaged_bring_the_older_state_or_an_error() {
    let (device, _, places) = with_two_commits(3);
    device.flip_bit(places[0] + 9, 1);
    device.flip_bit(places[1] + 17, 1);
    let region = open(&device, Planted::None);
    assert!(memory(&region).starts_with(b"older"));
    let (device, _, places) = with_two_commits(3);
    places.iter().for_each(|at| device.flip_bit(at + 9, 1));
    let clock = Arc::new(SimClock::new(2_000));
    let refused = Region::open(Arc::new(device.clone()), clock, config(Planted::None)).err();
    let expected = Some(OpenError::Image(ImageError::NoCommit {
        first_offset_bytes: places[0],
        second_offset_bytes: places[2],
    }));
    assert_eq!(format!("{refused:?}"), format!("{expected:?}"));
}

#[test]
fn a_flipped_bit_is_an_error_or_harmless_never_wrong_data() {
    let mut found = 0;
    for seed in 0..60 {
        let device = SimDevice::new(0, seed);
        let region = open(&device, Planted::None);
        let mut random = Random::seed_from_u64(seed);
        run(&region, &mut random, 200, vec![0; REGION_BYTES as usize]);
        let last = memory(&region);
        region.close(1).unwrap();
        drop(region);
        device.flip_bit(random.random_range(0..device.capacity_bytes()), random.random_range(0..8));
        let clock = Arc::new(SimClock::new(3_000));
        match Region::open(Arc::new(device.clone()), clock, config(Planted::None)) {
            Err(_) => found += 1,
            Ok(region) => {
                for block in 0..REGION_BYTES / BLOCK_BYTES {
                    region.assign_block(block, LaneId((block % u64::from(LANES)) as u16));
                }
                assert!(memory(&region) == last, "seed {seed}");
            }
        }
    }
    assert!(found > 0, "no flip hit anything that counts");
}
