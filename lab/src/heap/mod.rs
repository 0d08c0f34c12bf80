//! `perdura-lab heap`: allocators under churn, and transactions, each contestant in a process of
//! its own, all in one run.
//!
//! A worker (`worker`) keeps its objects over the whole run and does a short round when ordered;
//! every second round has the contestants in reverse order, so that other work on the machine
//! disturbs all of them. Each number of threads has new workers. Flushes are counted by further
//! workers, which are not timed. A rival whose library is missing or does not work is left out, and
//! named with the reason.

pub mod churn;
mod compare;
pub mod contestant;
mod harness;
pub mod library;
mod process;
pub mod protocol;
mod recovery;
pub mod result;
mod round;
mod sys;
mod worker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use thiserror::Error;

use churn::{Sizes, Touch};
use contestant::Who;
pub use process::WorkerCommand;
use protocol::{Answer, Setup};
use result::{Configuration, HeapResult, OfThreads};
use round::Field;
pub use worker::{WorkerError, work};

use perdura_bench::machine::{Machine, memory_available_bytes};

/// Most live objects of a counting worker: counts do not depend on their number.
const COUNTED_OBJECTS_MAX: usize = 100_000;
/// Operations that are counted.
const COUNTED_OPERATIONS: u64 = 20_000;
/// Added to twice the size of the objects, this is the size of a heap.
const HEAP_EXTRA_BYTES: u64 = 256 << 20;
/// Memory that a worker needs besides objects.
const WORKER_BYTES: u64 = 32 << 20;

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct HeapSettings {
    /// How workers are started.
    pub worker: WorkerCommand,
    /// Live objects of all threads together.
    pub objects: usize,
    /// Sizes of the objects.
    pub sizes: Sizes,
    /// Bytes that are written into a new object.
    pub touch: Touch,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Rounds of each contestant.
    pub rounds: usize,
    /// Duration of a round.
    pub round: Duration,
    /// Objects that each contestant replaces before the first round.
    pub warm_pairs: u64,
    /// Seed of all random streams.
    pub seed: u64,
    /// Folder for the heaps' files, in memory.
    pub dir: PathBuf,
    /// Folders that may have rivals' libraries.
    pub folders: Vec<PathBuf>,
}

/// Why a run has no result.
#[derive(Debug, Error)]
pub enum HeapBenchError {
    /// A worker cannot be started, or the pipe to it failed.
    #[error("worker of {}: {cause}", who.name())]
    Pipe {
        /// The worker's contestant.
        who: Who,
        /// The system's reason.
        cause: std::io::Error,
    },
    /// A worker ended before its last order.
    #[error("worker of {} ended with {status}", who.name())]
    Ended {
        /// The worker's contestant.
        who: Who,
        /// The worker's exit status.
        status: ExitStatus,
    },
    /// A contestant failed.
    #[error("{}: {cause}", who.name())]
    Failed {
        /// The contestant.
        who: Who,
        /// The worker's message.
        cause: String,
    },
    /// A worker's answer does not fit its order.
    #[error("worker of {}: the answer does not fit the order: {answer:?}", who.name())]
    Answer {
        /// The worker's contestant.
        who: Who,
        /// The worker's answer.
        answer: Box<Answer>,
    },
    /// The workers together do not fit into memory.
    #[error(
        "{workers} contestants of {objects} objects take about {} MiB of memory, {} MiB are free: \
         give fewer objects",
        need_bytes >> 20,
        available_bytes >> 20
    )]
    Memory {
        /// Workers at a time.
        workers: usize,
        /// Objects of each worker.
        objects: usize,
        /// Bytes that they need.
        need_bytes: u64,
        /// Bytes that are available.
        available_bytes: u64,
    },
    /// A heap that was opened again has not as many objects as it was left with.
    #[error("a heap whose process was killed with {expected} objects has {objects} after opening")]
    Lost {
        /// Objects that were allocated.
        expected: u64,
        /// Objects that were found.
        objects: u64,
    },
    /// A file that should hold a heap was treated as a new one.
    #[error("{}: no heap was found in it after its process was killed", file.display())]
    NotReopened {
        /// Path of the file.
        file: PathBuf,
    },
    /// The folder for heaps cannot be used.
    #[error("folder for heaps {}: {cause}", dir.display())]
    Dir {
        /// Path of the folder.
        dir: PathBuf,
        /// The system's reason.
        cause: std::io::Error,
    },
}

/// Runs everything; `progress` is told the step, the steps done, and the number of steps.
///
/// # Errors
/// One of Perdura's own contestants fails, a rival fails in the middle of its rounds, or there is
/// too little memory.
pub fn run(
    settings: &HeapSettings,
    progress: &dyn Fn(&str, u64, u64),
) -> Result<HeapResult, HeapBenchError> {
    let machine = Machine::here();
    enough_memory(settings)?;
    let dir = tempfile::Builder::new()
        .prefix("perdura-bench-heap-")
        .tempdir_in(&settings.dir)
        .map_err(|cause| HeapBenchError::Dir { dir: settings.dir.clone(), cause })?;
    let steps = Steps::new(settings, progress);
    let mut threads = BTreeMap::new();
    for count in &settings.threads {
        let setup = |who| setup(settings, who, *count, dir.path().to_owned());
        threads.insert(*count, of_threads(settings, &setup, &steps)?);
    }
    Ok(HeapResult { kind: "heap".into(), machine, configuration: configuration(settings), threads })
}

