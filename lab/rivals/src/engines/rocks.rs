//! The engine RocksDB.

use std::path::Path;

use perdura_bench::target::TargetError;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Direction, IteratorMode, Options, WriteBatch,
    WriteOptions,
};

use super::{Opened, cache_bytes, failed};
use crate::engine::Engine;

const NAME: &str = "rocksdb";
const BLOOM_BITS: f64 = 10.0;

struct Rocks {
    db: DB,
    /// Whether the log is on the SSD when a write returns.
    sync: bool,
}

pub fn open_sync(dir: &Path, data_bytes: u64) -> Opened {
    open(dir, data_bytes, true)
}

pub fn open_no_sync(dir: &Path, data_bytes: u64) -> Opened {
    open(dir, data_bytes, false)
}

fn open(dir: &Path, data_bytes: u64, sync: bool) -> Opened {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(cache_bytes(data_bytes) as usize));
    blocks.set_bloom_filter(BLOOM_BITS, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::None);
    options.set_block_based_table_factory(&blocks);
    let db = DB::open(&options, dir).map_err(failed(NAME))?;
    Ok(Box::new(Rocks { db, sync }))
}

impl Engine for Rocks {
    fn put(&self, records: &[(&[u8], &[u8])]) -> Result<(), TargetError> {
        let mut options = WriteOptions::default();
        options.set_sync(self.sync);
        match records {
            [(key, record)] => self.db.put_opt(key, record, &options),
            records => {
                let mut batch = WriteBatch::default();
                records.iter().for_each(|(key, record)| batch.put(key, record));
                self.db.write_opt(batch, &options)
            }
        }
        .map_err(failed(NAME))
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError> {
        let record = self.db.get_pinned(key).map_err(failed(NAME))?;
        Ok(record.map(|record| found(&record)).is_some())
    }

    fn scan(
        &self,
        key: &[u8],
        count: usize,
        met: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, TargetError> {
        let mut seen = 0;
        for entry in self.db.iterator(IteratorMode::From(key, Direction::Forward)).take(count) {
            let (_, record) = entry.map_err(failed(NAME))?;
            met(&record);
            seen += 1;
        }
        Ok(seen)
    }
}
