//! The damage that a heap on media can have, and the remedies.
//!
//! A heap is opened with [`Findings::strict`]: the first damage is an error. A check collects
//! damage instead. A repair is an opening that collects and is kept: everything that it leaves out
//! is left out for good, so damage that would lose objects ([`Damage::is_repairable`]) must be
//! ruled out before.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::error::HeapError;
use crate::layout::Record;

/// Most findings that are kept one by one.
pub const FINDINGS_MAX: usize = 1000;

/// A kind of damage of a heap.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The heap cannot be opened at all.
    #[error("{0}")]
    Unopenable(HeapError),
    /// A word of the superblock does not agree with its own check bits.
    #[error("superblock: the {what} at {offset:#x} holds the impossible value {value:#x}")]
    Superblock {
        /// Name of the word: `generation`, `clock` or `settled clock`.
        what: &'static str,
        /// Offset in the heap.
        offset: u64,
        /// The value found.
        value: u64,
    },
    /// The span table holds a word that no correct program writes.
    #[error(
        "span table: the word of span {span}, at {offset:#x}, holds the impossible value {value:#x}"
    )]
    SpanWord {
        /// Number of the span.
        span: u64,
        /// Offset of the span's word.
        offset: u64,
        /// The value found.
        value: u64,
    },
    /// Objects lie in memory that the damaged span table does not describe.
    #[error(
        "span table: {objects} objects lie in spans that the damaged table does not describe, the \
         first at {first:#x}"
    )]
    SpanLost {
        /// Number of objects.
        objects: u64,
        /// Offset of the first object.
        first: u64,
    },
    /// A snapshot's chunk does not agree with its sum, or has an entry that no correct program
    /// writes.
    #[error("snapshot: the chunk at {chunk:#x} is damaged at {offset:#x}, which holds {value:#x}")]
    Snapshot {
        /// Offset of the chunk.
        chunk: u64,
        /// Offset in the heap.
        offset: u64,
        /// The value found.
        value: u64,
    },
    /// A chunk of a snapshot is missing.
    #[error(
        "snapshot: of generation {generation}, {found} chunks were found that do not make a whole \
         one"
    )]
    SnapshotMissing {
        /// Generation of the snapshot.
        generation: u64,
        /// Number of chunks found.
        found: u64,
    },
    /// The header of a log's chunk holds a word that no correct program writes.
    #[error(
        "log: the header of the chunk at {chunk:#x} holds the impossible value {value:#x} at \
         {offset:#x}"
    )]
    LogHeader {
        /// Offset of the chunk.
        chunk: u64,
        /// Offset in the heap.
        offset: u64,
        /// The value found.
        value: u64,
    },
    /// A log ends in the middle, and the words behind cannot be read.
    #[error(
        "log: the chunk at {chunk:#x} cannot be read from {offset:#x} on, which holds {value:#x}; \
         {words} words follow"
    )]
    LogCut {
        /// Offset of the chunk.
        chunk: u64,
        /// Offset of the first word that cannot be read.
        offset: u64,
        /// The value found.
        value: u64,
        /// Number of words behind it that are not zero.
        words: u64,
    },
    /// A record names a place where no object can begin.
    #[error("log or snapshot: an object is said to be at {offset:#x}, where none can begin")]
    Stray {
        /// Offset in the heap.
        offset: u64,
    },
    /// An object was allocated twice, or freed twice.
    #[error("log: records and snapshot make {sum} objects at {offset:#x}")]
    Sum {
        /// Offset in the heap.
        offset: u64,
        /// One if the snapshot has the object, plus allocations, less frees.
        sum: i64,
    },
    /// A transaction changes bytes that no transaction may change.
    #[error(
        "log: transaction {seq} changes {len_bytes} bytes at {offset:#x}, where no object, \
         compartment or root is"
    )]
    Outside {
        /// Sequence of the transaction.
        seq: u64,
        /// Offset in the heap.
        offset: u64,
        /// Number of bytes.
        len_bytes: u64,
    },
    /// The table of roots holds an entry that no correct program writes.
    #[error("root entry {index}, at {offset:#x}: {what} does not agree with its sum, {value:#x}")]
    RootTorn {
        /// Number of the entry.
        index: u64,
        /// Offset in the heap.
        offset: u64,
        /// Part of the entry: `name or type`, or `object`.
        what: &'static str,
        /// The value found.
        value: u64,
    },
    /// A root names a place where no object begins.
    #[error("root {name:?} names {object:#x}, where no object begins")]
    RootNothing {
        /// Name of the root.
        name: String,
        /// Offset that the root names.
        object: u64,
    },
    /// Two roots have the same name.
    #[error("root {name:?} is there twice: entry {index} as well")]
    RootTwice {
        /// Name of both roots.
        name: String,
        /// Number of the second entry.
        index: u64,
    },
    /// An object of the open heap is allocated while its logs say that it is free, or the other
    /// way.
    #[error(
        "object at {offset:#x}: the heap takes it for {}, its log for the opposite",
        if *is_used { "allocated" } else { "free" }
    )]
    Differs {
        /// Offset of the object.
        offset: u64,
        /// Whether the open heap takes the object for allocated.
        is_used: bool,
    },
}

