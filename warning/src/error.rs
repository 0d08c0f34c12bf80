//! Why a source of warnings cannot be used.

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
    /// The file that is to tell the warning is there already.
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
    /// The watched place is gone, so that nothing can be told there any more.
    #[error("{} was removed, moved or unmounted: no warning can be seen there", path.display())]
    PlaceGone {
        /// The place.
        path: PathBuf,
    },
    /// The system refused a call.
    #[error("{what}: {source}")]
    System {
        /// What was tried, and on what.
        what: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl WarningError {
    /// The system refused `what`.
    pub fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }
}
