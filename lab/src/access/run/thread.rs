//! The work of one thread.

use std::io;
use std::time::{Duration, Instant};

use perdura_media::{BLOCK_BYTES, BlockBuf, Device, DeviceError};

use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::super::addresses::{BATCH, ChainPlaces, Slots};
use super::super::kernel::{Places, Run};
use super::super::workload::{Chain, Config, CustomOp, ExecMode, Memory, Operation, Persist};
use super::{Done, Shared, Span, ThreadRun, histogram};
use perdura_bench::machine::thread_cpu_ns;

/// A thread of a part, and its work so far.
pub(super) struct Worker<'a> {
    shared: &'a Shared<'a>,
    number: u64,
    operations: u64,
    bytes: u64,
    latency: Latency,
    pace: Option<Pace>,
    deadline: Option<Instant>,
    /// Bytes after which the clock is read again.
    look_at_bytes: u64,
    areas: Areas,
    device: Option<Buffers>,
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
            look_at_bytes: 0,
            areas: Areas::new(shared, number),
            device: shared.job.device.as_ref().map(|_| Buffers::new(config, number)),
            failed: None,
        }
    }

    /// Binds this thread to the job's processors.
    pub fn bind(&self) -> io::Result<()> {
        let Some(processors) = &self.shared.job.processors else { return Ok(()) };
        let mut set = rustix::thread::CpuSet::new();
        processors.iter().for_each(|processor| set.set(*processor));
        Ok(rustix::thread::sched_setaffinity(None, &set)?)
    }

    /// Works until all is done or the time is up.
    ///
    /// # Safety
    /// As for [`super::run`].
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

    /// Number of operations of a size until the clock is read again: at most `left`, and at most
    /// [`BATCH`] if their places are listed.
    fn batch(&self, left: u64, operation_bytes: u64) -> u64 {
        let paced = self.pace.as_ref().map_or(u64::MAX, |pace| pace.batch);
        left.min(paced).min((LOOK_BYTES / operation_bytes.max(1)).max(1))
    }

    /// Called after a batch: waits for the thread's turn. False: the time is up, or the device
    /// failed.
    fn goes_on(&mut self) -> bool {
        if let Some(pace) = &mut self.pace {
            pace.wait(self.operations, self.deadline);
        }
        if self.failed.is_some() {
            return false;
        }
        let Some(deadline) = self.deadline else { return true };
        // Reading the clock costs as much as some accesses. Threads with a device or a rate are
        // slow enough to read it every time.
        if self.bytes < self.look_at_bytes && self.device.is_none() && self.pace.is_none() {
            return true;
        }
        self.look_at_bytes = self.bytes + LOOK_BYTES;
        Instant::now() < deadline
    }

    /// Sequential accesses.
    ///
    /// # Safety
    /// As for [`super::run`].
    unsafe fn sequential(&mut self, descending: bool) {
        let (shared, config) = (self.shared, self.shared.job.config);
        let step = config.access_size;
        let part = self.number / (config.number_threads / config.partitions());
        let offset = part * shared.partition_bytes;
        let base = shared.job.memory.base.wrapping_add(offset as usize);
        let last = shared.chunks.operations() - 1;
        let step_bytes = if descending { -(step as isize) } else { step as isize };
        while let Some((first, count)) = shared.chunks.take(self.number) {
            let mut done = 0;
            while done < count {
                let batch = self.batch(count - done, step);
                let ascending = first + done;
                let slot = if descending { last - ascending } else { ascending };
                let first = base.wrapping_add((slot * step) as usize);
                let places = Places::Run(Run { first, step_bytes, count: batch as usize });
                // SAFETY: slots of the partition, whose bytes are mapped.
                unsafe {
                    self.access(places, step as usize, config.operation, Memory::Persistent);
                }
                done += batch;
                if !self.goes_on() {
                    return;
                }
            }
        }
    }

    /// Random accesses.
    ///
    /// # Safety
    /// As for [`super::run`].
    unsafe fn random(&mut self) {
        let (shared, config) = (self.shared, self.shared.job.config);
        let step = config.access_size;
        let Areas::Random { mut memory, mut dram } = std::mem::take(&mut self.areas) else {
            return;
        };
        let (ratio, mixed) = (config.dram_operation_ratio, config.mixed_operation_ratio);
        let is_varied = |share: f64| share > 0.0 && share < 1.0;
        let is_varied = is_varied(ratio) || is_varied(mixed);
        let mut kinds = [(ratio >= 1.0, mixed >= 1.0); BATCH];
        let mut places = [shared.job.memory.base; BATCH];
        while let Some((_, count)) = shared.chunks.take(self.number) {
            let mut done = 0;
            while done < count {
                let batch = self.batch(count - done, step).min(BATCH as u64);
                if is_varied {
                    let slots = &mut memory.slots;
                    kinds.fill_with(|| (slots.is_in(ratio), slots.is_in(mixed)));
                }
                // Reads and writes follow each other as they were drawn; consecutive ones of a kind
                // are one call.
                let mut left = &kinds[..batch as usize];
                while let Some(kind) = left.first() {
                    let alike = if is_varied {
                        left.iter().take_while(|other| *other == kind).count()
                    } else {
                        left.len()
                    };
                    left = &left[alike..];
                    let (is_dram, is_other) = *kind;
                    let (which, area) = match (is_dram, &mut dram) {
                        (true, Some(dram)) => (Memory::Dram, dram),
                        _ => (Memory::Persistent, &mut memory),
                    };
                    let places = &mut places[..alike];
                    area.slots.fill(area.part.base, step, places);
                    let is_read = (config.operation == Operation::Read) != is_other;
                    let operation = if is_read { Operation::Read } else { Operation::Write };
                    // SAFETY: slots of the thread's part of the memory, whose bytes are mapped.
                    unsafe {
                        self.access(Places::Listed(places), step as usize, operation, which);
                    }
                }
                done += batch;
                if !self.goes_on() {
                    return;
                }
            }
        }
    }

    /// Accesses of a trace.
    ///
    /// # Safety
    /// As for [`super::run`].
    unsafe fn replay(&mut self) {
        let (shared, config) = (self.shared, self.shared.job.config);
        let Some(replay) = &shared.job.replay else { return };
        let part_bytes = shared.partition_bytes;
        let part = self.number / (config.number_threads / config.partitions());
        let base = shared.job.memory.base.wrapping_add((part * part_bytes) as usize);
        while let Some((first, count)) = shared.chunks.take(self.number) {
            let accesses = &replay.accesses()[first as usize..(first + count) as usize];
            for batch in accesses.chunks(self.batch(count, LOOK_BYTES / BATCH as u64) as usize) {
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

    /// One operation at each place; sampled ones run alone.
    ///
    /// # Safety
    /// This many bytes are mapped at each place.
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
            // SAFETY: the caller's promise.
            unsafe { self.all(these, bytes, operation, which) };
            self.latency.passed(plain as u64);
            rest = others;
            if !rest.is_empty() && self.latency.is_due() {
                let (sampled, others) = rest.split_at(1);
                let due = self.pace.as_ref().map(|pace| pace.due(self.operations));
                // Reading the system's clock waits for the accesses before it; reading the
                // processor's does not.
                let began = Instant::now();
                let ticks = self.shared.clock.ticks();
                // SAFETY: the caller's promise.
                unsafe { self.all(sampled, bytes, operation, which) };
                self.sampled(ticks, began, due);
                rest = others;
            }
        }
    }

    /// One operation at each place.
    ///
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
            // SAFETY: the caller's promise; the kernel was asked for this instruction.
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

    /// Reads from a device; returns a word of what was read. The span is not mapped: a place is an
    /// offset on the device.
    fn device_read(&mut self, device: &dyn Device, place: *mut u8, bytes: usize) -> u64 {
        let Some(Buffers { read, .. }) = &mut self.device else { return 0 };
        let outcome = device.read_at(place.addr() as u64, &mut read[..bytes]);
        let mut word = [0; 8];
        word.copy_from_slice(&read[..8]);
        self.failed = self.failed.take().or(outcome.err());
        u64::from_ne_bytes(word)
    }

    /// Writes to a device, durably if the persist setting says so.
    fn device_write(
        &mut self,
        device: &dyn Device,
        place: *mut u8,
        bytes: usize,
        persist: Persist,
    ) {
        let Some(Buffers { written, .. }) = &self.device else { return };
        let (offset, bytes) = (place.addr() as u64, &written[..bytes]);
        let outcome = match persist {
            Persist::None => device.write_at(offset, bytes),
            _ => device.write_durable_at(offset, bytes),
        };
        self.failed = self.failed.take().or(outcome.err());
    }

    fn sampled(&mut self, from_ticks: u64, began: Instant, due: Option<Instant>) {
        let clock = self.shared.clock;
        let ns = clock.ps(clock.ticks_behind().saturating_sub(from_ticks)) / 1000;
        // The wait of an operation that should have begun earlier counts: otherwise a stall would
        // hide the operations it held up.
        let late = due.map_or(Duration::ZERO, |due| began.saturating_duration_since(due));
        self.latency.sampled(ns.saturating_add(late.as_nanos() as u64));
    }

    /// Chains of accesses.
    ///
    /// # Safety
    /// As for [`super::run`].
    unsafe fn chains(&mut self, chain: &Chain) {
        let (shared, config) = (self.shared, self.shared.job.config);
        let Areas::Chain { mut memory, mut dram } = std::mem::take(&mut self.areas) else { return };
        let bytes: u64 = chain.ops().iter().map(CustomOp::bytes).sum();
        let device = shared.job.device.as_deref();
        // A zero that the compiler cannot know: a read word masked by it is 0, but only once the
        // read has returned, so an address that has it added waits for the read.
        let zero = std::hint::black_box(0u64);
        let mut read = 0;
        while let Some((_, count)) = shared.chunks.take(self.number) {
            let mut done = 0;
            while done < count {
                let batch = self.batch(count - done, bytes);
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
                        // The configuration was checked: a chain that names DRAM has some.
                        let Some(area) = area else { continue };
                        match op {
                            CustomOp::Read { bytes, .. } => {
                                area.go(read & zero);
                                let (at, bytes) = (area.place(), *bytes as usize);
                                read = match device.filter(|_| op.memory() == Memory::Persistent) {
                                    Some(device) => self.device_read(device, at, bytes),
                                    // SAFETY: the area has room for the chain's reach around each
                                    // of its slots.
                                    None => unsafe { shared.job.kernel.read_one(at, bytes) },
                                };
                            }
                            CustomOp::Write { bytes, persist, offset_bytes, .. } => {
                                area.at_bytes = area.at_bytes.wrapping_add_signed(*offset_bytes);
                                let (at, bytes) = (area.place(), *bytes as usize);
                                match device.filter(|_| op.memory() == Memory::Persistent) {
                                    Some(device) => self.device_write(device, at, bytes, *persist),
                                    // SAFETY: the area has room for the chain's reach around each
                                    // of its slots.
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
                done += batch;
                if !self.goes_on() {
                    return;
                }
            }
        }
        std::hint::black_box((read, config.seed));
    }

    /// One write.
    ///
    /// # Safety
    /// `bytes` are mapped at the place; the kernel was asked for the instruction.
    #[inline]
    unsafe fn write(&self, place: *mut u8, bytes: usize, persist: Persist) {
        // SAFETY: the caller's promise.
        unsafe {
            let places = Places::Listed(std::slice::from_ref(&place));
            self.shared.job.kernel.write_all(places, bytes, persist);
        }
    }
}

/// Bytes between two readings of the clock, and the most of one batch unless a single access is
/// larger.
const LOOK_BYTES: u64 = 256 << 10;

/// Buffers of a device's reads and writes; written bytes are noise, because a device may treat
/// zeros specially.
struct Buffers {
    read: BlockBuf,
    written: BlockBuf,
}

impl Buffers {
    fn new(config: &Config, thread: u64) -> Self {
        let chain = config.custom_operations.as_ref();
        let largest = chain.and_then(|chain| chain.ops().iter().map(CustomOp::bytes).max());
        let bytes = largest.unwrap_or(config.access_size).next_multiple_of(BLOCK_BYTES) as usize;
        let mut written = BlockBuf::zeroed(bytes);
        Xoshiro256PlusPlus::seed_from_u64(config.seed ^ thread << 32).fill_bytes(&mut written);
        Self { read: BlockBuf::zeroed(bytes), written }
    }
}

/// The thread's part of each memory, and its places there; computed before the time begins.
#[derive(Default)]
enum Areas {
    /// Places that follow from the operation's number.
    #[default]
    Counted,
    Random {
        memory: Area,
        dram: Option<Area>,
    },
    Chain {
        memory: ChainArea,
        dram: Option<ChainArea>,
    },
}

impl Areas {
    fn new(shared: &Shared<'_>, number: u64) -> Self {
        let (job, config) = (shared.job, shared.job.config);
        let partitions = config.partitions();
        let part = |span: Span| {
            let bytes = span.bytes / partitions;
            let before = number / (config.number_threads / partitions) * bytes;
            Span { base: span.base.wrapping_add(before as usize), bytes }
        };
        let area = |span: Span, stream| {
            let part = part(span);
            let slots = Slots::new(config, part.bytes / config.access_size, number, stream);
            Area { part, slots }
        };
        match (config.exec_mode, &config.custom_operations) {
            (ExecMode::Custom, Some(chain)) => {
                let area = |span: Span, memory| {
                    let part = part(span);
                    let places = ChainPlaces::new(config, chain, memory, part.bytes, number);
                    ChainArea { part, places, at_bytes: 0, after: 0 }
                };
                Self::Chain {
                    memory: area(job.memory, Memory::Persistent),
                    dram: job.dram.map(|dram| area(dram, Memory::Dram)),
                }
            }
            (ExecMode::Random, _) => Self::Random {
                memory: area(job.memory, 0),
                dram: job.dram.map(|dram| area(dram, 1)),
            },
            _ => Self::Counted,
        }
    }
}

/// The area of random accesses.
struct Area {
    part: Span,
    slots: Slots,
}

/// The area of chains.
struct ChainArea {
    part: Span,
    places: ChainPlaces,
    /// Offset of the last access, bytes.
    at_bytes: u64,
    /// 0, known only once the last read has returned.
    after: u64,
}

impl ChainArea {
    /// Goes to the place of the next read; `after` is 0.
    #[inline]
    fn go(&mut self, after: u64) {
        // The configuration was checked: a memory that is read here has places.
        self.at_bytes = self.places.next_read().unwrap_or(0);
        self.after = after;
    }

    #[inline]
    fn place(&self) -> *mut u8 {
        // The word that the address waits for is added last: all else is computed before.
        self.part.base.wrapping_add(self.at_bytes as usize).wrapping_add(self.after as usize)
    }
}

/// Times of sampled operations.
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
    /// Operations between two readings of the clock.
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

    /// Waits until the next operation is due, or the time is up.
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
