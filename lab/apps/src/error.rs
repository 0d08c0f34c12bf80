//! The errors of applications and ways, with the facts that say where.

use std::io;
use std::path::{Path, PathBuf};

use perdura_heap::HeapError;

/// Why an application or a way to its data failed.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The system refused an operation.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The heap refused an operation.
    #[error("{way}: {doing}: {source}")]
    Heap {
        /// Name of the way.
        way: &'static str,
        /// The operation.
        doing: &'static str,
        /// The heap's error.
        source: HeapError,
    },
    /// No more heaps can receive allocations: their number is limited.
    #[error(
        "{way}: allocations are directed to as many heaps as can be; measure fewer ways at once"
    )]
    TooManyHeaps {
        /// Name of the way.
        way: &'static str,
    },
    /// Memory was still in use after the run that allocated it.
    #[error("{way}: {live} allocations in capacity memory outlived the run; the heap stays mapped")]
    CapacityInUse {
        /// Name of the way.
        way: &'static str,
        /// Allocations still in use.
        live: i64,
    },
    /// The name does not exist.
    #[error("no data named {name:?} in {way}")]
    Missing {
        /// The name.
        name: String,
        /// The way that was asked.
        way: &'static str,
    },
    /// The range is outside the object or data.
    #[error("{way}: bytes {offset}+{len_bytes} of {of}, which has {has_bytes} bytes")]
    Outside {
        /// Name of the way.
        way: &'static str,
        /// The object or data.
        of: String,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len_bytes: usize,
        /// Bytes that exist.
        has_bytes: u64,
    },
    /// Data are not in the form that the application reads.
    #[error("{name}: {reason}")]
    Malformed {
        /// Name of the data.
        name: String,
        /// The mistake in them.
        reason: String,
    },
    /// Two ways gave different results.
    #[error("{app}: {name} has digest {found:032x} by {way}, {expected:032x} by {by}")]
    Differs {
        /// Name of the application.
        app: &'static str,
        /// Name of the result.
        name: String,
        /// The way that differs.
        way: &'static str,
        /// The way it was compared with.
        by: &'static str,
        /// Digest by the way that differs.
        found: u128,
        /// Digest by the other way.
        expected: u128,
    },
    /// Two ways gave different numbers of results.
    #[error("{app}: {count} results by {way}, {expected} by {by}")]
    ResultsMissing {
        /// Name of the application.
        app: &'static str,
        /// The way that differs.
        way: &'static str,
        /// The way it was compared with.
        by: &'static str,
        /// Results by the way that differs.
        count: usize,
        /// Results by the other way.
        expected: usize,
    },
}

impl AppError {
    /// Makes an error of the system, for `map_err`.
    pub fn io<E: Into<io::Error>>(what: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source: source.into() }
    }

    /// Makes an error for data that are not in the expected form.
    pub fn malformed(name: &str, reason: impl ToString) -> Self {
        Self::Malformed { name: name.to_owned(), reason: reason.to_string() }
    }
}

/// The result of most functions in this crate.
pub type Result<T> = std::result::Result<T, AppError>;
