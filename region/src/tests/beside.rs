//! Writers beside the cleaner, and several lives in a row, without threads: a seed decides all.
//!
//! A writer acts before each durable operation, so between any two steps of a checkpoint, of a
//! cleaning or of a compaction. A life ends by a loss of power, a kill, or a stop; another process
//! takes the memory over, or flushes it, or is cut off while it does. After that memory must have
//! every byte that was written, or be as it was at one of the last cuts.

pub(super) mod device;
mod model;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use parking_lot::Mutex;
use perdura_media::{FaultPlan, LoneClock, SimDevice};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use crate::{
    Attachment, BLOCK_BYTES, Compression, Config, FlushOptions, LaneId, Planted, Region,
    RegionError,
};
use device::{Beside, Writer};
use model::{Model, assign, memory};
use perdura_dirty::{Ledger, SegmentState};
use perdura_image::{Tail, recover};

const BLOCKS: u64 = 40;
const BLOCKS_MAX: u64 = 48;
const LANES: u16 = 4;
/// Seeds that the test runs.
const SEEDS: u64 = 48;
const LIVES: u32 = 4;

fn lane_of(offset: u64) -> LaneId {
    LaneId((offset / BLOCK_BYTES % u64::from(LANES)) as u16)
}

/// The end of a life.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The power goes.
    PowerLost,
    /// The region is closed, and the image is opened again.
    Closed,
    /// The process is killed, and another one takes its memory over.
    Attached,
    /// The process is killed, and a holder flushes. If the power stays, another process takes the
    /// memory over.
    Flushed { power_stays: bool },
    /// The process is killed, and the power goes while a holder flushes or another process takes
    /// the memory over.
    FlushLost { attaches: bool },
}

/// What was seen: without each of these a run shows little.
#[derive(Debug, Default)]
struct Seen {
    captured_bytes: u64,
    compacted_bytes: u64,
    refused_captures: u64,
}

impl Seen {
    fn count(&mut self, region: &Region) {
        let stats = region.stats();
        self.captured_bytes += stats.captured_bytes;
        self.compacted_bytes += stats.compacted_bytes;
    }
}

