//! One thread's work.

use std::io;
use std::time::{Duration, Instant};

use perdura_media::{BLOCK_BYTES, BlockBuf, Device, DeviceError};

use super::super::addresses::{BATCH, Slots};
use super::super::kernel::{Places, Run};
use super::super::workload::{Chain, Config, CustomOp, ExecMode, Memory, Operation, Persist};
use super::{Done, Shared, Span, ThreadRun, histogram};
use crate::machine::thread_cpu_ns;

/// A thread of a part, and what it has done.
pub(super) struct Worker<'a> {
    shared: &'a Shared<'a>,
    number: u64,
    operations: u64,
    bytes: u64,
    latency: Latency,
    pace: Option<Pace>,
    deadline: Option<Instant>,
    /// What goes to a device, and comes from it.
    buffer: Option<BlockBuf>,
    failed: Option<DeviceError>,
}

impl<'a> Worker<'a> {
    pub fn new(shared: &'a Shared<'a>, number: u64) -> Self {
        let config = shared.job.config;
        Self {
            shared,
            number,
            operations: 0,
            bytes: 0,
            latency: Latency::new(config.latency_sample_frequency),
            pace: Pace::of(config),
            deadline: None,
            buffer: shared.job.device.as_ref().map(|_| BlockBuf::zeroed(largest(config))),
            failed: None,
        }
    }

    /// On the processors that the job names.
    pub fn bind(&self) -> io::Result<()> {
        let Some(processors) = &self.shared.job.processors else { return Ok(()) };
        let mut set = rustix::thread::CpuSet::new();
        processors.iter().for_each(|processor| set.set(*processor));
        Ok(rustix::thread::sched_setaffinity(None, &set)?)
    }

    /// # Safety
    /// As [`super::run`].
    pub unsafe fn run(mut self) -> Result<Done, DeviceError> {
        let config = self.shared.job.config;
        let began_cpu_ns = thread_cpu_ns();
        let began = Instant::now();
        if config.run_time > 0 {
            self.deadline = Some(began + Duration::from_secs(config.run_time));
        }
        if let Some(pace) = &mut self.pace {
            pace.began = began;
        }
        // SAFETY: the caller's promise.
        unsafe {
            match (config.exec_mode, &config.custom_operations) {
                (ExecMode::Custom, Some(chain)) => self.chains(chain),
                (ExecMode::Random | ExecMode::Custom, _) => self.random(),
                (ExecMode::Trace, _) => self.replay(),
                (ExecMode::Sequential, _) => self.sequential(false),
                (ExecMode::SequentialDesc, _) => self.sequential(true),
            }
        }
        let ended = Instant::now();
        let run = ThreadRun {
            operations: self.operations,
            bytes: self.bytes,
            ns: (ended - began).as_nanos() as u64,
            cpu_ns: thread_cpu_ns() - began_cpu_ns,
        };
        match self.failed {
            Some(error) => Err(error),
            None => Ok(Done { began, ended, run, latency_ns: self.latency.sampled_ns }),
        }
    }

    /// How many operations may follow before the clock is looked at, of `left`.
    fn batch(&self, left: u64) -> usize {
        let paced = self.pace.as_ref().map_or(BATCH as u64, |pace| pace.batch);
        left.min(paced).min(BATCH as u64) as usize
    }

    /// After a batch: waits for its turn; false: the time is up, or the device failed.
    fn goes_on(&mut self) -> bool {
        if let Some(pace) = &mut self.pace {
            pace.wait(self.operations, self.deadline);
        }
        self.failed.is_none() && self.deadline.is_none_or(|deadline| Instant::now() < deadline)
    }

    /// # Safety
    /// As [`super::run`].
    unsafe fn sequential(&mut self, descending: bool) {
        let (shared, config) = (self.shared, self.shared.job.config);
        let step = config.access_size;
        let counter = (self.number / (config.number_threads / config.partitions())) as usize;
        let offset = counter as u64 * shared.partition_bytes;
        let base = shared.job.memory.base.wrapping_add(offset as usize);
        let last = shared.operations - 1;
        let step_bytes = if descending { -(step as isize) } else { step as isize };
        while let Some((first, count)) = shared.take(counter) {
            let mut done = 0;
            while done < count {
                let batch = self.batch(count - done);
                let ascending = first + done;
                let slot = if descending { last - ascending } else { ascending };
                let first = base.wrapping_add((slot * step) as usize);
                let places = Places::Run(Run { first, step_bytes, count: batch });
                // SAFETY: slots of the partition, whose bytes are there.
                unsafe {
                    self.access(places, step as usize, config.operation, Memory::Persistent);
                }
                done += batch as u64;
                if !self.goes_on() {
                    return;
                }
            }
        }
    }

