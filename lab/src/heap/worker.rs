//! A process that keeps one contestant's objects over the whole run and works on them when ordered.
//!
//! It ends when its input ends, so that a run that was killed leaves no worker behind.

use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use thiserror::Error;

use super::churn::{Counted, Limit, Share, Timed};
use super::contestant::{Contestant, ContestantError, Measure, Way, Who};
use super::harness::Nobody;
use super::protocol::{Answer, Memory, Order, Reopened, Setup};
use super::sys::malloc::Malloc;
use super::sys::own::{Capacity, OpenHeap, Persistent};
use super::sys::pmemobj::Pmemobj;

/// Why a worker ended early.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// The pipe of orders or answers failed.
    #[error("orders: {0}")]
    Pipe(#[from] io::Error),
    /// An order cannot be read.
    #[error("order {line:?}: {cause}")]
    Order {
        /// The line as it came.
        line: String,
        /// What is wrong with the line.
        cause: serde_json::Error,
    },
    /// An answer cannot be written as JSON.
    #[error("answer: {0}")]
    Answer(serde_json::Error),
}

/// Works until there are no more orders.
///
/// # Errors
/// The pipes fail, or an order cannot be read. A contestant's failure is an answer.
pub fn work(orders: impl BufRead, answers: impl Write) -> Result<(), WorkerError> {
    let mut pipes = Pipes { orders, answers };
    let Some(setup) = pipes.next::<Setup>()? else { return Ok(()) };
    let opened = match setup.who {
        Who::Harness => Ok(serve(&Nobody, "nobody".into(), None, &setup, &mut pipes)),
        Who::Glibc | Who::Jemalloc | Who::Mimalloc => Malloc::open(setup.library.as_deref())
            .map(|(malloc, name)| serve(&malloc, name, None, &setup, &mut pipes)),
        Who::Libpmemobj => {
            Pmemobj::open(&setup).map(|(pool, name)| serve(&pool, name, None, &setup, &mut pipes))
        }
        Who::Perdura | Who::PerduraUndo | Who::PerduraOrdered | Who::PerduraConventional => {
            Persistent::open(&setup).map(|OpenHeap { contestant, name, reopened }| {
                serve(&contestant, name, reopened, &setup, &mut pipes)
            })
        }
        Who::PerduraCapacity => {
            Capacity::open(&setup).map(|OpenHeap { contestant, name, reopened }| {
                serve(&contestant, name, reopened, &setup, &mut pipes)
            })
        }
    };
    opened.unwrap_or_else(|error| pipes.answer(&Answer::Failed(error.to_string())))
}

struct Pipes<R, W> {
    orders: R,
    answers: W,
}

impl<R: BufRead, W: Write> Pipes<R, W> {
    /// Reads the next message; `None` at the end of the input.
    fn next<T: serde::de::DeserializeOwned>(&mut self) -> Result<Option<T>, WorkerError> {
        let mut line = String::new();
        if self.orders.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match serde_json::from_str(&line) {
            Ok(read) => Ok(Some(read)),
            Err(cause) => Err(WorkerError::Order { line, cause }),
        }
    }

    fn answer(&mut self, answer: &Answer) -> Result<(), WorkerError> {
        let mut line = serde_json::to_vec(answer).map_err(WorkerError::Answer)?;
        line.push(b'\n');
        self.answers.write_all(&line)?;
        Ok(self.answers.flush()?)
    }
}

/// An order to a thread.
enum Job {
    Populate,
    Run { measure: Measure, limit: Limit },
    Count { measure: Measure, operations: u64 },
    Asked,
}

/// A thread's report on a job.
enum Report {
    Timed(Timed),
    Counted(Counted),
    Asked(u64),
}

/// The threads, as the thread sees them that reads orders.
struct Crew {
    jobs: Vec<Sender<Job>>,
    reports: Vec<Receiver<Result<Report, ContestantError>>>,
}

