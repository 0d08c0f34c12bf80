//! Kinds of memory in every mode: compared with an oracle, on the budget's account, in the image,
//! in a holder, and refused changes of kind.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::*;
use perdura_media::file::{Direct, Engine, FileDevice, OpenMode};
use perdura_media::sim::SimDevice;
use perdura_media::{Device, RealClock};
use perdura_region::{
    Attachment, BLOCK_BYTES, Config, FlushOptions, Kind, LaneId, Planted, Region, RegionError,
    TrackingKind, TrapKind,
};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const BLOCKS: u64 = REGION_BYTES / BLOCK_BYTES;

/// Every mode of this machine: barrier mode, and the trap modes that the kernel allows.
fn trackings() -> Vec<TrackingKind> {
    let traps = modes().into_iter().map(TrackingKind::Trap);
    traps.chain([TrackingKind::Barrier]).collect()
}

fn config_of(tracking: TrackingKind) -> Config {
    // The log is so large that only the test makes checkpoints.
    Config { tracking, log_percent: 400, lanes: Some(1), ..config(TrapKind::Auto) }
}

/// Stores bytes as the mode needs it: directly, or announced.
fn put(region: &Region, offset: u64, bytes: &[u8]) {
    if let Some(memory) = region.trapped() {
        return memory.write(offset, bytes);
    }
    let mut credit = 0;
    loop {
        let need = match region.lock_with(LaneId(0), credit).write(offset, bytes) {
            Ok(()) => return,
            Err(need) => need,
        };
        credit = region.satisfy(need).unwrap();
    }
}

fn get(region: &Region, offset: u64, out: &mut [u8]) {
    match region.trapped() {
        Some(memory) => memory.read(offset, out),
        None => out.copy_from_slice(region.lock(LaneId(0)).bytes(offset, out.len())),
    }
}

/// All of memory, read block by block, because a lane gives out no longer ranges.
fn all(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; REGION_BYTES as usize];
    for (block, bytes) in bytes.chunks_mut(BLOCK_BYTES as usize).enumerate() {
        get(region, block as u64 * BLOCK_BYTES, bytes);
    }
    bytes
}

fn block_of(bytes: &mut [u8], block: u64) -> &mut [u8] {
    &mut bytes[(block * BLOCK_BYTES) as usize..][..BLOCK_BYTES as usize]
}

fn attach(fds: (OwnedFd, OwnedFd), device: &SimDevice, config: Config) -> Region {
    let device = Arc::new(device.clone());
    Region::attach(fds.0, fds.1, device, Arc::new(RealClock), config).unwrap()
}

fn options() -> FlushOptions {
    FlushOptions { threads: 1, unix_ms: 7 }
}

/// The bytes that a region must hold now and after an unwarned loss, and the kinds of its blocks.
struct Model {
    now: Vec<u8>,
    kinds: Vec<Kind>,
    durable: Vec<u8>,
}

impl Model {
    fn new() -> Self {
        let zeros = vec![0; REGION_BYTES as usize];
        Self { now: zeros.clone(), kinds: vec![Kind::Persistent; BLOCKS as usize], durable: zeros }
    }

    fn set_kind(&mut self, blocks: std::ops::Range<u64>, kind: Kind) {
        for block in blocks {
            if std::mem::replace(&mut self.kinds[block as usize], kind) != kind {
                block_of(&mut self.now, block).fill(0);
            }
        }
    }

    /// A restart: capacity blocks become persistent, and empty.
    fn restart(&mut self) {
        self.set_kind(0..BLOCKS, Kind::Persistent);
    }

    fn commit(&mut self) {
        self.durable.copy_from_slice(&self.now);
        for block in 0..BLOCKS {
            if self.kinds[block as usize] == Kind::Capacity {
                block_of(&mut self.durable, block).fill(0);
            }
        }
    }

    fn compare(&self, region: &Region, what: &str) -> Result<(), String> {
        let found = all(region);
        for block in 0..BLOCKS {
            let at = (block * BLOCK_BYTES) as usize..((block + 1) * BLOCK_BYTES) as usize;
            let kind = self.kinds[block as usize];
            if region.kind(block) != kind {
                return Err(format!("{what}: block {block} is {}, not {kind}", region.kind(block)));
            }
            if let Some(byte) = at.clone().find(|byte| found[*byte] != self.now[*byte]) {
                let (found, expected) = (found[byte], self.now[byte]);
                return Err(format!(
                    "{what}: byte {byte} of {kind} block {block} is {found}, not {expected}"
                ));
            }
        }
        Ok(())
    }
}

