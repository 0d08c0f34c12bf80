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
    /// The file says already that the end is near.
    #[error(
        "{} is empty, or says `ending`, which would end this process at once: remove the file if \
         the power is back",
        path.display()
    )]
    EndsAlready {
        /// The file.
        path: PathBuf,
    },
    /// A status line says nothing that is known.
    #[error(
        "{told_by} says {line:?}: expected steady, on-battery, low or ending, and perhaps what is \
         left, such as 5m or 1500J"
    )]
    StatusLine {
        /// The source.
        told_by: String,
        /// The beginning of the line.
        line: String,
    },
    /// The text behind the colon names nothing that could be a source.
    #[error("{found:?}: expected {expected}")]
    Argument {
        /// The text that was given.
        found: String,
        /// The form that is understood.
        expected: &'static str,
    },
    /// The source can be reached, and refuses what it is asked.
    #[error("{name} refuses to say how the power is: {why}")]
    Refused {
        /// The source.
        name: String,
        /// Its own words.
        why: String,
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
