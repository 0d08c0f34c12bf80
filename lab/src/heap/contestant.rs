//! The interface to an allocator under measurement, and the list of contestants.
//!
//! All contestants run the same loops (`churn`), each compiled for its own type, so that only the
//! allocator differs. A *place* is the 48 bits by which an allocator knows an object: an address,
//! or an offset in its heap.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Bytes that a transaction writes into one object.
pub const WRITE_BYTES: usize = 64;

/// An allocator under measurement. Threads share it; any separation between threads is the
/// allocator's own.
pub trait Contestant: Sync {
    /// Allocates an object of `bytes`; durable on return if the allocator is a persistent one.
    ///
    /// # Errors
    /// There is no room, or the allocator fails.
    fn allocate(&self, bytes: usize) -> Result<u64, ContestantError>;

    /// Frees an object.
    ///
    /// # Errors
    /// The allocator refuses.
    fn free(&self, place: u64) -> Result<(), ContestantError>;

    /// Writes the first `bytes` of an object, with `value` in each eight of them.
    fn touch(&self, place: u64, bytes: usize, value: u64);

    /// Frees one object and allocates another, in one of the ways that the allocator offers.
    /// `index` is the object's index among all live ones, which the new object takes over.
    ///
    /// # Errors
    /// The errors of `free` and `allocate`, or the allocator does not offer this way.
    #[inline]
    fn replace(
        &self,
        way: Way,
        index: usize,
        old: u64,
        bytes: usize,
    ) -> Result<u64, ContestantError> {
        let _ = index;
        if way != Way::Plain {
            return Err(ContestantError::NotOffered { measure: Measure::Pair(way) });
        }
        self.free(old)?;
        self.allocate(bytes)
    }

    /// Writes `value` over the first bytes of each object in one transaction, durable on return.
    ///
    /// # Errors
    /// The transaction was aborted, or the allocator has no transactions.
    #[inline]
    fn transact(&self, places: &[u64], value: &[u8; WRITE_BYTES]) -> Result<(), ContestantError> {
        let _ = value;
        Err(ContestantError::NotOffered { measure: Measure::transaction(places.len()) })
    }

    /// Makes all deferred work durable.
    ///
    /// # Errors
    /// The allocator fails.
    fn settle(&self) -> Result<(), ContestantError> {
        Ok(())
    }

    /// Lines and fences so far; `None` if the contestant does not count them.
    fn counters(&self) -> Option<Counters> {
        None
    }

    /// Memory that the allocator holds for objects, bytes; `None` if it does not say.
    fn taken_bytes(&self) -> Option<u64> {
        None
    }
}

/// Lines flushed and fences waited for since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Lines of 64 B, without deferred and prepared ones.
    pub lines: u64,
    /// Number of fences.
    pub fences: u64,
    /// Lines whose flush the operation that changed them deferred.
    pub deferred_lines: u64,
    /// Lines of a log that were zeroed before the log was used.
    pub prepared_lines: u64,
}

impl Counters {
    /// The counts since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            lines: self.lines - earlier.lines,
            fences: self.fences - earlier.fences,
            deferred_lines: self.deferred_lines - earlier.deferred_lines,
            prepared_lines: self.prepared_lines - earlier.prepared_lines,
        }
    }

    /// The sum of two counts.
    pub fn plus(self, other: Self) -> Self {
        Self {
            lines: self.lines + other.lines,
            fences: self.fences + other.fences,
            deferred_lines: self.deferred_lines + other.deferred_lines,
            prepared_lines: self.prepared_lines + other.prepared_lines,
        }
    }
}

/// The contestants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// No allocator: the cost of the loops themselves.
    Harness,
    /// The C library's malloc.
    Glibc,
    /// jemalloc, preloaded.
    Jemalloc,
    /// mimalloc, preloaded.
    Mimalloc,
    /// PMDK's object store, flushing explicitly.
    Libpmemobj,
    /// Perdura's heap with its default settings: persistent memory, flushing explicitly.
    Perdura,
    /// Perdura's heap with transactions that log old values.
    PerduraUndo,
    /// Perdura's heap on battery-backed memory, where stores need only be ordered.
    PerduraOrdered,
    /// The conventional port: the allocator's metadata in persistent memory.
    PerduraConventional,
    /// Capacity memory of Perdura's heap.
    PerduraCapacity,
}

impl Who {
    /// All contestants, in the order of a round.
    pub const ALL: [Self; 10] = [
        Self::Harness,
        Self::Glibc,
        Self::Jemalloc,
        Self::PerduraCapacity,
        Self::Mimalloc,
        Self::Perdura,
        Self::Libpmemobj,
        Self::PerduraOrdered,
        Self::PerduraConventional,
        Self::PerduraUndo,
    ];

