//! Threads that do operations, a slice at a time.
//!
//! A worker keeps its connection, its random stream and its distribution from slice to slice. The
//! threads of a slice start together; its time runs from that start to the end of the last thread.

use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use crate::dist::Chooser;
use crate::tally::Tally;
use crate::target::{Key, Outcome, Session, Target, TargetError, Write};
use crate::workload::{KeySpace, Layout, OpKind, Pool, Workload};

/// Called with the number of operations done so far.
pub type Progress<'p> = &'p (dyn Fn(u64) + Sync);

/// The length of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    /// Number of operations of all threads together.
    Operations(u64),
    /// Time of the slice.
    Time(Duration),
}

/// The settings that all workers of one side share.
#[derive(Debug)]
pub struct Plan<'p> {
    /// The mix of kinds of operations.
    pub workload: Workload,
    /// The records that exist.
    pub keys: &'p KeySpace,
    /// Form of a record.
    pub layout: &'p Layout,
    /// The source of values.
    pub pool: &'p Pool,
    /// Records of the longest scan.
    pub scan_max: usize,
    /// Operations a second of all threads together, if the rate is fixed.
    pub rate: Option<f64>,
    /// Operations that each thread has under way at a time.
    pub pipeline: usize,
    /// Time of other work for each operation, spent in a busy loop.
    pub think: Duration,
}

/// Results of a slice.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Slice {
    /// Operations done.
    pub operations: u64,
    /// Time from the common start to the last thread's end, nanoseconds.
    pub elapsed_ns: u64,
    /// Processor time of the target, nanoseconds.
    pub cpu_ns: Option<u64>,
}

/// The worker threads of one side.
pub struct Crew<'p> {
    plan: &'p Plan<'p>,
    target: &'p dyn Target,
    workers: Vec<Worker<'p>>,
}

impl<'p> Crew<'p> {
    /// Makes `threads` workers with a session each. The same `seed` draws the same streams on every
    /// side.
    ///
    /// # Errors
    /// A session cannot be opened.
    pub fn new(
        plan: &'p Plan<'p>,
        target: &'p dyn Target,
        threads: usize,
        chooser: &Chooser,
        seed: u64,
    ) -> Result<Self, TargetError> {
        let worker = |thread: usize| {
            Ok(Worker {
                plan,
                session: target.session(plan.pipeline)?,
                chooser: chooser.clone(),
                random: Random::seed_from_u64(
                    seed.wrapping_add((thread as u64).wrapping_mul(STREAM_STRIDE)),
                ),
                key: Vec::new(),
                values: Vec::new(),
                tally: Tally::default(),
                batch: Vec::new(),
            })
        };
        let workers = (0..threads.max(1)).map(worker).collect::<Result<_, TargetError>>()?;
        Ok(Self { plan, target, workers })
    }

    /// Runs a slice.
    ///
    /// # Errors
    /// A connection broke. A refused operation is counted instead.
    pub fn slice(&mut self, quota: Quota, progress: Progress<'_>) -> Result<Slice, TargetError> {
        let threads = self.workers.len() as u64;
        let start = Barrier::new(self.workers.len());
        let done = AtomicU64::new(0);
        let before = self.operations();
        let cpu_before = self.target.cpu_ns();
        let ends = std::thread::scope(|scope| {
            let (working, ended) = channel::<()>();
            let threads: Vec<_> = (0..threads)
                .zip(&mut self.workers)
                .map(|(thread, worker)| {
                    let (start, done, working) = (&start, &done, working.clone());
                    let share = Share { thread, threads, quota };
                    scope.spawn(move || {
                        start.wait();
                        let times = worker.work(share, done);
                        drop(working);
                        times
                    })
                })
                .collect();
            drop(working);
            while ended.recv_timeout(PROGRESS_EVERY) == Err(RecvTimeoutError::Timeout) {
                progress(done.load(Relaxed));
            }
            threads
                .into_iter()
                .map(|thread| {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect::<Result<Vec<(Instant, Instant)>, TargetError>>()
        })?;
        let cpu_ns = self.target.cpu_ns().zip(cpu_before).map(|(now, then)| now - then);
        let began = ends.iter().map(|(began, _)| *began).min();
        let ended = ends.iter().map(|(_, ended)| *ended).max();
        let elapsed = ended.zip(began).map_or(Duration::ZERO, |(ended, began)| ended - began);
        Ok(Slice {
            operations: self.operations() - before,
            elapsed_ns: elapsed.as_nanos() as u64,
            cpu_ns,
        })
    }

    /// The sum of all threads' results since the beginning.
    pub fn tally(&self) -> Tally {
        self.workers.iter().fold(Tally::default(), |mut sum, worker| {
            sum.merge(&worker.tally);
            sum
        })
    }

    /// The side's settings.
    pub fn plan(&self) -> &Plan<'p> {
        self.plan
    }

    /// The target of the operations.
    pub fn target(&self) -> &'p dyn Target {
        self.target
    }

