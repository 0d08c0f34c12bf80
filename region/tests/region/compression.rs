//! A region that compresses: it keeps the same promises with fewer bytes written, and checks every
//! length that it reads from a device.

use std::sync::Arc;

use crate::support::lanes::{self, BLOCKS, LANES, REGION_BYTES, memory, owned, read, write};
use perdura_image::format::{FRAME_LZ4, FRAME_MAGIC, Layout};
use perdura_image::fuzzing::repair_checksums;
use perdura_media::sim::SimDevice;
use perdura_media::{BLOCK_BYTES as DEVICE_BLOCK, BlockBuf, Clock, Device};
use perdura_media::{FaultPlan, FaultyDevice, SimClock};
use perdura_region::{
    Attachment, BLOCK_BYTES, Compression, Config, FlushOptions, ImageError, OpenError, Region,
    Stats, Unreadable,
};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

fn config(compression: Compression) -> Config {
    Config {
        segment_bytes: Some(256 << 10),
        reserved_bytes: Some(REGION_BYTES),
        lanes: Some(LANES as u16),
        thread: false,
        checkpoint_every: None,
        compression,
        ..Config::new(REGION_BYTES, 1 << 20)
    }
}

fn open(device: &(impl Device + Clone + 'static)) -> Region {
    lanes::open(device, config(Compression::Lz4))
}

fn attach(region: Region, device: &SimDevice) -> Region {
    lanes::attach(region, device, config(Compression::Lz4))
}

/// Bytes of which half repeat others, so that they can be compressed.
pub fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for piece in bytes.chunks_mut(64) {
        match random.random() {
            true => piece.fill(random.random_range(1..9)),
            false => random.fill(piece),
        }
    }
    bytes
}

/// Writes, and commits now and then. Returns false if the power is off or the device has failed.
pub fn write_some(region: &Region, model: &mut [u8], random: &mut Random, writes: usize) -> bool {
    (0..writes).all(|_| {
        write_one(region, model, random)
            && match random.random_range(0..80) {
                0 => region.checkpoint().is_ok(),
                1 => region.commit_group().is_ok(),
                _ => true,
            }
    })
}

/// `false`: the power is off, or the device failed.
pub fn write_one(region: &Region, model: &mut [u8], random: &mut Random) -> bool {
    let len = [8usize, 64, 200, 1088, 5000, 40_000][random.random_range(0..6)];
    let block = random.random_range(0..BLOCKS) * BLOCK_BYTES;
    let offset = block + random.random_range(0..BLOCK_BYTES - len as u64);
    let bytes = bytes(random, len);
    if write(region, offset, &bytes).is_err() {
        return false;
    }
    model[offset as usize..][..len].copy_from_slice(&bytes);
    true
}

fn image(seed: u64, compression: Compression) -> (SimDevice, Vec<u8>, Stats) {
    let (device, mut random) = (SimDevice::new(0, seed), Random::seed_from_u64(seed));
    let mut model = vec![0; REGION_BYTES as usize];
    let region = lanes::open(&device, config(compression));
    assert!(write_some(&region, &mut model, &mut random, 1_500));
    region.checkpoint().unwrap();
    let stats = region.stats();
    region.close(2).unwrap();
    (device, model, stats)
}

#[test]
fn what_is_compressed_comes_back_and_is_less() {
    for seed in 0..4 {
        let (device, model, stats) = image(seed, Compression::Lz4);
        let (_, _, plain) = image(seed, Compression::Off);
        assert!(stats.compressed_frames > 10, "{stats:?}");
        assert!(stats.compression_out_bytes * 4 < stats.compression_in_bytes * 3, "{stats:?}");
        assert!(stats.device_bytes * 5 < plain.device_bytes * 4, "{stats:?}, {plain:?}");
        assert_eq!((plain.compressed_frames, plain.compression_in_bytes), (0, 0));
        assert!(memory(&open(&device)) == model, "seed {seed}");
        // A region that does not compress reads a compressed image, and writes on.
        let region = lanes::open(&device, config(Compression::Off));
        write(&region, 5, &[9; 100]).unwrap();
        region.checkpoint().unwrap();
        assert!(memory(&region)[105..] == model[105..]);
    }
}

