//! What is measured: an allocator, and how it is asked.
//!
//! All contestants run the same loops (`churn`), each compiled for its own type, so that what
//! differs is the allocator. A *place* is whatever 48 bits an allocator knows an object by: an
//! address, or an offset in its heap.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Bytes that a transaction writes into one object.
pub const WRITE_BYTES: usize = 64;

/// An allocator under measurement. Threads share it; what they keep apart is its own affair.
pub trait Contestant: Sync {
    /// A new object of `bytes`, durable on return where the allocator is a persistent one.
    ///
    /// # Errors
    /// There is no room, or the allocator fails.
    fn allocate(&self, bytes: usize) -> Result<u64, ContestantError>;

    /// Gives an object back.
    ///
    /// # Errors
    /// The allocator refuses.
    fn free(&self, place: u64) -> Result<(), ContestantError>;

    /// Writes the first `bytes` of an object, all of them with `value` in each eight.
    fn touch(&self, place: u64, bytes: usize, value: u64);

    /// Frees one object and allocates another, in one of the ways the allocator offers. `index` is
    /// the object's among all live ones; it stays when another object takes its stead.
    ///
    /// # Errors
    /// As of `free` and `allocate`; or it does not offer this way.
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

    /// Writes `value` over the first bytes of each of the objects, all or none of it, durable on
    /// return.
    ///
    /// # Errors
    /// The transaction was given up; or there are none.
    #[inline]
    fn transact(&self, places: &[u64], value: &[u8; WRITE_BYTES]) -> Result<(), ContestantError> {
        let _ = value;
        Err(ContestantError::NotOffered { measure: Measure::transaction(places.len()) })
    }

    /// Makes durable what was put off, if anything was.
    ///
    /// # Errors
    /// The allocator fails.
    fn settle(&self) -> Result<(), ContestantError> {
        Ok(())
    }

    /// What was flushed so far, where it is counted.
    fn counters(&self) -> Option<Counters> {
        None
    }

    /// Memory that the allocator holds for objects, where it says so.
    fn taken_bytes(&self) -> Option<u64> {
        None
    }
}

/// Lines handed to flush instructions and fences that waited for them, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Lines of 64 B, without those put off and those prepared.
    pub lines: u64,
    /// Fences.
    pub fences: u64,
    /// Lines that were put off by the operation that changed them.
    pub deferred_lines: u64,
    /// Lines of a log that were zeroed before it was used.
    pub prepared_lines: u64,
}

impl Counters {
    /// What came since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            lines: self.lines - earlier.lines,
            fences: self.fences - earlier.fences,
            deferred_lines: self.deferred_lines - earlier.deferred_lines,
            prepared_lines: self.prepared_lines - earlier.prepared_lines,
        }
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            lines: self.lines + other.lines,
            fences: self.fences + other.fences,
            deferred_lines: self.deferred_lines + other.deferred_lines,
            prepared_lines: self.prepared_lines + other.prepared_lines,
        }
    }
}

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// Nobody: what the loops themselves cost.
    Harness,
    /// The C library's malloc.
    Glibc,
    /// jemalloc, preloaded.
    Jemalloc,
    /// mimalloc, preloaded.
    Mimalloc,
    /// PMDK's object store, flushing explicitly.
    Libpmemobj,
    /// Perdura's heap, persistent memory, flushing explicitly, as it is set up by default.
    Perdura,
    /// The same with transactions that log old values.
    PerduraUndo,
    /// Persistent memory where stores are only ordered: battery-backed.
    PerduraOrdered,
    /// The conventional port: the allocator's own metadata in persistent memory.
    PerduraConventional,
    /// Capacity memory.
    PerduraCapacity,
}

impl Who {
    /// Everyone, in the order of a round.
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

    /// Name in results.
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

    /// Whether it is something else that users would take.
    pub fn is_rival(self) -> bool {
        matches!(self, Self::Glibc | Self::Jemalloc | Self::Mimalloc | Self::Libpmemobj)
    }

    /// Whether there are flushes to be counted.
    pub fn counts(self) -> bool {
        matches!(
            self,
            Self::Libpmemobj | Self::Perdura | Self::PerduraUndo | Self::PerduraConventional
        )
    }

    /// What is measured of it.
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

    /// Name in results of what is measured of it.
    pub fn figure(self, measure: Measure) -> String {
        let kind = match self {
            Self::Harness => "harness_",
            Self::Glibc | Self::Jemalloc | Self::Mimalloc | Self::PerduraCapacity => "capacity_",
            _ => "persistent_",
        };
        match (self, measure) {
            // Its manual's way of the two is the one that leaks nothing.
            (Self::Libpmemobj, Measure::Pair(Way::Published)) => "persistent_pair".into(),
            (Self::Libpmemobj, Measure::Pair(Way::Plain)) => "persistent_pair_unpublished".into(),
            (_, Measure::Pair(way)) => format!("{kind}pair{}{}", way.suffix(), self.suffix()),
            (_, Measure::Tx64) => format!("tx64{}", self.suffix()),
            (_, Measure::Tx4x64) => format!("tx4x64{}", self.suffix()),
        }
    }

    /// What tells its figures from those of the default.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::PerduraUndo => "_undo",
            Self::PerduraOrdered => "_ordered",
            Self::PerduraConventional => "_conventional",
            _ => "",
        }
    }
}

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// A free of a random live object and an allocation in its stead.
    Pair(Way),
    /// A transaction of 64 B in one object.
    Tx64,
    /// A transaction of 64 B in each of four objects.
    Tx4x64,
}

impl Measure {
    /// Objects that an operation takes up.
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
    /// The same; the free, too, is durable on return.
    Strict,
    /// The object's address is changed in persistent memory along with it, so that a cut leaks
    /// nothing.
    Published,
    /// The new one reserved, the free put off, both published together.
    Reserved,
    /// Both in one transaction.
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
    /// No object could be had.
    #[error("no object of {bytes} B can be had: {cause}")]
    Allocate {
        /// Asked for.
        bytes: usize,
        /// In the allocator's words.
        cause: String,
    },
    /// An object could not be given back.
    #[error("object at {place:#x} cannot be freed: {cause}")]
    Free {
        /// Which.
        place: u64,
        /// In the allocator's words.
        cause: String,
    },
    /// A transaction was given up.
    #[error("a transaction over {objects} objects was given up: {cause}")]
    Transaction {
        /// Objects it was about.
        objects: usize,
        /// In the allocator's words.
        cause: String,
    },
    /// The allocator has nothing of the kind.
    #[error("{measure:?} is not offered")]
    NotOffered {
        /// Asked for.
        measure: Measure,
    },
    /// Its library or its heap cannot be had.
    #[error("{what}: {cause}")]
    Open {
        /// Library, symbol or file.
        what: String,
        /// In the system's words.
        cause: String,
    },
    /// Another allocator than the one that was preloaded.
    #[error("malloc is {found}, not {expected}")]
    OtherAllocator {
        /// File that `malloc` comes from.
        found: String,
        /// File it should come from.
        expected: String,
    },
    /// No live object is large enough for a transaction.
    #[error(
        "no object of at least {WRITE_BYTES} B was found for a transaction: choose larger sizes"
    )]
    NoTarget,
}
