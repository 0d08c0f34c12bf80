//! IS, integer sort: keys are sorted by buckets and counts, as NPB's IS does with buckets.
//!
//! In each round the keys are appended to the bucket of their upper bits, then counted within the
//! bucket and written back in order. Keys follow from their places, so that the expected result is
//! known without being read.

use super::probe::Probe;
use super::random::mixed;
use super::room::Room;
use super::sys::Array;
use super::{KernelError, Scale, Verified, Work};

const SEED: u64 = 21;

/// Log2 of the number of keys, of the largest key and of the number of buckets; rounds.
fn size(scale: Scale) -> (u32, u32, u32, usize) {
    match scale {
        Scale::Tiny => (18, 16, 3, 1),
        Scale::Small => (23, 20, 9, 1),
        Scale::Medium => (26, 23, 10, 2),
        Scale::Paper => (30, 27, 10, 10),
    }
}

/// Size of the kernel's data.
pub fn footprint_bytes(scale: Scale) -> u64 {
    let (keys, largest, buckets, _) = size(scale);
    2 * 4 * (1 << keys) + 4 * (1u64 << (largest - buckets)) + 4 * (1 << buckets)
}

pub struct Is<'h, P> {
    scale: Scale,
    keys: Array<'h, u32, P>,
    sorted: Array<'h, u32, P>,
    counts: Array<'h, u32, P>,
    /// For each bucket: the place of its next key.
    heads: Array<'h, u32, P>,
}

/// The sum of four random numbers, so that most keys are near the middle, as in NPB.
fn key(index: u64, largest_bits: u32) -> u32 {
    let word = mixed(SEED, index);
    let quarter = |shift: u32| (word >> shift & 0xffff) >> (18 - largest_bits.min(18));
    let sum = quarter(0) + quarter(16) + quarter(32) + quarter(48);
    let low_bits = largest_bits.saturating_sub(18);
    ((sum << low_bits) | (mixed(SEED + 1, index) & ((1 << low_bits) - 1))) as u32
}

impl<'h, P: Probe> Work<'h, P> for Is<'h, P> {
    fn prepare(room: &Room<'h, P>, scale: Scale) -> Result<Self, KernelError> {
        let (keys_bits, largest_bits, buckets_bits, _) = size(scale);
        let mut keys = room.array(1 << keys_bits)?;
        for first in (0..1usize << keys_bits).step_by(1024) {
            for (index, place) in keys.row_mut(first..first + 1024).iter_mut().enumerate() {
                *place = key((first + index) as u64, largest_bits);
            }
        }
        Ok(Self {
            scale,
            keys,
            sorted: room.array(1 << keys_bits)?,
            counts: room.array(1 << (largest_bits - buckets_bits))?,
            heads: room.array(1 << buckets_bits)?,
        })
    }

    fn work(&mut self) {
        for _ in 0..size(self.scale).3 {
            self.distribute();
            for bucket in 0..self.heads.len() {
                self.order(bucket);
            }
        }
    }

    fn verify(&mut self) -> Verified {
        let largest_bits = size(self.scale).1;
        let (mut wrong, mut before) = (0u64, 0);
        let (mut sum, mut mix) = (0u64, 0u64);
        for index in 0..self.sorted.len() {
            let found = self.sorted.get(index);
            wrong += u64::from(found < before);
            before = found;
            // Sums do not depend on the order: the same keys have the same sums.
            let made = key(index as u64, largest_bits);
            sum = sum.wrapping_add(u64::from(found)).wrapping_sub(u64::from(made));
            mix = mix.wrapping_add(mixed(5, found.into())).wrapping_sub(mixed(5, made.into()));
        }
        Verified {
            what: "keys out of order, or sums of keys that differ",
            found: (wrong + u64::from(sum != 0) + u64::from(mix != 0)) as f64,
            bound: 0.0,
        }
    }
}

impl<P: Probe> Is<'_, P> {
    fn shift(&self) -> u32 {
        let (_, largest_bits, buckets_bits, _) = size(self.scale);
        largest_bits - buckets_bits
    }

    /// Appends each key to its bucket in `sorted`. Afterwards each head is the end of its bucket.
    fn distribute(&mut self) {
        let shift = self.shift();
        let buckets = self.heads.len();
        self.heads.row_mut(0..buckets).fill(0);
        for index in 0..self.keys.len() {
            let bucket = (self.keys.get(index) >> shift) as usize;
            let count = self.heads.get(bucket);
            self.heads.set(bucket, count + 1);
        }
        let mut next = 0;
        for head in self.heads.row_mut(0..buckets) {
            (*head, next) = (next, next + *head);
        }
        for index in 0..self.keys.len() {
            let key = self.keys.get(index);
            let bucket = (key >> shift) as usize;
            let place = self.heads.get(bucket);
            self.heads.set(bucket, place + 1);
            self.sorted.set(place as usize, key);
        }
    }

    /// Sorts the keys of a bucket by counting: they differ in their lower bits only.
    fn order(&mut self, bucket: usize) {
        let shift = self.shift();
        let from = if bucket == 0 { 0 } else { self.heads.get(bucket - 1) as usize };
        let to = self.heads.get(bucket) as usize;
        let low = (1u32 << shift) - 1;
        let values = self.counts.len();
        let counts = self.counts.row_mut(0..values);
        counts.fill(0);
        let keys = self.sorted.row_mut(from..to);
        keys.iter().for_each(|key| counts[(key & low) as usize] += 1);
        let mut places = keys.iter_mut();
        for (value, count) in counts.iter().enumerate() {
            for place in places.by_ref().take(*count as usize) {
                *place = (bucket as u32) << shift | value as u32;
            }
        }
    }
}