    /// # Safety
    /// As [`super::run`].
    unsafe fn random(&mut self) {
        let (shared, config) = (self.shared, self.shared.job.config);
        let step = config.access_size;
        let mut memory = self.partition(shared.job.memory, config, 0);
        let mut dram = shared.job.dram.map(|dram| self.partition(dram, config, 1));
        let other = match config.operation {
            Operation::Read => Operation::Write,
            Operation::Write => Operation::Read,
        };
        let mut places = [shared.job.memory.base; BATCH];
        while let Some((_, count)) = shared.take(0) {
            let mut done = 0;
            while done < count {
                let batch = self.batch(count - done);
                // Those of a batch that go to DRAM, and those that do the other thing, one behind the other.
                let in_dram = memory.draws(batch, config.dram_operation_ratio);
                for (which, area, count) in [
                    (Memory::Persistent, Some(&mut memory), batch - in_dram),
                    (Memory::Dram, dram.as_mut(), in_dram),
                ] {
                    let Some(area) = area.filter(|_| count > 0) else { continue };
                    area.slots.fill(area.base, step, &mut places[..count]);
                    let others = area.draws(count, config.mixed_operation_ratio);
                    let (these, those) = places[..count].split_at(count - others);
                    // SAFETY: slots of the thread's part of the memory, whose bytes are there.
                    unsafe {
                        self.access(Places::Listed(these), step as usize, config.operation, which);
                        self.access(Places::Listed(those), step as usize, other, which);
                    }
                }
                done += batch as u64;
                if !self.goes_on() {
                    return;
                }
            }
        }
    }

    /// # Safety
    /// As [`super::run`].
    unsafe fn replay(&mut self) {
        let (shared, config) = (self.shared, self.shared.job.config);
        let Some(replay) = &shared.job.replay else { return };
        let part_bytes = shared.partition_bytes;
        let part = self.number / (config.number_threads / config.partitions());
        let base = shared.job.memory.base.wrapping_add((part * part_bytes) as usize);
        while let Some((first, count)) = shared.take(0) {
            let accesses = &replay.accesses()[first as usize..(first + count) as usize];
            for batch in accesses.chunks(self.batch(count).max(1)) {
                for access in batch {
                    let (offset, bytes) = access.within(part_bytes);
                    let place = [base.wrapping_add(offset as usize)];
                    let operation =
                        if access.is_write { Operation::Write } else { Operation::Read };
                    // SAFETY: inside the thread's part of the memory.
                    unsafe {
                        let place = Places::Listed(&place);
                        self.access(place, bytes as usize, operation, Memory::Persistent);
                    }
                }
                if !self.goes_on() {
                    return;
                }
            }
        }
    }

    /// The thread's part of some memory.
    fn partition(&self, span: Span, config: &Config, stream: u64) -> Area {
        let part_bytes = span.bytes / config.partitions();
        let part = self.number / (config.number_threads / config.partitions());
        Area {
            base: span.base.wrapping_add((part * part_bytes) as usize),
            slots: Slots::new(config, part_bytes / config.access_size, self.number, stream),
        }
    }

    /// One operation at each place; those whose time is taken, alone.
    ///
    /// # Safety
    /// So many bytes are at each place.
    #[inline]
    unsafe fn access(
        &mut self,
        places: Places<'_>,
        bytes: usize,
        operation: Operation,
        which: Memory,
    ) {
        let mut rest = places;
        while !rest.is_empty() {
            let plain = self.latency.until_sample.min(rest.len() as u64) as usize;
            let (these, others) = rest.split_at(plain);
            // SAFETY: the caller's.
            unsafe { self.all(these, bytes, operation, which) };
            self.latency.passed(plain as u64);
            rest = others;
            if !rest.is_empty() && self.latency.is_due() {
                let (sampled, others) = rest.split_at(1);
                let due = self.pace.as_ref().map(|pace| pace.due(self.operations));
                let began = Instant::now();
                let ticks = self.shared.clock.ticks();
                // SAFETY: the caller's.
                unsafe { self.all(sampled, bytes, operation, which) };
                self.sampled(ticks, began, due);
                rest = others;
            }
        }
    }

    /// # Safety
    /// As for [`Self::access`].
    #[inline]
    unsafe fn all(
        &mut self,
        places: Places<'_>,
        bytes: usize,
        operation: Operation,
        which: Memory,
    ) {
        let shared = self.shared;
        let (kernel, persist) = (&shared.job.kernel, shared.job.config.persist_instruction);
        match (which, shared.job.device.as_deref()) {
            (Memory::Persistent, Some(device)) => {
                places.for_each(|place| match operation {
                    Operation::Read => drop(self.device_read(device, place, bytes)),
                    Operation::Write => self.device_write(device, place, bytes, persist),
                });
            }
            // SAFETY: the caller's; the kernel was asked for this instruction.
            _ => unsafe {
                match operation {
                    Operation::Read => kernel.read_all(places, bytes),
                    Operation::Write => kernel.write_all(places, bytes, persist),
                }
            },
        }
        self.operations += places.len() as u64;
        self.bytes += (places.len() * bytes) as u64;
    }

