//! The engine fjall.

use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use perdura_bench::target::TargetError;

use super::{Opened, cache_bytes, failed};
use crate::engine::Engine;

const NAME: &str = "fjall";

struct Fjall {
    db: Database,
    records: Keyspace,
    /// How each write is persisted; `None` leaves it to the system's buffers, fjall's default.
    persist: Option<PersistMode>,
}

pub fn open_sync(dir: &Path, data_bytes: u64) -> Opened {
    open(dir, data_bytes, Some(PersistMode::SyncData))
}

pub fn open_default(dir: &Path, data_bytes: u64) -> Opened {
    open(dir, data_bytes, None)
}

fn open(dir: &Path, data_bytes: u64, persist: Option<PersistMode>) -> Opened {
    let db =
        Database::builder(dir).cache_size(cache_bytes(data_bytes)).open().map_err(failed(NAME))?;
    let records = db.keyspace("records", KeyspaceCreateOptions::default).map_err(failed(NAME))?;
    Ok(Box::new(Fjall { db, records, persist }))
}

impl Engine for Fjall {
    fn put(&self, records: &[(&[u8], &[u8])]) -> Result<(), TargetError> {
        if let [(key, record)] = records {
            self.records.insert(*key, *record).map_err(failed(NAME))?;
            return self.persist.map_or(Ok(()), |mode| self.db.persist(mode)).map_err(failed(NAME));
        }
        let mut batch = self.db.batch().durability(self.persist);
        records.iter().for_each(|(key, record)| batch.insert(&self.records, *key, *record));
        batch.commit().map_err(failed(NAME))
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError> {
        let record = self.records.get(key).map_err(failed(NAME))?;
        Ok(record.map(|record| found(&record)).is_some())
    }

    fn scan(
        &self,
        key: &[u8],
        count: usize,
        met: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, TargetError> {
        let mut seen = 0;
        for entry in self.records.range(key..).take(count) {
            met(&entry.value().map_err(failed(NAME))?);
            seen += 1;
        }
        Ok(seen)
    }
}