fn of_threads(
    settings: &HeapSettings,
    setup: &dyn Fn(Who) -> Setup,
    steps: &Steps<'_>,
) -> Result<OfThreads, HeapBenchError> {
    let mut field = Field::default();
    for who in Who::ALL {
        steps.next(&format!("{}: populating", who.name()));
        field.enter(settings, setup(who))?;
    }
    field.remember_memory(false)?;
    for round in 0..=settings.rounds {
        field.round(round, settings.round, &|| steps.next("rounds"))?;
    }
    field.remember_memory(true)?;
    let mut found = field.finish();
    for who in Who::ALL.into_iter().filter(|who| who.counts()) {
        steps.next(&format!("{}: counting flushes", who.name()));
        if !found.is_missing(who) {
            let objects = settings.objects.min(COUNTED_OBJECTS_MAX);
            let setup = Setup { objects, is_counting: true, ..setup(who) };
            round::count(settings, setup, COUNTED_OPERATIONS, found.figures_of(who))?;
        }
    }
    for objects in recovery::sizes(settings.objects) {
        steps.next("opening again after a kill");
        let heap_bytes = heap_bytes(settings, objects);
        let setup = Setup { objects, heap_bytes, ..setup(Who::Perdura) };
        found.recovery.push(recovery::measure(settings, setup)?);
    }
    if let Some(largest) = found.recovery.last() {
        let (all, each) = (largest.objects_per_s, largest.objects_per_s_per_thread);
        found.figures.insert("recovery_objects_per_s".into(), all);
        found.figures.insert("recovery_objects_per_s_per_thread".into(), each);
    }
    compare::compare(&mut found);
    Ok(found)
}

fn setup(settings: &HeapSettings, who: Who, threads: usize, dir: PathBuf) -> Setup {
    let names = library::names(who);
    Setup {
        who,
        library: names.and_then(|(names, _)| library::find(names, &settings.folders)),
        threads,
        objects: settings.objects,
        sizes: settings.sizes,
        touch: settings.touch,
        seed: settings.seed,
        dir,
        heap_bytes: heap_bytes(settings, settings.objects),
        keep: None,
        is_counting: false,
    }
}

fn objects_bytes(settings: &HeapSettings, objects: usize) -> u64 {
    // Allocators need more for the smallest objects than was asked for.
    objects as u64 * (settings.sizes.mean_bytes() + 32)
}

fn heap_bytes(settings: &HeapSettings, objects: usize) -> u64 {
    2 * objects_bytes(settings, objects) + HEAP_EXTRA_BYTES
}

fn enough_memory(settings: &HeapSettings) -> Result<(), HeapBenchError> {
    let workers = Who::ALL.len();
    let need_bytes =
        (objects_bytes(settings, settings.objects) * 5 / 4 + WORKER_BYTES) * workers as u64;
    match memory_available_bytes() {
        Some(available_bytes) if available_bytes < need_bytes => Err(HeapBenchError::Memory {
            workers,
            objects: settings.objects,
            need_bytes,
            available_bytes,
        }),
        _ => Ok(()),
    }
}

fn configuration(settings: &HeapSettings) -> Configuration {
    let kernel = |name: &str| {
        let path = format!("/sys/kernel/mm/transparent_hugepage/{name}");
        let text = std::fs::read_to_string(path).ok()?;
        let (_, chosen) = text.split_once('[')?;
        chosen.split_once(']').map(|(chosen, _)| chosen.to_owned())
    };
    Configuration {
        objects: settings.objects,
        sizes: settings.sizes,
        touch: settings.touch,
        rounds: settings.rounds,
        round_ns: settings.round.as_nanos() as u64,
        warm_pairs: settings.warm_pairs,
        seed: settings.seed,
        dir: settings.dir.display().to_string(),
        huge_pages: kernel("enabled"),
        huge_pages_shared: kernel("shmem_enabled"),
    }
}

/// Counts the steps for the progress function.
struct Steps<'p> {
    progress: &'p dyn Fn(&str, u64, u64),
    done: std::cell::Cell<u64>,
    all: u64,
}

impl<'p> Steps<'p> {
    fn new(settings: &HeapSettings, progress: &'p dyn Fn(&str, u64, u64)) -> Self {
        let timed: usize = Who::ALL.iter().map(|who| who.measures().len()).sum();
        let counting = Who::ALL.iter().filter(|who| who.counts()).count();
        let each = Who::ALL.len() + (settings.rounds + 1) * timed + counting + recovery::SIZES;
        Self { progress, done: 0.into(), all: (each * settings.threads.len()) as u64 }
    }

    fn next(&self, step: &str) {
        (self.progress)(step, self.done.get(), self.all);
        self.done.set(self.done.get() + 1);
    }
}
