//! Runs the threads of a benchmark: they take chunks of work until none is left or the time is up.
//!
//! All threads of all parts begin together. Each goes through its work in batches of places;
//! between batches it reads the clock, keeps to its rate, and chooses operations to sample. A
//! sampled operation runs alone, between two readings of the processor's clock.

#[cfg(test)]
mod tests;
mod thread;

use std::sync::Arc;
use std::time::Instant;

use hdrhistogram::Histogram;
use parking_lot::{Condvar, Mutex};
use perdura_media::emulator::Tsc;
use perdura_media::{Device, DeviceError};

use super::chunks::Chunks;
use super::kernel::Kernel;
use super::replay::Replay;
use super::workload::Config;
use thread::Worker;

/// Memory that several threads access at once, by assembly and atomic words only. Rust holds no
/// references into it.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Address of the first byte, a multiple of 64.
    pub base: *mut u8,
    /// Length of the memory.
    pub bytes: u64,
}

// SAFETY: an address; each access to the memory has its own argument.
unsafe impl Send for Span {}
// SAFETY: an address; each access to the memory has its own argument.
unsafe impl Sync for Span {}

/// One part, ready to run.
pub struct Job<'a> {
    /// Settings of the part.
    pub config: &'a Config,
    /// Instructions that load and store.
    pub kernel: Kernel,
    /// Memory of `memory_range` bytes; for a device, its offsets, where nothing is mapped.
    pub memory: Span,
    /// The device that is accessed instead of memory.
    pub device: Option<Arc<dyn Device>>,
    /// Memory of `dram_memory_range` bytes, if any.
    pub dram: Option<Span>,
    /// The trace that is replayed, with exec_mode trace.
    pub replay: Option<Arc<Replay>>,
    /// Processors for the threads; none: any.
    pub processors: Option<Vec<usize>>,
}

/// The work of one thread.
#[derive(Debug, Clone)]
pub struct ThreadRun {
    /// Number of operations; for custom access, of chains.
    pub operations: u64,
    /// Bytes accessed.
    pub bytes: u64,
    /// Time from the first operation to the last, nanoseconds.
    pub ns: u64,
    /// Processor time, nanoseconds.
    pub cpu_ns: u64,
}

/// The work of one part.
#[derive(Debug, Clone)]
pub struct PartRun {
    /// Time from the first thread's first operation to the last thread's last one, nanoseconds.
    pub ns: u64,
    /// The work of each thread.
    pub threads: Vec<ThreadRun>,
    /// Times of sampled operations, nanoseconds.
    pub latency_ns: Histogram<u64>,
}

impl PartRun {
    /// Bytes of all threads.
    pub fn bytes(&self) -> u64 {
        self.threads.iter().map(|thread| thread.bytes).sum()
    }

    /// Operations of all threads.
    pub fn operations(&self) -> u64 {
        self.threads.iter().map(|thread| thread.operations).sum()
    }
}

/// Why a run did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum ThreadsError {
    /// A thread cannot be started, or not on its processors.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Data that the threads of one part share.
struct Shared<'a> {
    job: &'a Job<'a>,
    chunks: Chunks,
    partition_bytes: u64,
    clock: Tsc,
}

impl<'a> Shared<'a> {
    fn new(job: &'a Job<'a>) -> Self {
        let accesses = job.replay.as_ref().map_or(0, |replay| replay.accesses().len() as u64);
        Self {
            job,
            chunks: Chunks::new(job.config, accesses),
            partition_bytes: job.config.memory_range / job.config.partitions(),
            clock: Tsc::calibrated(),
        }
    }
}

/// Holds the threads back until all have started.
#[derive(Default)]
struct Gate {
    /// Whether to go on, once that is known.
    opened: Mutex<Option<bool>>,
    told: Condvar,
}

impl Gate {
    fn open(&self, go: bool) {
        *self.opened.lock() = Some(go);
        self.told.notify_all();
    }

    fn wait(&self) -> bool {
        let mut opened = self.opened.lock();
        loop {
            match *opened {
                Some(go) => return go,
                None => self.told.wait(&mut opened),
            }
        }
    }
}

/// Runs parts together, each for `run_time` seconds or until its work is done.
///
/// # Errors
/// [`ThreadsError`].
///
/// # Safety
/// Each job's spans stay mapped, are as long as its configuration says, and no reference reaches
/// into them; its kernel was asked for all persist settings of the configuration.
pub unsafe fn run(jobs: &[Job<'_>]) -> Result<Vec<PartRun>, ThreadsError> {
    let shared: Vec<Shared<'_>> = jobs.iter().map(Shared::new).collect();
    let gate = Gate::default();
    std::thread::scope(|scope| {
        let mut parts = Vec::new();
        for shared in &shared {
            let spawn = |number| {
                let (worker, gate) = (Worker::new(shared, number), &gate);
                let body = move || {
                    let bound = worker.bind();
                    gate.wait().then(|| {
                        bound?;
                        // SAFETY: the caller's promise.
                        Ok::<_, ThreadsError>(unsafe { worker.run() }?)
                    })
                };
                let thread = std::thread::Builder::new().name(format!("access-{number}"));
                thread.stack_size(STACK_BYTES).spawn_scoped(scope, body)
            };
            let part: Vec<_> = (0..shared.job.config.number_threads).map(spawn).collect();
            parts.push(part);
        }
        gate.open(parts.iter().flatten().all(Result::is_ok));
        let mut runs = Vec::new();
        for part in parts {
            let mut done = Vec::new();
            for thread in part {
                let ended = thread?.join();
                let ended = ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                done.extend(ended.transpose()?);
            }
            runs.push(gathered(done));
        }
        Ok(runs)
    })
}

const STACK_BYTES: usize = 256 << 10;

/// The results that a thread hands over.
struct Done {
    began: Instant,
    ended: Instant,
    run: ThreadRun,
    latency_ns: Histogram<u64>,
}

fn gathered(done: Vec<Done>) -> PartRun {
    let began = done.iter().map(|done| done.began).min();
    let ended = done.iter().map(|done| done.ended).max();
    let ns = began.zip(ended).map_or(0, |(began, ended)| (ended - began).as_nanos() as u64);
    let mut latency_ns = histogram();
    for done in &done {
        // All histograms have the same bounds, so none is refused.
        let _ = latency_ns.add(&done.latency_ns);
    }
    PartRun { ns, threads: done.into_iter().map(|done| done.run).collect(), latency_ns }
}

/// A histogram from 1 ns to a minute, three digits.
pub(super) fn histogram() -> Histogram<u64> {
    const LATENCY_MAX_NS: u64 = 60_000_000_000;
    let Ok(histogram) = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3) else {
        unreachable!("bounds and digits that a histogram can have")
    };
    histogram
}
