//! The device that a driver drives.

use perdura_media::DeviceError;
use perdura_media::emulator::{Due, Emulator, Pace};
pub use perdura_media::model::Access;

use super::sys::sleep_ns;

/// A device that takes commands by tag and says when each would be done. It raises no interrupt:
/// the instant is known to the thread that waits.
pub trait Hardware: Sync {
    /// Bytes of the device.
    fn capacity_bytes(&self) -> u64;
    /// Takes a command, and returns the instant at which it will be done.
    fn issue(&self, tag: usize, access: Access, offset_bytes: u64, len_bytes: u64) -> u64;
    /// Copies bytes of the device to memory, in the place of its DMA.
    ///
    /// # Errors
    /// The range is not on the device.
    fn copy_out(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError>;
    /// Copies bytes from memory to the device, in the place of its DMA.
    ///
    /// # Errors
    /// The range is not on the device.
    fn copy_in(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError>;
    /// The present instant of the clock that [`Hardware::issue`] uses.
    fn now_ps(&self) -> u64;
    /// Waits until the instant without sleeping.
    fn spin_until(&self, due_ps: u64);
    /// Waits until the instant in one sleep. Returns at once if it has come.
    fn sleep_until(&self, due_ps: u64);
}

/// The modelled medium as hardware. It needs no tags: a command is done at its instant.
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