impl Damage {
    /// Whether a repair can mend the damage without losing objects.
    pub fn is_repairable(&self) -> bool {
        !matches!(
            self,
            Self::Unopenable(_)
                | Self::SpanLost { .. }
                | Self::Snapshot { .. }
                | Self::SnapshotMissing { .. }
                | Self::Differs { .. }
        )
    }

    /// The remedy that a repair applies, and its possible loss.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Unopenable(_) => "cannot be repaired: take a copy of it from before the damage",
            Self::Superblock { .. } => "is made anew from the newest whole snapshot",
            Self::SpanWord { .. } => "the span, in which no object lies, is freed",
            Self::SpanLost { .. } | Self::Snapshot { .. } | Self::SnapshotMissing { .. } => {
                "cannot be repaired: objects would be lost; take a copy of it from before the \
                 damage"
            }
            Self::LogHeader { .. } => {
                "the chunk's other marks are used; changes of the last transactions may be lost"
            }
            Self::LogCut { .. } => {
                "the log is cut there: allocations, frees and transactions behind it may be lost"
            }
            Self::Stray { .. } => {
                "the record is dropped; another object may be free or leaked for it"
            }
            Self::Sum { .. } => "the object is kept if it was allocated at all",
            Self::Outside { .. } => "the change is dropped",
            Self::RootTorn { .. } | Self::RootNothing { .. } | Self::RootTwice { .. } => {
                "the root is removed; what only it reached is a leak then"
            }
            Self::Differs { .. } => {
                "cannot be repaired while the heap is open: close it and check it then"
            }
        }
    }

    /// The error with which opening a heap refuses the damage.
    fn into_error(self) -> HeapError {
        let corrupt = |what, offset, value| HeapError::Corrupt { what, offset, value };
        match self {
            Self::Unopenable(error) => error,
            Self::Superblock { offset, value, .. } => corrupt("superblock", offset, value),
            Self::SpanWord { offset, value, .. } => corrupt("span table", offset, value),
            Self::SpanLost { objects, first } => corrupt("span table", first, objects),
            Self::Snapshot { offset, value, .. } => corrupt("snapshot", offset, value),
            Self::SnapshotMissing { generation, found } => {
                corrupt("snapshot", crate::layout::AT_GENERATION, generation << 32 | found)
            }
            Self::LogHeader { offset, value, .. } | Self::LogCut { offset, value, .. } => {
                corrupt("log", offset, value)
            }
            Self::Stray { offset } => corrupt("log", offset, 0),
            Self::Sum { offset, sum } => corrupt("log", offset, sum as u64),
            Self::Outside { offset, seq, .. } => corrupt("log", offset, seq),
            Self::RootTorn { offset, value, .. } => corrupt("root", offset, value),
            Self::RootNothing { object, .. } => corrupt("root", object, object),
            Self::RootTwice { index, .. } => corrupt("root", index, index),
            Self::Differs { offset, is_used } => corrupt("object", offset, u64::from(is_used)),
        }
    }
}

