//! A region that is used while it is loaded: data are never wrong, a kill, a flush or a power cut
//! on the way loses nothing, and damage that is found late is an error where it is found.

use std::sync::Arc;

use crate::support::lanes::{self, BLOCKS, LANES, REGION_BYTES, memory, owned, read, write};
use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::{BLOCK_BYTES, Config, Planted, Region, Unreadable};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

fn config(planted: Planted) -> Config {
    Config {
        segment_bytes: Some(64 << 10),
        reserved_bytes: Some(REGION_BYTES),
        lanes: Some(LANES as u16),
        thread: false,
        checkpoint_every: None,
        defer_load: true,
        planted,
        ..Config::new(REGION_BYTES, 256 << 10)
    }
}

fn open(device: &SimDevice, planted: Planted) -> Region {
    lanes::open(device, config(planted))
}

fn attach(region: Region, device: &SimDevice) -> Region {
    lanes::attach(region, device, config(Planted::None))
}

fn place(random: &mut Random) -> (u64, usize) {
    let len = [8usize, 64, 200, 1088, 5000][random.random_range(0..5)];
    let block = random.random_range(0..BLOCKS);
    (block * BLOCK_BYTES + random.random_range(0..BLOCK_BYTES - len as u64), len)
}

/// Writes and commits. Returns false if the power is off.
fn write_some(region: &Region, model: &mut [u8], random: &mut Random, writes: usize) -> bool {
    for _ in 0..writes {
        let (offset, len) = place(random);
        let bytes: Vec<u8> = (0..len).map(|_| random.random()).collect();
        if write(region, offset, &bytes).is_err() {
            return false;
        }
        model[offset as usize..][..len].copy_from_slice(&bytes);
        if random.random_range(0..40) == 0 && region.checkpoint().is_err() {
            return false;
        }
    }
    true
}

/// Makes an image of many segments, several of which have copies of most grains.
fn image(seed: u64) -> (SimDevice, Vec<u8>, Random) {
    let (device, mut random) = (SimDevice::new(0, seed), Random::seed_from_u64(seed));
    let mut model = vec![0; REGION_BYTES as usize];
    let region = open(&device, Planted::None);
    assert!(write_some(&region, &mut model, &mut random, 4_000));
    region.close(2).unwrap();
    (device, model, random)
}

/// Reads, writes, commits and loads, and compares everything that it reads with the oracle.
fn use_while_loading(
    region: &Region,
    model: &mut [u8],
    random: &mut Random,
    steps: usize,
) -> Result<(), String> {
    for step in 0..steps {
        match random.random_range(0..10) {
            0..5 => {
                let (offset, len) = place(random);
                if read(region, offset, len) != model[offset as usize..][..len] {
                    return Err(format!("step {step}: wrong data at {offset}"));
                }
            }
            5..8 => assert!(write_some(region, model, random, 1)),
            8 => _ = region.load_next().unwrap(),
            _ if step % 8 == 0 => region.checkpoint().unwrap(),
            _ => region.commit_group().unwrap(),
        }
    }
    Ok(())
}

#[test]
fn what_is_used_while_it_is_loaded_agrees_with_the_oracle() {
    for seed in 0..12 {
        let (device, mut model, mut random) = image(seed);
        let mut region = open(&device, Planted::None);
        assert!(region.load_progress().is_some(), "nothing was left to load");
        for round in 0..3 {
            let steps = random.random_range(1..60);
            use_while_loading(&region, &mut model, &mut random, steps)
                .unwrap_or_else(|wrong| panic!("seed {seed}, round {round}: {wrong}"));
            region = match random.random_range(0..4) {
                0 => attach(region, &device),
                1 => {
                    region.close(2).unwrap();
                    drop(region);
                    open(&device, Planted::None)
                }
                2 => {
                    region.load_all().unwrap();
                    assert_eq!(region.load_progress(), None, "seed {seed}");
                    region
                }
                _ => region,
            };
        }
        assert!(memory(&region) == model, "seed {seed}");
        // Writes more than the log has room for, so that live data in old segments are moved.
        assert!(write_some(&region, &mut model, &mut random, 2_000));
        assert!(memory(&region) == model, "seed {seed}");
        region.close(1).unwrap();
        drop(region);
        assert!(memory(&open(&device, Planted::None)) == model, "seed {seed}, the last life");
    }
}

#[test]
fn compaction_while_nothing_is_loaded_moves_the_right_bytes() {
    let (device, mut model, mut random) = image(77);
    let region = open(&device, Planted::None);
    // Writes one lane's blocks again and again, until old segments must be emptied that have data
    // of other lanes, too.
    for _ in 0..4_000 {
        let block = random.random_range(0..BLOCKS / LANES) * LANES;
        let offset = block * BLOCK_BYTES + random.random_range(0..BLOCK_BYTES - 2048);
        let bytes = [random.random(); 2048];
        write(&region, offset, &bytes).unwrap();
        model[offset as usize..][..2048].copy_from_slice(&bytes);
    }
    assert!(region.stats().compacted_bytes > 0, "this test shows nothing");
    assert!(memory(&region) == model);
    region.close(1).unwrap();
    drop(region);
    assert!(memory(&open(&device, Planted::None)) == model);
}

