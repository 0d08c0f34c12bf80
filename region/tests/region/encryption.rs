//! A region whose image is encrypted: it keeps the same promises, shows nothing of the data, and
//! finds what somebody has changed though every checksum is right.

use std::sync::Arc;

use crate::compression::{device_of, write_one, write_some};
use crate::support::lanes::{self, LANES, REGION_BYTES, memory, owned, write};
use perdura_image::format::{FRAME_AES, FRAME_MAGIC, Layout};
use perdura_image::fuzzing::repair_checksums;
use perdura_media::sim::SimDevice;
use perdura_media::{Clock, FaultPlan, FaultyDevice, SimClock};
use perdura_region::{
    Attachment, Compression, Config, FlushOptions, ImageError, Key, OpenError, Region, Unreadable,
    change_key,
};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const BOTH: [Compression; 2] = [Compression::Off, Compression::Lz4];

fn key() -> Key {
    Key::new([7; 32])
}

fn config(compression: Compression) -> Config {
    Config {
        segment_bytes: Some(256 << 10),
        reserved_bytes: Some(REGION_BYTES),
        lanes: Some(LANES as u16),
        thread: false,
        checkpoint_every: None,
        compression,
        key: Some(key()),
        ..Config::new(REGION_BYTES, 1 << 20)
    }
}

fn open(device: &SimDevice, compression: Compression) -> Region {
    lanes::open(device, config(compression))
}

fn image(seed: u64, compression: Compression) -> (SimDevice, Vec<u8>) {
    let (device, mut random) = (SimDevice::new(0, seed), Random::seed_from_u64(seed));
    let mut model = vec![0; REGION_BYTES as usize];
    let region = open(&device, compression);
    assert!(write_some(&region, &mut model, &mut random, 1_500));
    region.checkpoint().unwrap();
    region.close(2).unwrap();
    (device, model)
}

/// The offsets of frames, and whether each is encrypted.
fn frames(image: &[u8], device: &SimDevice) -> Vec<(usize, bool)> {
    let region = open(&device.power_cycle(0), Compression::Off);
    let first = Layout::of(region.geometry()).segment_at(0) as usize;
    let is_frame = |at: &usize| image[*at..*at + 4] == FRAME_MAGIC.to_le_bytes();
    let is_encrypted = |at: usize| image[at + 6] & FRAME_AES as u8 != 0;
    let frames = (first..image.len()).step_by(4096).filter(is_frame);
    frames.map(|at| (at, is_encrypted(at))).collect()
}

#[test]
fn what_is_encrypted_comes_back_and_lies_nowhere_in_the_clear() {
    for (seed, compression) in (0..6).zip(BOTH.into_iter().cycle()) {
        let (device, mut random) = (SimDevice::new(0, seed), Random::seed_from_u64(seed));
        let mut model = vec![0; REGION_BYTES as usize];
        let region = open(&device, compression);
        let secret: [u8; 64] = random.random();
        for block in 0..20 {
            assert!(write_some(&region, &mut model, &mut random, 60));
            write(&region, block << 16, &secret).unwrap();
            model[(block as usize) << 16..][..64].copy_from_slice(&secret);
        }
        region.close(2).unwrap();
        let bytes = device.snapshot();
        for piece in secret.chunks(16) {
            assert!(!bytes.windows(16).any(|found| found == piece), "seed {seed}");
        }
        let frames = frames(&bytes, &device);
        assert!(frames.len() > 10 && frames.iter().all(|frame| frame.1), "{frames:?}");
        // Loaded at once, block by block, and by a region that compresses or does not.
        for (defer_load, compression) in [(false, BOTH[0]), (true, BOTH[1])] {
            let config = Config { defer_load, ..config(compression) };
            let region = lanes::open(&device.power_cycle(0), config);
            assert!(memory(&region) == model, "seed {seed}");
        }
    }
}

