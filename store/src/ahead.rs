//! Loading a key's memory into the cache ahead of the operation that needs it.
//!
//! An operation on a cold key waits for the key's bucket and then for its record. Several keys that
//! are known at once can wait together: first all buckets are asked for, then all records, then
//! what large values have of their own tables, then the operations run. A request changes nothing,
//! and a key that moves after it is only found more slowly.

use crate::record::{Header, hash_field};
use crate::store::{Place, Store};
use crate::table::{self, BUCKET_BYTES, ROOT_BYTES};

/// A key, a field or a member that is looked for, and the bucket that likely has its entry.
#[derive(Debug, Clone, Copy)]
pub struct Sought {
    bucket: u64,
    hash: u64,
}

impl Store {
    /// Starts loading the bucket of a key into the cache. `None`: its table is empty.
    pub fn prefetch_bucket(&self, place: &Place) -> Option<Sought> {
        let region = self.region();
        self.recency.prefetch(place.hash);
        if let Some(far) = &self.far {
            far.uses.prefetch(place.hash);
        }
        // No lock is needed, because the root's words change by single stores only.
        let bucket = table::first_bucket(|at| region.peek(at), place.root, place.hash)?;
        region.prefetch(bucket, BUCKET_BYTES);
        Some(Sought { bucket, hash: place.hash })
    }

    /// Starts loading the record of a key, whose bucket is in the cache, into the cache. Returns
    /// where the record likely lies.
    #[inline]
    pub fn prefetch_record(&self, key: &Sought) -> Option<u64> {
        // No lock is needed: a bucket that changes meanwhile makes at worst a wrong guess.
        let record = self.likely_record(key)?;
        self.region().prefetch(record, RECORD_BYTES_AHEAD);
        Some(record)
    }

    /// Starts loading the bucket of a field, or of a member, of the value of the key whose record
    /// likely lies at `record`, into the cache, if the value has a table of its own. The record
    /// should be in the cache.
    pub fn prefetch_field_bucket(&self, record: u64, field: &[u8]) -> Option<Sought> {
        // What is read here is a guess, like the record itself, so any word may stand there.
        let root_at = record + Header::root_at(self.peek_if_there(record)?)?;
        let root = self.peek_if_there(root_at)?;
        let (hash, load) = (hash_field(field), |at| self.peek_if_there(at).unwrap_or(0));
        let is_root = root.is_multiple_of(8) && root <= self.region().len_bytes() - ROOT_BYTES;
        let bucket = is_root.then(|| table::first_bucket(load, root, hash)).flatten()?;
        self.region().prefetch(bucket, BUCKET_BYTES);
        Some(Sought { bucket, hash })
    }

    /// Starts loading the record of a field, whose bucket is in the cache, into the cache.
    #[inline]
    pub fn prefetch_field_record(&self, field: &Sought) {
        if let Some(record) = self.likely_record(field) {
            self.region().prefetch(record, FIELD_BYTES_AHEAD);
        }
    }

    /// Where the record likely lies.
    fn likely_record(&self, sought: &Sought) -> Option<u64> {
        let (region, bucket) = (self.region(), sought.bucket);
        // The list of pieces may hold something else since the root was read.
        if !bucket.is_multiple_of(BUCKET_BYTES) || bucket > region.len_bytes() - BUCKET_BYTES {
            return None;
        }
        table::likely_record(|index| region.peek(bucket + index * 8), sought.hash)
    }

    /// The word at an offset that was guessed.
    fn peek_if_there(&self, at: u64) -> Option<u64> {
        let region = self.region();
        let is_there = at.is_multiple_of(8) && at <= region.len_bytes() - 8;
        is_there.then(|| region.peek(at))
    }
}

/// Bytes that are asked for of a field's record, which is smaller than a key's.
const FIELD_BYTES_AHEAD: u64 = 64;

/// Bytes of a record that are asked for: the header, the key and the beginning of the value. The
/// processor itself goes on from there.
const RECORD_BYTES_AHEAD: u64 = 256;
