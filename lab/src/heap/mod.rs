//! `perdura-lab heap`: allocators under churn, and transactions, each contestant in a process of its own,
//! all in one run.
//!
//! A worker (`worker`) keeps its objects over the whole run and does a short round when told to;
//! rounds go around the contestants, in the other order every other time, so that what the machine
//! does besides meets all. For each number of threads there are new workers. Flushes are counted by
//! further workers, which are not timed. A rival whose library is not there, or does not work, is
//! named with the reason and left out.

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

/// Live objects of a counting worker, at most: counts do not depend on how many there are.
const COUNTED_OBJECTS_MAX: usize = 100_000;
/// Operations that are counted.
const COUNTED_OPERATIONS: u64 = 20_000;
/// Heaps are given twice what the objects need, and this.
const HEAP_EXTRA_BYTES: u64 = 256 << 20;
/// What a worker needs beside objects.
const WORKER_BYTES: u64 = 32 << 20;

/// What to measure.
#[derive(Debug, Clone)]
pub struct HeapSettings {
    /// How workers are started.
    pub worker: WorkerCommand,
    /// Live objects of all threads.
    pub objects: usize,
    /// Their sizes.
    pub sizes: Sizes,
    /// What is written into a new object.
    pub touch: Touch,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Rounds of each contestant.
    pub rounds: usize,
    /// Time of a round.
    pub round: Duration,
    /// Pairs of each contestant before the first round.
    pub warm_pairs: u64,
    /// Seed of all streams.
    pub seed: u64,
    /// Folder for heaps, in memory.
    pub dir: PathBuf,
    /// Folders that may have rivals' libraries.
    pub folders: Vec<PathBuf>,
}

/// Why nothing could be measured.
#[derive(Debug, Error)]
pub enum HeapBenchError {
    /// A worker cannot be started or spoken to.
    #[error("worker of {}: {cause}", who.name())]
    Pipe {
        /// Whose.
        who: Who,
        /// Why.
        cause: std::io::Error,
    },
    /// A worker ended in the middle.
    #[error("worker of {} ended with {status}", who.name())]
    Ended {
        /// Whose.
        who: Who,
        /// How.
        status: ExitStatus,
    },
    /// A contestant failed.
    #[error("{}: {cause}", who.name())]
    Failed {
        /// Who.
        who: Who,
        /// In the worker's words.
        cause: String,
    },
    /// A worker answered something else than it was asked.
    #[error("worker of {} answered out of turn: {answer:?}", who.name())]
    Answer {
        /// Whose.
        who: Who,
        /// What it said.
        answer: Box<Answer>,
    },
    /// Workers together would not fit the memory.
    #[error(
        "{workers} contestants of {objects} objects take about {} MiB of memory, {} MiB are free: give fewer objects",
        need_bytes >> 20,
        available_bytes >> 20
    )]
    Memory {
        /// Workers at a time.
        workers: usize,
        /// Objects of each.
        objects: usize,
        /// What they take.
        need_bytes: u64,
        /// What there is.
        available_bytes: u64,
    },
    /// A heap was opened again with another number of objects than it was left with.
    #[error("a heap that was killed with {expected} objects has {objects}")]
    Lost {
        /// Allocated before.
        expected: u64,
        /// Found.
        objects: u64,
    },
    /// A heap's file held none when it was opened again.
    #[error("{}: no heap was found in it after its process was killed", file.display())]
    NotReopened {
        /// Which.
        file: PathBuf,
    },
    /// The folder for heaps cannot be used.
    #[error("folder for heaps {}: {cause}", dir.display())]
    Dir {
        /// Which.
        dir: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
}

/// Measures; `progress` is told the step, steps done and steps in all.
///
/// # Errors
/// Perdura's own contestants fail, a rival fails in the middle of its rounds, or there is too
/// little memory.
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
    // The smallest objects take more than was asked for.
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

/// Steps done, for who waits.
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