fn serve<C: Contestant>(
    contestant: &C,
    allocator: String,
    reopened: Option<Reopened>,
    setup: &Setup,
    pipes: &mut Pipes<impl BufRead, impl Write>,
) -> Result<(), WorkerError> {
    let together = Barrier::new(setup.threads);
    std::thread::scope(|scope| {
        let mut crew = Crew { jobs: Vec::new(), reports: Vec::new() };
        for thread in 0..setup.threads {
            let (jobs, to_do) = channel();
            let (done, reports) = channel();
            let objects = part(setup.objects, thread, setup.threads);
            let seed = setup.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(thread as u64);
            let (sizes, touch, together) = (setup.sizes, setup.touch, &together);
            scope.spawn(move || {
                let share = Share::new(contestant, objects, sizes, touch, seed);
                attend(share, together, &to_do, &done);
            });
            crew.jobs.push(jobs);
            crew.reports.push(reports);
        }
        // Every thread has its table now, so the tables are not counted as the contestant's memory.
        let opened = crew.asked_bytes().map(|_| resident_bytes());
        let before = match opened {
            Ok(bytes) => bytes,
            Err(error) => return pipes.answer(&Answer::Failed(error.to_string())),
        };
        pipes.answer(&Answer::Ready { allocator, reopened })?;
        while let Some(order) = pipes.next::<Order>()? {
            match crew.carry_out(&order, contestant, before) {
                Ok(answer) => pipes.answer(&answer)?,
                Err(error) => return pipes.answer(&Answer::Failed(error.to_string())),
            }
        }
        Ok(())
    })
}

/// Indices of a thread's objects.
fn part(objects: usize, thread: usize, threads: usize) -> Range<usize> {
    objects * thread / threads..objects * (thread + 1) / threads
}

/// The main loop of a thread.
fn attend<C: Contestant>(
    mut share: Share<'_, C>,
    together: &Barrier,
    jobs: &Receiver<Job>,
    reports: &Sender<Result<Report, ContestantError>>,
) {
    for job in jobs {
        let report = match job {
            Job::Populate => share.populate().map(Report::Timed),
            Job::Run { measure, limit } => {
                together.wait();
                share.run(measure, limit).map(Report::Timed)
            }
            Job::Count { measure, operations } => {
                share.count(measure, operations).map(Report::Counted)
            }
            Job::Asked => Ok(Report::Asked(share.asked_bytes())),
        };
        if reports.send(report).is_err() {
            return;
        }
    }
}

impl Crew {
    fn carry_out(
        &self,
        order: &Order,
        contestant: &impl Contestant,
        resident_before: u64,
    ) -> Result<Answer, ContestantError> {
        Ok(match *order {
            Order::Populate => self.timed(|| Job::Populate)?,
            Order::Warm(pairs) => {
                let limit = Limit::Operations(pairs.div_ceil(self.jobs.len() as u64));
                self.timed(|| Job::Run { measure: Measure::Pair(Way::Plain), limit })?
            }
            Order::Round { measure, ns } => {
                let limit = Limit::Time(Duration::from_nanos(ns));
                self.timed(|| Job::Run { measure, limit })?
            }
            Order::Count { measure, operations } => {
                let mut all = Counted::default();
                // One thread after the other, because all threads share the counters.
                for thread in 0..self.jobs.len() {
                    self.tell(thread, Job::Count { measure, operations });
                    if let Report::Counted(counted) = self.hear(thread)? {
                        all = all.plus(counted);
                    }
                }
                Answer::Counted(all)
            }
            Order::Memory => Answer::Memory(Memory {
                asked_bytes: self.asked_bytes()?,
                resident_bytes: resident_bytes().saturating_sub(resident_before),
                taken_bytes: contestant.taken_bytes(),
            }),
        })
    }

    fn timed(&self, job: impl Fn() -> Job) -> Result<Answer, ContestantError> {
        let reports = self.all(job)?;
        let timed = reports.into_iter().filter_map(|report| match report {
            Report::Timed(timed) => Some(timed),
            _ => None,
        });
        Ok(Answer::Timed(timed.collect()))
    }

    fn asked_bytes(&self) -> Result<u64, ContestantError> {
        let reports = self.all(|| Job::Asked)?;
        let asked = reports.into_iter().map(|report| match report {
            Report::Asked(bytes) => bytes,
            _ => 0,
        });
        Ok(asked.sum())
    }

    fn all(&self, job: impl Fn() -> Job) -> Result<Vec<Report>, ContestantError> {
        (0..self.jobs.len()).for_each(|thread| self.tell(thread, job()));
        // Every report is read even after an error: one left over would be taken for the next
        // job's.
        let reports: Vec<_> = (0..self.jobs.len()).map(|thread| self.hear(thread)).collect();
        reports.into_iter().collect()
    }

    fn tell(&self, thread: usize, job: Job) {
        assert!(self.jobs[thread].send(job).is_ok(), "thread {thread} of the worker is gone");
    }

    fn hear(&self, thread: usize) -> Result<Report, ContestantError> {
        match self.reports[thread].recv() {
            Ok(report) => report,
            Err(_) => panic!("thread {thread} of the worker is gone"),
        }
    }
}

/// Resident memory of this process, files on tmpfs included.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