    fn operations(&self) -> u64 {
        self.workers.iter().map(|worker| worker.tally.operations).sum()
    }
}

const STREAM_STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// Operations of a thread between two calls of [`Progress`].
const TOLD_EVERY: u64 = 64;
/// A thread polls for a start that is nearer than this, and sleeps before a later one.
const SLEEP_ABOVE: Duration = Duration::from_micros(200);

/// A thread's part of a slice.
#[derive(Debug, Clone, Copy)]
struct Share {
    thread: u64,
    threads: u64,
    quota: Quota,
}

impl Share {
    fn operations(&self) -> u64 {
        match self.quota {
            Quota::Time(_) => u64::MAX,
            Quota::Operations(all) => {
                all / self.threads + u64::from(self.thread < all % self.threads)
            }
        }
    }
}

struct Worker<'p> {
    plan: &'p Plan<'p>,
    session: Box<dyn Session + 'p>,
    chooser: Chooser,
    random: Random,
    key: Vec<u8>,
    values: Vec<&'p [u8]>,
    tally: Tally,
    batch: Vec<InBatch>,
}

/// An operation under way.
#[derive(Debug, Clone, Copy)]
struct InBatch {
    kind: OpKind,
    /// Number of the record, if the operation is an insert.
    inserted: Option<u64>,
}

