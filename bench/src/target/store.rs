//! The embedded store as a target: it runs on the load generator's threads, and has an image of its
//! own.
//!
//! This target opens the store's engine, and not a store of the library `perdura`, for three
//! reasons. Runs vary how the image is written (`io_uring` or `pwrite`, with or without the page
//! cache), the seed, and the upkeep of recency, for which the library has no settings. The library
//! measures the flush rate of each new image, which a run does not need. And the library's own work
//! would be measured with the engine's: each write adds to an atomic word that all threads share,
//! and one write in sixteen looks for expired keys.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use perdura_media::RealClock;
use perdura_media::file::{Direct, Engine, FileDevice, OpenMode};
use perdura_region::{Config, Region};
use perdura_store::{Access, Expiry, Heap, Store, StoreOptions as EngineOptions, TxError};

use super::{Figures, FinalFlush, Key, Outcome, Session, Target, TargetError, Write};
use crate::machine::process_cpu_ns;
use crate::workload::{Layout, RecordKind};

/// Settings of an embedded store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Folder for its image, which is removed at the end.
    pub dir: PathBuf,
    /// Region, budget, checkpoints, policy.
    pub config: Config,
    /// The way to write the image.
    pub engine: Engine,
    /// Whether to bypass the page cache.
    pub direct: Direct,
    /// Threads of the final flush.
    pub flush_threads: usize,
    /// Whether each write is on the SSD when it is done, as with `serve --durability fsync`.
    pub commit_each: bool,
}

/// An embedded store under test.
pub struct StoreTarget {
    store: Store,
    layout: Layout,
    flush_threads: usize,
    commit_each: bool,
    /// The image's folder, removed with the target.
    _dir: tempfile::TempDir,
}

impl StoreTarget {
    /// Makes a store in a new image.
    ///
    /// # Errors
    /// The device, the region or the store refuses.
    pub fn create(options: &StoreOptions, layout: Layout) -> Result<Self, TargetError> {
        let (region, dir) = new_region(options)?;
        let clock = Arc::new(RealClock);
        let engine = EngineOptions { seed: options.config.seed, ..EngineOptions::default() };
        let store = Store::open(Heap::open(region)?, clock, engine)?;
        let StoreOptions { flush_threads, commit_each, .. } = *options;
        Ok(Self { store, layout, flush_threads, commit_each, _dir: dir })
    }
}

/// Makes a region on a new image. Dropping the second value removes the image.
pub fn new_region(options: &StoreOptions) -> Result<(Region, tempfile::TempDir), TargetError> {
    let at = |source| TargetError::File { path: options.dir.clone(), source };
    std::fs::create_dir_all(&options.dir).map_err(at)?;
    let dir = tempfile::tempdir_in(&options.dir).map_err(at)?;
    let mode = OpenMode::Create { capacity_bytes: 1 << 20 };
    let path = dir.path().join("image");
    let device = FileDevice::open(&path, mode, options.engine, options.direct)?;
    let region = Region::open(Arc::new(device), Arc::new(RealClock), options.config.clone())?;
    Ok((region, dir))
}

impl Target for StoreTarget {
    fn describe(&self) -> String {
        let region = self.store.region();
        format!(
            "embedded store; {}; {}; {}",
            region.describe_tracking(),
            region.describe_device(),
            region.describe_memory()
        )
    }

    fn session(&self, pipeline: usize) -> Result<Box<dyn Session + '_>, TargetError> {
        Ok(Box::new(StoreSession { target: self, record: Vec::new(), pipeline }))
    }

    fn figures(&self) -> Result<Figures, TargetError> {
        let mut figures = Figures::of_region(self.store.region());
        let heap = self.store.heap().stats();
        figures.set("used_bytes", heap.region_bytes.saturating_sub(heap.free_bytes));
        Ok(figures)
    }

    fn cpu_ns(&self) -> Option<u64> {
        Some(process_cpu_ns())
    }

    fn set_budget(&self, bytes: u64) -> Result<(), TargetError> {
        Ok(self.store.region().set_budget(bytes)?)
    }

    fn finish(&mut self) -> Result<Option<FinalFlush>, TargetError> {
        let began = Instant::now();
        let report = self.store.region().close(self.flush_threads)?;
        let elapsed_ns = began.elapsed().as_nanos() as u64;
        Ok(Some(FinalFlush { device_bytes: report.device_bytes, elapsed_ns }))
    }
}

struct StoreSession<'t> {
    target: &'t StoreTarget,
    /// Buffer for all fields of a record that is one string.
    record: Vec<u8>,
    /// Operations under way at a time. With more than one, writes are committed when the session is
    /// asked to complete them.
    pipeline: usize,
}

