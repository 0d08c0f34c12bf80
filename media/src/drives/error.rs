//! Why a drive was not asked, or did not do what it was told.

use std::io;
use std::path::PathBuf;

/// Why a drive's power state is not known, or was not changed.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The system does not let this process ask.
    #[error("{what} on {path} needs {needs} ({source})", path = path.display())]
    NotAllowed {
        /// The request to the drive, in words.
        what: &'static str,
        /// The device's file.
        path: PathBuf,
        /// The capability that the kernel asks for.
        needs: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The device's file cannot be opened, or the system failed to ask.
    #[error("{what} on {path}: {source}", path = path.display())]
    System {
        /// The request to the drive, in words.
        what: &'static str,
        /// The device's file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The device's file is that of another device.
    #[error(
        "{path} is device {found}, and the drive is device {expected}",
        path = path.display()
    )]
    OtherDevice {
        /// The device's file.
        path: PathBuf,
        /// Number of the device that the file names, `major:minor`.
        found: String,
        /// Number of the drive's device, `major:minor`.
        expected: String,
    },
    /// An NVMe drive refused a command.
    #[error("the drive refused {what} with NVMe status {status:#05x}")]
    Nvme {
        /// The request to the drive, in words.
        what: &'static str,
        /// Status code type and status code.
        status: u16,
    },
    /// An ATA drive refused a command, or its answer has another form.
    #[error("the drive or its controller refused {what}: {why}")]
    Ata {
        /// The request to the drive, in words.
        what: &'static str,
        /// The answer, in words.
        why: String,
    },
    /// A drive of this kind has no interface for it.
    #[error("{why}")]
    Unsupported {
        /// The interface that is missing, in words.
        why: String,
    },
    /// The kernel has suspended the drive: a question would wake it.
    #[error("the kernel has suspended the drive, which a question would wake")]
    Suspended,
}

impl DriveError {
    /// An error of the system, with the capability that its remedy needs.
    pub(super) fn system(
        what: &'static str,
        path: PathBuf,
        needs: &'static str,
        source: io::Error,
    ) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NotAllowed { what, path, needs, source },
            _ => Self::System { what, path, source },
        }
    }
}
