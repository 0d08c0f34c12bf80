//! The errors of backups and restores.

use std::path::PathBuf;

use perdura_image::OpenError;

use crate::vault::VaultError;

/// Why a backup, or a restore, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The store of the backup failed.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// An object of the backup is not what was put there, or cannot be read with this key.
    #[error("{name}: {why}")]
    Object {
        /// Name of the object in its vault.
        name: String,
        /// The fault, and the remedy if there is one.
        why: String,
    },
    /// The image that is backed up, or made, failed.
    #[error("the image: {0}")]
    Image(#[from] OpenError),
    /// A file of the machine failed.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The directory, file or time that was asked for does not do.
    #[error("{0}")]
    Refused(String),
    /// The image is shipped to the vault by another program.
    #[error(
        "another program, on {host} since {since}, ships image {image_id:016x} to {vault}, and two \
         would spoil each other's restore points. If it runs, stop it, or choose another vault. If \
         it will not run again, or must not go on, take over: `serve --ship-take-over`, `backup \
         --take-over`"
    )]
    Held {
        /// The image.
        image_id: u64,
        /// Where the vault is.
        vault: String,
        /// When the other program began.
        since: String,
        /// The name of its machine.
        host: String,
    },
    /// The claim to ship the image was taken over by another program.
    #[error(
        "another program has taken over, and ships image {image_id:016x} to {vault}: this one \
         ships no more. `serve --ship-take-over` takes it back"
    )]
    TakenOver {
        /// The image.
        image_id: u64,
        /// Where the vault is.
        vault: String,
    },
    /// A segment of the newest commit does not hold the commit's frames.
    #[error(
        "segment {segment} of the image does not hold frame {seq} of commit {commit}, the newest: \
         `perdura check` examines the image of a stopped server"
    )]
    Damaged {
        /// Number of the segment.
        segment: u32,
        /// Sequence number of the frame that should be there, or of the one before it.
        seq: u64,
        /// Number of the commit.
        commit: u64,
    },
}

impl BackupError {
    pub(crate) fn object(name: &str, why: impl Into<String>) -> Self {
        Self::Object { name: name.to_owned(), why: why.into() }
    }
}
