//! Why a directory cannot be opened.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use perdura_dirty::RegionError;
use perdura_dirty::promise::PromiseError;
use perdura_image::OpenError;

use crate::holder::LinkError;

/// Why a directory could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// A restore was cut off in the middle, or is under way.
    #[error(
        "{} is an image in the middle of a restore: let `perdura restore` end, or delete the file \
         and restore again",
        path.display()
    )]
    Unfinished {
        /// The file that the restore makes.
        path: PathBuf,
    },
    /// Another process uses the directory.
    #[error(
        "{} is in use{}",
        dir.display(),
        pid.map(|pid| format!(" by process {pid}: end it, or use another directory"))
            .unwrap_or_else(|| {
                ": if a guard keeps its memory, name the guard's socket (--guard) and do not end \
                 the guard; else end the process that uses it"
                    .into()
            })
    )]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// The other process, if the holder named it.
        pid: Option<i32>,
    },
    /// The holder of an earlier run is flushing and did not end within its grace.
    #[error(
        "{}: the holder of an earlier run still flushes {used_bytes} bytes; gave up after \
         {waited:?}",
        dir.display()
    )]
    StillFlushing {
        /// The directory.
        dir: PathBuf,
        /// How long this call waited for the holder.
        waited: Duration,
        /// Dirty bytes when the flush began.
        used_bytes: u64,
    },
    /// A file or folder could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The image could not be used.
    #[error("{}: {source}", path.display())]
    Image {
        /// Path of the image.
        path: PathBuf,
        /// Why the image could not be used.
        #[source]
        source: OpenError,
    },
    /// The record of the proven rate could not be read.
    #[error("{}: {why}; delete it to measure again", path.display())]
    Rate {
        /// Path of the record.
        path: PathBuf,
        /// The reason why the record could not be read.
        why: String,
    },
    /// The holder could not be started or asked.
    #[error(transparent)]
    Holder(#[from] LinkError),
    /// The promise asked for cannot be kept.
    #[error(transparent)]
    Promise(#[from] PromiseError),
    /// The disk has no room for the log of the budget asked for.
    #[error(
        "{}: a budget of {budget_bytes} bytes needs more room for the log than there is: at most \
         {largest_bytes} bytes may be dirty with the {free_bytes} bytes that are free there",
        dir.display()
    )]
    Room {
        /// The directory.
        dir: PathBuf,
        /// The budget asked for, bytes.
        budget_bytes: u64,
        /// The largest budget whose log fits the disk, bytes.
        largest_bytes: u64,
        /// Bytes by which the image may grow.
        free_bytes: u64,
    },
    /// The region refused a call while the directory was being opened.
    #[error(transparent)]
    Region(#[from] RegionError),
}