#[test]
fn blocks_are_loaded_from_compressed_frames_one_by_one() {
    for seed in 0..4 {
        let (device, mut model, _) = image(seed, Compression::Lz4);
        let lazy = Config { defer_load: true, ..config(Compression::Lz4) };
        let region = lanes::open(&device, lazy);
        let mut random = Random::seed_from_u64(seed);
        for step in 0..60 {
            let block = random.random_range(0..BLOCKS) * BLOCK_BYTES;
            let found = read(&region, block, BLOCK_BYTES as usize);
            assert!(found == model[block as usize..][..BLOCK_BYTES as usize], "seed {seed}");
            if step % 7 == 0 {
                region.load_next().unwrap();
            }
            assert!(write_some(&region, &mut model, &mut random, 1));
        }
        region.load_all().unwrap();
        assert!(memory(&region) == model, "seed {seed}");
    }
}

#[test]
fn every_power_cut_leaves_a_committed_state() {
    let mut cut = 1;
    loop {
        let (device, mut random) = (SimDevice::new(0, cut), Random::seed_from_u64(8));
        let mut now = vec![0; REGION_BYTES as usize];
        let region = open(&device);
        let mut allowed = vec![now.clone()];
        device.cut_after(device.ops() + cut);
        let mut ended = false;
        for _ in 0..12 {
            if !(0..3).all(|_| write_one(&region, &mut now, &mut random)) {
                ended = true;
                break;
            }
            allowed.push(now.clone());
            let committed =
                if random.random() { region.checkpoint() } else { region.commit_group() };
            if committed.is_err() {
                ended = true;
                break;
            }
            allowed = vec![now.clone()];
        }
        let closed = !ended && region.close(1).is_ok();
        allowed.push(now);
        drop(region);
        let found = memory(&open(&device.power_cycle(cut)));
        assert!(allowed.contains(&found), "cut {cut}");
        if closed {
            break;
        }
        cut += 2;
    }
    assert!(cut > 20, "only {cut} durable operations");
}

#[test]
fn who_is_killed_with_compressed_frames_on_their_way_loses_nothing() {
    let mut redone = 0;
    for nth in 1..32 {
        let (device, mut random) = (SimDevice::new(0, nth), Random::seed_from_u64(nth));
        let (faults, clock) = (Arc::new(FaultPlan::new()), Arc::new(SimClock::new(1_000)));
        let faulty = FaultyDevice::new(Arc::new(device.clone()), faults.clone(), clock.clone());
        let mut model = vec![0; REGION_BYTES as usize];
        let config = config(Compression::Lz4);
        let region = owned(Region::open(Arc::new(faulty), clock.clone(), config).unwrap());
        assert!(write_some(&region, &mut model, &mut random, 200));
        match nth % 2 {
            0 => faults.fail_write(nth / 2),
            _ => faults.fail_flush(nth / 4 + 1),
        }
        // The write before the failed cleaning is in memory.
        let mut last = model.clone();
        while write_some(&region, &mut last, &mut random, 1) {
            model.copy_from_slice(&last);
        }
        model.copy_from_slice(&last);
        let (memory_fd, ledger_fd) = region.fds();
        let [m, l] = [memory_fd, ledger_fd].map(|fd| fd.try_clone_to_owned().unwrap());
        let live = memory(&region);
        assert!(live == model, "nothing was acknowledged and not done");
        drop(region);
        if nth % 3 == 0 {
            let holder = Attachment::new(m, l).unwrap();
            let options = FlushOptions { threads: 2, unix_ms: clock.unix_ms() };
            redone += holder.flush(&device, options).unwrap().redone_bytes;
        } else {
            let clock = Arc::new(SimClock::new(1_000));
            let config = self::config(Compression::Lz4);
            let device = Arc::new(device.clone());
            let region = owned(Region::attach(m, l, device, clock, config).unwrap());
            assert!(memory(&region) == model, "attached, {nth}");
            assert!(write_some(&region, &mut model, &mut random, 20));
            region.close(1).unwrap();
        }
        assert!(memory(&open(&device.power_cycle(nth))) == model, "{nth}");
    }
    assert!(redone > 0, "no frame was on its way");
}

