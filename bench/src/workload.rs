//! The operations, keys and values of YCSB's core workloads A to F.
//!
//! Names are YCSB's: the key of record `n` is `user` and the FNV hash of `n`, fields are `field0`,
//! `field1`, … Values are pieces of a pool of random letters: drawing each byte would cost more
//! than the operation measured.

use std::io::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use serde::{Deserialize, Serialize};

use crate::dist::Distribution;
use crate::hash::fnv64;

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpKind {
    /// Reads all fields of a record.
    Read,
    /// Writes one field of a record, or all of them.
    Update,
    /// Inserts a new record.
    Insert,
    /// Reads several records in key order.
    Scan,
    /// Reads a record and then updates it.
    ReadModifyWrite,
}

impl OpKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Read, Self::Update, Self::Insert, Self::Scan, Self::ReadModifyWrite];

    /// The kind's name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::Scan => "scan",
            Self::ReadModifyWrite => "read_modify_write",
        }
    }
}

/// Shares of the kinds of operation, as YCSB's core workloads have them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workload {
    /// The workload's letter, `a` to `f`.
    pub name: char,
    /// The workload's description in the paper and in YCSB.
    pub about: &'static str,
    /// The first kind of operation and its share; all other operations are of the second kind.
    first: (OpKind, f64),
    second: OpKind,
    /// The distribution of accesses over the records.
    pub distribution: Distribution,
}

impl Workload {
    /// The workloads A to F.
    pub const ALL: [Self; 6] = {
        use OpKind::*;
        const fn core(
            name: char,
            about: &'static str,
            first: (OpKind, f64),
            second: OpKind,
            distribution: Distribution,
        ) -> Workload {
            Workload { name, about, first, second, distribution }
        }
        let zipf = Distribution::Zipfian;
        [
            core('a', "update heavy: 50 % reads, 50 % updates", (Read, 0.5), Update, zipf),
            core('b', "read mostly: 95 % reads, 5 % updates", (Read, 0.95), Update, zipf),
            core('c', "read only", (Read, 1.0), Read, zipf),
            core(
                'd',
                "read latest: 95 % reads, 5 % inserts",
                (Read, 0.95),
                Insert,
                Distribution::Latest,
            ),
            core('e', "short ranges: 95 % scans, 5 % inserts", (Scan, 0.95), Insert, zipf),
            core('f', "50 % reads, 50 % read-modify-writes", (Read, 0.5), ReadModifyWrite, zipf),
        ]
    };

    /// Returns the workload whose letter is `name`, large or small.
    pub fn parse(name: &str) -> Option<Self> {
        let wanted = name.to_ascii_lowercase();
        Self::ALL.into_iter().find(|workload| wanted == workload.name.to_string())
    }

    /// Whether the workload has scans, and so needs an index in key order.
    pub fn scans(&self) -> bool {
        self.first.0 == OpKind::Scan
    }

    /// Number of records that are inserted in `operations`, with the factor of two that YCSB allows
    /// for.
    pub fn expected_new(&self, operations: u64) -> u64 {
        let share = if self.second == OpKind::Insert { 1.0 - self.first.1 } else { 0.0 };
        (operations as f64 * share * 2.0) as u64
    }

    /// Draws the kind of the next operation.
    pub fn draw(&self, random: &mut impl Rng) -> OpKind {
        if random.random::<f64>() < self.first.1 { self.first.0 } else { self.second }
    }
}

/// The form in which a record is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// A hash with all fields, as in YCSB's Redis binding.
    Hash,
    /// A record is one string of all its fields, so an update of one field writes the whole string.
    String,
}

/// Form and size of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The form in which a record is stored.
    pub kind: RecordKind,
    /// Number of fields.
    pub fields: usize,
    /// Bytes of each field's value.
    pub field_bytes: usize,
    /// Whether an update writes all fields.
    pub write_all: bool,
    names: Vec<Vec<u8>>,
    keys: KeyShape,
    /// Share of the values' bytes that repeat, percent.
    pub repeating_percent: u32,
}

/// The form of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyShape {
    Ycsb,
    /// Keys of [`SHORT_KEY_BYTES`].
    Short,
}

