//! The errors of opening and reading an image.

use perdura_dirty::{RegionError, SetupError};
use perdura_media::DeviceError;

/// Why an image cannot be used as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The device holds something that is not an image of ours.
    #[error("not a Perdura image: found magic {found:#018x} at offset 0")]
    NotAnImage {
        /// The first eight bytes found.
        found: u64,
    },
    /// Zeros lie where the superblocks should be, and something behind them: an image that lost
    /// its head.
    #[error(
        "the superblocks are gone (zeros), but the image is not new: there are data at offset \
         {found_at}; it was not touched"
    )]
    LostHead {
        /// Offset of the first byte that is not zero.
        found_at: u64,
    },
    /// The image was written by a program with another format version.
    #[error(
        "image format version {found}, this program reads versions up to {supported}: use a newer one"
    )]
    Version {
        /// Version in the image.
        found: u32,
        /// Newest version that this program understands.
        supported: u32,
    },
    /// Both copies of a fixed structure are damaged.
    #[error(
        "{what} is damaged (checksum expected {expected:#018x}, found {found:#018x}) at offset \
         {offset_bytes}"
    )]
    Damaged {
        /// The structure: `superblock`, `commit slot`, `frame header`, `frame table`, …
        what: &'static str,
        /// Offset on the device.
        offset_bytes: u64,
        /// Checksum stored.
        expected: u64,
        /// Checksum of the bytes found.
        found: u64,
    },
    /// No commit slot is valid: nothing was ever committed, or both were damaged.
    #[error("no valid commit slot (at offsets {first_offset_bytes} and {second_offset_bytes})")]
    NoCommit {
        /// Offset of the first slot on the device.
        first_offset_bytes: u64,
        /// Offset of the second slot on the device.
        second_offset_bytes: u64,
    },
    /// A page's only durable copy fails its checksum.
    #[error(
        "page {page} (region offset {region_offset}) is damaged in segment {segment}, device \
         offset {offset_bytes}: checksum expected {expected:#018x}, found {found:#018x}"
    )]
    DamagedPage {
        /// Number of the 4 KiB page in the region.
        page: u64,
        /// Offset of the first damaged byte in the region.
        region_offset: u64,
        /// Number of the log segment.
        segment: u32,
        /// Offset on the device.
        offset_bytes: u64,
        /// Checksum stored.
        expected: u64,
        /// Checksum of the bytes found.
        found: u64,
    },
    /// A block of an encrypted frame does not have its tag.
    #[error(
        "page {page} (region offset {region_offset}) is damaged or was changed by somebody in \
         segment {segment}, device offset {offset_bytes}: its authentication tag is wrong"
    )]
    ForgedPage {
        /// Number of the 4 KiB page in the region.
        page: u64,
        /// Offset of the first damaged byte in the region.
        region_offset: u64,
        /// Number of the log segment.
        segment: u32,
        /// Offset on the device.
        offset_bytes: u64,
    },
    /// A structure of an encrypted image does not have its tag, though its checksum is right.
    #[error(
        "{what} at offset {offset_bytes} was changed by somebody: its checksum is right, its \
         authentication tag is not"
    )]
    Forged {
        /// The structure.
        what: &'static str,
        /// Offset on the device.
        offset_bytes: u64,
    },
    /// The image is encrypted, and no key is given.
    #[error("the image is encrypted (offset {offset_bytes}): give its key with --key-file")]
    Encrypted {
        /// Offset on the device of what shows it.
        offset_bytes: u64,
    },
    /// A key is given, and the image is not encrypted.
    #[error(
        "a key is given, but what lies at offset {offset_bytes} is not encrypted: leave the key \
         out, or make an encrypted image in another directory and move the data there"
    )]
    NotEncrypted {
        /// Offset on the device of what is not encrypted.
        offset_bytes: u64,
    },
    /// The key that is given is not the one that the image is encrypted with.
    #[error(
        "the key is not the one that this image was made with, or was last given; it was not \
             touched"
    )]
    WrongKey,
    /// The system has no random bytes, without which nothing is encrypted.
    #[error("the system gives no random bytes (getrandom), which encryption needs")]
    NoRandomBytes,
    /// A compressed piece of a frame does not decode to its bytes, though its checksums are right:
    /// it was written by a faulty program, or made up.
    #[error(
        "page {page} of the region is damaged (region offset {region_offset}, segment {segment}, \
         device offset {offset_bytes}): its {stored_bytes} compressed bytes should become \
         {expected_bytes}, {found}"
    )]
    DamagedChunk {
        /// Number of the 4 KiB page in the region that has the first byte lost.
        page: u64,
        /// Offset of the first byte lost in the region.
        region_offset: u64,
        /// Number of the log segment.
        segment: u32,
        /// Offset on the device.
        offset_bytes: u64,
        /// Length of the piece on the device.
        stored_bytes: u64,
        /// Length of the piece in memory.
        expected_bytes: u64,
        /// The wrong result of decoding the piece.
        found: ChunkFound,
    },
    /// A segment that the commit slot names does not hold the frames that the slot says.
    #[error(
        "segment {segment} at device offset {offset_bytes}: expected frame {expected_seq}, found \
         {found_seq}"
    )]
    LostFrame {
        /// Number of the log segment.
        segment: u32,
        /// Offset on the device.
        offset_bytes: u64,
        /// Sequence number expected.
        expected_seq: u64,
        /// Sequence number found; 0: no frame.
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
    /// A structure whose checksum is right has an impossible value: a faulty program wrote it.
    #[error("{what} holds the impossible value {value} at offset {offset_bytes}")]
    Impossible {
        /// Name of the field.
        what: &'static str,
        /// Value found.
        value: u64,
        /// Offset on the device.
        offset_bytes: u64,
    },
}

