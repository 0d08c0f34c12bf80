//! Checkpoints against copies kept by hand: what is restored is one whole checkpoint, wherever the
//! run was cut.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use perdura_heap::checkpoint::{Area, CheckpointError, Checkpointer, PageTracking};
use perdura_heap::{Config, Durability, Heap, HeapError, Memory, Tap};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const MIB: u64 = 1 << 20;
const PAGE: usize = 4096;
const LINE: u64 = 64;

fn bytes_of(area: &Area) -> Vec<u8> {
    // SAFETY: the area's length, and no thread of these tests writes meanwhile.
    unsafe { std::slice::from_raw_parts(area.base, area.len_bytes as usize) }.to_vec()
}

/// Writes here and there; now and then a page becomes all zeros.
fn scribble(area: &Area, random: &mut Random, writes: usize) {
    for _ in 0..writes {
        let at = random.random_range(0..area.len_bytes as usize - 16);
        // SAFETY: inside the area, which this test alone writes to.
        unsafe {
            match random.random_range(0..6) {
                0 => area.base.add(at / PAGE * PAGE).write_bytes(0, PAGE),
                _ => area.base.add(at).write_bytes(random.random(), random.random_range(1..16)),
            }
        }
    }
}

#[test]
fn what_is_restored_is_the_last_checkpoint() {
    for seed in 0..8 {
        let mut random = Random::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("heap");
        let open = || {
            let memory = Memory::file(&path, 8 * MIB, Durability::Flushed).unwrap();
            let heap = Arc::new(Heap::open(memory, Config::default()).unwrap());
            let checkpointer = Checkpointer::open(heap, "state").unwrap();
            let areas = [("a", 400_000), ("b", 70_000)]
                .map(|(name, bytes)| checkpointer.register(name, bytes).unwrap());
            if seed % 2 == 1 {
                checkpointer.compare_pages();
                assert_eq!(checkpointer.tracking(), PageTracking::Compared);
            }
            (checkpointer, areas)
        };
        let (mut checkpointer, mut areas) = open();
        assert_eq!(checkpointer.restore().unwrap(), None);
        let mut kept = areas.map(|area| vec![0; area.len_bytes as usize]);
        let mut number = 0;
        for step in 0..60 {
            let what = format!("seed {seed} step {step}");
            areas.iter().for_each(|area| scribble(area, &mut random, 30));
            match random.random_range(0..4) {
                0 => {
                    checkpointer.precopy().unwrap();
                }
                1 | 2 => {
                    number += 1;
                    let done = checkpointer.checkpoint().unwrap();
                    assert_eq!(done.number, number, "{what}");
                    kept = areas.each_ref().map(bytes_of);
                    // Nothing was written since: nothing is copied.
                    assert_eq!(checkpointer.precopy().unwrap(), 0, "{what}");
                }
                _ => {
                    drop(checkpointer);
                    (checkpointer, areas) = open();
                    assert_eq!(checkpointer.restore().unwrap(), (number > 0).then_some(number));
                    assert_eq!(areas.each_ref().map(bytes_of), kept, "{what}");
                }
            }
        }
    }
}

/// What would be left if the power failed now, and none of what was not written back and fenced had
/// arrived.
#[derive(Default)]
struct Power {
    state: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    cached: BTreeMap<u64, [u8; 64]>,
    flushed: Vec<(u64, [u8; 64])>,
    durable: BTreeMap<u64, [u8; 64]>,
    events: u64,
    cuts: Vec<u64>,
    images: Vec<BTreeMap<u64, [u8; 64]>>,
}

impl Lines {
    fn event(&mut self) {
        self.events += 1;
        if self.cuts.contains(&self.events) {
            self.images.push(self.durable.clone());
            // And once with all that was stored: a process that was killed.
            self.images.push(self.cached.clone());
        }
    }
}

