//! What can go wrong when an image is opened or read.

use perdura_dirty::error::{RegionError, SetupError};
use perdura_media::DeviceError;
use rustix::io::Errno;

/// An image that cannot be used as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// Not an image of ours.
    #[error("not a Perdura image: found magic {found:#018x} at offset 0")]
    NotAnImage {
        /// The eight bytes found.
        found: u64,
    },
    /// Zeros where the superblocks should be, and something behind them: an image that lost its
    /// head.
    #[error(
        "the superblocks are gone (zeros), but the image is not new: there are data at offset {found_at}; it was not touched"
    )]
    LostHead {
        /// First byte that is not zero.
        found_at: u64,
    },
    /// Written by another version.
    #[error("image format version {found}, this program reads {supported}")]
    Version {
        /// Version in the image.
        found: u32,
        /// Version understood.
        supported: u32,
    },
    /// Both copies of a fixed structure are damaged.
    #[error(
        "{what} is damaged (checksum expected {expected:#018x}, found {found:#018x}) at offset {offset_bytes}"
    )]
    Damaged {
        /// `superblock`, `commit slot`, `frame header`, `frame table`, …
        what: &'static str,
        /// Where on the device.
        offset_bytes: u64,
        /// Checksum stored.
        expected: u64,
        /// Checksum of the bytes found.
        found: u64,
    },
    /// No commit slot is valid: nothing was ever committed, or both were damaged.
    #[error("no valid commit slot (at offsets {first_offset_bytes} and {second_offset_bytes})")]
    NoCommit {
        /// Where the first slot lies.
        first_offset_bytes: u64,
        /// Where the second slot lies.
        second_offset_bytes: u64,
    },
    /// A page's only durable copy fails its checksum.
    #[error(
        "page {page} (region offset {region_offset}) is damaged in segment {segment}, device offset {offset_bytes}: checksum expected {expected:#018x}, found {found:#018x}"
    )]
    DamagedPage {
        /// 4 KiB page number in the region.
        page: u64,
        /// First damaged byte in the region.
        region_offset: u64,
        /// Log segment.
        segment: u32,
        /// Where on the device.
        offset_bytes: u64,
        /// Checksum stored.
        expected: u64,
        /// Checksum found.
        found: u64,
    },
    /// A compressed piece of a frame does not become what it was, though its checksums are right:
    /// written by a faulty program, or made up.
    #[error(
        "page {page} of the region is damaged (region offset {region_offset}, segment {segment}, device offset {offset_bytes}): its {stored_bytes} compressed bytes should become {expected_bytes}, {found}"
    )]
    DamagedChunk {
        /// 4 KiB page number in the region of the first data lost.
        page: u64,
        /// Where that is.
        region_offset: u64,
        /// Log segment.
        segment: u32,
        /// Where on the device.
        offset_bytes: u64,
        /// Its length there.
        stored_bytes: u64,
        /// Its length in memory.
        expected_bytes: u64,
        /// What they are instead.
        found: ChunkFound,
    },
    /// A segment that the commit slot names is not what the slot says.
    #[error(
        "segment {segment} at device offset {offset_bytes}: expected frame {expected_seq}, found {found_seq}"
    )]
    LostFrame {
        /// Log segment.
        segment: u32,
        /// Where on the device.
        offset_bytes: u64,
        /// Sequence number expected.
        expected_seq: u64,
        /// Sequence number found (0: none).
        found_seq: u64,
    },
    /// The image is shorter than its superblock says.
    #[error("image is truncated: {found_bytes} bytes, its superblock says {expected_bytes}")]
    Truncated {
        /// Bytes expected.
        expected_bytes: u64,
        /// Bytes found.
        found_bytes: u64,
    },
    /// A value in a checked structure makes no sense: written by a faulty program.
    #[error("{what} holds the impossible value {value} at offset {offset_bytes}")]
    Impossible {
        /// Which field.
        what: &'static str,
        /// Its value.
        value: u64,
        /// Where on the device.
        offset_bytes: u64,
    },
}

