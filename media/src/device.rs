//! The contract every device keeps: positional reads, a queue of writes, one flush.
//!
//! Invariants:
//! - A write is *completed* when its completion is reaped; it is *durable* only after a
//!   [`Device::flush`] that began after that. Nothing is promised about completed, unflushed
//!   writes: they may be lost, torn at 512 B, or land in any order.
//! - What [`Device::write_durable_at`] has written is durable when it returns; of other writes it
//!   says nothing, not even of those completed before.
//! - A failed flush latches, and so does a failed durable write: every later write and flush of
//!   that device fails with [`DeviceError::Latched`]. Retrying a failed fsync can report success
//!   for lost data.
//! - Offsets, lengths and buffer addresses are multiples of [`BLOCK_BYTES`]; a breach is our own
//!   mistake and asserted.

use std::io;
use std::sync::Arc;

/// Alignment of every offset, length and buffer address, bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// The deepest queue a device gives.
pub const QUEUE_DEPTH_MAX: usize = 4096;

/// Why a device cannot do as asked. Only facts; the caller knows which file it meant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The operating system refused.
    #[error("{op}{} failed: {source}", range(*offset_bytes, *len_bytes))]
    Io {
        /// The operation: `read`, `write`, `flush`, `grow`, …
        op: &'static str,
        /// Offset from the start of the device.
        offset_bytes: u64,
        /// Length of the range; 0 for an operation on the whole device, such as `open`, `lock` or
        /// `flush`.
        len_bytes: u64,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// No space left for a write or for growing.
    #[error("no space left: {op} of {len_bytes} bytes at offset {offset_bytes}")]
    NoSpace {
        /// The operation: `write` or `grow`.
        op: &'static str,
        /// Offset from the start of the device.
        offset_bytes: u64,
        /// Length of the range.
        len_bytes: u64,
    },
    /// The access reaches beyond the end of the device.
    #[error(
        "access of {len_bytes} bytes at offset {offset_bytes} is beyond the device's \
         {capacity_bytes} bytes"
    )]
    OutOfRange {
        /// Offset from the start of the device.
        offset_bytes: u64,
        /// Length of the range.
        len_bytes: u64,
        /// The device's size.
        capacity_bytes: u64,
    },
    /// An earlier flush failed; no write, flush or growth is accepted any more.
    #[error("the device failed earlier ({first}) and accepts no more writes")]
    Latched {
        /// The first failure, as text.
        first: String,
    },
    /// The simulated power is cut; the device does nothing any more.
    #[error("power is off (simulated)")]
    PowerLost,
}

/// The range as text for a message; empty for an operation on the whole device.
fn range(offset_bytes: u64, len_bytes: u64) -> String {
    match len_bytes {
        0 => String::new(),
        _ => format!(" of {len_bytes} bytes at offset {offset_bytes}"),
    }
}

/// One finished write.
#[derive(Debug)]
pub struct Completion {
    /// The token given at submission.
    pub token: u64,
    /// The result of the write.
    pub result: Result<(), DeviceError>,
}

/// One of several reads that are made together ([`Device::read_many`]).
#[derive(Debug)]
pub struct ReadAt<'b> {
    /// Offset from the start of the device.
    pub offset_bytes: u64,
    /// Where the bytes go; all of it is filled.
    pub buf: &'b mut [u8],
    /// The result once the reads are made.
    pub result: Result<(), DeviceError>,
}

impl<'b> ReadAt<'b> {
    /// A read that is not made yet.
    pub fn new(offset_bytes: u64, buf: &'b mut [u8]) -> Self {
        Self { offset_bytes, buf, result: Ok(()) }
    }
}