/// Makes stores, changes of kind, checkpoints and restarts of every sort in random order.
fn run(tracking: TrackingKind, seed: u64, steps: u32, planted: Planted) -> Result<(), String> {
    let config = || Config { planted, ..config_of(tracking) };
    let mut random = Random::seed_from_u64(seed);
    let mut device = SimDevice::new(0, seed);
    let mut region = open(&device, config());
    let mut model = Model::new();
    for step in 0..steps {
        let at = format!("{tracking:?}, seed {seed}, step {step}");
        match random.random_range(0..100) {
            0..70 => {
                let offset = random.random_range(0..REGION_BYTES / 8) * 8;
                let room = BLOCK_BYTES - offset % BLOCK_BYTES;
                let mut bytes = vec![0; (random.random_range(1..9_000u64)).min(room) as usize];
                random.fill(&mut bytes[..]);
                put(&region, offset, &bytes);
                model.now[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            70..88 => {
                let first = random.random_range(0..BLOCKS);
                let end = BLOCKS.min(first + random.random_range(1..5));
                let kind = [Kind::Persistent, Kind::Capacity][random.random_range(0..2)];
                region.set_kind(first..end, kind).map_err(|why| format!("{at}: {why}"))?;
                model.set_kind(first..end, kind);
            }
            88..94 => {
                region.checkpoint().unwrap();
                model.commit();
            }
            94 => model.compare(&region, &at)?,
            95 => {
                // A loss without a warning.
                assert!(region.stats().checkpoints < 100, "{at}: more checkpoints than asked for");
                drop(region);
                device = device.power_cycle(seed + u64::from(step));
                region = open(&device, config());
                model.restart();
                model.now.copy_from_slice(&model.durable);
                model.compare(&region, &format!("{at}, opened after an unwarned loss"))?;
            }
            96 => {
                region.close(2).unwrap();
                drop(region);
                device = device.power_cycle(seed + u64::from(step));
                region = open(&device, config());
                model.restart();
                model.commit();
                model.compare(&region, &format!("{at}, opened after a flush"))?;
            }
            97 => {
                let (memory, ledger) = kill(region);
                let holder = Attachment::new(memory, ledger).unwrap();
                holder.flush(&device, options()).unwrap();
                device = device.power_cycle(seed + u64::from(step));
                region = open(&device, config());
                model.restart();
                model.commit();
                model.compare(&region, &format!("{at}, opened after a holder's flush"))?;
            }
            _ => {
                let fds = kill(region);
                region = attach(fds, &device, config());
                model.restart();
                model.compare(&region, &format!("{at}, attached"))?;
            }
        }
        if region.used_bytes_max() > BUDGET_BYTES {
            return Err(format!("{at}: {} B used", region.used_bytes_max()));
        }
    }
    model.compare(&region, "at the end")
}

#[test]
fn stores_kinds_and_restarts_are_as_the_oracle_says() {
    for tracking in trackings() {
        for seed in 0..6 {
            run(tracking, seed, 300, Planted::None).unwrap();
        }
    }
}

#[test]
fn capacity_memory_that_is_not_emptied_when_it_is_attached_is_caught() {
    for tracking in trackings() {
        let caught = (0..6).find_map(|seed| run(tracking, seed, 300, Planted::KeepCapacity).err());
        let why = caught.unwrap_or_else(|| panic!("{tracking:?}: nothing was caught"));
        assert!(why.contains("attached"), "{why}");
    }
}

#[test]
fn capacity_memory_costs_no_budget_and_no_bytes_on_the_device() {
    for tracking in trackings() {
        let region = open(&SimDevice::new(0, 1), config_of(tracking));
        let blocks = |range: std::ops::Range<u64>, byte| {
            range.for_each(|block| put(&region, block * BLOCK_BYTES, &[byte; 20_000]));
        };
        blocks(0..3, 1);
        let charged = region.used_bytes();
        assert!(charged >= 60_000, "{tracking:?}: {charged}");
        region.set_kind(1..3, Kind::Capacity).unwrap();
        // Lanes keep a little credit, which counts as used.
        let left = region.used_bytes();
        assert!(left <= 20_480 + 8_192, "{tracking:?}: {left} B of {charged} B are still charged");
        let before = region.stats();
        for round in 0..50 {
            blocks(1..3, round);
            put(&region, 2 * BLOCK_BYTES - 8, &[round; 8]);
        }
        region.checkpoint().unwrap();
        let after = region.stats();
        assert_eq!(after.dirtied_bytes, before.dirtied_bytes, "{tracking:?}");
        assert_eq!(after.faults, before.faults, "{tracking:?}");
        let drained = after.drained_bytes - before.drained_bytes;
        assert!((20_000..=20_480).contains(&drained), "{tracking:?}: {drained}");
        assert!(region.used_bytes() <= 8_192, "{tracking:?}");
        // The image has no copies of these blocks, so no zeros need be written.
        let before = region.stats();
        let used = region.used_bytes();
        region.set_kind(1..3, Kind::Persistent).unwrap();
        region.set_kind(10..20, Kind::Capacity).unwrap();
        assert_eq!((region.stats().device_bytes, region.used_bytes()), (before.device_bytes, used));
        put(&region, 2 * BLOCK_BYTES, &[9; 4096]);
        assert_eq!(region.stats().dirtied_bytes - before.dirtied_bytes, 4096, "{tracking:?}");
    }
}

#[test]
fn what_the_image_had_of_a_block_does_not_come_back() {
    for tracking in trackings() {
        let device = SimDevice::new(0, 1);
        let region = open(&device, config_of(tracking));
        // The image gets two copies of each block, an older one and a newer one.
        for byte in [1, 2] {
            (0..4).for_each(|block| put(&region, block * BLOCK_BYTES, &[byte; 65_536]));
            region.checkpoint().unwrap();
        }
        let before = region.used_bytes();
        region.set_kind(0..2, Kind::Capacity).unwrap();
        assert_eq!(region.used_bytes(), before, "{tracking:?}");
        drop(region);
        let device = device.power_cycle(1);
        let region = open(&device, config_of(tracking));
        assert_eq!(all(&region)[0], 2, "{tracking:?}: before a checkpoint it is as of the last");
        region.set_kind(0..2, Kind::Capacity).unwrap();
        put(&region, 0, &[7; 65_536]);
        region.checkpoint().unwrap();
        drop(region);
        let device = device.power_cycle(2);
        let region = open(&device, config_of(tracking));
        assert_eq!(all(&region)[0], 0, "{tracking:?}");
        region.set_kind(0..2, Kind::Capacity).unwrap();
        let before = region.used_bytes();
        region.set_kind(0..1, Kind::Persistent).unwrap();
        assert_eq!(region.used_bytes(), before, "{tracking:?}: it begins clean");
        put(&region, 8192, &[3; 8]);
        region.close(1).unwrap();
        drop(region);
        let found = all(&open(&device.power_cycle(3), config_of(tracking)));
        let is_zero = |range: std::ops::Range<usize>| found[range].iter().all(|byte| *byte == 0);
        assert!(is_zero(0..8192) && is_zero(8200..2 * 65_536), "{tracking:?}");
        assert_eq!((found[8192], found[2 * 65_536]), (3, 2), "{tracking:?}");
    }
}

/// No byte of capacity memory reaches the device under load of every sort: cleaning, checkpoints,
/// compaction in a small log, growth, a drill and a flush.
#[test]
fn no_byte_of_capacity_memory_is_ever_on_the_device() {
    const PATTERN: [u8; 16] = *b"capacity bytes!!";
    for (index, tracking) in trackings().into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let mode = OpenMode::Create { capacity_bytes: 1 << 20 };
        let device = FileDevice::open(&path, mode, Engine::Auto, Direct::Auto).unwrap();
        let tight = Config {
            log_percent: 125,
            reserved_bytes: Some(2 * REGION_BYTES),
            ..config_of(tracking)
        };
        let region = open(&device, tight);
        let mut random = Random::seed_from_u64(index as u64);
        // Blocks that become capacity memory have copies in the image.
        (0..BLOCKS).for_each(|block| put(&region, block * BLOCK_BYTES, &[1; 65_536]));
        for block in 0..BLOCKS / 4 {
            region.set_kind(block..block + 1, Kind::Capacity).unwrap();
            // Data that are soon overwritten lie beside the zeros in the log, so compaction has to
            // move the zeros.
            put(&region, (BLOCKS / 4 + block) * BLOCK_BYTES, &[1; 65_536]);
            region.checkpoint().unwrap();
        }
        region.grow(2 * REGION_BYTES).unwrap();
        region.set_kind(BLOCKS + 3..BLOCKS + 9, Kind::Capacity).unwrap();
        let capacity: Vec<u64> = (0..BLOCKS / 4).chain(BLOCKS + 3..BLOCKS + 9).collect();
        for round in 0..20u64 {
            for block in &capacity {
                put(&region, block * BLOCK_BYTES, &PATTERN.repeat(4096));
            }
            for _ in 0..300 {
                let page = random.random_range(BLOCKS / 4 * 16..BLOCKS * 16);
                put(&region, page * PAGE, &[round as u8 + 2; 4096]);
            }
            if round % 5 == 4 {
                region.checkpoint().unwrap();
            }
        }
        if tracking == TrackingKind::Barrier {
            region.drill(true, 1).unwrap();
        }
        let stats = region.stats();
        assert!(stats.compacted_bytes > 0 && stats.cleaned_bytes > 0, "{tracking:?}: {stats:?}");
        region.close(2).unwrap();
        drop(region);
        let image = std::fs::read(&path).unwrap();
        let found = image.chunks_exact(16).position(|chunk| chunk == PATTERN);
        assert_eq!(found, None, "{tracking:?}: on the device at multiple of 16");
        let region = open(&device, config_of(tracking));
        for block in capacity {
            let mut bytes = vec![1; 65_536];
            get(&region, block * BLOCK_BYTES, &mut bytes);
            assert!(bytes.iter().all(|byte| *byte == 0), "{tracking:?}: block {block}");
        }
    }
}

#[test]
fn a_full_budget_is_kept_while_kinds_change() {
    for tracking in trackings() {
        let device = SimDevice::new(0, 1);
        let config = Config { budget_bytes: 128 << 10, ..config_of(tracking) };
        let region = open(&device, config);
        (0..BLOCKS).for_each(|block| put(&region, block * BLOCK_BYTES, &[1; 65_536]));
        for block in (0..BLOCKS).step_by(2) {
            // The whole budget is dirty, in this block and in others, and each clean page of the
            // block must be paid for.
            (0..32).for_each(|page| put(&region, BLOCK_BYTES * 33 + page % 16 * PAGE, &[2; 4096]));
            put(&region, block * BLOCK_BYTES + 8192, &[3; 8192]);
            region.set_kind(block..block + 1, Kind::Capacity).unwrap();
            assert!(region.used_bytes_max() <= 128 << 10, "{tracking:?}: block {block}");
        }
        region.checkpoint().unwrap();
        assert!(region.used_bytes() <= 8192, "{tracking:?}: {}", region.used_bytes());
    }
}

#[test]
fn kinds_change_beside_writers_and_checkpoints() {
    for kind in modes() {
        let device = SimDevice::new(0, 3);
        let region = open(&device, config(kind));
        let done = AtomicBool::new(false);
        let base = region.trapped().unwrap().as_ptr() as usize;
        std::thread::scope(|scope| {
            // One writer uses the first half, another one the capacity blocks between those that
            // change.
            let writers = [0, 1].map(|thread| {
                let region = &region;
                scope.spawn(move || {
                    let mut random = Random::seed_from_u64(thread);
                    for _ in 0..20_000 {
                        let offset = random.random_range(0..REGION_BYTES / 16) * 8;
                        store(base, offset, random.random::<u64>() | 1);
                    }
                    assert!(region.used_bytes_max() <= BUDGET_BYTES);
                })
            });
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    region.checkpoint().unwrap();
                }
            });
            let mut random = Random::seed_from_u64(9);
            let mut round = 0u64;
            while !writers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                let block = random.random_range(BLOCKS / 2..BLOCKS);
                let offset = block * BLOCK_BYTES + random.random_range(0..8192) * 8;
                assert_eq!(load(base, offset), 0, "{kind:?}: a block that was not emptied");
                region.set_kind(block..block + 1, Kind::Capacity).unwrap();
                store(base, offset, 1);
                if round.is_multiple_of(2) {
                    region.set_kind(block..block + 1, Kind::Persistent).unwrap();
                    assert_eq!(load(base, offset), 0, "{kind:?}");
                    // The image gets copies of the block, so that zeros must be written.
                    store(base, offset, 2);
                    region.set_kind(block..block + 1, Kind::Capacity).unwrap();
                }
                region.set_kind(block..block + 1, Kind::Persistent).unwrap();
                round += 1;
            }
            done.store(true, Ordering::Relaxed);
            assert!(round > 5, "{kind:?}: {round} changes");
        });
        let fds = kill(region);
        let copy = Arc::new(device.power_cycle(3));
        prove(&fds, copy, config(kind), BUDGET_BYTES)
            .unwrap_or_else(|why| panic!("{kind:?}: {why}"));
    }
}

