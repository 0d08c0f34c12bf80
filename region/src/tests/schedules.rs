//! Two writers, the cleaner and a thread that makes checkpoints, whose interleaving a seed draws:
//! at each lock, each wait, each operation of the device, between a dirty bit and the bytes, and
//! before each copy.
//!
//! At a point that the seed draws, too, the process is killed. Then a holder flushes, and the image
//! must have every byte that was in memory. Or the power is lost, and what two blocks say of one
//! operation must agree, and be no older than at the last checkpoint that returned.

mod trapped;
mod turns;

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use parking_lot::Mutex;
use perdura_dirty::schedule;
use perdura_dirty::sys::SharedMemory;
use perdura_media::{FaultPlan, LoneClock, SimDevice};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::beside::device::{Beside, Writer};
use crate::{Attachment, BLOCK_BYTES, Config, FlushOptions, LaneId, Planted, Region, RegionError};
use turns::Turns;

const LANES: u16 = 4;
const BLOCKS: u64 = 16;
/// Operations of one writer.
const OPERATIONS: u32 = 40;
/// Bytes that an operation writes to each of its two blocks.
const LENGTHS: [usize; 4] = [64, 1_000, 9_000, 40_000];
/// Seeds that the test runs.
const SEEDS: u64 = 48;

fn lane_of(block: u64) -> LaneId {
    LaneId((block % u64::from(LANES)) as u16)
}

/// Blocks are used in pairs, which lie in different lanes: 0 and 1, 2 and 3, and so on.
struct World {
    region: Arc<Region>,
    /// The number of the last operation on each pair that has returned.
    done: [AtomicU64; BLOCKS as usize / 2],
    /// The numbers in `done` when the last checkpoint began that has returned.
    committed: Mutex<[u64; BLOCKS as usize / 2]>,
    writers_left: AtomicU64,
    /// Drawn with both lanes of a pair held, so that the numbers of a pair ascend.
    next: AtomicU64,
}

impl World {
    /// Writes the same number to both blocks of a pair, as one operation under two lanes.
    fn write(&self, pair: u64, len: usize) -> Result<(), RegionError> {
        let offsets = [2 * pair * BLOCK_BYTES, (2 * pair + 1) * BLOCK_BYTES];
        let mut credit = 0;
        loop {
            let mut first = self.region.lock_with(lane_of(2 * pair), std::mem::take(&mut credit));
            let mut second = self.region.lock_with(lane_of(2 * pair + 1), 0);
            let number = self.next.fetch_add(1, SeqCst);
            let bytes = vec![number as u8; len];
            let announced = first.announce(offsets[0], len as u64 + 8).and_then(|()| {
                second.deposit(first.withdraw());
                second.announce(offsets[1], len as u64 + 8)
            });
            let written = announced.and_then(|()| {
                for (lane, offset) in [(&mut first, offsets[0]), (&mut second, offsets[1])] {
                    lane.store(offset, number)?;
                    lane.write(offset + 8, &bytes)?;
                }
                Ok(())
            });
            drop((first, second));
            match written {
                Ok(()) => {
                    self.done[pair as usize].fetch_max(number, SeqCst);
                    return Ok(());
                }
                Err(need) => credit = self.region.satisfy(need)?,
            }
        }
    }

    /// Writes to the end of a block, which says nothing of pairs, and announces nothing before.
    fn write_alone(&self, block: u64, bytes: &[u8]) -> Result<(), RegionError> {
        let offset = (block + 1) * BLOCK_BYTES - bytes.len() as u64;
        let mut credit = 0;
        loop {
            let written = self.region.lock_with(lane_of(block), credit).write(offset, bytes);
            let Err(need) = written else { return Ok(()) };
            credit = self.region.satisfy(need)?;
        }
    }

    fn writer(&self, seed: u64) {
        let mut random = Random::seed_from_u64(seed);
        for _ in 0..OPERATIONS {
            let pair = random.random_range(0..BLOCKS / 2);
            let len = LENGTHS[random.random_range(0..LENGTHS.len())];
            self.write(pair, len).unwrap();
            let bytes = vec![random.random(); len / 2];
            self.write_alone(random.random_range(0..BLOCKS), &bytes).unwrap();
        }
        self.writers_left.fetch_sub(1, SeqCst);
    }

    fn cleaner(&self) {
        while self.writers_left.load(SeqCst) > 0 {
            let running = self.region.running();
            let mut cleaner = running.any_cleaner();
            cleaner.tick(&running.backed, false).unwrap();
            drop(cleaner);
            schedule::point();
        }
    }

    fn checkpoints(&self) {
        while self.writers_left.load(SeqCst) > 0 {
            let before = self.done.each_ref().map(|done| done.load(SeqCst));
            self.region.checkpoint().unwrap();
            *self.committed.lock() = before;
            (0..50).for_each(|_| schedule::point());
        }
    }
}

/// The contents of a memory file as they are now, in a file of their own.
fn copy(file: &SharedMemory) -> OwnedFd {
    let fd = file.fd().as_fd().try_clone_to_owned().unwrap();
    let from = SharedMemory::from_fd(fd).unwrap().map().unwrap();
    let copy = SharedMemory::create("copy", from.len_bytes()).unwrap();
    let to = copy.map().unwrap();
    for (from, to) in from
        .words(0, from.len_bytes() as usize / 8)
        .iter()
        .zip(to.words(0, to.len_bytes() as usize / 8))
    {
        let word = from.load(Relaxed);
        if word != 0 {
            to.store(word, Relaxed);
        }
    }
    copy.fd().try_clone_to_owned().unwrap()
}