#[test]
fn every_power_cut_leaves_a_committed_state() {
    let mut cut = 1;
    loop {
        let (device, mut random) = (SimDevice::new(0, cut), Random::seed_from_u64(8));
        let compression = BOTH[(cut / 2 % 2) as usize];
        let mut now = vec![0; REGION_BYTES as usize];
        let region = open(&device, compression);
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
        let found = memory(&open(&device.power_cycle(cut), compression));
        assert!(allowed.contains(&found), "cut {cut}");
        if closed {
            break;
        }
        cut += 2;
    }
    assert!(cut > 20, "only {cut} durable operations");
}

/// The holder has no key but the one in the ledger.
#[test]
fn who_is_killed_with_encrypted_frames_on_their_way_loses_nothing() {
    let mut redone = 0;
    for nth in 1..24 {
        let (device, mut random) = (SimDevice::new(0, nth), Random::seed_from_u64(nth));
        let (faults, clock) = (Arc::new(FaultPlan::new()), Arc::new(SimClock::new(1_000)));
        let faulty = FaultyDevice::new(Arc::new(device.clone()), faults.clone(), clock.clone());
        let compression = BOTH[(nth / 2 % 2) as usize];
        let mut model = vec![0; REGION_BYTES as usize];
        let opened = Region::open(Arc::new(faulty), clock.clone(), config(compression));
        let region = owned(opened.unwrap());
        assert!(write_some(&region, &mut model, &mut random, 200));
        match nth % 2 {
            0 => faults.fail_write(nth / 2),
            _ => faults.fail_flush(nth / 4 + 1),
        }
        let mut last = model.clone();
        while write_some(&region, &mut last, &mut random, 1) {
            model.copy_from_slice(&last);
        }
        model.copy_from_slice(&last);
        let (memory_fd, ledger_fd) = region.fds();
        let [m, l] = [memory_fd, ledger_fd].map(|fd| fd.try_clone_to_owned().unwrap());
        drop(region);
        if nth % 3 == 0 {
            let holder = Attachment::new(m, l).unwrap();
            let options = FlushOptions { threads: 2, unix_ms: clock.unix_ms() };
            redone += holder.flush(&device, options).unwrap().redone_bytes;
        } else {
            let (device, clock) = (Arc::new(device.clone()), Arc::new(SimClock::new(1_000)));
            let region = Region::attach(m, l, device, clock, config(compression));
            let region = owned(region.unwrap());
            assert!(memory(&region) == model, "attached, {nth}");
            assert!(write_some(&region, &mut model, &mut random, 20));
            region.close(1).unwrap();
        }
        let device = device.power_cycle(nth);
        assert!(memory(&open(&device, compression)) == model, "{nth}");
        let bytes = device.snapshot();
        assert!(frames(&bytes, &device).iter().all(|frame| frame.1), "{nth}");
    }
    assert!(redone > 0, "no frame was on its way");
}

