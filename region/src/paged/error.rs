//! Errors of paged memory.

use rustix::io::Errno;

/// Why paged memory could not be opened, or a call on it failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PagedError {
    /// A setting has a value that cannot work.
    #[error("{name} = {value}: expected {expected}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// The refused value.
        value: u64,
        /// Values that would work.
        expected: &'static str,
    },
    /// The memory is larger than the medium.
    #[error(
        "{len_bytes} bytes of paged memory on a medium of {medium_bytes} bytes; take a larger \
         medium or less memory"
    )]
    SmallMedium {
        /// Capacity of the medium, bytes.
        medium_bytes: u64,
        /// Length of the memory, bytes.
        len_bytes: u64,
    },
    /// The system gave no memory.
    #[error("{len_bytes} bytes of memory for paging refused: {source}")]
    Memory {
        /// Bytes asked for.
        len_bytes: u64,
        /// The system's error.
        source: Errno,
    },
    /// The system refused a step of paging.
    #[error(
        "paging needs {step}, which was refused ({source}): it takes Linux 6.4 or later with \
         userfaultfd; in a container, allow the system call userfaultfd, or set \
         vm.unprivileged_userfaultfd = 1"
    )]
    Refused {
        /// The step that was refused.
        step: &'static str,
        /// The system's error.
        source: Errno,
    },
    /// The table of trapped and paged ranges of this process is full.
    #[error("this process has {ranges_max} trapped or paged ranges already; close one first")]
    TooMany {
        /// Most ranges that a process can have.
        ranges_max: usize,
    },
}
