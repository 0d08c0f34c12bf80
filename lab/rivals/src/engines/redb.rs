//! The engine redb.

use std::path::Path;

use perdura_bench::target::TargetError;
use redb::{Builder, Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use super::{Opened, cache_bytes, failed};
use crate::engine::Engine;

const NAME: &str = "redb";
const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");
const FILE: &str = "records.redb";

struct Redb {
    db: Database,
    durability: Durability,
}

pub fn open_immediate(dir: &Path, data_bytes: u64) -> Opened {
    open(dir, data_bytes, Durability::Immediate)
}

pub fn open_none(dir: &Path, data_bytes: u64) -> Opened {
    open(dir, data_bytes, Durability::None)
}

fn open(dir: &Path, data_bytes: u64, durability: Durability) -> Opened {
    let mut builder = Builder::new();
    // The engine's own default is 1 GiB.
    builder.set_cache_size((cache_bytes(data_bytes) as usize).max(1 << 30));
    let db = builder.create(dir.join(FILE)).map_err(failed(NAME))?;
    let tx = db.begin_write().map_err(failed(NAME))?;
    tx.open_table(RECORDS).map_err(failed(NAME))?;
    tx.commit().map_err(failed(NAME))?;
    Ok(Box::new(Redb { db, durability }))
}

impl Redb {
    fn write(
        &self,
        write: impl FnOnce(&mut redb::Table<'_, &[u8], &[u8]>) -> Result<bool, redb::StorageError>,
    ) -> Result<bool, TargetError> {
        let mut tx = self.db.begin_write().map_err(failed(NAME))?;
        tx.set_durability(self.durability).map_err(failed(NAME))?;
        let done = {
            let mut table = tx.open_table(RECORDS).map_err(failed(NAME))?;
            write(&mut table).map_err(failed(NAME))?
        };
        tx.commit().map_err(failed(NAME))?;
        Ok(done)
    }
}

impl Engine for Redb {
    fn put(&self, records: &[(&[u8], &[u8])]) -> Result<(), TargetError> {
        self.write(|table| {
            for (key, record) in records {
                table.insert(key, record)?;
            }
            Ok(true)
        })?;
        Ok(())
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError> {
        let tx = self.db.begin_read().map_err(failed(NAME))?;
        let table = tx.open_table(RECORDS).map_err(failed(NAME))?;
        let record = table.get(key).map_err(failed(NAME))?;
        Ok(record.map(|record| found(record.value())).is_some())
    }

    fn change(&self, key: &[u8], change: &mut dyn FnMut(&mut [u8])) -> Result<bool, TargetError> {
        self.write(|table| {
            let record = table.get(key)?.map(|record| record.value().to_vec());
            let Some(mut record) = record else { return Ok(false) };
            change(&mut record);
            table.insert(key, &record[..])?;
            Ok(true)
        })
    }

    fn scan(
        &self,
        key: &[u8],
        count: usize,
        met: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, TargetError> {
        let tx = self.db.begin_read().map_err(failed(NAME))?;
        let table = tx.open_table(RECORDS).map_err(failed(NAME))?;
        let mut seen = 0;
        for entry in table.range(key..).map_err(failed(NAME))?.take(count) {
            let (_, record) = entry.map_err(failed(NAME))?;
            met(record.value());
            seen += 1;
        }
        Ok(seen)
    }
}