impl Layout {
    /// A layout whose fields are named `field0`, ….
    pub fn new(kind: RecordKind, fields: usize, field_bytes: usize, write_all: bool) -> Self {
        let names = (0..fields).map(|field| format!("field{field}").into_bytes()).collect();
        let keys = KeyShape::Ycsb;
        Self { kind, fields, field_bytes, write_all, names, keys, repeating_percent: 0 }
    }

    /// Returns this layout with values of which `percent` can be compressed away.
    pub fn with_repeating(self, percent: u32) -> Self {
        Self { repeating_percent: percent, ..self }
    }

    /// Returns this layout with keys of 16 bytes, as embedded engines are mostly measured.
    pub fn with_short_keys(self) -> Self {
        Self { keys: KeyShape::Short, ..self }
    }

    /// Bytes of a key.
    pub fn key_bytes(&self) -> u64 {
        match self.keys {
            KeyShape::Ycsb => KEY_BYTES,
            KeyShape::Short => SHORT_KEY_BYTES as u64,
        }
    }

    /// Writes the key of record `number` into `out`.
    pub fn write_key(&self, number: u64, out: &mut Vec<u8>) {
        match self.keys {
            KeyShape::Ycsb => write_key(number, out),
            KeyShape::Short => {
                out.clear();
                out.extend_from_slice(&fnv64(number).to_be_bytes());
                out.extend_from_slice(&number.to_be_bytes());
            }
        }
    }

    /// Name of a field.
    pub fn name(&self, field: usize) -> &[u8] {
        &self.names[field]
    }

    /// The user's bytes of a record: key, names and values.
    pub fn record_bytes(&self) -> u64 {
        self.key_bytes() + self.bytes_of(0..self.fields)
    }

    /// Bytes of some fields: values, and names if they are stored.
    pub fn bytes_of(&self, fields: Range<usize>) -> u64 {
        let names = match self.kind {
            RecordKind::Hash => self.names[fields.clone()].iter().map(Vec::len).sum::<usize>(),
            RecordKind::String => 0,
        };
        (names + fields.len() * self.field_bytes) as u64
    }
}

/// Bytes of nearly every key: `user` and nineteen digits; some keys have one or two digits less.
pub const KEY_BYTES: u64 = 23;
/// Bytes of a short key: eight of the number's hash, so that neighbours are scattered, and the
/// number.
const SHORT_KEY_BYTES: usize = 16;

/// Writes the key of record `number` into `out`.
pub fn write_key(number: u64, out: &mut Vec<u8>) {
    out.clear();
    // Writing to a vector does not fail.
    let _ = write!(out, "user{}", fnv64(number));
}

/// Random letters, and phrases that repeat, from which the values of records are cut.
#[derive(Debug)]
pub struct Pool(Vec<u8>);

impl Pool {
    /// Makes a pool that is large enough for values to differ.
    pub fn new(seed: u64, layout: &Layout) -> Self {
        let mut random = Random::seed_from_u64(seed ^ 0x7065_7264_7572_6121);
        let len = POOL_BYTES + layout.field_bytes;
        let mut letters: Vec<u8> = (0..len).map(|_| random.random_range(b' '..=b'~')).collect();
        let (phrases, rest) = letters.split_at_mut(PHRASES * PHRASE_BYTES);
        // Drawn after the letters, which therefore do not depend on the phrases.
        for piece in rest.chunks_exact_mut(PHRASE_BYTES) {
            if random.random_ratio(layout.repeating_percent, 100) {
                let from = random.random_range(0..PHRASES) * PHRASE_BYTES;
                piece.copy_from_slice(&phrases[from..from + PHRASE_BYTES]);
            }
        }
        Self(letters)
    }

    /// Draws a value.
    pub fn draw(&self, bytes: usize, random: &mut impl Rng) -> &[u8] {
        let at = random.random_range(0..=self.0.len() - bytes);
        &self.0[at..at + bytes]
    }
}

const POOL_BYTES: usize = 1 << 20;
/// Number of phrases that repeat.
const PHRASES: usize = 16;
const PHRASE_BYTES: usize = 32;