/// A block device. Shared between threads; each thread that writes asynchronously takes its own
/// queue.
pub trait Device: Send + Sync {
    /// Size in bytes.
    fn capacity_bytes(&self) -> u64;
    /// Makes the device at least `capacity_bytes` large (rounded up to whole blocks), space
    /// reserved; durable after the next flush. Never shrinks; a refused growth leaves the capacity
    /// as it was.
    fn grow(&self, capacity_bytes: u64) -> Result<(), DeviceError>;
    /// Fills `buf` from `offset_bytes`, or fails.
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError>;
    /// Makes several reads together, where the device can: they wait for it once and not one by
    /// one. Returns when all are done, each with its own result.
    fn read_many(&self, reads: &mut [ReadAt<'_>]) {
        for read in reads {
            read.result = self.read_at(read.offset_bytes, read.buf);
        }
    }
    /// Writes all of `buf` and returns when the write is completed (not durable).
    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError>;
    /// Writes all of `buf` and returns when that, and that only, is durable: for little, less work
    /// than a write and a flush.
    fn write_durable_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError>;
    /// Makes every write completed before this call durable.
    fn flush(&self) -> Result<(), DeviceError>;
    /// A queue of at most `depth` outstanding writes, `1..=QUEUE_DEPTH_MAX`. It shares the device,
    /// and its latch, beyond the life of this handle.
    fn queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>, DeviceError>;
    /// A text for banners, for example `io_uring + O_DIRECT`.
    fn describe(&self) -> String;
}

/// Outstanding writes of one owner.
pub trait WriteQueue: Send {
    /// Starts a write.
    ///
    /// # Errors
    /// The device is latched or off, or the write reaches beyond its end; the buffer is then not
    /// referenced any more. Everything else is reported by the completion.
    ///
    /// # Panics
    /// When `depth` writes are outstanding already: the caller waits before it submits more.
    ///
    /// # Safety
    /// `ptr..ptr+len` must stay valid, and its bytes unchanged, until the completion with `token`
    /// has been returned by [`WriteQueue::wait`] or the queue has been dropped (drop waits).
    unsafe fn submit(
        &mut self,
        token: u64,
        offset_bytes: u64,
        ptr: *const u8,
        len_bytes: usize,
    ) -> Result<(), DeviceError>;
    /// Waits until at least `at_least` writes (or all outstanding, if fewer) have completed and
    /// appends them to `out`. `0` polls. A write that failed is a completion, not an error here.
    ///
    /// # Errors
    /// The queue itself could not be asked; its writes stay outstanding.
    fn wait(&mut self, at_least: usize, out: &mut Vec<Completion>) -> Result<(), DeviceError>;
    /// Writes submitted and not yet returned by `wait`.
    fn outstanding(&self) -> usize;
}

impl<D: Device + ?Sized> Device for Arc<D> {
    fn capacity_bytes(&self) -> u64 {
        (**self).capacity_bytes()
    }
    fn grow(&self, capacity_bytes: u64) -> Result<(), DeviceError> {
        (**self).grow(capacity_bytes)
    }
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        (**self).read_at(offset_bytes, buf)
    }
    fn read_many(&self, reads: &mut [ReadAt<'_>]) {
        (**self).read_many(reads);
    }
    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        (**self).write_at(offset_bytes, buf)
    }
    fn write_durable_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        (**self).write_durable_at(offset_bytes, buf)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        (**self).flush()
    }
    fn queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>, DeviceError> {
        (**self).queue(depth)
    }
    fn describe(&self) -> String {
        (**self).describe()
    }
}

/// Asserts the contract's alignment of an access.
pub(crate) fn assert_aligned(offset_bytes: u64, ptr: *const u8, len_bytes: usize) {
    assert!(
        offset_bytes.is_multiple_of(BLOCK_BYTES),
        "offset {offset_bytes} is not a multiple of {BLOCK_BYTES}"
    );
    assert!(
        (len_bytes as u64).is_multiple_of(BLOCK_BYTES),
        "length {len_bytes} is not a multiple of {BLOCK_BYTES}"
    );
    assert!(
        (ptr.addr() as u64).is_multiple_of(BLOCK_BYTES) || len_bytes == 0,
        "buffer address {ptr:p} is not a multiple of {BLOCK_BYTES}"
    );
}

/// Asserts the contract of a queued write.
pub(crate) fn assert_submittable(
    offset_bytes: u64,
    ptr: *const u8,
    len_bytes: usize,
    outstanding: usize,
    depth: usize,
) {
    assert_aligned(offset_bytes, ptr, len_bytes);
    assert!(len_bytes > 0, "a queued write of no bytes");
    assert!(outstanding < depth, "more than {depth} writes outstanding");
}

pub(crate) fn check_range(
    offset_bytes: u64,
    len_bytes: u64,
    capacity_bytes: u64,
) -> Result<(), DeviceError> {
    match offset_bytes.checked_add(len_bytes) {
        Some(end_bytes) if end_bytes <= capacity_bytes => Ok(()),
        _ => Err(DeviceError::OutOfRange { offset_bytes, len_bytes, capacity_bytes }),
    }
}

/// `capacity_bytes` in whole blocks, rounded up; saturates at the last whole block.
pub(crate) fn whole_blocks_up(capacity_bytes: u64) -> u64 {
    capacity_bytes.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX - (BLOCK_BYTES - 1))
}
