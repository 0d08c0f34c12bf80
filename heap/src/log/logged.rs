//! The transactions that a recovery finds in the logs.

use std::collections::{BTreeMap, HashMap};

use super::group::Piece;
use super::spans::Spans;
use crate::damage::Damage;
use crate::engine::classes::UNIT_BYTES;
use crate::layout::Record;

/// The findings of a recovery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Objects that are allocated.
    pub objects: u64,
    /// Records since the last fold that were applied.
    pub records: u64,
    /// Transactions that had committed and were put in place.
    pub redone: u64,
    /// Transactions that had not committed and were undone.
    pub undone: u64,
    /// Whether the caches lived on, because the process died and not the machine.
    pub same_boot: bool,
}

/// Where the changes of a group are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The changes are in the log, and perhaps in memory.
    Pending,
    /// The changes are in memory, whose caches are trusted, and perhaps not written back.
    InCaches,
    /// The changes are in memory, durably.
    Durable,
}

/// The pieces of a transaction that were found, in order.
pub(super) struct Group {
    pub seq: u64,
    pub pieces: Vec<Piece>,
}

impl Group {
    /// Whether the transaction committed or was undone: the last piece is there, and none before it
    /// is missing.
    pub fn is_over(&self) -> bool {
        let whole = self.pieces.iter().zip(0..).all(|(piece, at)| piece.piece == at);
        whole && self.pieces.last().is_some_and(Piece::is_last)
    }

    /// Whether the transaction was undone and its last piece says so.
    pub fn is_undone(&self) -> bool {
        self.pieces.last().is_some_and(Piece::is_undone)
    }
}

/// The contents of the word logs.
pub(super) struct Logged {
    /// All groups, by logger and sequence.
    pub groups: BTreeMap<(u16, u64), Group>,
    /// The sequence, by logger, up to which the logger's groups are in memory, whose caches are
    /// trusted, and perhaps not written back.
    pub applied: HashMap<u16, u64>,
}

impl Logged {
    /// The place of the changes of a group that has committed.
    pub fn place(&self, spans: &Spans, logger: u16, seq: u64) -> Place {
        if seq < spans.settled {
            Place::Durable
        } else if self.applied.get(&logger).is_some_and(|applied| seq <= *applied) {
            Place::InCaches
        } else {
            Place::Pending
        }
    }
}

/// The damage of a record whose object lies beyond the heap.
pub(super) fn stray(record: Record) -> Damage {
    match record {
        Record::Alloc { unit, .. } | Record::Free { unit, .. } => {
            Damage::Stray { offset: unit * UNIT_BYTES }
        }
        Record::Group { .. } => Damage::Stray { offset: 0 },
    }
}
