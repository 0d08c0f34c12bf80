//! Why paged memory cannot be had.

use rustix::io::Errno;

/// Why paged memory cannot be had, or does not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PagedError {
    /// A setting cannot work.
    #[error("{name} = {value}: expected {expected}")]
    Setting {
        /// Which.
        name: &'static str,
        /// Its value.
        value: u64,
        /// What would work.
        expected: &'static str,
    },
    /// The memory does not fit the medium.
    #[error(
        "{len_bytes} bytes of paged memory on a medium of {medium_bytes} bytes; take a larger medium or less memory"
    )]
    SmallMedium {
        /// The medium's capacity.
        medium_bytes: u64,
        /// The memory's length.
        len_bytes: u64,
    },
    /// The system gives no memory.
    #[error("{len_bytes} bytes of memory for paging refused: {source}")]
    Memory {
        /// How much.
        len_bytes: u64,
        /// The system's error.
        source: Errno,
    },
    /// The system refuses a step of paging.
    #[error(
        "paging needs {step}, which was refused ({source}): it takes Linux 6.4 or later with userfaultfd; in a container, allow the system call userfaultfd, or set vm.unprivileged_userfaultfd = 1"
    )]
    Refused {
        /// Which step.
        step: &'static str,
        /// The system's error.
        source: Errno,
    },
    /// No place in the table of ranges.
    #[error("this process has {ranges_max} trapped or paged ranges already; close one first")]
    TooMany {
        /// How many there can be.
        ranges_max: usize,
    },
}