fn config(seed: u64, planted: Planted) -> Config {
    Config {
        segment_bytes: Some(64 << 10),
        lanes: Some(LANES),
        thread: false,
        checkpoint_every: None,
        log_percent: 300,
        seed,
        planted,
        ..Config::new(BLOCKS * BLOCK_BYTES, 256 << 10)
    }
}

fn memory(region: &Region) -> Vec<u8> {
    let block = |block| {
        let lane = region.lock(lane_of(block));
        lane.bytes(block * BLOCK_BYTES, BLOCK_BYTES as usize).to_vec()
    };
    (0..BLOCKS).flat_map(block).collect()
}

fn assign(region: &Region) {
    (0..BLOCKS).for_each(|block| region.assign_block(block, lane_of(block)));
}

/// Runs one schedule. Panics if something was lost.
fn run(seed: u64, planted: Planted) {
    let mut random = Random::seed_from_u64(seed);
    let device = SimDevice::new(0, seed);
    let writer = Writer::default();
    let beside = Beside::new(device.clone(), Arc::new(FaultPlan::default()), writer.clone());
    let killed: Arc<Mutex<Option<[OwnedFd; 2]>>> = Arc::default();
    let of_region: Arc<Mutex<Option<Arc<Region>>>> = Arc::default();
    let kill = {
        let (killed, of_region) = (Arc::clone(&killed), Arc::clone(&of_region));
        move || {
            let region = of_region.lock().take().unwrap();
            let memory = &region.running().backed.memory;
            *killed.lock() = Some([copy(&memory.file), copy(memory.ledger.memory())]);
        }
    };
    let turns = Turns::new(random.random(), random.random_range(200..9_000), Box::new(kill));
    let region = Region::open(Arc::new(beside), Arc::new(Forward(turns)), config(seed, planted));
    let region = Arc::new(region.unwrap());
    assign(&region);
    *of_region.lock() = Some(Arc::clone(&region));
    *writer.lock() = Some(Box::new(|_| schedule::point()));
    let world = Arc::new(World {
        region: Arc::clone(&region),
        done: Default::default(),
        committed: Mutex::default(),
        writers_left: AtomicU64::new(2),
        next: AtomicU64::new(1),
    });
    let seeds: [u64; 2] = random.random();
    let threads = std::array::from_fn(|number| -> Box<dyn FnOnce() + Send> {
        let world = Arc::clone(&world);
        match number {
            0 | 1 => Box::new(move || world.writer(seeds[number])),
            2 => Box::new(move || world.cleaner()),
            _ => Box::new(move || world.checkpoints()),
        }
    });
    let was_killed = turns.run(threads);
    *writer.lock() = None;
    if !was_killed {
        region.checkpoint().unwrap();
        *world.committed.lock() = world.done.each_ref().map(|done| done.load(SeqCst));
        let memory = &region.running().backed.memory;
        *killed.lock() = Some([copy(&memory.file), copy(memory.ledger.memory())]);
    }
    let [memory_fd, ledger_fd] = killed.lock().take().unwrap();
    let expected = SharedMemory::from_fd(memory_fd.try_clone().unwrap()).unwrap().map().unwrap();
    // What is planted shows after a kill.
    let is_flushed = planted != Planted::None || random.random();
    if is_flushed {
        let holder = Attachment::new(memory_fd, ledger_fd).unwrap();
        holder.flush(&device, FlushOptions { threads: 1, unix_ms: 7 }).unwrap();
    }
    let device = device.power_cycle(random.random());
    let clock = Arc::new(LoneClock::new(1_000));
    let found = Region::open(Arc::new(device), clock, config(seed, Planted::None)).unwrap();
    assign(&found);
    let found = memory(&found);
    if is_flushed {
        // SAFETY: nobody changes the copy.
        let expected = unsafe { expected.bytes(0, found.len()) };
        let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
        assert_eq!(differs, None, "a byte in memory was not flushed");
        return;
    }
    let number = |block: u64| {
        let at = (block * BLOCK_BYTES) as usize;
        u64::from_le_bytes(found[at..at + 8].try_into().unwrap())
    };
    for (pair, committed) in (0..).zip(*world.committed.lock()) {
        let (first, second) = (number(2 * pair), number(2 * pair + 1));
        assert_eq!(first, second, "pair {pair} is of two operations");
        assert!(first >= committed, "pair {pair} has {first}, {committed} was committed");
    }
}

/// The clock of a region, which wants one of its own.
struct Forward(&'static Turns);

impl perdura_media::Clock for Forward {
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn unix_ms(&self) -> u64 {
        self.0.unix_ms()
    }

    fn thread_cpu_ns(&self) -> u64 {
        self.0.thread_cpu_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.0.sleep_ns(duration_ns);
    }

    fn wait_change(
        &self,
        word: &std::sync::atomic::AtomicU32,
        seen: u32,
        longest: std::time::Duration,
    ) {
        self.0.wait_change(word, seen, longest);
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    match number("PERDURA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PERDURA_SCHEDULES").unwrap_or(SEEDS),
    }
}

#[test]
fn two_writers_cleaner_and_checkpoint_lose_nothing_in_any_schedule() {
    for seed in seeds() {
        let held = catch_unwind(AssertUnwindSafe(|| run(seed, Planted::None)));
        if let Err(panic) = held {
            let test = "cargo test -p perdura-region --lib tests::schedules";
            eprintln!("replay: PERDURA_SEED={seed} {test}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn bytes_before_their_bits_and_a_copy_without_the_lane_are_caught_by_a_schedule() {
    for bug in Planted::SCHEDULED {
        let caught =
            (0..4 * SEEDS).find(|seed| catch_unwind(AssertUnwindSafe(|| run(*seed, bug))).is_err());
        println!("{}: caught by seed {caught:?}", bug.name());
        assert!(caught.is_some(), "{} is not caught", bug.name());
    }
}