#[test]
fn without_its_key_an_image_is_refused_at_rest_and_in_memory_and_left_as_it_is() {
    let (device, model) = image(1, Compression::Off);
    let before = device.snapshot();
    let with = |key: Option<Key>| Config { key, ..config(Compression::Off) };
    let opened = |key| {
        let clock = Arc::new(SimClock::new(1_000));
        Region::open(Arc::new(device.clone()), clock, with(key)).map(drop)
    };
    let is_refused = |found: Result<(), OpenError>, with_key: bool| match found {
        Err(OpenError::Image(ImageError::Encrypted { .. })) => assert!(!with_key),
        Err(OpenError::Image(ImageError::WrongKey)) => assert!(with_key),
        other => panic!("{other:?}"),
    };
    let other = Key::new([8; 32]);
    is_refused(opened(None), false);
    is_refused(opened(Some(other.clone())), true);
    assert!(device.snapshot() == before);
    // The memory that a holder keeps is as safe as the image.
    let region = open(&device, Compression::Off);
    let (memory_fd, ledger_fd) = region.fds();
    let fds = || [&memory_fd, &ledger_fd].map(|fd| fd.try_clone_to_owned().unwrap());
    for (key, with_key) in [(None, false), (Some(other.clone()), true)] {
        let ([m, l], clock) = (fds(), Arc::new(SimClock::new(1_000)));
        let found = Region::attach(m, l, Arc::new(device.clone()), clock, with(key));
        is_refused(found.map(drop), with_key);
    }
    drop(region);
    change_key(&device, &key(), &other).unwrap();
    is_refused(opened(Some(key())), true);
    assert!(memory(&lanes::open(&device, with(Some(other)))) == model);
    // An image that is not encrypted does not become so by a key.
    let plain = SimDevice::new(0, 1);
    drop(lanes::open(&plain, with(None)));
    let clock = Arc::new(SimClock::new(1_000));
    match Region::open(Arc::new(plain), clock, with(Some(key()))) {
        Err(OpenError::Image(ImageError::NotEncrypted { .. })) => {}
        other => panic!("{:?}", other.map(drop)),
    }
}

/// Half a change of keys leaves a copy of the superblock with each key. Whoever opens the image, or
/// goes on with its memory, leaves two with the key by which it was opened.
#[test]
fn an_open_after_half_a_change_of_keys_leaves_no_copy_with_the_other_key() {
    let other = Key::new([8; 32]);
    for is_attached in [false, true] {
        let (device, model) = image(7, Compression::Off);
        let held = is_attached.then(|| {
            let region = open(&device, Compression::Off);
            let (memory_fd, ledger_fd) = region.fds();
            [memory_fd, ledger_fd].map(|fd| fd.try_clone_to_owned().unwrap())
        });
        // The second copy is on the device, the first not yet.
        device.cut_after(device.ops() + 2);
        change_key(&device, &key(), &other).unwrap_err();
        let device = device.power_cycle(1);
        let mut bytes = device.snapshot();
        assert!(bytes[..4096] != bytes[4096..8192]);
        let region = match held {
            None => open(&device, Compression::Off),
            Some([m, l]) => {
                let (device, clock) = (Arc::new(device.clone()), Arc::new(SimClock::new(1_000)));
                let region = Region::attach(m, l, device, clock, config(Compression::Off));
                owned(region.unwrap())
            }
        };
        assert!(memory(&region) == model, "attached: {is_attached}");
        region.close(1).unwrap();
        bytes = device.snapshot();
        assert!(bytes[..4096] == bytes[4096..8192], "attached: {is_attached}");
        assert!(memory(&open(&device, Compression::Off)) == model, "attached: {is_attached}");
    }
}

/// Opens an image and reads all of it. Returns why that was refused, if it was.
fn meet(image: &[u8], defer_load: bool) -> Result<Vec<u8>, Arc<OpenError>> {
    let (device, clock) = (device_of(image), Arc::new(SimClock::new(1_000)));
    let config = Config { defer_load, ..config(Compression::Lz4) };
    let region = owned(Region::open(Arc::new(device), clock, config)?);
    Unreadable::catch(|| memory(&region)).map_err(|error| error.source)
}

