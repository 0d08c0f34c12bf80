//! What a driver drives.

use perdura_media::DeviceError;

/// A device that is told commands by tag and says when each would be done. It has no interrupt: who waits knows until when.
pub trait Hardware: Sync {
    /// Bytes it holds.
    fn capacity_bytes(&self) -> u64;
    /// Takes a command; the instant at which it will be done.
    fn issue(&self, tag: usize, access: Access, offset_bytes: u64, len_bytes: u64) -> u64;
    /// Its DMA of bytes to memory.
    ///
    /// # Errors
    /// The range is not on the device.
    fn copy_out(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError>;
    /// Its DMA of bytes from memory.
    ///
    /// # Errors
    /// The range is not on the device.
    fn copy_in(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError>;
    /// The clock that [`Hardware::issue`] speaks of.
    fn now_ps(&self) -> u64;
    /// Waits awake.
    fn spin_until(&self, due_ps: u64);
    /// Waits asleep, in one sleep; not at all where it is due already.
    fn sleep_until(&self, due_ps: u64);
}

/// Stand-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access { 
    /// r
    Read, 
    /// w
    Write }
