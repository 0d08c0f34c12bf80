//! Reads a trace as often as it is needed. A thread reads ahead while the records before are used.

use std::path::PathBuf;
use std::sync::mpsc::sync_channel;

use crate::trace::{ReadOptions, Record, Together, TraceError};

use super::ReportError;

/// How far the work on a trace is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The pass that runs: analysing or replaying.
    pub step: &'static str,
    /// The bytes read of the files, as they are stored.
    pub done_bytes: u64,
    /// The bytes that the files have, as they are stored, where that is known.
    pub total_bytes: Option<u64>,
    /// The records read in this pass.
    pub records: u64,
}

/// How many batches of records are between the reading thread and its reader.
const BATCHES: usize = 4;

/// A trace that can be read again.
pub(super) struct Passes<'p> {
    pub paths: &'p [PathBuf],
    pub read: &'p ReadOptions,
    /// How many threads to keep busy. With more than one, one of them reads ahead.
    pub threads: usize,
    pub progress: &'p dyn Fn(Progress),
}

/// A batch of records, and how far their files were read.
struct Batch {
    records: Vec<Record>,
    done_bytes: u64,
    total_bytes: Option<u64>,
}

impl Batch {
    fn refill(&mut self, trace: &mut Together) -> Result<bool, TraceError> {
        let more = trace.next_batch(&mut self.records)?;
        self.done_bytes = trace.readers().map(|reader| reader.bytes_read()).sum();
        self.total_bytes = trace.readers().map(|reader| reader.total_bytes()).sum();
        Ok(more)
    }
}

impl Passes<'_> {
    /// Gives the whole trace to `feed`, and returns the trace at its end.
    pub fn read(
        &self,
        step: &'static str,
        feed: &mut dyn FnMut(&[Record]) -> Result<(), ReportError>,
    ) -> Result<Together, ReportError> {
        let mut trace = Together::open(self.paths, self.read)?;
        let mut records = 0;
        let mut take = |batch: &Batch| {
            feed(&batch.records)?;
            records += batch.records.len() as u64;
            let Batch { done_bytes, total_bytes, .. } = *batch;
            (self.progress)(Progress { step, done_bytes, total_bytes, records });
            Ok::<(), ReportError>(())
        };
        let empty = || Batch { records: Vec::new(), done_bytes: 0, total_bytes: None };
        if self.threads < 2 {
            let mut batch = empty();
            while batch.refill(&mut trace)? {
                take(&batch)?;
            }
            return Ok(trace);
        }
        std::thread::scope(|scope| {
            let (full, to_take) = sync_channel::<Batch>(BATCHES);
            let (taken, to_fill) = sync_channel::<Batch>(BATCHES);
            (0..BATCHES).for_each(|_| drop(taken.try_send(empty())));
            let reading = scope.spawn(move || -> Result<Together, TraceError> {
                // No batch comes back, or none is wanted: what is done with them has failed, and
                // says why.
                for mut batch in to_fill {
                    if !batch.refill(&mut trace)? || full.send(batch).is_err() {
                        break;
                    }
                }
                Ok(trace)
            });
            for batch in &to_take {
                take(&batch)?;
                // At the end nobody fills it.
                let _ = taken.send(batch);
            }
            let read = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok(read?)
        })
    }
}
