//! A benchmark's threads: they take chunks of work until there is none, or the time is up.
//!
//! All threads of all parts begin together. Each goes through its work in batches of places;
//! between batches it looks at the clock, at its rate, and for an operation whose time is to be
//! taken. A sampled operation runs alone, between two readings of the processor's clock.

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

/// Memory that is accessed, by several threads at once: by assembly and atomic words only. Rust
/// holds no references into it.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// At a multiple of 64 B.
    pub base: *mut u8,
    /// How much.
    pub bytes: u64,
}

// SAFETY: an address; whoever accesses what lies there argues for it.
unsafe impl Send for Span {}
// SAFETY: as for Send.
unsafe impl Sync for Span {}

/// One part, ready to run.
pub struct Job<'a> {
    /// Its settings.
    pub config: &'a Config,
    /// Loads and stores.
    pub kernel: Kernel,
    /// `memory_range` bytes; of a device, their places from its beginning, where nothing is mapped.
    pub memory: Span,
    /// What is read and written in the place of memory.
    pub device: Option<Arc<dyn Device>>,
    /// `dram_memory_range` bytes, if any.
    pub dram: Option<Span>,
    /// What is done again, with exec_mode trace.
    pub replay: Option<Arc<Replay>>,
    /// Processors that its threads may use; none: all.
    pub processors: Option<Vec<usize>>,
}

/// What one thread did.
#[derive(Debug, Clone)]
pub struct ThreadRun {
    /// Operations; of custom access, chains.
    pub operations: u64,
    /// Bytes accessed.
    pub bytes: u64,
    /// From its first operation to its last, nanoseconds.
    pub ns: u64,
    /// Processor time, nanoseconds.
    pub cpu_ns: u64,
}

/// What one part did.
#[derive(Debug, Clone)]
pub struct PartRun {
    /// From the first thread's first operation to the last one's last, nanoseconds.
    pub ns: u64,
    /// Each thread.
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
    /// Threads that cannot be had, or not on those processors.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// A device that failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// What threads of one part share.
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

/// Where threads wait until all are there.
#[derive(Default)]
struct Gate {
    /// Whether to go through, once that is known.
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

/// Runs parts together, each `run_time` seconds or until its work is done.
///
/// # Errors
/// [`ThreadsError`].
///
/// # Safety
/// Each job's spans stay mapped, are as long as its configuration says, are reached by no
/// reference; and its kernel was asked for what its configuration does.
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

/// What a thread hands over.
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
        // The same bounds everywhere: nothing is refused.
        let _ = latency_ns.add(&done.latency_ns);
    }
    PartRun { ns, threads: done.into_iter().map(|done| done.run).collect(), latency_ns }
}

/// From 1 ns to a minute, three digits.
pub(super) fn histogram() -> Histogram<u64> {
    const LATENCY_MAX_NS: u64 = 60_000_000_000;
    let Ok(histogram) = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3) else {
        unreachable!("bounds and digits that a histogram can have")
    };
    histogram
}