    /// A read of a device; gives a word of what was read. Memory that stands for it is not mapped: a place is its offset.
    fn device_read(&mut self, device: &dyn Device, place: *mut u8, bytes: usize) -> u64 {
        let Some(buffer) = &mut self.buffer else { return 0 };
        let outcome = device.read_at(place.addr() as u64, &mut buffer[..bytes]);
        let mut word = [0; 8];
        word.copy_from_slice(&buffer[..8]);
        self.failed = self.failed.take().or(outcome.err());
        u64::from_ne_bytes(word)
    }

    /// A write to a device; durable before the next, if it is to be.
    fn device_write(
        &mut self,
        device: &dyn Device,
        place: *mut u8,
        bytes: usize,
        persist: Persist,
    ) {
        let Some(buffer) = &self.buffer else { return };
        let (offset, bytes) = (place.addr() as u64, &buffer[..bytes]);
        let outcome = match persist {
            Persist::None => device.write_at(offset, bytes),
            _ => device.write_durable_at(offset, bytes),
        };
        self.failed = self.failed.take().or(outcome.err());
    }

    fn sampled(&mut self, from_ticks: u64, began: Instant, due: Option<Instant>) {
        let clock = self.shared.clock;
        let ns = clock.ps(clock.ticks_behind().saturating_sub(from_ticks)) / 1000;
        // Of who should have come before, the wait counts: else a stall would hide those that it held up.
        let late = due.map_or(Duration::ZERO, |due| began.saturating_duration_since(due));
        self.latency.sampled(ns.saturating_add(late.as_nanos() as u64));
    }

    /// # Safety
    /// As [`super::run`].
    unsafe fn chains(&mut self, chain: &Chain) {
        let (shared, config) = (self.shared, self.shared.job.config);
        let mut memory = ChainArea::new(self, shared.job.memory, chain, Memory::Persistent);
        let mut dram = shared.job.dram.map(|dram| ChainArea::new(self, dram, chain, Memory::Dram));
        let bytes: u64 = chain.ops().iter().map(CustomOp::bytes).sum();
        let device = shared.job.device.as_deref();
        // Zero, which nobody but the processor at run time knows: so an address waits for what was read, and is what it was.
        let zero = std::hint::black_box(0u64);
        let mut read = 0;
        while let Some((_, count)) = shared.take(0) {
            let mut done = 0;
            while done < count {
                let batch = self.batch(count - done);
                for _ in 0..batch {
                    let timed = self.latency.is_due();
                    let due = self.pace.as_ref().filter(|_| timed).map(|p| p.due(self.operations));
                    let began = timed.then(Instant::now);
                    let ticks = if timed { shared.clock.ticks() } else { 0 };
                    for op in chain.ops() {
                        let area = match op.memory() {
                            Memory::Persistent => Some(&mut memory),
                            Memory::Dram => dram.as_mut(),
                        };
                        // Judged: a chain that names DRAM has some.
                        let Some(area) = area else { continue };
                        match op {
                            CustomOp::Read { bytes, .. } => {
                                area.go(*bytes, read & zero);
                                let (at, bytes) = (area.at, *bytes as usize);
                                read = match device.filter(|_| op.memory() == Memory::Persistent) {
                                    Some(device) => self.device_read(device, at, bytes),
                                    // SAFETY: the area holds the chain's reach from each of its slots.
                                    None => unsafe { shared.job.kernel.read_one(at, bytes) },
                                };
                            }
                            CustomOp::Write { bytes, persist, offset_bytes, .. } => {
                                area.at = area.at.wrapping_offset(*offset_bytes as isize);
                                let (at, bytes) = (area.at, *bytes as usize);
                                match device.filter(|_| op.memory() == Memory::Persistent) {
                                    Some(device) => self.device_write(device, at, bytes, *persist),
                                    // SAFETY: as above.
                                    None => unsafe { self.write(at, bytes, *persist) },
                                }
                            }
                        }
                    }
                    self.operations += 1;
                    self.bytes += bytes;
                    match began {
                        Some(began) => self.sampled(ticks, began, due),
                        None => self.latency.passed(1),
                    }
                }
                done += batch as u64;
                if !self.goes_on() {
                    return;
                }
            }
        }
        std::hint::black_box((read, config.seed));
    }

