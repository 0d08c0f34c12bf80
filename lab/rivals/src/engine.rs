//! The interface of an engine that is measured, and the driver's target for it.
//!
//! Records and batches are made here, the same for all; an engine only stores bytes under keys. In
//! a pipeline, and while loading, inserts are collected and written as one commit: an engine that
//! syncs each would take an hour.

use std::fmt::{self, Display, Formatter};
use std::hint::black_box;

use perdura_bench::machine::process_cpu_ns;
use perdura_bench::target::{Figures, Key, Outcome, Session, Target, TargetError, Write, touch};
use perdura_bench::workload::Layout;

/// An engine that is open.
pub trait Engine: Send + Sync {
    /// Stores these records, in one commit where the engine has commits. On return they are as
    /// durable as its mode says.
    ///
    /// # Errors
    /// The engine's error.
    fn put(&self, records: &[(&[u8], &[u8])]) -> Result<(), TargetError>;

    /// Calls `found` with the record in the engine's own memory; `false` if there is none.
    ///
    /// # Errors
    /// The engine's error.
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError>;

    /// Calls `change` to change a record, whose length stays; `false` if there is none. Without
    /// transactions one of two simultaneous changes may be lost, as in YCSB.
    ///
    /// # Errors
    /// The engine's error.
    fn change(&self, key: &[u8], change: &mut dyn FnMut(&mut [u8])) -> Result<bool, TargetError> {
        let mut record = Vec::new();
        if !self.get(key, &mut |found| record.extend_from_slice(found))? {
            return Ok(false);
        }
        change(&mut record);
        self.put(&[(key, &record)])?;
        Ok(true)
    }

    /// Calls back with up to `count` records from `key` on, in key order; returns their number.
    ///
    /// # Errors
    /// The engine's error, or that it has no order.
    fn scan(
        &self,
        key: &[u8],
        count: usize,
        met: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, TargetError>;
}

/// The losses that acknowledged writes survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Survives {
    /// No loss: data live as long as the process.
    Nothing,
    /// A clean close. After a crash of the process the engine is back at its last durable commit.
    CleanClose,
    /// A crash of the process, but not of the machine.
    ProcessCrash,
    /// A loss of power.
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

/// An engine as a target of the driver.
pub struct EngineTarget {
    engine: Box<dyn Engine>,
    about: String,
    layout: Layout,
}

impl EngineTarget {
    /// A target whose records are one string each.
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
    /// Inserts that are not written yet.
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
