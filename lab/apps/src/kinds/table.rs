//! A hash table whose buckets and entries are objects of a pool, as in the program on the paper's
//! slide about programming.
//!
//! An entry is complete before the one word is written that makes it reachable, and it is never
//! changed afterwards: a replacement is a new object. So the table is complete at every instant
//! with any way that keeps the order of writes.

use rand::Rng;

use crate::access::{Access, ObjectId, Pool};
use crate::error::{AppError, Result};
use crate::kinds::{App, Named, Random, Size, random};

const NAME: &str = "table";
const WORD_BYTES: usize = 8;
const KEY_BYTES: usize = 16;
/// Bytes of an entry's next link and key; the value follows.
const HEAD_BYTES: usize = WORD_BYTES + KEY_BYTES;
const VALUE_BYTES_MAX: usize = 512;
/// Operations between two waits for the device, as of a program that may lose some operations.
const SYNC_EVERY: usize = 1000;

/// The application: gets, puts and removals of random keys.
#[derive(Debug)]
pub struct Table {
    keys: usize,
    operations: usize,
    seed: u64,
}

impl Table {
    /// The numbers of keys and operations follow the size.
    pub fn new(size: Size, seed: u64) -> Self {
        let (keys, operations) = match size {
            Size::Small => (1_000, 5_000),
            Size::Medium => (100_000, 200_000),
            // The largest numbers in the paper's figure.
            Size::Paper => (1_000_000, 2_000_000),
        };
        Self { keys, operations, seed }
    }

    fn key(&self, random: &mut Random) -> [u8; KEY_BYTES] {
        let number = random.random_range(0..self.keys as u64);
        let mut key = [0; KEY_BYTES];
        key[..8].copy_from_slice(&number.to_be_bytes());
        key[8..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        key
    }
}

impl App for Table {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> String {
        format!(
            "hash table in a pool: {} operations (50 % gets, 35 % puts, 15 % removals) on {} keys, \
             values of 64 to {VALUE_BYTES_MAX} B, a sync every {SYNC_EVERY}",
            self.operations, self.keys
        )
    }

    fn inputs(&self) -> Result<Vec<Named>> {
        Ok(Vec::new())
    }

    fn run(&self, access: &dyn Access) -> Result<()> {
        let mut random = random(self.seed, NAME, 0);
        let mut pool = access.pool("pool-table")?;
        let mut table = Chains::new(&mut *pool, self.keys.next_power_of_two())?;
        let (mut found, mut sum) = (0u64, 0u64);
        let mut value = [0; VALUE_BYTES_MAX];
        for number in 0..self.operations {
            let key = self.key(&mut random);
            match random.random_range(0..100) {
                0..50 => {
                    if let Some(value) = table.get(&key)? {
                        found += 1;
                        sum = sum.wrapping_add(xxhash_rust::xxh3::xxh3_64(&value));
                    }
                }
                50..85 => {
                    let value = &mut value[..random.random_range(64..=VALUE_BYTES_MAX)];
                    random.fill(value);
                    table.put(&key, value)?;
                }
                _ => found += u64::from(table.remove(&key)?),
            }
            if number % SYNC_EVERY == SYNC_EVERY - 1 {
                table.pool.sync()?;
            }
        }
        let mut output = access.put("out-table", self.keys * (KEY_BYTES + VALUE_BYTES_MAX) / 4)?;
        output.write(&found.to_le_bytes())?;
        output.write(&sum.to_le_bytes())?;
        table.each(|entry| output.write(entry))?;
        output.finish()
    }
}

/// The table: an object with a link for each bucket; each link begins a chain of entries.
struct Chains<'a> {
    pool: &'a mut dyn Pool,
    buckets: ObjectId,
    buckets_mask: u64,
}

/// Number and length of an entry's object in one word, so that one call reads it; 0 ends the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link(u64);

impl Link {
    fn new(id: ObjectId, len_bytes: usize) -> Self {
        Self(id << 16 | len_bytes as u64)
    }

    fn target(self) -> Option<(ObjectId, usize)> {
        (self.0 != 0).then_some((self.0 >> 16, (self.0 & 0xffff) as usize))
    }
}

/// The place of a link.
#[derive(Debug, Clone, Copy)]
struct Place {
    object: ObjectId,
    at: usize,
}

/// The result of a search.
struct Found {
    /// The link to the entry, or the last link of the chain.
    place: Place,
    entry: Option<(ObjectId, usize, Link)>,
}

impl<'a> Chains<'a> {
    fn new(pool: &'a mut dyn Pool, buckets: usize) -> Result<Self> {
        let id = pool.alloc(buckets * WORD_BYTES)?;
        pool.write(id, 0, &vec![0; buckets * WORD_BYTES])?;
        Ok(Self { pool, buckets: id, buckets_mask: buckets as u64 - 1 })
    }