impl StoreSession<'_> {
    fn commit(&self) -> Result<Outcome, TargetError> {
        if self.target.commit_each && self.pipeline <= 1 {
            self.target.store.region().commit_group()?;
        }
        Ok(Outcome::Done)
    }

    /// Writes a string of new fields only, without a read of the old ones.
    fn write_whole_string(
        &mut self,
        key: Key<'_>,
        values: &[&[u8]],
    ) -> Result<Outcome, TargetError> {
        self.record.clear();
        values.iter().for_each(|value| self.record.extend_from_slice(value));
        self.target.store.put(perdura_store::Key::new(key.bytes), &self.record)?;
        self.commit()
    }

    fn write_hash(&mut self, key: Key<'_>, write: Write<'_>) -> Result<Outcome, TargetError> {
        let (store, layout) = (&self.target.store, &self.target.layout);
        let key = perdura_store::Key::new(key.bytes);
        store.run(Access::Key(key), |tx| {
            let fields = write.fields().zip(write.values);
            tx.hash_set_all(key, fields.map(|(field, value)| (layout.name(field), *value)))
        })?;
        self.commit()
    }

    /// Replaces a part of the string, as SETRANGE does.
    fn write_string(&mut self, key: Key<'_>, write: Write<'_>) -> Result<Outcome, TargetError> {
        let (store, layout) = (&self.target.store, &self.target.layout);
        let key = perdura_store::Key::new(key.bytes);
        let record = &mut self.record;
        let at = write.first_field * layout.field_bytes;
        let outcome = store.run(Access::Key(key), |tx| {
            let Some(entry) = tx.get(key) else { return Ok(Outcome::Missing) };
            record.clear();
            record.extend_from_slice(entry.string().unwrap_or_default());
            let parts = record[at..].chunks_mut(layout.field_bytes.max(1)).zip(write.values);
            parts.for_each(|(part, value)| part.copy_from_slice(value));
            tx.put(key, record, Expiry::Keep).map(|()| Outcome::Done)
        })?;
        if outcome == Outcome::Done { self.commit() } else { Ok(outcome) }
    }
}

impl Session for StoreSession<'_> {
    fn insert(&mut self, key: Key<'_>, values: &[&[u8]]) -> Result<Outcome, TargetError> {
        match self.target.layout.kind {
            RecordKind::Hash => self.write_hash(key, Write { first_field: 0, values }),
            RecordKind::String => self.write_whole_string(key, values),
        }
    }

    fn read(&mut self, key: Key<'_>) -> Result<Outcome, TargetError> {
        let (store, layout) = (&self.target.store, &self.target.layout);
        let key = perdura_store::Key::new(key.bytes);
        let found = match layout.kind {
            RecordKind::String => store.read(key, |entry| {
                let value = entry.as_ref().and_then(|entry| entry.string());
                value.map(|value| black_box(touch(value))).is_some()
            }),
            RecordKind::Hash => store.run(Access::Key(key), |tx| {
                let mut fields = 0;
                let mut sum = 0;
                tx.hash_for_each(key, &mut |_, value| {
                    sum ^= touch(value);
                    fields += 1;
                })?;
                black_box(sum);
                Ok::<_, TxError>(fields > 0)
            })?,
        };
        Ok(if found { Outcome::Done } else { Outcome::Missing })
    }

    fn update(&mut self, key: Key<'_>, write: Write<'_>) -> Result<Outcome, TargetError> {
        match self.target.layout.kind {
            RecordKind::Hash => self.write_hash(key, write),
            RecordKind::String if write.values.len() == self.target.layout.fields => {
                self.write_whole_string(key, write.values)
            }
            RecordKind::String => self.write_string(key, write),
        }
    }

    fn scan(&mut self, key: Key<'_>, count: usize) -> Result<Outcome, TargetError> {
        if self.target.layout.kind != RecordKind::String {
            return Err(TargetError::Unsupported { what: "scans over embedded hashes" });
        }
        let mut met = 0;
        for (_, value) in self.target.store.range(0, key.bytes).take(count) {
            black_box(touch(&value));
            met += 1;
        }
        Ok(if met > 0 { Outcome::Done } else { Outcome::Missing })
    }

    fn complete(
        &mut self,
        _done: &mut dyn FnMut(Result<Outcome, TargetError>),
    ) -> Result<(), TargetError> {
        if self.target.commit_each {
            self.target.store.region().commit_group()?;
        }
        Ok(())
    }
}

/// Reads every byte, as a program would. It is never inlined, so that every target's reader runs
/// the same code.
#[inline(never)]
pub fn touch(value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks::<8>();
    let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}