#[test]
fn killed_again_and_again_nothing_is_lost() {
    let (device, mut random) = (SimDevice::new(0, 1), Random::seed_from_u64(1));
    let mut model = vec![0; REGION_BYTES as usize];
    let mut region = open(&device);
    for _ in 0..30 {
        assert!(write_some(&region, &mut model, &mut random, 120));
        region = attach(region, &device);
        assert!(memory(&region) == model);
    }
    region.drill(true, 2).unwrap();
    assert!(write_some(&region, &mut model, &mut random, 500));
    region.close(1).unwrap();
    assert!(memory(&open(&device)) == model);
}

#[test]
fn bytes_that_do_not_shrink_are_written_as_without_compression() {
    let written = |compression| {
        let device = SimDevice::new(0, 1);
        let region = lanes::open(&device, config(compression));
        let mut random = Random::seed_from_u64(2);
        for _ in 0..600 {
            let block = random.random_range(0..BLOCKS) * BLOCK_BYTES;
            let mut bytes = vec![0; 16_384];
            random.fill(&mut bytes[..]);
            write(&region, block, &bytes).unwrap();
        }
        region.checkpoint().unwrap();
        region.stats()
    };
    let (packed, plain) = (written(Compression::Lz4), written(Compression::Off));
    assert_eq!((packed.compressed_frames, packed.device_bytes), (0, plain.device_bytes));
    assert_eq!(packed.compression_in_bytes, packed.compression_out_bytes);
    assert!(packed.compression_in_bytes > 0);
}

#[test]
fn an_image_stays_of_one_format_when_it_is_opened_with_compression() {
    let version = |device: &SimDevice| {
        let image = device.snapshot();
        [8, 4096 + 8].map(|at| u32::from_le_bytes(image[at..at + 4].try_into().unwrap()))
    };
    let (device, model, _) = image(1, Compression::Off);
    assert_eq!(version(&device), [2, 2]);
    assert!(memory(&lanes::open(&device, config(Compression::Off))) == model);
    assert_eq!(version(&device), [2, 2]);
    let region = open(&device);
    assert!(memory(&region) == model);
    region.close(1).unwrap();
    assert_eq!(version(&device), [2, 2]);
    // If the power fails on the way, either copy may be found.
    for cut in 1..8 {
        let (device, model, _) = image(1, Compression::Off);
        device.cut_after(device.ops() + cut);
        let clock = Arc::new(SimClock::new(1_000));
        let opened = Region::open(Arc::new(device.clone()), clock, config(Compression::Lz4));
        drop(opened);
        let device = device.power_cycle(cut);
        assert!(memory(&lanes::open(&device, config(Compression::Off))) == model, "cut {cut}");
        assert!(memory(&open(&device)) == model, "cut {cut}");
        assert_eq!(version(&device), [2, 2], "cut {cut}");
    }
}

/// The offsets of compressed frames.
fn compressed_frames(image: &[u8], device: &SimDevice) -> Vec<usize> {
    let region = open(&device.power_cycle(0));
    let first = Layout::of(region.geometry()).segment_at(0) as usize;
    let u16_at = |at: usize| u16::from_le_bytes([image[at], image[at + 1]]);
    let is_frame = |at: &usize| image[*at..*at + 4] == FRAME_MAGIC.to_le_bytes();
    let frames = (first..image.len()).step_by(4096).filter(is_frame);
    frames.filter(|at| u16_at(at + 6) & FRAME_LZ4 != 0).collect()
}

pub fn device_of(image: &[u8]) -> SimDevice {
    let device = SimDevice::new(image.len() as u64, 0);
    let mut aligned = BlockBuf::zeroed(image.len().next_multiple_of(DEVICE_BLOCK as usize));
    aligned[..image.len()].copy_from_slice(image);
    device.write_at(0, &aligned).unwrap();
    device
}

/// Opens an image and reads all of it, loading at once or late. Returns why that was refused, if it
/// was.
fn meet(image: &[u8], defer_load: bool) -> Result<Vec<u8>, Arc<OpenError>> {
    let (device, clock) = (device_of(image), Arc::new(SimClock::new(1_000)));
    let config = Config { defer_load, ..config(Compression::Lz4) };
    let region = owned(Region::open(Arc::new(device), clock, config)?);
    Unreadable::catch(|| memory(&region)).map_err(|error| error.source)
}

