//! The real structure beside the patterns: the index of Perdura's store, looked up and updated by
//! threads that each have their own records.

use std::path::Path;
use std::time::{Duration, Instant};

use perdura_media::file::{Direct, Engine};
use perdura_region::Config;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::figures::{StructureFigure, median};
use super::waits::Waits;
use perdura_bench::machine::thread_cpu_ns;
use perdura_bench::target::{Key, Outcome, StoreOptions, StoreTarget, Target, TargetError, Write};
use perdura_bench::workload::{Layout, RecordKind};

/// Size of a value: with its key and the store's own bytes, about three lines.
const VALUE_BYTES: usize = 100;
/// Most bytes of a record besides its own.
const RECORD_OVERHEAD_BYTES: u64 = 156;
const FLOOR_BYTES: u64 = 64 << 20;
/// Records of a thread whose index and values fit the nearest caches.
const CACHED_RECORDS: u64 = 128;
/// Lanes of both stores, whatever their size: with fewer lanes threads of the small store would
/// wait for each other's locks, and that would count as work without memory.
const LANES: u16 = 64;
/// Operations between two readings of the clock.
const BATCH: u64 = 64;

/// How the store is measured.
#[derive(Debug, Clone)]
pub(super) struct StoreMeasuring<'a> {
    pub dir: &'a Path,
    pub records: u64,
    pub rounds: usize,
    pub slice: Duration,
    pub threads: Vec<u64>,
    pub seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Lookup,
    Update,
}

impl Work {
    const ALL: [Self; 2] = [Self::Lookup, Self::Update];

    fn name(self) -> &'static str {
        match self {
            Self::Lookup => "perdura store: lookup",
            Self::Update => "perdura store: update",
        }
    }
}

/// Figures of all threads in a slice of time.
#[derive(Default)]
struct Slice {
    operations: u64,
    cpu_ns: u64,
    elapsed_s: f64,
}

impl Slice {
    fn per_s(&self) -> f64 {
        self.operations as f64 / self.elapsed_s.max(1e-9)
    }

    fn cpu_ns_each(&self) -> f64 {
        self.cpu_ns as f64 / self.operations.max(1) as f64
    }

    /// Share of its time in which each of a number of threads had a processor.
    fn cpu_share(&self, threads: u64) -> f64 {
        (self.cpu_ns as f64 / 1e9 / (self.elapsed_s * threads as f64).max(1e-9)).min(1.0)
    }
}

impl StoreMeasuring<'_> {
    /// Number of steps that [`Self::figures`] reports.
    pub fn steps(&self) -> u64 {
        2 + (Work::ALL.len() * self.threads.len() * self.rounds) as u64
    }

    /// Lookups and updates with each number of threads.
    ///
    /// # Errors
    /// The store cannot be had, or refuses an operation.
    pub fn figures(&self, told: &dyn Fn(&str)) -> Result<Vec<StructureFigure>, TargetError> {
        let all = self.loaded(self.records)?;
        told("perdura store: loaded");
        let threads_max = self.threads.iter().copied().max().unwrap_or(1);
        let cached = self.loaded(CACHED_RECORDS * threads_max)?;
        told("perdura store: loaded");
        let mut figures = Vec::new();
        for work in Work::ALL {
            for threads in &self.threads {
                let mut waits = Waits::open().ok();
                let [mut per_s, mut cpu_ns, mut cached_cpu_ns, mut cpu_share, mut counted] =
                    [(); 5].map(|()| Vec::new());
                for round in 0..self.rounds as u64 {
                    let seed = self.seed + round;
                    let records = CACHED_RECORDS * threads;
                    let near = slice(&cached, records, work, *threads, self.slice / 4, seed)?;
                    cached_cpu_ns.push(near.cpu_ns_each());
                    // Counts of the run in the caches are not used.
                    waits.as_mut().and_then(Waits::share_since);
                    let far = slice(&all, self.records, work, *threads, self.slice, seed)?;
                    counted.extend(waits.as_mut().and_then(Waits::share_since));
                    per_s.push(far.per_s());
                    cpu_ns.push(far.cpu_ns_each());
                    cpu_share.push(far.cpu_share(*threads));
                    told(work.name());
                }
                figures.push(StructureFigure {
                    name: work.name().into(),
                    is_real: true,
                    threads: *threads,
                    per_s,
                    gib_per_s: Vec::new(),
                    cpu_share: median(&cpu_share),
                    cpu_ns: median(&cpu_ns),
                    cached_cpu_ns: median(&cached_cpu_ns),
                    counted_share: (!counted.is_empty()).then(|| median(&counted)),
                });
            }
        }
        Ok(figures)
    }

    /// All memory may be dirty, so nothing is written to the image while the store is measured.
    fn options(&self, records: u64) -> StoreOptions {
        let bytes = records * (layout().record_bytes() + RECORD_OVERHEAD_BYTES) * 2 + FLOOR_BYTES;
        let memory_bytes = bytes.next_multiple_of(1 << 20);
        StoreOptions {
            dir: self.dir.to_owned(),
            config: Config {
                reserved_bytes: Some(memory_bytes),
                lanes: Some(LANES),
                checkpoint_every: None,
                seed: self.seed,
                ..Config::new(memory_bytes, memory_bytes)
            },
            engine: Engine::Auto,
            direct: Direct::Auto,
            flush_threads: 1,
            commit_each: false,
        }
    }

    /// A store that has this many records.
    fn loaded(&self, records: u64) -> Result<StoreTarget, TargetError> {
        let layout = layout();
        let target = StoreTarget::create(&self.options(records), layout.clone())?;
        let mut session = target.session(1)?;
        let mut key = Vec::new();
        for number in 0..records {
            layout.write_key(number, &mut key);
            session.insert(Key { number, bytes: &key }, &[&[b'v'; VALUE_BYTES]])?;
        }
        drop(session);
        Ok(target)
    }
}