/// A machine on which one region lives again and again.
struct Machine {
    random: Random,
    device: SimDevice,
    faults: Arc<FaultPlan>,
    model: Arc<Mutex<Model>>,
    config: Config,
    /// Steps of a thousand that make a checkpoint.
    checkpoint_permille: u32,
    /// Steps of a thousand that make a group commit.
    group_permille: u32,
    /// Most steps of a life.
    steps_max: u32,
    seen: Seen,
    region: Option<Arc<Region>>,
    told: String,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let mut random = Random::seed_from_u64(seed);
        // With the largest budget a checkpoint has more to write than the frame buffers hold.
        let (budget_bytes, checkpoint_permille, group_permille, steps_max) =
            [(256 << 10, 20, 20, 300), (300 << 10, 20, 400, 100), (2 << 20, 12, 4, 160)]
                [random.random_range(0..3)];
        let config = Config {
            segment_bytes: Some(64 << 10),
            reserved_bytes: Some(BLOCKS_MAX * BLOCK_BYTES),
            lanes: Some(LANES),
            thread: false,
            checkpoint_every: None,
            log_percent: random.random_range(125..170),
            compression: [Compression::Off, Compression::Lz4][usize::from(random.random_bool(0.3))],
            seed,
            ..Config::new(BLOCKS * BLOCK_BYTES, budget_bytes)
        };
        let writer = Random::seed_from_u64(random.random());
        Self {
            device: SimDevice::new(0, seed),
            faults: Arc::default(),
            model: Arc::new(Mutex::new(Model::new(writer, BLOCKS * BLOCK_BYTES))),
            random,
            config,
            checkpoint_permille,
            group_permille,
            steps_max,
            seen: Seen::default(),
            region: None,
            told: String::new(),
        }
    }

    fn region(&self) -> Arc<Region> {
        Arc::clone(self.region.as_ref().unwrap())
    }

    /// Lets a region live, opened by `open` on a device with a writer beside it.
    fn begin(
        &mut self,
        open: impl FnOnce(Arc<Beside>, Config) -> Result<Region, crate::OpenError>,
    ) -> Result<(), String> {
        self.faults = Arc::default();
        let writer = Writer::default();
        let device = Beside::new(self.device.clone(), self.faults.clone(), writer.clone());
        let opened = open(Arc::new(device), self.config.clone());
        let region = Arc::new(opened.map_err(|error| format!("does not open: {error}"))?);
        assign(&region);
        self.model.lock().follow(&region);
        let (weak, model) = (Arc::downgrade(&region), Arc::clone(&self.model));
        let device = self.device.clone();
        *writer.lock() = Some(Box::new(move |is_commit| {
            if let Some(region) = weak.upgrade().filter(|region| region.check_open().is_ok()) {
                model.lock().beside(&region);
                if is_commit {
                    assert_needed_is_kept(&device, &region);
                }
            }
        }));
        self.region = Some(region);
        Ok(())
    }

    fn boot(&mut self) -> Result<(), String> {
        let clock = Arc::new(LoneClock::new(1_000));
        self.begin(|device, config| Region::open(device, clock, config))
    }

    /// One step: a write that waits for room, or a commit.
    fn step(&mut self) -> Result<(), RegionError> {
        let (region, model) = (self.region(), Arc::clone(&self.model));
        let commits = region.stats().checkpoints;
        match self.random.random_range(0..1000) {
            drawn if drawn < self.checkpoint_permille => {
                region.checkpoint()?;
                let mut model = model.lock();
                model.committed(&region);
                let cleaner = region.running().any_cleaner();
                let is_committed = cleaner.is_committed(&region.running().backed);
                assert!(
                    !is_committed || !model.is_changed,
                    "what changed since counts as committed"
                );
            }
            drawn if drawn < self.checkpoint_permille + self.group_permille => {
                region.commit_group()?;
                model.lock().committed(&region);
            }
            _ => {
                let (offset, bytes) = model.lock().draw();
                self.write(offset, &bytes)?;
                if region.stats().checkpoints > commits {
                    // The log was short of space, and a commit has made some.
                    model.lock().committed(&region);
                }
            }
        }
        assert!(region.used_bytes_max() <= region.budget_bytes(), "the budget was exceeded");
        Ok(())
    }

    /// Writes, and waits for room as often as needed.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), RegionError> {
        let (region, mut credit) = (self.region(), 0);
        loop {
            let written = self.model.lock().write(&region, credit, offset, bytes);
            let Err(need) = written else { return Ok(()) };
            credit = region.satisfy(need)?;
        }
    }

    /// Fills the memory, so that the log is short of space and must be compacted.
    fn fill(&self) -> Result<(), String> {
        let written =
            (0..BLOCKS).try_for_each(|block| self.write(block * BLOCK_BYTES, &[7; 60_000]));
        written.and_then(|()| self.region().checkpoint()).map_err(|error| error.to_string())?;
        self.model.lock().committed(&self.region());
        Ok(())
    }

    /// Runs steps until one of them does not succeed.
    fn play(&mut self) -> Result<(), String> {
        let steps = self.random.random_range(20..=self.steps_max);
        let stopped = (0..steps).find_map(|number| Some((number, self.step().err()?)));
        let region = self.region();
        self.model.lock().notice_cut(&region);
        self.seen.count(&region);
        match stopped {
            None | Some((_, RegionError::Latched { .. })) => Ok(()),
            Some((number, error)) => Err(format!("step {number}: {error}")),
        }
    }

    /// Ends the process, and returns memory and ledger as a holder has them.
    fn kill(&mut self) -> [OwnedFd; 2] {
        let region = self.region();
        if self.random.random() {
            // The process may die after it has taken a frame's number, before it enters the frame.
            region.running().backed.memory.ledger.next_seq().fetch_add(1, AcqRel);
        }
        let (memory, ledger) = region.fds();
        let held = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
        self.region = None;
        held
    }

    fn attach(&mut self, [memory, ledger]: [OwnedFd; 2]) -> Result<(), String> {
        if self.random.random_bool(0.3) {
            let blocks = self.random.random_range(BLOCKS..=BLOCKS_MAX);
            self.config.region_bytes = self.config.region_bytes.max(blocks * BLOCK_BYTES);
        }
        let clock = Arc::new(LoneClock::new(1_000));
        self.begin(|device, config| Region::attach(memory, ledger, device, clock, config))?;
        if self.device.unflushed_bytes() > 0 {
            return Err("frames that were written again are not durable".into());
        }
        self.expect_now("attached")?;
        if self.region().stats().checkpoints > 0 {
            let mut model = self.model.lock();
            model.allowed = vec![model.now.clone()];
        }
        Ok(())
    }

    fn power_cycle(&mut self) {
        self.region = None;
        self.device = self.device.power_cycle(self.random.random());
    }

    fn expect_now(&self, when: &str) -> Result<(), String> {
        let (found, model) = (memory(&self.region()), self.model.lock());
        match first_difference(&found, &model.now) {
            None => Ok(()),
            Some(at) => Err(format!("{when}: byte {at} differs from what was written")),
        }
    }

    /// Opens the image; memory must be as it was at one of the states that are allowed.
    fn boot_to_allowed(&mut self, when: &str) -> Result<(), String> {
        self.boot().map_err(|why| format!("{when}: {why}"))?;
        let found = memory(&self.region());
        let mut model = self.model.lock();
        let same = |state: &Vec<u8>| first_difference(&found, state).is_none();
        if !model.allowed.iter().any(same) {
            let newest = model.allowed.last().and_then(|state| first_difference(&found, state));
            let states = model.allowed.len();
            return Err(format!(
                "{when}: memory is as at none of {states} cuts; byte {newest:?} differs from the \
                 last one"
            ));
        }
        // Opening commits.
        model.allowed = vec![found.clone()];
        model.now = found;
        Ok(())
    }

    fn boot_to_now(&mut self, when: &str) -> Result<(), String> {
        self.power_cycle();
        let now = self.model.lock().now.clone();
        self.model.lock().allowed = vec![now];
        self.boot_to_allowed(when)
    }

    /// Cuts the power some operations from now.
    fn cut_soon(&mut self, within: u64) {
        self.device.cut_after(self.device.ops() + self.random.random_range(0..within));
    }

    fn flush_by_holder(&mut self, [memory, ledger]: [OwnedFd; 2]) -> Result<(), String> {
        let holder = Attachment::new(memory, ledger).map_err(|error| error.to_string())?;
        let threads = self.random.random_range(1..=2);
        let flushed = holder.flush(&self.device, FlushOptions { threads, unix_ms: 7 });
        flushed.map(drop).map_err(|error| error.to_string())
    }

    fn live(&mut self) -> Result<(), String> {
        let end = match self.random.random_range(0..10) {
            0..3 => End::PowerLost,
            3 => End::Closed,
            4..6 => End::Attached,
            6..8 => End::Flushed { power_stays: self.random.random() },
            _ => End::FlushLost { attaches: self.random.random() },
        };
        self.told.push_str(&format!("; {end:?}"));
        match end {
            End::PowerLost => self.cut_soon(120),
            End::Closed => {}
            _ if self.random.random() => self.faults.fail_write(self.random.random_range(1..40)),
            _ => self.faults.fail_flush(self.random.random_range(1..8)),
        }
        self.play()?;
        match end {
            End::PowerLost => {
                self.power_cycle();
                self.boot_to_allowed("after a power cut")
            }
            End::Closed => {
                self.region().close(1).map_err(|error| format!("closing: {error}"))?;
                self.boot_to_now("closed")
            }
            End::Attached => {
                let held = self.kill();
                self.attach(held)
            }
            End::Flushed { power_stays } => {
                let held = self.kill();
                let again = held.each_ref().map(|fd| fd.try_clone().unwrap());
                self.flush_by_holder(held).map_err(|why| format!("flushed by a holder: {why}"))?;
                if power_stays {
                    self.model.lock().flushed();
                    self.attach(again)
                } else {
                    self.boot_to_now("flushed by a holder")
                }
            }
            End::FlushLost { attaches } => {
                let held = self.kill();
                self.cut_soon(40);
                let outcome = if attaches { self.attach(held) } else { self.flush_by_holder(held) };
                if self.device.is_powered() {
                    outcome?;
                }
                let mut model = self.model.lock();
                let now = model.now.clone();
                model.allowed.push(now);
                drop(model);
                self.power_cycle();
                self.boot_to_allowed("after the power went during a flush")
            }
        }
    }
}

