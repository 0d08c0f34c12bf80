//! The real file device over simulated files: whatever it acknowledged survives a power cut at
//! each durable operation, and each failure of a call is reported.

mod names;
mod oracle;

use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::SimFiles;
use crate::device::{BLOCK_BYTES, Completion, Device, DeviceError, WriteQueue};
use crate::file::{Direct, Engine, FileDevice, OpenMode};
use crate::sys::BlockBuf;
use oracle::Oracle;

const IMAGE: &str = "/image";
const SEEDS: u64 = 12;
const STEPS: usize = 24;
const BLOCKS: u64 = 12;
const BLOCK: usize = BLOCK_BYTES as usize;

type SimFileDevice = FileDevice<super::SimFile>;

#[test]
fn what_a_file_device_acknowledged_survives_every_power_cut() {
    check_all(false);
}

#[test]
fn a_call_that_fails_is_reported_and_loses_nothing_acknowledged() {
    check_all(true);
}

#[test]
fn replay_one_cut_from_the_environment() {
    let read = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    if let (Some(seed), Some(cut)) = (read("PERDURA_SEED"), read("PERDURA_CUT")) {
        check(seed, cut, std::env::var("PERDURA_FAILURE").is_ok_and(|value| value == "true"));
    }
}

/// Checks every operation of all seeds.
fn check_all(is_failure: bool) {
    for seed in 0..SEEDS {
        let ops = check(seed, u64::MAX, is_failure);
        (0..ops).for_each(|cut| {
            check(seed, cut, is_failure);
        });
    }
}

fn check(seed: u64, cut: u64, is_failure: bool) -> u64 {
    cut_once(seed, cut, is_failure).unwrap_or_else(|why| {
        let what = if is_failure { "failure" } else { "cut" };
        let replay = replay(seed, cut, is_failure);
        panic!("seed {seed}, {what} at operation {cut}: {why}\n{replay}")
    })
}

fn replay(seed: u64, cut: u64, is_failure: bool) -> String {
    format!(
        "replay: PERDURA_SEED={seed} PERDURA_CUT={cut} PERDURA_FAILURE={is_failure} cargo test \
         -p perdura-media --lib files::tests::replay"
    )
}

/// Cuts the power at the durable operation number `cut`, or makes it fail and cuts the power at the
/// end. Returns the number of operations, or what is wrong.
fn cut_once(seed: u64, cut: u64, is_failure: bool) -> Result<u64, String> {
    let engine = if seed.is_multiple_of(2) { Engine::Uring } else { Engine::Pwrite };
    let files = SimFiles::new(seed);
    if is_failure {
        files.fail_at(cut)
    } else {
        files.cut_after(cut)
    }
    let (oracle, result) = run(&files, seed, engine);
    match result {
        Ok(()) if files.ops() > cut => return Err("nobody was told of the failure".into()),
        Err(error) if cut == u64::MAX => return Err(format!("failed by itself: {error}")),
        _ => oracle.check(&files.power_cycle(seed ^ cut))?,
    }
    Ok(files.ops())
}

/// Uses a new device until the end or the first error. Returns what was acknowledged.
fn run(files: &SimFiles, seed: u64, engine: Engine) -> (Oracle, Result<(), DeviceError>) {
    let mut oracle = Oracle::default();
    let mut random = Random::seed_from_u64(seed);
    let result = create(files, engine).and_then(|device| {
        oracle.is_created = true;
        let queue = device.queue(4)?;
        let mut user = User { device, queue, oracle: &mut oracle, random: &mut random };
        (0..STEPS).try_for_each(|_| user.step())?;
        if let Err(why) = user.oracle.check_reads(&user.device) {
            panic!("seed {seed}, read back: {why}\n{}", replay(seed, u64::MAX, false));
        }
        Ok(())
    });
    (oracle, result)
}

fn create(files: &SimFiles, engine: Engine) -> Result<SimFileDevice, DeviceError> {
    let mode = OpenMode::Create { capacity_bytes: BLOCKS / 2 * BLOCK_BYTES };
    FileDevice::open_in(files, Path::new(IMAGE), mode, engine, Direct::Auto)
}

struct User<'a> {
    device: SimFileDevice,
    queue: Box<dyn WriteQueue>,
    oracle: &'a mut Oracle,
    random: &'a mut Random,
}

impl User<'_> {
    fn step(&mut self) -> Result<(), DeviceError> {
        let capacity = self.device.capacity_bytes() / BLOCK_BYTES;
        let first = self.random.random_range(0..capacity);
        let count = self.random.random_range(1..=3.min(capacity - first));
        let mut buf = BlockBuf::zeroed(count as usize * BLOCK);
        let byte = self.oracle.attempt(first..first + count);
        buf.fill(byte);
        match self.random.random_range(0..10) {
            0..2 => {
                self.device.write_at(first * BLOCK_BYTES, &buf)?;
                self.oracle.completed(first..first + count, byte);
            }
            2..5 => {
                let written = self.device.write_durable_at(first * BLOCK_BYTES, &buf);
                self.latches(written)?;
                self.oracle.durable(first..first + count, byte);
            }
            5 => self.flush()?,
            6 => self.device.grow((capacity + 1).min(BLOCKS) * BLOCK_BYTES)?,
            _ => self.queued(first..first + count, byte, &buf)?,
        }
        Ok(())
    }

    /// Queues one write, or one for each block; half of the time flushes while they are in flight.
    fn queued(
        &mut self,
        blocks: std::ops::Range<u64>,
        byte: u8,
        buf: &BlockBuf,
    ) -> Result<(), DeviceError> {
        let mut result = Ok(());
        let len = if self.random.random() { BLOCK } else { buf.len() };
        for (number, bytes) in (0..).zip(buf.chunks(len)) {
            let offset = blocks.start * BLOCK_BYTES + number * len as u64;
            // SAFETY: `buf` is unchanged until all completions are reaped below.
            let submitted =
                unsafe { self.queue.submit(number, offset, bytes.as_ptr(), bytes.len()) };
            result = result.and(submitted);
        }
        if self.random.random() && result.is_ok() {
            result = self.latches(self.device.flush());
            if result.is_ok() {
                self.oracle.flushed(self.device.capacity_bytes(), blocks.clone(), byte);
            }
        }
        let mut out: Vec<Completion> = Vec::new();
        self.queue.wait(usize::MAX, &mut out)?;
        out.into_iter().map(|completion| completion.result).fold(result, Result::and)?;
        self.oracle.completed(blocks, byte);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.latches(self.device.flush())?;
        self.oracle.flushed(self.device.capacity_bytes(), 0..0, 0);
        Ok(())
    }

    /// Checks that the device takes nothing more after a failed sync.
    fn latches(&self, result: Result<(), DeviceError>) -> Result<(), DeviceError> {
        if result.is_err() {
            let later = self.device.flush();
            assert!(matches!(later, Err(DeviceError::Latched { .. })), "{later:?}");
        }
        result
    }
}
