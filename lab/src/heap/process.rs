//! A worker process, as the process sees it that gives the orders.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::HeapBenchError;
use super::contestant::Who;
use super::protocol::{Answer, Order, Reopened, Setup};

/// How workers are started.
#[derive(Debug, Clone)]
pub struct WorkerCommand {
    /// The program.
    pub program: PathBuf,
    /// Arguments that make the program a worker.
    pub words: Vec<OsString>,
}

/// A running worker; ended on drop.
pub struct Worker {
    who: Who,
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// The allocator's description of itself.
    pub allocator: String,
    /// The heap, if it existed before.
    pub reopened: Option<Reopened>,
}

impl Worker {
    /// Starts a worker and waits until it has its allocator.
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
            // libpmem does not take tmpfs for persistent memory: without this it would call msync
            // instead of flushing lines.
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

    /// Sends an order and waits for the answer.
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
        // A worker keeps nothing that needs an orderly end. Waiting for it leaves no zombie.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