impl Tap for Power {
    fn store(&self, offset: u64, bytes: &[u8]) {
        let mut lines = self.state.lock().unwrap();
        for (at, byte) in (offset..).zip(bytes) {
            lines.cached.entry(at / LINE).or_insert([0; 64])[(at % LINE) as usize] = *byte;
        }
        lines.event();
    }
    fn flush(&self, line_offset: u64) {
        let mut lines = self.state.lock().unwrap();
        let line = line_offset / LINE;
        let content = lines.cached.get(&line).copied().unwrap_or([0; 64]);
        lines.flushed.push((line, content));
        lines.event();
    }
    fn fence(&self) {
        let mut lines = self.state.lock().unwrap();
        let flushed = std::mem::take(&mut lines.flushed);
        lines.durable.extend(flushed);
        lines.event();
    }
}

#[test]
fn a_cut_anywhere_leaves_one_checkpoint_whole() {
    for seed in 0..3 {
        let mut random = Random::seed_from_u64(seed);
        let power = Arc::new(Power::default());
        let mut config = Config::default();
        config.tap = Some(power.clone());
        let memory = Memory::anonymous(2 * MIB, Durability::Flushed).unwrap();
        let heap = Arc::new(Heap::open(memory, config).unwrap());
        let checkpointer = Checkpointer::open(heap, "state").unwrap();
        let area = checkpointer.register("a", 65_536).unwrap();
        let mut kept = vec![vec![0; 65_536]];
        for round in 0..6 {
            // Cuts within what this round will do, as far as that is known.
            let now = power.state.lock().unwrap().events;
            let cuts = (0..12).map(|_| now + random.random_range(1..2_500)).collect();
            power.state.lock().unwrap().cuts = cuts;
            scribble(&area, &mut random, 12);
            if round % 2 == 0 {
                checkpointer.precopy().unwrap();
                scribble(&area, &mut random, 3);
            }
            kept.push(bytes_of(&area));
            checkpointer.checkpoint().unwrap();
            let images = std::mem::take(&mut power.state.lock().unwrap().images);
            for image in images {
                let mut bytes = vec![0; 2 * MIB as usize];
                for (line, content) in image {
                    bytes[(line * LINE) as usize..][..64].copy_from_slice(&content);
                }
                let mut config = Config::default();
                config.boot_id = Some([round + 1, 7]);
                let memory = Memory::copy_of_bytes(&bytes).unwrap();
                let heap = Arc::new(Heap::open(memory, config).unwrap());
                let again = Checkpointer::open(heap, "state").unwrap();
                let number = again.number();
                assert!(
                    [round, round + 1].contains(&number),
                    "seed {seed} round {round}: {number}"
                );
                let area = again.register("a", 65_536).unwrap();
                again.restore().unwrap();
                assert!(bytes_of(&area) == kept[number as usize], "seed {seed} round {round}");
                // And it goes on from there.
                scribble(&area, &mut random, 5);
                assert_eq!(again.checkpoint().unwrap().number, number + 1);
            }
        }
    }
}

#[test]
fn precopy_in_the_background_leaves_less_for_the_pause() {
    let memory = Memory::anonymous(32 * MIB, Durability::Ordered).unwrap();
    let heap = Arc::new(Heap::open(memory, Config::default()).unwrap());
    let checkpointer = Checkpointer::open(heap, "state").unwrap();
    let area = checkpointer.register("a", 4 * MIB).unwrap();
    // SAFETY: inside the area, of this test alone.
    unsafe { area.base.write_bytes(1, 4 << 20) };
    assert_eq!(checkpointer.precopy().unwrap(), 1024);
    // SAFETY: as above.
    unsafe { area.base.add(5000).write(2) };
    let done = checkpointer.checkpoint().unwrap();
    assert_eq!((done.pages, done.precopied_pages), (1, 1024));
    checkpointer.precopy_in_background(Duration::from_micros(100)).unwrap();
    let mut random = Random::seed_from_u64(9);
    for _ in 0..50 {
        scribble(&area, &mut random, 200);
    }
    checkpointer.checkpoint().unwrap();
    let kept = bytes_of(&area);
    scribble(&area, &mut random, 100);
    checkpointer.restore().unwrap();
    assert!(bytes_of(&area) == kept);
}

