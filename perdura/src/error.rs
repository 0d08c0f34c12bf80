//! The errors of three families of operations: opening, changing bytes, closing.

use perdura_heap::{HeapError, MemoryError};
use perdura_region::RegionError;
use perdura_region::directory::DirectoryError;
use perdura_region::holder::LinkError;
use perdura_warning::WarningError;

/// Why something could not be opened. Nothing was changed.
///
/// ```
/// use perdura::{OpenError, Options, Store};
///
/// # let dir = tempfile::tempdir().unwrap();
/// let refused = Store::open_with(dir.path().join("data"), &Options::new().flush_threads(0));
/// assert!(matches!(refused, Err(OpenError::Setting { name: "flush_threads", .. })));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting cannot work.
    #[error("{name} = {value}: expected {expected}")]
    Setting {
        /// The method of [`crate::Options`].
        name: &'static str,
        /// The value of the option.
        value: String,
        /// Values that are accepted.
        expected: &'static str,
    },
    /// The directory, its image, its rate or its promise cannot be had.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The holder could not be started or watched.
    #[error(transparent)]
    Holder(#[from] LinkError),
    /// The system gives no descriptor for the words of a guard.
    #[error(transparent)]
    Guard(#[from] WarningError),
    /// The system starts no thread that does what the guard says.
    #[error("start a thread: {0}")]
    Thread(#[source] std::io::Error),
    /// The image holds no store, or a damaged one.
    #[error(transparent)]
    Store(#[from] perdura_store::OpenError),
    /// The memory holds no heap, or a damaged one.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// The heap's memory cannot be had.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// Why bytes of a region were not read or not changed.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let options = perdura::Options::new().memory_bytes(16 << 20);
/// # let region = perdura::Region::open_with(dir.path().join("data"), &options)?;
/// use perdura::AccessError;
///
/// let beyond = region.write(region.len_bytes(), b"x");
/// assert!(matches!(beyond, Err(AccessError::OutOfRange { .. })));
/// assert!(matches!(region.load_word(4), Err(AccessError::Misaligned { offset: 4, .. })));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The range leaves the region.
    #[error("{len_bytes} bytes at {offset} leave a region of {region_bytes} bytes")]
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        /// Number of bytes asked for.
        len_bytes: u64,
        /// Size of the region.
        region_bytes: u64,
    },
    /// A word does not begin at a multiple of its size.
    #[error("a word at {offset}: expected a multiple of {align_bytes}")]
    Misaligned {
        /// Where the word was to begin.
        offset: u64,
        /// The number of bytes of which the offset must be a multiple.
        align_bytes: u64,
    },
    /// The region refuses: its device has failed, or it is closed. Of several blocks of 64 KiB the
    /// first may have changed.
    #[error(transparent)]
    Refused(#[from] RegionError),
}

/// Why closing did not end well.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let options = perdura::Options::new().memory_bytes(16 << 20);
/// # let store = perdura::Store::open_with(dir.path().join("data"), &options)?;
/// if let Err(error) = store.close() {
///     eprintln!("not everything is on the SSD, and the holder keeps it: {error}");
/// }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// The flush failed. The SSD holds the last checkpoint; the memory holds everything, as long as
    /// this process or the holder lives.
    #[error("the flush failed with at most {at_risk_bytes} bytes at risk: {source}")]
    Flush {
        /// Bytes that may have been dirty.
        at_risk_bytes: u64,
        /// The reason why the flush failed.
        #[source]
        source: RegionError,
    },
    /// Everything is on the SSD, but the holder did not end.
    #[error("everything is on the SSD, but the holder did not go: {0}")]
    HolderStays(#[source] LinkError),
    /// The heap could not shorten its logs; it is as whole as after a crash.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// This process was forked from the one that opened the directory, and must leave it alone.
    #[error("opened by process {opened_by}, of which this one is a fork: nothing was done")]
    Forked {
        /// The process that opened the directory.
        opened_by: u32,
    },
}
