//! Operations on keys, as YCSB's basic binding prints them: `OPERATION table key ...`.
//!
//! A table is a volume. Its keys get slots of one size in the order of their first use, as a store
//! that appends would place them. There are no times: operations come at a rate that is an option.
//! A scan counts as a read of its first key, because the keys that follow are not known. Other
//! lines of YCSB are ignored.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_128;

use super::super::sink::{Seen, Sink};
use super::super::{Fault, Op};
use super::Parse;
use super::fields::{columns, scaled, shown, words};
use super::memory::Clock;

pub(crate) struct Ycsb {
    clock: Clock,
    record_bytes: u64,
    /// The slot of each key, by a hash of volume and key that is wide enough to stand for them.
    slots: HashMap<u128, u64>,
    /// The next free slot of each volume.
    next: Vec<u64>,
    hashed: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
    Both,
}

fn kind(word: &[u8]) -> Option<Kind> {
    match word {
        b"READ" | b"SCAN" | b"GET" => Some(Kind::Read),
        b"INSERT" | b"UPDATE" | b"DELETE" | b"PUT" | b"SET" => Some(Kind::Write),
        b"READMODIFYWRITE" => Some(Kind::Both),
        _ => None,
    }
}

/// Whether a line looks like one that YCSB prints.
pub(crate) fn looks(line: &[u8]) -> bool {
    let (count, [operation, ..]) = words::<3>(line);
    count >= 3 && kind(operation).is_some()
}

impl Ycsb {
    pub(crate) fn new(record_bytes: u64, operations_per_s: u64) -> Ycsb {
        let clock = Clock::new(operations_per_s);
        Ycsb { clock, record_bytes, slots: HashMap::new(), next: Vec::new(), hashed: Vec::new() }
    }

    fn slot(&mut self, volume: u32, key: &[u8]) -> u64 {
        self.hashed.clear();
        self.hashed.extend_from_slice(&volume.to_le_bytes());
        self.hashed.extend_from_slice(key);
        if self.next.len() <= volume as usize {
            self.next.resize(volume as usize + 1, 0);
        }
        let next = &mut self.next[volume as usize];
        *self.slots.entry(xxh3_128(&self.hashed)).or_insert_with(|| {
            *next += 1;
            *next - 1
        })
    }
}

impl Parse for Ycsb {
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Seen {
        let (count, [operation, table, key]) = words::<3>(line);
        let Some(kind) = kind(operation) else {
            if matches!(line.first(), Some(b'*' | b'"' | b'[')) {
                sink.ignored += 1;
                return Ok(());
            }
            let expected = "INSERT, READ, UPDATE, SCAN, DELETE or READMODIFYWRITE";
            return Err(Box::new(Fault::Value {
                column: "operation",
                value: shown(operation),
                expected,
            }));
        };
        if count < 3 {
            return Err(columns("3 or more: operation table key", count, line));
        }
        let volume = sink.volumes.named(table)?;
        let slot = self.slot(volume, key);
        let offset_bytes = scaled("key", key, slot, self.record_bytes, "bytes")?;
        let now_ns = self.clock.now_ns();
        self.clock.advance(1);
        if !matches!(kind, Kind::Write) {
            sink.access(now_ns, volume, Op::Read, offset_bytes, self.record_bytes)?;
        }
        if !matches!(kind, Kind::Read) {
            sink.access(now_ns, volume, Op::Write, offset_bytes, self.record_bytes)?;
        }
        Ok(())
    }
}
