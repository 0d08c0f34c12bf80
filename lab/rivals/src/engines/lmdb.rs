//! The engine LMDB, through the crate heed.

use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions};
use perdura_bench::target::TargetError;

use super::{Opened, failed};
use crate::engine::Engine;

const NAME: &str = "lmdb";
/// Least address space, which takes no memory: copies on write need room besides the data they
/// replace.
const MAP_BYTES_MIN: u64 = 1 << 30;

struct Lmdb {
    env: Env,
    records: Database<Bytes, Bytes>,
}

pub fn open_sync(dir: &Path, data_bytes: u64) -> Opened {
    open(dir, data_bytes, EnvFlags::empty())
}

pub fn open_no_sync(dir: &Path, data_bytes: u64) -> Opened {
    open(dir, data_bytes, EnvFlags::NO_SYNC)
}

fn open(dir: &Path, data_bytes: u64, flags: EnvFlags) -> Opened {
    let map_bytes = (data_bytes * 4 + MAP_BYTES_MIN).next_multiple_of(1 << 20);
    let mut options = EnvOpenOptions::new();
    options.map_size(map_bytes as usize);
    // SAFETY: the folder was made for this run, so no other program changes the mapped file;
    // NO_SYNC gives up only the durability that the table says.
    let env = unsafe {
        options.flags(flags);
        options.open(dir)
    };
    let env = env.map_err(failed(NAME))?;
    let mut tx = env.write_txn().map_err(failed(NAME))?;
    let records = env.create_database(&mut tx, None).map_err(failed(NAME))?;
    tx.commit().map_err(failed(NAME))?;
    Ok(Box::new(Lmdb { env, records }))
}

impl Engine for Lmdb {
    fn put(&self, records: &[(&[u8], &[u8])]) -> Result<(), TargetError> {
        let mut tx = self.env.write_txn().map_err(failed(NAME))?;
        for (key, record) in records {
            self.records.put(&mut tx, key, record).map_err(failed(NAME))?;
        }
        tx.commit().map_err(failed(NAME))
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError> {
        let tx = self.env.read_txn().map_err(failed(NAME))?;
        let record = self.records.get(&tx, key).map_err(failed(NAME))?;
        Ok(record.map(found).is_some())
    }

    fn change(&self, key: &[u8], change: &mut dyn FnMut(&mut [u8])) -> Result<bool, TargetError> {
        let mut tx = self.env.write_txn().map_err(failed(NAME))?;
        let Some(record) = self.records.get(&tx, key).map_err(failed(NAME))? else {
            return Ok(false);
        };
        let mut record = record.to_vec();
        change(&mut record);
        self.records.put(&mut tx, key, &record).map_err(failed(NAME))?;
        tx.commit().map_err(failed(NAME))?;
        Ok(true)
    }

    fn scan(
        &self,
        key: &[u8],
        count: usize,
        met: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, TargetError> {
        let tx = self.env.read_txn().map_err(failed(NAME))?;
        let from = (Bound::Included(key), Bound::Unbounded);
        let mut seen = 0;
        for entry in self.records.range(&tx, &from).map_err(failed(NAME))?.take(count) {
            let (_, record) = entry.map_err(failed(NAME))?;
            met(record);
            seen += 1;
        }
        Ok(seen)
    }
}
