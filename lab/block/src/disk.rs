//! A served disk: bytes at offsets. Each operation returns the instant at which the modelled medium
//! would be done with it.
//!
//! Invariants: bytes are in place when a call returns, so operations of one thread take effect in
//! the order of its calls; a range beyond the end changes nothing and is
//! [`DeviceError::OutOfRange`]; an operation that failed has no [`Due`].

use std::sync::Arc;

use perdura_media::{DeviceError, Due, Emulator};

/// A block device whose bytes are in memory and whose time is a model's.
pub trait Disk: Send + Sync {
    /// Size of the disk; it never changes.
    fn capacity_bytes(&self) -> u64;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool {
        false
    }

    /// A text for people: the medium, and which of its properties are modelled.
    fn describe(&self) -> String;

    /// Fills `buf` with the bytes at the offset.
    ///
    /// # Errors
    /// The range is beyond the end, or the medium failed.
    fn read(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<Due, DeviceError>;

    /// Writes `bytes` at the offset.
    ///
    /// # Errors
    /// The range is beyond the end, the disk is read-only, or the medium failed.
    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<Due, DeviceError>;

    /// Makes the range read as zeros.
    ///
    /// # Errors
    /// The range is beyond the end, the disk is read-only, or the medium failed.
    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<Due, DeviceError>;

    /// Returns the instant at which all earlier writes are on the medium.
    ///
    /// # Errors
    /// The medium failed.
    fn flush(&self) -> Result<Due, DeviceError>;

    /// The present instant of the disk's own clock.
    fn now(&self) -> Due;

    /// Whether the instant has come.
    fn is_due(&self, due: Due) -> bool {
        self.now() >= due
    }

    /// Nanoseconds until the instant; 0 once it has come.
    fn until_due_ns(&self, due: Due) -> u64 {
        due.ps().saturating_sub(self.now().ps()).div_ceil(PS_PER_NS)
    }

    /// Waits until the instant has come. The wait may poll, so that it ends hardly late.
    fn wait(&self, due: Due);
}

/// How late a sleep ends in most cases. Sleeps are begun so much earlier.
pub const SLEEP_ERROR_NS: u64 = 60_000;

const PS_PER_NS: u64 = 1_000;

impl Disk for Emulator {
    fn capacity_bytes(&self) -> u64 {
        Self::capacity_bytes(self)
    }

    fn describe(&self) -> String {
        Self::describe(self)
    }

    fn read(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<Due, DeviceError> {
        Self::read(self, offset_bytes, buf)
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<Due, DeviceError> {
        Self::write(self, offset_bytes, bytes)
    }

    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<Due, DeviceError> {
        Self::discard(self, offset_bytes, len_bytes)
    }

    fn flush(&self) -> Result<Due, DeviceError> {
        Ok(Self::flush(self))
    }

    fn now(&self) -> Due {
        Self::now(self)
    }

    fn wait(&self, due: Due) {
        Self::wait(self, due);
    }
}

/// A disk that reads as another disk and refuses writes.
pub struct ReadOnly(pub Arc<dyn Disk>);

impl ReadOnly {
    fn refused(op: &'static str, offset_bytes: u64, len_bytes: u64) -> DeviceError {
        let source = std::io::Error::from(std::io::ErrorKind::ReadOnlyFilesystem);
        DeviceError::Io { op, offset_bytes, len_bytes, source }
    }
}

impl Disk for ReadOnly {
    fn capacity_bytes(&self) -> u64 {
        self.0.capacity_bytes()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("{}, read-only", self.0.describe())
    }

    fn read(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<Due, DeviceError> {
        self.0.read(offset_bytes, buf)
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<Due, DeviceError> {
        Err(Self::refused("write", offset_bytes, bytes.len() as u64))
    }

    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<Due, DeviceError> {
        Err(Self::refused("discard", offset_bytes, len_bytes))
    }

    fn flush(&self) -> Result<Due, DeviceError> {
        self.0.flush()
    }

    fn now(&self) -> Due {
        self.0.now()
    }

    fn wait(&self, due: Due) {
        self.0.wait(due);
    }
}

/// Checks that a range lies within a disk of that size.
///
/// # Errors
/// [`DeviceError::OutOfRange`] with the range and the size, when it does not.
pub fn within(capacity_bytes: u64, offset_bytes: u64, len_bytes: u64) -> Result<(), DeviceError> {
    match offset_bytes.checked_add(len_bytes) {
        Some(end) if end <= capacity_bytes => Ok(()),
        _ => Err(DeviceError::OutOfRange { offset_bytes, len_bytes, capacity_bytes }),
    }
}