    fn bucket(&self, key: &[u8; KEY_BYTES]) -> Place {
        let number = xxhash_rust::xxh3::xxh3_64(key) & self.buckets_mask;
        Place { object: self.buckets, at: number as usize * WORD_BYTES }
    }

    fn link(&mut self, place: Place) -> Result<Link> {
        Ok(Link(word(self.pool.read(place.object, place.at, WORD_BYTES)?)?))
    }

    fn set_link(&mut self, place: Place, link: Link) -> Result<()> {
        self.pool.write(place.object, place.at, &link.0.to_le_bytes())
    }

    fn find(&mut self, key: &[u8; KEY_BYTES]) -> Result<Found> {
        let mut place = self.bucket(key);
        let mut link = self.link(place)?;
        while let Some((id, len_bytes)) = link.target() {
            let head = self.pool.read(id, 0, HEAD_BYTES)?;
            let next = Link(word(head)?);
            if head[WORD_BYTES..] == key[..] {
                return Ok(Found { place, entry: Some((id, len_bytes, next)) });
            }
            place = Place { object: id, at: 0 };
            link = next;
        }
        Ok(Found { place, entry: None })
    }

    fn get(&mut self, key: &[u8; KEY_BYTES]) -> Result<Option<Vec<u8>>> {
        let Some((id, len_bytes, _)) = self.find(key)?.entry else { return Ok(None) };
        // This copy stands for the paper's `temp_buff = CapAlloc(size)`.
        let value = self.pool.read(id, HEAD_BYTES, len_bytes - HEAD_BYTES)?;
        Ok(Some(value.to_vec()))
    }

    fn put(&mut self, key: &[u8; KEY_BYTES], value: &[u8]) -> Result<()> {
        let found = self.find(key)?;
        let next = found.entry.map_or(Link(0), |(_, _, next)| next);
        let mut entry = Vec::with_capacity(HEAD_BYTES + value.len());
        entry.extend_from_slice(&next.0.to_le_bytes());
        entry.extend_from_slice(key);
        entry.extend_from_slice(value);
        let id = self.pool.alloc(entry.len())?;
        self.pool.write(id, 0, &entry)?;
        self.set_link(found.place, Link::new(id, entry.len()))?;
        if let Some((replaced, len_bytes, _)) = found.entry {
            self.pool.free(replaced, len_bytes)?;
        }
        Ok(())
    }

    fn remove(&mut self, key: &[u8; KEY_BYTES]) -> Result<bool> {
        let found = self.find(key)?;
        let Some((id, len_bytes, next)) = found.entry else { return Ok(false) };
        self.set_link(found.place, next)?;
        self.pool.free(id, len_bytes)?;
        Ok(true)
    }

    /// Calls `call` with key and value of each entry, bucket by bucket.
    fn each(&mut self, mut call: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        for number in 0..=self.buckets_mask as usize {
            let mut link = self.link(Place { object: self.buckets, at: number * WORD_BYTES })?;
            while let Some((id, len_bytes)) = link.target() {
                let entry = self.pool.read(id, 0, len_bytes)?;
                link = Link(word(entry)?);
                call(&entry[WORD_BYTES..])?;
            }
        }
        Ok(())
    }
}

fn word(bytes: &[u8]) -> Result<u64> {
    let word = bytes.first_chunk().copied().map(u64::from_le_bytes);
    word.ok_or_else(|| AppError::malformed(NAME, "a link of less than 8 bytes"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::ways::Dram;

    #[test]
    fn the_table_holds_what_a_map_of_the_library_holds() {
        let app = Table { keys: 300, operations: 0, seed: 11 };
        let access = Dram::default();
        let mut pool = access.pool("p").unwrap();
        // Few buckets make long chains.
        let mut table = Chains::new(&mut *pool, 16).unwrap();
        let mut oracle = HashMap::new();
        let mut random = random(11, "oracle", 0);
        for _ in 0..20_000 {
            let key = app.key(&mut random);
            match random.random_range(0..3) {
                0 => assert_eq!(table.get(&key).unwrap().as_ref(), oracle.get(&key), "seed 11"),
                1 => {
                    let value = vec![random.random(); random.random_range(1..100)];
                    table.put(&key, &value).unwrap();
                    oracle.insert(key, value);
                }
                _ => {
                    let removed = table.remove(&key).unwrap();
                    assert_eq!(removed, oracle.remove(&key).is_some(), "seed 11");
                }
            }
        }
        let mut entries = 0;
        table
            .each(|entry| {
                let (key, value) = entry.split_first_chunk().unwrap();
                assert_eq!(oracle.get(key).map(Vec::as_slice), Some(value), "seed 11");
                entries += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(entries, oracle.len());
    }
}
