//! A worker, seen from the process that gives the orders.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::HeapBenchError;
use super::contestant::Who;
use super::protocol::{Answer, Order, Reopened, Setup};

/// How workers are started: a program, and the words that make it one.
#[derive(Debug, Clone)]
pub struct WorkerCommand {
    /// Program.
    pub program: PathBuf,
    /// Its words.
    pub words: Vec<OsString>,
}

/// A worker that runs; ended when dropped.
pub struct Worker {
    who: Who,
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Its allocator, in the allocator's own words.
    pub allocator: String,
    /// Its heap, if it was there before.
    pub reopened: Option<Reopened>,
}

impl Worker {
    /// Starts one and waits until it has its allocator.
    pub fn start(command: &WorkerCommand, setup: &Setup) -> Result<Self, HeapBenchError> {
        let who = setup.who;
        let mut starting = Command::new(&command.program);
        starting.args(&command.words).stdin(Stdio::piped()).stdout(Stdio::piped());
        match (who, &setup.library) {
            (Who::Jemalloc | Who::Mimalloc, Some(library)) => {
                starting.env("LD_PRELOAD", library);
            }
            _ => {
                starting.env_remove("LD_PRELOAD");
            }
        }
        if who == Who::Libpmemobj {
            // tmpfs is no persistent memory to it: without this it would call msync instead of
            // flushing lines.
            starting.env("PMEM_IS_PMEM_FORCE", "1");
        }
        let gone = |cause| HeapBenchError::Pipe { who, cause };
        let mut child = starting.spawn().map_err(gone)?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked for as pipes");
        };
        let (allocator, reopened) = (String::new(), None);
        let answers = BufReader::new(answers);
        let mut worker = Self { who, child, orders, answers, allocator, reopened };
        match worker.exchange(setup)? {
            Answer::Ready { allocator, reopened } => {
                (worker.allocator, worker.reopened) = (allocator, reopened);
            }
            other => return Err(HeapBenchError::Answer { who, answer: Box::new(other) }),
        }
        Ok(worker)
    }

    /// Carries out an order.
    pub fn order(&mut self, order: &Order) -> Result<Answer, HeapBenchError> {
        self.exchange(order)
    }

    fn exchange(&mut self, message: &impl serde::Serialize) -> Result<Answer, HeapBenchError> {
        let who = self.who;
        let pipe = |cause: std::io::Error| HeapBenchError::Pipe { who, cause };
        let mut line = serde_json::to_vec(message).map_err(|error| pipe(error.into()))?;
        line.push(b'\n');
        self.orders.write_all(&line).map_err(pipe)?;
        let mut said = String::new();
        if self.answers.read_line(&mut said).map_err(pipe)? == 0 {
            let status = self.child.wait().map_err(pipe)?;
            return Err(HeapBenchError::Ended { who, status });
        }
        match serde_json::from_str(&said).map_err(|error| pipe(error.into()))? {
            Answer::Failed(cause) => Err(HeapBenchError::Failed { who, cause }),
            answer => Ok(answer),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It keeps nothing that would have to be put in order; and it must not be left behind as a
        // zombie.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