/// What a damaged chunk became.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkFound {
    /// Fewer bytes than it should.
    Bytes(u64),
    /// More than it should, or nothing that LZ4 makes.
    NotLz4,
}

impl std::fmt::Display for ChunkFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "they become {bytes}"),
            Self::NotLz4 => f.write_str("they are more, or no LZ4 block"),
        }
    }
}

/// Why a region could not be opened, created or attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting cannot work.
    #[error("{name} = {value}: expected {expected}")]
    Setting {
        /// Which setting.
        name: &'static str,
        /// Its value, with unit.
        value: String,
        /// What would work.
        expected: &'static str,
    },
    /// The image cannot be used.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Memory could not be had.
    #[error("{len_bytes} bytes of memory for the {what} refused: {source}")]
    Memory {
        /// `region`, `ledger`, …
        what: &'static str,
        /// How much.
        len_bytes: u64,
        /// The system's error.
        source: Errno,
    },
    /// Live memory of another layout version: another build left it.
    #[error("memory held by another version: live layout {found}, this program uses {supported}")]
    LiveLayout {
        /// Version found.
        found: u64,
        /// Version understood.
        supported: u64,
    },
    /// Live memory holds a state that no program of this version writes.
    #[error("memory held by a faulty program: {what} of number {index} is {value}, which is none")]
    UnknownState {
        /// `segment state`, `buffer state`, …
        what: &'static str,
        /// Number of the segment, buffer or block.
        index: u64,
        /// The value found.
        value: u64,
    },
    /// The image, or live memory, has grains of another size: made in another tracking mode.
    #[error(
        "grain size of the image is {image_bytes} bytes, this tracking mode needs {mode_bytes} bytes"
    )]
    Grain {
        /// Bytes of a grain in the image: 64 (barrier) or 4096 (trap).
        image_bytes: u64,
        /// Bytes of a grain in the mode asked for.
        mode_bytes: u64,
    },
    /// The system refuses a way to trap stores.
    #[error("tracking by {mode} refused: {source}")]
    Tracking {
        /// Which way.
        mode: &'static str,
        /// The system's error.
        source: Errno,
    },
    /// The device failed while frames that a killed process left were written again.
    #[error(transparent)]
    Region(#[from] RegionError),
}

/// Bytes that were to be read cannot be loaded: the image is damaged there, or its device fails. A
/// reader has no other way to learn of it, so the thread unwinds with this, once, from the access;
/// nothing was read, nothing changed, every lock is released on the way. Who serves others catches
/// it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("memory not yet loaded from the image cannot be read: {source}")]
pub struct Unreadable {
    /// What is wrong with the image, and where.
    pub source: std::sync::Arc<OpenError>,
}

impl Unreadable {
    /// Runs `f`; what it cannot read is an error then.
    ///
    /// # Errors
    /// `f` met memory that cannot be loaded.
    pub fn catch<R>(f: impl FnOnce() -> R) -> Result<R, Self> {
        use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
        // Nothing was changed in between: it unwinds from a read, or from what a write reads first.
        catch_unwind(AssertUnwindSafe(f)).map_err(|panic| match panic.downcast::<Self>() {
            Ok(unreadable) => *unreadable,
            Err(other) => resume_unwind(other),
        })
    }
}

impl From<SetupError> for OpenError {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::Setting { name, value, expected } => {
                Self::Setting { name, value, expected }
            }
            SetupError::Memory { what, len_bytes, source } => {
                Self::Memory { what, len_bytes, source }
            }
            SetupError::LiveLayout { found, supported } => Self::LiveLayout { found, supported },
            SetupError::UnknownState { what, index, value } => {
                Self::UnknownState { what, index, value }
            }
            SetupError::Tracking { mode, source } => Self::Tracking { mode, source },
        }
    }
}

impl From<Unreadable> for RegionError {
    fn from(unreadable: Unreadable) -> Self {
        Self::Latched { cause: unreadable.source.to_string() }
    }
}
