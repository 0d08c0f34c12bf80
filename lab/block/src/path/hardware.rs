//! What a driver drives.

use perdura_media::DeviceError;
use perdura_media::emulator::{Due, Emulator, Pace};
pub use perdura_media::model::Access;

use super::sys::sleep_ns;

/// A device that is told commands by tag and says when each would be done. It has no interrupt: who
/// waits knows until when.
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

/// The modelled medium as hardware. Tags mean nothing to it: a command is done at an instant, not
/// by its number.
impl Hardware for &Emulator {
    fn capacity_bytes(&self) -> u64 {
        Emulator::capacity_bytes(self)
    }

    #[inline]
    fn issue(&self, _: usize, access: Access, offset_bytes: u64, len_bytes: u64) -> u64 {
        self.book(access, offset_bytes, len_bytes).ps()
    }

    #[inline]
    fn copy_out(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        Emulator::copy_out(self, offset_bytes, buf)
    }

    #[inline]
    fn copy_in(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        Emulator::copy_in(self, offset_bytes, buf)
    }

    #[inline]
    fn now_ps(&self) -> u64 {
        self.now().ps()
    }

    #[inline]
    fn spin_until(&self, due_ps: u64) {
        self.wait(Due::at_ps(due_ps));
    }

    fn sleep_until(&self, due_ps: u64) {
        let due = Due::at_ps(due_ps);
        let left_ns = self.until_due_ns(due);
        if left_ns == 0 {
            return;
        }
        match self.pace() {
            Pace::Real => sleep_ns(left_ns),
            Pace::Virtual => _ = self.wait(due),
        }
    }
}