/// A commit is about to be written, and the process may die now. No segment that the image needs
/// may be free in the ledger, because whoever flushes next fills those that are.
fn assert_needed_is_kept(device: &SimDevice, region: &Region) {
    let ledger = &region.running().backed.memory.ledger;
    let geometry = *ledger.geometry();
    let image_id = ledger.image_id().load(Acquire);
    let image = Ledger::create(geometry, image_id, 0).unwrap();
    if recover(device, &geometry, image_id, &image, Tail::Committed, Planted::None).is_err() {
        // The image is being made.
        return;
    }
    for number in 0..ledger.segments().load(Acquire) as u32 {
        let (needs, has) = (image.segment(number).state(), ledger.segment(number).state());
        assert!(
            needs != SegmentState::Used || has == SegmentState::Used,
            "segment {number} is {has:?}, but the last commit needs it"
        );
    }
}

/// The first byte that differs. Beyond the end of the shorter one there must be zeros.
fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let len = one.len().min(other.len());
    let within = (one[..len] != other[..len])
        .then(|| one.iter().zip(other).position(|(one, other)| one != other))
        .flatten();
    let beyond = || {
        let rest = one[len..].iter().chain(&other[len..]);
        rest.enumerate().find(|(_, byte)| **byte != 0).map(|(at, _)| len + at)
    };
    within.or_else(beyond)
}