#[test]
fn a_changed_byte_of_a_frame_is_found_though_every_checksum_is_right() {
    for (seed, compression) in [(3, Compression::Off), (4, Compression::Lz4)] {
        let (device, model) = image(seed, compression);
        let good = device.snapshot();
        let frames = frames(&good, &device);
        let (mut pages, mut tables, mut random) = (0, 0, Random::seed_from_u64(seed));
        for round in 0..4 * frames.len().min(40) {
            let (frame, _) = frames[round % frames.len()];
            let u32_at = |at: usize| u32::from_le_bytes(good[at..at + 4].try_into().unwrap());
            let (payload, extents) = (u32_at(frame + 32) as usize, u32_at(frame + 36) as usize);
            let tail = frame + 64 + payload;
            let mut image = good.clone();
            match round % 4 {
                0 => image[frame + 64 + random.random_range(0..payload)] ^= 4,
                // An extent that lies elsewhere.
                1 => image[tail + 8 * random.random_range(0..extents) + 3] ^= 1,
                // A tag.
                2 => image[tail + 8 * extents + 5] ^= 1,
                // The frame's number of incarnation, by which its key is derived.
                _ => image[frame + 44] ^= 1,
            }
            if round % 4 > 0 {
                repair(&mut image, frame, payload, extents);
            }
            match meet(&image, round % 8 < 4) {
                Ok(found) => assert!(found == model, "seed {seed}, round {round}"),
                Err(error) => match &*error {
                    OpenError::Image(ImageError::ForgedPage { .. }) => pages += 1,
                    OpenError::Image(ImageError::Forged { .. }) => tables += 1,
                    other => panic!("seed {seed}, round {round}: {other}"),
                },
            }
        }
        assert!(pages > 3 && tables > 10, "{pages} pages, {tables} tables");
    }
}

/// Makes header and tail of a frame agree with their checksums, as an attacker would.
fn repair(image: &mut [u8], frame: usize, payload: usize, extents: usize) {
    use perdura_image::format::checksum;
    let u32_at = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize;
    let is_compressed = image[frame + 6] & 2 != 0;
    let lengths = if is_compressed { u32_at(frame + 28).div_ceil(64 << 10) * 4 } else { 0 };
    let tail = frame + 64 + payload;
    let end = tail + 8 * extents + payload.div_ceil(4096) * 16 + lengths + 32;
    let sum = checksum(&image[tail..end]).to_le_bytes();
    image[frame + 48..frame + 56].copy_from_slice(&sum);
    let sum = checksum(&image[frame..frame + 56]).to_le_bytes();
    image[frame + 56..frame + 64].copy_from_slice(&sum);
}

#[test]
fn a_frame_that_is_not_encrypted_is_not_taken_into_an_encrypted_image() {
    let (device, _) = image(5, Compression::Off);
    let mut bytes = device.snapshot();
    for (frame, _) in frames(&bytes, &device) {
        bytes[frame + 6] &= !(FRAME_AES as u8);
    }
    // Every checksum is that of the bytes as they are.
    repair_checksums(&mut bytes);
    match meet(&bytes, false) {
        Err(error) => match &*error {
            OpenError::Image(ImageError::NotEncrypted { .. }) => {}
            other => panic!("{other}"),
        },
        Ok(_) => panic!("it was opened"),
    }
}

#[test]
fn a_commit_that_leaves_a_segment_out_is_found_though_every_checksum_is_right() {
    let (device, _) = image(6, Compression::Off);
    let good = device.snapshot();
    let region = open(&device.power_cycle(0), Compression::Off);
    let layout = Layout::of(region.geometry());
    let u32_at = |at: usize| u32::from_le_bytes(good[at..at + 4].try_into().unwrap());
    let slots: Vec<_> =
        [0, 1].into_iter().flat_map(|turn| [0, 1].map(|copy| layout.slot_at(turn, copy))).collect();
    let first = slots[0] as usize;
    let segments = u32_at(first + 48) as usize;
    let used: Vec<_> = (0..segments).filter(|n| u32_at(first + 128 + n * 16 + 8) > 0).collect();
    assert!(used.len() > 3, "{used:?}");
    for segment in used {
        let mut bytes = good.clone();
        for slot in &slots {
            let entry = *slot as usize + 128 + segment * 16;
            bytes[entry..entry + 12].fill(0);
        }
        repair_checksums(&mut bytes);
        match meet(&bytes, false) {
            Err(error) => match &*error {
                OpenError::Image(ImageError::Forged { what: "commit slot", .. }) => {}
                other => panic!("{other}"),
            },
            Ok(_) => panic!("older states of some grains were taken for the newest"),
        }
    }
}