fn layout() -> Layout {
    Layout::new(RecordKind::String, 1, VALUE_BYTES, true).with_short_keys()
}

/// Runs all threads for a time, each on its own share of the records.
fn slice(
    target: &StoreTarget,
    records: u64,
    work: Work,
    threads: u64,
    time: Duration,
    seed: u64,
) -> Result<Slice, TargetError> {
    let began = Instant::now();
    let share = (records / threads).max(1);
    let thread = |number: u64| -> Result<Slice, TargetError> {
        let layout = layout();
        let mut session = target.session(1)?;
        let mut random = Random::seed_from_u64(seed ^ number << 32);
        let (mut key, mut operations) = (Vec::new(), 0);
        let began_cpu_ns = thread_cpu_ns();
        // At least one batch: a thread that got its processor late must have a figure, too.
        loop {
            for _ in 0..BATCH {
                let number = (number * share + random.random_range(0..share)) % records;
                layout.write_key(number, &mut key);
                let key = Key { number, bytes: &key };
                let outcome = match work {
                    Work::Lookup => session.read(key)?,
                    Work::Update => {
                        let value = [number as u8; VALUE_BYTES];
                        session.update(key, Write { first_field: 0, values: &[&value] })?
                    }
                };
                debug_assert_eq!(outcome, Outcome::Done);
                operations += 1;
            }
            if began.elapsed() >= time {
                break;
            }
        }
        Ok(Slice { operations, cpu_ns: thread_cpu_ns() - began_cpu_ns, elapsed_s: 0.0 })
    };
    let parts: Vec<Slice> = std::thread::scope(|scope| {
        let thread = &thread;
        let all: Vec<_> = (0..threads).map(|number| scope.spawn(move || thread(number))).collect();
        let joined = all
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect::<Result<_, _>>()
    })?;
    Ok(Slice {
        operations: parts.iter().map(|part| part.operations).sum(),
        cpu_ns: parts.iter().map(|part| part.cpu_ns).sum(),
        elapsed_s: began.elapsed().as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_comes_late_has_done_something() {
        let dir = tempfile::tempdir().unwrap();
        let measuring = StoreMeasuring {
            dir: dir.path(),
            records: 100,
            rounds: 1,
            slice: Duration::ZERO,
            threads: vec![2],
            seed: 1,
        };
        for figure in measuring.figures(&|_| ()).unwrap() {
            assert!(figure.per_s[0] > 0.0 && figure.cpu_ns > 0.0, "{figure:?}");
        }
    }

    #[test]
    fn the_small_store_has_as_many_lanes_as_the_large_one() {
        let dir = tempfile::tempdir().unwrap();
        let measuring = StoreMeasuring {
            dir: dir.path(),
            records: 1,
            rounds: 1,
            slice: Duration::ZERO,
            threads: vec![1],
            seed: 1,
        };
        for records in [CACHED_RECORDS, 100_000_000] {
            assert_eq!(measuring.options(records).config.lanes, Some(LANES), "{records} records");
        }
    }

    #[test]
    fn lookups_and_updates_find_their_records_with_any_number_of_threads() {
        let dir = tempfile::tempdir().unwrap();
        let measuring = StoreMeasuring {
            dir: dir.path(),
            records: 2000,
            rounds: 2,
            slice: Duration::from_millis(20),
            threads: vec![1, 3],
            seed: 1,
        };
        let told = std::cell::Cell::new(0);
        let figures = measuring.figures(&|_| told.set(told.get() + 1)).unwrap();
        assert_eq!(told.get(), measuring.steps());
        assert_eq!(figures.len(), 4);
        for figure in figures {
            assert!(figure.is_real && figure.per_s.iter().all(|per_s| *per_s > 0.0), "{figure:?}");
            assert!(figure.cpu_ns > 0.0 && figure.cached_cpu_ns > 0.0, "{figure:?}");
            assert!(figure.cpu_share > 0.0 && figure.cpu_share <= 1.0, "{figure:?}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    }
}
