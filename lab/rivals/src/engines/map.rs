//! A sharded hash map: the speed of DRAM without durability.

use std::hash::BuildHasher;
use std::path::Path;

use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::Mutex;
use perdura_bench::target::TargetError;

use super::Opened;
use crate::engine::Engine;

const SHARDS: usize = 256;

type Shard = HashMap<Vec<u8>, Vec<u8>>;

struct Map {
    shards: Vec<Mutex<Shard>>,
    chooser: DefaultHashBuilder,
}

pub fn open(_dir: &Path, _data_bytes: u64) -> Opened {
    let shards = (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect();
    Ok(Box::new(Map { shards, chooser: DefaultHashBuilder::default() }))
}

impl Map {
    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        &self.shards[self.chooser.hash_one(key) as usize % SHARDS]
    }
}

impl Engine for Map {
    fn put(&self, records: &[(&[u8], &[u8])]) -> Result<(), TargetError> {
        for (key, record) in records {
            let mut shard = self.shard(key).lock();
            match shard.get_mut(*key) {
                Some(there) => {
                    there.clear();
                    there.extend_from_slice(record);
                }
                None => drop(shard.insert(key.to_vec(), record.to_vec())),
            }
        }
        Ok(())
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError> {
        let shard = self.shard(key).lock();
        Ok(shard.get(key).map(|record| found(record)).is_some())
    }

    fn change(&self, key: &[u8], change: &mut dyn FnMut(&mut [u8])) -> Result<bool, TargetError> {
        let mut shard = self.shard(key).lock();
        Ok(shard.get_mut(key).map(|record| change(record)).is_some())
    }

    fn scan(
        &self,
        _key: &[u8],
        _count: usize,
        _met: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, TargetError> {
        Err(TargetError::Unsupported { what: "scans: a hash map has no order" })
    }
}