#[test]
fn misuse_and_damage_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("heap");
    let open = || {
        let memory = Memory::file(&path, 4 * MIB, Durability::Flushed).unwrap();
        let heap = Arc::new(Heap::open(memory, Config::default()).unwrap());
        Checkpointer::open(heap, "state").unwrap()
    };
    let checkpointer = open();
    let area = checkpointer.register("a", 65_536).unwrap();
    checkpointer.register("b", 65_536).unwrap();
    let taken = checkpointer.register("a", 65_536);
    assert!(matches!(taken, Err(CheckpointError::AreaTaken { .. })));
    let long = checkpointer.register(&"x".repeat(40), 65_536);
    assert!(matches!(long, Err(CheckpointError::AreaName { .. })));
    let large = checkpointer.register("c", 64 * MIB);
    assert!(matches!(large, Err(CheckpointError::Heap(HeapError::Size { .. }))));
    let mark: [u8; 64] = std::array::from_fn(|at| at as u8 ^ 0x5a);
    // SAFETY: inside the area, of this test alone.
    unsafe { area.base.add(3 * PAGE).copy_from_nonoverlapping(mark.as_ptr(), 64) };
    checkpointer.checkpoint().unwrap();
    drop(checkpointer);

    let checkpointer = open();
    let other = checkpointer.register("a", 200_000);
    assert!(matches!(other, Err(CheckpointError::AreaSize { .. })));
    checkpointer.register("a", 65_536).unwrap();
    assert!(matches!(checkpointer.restore(), Err(CheckpointError::AreaMissing { .. })));
    assert!(matches!(checkpointer.checkpoint(), Err(CheckpointError::AreaMissing { .. })));
    drop(checkpointer);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(64).position(|window| window == mark).unwrap();
    bytes[at + 5] ^= 4;
    std::fs::write(&path, bytes).unwrap();
    let checkpointer = open();
    checkpointer.register("a", 65_536).unwrap();
    checkpointer.register("b", 65_536).unwrap();
    let damaged = checkpointer.restore();
    assert!(matches!(damaged, Err(CheckpointError::Damaged { page: 3, .. })), "{damaged:?}");
}

/// The page's entry keeps its sum and loses its slot: that is not the entry of a page of zeros.
#[test]
fn an_entry_of_a_page_without_a_slot_is_refused_by_place_and_value() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("heap");
    let open = || {
        let memory = Memory::file(&path, 4 * MIB, Durability::Flushed).unwrap();
        let heap = Arc::new(Heap::open(memory, Config::default()).unwrap());
        Checkpointer::open(heap, "state").unwrap()
    };
    let checkpointer = open();
    let area = checkpointer.register("a", 65_536).unwrap();
    // SAFETY: inside the area, of this test alone.
    unsafe { area.base.add(3 * PAGE).write_bytes(0x5a, PAGE) };
    checkpointer.checkpoint().unwrap();
    drop(checkpointer);
    let sum = xxhash_rust::xxh3::xxh3_64(&[0x5a; PAGE]) as u32;
    let entry = (u64::from(sum) << 32 | 1).to_le_bytes();
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.chunks_exact(8).position(|word| word == entry).unwrap() * 8;
    bytes[at] = 0;
    std::fs::write(&path, bytes).unwrap();
    match open().register("a", 65_536).map(drop) {
        Err(CheckpointError::Heap(HeapError::Corrupt { offset, value, .. })) => {
            assert_eq!((offset, value), (at as u64, u64::from(sum) << 32));
        }
        other => panic!("{other:?}"),
    }
}