    /// Name of the contestant in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Harness => "harness",
            Self::Glibc => "glibc",
            Self::Jemalloc => "jemalloc",
            Self::Mimalloc => "mimalloc",
            Self::Libpmemobj => "libpmemobj",
            Self::Perdura => "persistent",
            Self::PerduraUndo => "persistent, undo",
            Self::PerduraOrdered => "persistent, ordered",
            Self::PerduraConventional => "persistent, conventional",
            Self::PerduraCapacity => "capacity",
        }
    }

    /// Whether the contestant is an alternative to Perdura.
    pub fn is_rival(self) -> bool {
        matches!(self, Self::Glibc | Self::Jemalloc | Self::Mimalloc | Self::Libpmemobj)
    }

    /// Whether the contestant counts flushes.
    pub fn counts(self) -> bool {
        matches!(
            self,
            Self::Libpmemobj | Self::Perdura | Self::PerduraUndo | Self::PerduraConventional
        )
    }

    /// The measures of this contestant.
    pub fn measures(self) -> &'static [Measure] {
        use Measure::{Pair, Tx4x64, Tx64};
        match self {
            Self::Harness
            | Self::Glibc
            | Self::Jemalloc
            | Self::Mimalloc
            | Self::PerduraConventional
            | Self::PerduraCapacity => &[Pair(Way::Plain)],
            Self::Libpmemobj => &[
                Pair(Way::Published),
                Pair(Way::Plain),
                Pair(Way::Reserved),
                Pair(Way::Transaction),
                Tx64,
                Tx4x64,
            ],
            Self::Perdura => &[
                Pair(Way::Plain),
                Pair(Way::Strict),
                Pair(Way::Published),
                Pair(Way::Transaction),
                Tx64,
                Tx4x64,
            ],
            Self::PerduraUndo => &[Tx64, Tx4x64],
            Self::PerduraOrdered => &[Pair(Way::Plain), Tx64, Tx4x64],
        }
    }

    /// Name of a measure's figure in results.
    pub fn figure(self, measure: Measure) -> String {
        let kind = match self {
            Self::Harness => "harness_",
            Self::Glibc | Self::Jemalloc | Self::Mimalloc | Self::PerduraCapacity => "capacity_",
            _ => "persistent_",
        };
        match (self, measure) {
            // Of the two ways in libpmemobj's manual, this is the one that leaks nothing.
            (Self::Libpmemobj, Measure::Pair(Way::Published)) => "persistent_pair".into(),
            (Self::Libpmemobj, Measure::Pair(Way::Plain)) => "persistent_pair_unpublished".into(),
            (_, Measure::Pair(way)) => format!("{kind}pair{}{}", way.suffix(), self.suffix()),
            (_, Measure::Tx64) => format!("tx64{}", self.suffix()),
            (_, Measure::Tx4x64) => format!("tx4x64{}", self.suffix()),
        }
    }

    /// The suffix that tells a variant's figures from the default's.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::PerduraUndo => "_undo",
            Self::PerduraOrdered => "_ordered",
            Self::PerduraConventional => "_conventional",
            _ => "",
        }
    }
}

/// The operation that is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Frees a random live object and allocates another in its place.
    Pair(Way),
    /// A transaction of 64 B in one object.
    Tx64,
    /// A transaction of 64 B in each of four objects.
    Tx4x64,
}

impl Measure {
    /// Number of objects that an operation uses.
    pub fn objects(self) -> usize {
        if self == Self::Tx4x64 { 4 } else { 1 }
    }

    fn transaction(objects: usize) -> Self {
        if objects == 1 { Self::Tx64 } else { Self::Tx4x64 }
    }
}

/// How an object is replaced by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// A free and an allocation, each by itself.
    Plain,
    /// A free and an allocation, each by itself; the free is durable on return, too.
    Strict,
    /// The object's address is changed in persistent memory together with the object, so that a
    /// power cut leaks nothing.
    Published,
    /// The new object is reserved and the free deferred; both are published together.
    Reserved,
    /// Free and allocation in one transaction.
    Transaction,
}

impl Way {
    fn suffix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strict => "_strict",
            Self::Published => "_published",
            Self::Reserved => "_reserved",
            Self::Transaction => "_transaction",
        }
    }
}

/// Why a contestant could not go on.
#[derive(Debug, Error)]
pub enum ContestantError {
    /// An allocation failed.
    #[error("an object of {bytes} B cannot be allocated: {cause}")]
    Allocate {
        /// Bytes that were asked for.
        bytes: usize,
        /// The allocator's message.
        cause: String,
    },
    /// A free failed.
    #[error("object at {place:#x} cannot be freed: {cause}")]
    Free {
        /// Place of the object.
        place: u64,
        /// The allocator's message.
        cause: String,
    },
    /// A transaction was aborted.
    #[error("a transaction over {objects} objects was aborted: {cause}")]
    Transaction {
        /// Objects of the transaction.
        objects: usize,
        /// The allocator's message.
        cause: String,
    },
    /// The allocator has no such operation.
    #[error("{measure:?} is not offered")]
    NotOffered {
        /// The operation that was asked for.
        measure: Measure,
    },
    /// A library or a heap cannot be opened.
    #[error("{what}: {cause}")]
    Open {
        /// Library, symbol or file.
        what: String,
        /// The system's message.
        cause: String,
    },
    /// `malloc` is another allocator's than the one that was preloaded.
    #[error("malloc is {found}, not {expected}")]
    OtherAllocator {
        /// File that `malloc` comes from.
        found: String,
        /// File that `malloc` should come from.
        expected: String,
    },
    /// No live object is large enough for a transaction.
    #[error(
        "no object of at least {WRITE_BYTES} B was found for a transaction: choose larger sizes"
    )]
    NoTarget,
}