#[test]
fn a_prepared_write_of_capacity_memory_costs_nothing_and_is_waited_for() {
    for kind in modes() {
        let region = open(&SimDevice::new(0, 1), config(kind));
        region.set_kind(0..16, Kind::Capacity).unwrap();
        let memory = region.trapped().unwrap();
        // The blocks have more bytes than the budget.
        let prepared = memory.prepare_write(0..16 * BLOCK_BYTES).unwrap();
        assert_eq!(region.used_bytes(), 0, "{kind:?}");
        let changed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let change = scope.spawn(|| {
                region.set_kind(3..4, Kind::Persistent).unwrap();
                changed.store(true, Ordering::SeqCst);
            });
            // A transfer is under way, in which the kernel stores to the page.
            let mut pipe = std::io::pipe().unwrap();
            std::io::Write::write_all(&mut pipe.1, &[5; 4096]).unwrap();
            // SAFETY: the range is inside the region, which lives; nobody reads it meanwhile.
            let place =
                unsafe { std::slice::from_raw_parts_mut(memory.as_ptr().add(3 * 65_536), 4096) };
            std::io::Read::read_exact(&mut pipe.0, place).unwrap();
            assert!(!changed.load(Ordering::SeqCst), "{kind:?}");
            drop(prepared);
            change.join().unwrap();
        });
        assert_eq!(load(memory.as_ptr() as usize, 3 * BLOCK_BYTES), 0, "{kind:?}");
        assert_eq!(region.used_bytes(), 0, "{kind:?}");
        let prepared = memory.prepare_write(2 * BLOCK_BYTES..4 * BLOCK_BYTES).unwrap();
        assert_eq!(region.used_bytes(), BLOCK_BYTES, "{kind:?}");
        drop(prepared);
    }
}