impl Worker<'_> {
    fn work(&mut self, share: Share, done: &AtomicU64) -> Result<(Instant, Instant), TargetError> {
        let began = Instant::now();
        let quota = share.operations();
        let deadline = match share.quota {
            Quota::Time(time) => Some(began + time),
            Quota::Operations(_) => None,
        };
        let pipeline = self.plan.pipeline.max(1) as u64;
        let batch_ns = self.plan.rate.map(|rate| 1e9 * (share.threads * pipeline) as f64 / rate);
        let (mut finished, mut batches, mut told) = (0, 0u64, 0);
        while finished < quota {
            let intended = batch_ns.map(|ns| {
                let due_ns = (batches as f64 + share.thread as f64 / share.threads as f64) * ns;
                began + Duration::from_nanos(due_ns as u64)
            });
            if let Some(intended) = intended {
                if deadline.is_some_and(|deadline| intended >= deadline) {
                    break;
                }
                wait_until(intended);
            }
            let size = pipeline.min(quota - finished);
            let ended = self.batch(size, intended)?;
            (finished, batches) = (finished + size, batches + 1);
            if finished - told >= TOLD_EVERY {
                done.fetch_add(finished - told, Relaxed);
                told = finished;
            }
            if deadline.is_some_and(|deadline| ended >= deadline) {
                break;
            }
        }
        done.fetch_add(finished - told, Relaxed);
        Ok((began, Instant::now()))
    }

    /// Does `size` operations in one batch; returns the instant at which the last ended.
    fn batch(&mut self, size: u64, intended: Option<Instant>) -> Result<Instant, TargetError> {
        self.batch.clear();
        let mut began = Instant::now();
        for _ in 0..size {
            let chosen = self.choose();
            spin(self.plan.think);
            if self.batch.is_empty() {
                // The time begins after the first operation was drawn; drawing the others takes
                // less time than the requests take to the target.
                began = Instant::now();
            }
            let outcome = self.operate(chosen);
            match outcome {
                Ok(Outcome::Queued) => {
                    self.batch.push(InBatch { kind: chosen.kind, inserted: chosen.inserted() });
                }
                Err(error) if error.is_fatal() => return Err(error),
                outcome => {
                    // This operation was not queued though others are: it waited for them, or needs
                    // no wait.
                    self.note(chosen.kind, chosen.inserted(), outcome, began, intended);
                    if self.batch.is_empty() {
                        began = Instant::now();
                    }
                }
            }
        }
        if !self.batch.is_empty() {
            self.complete(began, intended)?;
        }
        Ok(Instant::now())
    }

    fn complete(&mut self, began: Instant, intended: Option<Instant>) -> Result<(), TargetError> {
        let batch = std::mem::take(&mut self.batch);
        let mut waiting = batch.iter();
        let Self { session, tally, plan, .. } = self;
        session.complete(&mut |outcome| {
            if let Some(InBatch { kind, inserted }) = waiting.next() {
                note(tally, plan, *kind, *inserted, outcome, began, intended);
            }
        })?;
        self.tally.batch.add_ns(began.elapsed().as_nanos() as u64);
        self.batch = batch;
        self.batch.clear();
        Ok(())
    }

    fn choose(&mut self) -> Chosen {
        let kind = self.plan.workload.draw(&mut self.random);
        let claimed = if kind == OpKind::Insert { self.plan.keys.claim() } else { None };
        match claimed {
            Some(number) => Chosen { kind, number },
            // A read takes the place of an insert while the ring of inserts under way is full.
            None if kind == OpKind::Insert => Chosen { kind: OpKind::Read, number: self.draw() },
            None => Chosen { kind, number: self.draw() },
        }
    }

    fn draw(&mut self) -> u64 {
        self.chooser.draw(self.plan.keys.present(), &mut self.random)
    }

    fn operate(&mut self, chosen: Chosen) -> Result<Outcome, TargetError> {
        let layout = self.plan.layout;
        layout.write_key(chosen.number, &mut self.key);
        let fields = match chosen.kind {
            OpKind::Read | OpKind::Scan => 0..0,
            OpKind::Insert => 0..layout.fields,
            _ if layout.write_all => 0..layout.fields,
            _ => {
                let field = self.random.random_range(0..layout.fields);
                field..field + 1
            }
        };
        self.values.clear();
        for _ in fields.clone() {
            self.values.push(self.plan.pool.draw(layout.field_bytes, &mut self.random));
        }
        if !fields.is_empty() {
            self.tally.user_bytes += layout.key_bytes() + layout.bytes_of(fields.clone());
        }
        let key = Key { number: chosen.number, bytes: &self.key };
        let write = Write { first_field: fields.start, values: &self.values };
        match chosen.kind {
            OpKind::Read => self.session.read(key),
            OpKind::Update => self.session.update(key, write),
            OpKind::Insert => self.session.insert(key, &self.values),
            OpKind::ReadModifyWrite => self.session.read_modify_write(key, write),
            OpKind::Scan => {
                let count = self.random.random_range(1..=self.plan.scan_max.max(1));
                self.session.scan(key, count)
            }
        }
    }

    fn note(
        &mut self,
        kind: OpKind,
        inserted: Option<u64>,
        outcome: Result<Outcome, TargetError>,
        began: Instant,
        intended: Option<Instant>,
    ) {
        note(&mut self.tally, self.plan, kind, inserted, outcome, began, intended);
    }
}