    /// # Safety
    /// `bytes` are at the place; the kernel was asked for the instruction.
    #[inline]
    unsafe fn write(&self, place: *mut u8, bytes: usize, persist: Persist) {
        // SAFETY: the caller's.
        unsafe {
            let places = Places::Listed(std::slice::from_ref(&place));
            self.shared.job.kernel.write_all(places, bytes, persist);
        }
    }
}

/// Bytes of the largest access.
fn largest(config: &Config) -> usize {
    let chain = config.custom_operations.as_ref();
    let largest = chain.and_then(|chain| chain.ops().iter().map(CustomOp::bytes).max());
    largest.unwrap_or(config.access_size).next_multiple_of(BLOCK_BYTES) as usize
}

/// A thread's part of a memory, for random access.
struct Area {
    base: *mut u8,
    slots: Slots,
}

impl Area {
    /// How many of `count` a share takes.
    fn draws(&mut self, count: usize, share: f64) -> usize {
        match share {
            share if share <= 0.0 => 0,
            share if share >= 1.0 => count,
            share => (0..count).filter(|_| self.slots.is_in(share)).count(),
        }
    }
}

/// A thread's part of a memory, for chains: where a chain begins there is room for all of it.
struct ChainArea {
    base: *mut u8,
    /// Bytes between the first place at which a read may begin and the last.
    room_bytes: u64,
    slots: Slots,
    /// Where the last access was.
    at: *mut u8,
}

impl ChainArea {
    fn new(worker: &Worker<'_>, span: Span, chain: &Chain, memory: Memory) -> Self {
        let config = worker.shared.job.config;
        let part_bytes = span.bytes / config.partitions();
        let part = worker.number / (config.number_threads / config.partitions());
        let (lowest, highest) = chain.reach(memory);
        let base = span.base.wrapping_add((part * part_bytes + lowest.unsigned_abs()) as usize);
        let room_bytes = part_bytes.saturating_sub(highest.abs_diff(lowest));
        let stream = if memory == Memory::Dram { 1 } else { 0 };
        // Lines: places of larger reads are the lines below them.
        let slots = Slots::new(config, room_bytes / LINE + 1, worker.number, stream);
        Self { base, room_bytes, slots, at: base }
    }

    /// To the next place of a read of `bytes`, a multiple of them if there is room for more than one; `after` is 0.
    #[inline]
    fn go(&mut self, bytes: u64, after: u64) {
        let offset = (self.slots.draw() * LINE).min(self.room_bytes) & !(bytes - 1);
        self.at = self.base.wrapping_add((offset + after) as usize);
    }
}

const LINE: u64 = super::super::workload::LINE_BYTES;

/// Times of one in so many operations.
struct Latency {
    every: u64,
    until_sample: u64,
    sampled_ns: hdrhistogram::Histogram<u64>,
}

impl Latency {
    fn new(every: u64) -> Self {
        let until_sample = if every == 0 { u64::MAX } else { every - 1 };
        Self { every, until_sample, sampled_ns: histogram() }
    }

    fn is_due(&self) -> bool {
        self.until_sample == 0
    }

    fn passed(&mut self, count: u64) {
        if self.every > 0 {
            self.until_sample -= count;
        }
    }

    fn sampled(&mut self, ns: u64) {
        self.sampled_ns.saturating_record(ns.max(1));
        self.until_sample = self.every - 1;
    }
}

/// A rate that a thread keeps to.
struct Pace {
    began: Instant,
    ns_per_operation: f64,
    /// Operations between two looks at the clock.
    batch: u64,
}

impl Pace {
    fn of(config: &Config) -> Option<Self> {
        if config.rate_limit == 0 {
            return None;
        }
        const LOOK_NS: f64 = 10_000.0;
        let ns_per_operation = config.number_threads as f64 * 1e9 / config.rate_limit as f64;
        let batch = (LOOK_NS / ns_per_operation).max(1.0) as u64;
        Some(Self { began: Instant::now(), ns_per_operation, batch })
    }

    /// When an operation should begin.
    fn due(&self, operation: u64) -> Instant {
        self.began + Duration::from_nanos((operation as f64 * self.ns_per_operation) as u64)
    }

    /// Until the next operation is due, or the time is up.
    fn wait(&self, operations: u64, deadline: Option<Instant>) {
        const SPIN: Duration = Duration::from_micros(100);
        let due = self.due(operations);
        let due = deadline.map_or(due, |deadline| due.min(deadline));
        let left = due.saturating_duration_since(Instant::now());
        if left > SPIN {
            std::thread::sleep(left - SPIN);
        }
        while Instant::now() < due {
            std::hint::spin_loop();
        }
    }
}