#[test]
fn what_is_refused_says_why() {
    for tracking in trackings() {
        let region = open(&SimDevice::new(0, 1), config_of(tracking));
        let beyond = region.set_kind(BLOCKS - 1..BLOCKS + 1, Kind::Capacity);
        assert!(
            matches!(beyond, Err(RegionError::Blocks { region_blocks: BLOCKS, .. })),
            "{beyond:?}"
        );
        assert_eq!(region.kind(BLOCKS - 1), Kind::Persistent);
        let bound = region.bind_capacity(0..1, 0);
        assert!(matches!(bound, Err(RegionError::NotCapacity { block: 0 })), "{bound:?}");
        region.set_kind(0..4, Kind::Capacity).unwrap();
        for node in [1_000, u32::MAX] {
            let bound = region.bind_capacity(0..1, node);
            assert!(
                matches!(bound, Err(RegionError::NoNode { .. } | RegionError::Binding { .. })),
                "{bound:?}"
            );
            let said = bound.unwrap_err().to_string();
            assert!(said.contains(&node.to_string()), "{said}");
        }
        put(&region, BLOCK_BYTES, &[1; 4096]);
        region.close(1).unwrap();
        let closed = region.set_kind(9..10, Kind::Capacity);
        assert!(matches!(closed, Err(RegionError::Closed)), "{closed:?}");
    }
}