/// The records that exist: those loaded, and those inserted since.
///
/// Inserts may end out of order. A record counts as existing once it and all before it are
/// inserted, so that no operation reads a record that is still under way.
#[derive(Debug)]
pub struct KeySpace {
    loaded: u64,
    next: AtomicU64,
    present: AtomicU64,
    /// A ring of inserts that have ended and are not counted yet.
    done: Box<[AtomicBool]>,
    advancing: Mutex<()>,
}

impl KeySpace {
    /// Makes a key space in which the records below `loaded` exist.
    pub fn new(loaded: u64) -> Self {
        Self {
            loaded,
            next: AtomicU64::new(loaded),
            present: AtomicU64::new(loaded),
            done: (0..INSERTS_ON_THEIR_WAY_MAX).map(|_| AtomicBool::new(false)).collect(),
            advancing: Mutex::new(()),
        }
    }

    /// Number of records that were loaded.
    pub fn loaded(&self) -> u64 {
        self.loaded
    }

    /// Number of records that exist.
    pub fn present(&self) -> u64 {
        self.present.load(Acquire)
    }

    /// Number of the next record to insert; `None` while the ring of inserts under way is full.
    pub fn claim(&self) -> Option<u64> {
        let limit = self.present() + INSERTS_ON_THEIR_WAY_MAX as u64;
        self.next.fetch_update(AcqRel, Relaxed, |next| (next < limit).then_some(next + 1)).ok()
    }

    /// Notes that the insert of `number` ended. A failed insert counts, too: its record is missing,
    /// which a read of it reports.
    pub fn acknowledge(&self, number: u64) {
        self.slot(number).store(true, Release);
        let _advancing = self.advancing.lock();
        let mut present = self.present.load(Relaxed);
        while self.slot(present).swap(false, AcqRel) {
            present += 1;
        }
        self.present.store(present, Release);
    }

    fn slot(&self, number: u64) -> &AtomicBool {
        &self.done[(number % INSERTS_ON_THEIR_WAY_MAX as u64) as usize]
    }
}

/// Size of YCSB's window of inserts under way.
const INSERTS_ON_THEIR_WAY_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_named_as_ycsb_names_them() {
        let mut key = Vec::new();
        write_key(0, &mut key);
        assert_eq!(key, b"user6284781860667377211");
        assert_eq!(key.len() as u64, KEY_BYTES);
    }

    #[test]
    fn short_keys_are_scattered_and_counted() {
        let layout = Layout::new(RecordKind::String, 1, 1024, true).with_short_keys();
        let [mut first, mut second] = [Vec::new(), Vec::new()];
        layout.write_key(1, &mut first);
        layout.write_key(2, &mut second);
        assert_ne!(first[..8], second[..8]);
        assert_eq!(first.len() as u64, layout.key_bytes());
        assert_eq!(layout.record_bytes(), 16 + 1024);
    }

    #[test]
    fn mixes_have_their_shares() {
        let mut random = Random::seed_from_u64(3);
        for workload in Workload::ALL {
            let draws = 100_000;
            let first =
                (0..draws).filter(|_| workload.draw(&mut random) == workload.first.0).count();
            let share = first as f64 / f64::from(draws);
            assert!((share - workload.first.1).abs() < 0.01, "{}: {share}", workload.name);
        }
        assert!(Workload::parse("E").is_some_and(|workload| workload.scans()));
        assert_eq!(Workload::parse("g"), None);
        assert_eq!(Workload::parse("d").map(|d| d.expected_new(1000)), Some(100));
    }

    #[test]
    fn a_record_of_ycsb_is_a_kilobyte_and_its_names() {
        let layout = Layout::new(RecordKind::Hash, 10, 100, false);
        assert_eq!(layout.record_bytes(), 23 + 10 * (6 + 100));
        assert_eq!(layout.bytes_of(3..4), 106);
        assert_eq!(Layout::new(RecordKind::String, 10, 100, false).record_bytes(), 1023);
    }

    #[test]
    fn inserts_count_once_all_before_them_have_ended() {
        let space = KeySpace::new(10);
        let [a, b, c] = [(); 3].map(|()| space.claim().unwrap());
        assert_eq!((a, b, c), (10, 11, 12));
        space.acknowledge(c);
        space.acknowledge(b);
        assert_eq!(space.present(), 10);
        space.acknowledge(a);
        assert_eq!(space.present(), 13);
    }
}