/// The result of decoding a damaged chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkFound {
    /// Fewer bytes than expected: this many.
    Bytes(u64),
    /// More bytes than expected, or the chunk is no LZ4 block.
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
    /// A setting cannot work, or the system refused memory, held memory or a way to trap stores.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The image cannot be used.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The image, or live memory, has grains of another size: it was made in another tracking mode.
    #[error(
        "grain size of the image is {image_bytes} bytes, this tracking mode needs {mode_bytes} \
         bytes"
    )]
    Grain {
        /// Bytes of a grain in the image: 64 (barrier) or 4096 (trap).
        image_bytes: u64,
        /// Bytes of a grain in the mode asked for.
        mode_bytes: u64,
    },
    /// The region would be larger than its image can ever be. Nothing was changed.
    #[error(
        "a memory of {asked_bytes} bytes is asked for, and when the image was made at most \
         {reserved_bytes} bytes were reserved: ask for less, or for no size, which leaves it as it \
         is"
    )]
    Size {
        /// Size asked for.
        asked_bytes: u64,
        /// Largest size that was reserved.
        reserved_bytes: u64,
    },
    /// The device failed while frames that a killed process left were written again.
    #[error(transparent)]
    Region(#[from] RegionError),
}

/// Memory that was to be read cannot be loaded: the image is damaged there, or the device fails.
///
/// A reader has no other way to learn of it, so the thread unwinds with this value from the access.
/// Nothing was read or changed, and every lock is released on the way. A program that serves others
/// catches it with [`Unreadable::catch`].
#[derive(Debug, Clone, thiserror::Error)]
#[error("memory not yet loaded from the image cannot be read: {source}")]
pub struct Unreadable {
    /// The damage of the image, and its place.
    pub source: std::sync::Arc<OpenError>,
}

impl Unreadable {
    /// Runs `f`, and returns an error where `f` unwinds because memory cannot be loaded.
    ///
    /// # Errors
    /// `f` met memory that cannot be loaded.
    pub fn catch<R>(f: impl FnOnce() -> R) -> Result<R, Self> {
        use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
        // Nothing was changed in between: a thread unwinds from a read, or from what a write reads
        // before it changes anything.
        catch_unwind(AssertUnwindSafe(f)).map_err(|panic| match panic.downcast::<Self>() {
            Ok(unreadable) => *unreadable,
            Err(other) => resume_unwind(other),
        })
    }
}

impl From<Unreadable> for RegionError {
    fn from(unreadable: Unreadable) -> Self {
        Self::Latched { cause: unreadable.source.to_string() }
    }
}
