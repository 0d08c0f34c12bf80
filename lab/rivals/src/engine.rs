//! What an engine must do to be measured, and its place in the driver.
//!
//! Records and batches are made here, the same for all; an engine only stores bytes under keys.
//! With a pipeline, as while loading, inserts are queued and written as one commit: an engine that
//! syncs each would take an hour.

use std::fmt::{self, Display, Formatter};
use std::hint::black_box;

use perdura_bench::machine::process_cpu_ns;
use perdura_bench::target::{Figures, Key, Outcome, Session, Target, TargetError, Write, touch};
use perdura_bench::workload::Layout;

/// An engine that is open.
pub trait Engine: Send + Sync {
    /// Stores all of these, in one commit where there is such a thing; as durable as its mode says
    /// when it returns.
    ///
    /// # Errors
    /// As the engine says.
    fn put(&self, records: &[(&[u8], &[u8])]) -> Result<(), TargetError>;

    /// Shows the record to `found`, in the engine's own memory; `false`: there is none.
    ///
    /// # Errors
    /// As the engine says.
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError>;

    /// Lets `change` change a record, which keeps its length; `false`: there is none. Two at once
    /// may lose one where the engine has no transactions, as in YCSB.
    ///
    /// # Errors
    /// As the engine says.
    fn change(&self, key: &[u8], change: &mut dyn FnMut(&mut [u8])) -> Result<bool, TargetError> {
        let mut record = Vec::new();
        if !self.get(key, &mut |found| record.extend_from_slice(found))? {
            return Ok(false);
        }
        change(&mut record);
        self.put(&[(key, &record)])?;
        Ok(true)
    }

    /// Shows up to `count` records from `key` on, in key order; returns how many.
    ///
    /// # Errors
    /// As the engine says, or it has no order.
    fn scan(
        &self,
        key: &[u8],
        count: usize,
        met: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, TargetError>;
}

/// What acknowledged writes survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Survives {
    /// Nothing at all.
    Nothing,
    /// A clean close; after a crash of the process it is back at the last durable commit.
    CleanClose,
    /// A crash of the process, not of the machine.
    ProcessCrash,
    /// Loss of power.
    PowerLoss,
}

impl Display for Survives {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::CleanClose => "clean close",
            Self::ProcessCrash => "process crash",
            Self::PowerLoss => "power loss",
        })
    }
}

/// An engine in the driver.
pub struct EngineTarget {
    engine: Box<dyn Engine>,
    about: String,
    layout: Layout,
}

impl EngineTarget {
    /// Of records that are one string each.
    pub fn new(engine: Box<dyn Engine>, about: String, layout: Layout) -> Self {
        Self { engine, about, layout }
    }
}

impl Target for EngineTarget {
    fn describe(&self) -> String {
        self.about.clone()
    }

    fn session(&self, pipeline: usize) -> Result<Box<dyn Session + '_>, TargetError> {
        Ok(Box::new(EngineSession {
            target: self,
            pipeline,
            record: Vec::new(),
            queued: Vec::new(),
        }))
    }

    fn figures(&self) -> Result<Figures, TargetError> {
        Ok(Figures::default())
    }

    fn cpu_ns(&self) -> Option<u64> {
        Some(process_cpu_ns())
    }
}

struct EngineSession<'t> {
    target: &'t EngineTarget,
    pipeline: usize,
    record: Vec<u8>,
    /// Inserts not yet written.
    queued: Vec<(Vec<u8>, Vec<u8>)>,
}

impl EngineSession<'_> {
    fn put(&mut self, key: Key<'_>, values: &[&[u8]]) -> Result<Outcome, TargetError> {
        self.record.clear();
        values.iter().for_each(|value| self.record.extend_from_slice(value));
        self.target.engine.put(&[(key.bytes, &self.record)])?;
        Ok(Outcome::Done)
    }
}

impl Session for EngineSession<'_> {
    fn insert(&mut self, key: Key<'_>, values: &[&[u8]]) -> Result<Outcome, TargetError> {
        if self.pipeline <= 1 {
            return self.put(key, values);
        }
        self.queued.push((key.bytes.to_vec(), values.concat()));
        Ok(Outcome::Queued)
    }

    fn read(&mut self, key: Key<'_>) -> Result<Outcome, TargetError> {
        let found = self.target.engine.get(key.bytes, &mut |value| {
            black_box(touch(value));
        })?;
        Ok(outcome(found))
    }

    fn update(&mut self, key: Key<'_>, write: Write<'_>) -> Result<Outcome, TargetError> {
        let EngineTarget { engine, layout, .. } = self.target;
        if write.values.len() == layout.fields {
            return self.put(key, write.values);
        }
        let at = write.first_field * layout.field_bytes;
        let found = engine.change(key.bytes, &mut |record| {
            let parts = record[at..].chunks_mut(layout.field_bytes.max(1)).zip(write.values);
            parts.for_each(|(part, value)| part.copy_from_slice(value));
        })?;
        Ok(outcome(found))
    }

    fn scan(&mut self, key: Key<'_>, count: usize) -> Result<Outcome, TargetError> {
        let met = self.target.engine.scan(key.bytes, count, &mut |value| {
            black_box(touch(value));
        })?;
        Ok(outcome(met > 0))
    }

    fn complete(
        &mut self,
        done: &mut dyn FnMut(Result<Outcome, TargetError>),
    ) -> Result<(), TargetError> {
        let batch: Vec<_> =
            self.queued.iter().map(|(key, record)| (&key[..], &record[..])).collect();
        if !batch.is_empty() {
            self.target.engine.put(&batch)?;
        }
        batch.iter().for_each(|_| done(Ok(Outcome::Done)));
        self.queued.clear();
        Ok(())
    }
}

fn outcome(found: bool) -> Outcome {
    if found { Outcome::Done } else { Outcome::Missing }
}
