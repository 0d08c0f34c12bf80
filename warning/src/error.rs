//! The errors of sources of warnings.

use std::io;
use std::path::PathBuf;

/// Why a source of warnings cannot be opened, or has broken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WarningError {
    /// The text names no source.
    #[error("no source of warnings is called {text:?}: expected one of {known}")]
    Unknown {
        /// The text that was given.
        text: String,
        /// The forms that are understood.
        known: String,
    },
    /// The file whose creation would be the warning exists already.
    #[error(
        "{} exists already and would mean a warning at once: remove it if the power is back",
        path.display()
    )]
    ExistsAlready {
        /// The file.
        path: PathBuf,
    },
    /// The path names no file in a directory.
    #[error("{}: expected the path of a file, such as /run/ups/on-battery", path.display())]
    NoFileName {
        /// The path that was given.
        path: PathBuf,
    },
    /// The watched directory is gone, so no file can be created in it any more.
    #[error("{} was removed, moved or unmounted: no warning can be seen there", path.display())]
    PlaceGone {
        /// The directory.
        path: PathBuf,
    },
    /// The system refused a call.
    #[error("{what}: {source}")]
    System {
        /// The call that failed, and the object of the call.
        what: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl WarningError {
    /// Makes the error of a call that the system refused.
    pub fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }
}