/// The kernel's figures about the memory of this process's regions.
fn is_bound() -> bool {
    let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
    maps.lines().any(|line| line.contains("perdura-region") && line.contains(" bind:0 "))
}

#[test]
fn a_binding_ends_with_the_kind_and_with_the_process() {
    for tracking in trackings() {
        let device = SimDevice::new(0, 1);
        let region = open(&device, config_of(tracking));
        region.set_kind(0..4, Kind::Capacity).unwrap();
        put(&region, BLOCK_BYTES, &[1; 4096]);
        match region.bind_capacity(0..3, 0) {
            Ok(()) => {}
            Err(RegionError::Binding { source, .. }) => {
                eprintln!("skipped: binding: {source}");
                return;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(is_bound(), "{tracking:?}");
        put(&region, 0, &[1; 65_536]);
        region.set_kind(0..4, Kind::Persistent).unwrap();
        assert!(!is_bound(), "{tracking:?}");
        put(&region, 0, &[2; 65_536]);
        region.set_kind(0..4, Kind::Capacity).unwrap();
        assert!(!is_bound(), "{tracking:?}");
        region.bind_capacity(0..4, 0).unwrap();
        let region = attach(kill(region), &device, config_of(tracking));
        assert!(!is_bound(), "{tracking:?}");
        assert!(all(&region).iter().all(|byte| *byte == 0), "{tracking:?}");
    }
}

#[test]
fn with_mprotect_so_many_stretches_that_the_mapping_cannot_be_split_are_refused() {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let stretches = limit.trim().parse::<u64>().unwrap() / 4;
    if stretches > 40_000 {
        eprintln!("skipped: vm.max_map_count is {limit}: the region would be too large");
        return;
    }
    let region_bytes = 2 * (stretches + 2) * BLOCK_BYTES;
    let config = Config {
        region_bytes,
        reserved_bytes: Some(region_bytes),
        segment_bytes: None,
        ..config(TrapKind::Mprotect)
    };
    let region = open(&SimDevice::new(0, 1), config);
    for stretch in 0..stretches {
        region.set_kind(stretch * 2..stretch * 2 + 1, Kind::Capacity).unwrap();
    }
    let next = 2 * stretches;
    let refused = region.set_kind(next..next + 1, Kind::Capacity);
    assert!(matches!(refused, Err(RegionError::KindRefused { .. })), "{refused:?}");
    // A change that joins two stretches makes their number smaller.
    region.set_kind(1..2, Kind::Capacity).unwrap();
    region.set_kind(next..next + 1, Kind::Capacity).unwrap();
    let base = region.trapped().unwrap().as_ptr() as usize;
    (0..stretches).for_each(|stretch| store(base, stretch * 2 * BLOCK_BYTES, 1));
    assert_eq!(region.used_bytes(), 0);
}

/// The region is shared by an `Arc`, as the heap owns it.
#[test]
fn a_shared_region_keeps_its_bytes_at_one_address() {
    fn is_shared<T: Send + Sync + 'static>(shared: T) -> T {
        shared
    }
    for kind in modes() {
        let device = SimDevice::new(0, 1);
        let config = Config { reserved_bytes: Some(2 * REGION_BYTES), ..config(kind) };
        let region = is_shared(Arc::new(open(&device, config)));
        region.set_kind(0..1, Kind::Capacity).unwrap();
        let base = region.trapped().unwrap().as_ptr() as usize;
        store(base, 0, 1);
        let threads = [1u64, 2].map(|thread| {
            let region = Arc::clone(&region);
            std::thread::spawn(move || {
                assert_eq!(region.trapped().unwrap().as_ptr() as usize, base);
                store(base, thread * BLOCK_BYTES, thread);
                // Each thread owns the region, and may drop it before the others.
                drop(region);
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        region.grow(2 * REGION_BYTES).unwrap();
        assert_eq!(region.trapped().unwrap().as_ptr() as usize, base);
        store(base, 2 * REGION_BYTES - 8, 7);
        assert_eq!([0, 1, 2].map(|block| load(base, block * BLOCK_BYTES)), [1, 1, 2]);
        let shared: Arc<dyn Device> = Arc::new(device);
        drop((region, shared));
    }
}
