//! Any bytes are opened as an image: the result is a typed error or a region, never a panic, a hang
//! or memory without bound.
use std::sync::{Arc, LazyLock};

use perdura_image::fuzzing::repair_checksums;
use perdura_media::sim::SimDevice;
use perdura_media::{BlockBuf, Device, SimClock};
use perdura_region::{Compression, Config, LaneId, Region};

/// The bytes of a small image with frames of several kinds, compressed and not, after a few
/// checkpoints and a group commit.
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let device = SimDevice::new(0, 1);
    let clock = Arc::new(SimClock::new(1));
    let region = Region::open(Arc::new(device.clone()), clock, config()).unwrap();
    for round in 0..6u64 {
        let mut lane = region.lock(LaneId(0));
        for at in (round * 64..200_000).step_by(4_160) {
            lane.write(at, &[round as u8 + 1; 400]).unwrap();
        }
        drop(lane);
        if round % 2 == 0 { region.checkpoint().unwrap() } else { region.commit_group().unwrap() }
    }
    assert!(region.stats().compressed_frames > 2);
    device.snapshot_durable()
});

fn config() -> Config {
    Config {
        segment_bytes: Some(64 << 10),
        reserved_bytes: Some(1 << 20),
        lanes: Some(1),
        thread: false,
        checkpoint_every: None,
        compression: Compression::Lz4,
        ..Config::new(1 << 20, 512 << 10)
    }
}

/// The input is a list of patches, each with two or three bytes of place and one of value. The
/// first byte says whether checksums are made right again, so that later checks are reached.
pub fn check(input: &[u8]) {
    let Some((mode, patches)) = input.split_first() else { return };
    let mut image = IMAGE.clone();
    for patch in patches.chunks_exact(4) {
        let place = u32::from_le_bytes([patch[0], patch[1], patch[2], 0]) as usize;
        // Most structures lie at the beginning.
        let span = if mode & 2 == 0 { image.len() } else { 16 << 10 };
        image[place % span] = patch[3];
    }
    if mode & 1 == 1 {
        repair_checksums(&mut image);
    }
    let device = SimDevice::new(image.len() as u64, 2);
    let mut aligned = BlockBuf::zeroed(image.len());
    aligned.copy_from_slice(&image);
    device.write_at(0, &aligned).unwrap();
    let _ = Region::open(Arc::new(device), Arc::new(SimClock::new(2)), config());
}
