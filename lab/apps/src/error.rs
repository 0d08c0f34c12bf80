//! What can go wrong, with the facts to say where.

use std::io;
use std::path::{Path, PathBuf};

use perdura_heap::HeapError;

/// Why an application or a way to its data gave up.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The system refused.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was asked.
        what: &'static str,
        /// Of which file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The heap refused.
    #[error("{way}: {doing}: {source}")]
    Heap {
        /// By which way.
        way: &'static str,
        /// What was being done.
        doing: &'static str,
        /// The heap's words.
        source: HeapError,
    },
    /// Allocations can be directed to a few heaps only.
    #[error(
        "{way}: allocations are directed to as many heaps as can be; measure fewer ways at once"
    )]
    TooManyHeaps {
        /// By which way.
        way: &'static str,
    },
    /// Something outlived the run that allocated it.
    #[error("{way}: {live} allocations in capacity memory outlived the run; the heap stays mapped")]
    CapacityInUse {
        /// By which way.
        way: &'static str,
        /// How many.
        live: i64,
    },
    /// Named data that are not there.
    #[error("no data named {name:?} in {way}")]
    Missing {
        /// The name.
        name: String,
        /// Where it was looked for.
        way: &'static str,
    },
    /// A piece that does not lie in what was allocated.
    #[error("{way}: bytes {offset}+{len_bytes} of {of}, which has {has_bytes} bytes")]
    Outside {
        /// Where.
        way: &'static str,
        /// Of what.
        of: String,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len_bytes: usize,
        /// Bytes there are.
        has_bytes: u64,
    },
    /// Data that are not what the application reads.
    #[error("{name}: {reason}")]
    Malformed {
        /// Name of the data.
        name: String,
        /// What is wrong with them.
        reason: String,
    },
    /// Two ways gave different results.
    #[error("{app}: {name} has digest {found:032x} by {way}, {expected:032x} by {by}")]
    Differs {
        /// The application.
        app: &'static str,
        /// The result.
        name: String,
        /// The way that differs.
        way: &'static str,
        /// The way it was compared with.
        by: &'static str,
        /// Digest of the first.
        found: u128,
        /// Digest of the second.
        expected: u128,
    },
    /// One way gave results that another did not.
    #[error("{app}: {count} results by {way}, {expected} by {by}")]
    ResultsMissing {
        /// The application.
        app: &'static str,
        /// The way that differs.
        way: &'static str,
        /// The way it was compared with.
        by: &'static str,
        /// Results of the first.
        count: usize,
        /// Results of the second.
        expected: usize,
    },
}

impl AppError {
    /// For `map_err`.
    pub fn io<E: Into<io::Error>>(what: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source: source.into() }
    }

    /// Data that are not what they should be.
    pub fn malformed(name: &str, reason: impl ToString) -> Self {
        Self::Malformed { name: name.to_owned(), reason: reason.to_string() }
    }
}

/// What most functions here return.
pub type Result<T> = std::result::Result<T, AppError>;