#[test]
fn a_flipped_bit_in_a_compressed_frame_names_segment_and_page() {
    let (device, model, _) = image(3, Compression::Lz4);
    let good = device.snapshot();
    let frames = compressed_frames(&good, &device);
    let mut named = 0;
    for (number, frame) in frames.iter().enumerate() {
        let payload = u32::from_le_bytes(good[frame + 32..frame + 36].try_into().unwrap());
        let mut image = good.clone();
        image[frame + 64 + (number * 977) % payload as usize] ^= 4;
        match meet(&image, number % 2 == 0) {
            Ok(found) => assert!(found == model, "frame {number}"),
            Err(error) => match &*error {
                OpenError::Image(ImageError::DamagedPage { .. }) => named += 1,
                other => panic!("frame {number}: {other}"),
            },
        }
    }
    assert!(named > 3, "{named} of {}", frames.len());
}

#[test]
fn chunks_that_lie_about_their_lengths_are_refused_though_their_checksums_are_right() {
    let (device, model, _) = image(4, Compression::Lz4);
    let good = device.snapshot();
    let frames = compressed_frames(&good, &device);
    let (mut chunks, mut impossible, mut random) = (0, 0, Random::seed_from_u64(4));
    for round in (0..6 * frames.len()).step_by(5) {
        let frame = frames[round % frames.len()];
        let u32_at = |at: usize| u32::from_le_bytes(good[at..at + 4].try_into().unwrap());
        let (payload, extents, raw) = (u32_at(frame + 32), u32_at(frame + 36), u32_at(frame + 28));
        let lengths = frame + 64 + (payload + extents * 8 + payload.div_ceil(4096) * 16) as usize;
        let mut image = good.clone();
        match round / frames.len() {
            // Changes a token of the first chunk, so that everything after it moves.
            0..2 => image[frame + 64] = random.random(),
            2 => image[lengths] ^= 1,
            3 => image[lengths..lengths + 4].fill(0xff),
            // Changes the length before compression: by a grain, and by far too much.
            4 => image[frame + 28..frame + 32].copy_from_slice(&(raw + 64).to_le_bytes()),
            _ => image[frame + 28..frame + 32].fill(0x7f),
        }
        repair_checksums(&mut image);
        for defer_load in [false, true] {
            let error = match meet(&image, defer_load) {
                // No data of this frame are needed any more, or the change made other bytes of the
                // same length: LZ4 has no checksum.
                Ok(found) => {
                    assert!(found == model || round / frames.len() < 2, "round {round}");
                    continue;
                }
                Err(error) => error,
            };
            match &*error {
                OpenError::Image(ImageError::DamagedChunk { .. }) => chunks += 1,
                OpenError::Image(ImageError::Impossible { .. } | ImageError::LostFrame { .. }) => {
                    impossible += 1
                }
                other => panic!("round {round}: {other}"),
            }
        }
    }
    assert!(chunks > 5 && impossible > 5, "{chunks} chunks, {impossible} impossible");
}

#[test]
fn pages_that_are_trapped_are_compressed_too() {
    for kind in crate::support::modes() {
        let config = || Config { compression: Compression::Lz4, ..crate::support::config(kind) };
        let device = SimDevice::new(0, 1);
        let region = crate::support::open(&device, config());
        let base = region.trapped().unwrap().as_ptr() as usize;
        for round in 0..3 {
            for page in 0..256 {
                for word in 0..512 {
                    crate::support::store(
                        base,
                        page * crate::support::PAGE + word * 8,
                        page * 7 + round,
                    );
                }
            }
            region.checkpoint().unwrap();
        }
        let stats = region.stats();
        assert!(stats.compression_out_bytes * 10 < stats.compression_in_bytes, "{stats:?}");
        crate::support::storm(&region, 5, 2, 2_000);
        let before = crate::support::memory(&region);
        region.close(2).unwrap();
        drop(region);
        assert!(
            crate::support::memory(&crate::support::open(&device, config())) == before,
            "{kind:?}"
        );
    }
}
