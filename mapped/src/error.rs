//! Why files could not be served, or not be written again.

use std::io::ErrorKind;
use std::path::PathBuf;

use perdura_region::{OpenError, RegionError, SetupError};
use rustix::io::Errno;

/// What a host tries first with a program's file, in errors: to open it.
pub(crate) const OPEN: &str = "open";

/// Why files could not be served, or not be written again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MappedError {
    /// A file, or a directory, cannot be used.
    #[error("{what} {path}: {source}", path = path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The memory has something else than a catalog of files.
    #[error("the memory has no catalog of files: this directory is not one of `perdura run --dir`")]
    NoCatalog,
    /// There is no more room for the catalog.
    #[error("the names and pieces of all files take {len_bytes} bytes, and {most_bytes} are there")]
    CatalogFull {
        /// What they take.
        len_bytes: usize,
        /// The room that there is.
        most_bytes: usize,
    },
    /// A file has too many pieces, or there are too many files.
    #[error("{what}: at most {most}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The most that there may be.
        most: usize,
    },
    /// Another run may serve the file.
    #[error(
        "{} has a run of its own, or what one has left: run one of both at a time",
        path.display()
    )]
    Nested {
        /// A directory below the one that is served.
        path: PathBuf,
    },
    /// A request that no library of this version makes.
    #[error("a program asked for something that makes no sense: {0}")]
    Strange(&'static str),
    /// The region cannot grow.
    #[error("no memory for {len_bytes} bytes more: give a larger --size ({source})")]
    NoMemory {
        /// What was asked for.
        len_bytes: u64,
        /// Why not.
        source: OpenError,
    },
    /// The region refuses.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A process cannot be tracked.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The system refuses.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl MappedError {
    /// What a program is told, as its `errno`. `EACCES`: the file cannot be served, and is mapped
    /// as ever.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Self::File { what: OPEN, source, .. } => match source.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Errno::ACCESS,
                _ => Errno::from_io_error(source).unwrap_or(Errno::IO),
            },
            Self::NoMemory { .. } => Errno::NOMEM,
            Self::Nested { .. } => Errno::BUSY,
            Self::TooMany { .. } | Self::CatalogFull { .. } => Errno::NFILE,
            _ => Errno::IO,
        }
    }
}