/// Says how to replay a seed if the test panics.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "replay: PERDURA_SEED={} cargo test -p perdura-region --lib tests::beside",
                self.0
            );
        }
    }
}

fn live_lives(seed: u64) -> Seen {
    let _replay = Replay(seed);
    let mut machine = Machine::new(seed);
    let outcome = machine.boot().and_then(|()| {
        machine.fill()?;
        (0..LIVES).try_for_each(|_| machine.live())?;
        machine.region().close(1).map_err(|error| format!("closing: {error}"))?;
        machine.boot_to_now("closed at last")
    });
    if let Err(why) = outcome {
        panic!("seed {seed}{}: {why}", machine.told);
    }
    let refused_captures = machine.model.lock().refused_captures;
    Seen { refused_captures, ..machine.seen }
}

#[test]
fn writers_beside_the_cleaner_lose_nothing_in_several_lives() {
    let only: Option<u64> = std::env::var("PERDURA_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut all = Seen::default();
    for seed in only.map_or(0..SEEDS, |seed| seed..seed + 1) {
        let seen = live_lives(seed);
        all.captured_bytes += seen.captured_bytes;
        all.compacted_bytes += seen.compacted_bytes;
        all.refused_captures += seen.refused_captures;
    }
    println!("{all:?}");
    let is_rich = all.captured_bytes > 0 && all.compacted_bytes > 0 && all.refused_captures > 0;
    assert!(is_rich || only.is_some(), "the seeds show little: {all:?}");
}
