//! Loading a key's memory into the cache ahead of the operation that needs it.
//!
//! An operation on a cold key waits for the key's bucket and then for its record. Several keys that
//! are known at once can wait together: first all buckets are asked for, then all records, then the
//! operations run. A request changes nothing, and a key that moves after it is only found more
//! slowly.

use crate::store::{Place, Store};
use crate::table::{self, BUCKET_BYTES};

impl Store {
    /// Starts loading the bucket of a key into the cache.
    pub fn prefetch_bucket(&self, place: &Place) {
        let region = self.region();
        // No lock is needed, because the root's words change by single stores only.
        if let Some(at) = table::first_bucket(|at| region.peek(at), place.root, place.hash) {
            region.prefetch(at, BUCKET_BYTES);
        }
        if let Some(far) = &self.far {
            far.uses.prefetch(place.hash);
        }
    }

    /// Starts loading the record of a key, whose bucket is in the cache, into the cache.
    pub fn prefetch_record(&self, place: &Place) {
        let region = self.region();
        // No lock is needed: a bucket that changes meanwhile makes at worst a wrong guess.
        let Some(at) = table::first_bucket(|at| region.peek(at), place.root, place.hash) else {
            return;
        };
        // The list of pieces may hold something else since the root was read.
        if !at.is_multiple_of(BUCKET_BYTES) || at > region.len_bytes() - BUCKET_BYTES {
            return;
        }
        let bucket = std::array::from_fn(|index| region.peek(at + index as u64 * 8));
        if let Some(record) = table::likely_record(&bucket, place.hash) {
            region.prefetch(record, RECORD_BYTES_AHEAD);
        }
    }
}

/// Bytes of a record that are asked for: the header, the key and the beginning of the value. The
/// processor itself goes on from there.
const RECORD_BYTES_AHEAD: u64 = 256;