/// A finding that is no damage by itself, because a loss of power leaves it, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Remark {
    /// A word in the middle of a run is not zero: it is left over from an earlier run, or damaged.
    /// The run counts.
    #[error(
        "span table: span {span} belongs to the run at span {run}, and its own word holds \
         {value:#x}"
    )]
    Inside {
        /// Number of the span.
        span: u64,
        /// First span of the run.
        run: u64,
        /// The span's word.
        value: u64,
    },
    /// The last group of a log is not whole.
    #[error(
        "log: the chunk at {chunk:#x} ends, at {offset:#x}, in a transaction that is not whole: it \
         was being written, and does not count, or it was damaged"
    )]
    Torn {
        /// Offset of the chunk.
        chunk: u64,
        /// Offset in the heap.
        offset: u64,
    },
    /// Not all pieces of a transaction are there.
    #[error(
        "log: transaction {seq} of logger {logger} has not all of its pieces: it does not count"
    )]
    Unfinished {
        /// Number of the logger.
        logger: u16,
        /// Sequence of the transaction.
        seq: u64,
    },
    /// Words lie behind the end of a log.
    #[error(
        "log: {words} words lie behind the end of the chunk at {chunk:#x}, at {offset:#x}: frees \
         that were not durable, or records behind a damaged one"
    )]
    Behind {
        /// Offset of the chunk.
        chunk: u64,
        /// Offset of the log's end.
        offset: u64,
        /// Number of words.
        words: u64,
    },
}

/// The damage that a recovery meets, which is an error at once or is collected.
pub(crate) struct Findings {
    is_strict: bool,
    found: Mutex<Found>,
}

#[derive(Default)]
pub(crate) struct Found {
    pub damage: Vec<Damage>,
    /// Number of findings beyond [`FINDINGS_MAX`].
    pub damage_more: u64,
    pub remarks: Vec<Remark>,
    /// The number of records of each object that has any, and its allocations less its frees.
    sums: HashMap<u64, (u32, i64)>,
}

impl Findings {
    /// Findings of which the first is an error.
    pub fn strict() -> Self {
        Self { is_strict: true, found: Mutex::default() }
    }

    /// Findings that are collected, while recovery goes on as well as it can.
    pub fn collected() -> Self {
        Self { is_strict: false, found: Mutex::default() }
    }

    /// Whether the first damage is an error.
    pub fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Notes damage, or returns it as an error.
    pub fn meet(&self, damage: Damage) -> Result<(), HeapError> {
        if self.is_strict {
            return Err(damage.into_error());
        }
        let mut found = self.lock();
        if found.damage.len() < FINDINGS_MAX {
            found.damage.push(damage);
        } else {
            found.damage_more += 1;
        }
        Ok(())
    }

    /// Notes a finding that is no damage by itself.
    pub fn remark(&self, remark: Remark) {
        if !self.is_strict {
            let mut found = self.lock();
            if found.remarks.len() < FINDINGS_MAX {
                found.remarks.push(remark);
            }
        }
    }

    /// Counts a record that is applied.
    #[inline]
    pub fn count(&self, record: Record) {
        if self.is_strict {
            return;
        }
        let (unit, change) = match record {
            Record::Alloc { unit, .. } => (unit, 1),
            Record::Free { unit, .. } => (unit, -1),
            Record::Group { .. } => return,
        };
        let mut found = self.lock();
        let (records, sum) = found.sums.entry(unit).or_default();
        *records += 1;
        *sum += change;
    }

    /// Objects that were allocated twice or freed twice, given the bit that the shadow has for
    /// each, as unit and sum.
    pub fn wrong_sums(&self, bit: impl Fn(u64) -> bool) -> Vec<(u64, i64)> {
        let found = self.lock();
        let mut wrong: Vec<(u64, i64)> = found
            .sums
            .iter()
            .filter_map(|(unit, (records, sum))| {
                let base = i64::from(bit(*unit)) ^ i64::from(records & 1);
                (!(0..=1).contains(&(base + sum))).then_some((*unit, base + sum))
            })
            .collect();
        wrong.sort_unstable();
        wrong
    }

    pub fn is_clean(&self) -> bool {
        self.lock().damage.is_empty()
    }

    pub fn has(&self, is_it: impl Fn(&Damage) -> bool) -> bool {
        self.lock().damage.iter().any(is_it)
    }

    pub fn into_found(self) -> Found {
        self.found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