#[test]
fn every_power_cut_while_loading_leaves_a_committed_state() {
    let (stopped, model, _) = image(5);
    let mut cut = 1;
    loop {
        // Everything is flushed, so the power cycle makes a plain copy.
        let (device, mut random) = (stopped.power_cycle(0), Random::seed_from_u64(5));
        let region = open(&device, Planted::None);
        device.cut_after(device.ops() + cut);
        let (mut now, mut allowed) = (model.clone(), vec![model.clone()]);
        let mut cut_off = false;
        for _ in 0..30 {
            let (offset, len) = place(&mut random);
            let bytes: Vec<u8> = (0..len).map(|_| random.random()).collect();
            let _ = region.load_next();
            if write(&region, offset, &bytes).is_err() {
                cut_off = true;
                break;
            }
            now[offset as usize..][..len].copy_from_slice(&bytes);
            if random.random_range(0..5) == 0 {
                allowed.push(now.clone());
                if region.checkpoint().is_err() {
                    cut_off = true;
                    break;
                }
                allowed = vec![now.clone()];
            }
        }
        allowed.push(now);
        let was_closed = !cut_off && region.close(1).is_ok();
        drop(region);
        let device = device.power_cycle(cut);
        let found = memory(&open(&device, Planted::None));
        assert!(allowed.contains(&found), "cut {cut}");
        if was_closed {
            break;
        }
        cut += 1;
    }
    assert!(cut > 20, "only {cut} durable operations");
}

#[test]
fn killed_again_and_again_while_loading_nothing_is_lost() {
    let (device, mut model, mut random) = image(9);
    let mut region = open(&device, Planted::None);
    for _ in 0..12 {
        use_while_loading(&region, &mut model, &mut random, 12).unwrap();
        region = attach(region, &device);
    }
    assert!(memory(&region) == model);
}

#[test]
fn a_block_that_counts_as_loaded_too_early_is_caught() {
    let caught = (0..4).any(|seed| {
        let (device, mut model, mut random) = image(seed);
        let region = open(&device, Planted::LoadedTooEarly);
        use_while_loading(&region, &mut model, &mut random, 60).is_err()
    });
    assert!(caught);
}

#[test]
fn damage_that_is_met_late_is_an_error_where_it_is_met_and_nowhere_else() {
    let (stopped, model, mut random) = image(3);
    let (mut met, mut refused) = (0, 0);
    for seed in 0..40 {
        let device = stopped.power_cycle(0);
        let mut chance = Random::seed_from_u64(seed);
        device.flip_bit(chance.random_range(2 << 20..8 << 20), chance.random_range(0..8));
        let clock = Arc::new(SimClock::new(1_000));
        let config = config(Planted::None);
        let Ok(region) = Region::open(Arc::new(device.clone()), clock, config) else {
            refused += 1;
            continue;
        };
        let region = owned(region);
        let mut unreadable = Vec::new();
        for block in 0..BLOCKS {
            let from = (block * BLOCK_BYTES) as usize;
            match Unreadable::catch(|| read(&region, from as u64, BLOCK_BYTES as usize)) {
                Ok(bytes) => assert!(bytes == model[from..][..BLOCK_BYTES as usize], "seed {seed}"),
                Err(error) => unreadable.push((block, error)),
            }
        }
        let Some((block, error)) = unreadable.pop() else {
            assert_eq!(region.load_progress(), None);
            continue;
        };
        met += 1;
        // One block of a frame's payload has grains of several blocks of memory.
        assert!((unreadable.len() as u64) < BLOCKS / 2, "seed {seed}: one flipped bit");
        assert!(error.to_string().contains("page"), "{error}");
        assert!(region.load_all().is_err());
        assert!(region.load_progress().unwrap().failure.is_some());
        // The damaged block stays an error, for writers too. The other blocks can be written and
        // flushed.
        let at = block * BLOCK_BYTES;
        assert!(Unreadable::catch(|| write(&region, at, &[1])).is_err());
        let is_whole = |other: &u64| *other != block && unreadable.iter().all(|(b, _)| b != other);
        let other = (0..BLOCKS).find(is_whole).unwrap() * BLOCK_BYTES;
        let byte = [random.random()];
        write(&region, other, &byte).unwrap();
        region.close(1).unwrap();
        drop(region);
        let region = open(&device, Planted::None);
        assert_eq!(read(&region, other, 1), byte);
        assert!(Unreadable::catch(|| read(&region, at, BLOCK_BYTES as usize)).is_err());
    }
    assert!(met > 3, "{met} met late, {refused} refused at once");
}