#[derive(Debug, Clone, Copy)]
struct Chosen {
    kind: OpKind,
    number: u64,
}

impl Chosen {
    fn inserted(self) -> Option<u64> {
        (self.kind == OpKind::Insert).then_some(self.number)
    }
}

/// Counts an operation that has just ended.
fn note(
    tally: &mut Tally,
    plan: &Plan<'_>,
    kind: OpKind,
    inserted: Option<u64>,
    outcome: Result<Outcome, TargetError>,
    began: Instant,
    intended: Option<Instant>,
) {
    let now = Instant::now();
    let since = |start: Instant| now.saturating_duration_since(start).as_nanos() as u64;
    tally.latency.entry(kind).or_default().add_ns(since(intended.unwrap_or(began)));
    if intended.is_some() {
        tally.service.entry(kind).or_default().add_ns(since(began));
    }
    tally.operations += 1;
    match outcome {
        Ok(Outcome::Missing) => tally.missing += 1,
        Ok(_) => {}
        Err(error) => {
            tally.errors += 1;
            tally.first_error.get_or_insert_with(|| error.to_string());
        }
    }
    if let Some(number) = inserted {
        plan.keys.acknowledge(number);
    }
}

/// Loads the records with `threads` threads.
///
/// # Errors
/// A connection broke, or a record was refused.
pub fn load(
    target: &dyn Target,
    plan: &Plan<'_>,
    threads: usize,
    seed: u64,
    progress: Progress<'_>,
) -> Result<(), TargetError> {
    let (records, done) = (plan.keys.loaded(), AtomicU64::new(0));
    let threads = threads.max(1) as u64;
    std::thread::scope(|scope| {
        let (working, ended) = channel::<()>();
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (done, working) = (&done, working.clone());
                let range = records * thread / threads..records * (thread + 1) / threads;
                scope.spawn(move || {
                    let loaded = load_range(target, plan, range, seed ^ thread, done);
                    drop(working);
                    loaded
                })
            })
            .collect();
        drop(working);
        while ended.recv_timeout(PROGRESS_EVERY) == Err(RecvTimeoutError::Timeout) {
            progress(done.load(Relaxed));
        }
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

const LOAD_PIPELINE: usize = 32;

fn load_range(
    target: &dyn Target,
    plan: &Plan<'_>,
    records: std::ops::Range<u64>,
    seed: u64,
    done: &AtomicU64,
) -> Result<(), TargetError> {
    let mut session = target.session(LOAD_PIPELINE)?;
    let mut random = Random::seed_from_u64(seed);
    let (mut key, mut values) = (Vec::new(), Vec::new());
    let (mut queued, mut refused) = (0, None);
    for number in records {
        plan.layout.write_key(number, &mut key);
        values.clear();
        for _ in 0..plan.layout.fields {
            values.push(plan.pool.draw(plan.layout.field_bytes, &mut random));
        }
        let outcome = session.insert(Key { number, bytes: &key }, &values)?;
        queued += usize::from(outcome == Outcome::Queued);
        if queued >= LOAD_PIPELINE {
            queued = 0;
            session.complete(&mut |outcome| refused = refused.take().or(outcome.err()))?;
        }
        if let Some(error) = refused {
            return Err(error);
        }
        done.fetch_add(1, Relaxed);
    }
    session.complete(&mut |outcome| refused = refused.take().or(outcome.err()))?;
    refused.map_or(Ok(()), Err)
}

fn wait_until(start: Instant) {
    let left = start.saturating_duration_since(Instant::now());
    if left > SLEEP_ABOVE {
        std::thread::sleep(left - SLEEP_ABOVE);
    }
    while Instant::now() < start {
        spin_loop();
    }
}

/// Spends the time of an operation's other work.
fn spin(time: Duration) {
    if time.is_zero() {
        return;
    }
    let until = Instant::now() + time;
    while black_box(Instant::now()) < until {
        spin_loop();
    }
}
