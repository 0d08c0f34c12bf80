//! A modelled medium: its bytes are in DRAM, and its times come from a model.
//!
//! An access puts the bytes in place at once and returns [`Due`], the instant at which the medium
//! would be done. A caller that waits until then (or answers no earlier) sees the medium's latency,
//! and with many accesses outstanding its bandwidth. The caller cannot see that the bytes were
//! there before.
//!
//! - The model decides the time, and not the machine: the emulator's own work passes within the
//!   modelled time. Where the machine is slower than the medium, [`Emulator::wait`] returns how
//!   late it was, and [`TimingError`] adds this up, so that every run can report its error against
//!   the model.
//! - [`Pace::Real`] waits by the processor's own clock, calibrated against the system's.
//!   [`Pace::Virtual`] takes no real time: a wait moves the emulator's clock.
//! - Accesses have any length and any offset within the capacity. Two accesses that overlap at the
//!   same time mix their bytes.

mod clock;
#[cfg(test)]
mod tests;
mod timing_error;

use std::fs::File;
use std::io;

use crate::device::{DeviceError, check_range};
use crate::model::{Access, EnergyUse, Model};
use crate::profile::System;
use crate::sys::SharedBytes;
use clock::EmulatorClock;
pub use clock::{Pace, Tsc};
pub use timing_error::TimingError;

/// An instant of an emulator's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Due(u64);

impl Due {
    /// The instant so many picoseconds after the emulator's creation, for disks with their own
    /// clock.
    #[must_use]
    pub const fn at_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Picoseconds since the emulator's creation.
    #[must_use]
    pub const fn ps(self) -> u64 {
        self.0
    }
}

/// Why an emulator cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulatorError {
    /// The capacity is not allowed.
    #[error("a medium of {capacity_bytes} bytes: expected a multiple of 4096 above zero")]
    Capacity {
        /// The capacity that was asked for.
        capacity_bytes: u64,
    },
    /// The system gives no memory.
    #[error("no memory for a medium of {capacity_bytes} bytes: {source}")]
    Memory {
        /// The capacity that was asked for.
        capacity_bytes: u64,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// A modelled medium. Several threads may use it at once.
pub struct Emulator {
    name: String,
    bytes: SharedBytes,
    model: Model,
    clock: EmulatorClock,
}

impl Emulator {
    /// A medium of zeros in private memory, which costs DRAM as it is written.
    ///
    /// # Errors
    /// The capacity is no multiple of 4096, or there are no addresses for it.
    pub fn anonymous(
        system: &System,
        capacity_bytes: u64,
        pace: Pace,
    ) -> Result<Self, EmulatorError> {
        let len_bytes = length(capacity_bytes)?;
        let bytes = SharedBytes::anonymous(len_bytes)
            .map_err(|source| EmulatorError::Memory { capacity_bytes, source })?;
        bytes.gather();
        Ok(Self::over(system, bytes, pace))
    }

    /// A medium whose bytes are a file's: each write is in the file at once, visible to others. The
    /// file should be in memory (`/dev/shm`), for the system's own time on the file is not
    /// modelled.
    ///
    /// # Errors
    /// The file's length is no multiple of 4096, or it cannot be mapped.
    pub fn over_file(system: &System, file: &File, pace: Pace) -> Result<Self, EmulatorError> {
        let failed =
            |capacity_bytes| move |source| EmulatorError::Memory { capacity_bytes, source };
        let capacity_bytes = file.metadata().map_err(failed(0))?.len();
        let len_bytes = length(capacity_bytes)?;
        let bytes = SharedBytes::of_file(file, len_bytes).map_err(failed(capacity_bytes))?;
        Ok(Self::over(system, bytes, pace))
    }

    fn over(system: &System, bytes: SharedBytes, pace: Pace) -> Self {
        let model = Model::new(system, bytes.len_bytes() as u64);
        Self { name: system.name.clone(), bytes, model, clock: EmulatorClock::start(pace) }
    }

    /// Bytes of the medium.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.bytes.len_bytes() as u64
    }

    /// A text for banners, which always has the word *modelled*.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("modelled {}, {}", self.name, self.clock.describe())
    }

    /// Whether waits take real time.
    #[must_use]
    pub fn pace(&self) -> Pace {
        match self.clock {
            EmulatorClock::Real { .. } => Pace::Real,
            EmulatorClock::Virtual { .. } => Pace::Virtual,
        }
    }

    /// Copies bytes out; returns the instant at which the medium would be done.
    ///
    /// # Errors
    /// The range is beyond the end.
    #[inline]
    pub fn read(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<Due, DeviceError> {
        check_range(offset_bytes, buf.len() as u64, self.capacity_bytes())?;
        let due = self.book(Access::Read, offset_bytes, buf.len() as u64);
        self.bytes.read(offset_bytes as usize, buf);
        Ok(due)
    }

    /// Copies bytes in; returns the instant at which the medium would be done.
    ///
    /// # Errors
    /// The range is beyond the end; nothing is written.
    #[inline]
    pub fn write(&self, offset_bytes: u64, buf: &[u8]) -> Result<Due, DeviceError> {
        check_range(offset_bytes, buf.len() as u64, self.capacity_bytes())?;
        let due = self.book(Access::Write, offset_bytes, buf.len() as u64);
        self.bytes.write(offset_bytes as usize, buf);
        Ok(due)
    }

    /// Copies bytes out without modelled time, for callers that book the time separately
    /// ([`Emulator::book`]).
    ///
    /// # Errors
    /// The range is beyond the end.
    #[inline]
    pub fn copy_out(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        check_range(offset_bytes, buf.len() as u64, self.capacity_bytes())?;
        self.bytes.read(offset_bytes as usize, buf);
        Ok(())
    }

    /// Copies bytes in without modelled time, for callers that book the time separately.
    ///
    /// # Errors
    /// The range is beyond the end; nothing is written.
    #[inline]
    pub fn copy_in(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        check_range(offset_bytes, buf.len() as u64, self.capacity_bytes())?;
        self.bytes.write(offset_bytes as usize, buf);
        Ok(())
    }

    /// Makes a range zeros and gives its memory back. The medium's time is that of a command.
    ///
    /// # Errors
    /// The range is beyond the end, or the system refuses.
    pub fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<Due, DeviceError> {
        check_range(offset_bytes, len_bytes, self.capacity_bytes())?;
        let due = self.book(Access::Write, offset_bytes, 0);
        let zeroed = self.bytes.zero(offset_bytes as usize, len_bytes as usize);
        zeroed.map_err(|source| DeviceError::Io {
            op: "discard",
            offset_bytes,
            len_bytes,
            source,
        })?;
        Ok(due)
    }

    /// The instant at which all writes so far have left the medium's buffers.
    pub fn flush(&self) -> Due {
        Due(self.model.flush(self.clock.now_ps()))
    }

    /// Books the time of an access, without its bytes.
    #[inline]
    pub fn book(&self, access: Access, offset_bytes: u64, len_bytes: u64) -> Due {
        Due(self.model.book(self.clock.now_ps(), access, offset_bytes, len_bytes))
    }

    /// Books the time of an access that began at `since`: the time since then counts already.
    #[inline]
    pub fn book_since(&self, since: Due, access: Access, offset_bytes: u64, len_bytes: u64) -> Due {
        Due(self.model.book(since.0, access, offset_bytes, len_bytes))
    }

    /// The present instant.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Due {
        Due(self.clock.now_ps())
    }

    /// Whether an instant has come.
    #[inline]
    #[must_use]
    pub fn is_due(&self, due: Due) -> bool {
        self.clock.now_ps() >= due.0
    }

    /// Nanoseconds until an instant, rounded up; 0 once it has come.
    #[inline]
    #[must_use]
    pub fn until_due_ns(&self, due: Due) -> u64 {
        due.0.saturating_sub(self.clock.now_ps()).div_ceil(PS_PER_NS)
    }

    /// Waits for an instant; returns how late the wait ended, in picoseconds. A wait of more than a
    /// quarter of a millisecond begins with a sleep; the last part is polled.
    #[inline]
    pub fn wait(&self, due: Due) -> u64 {
        self.clock.wait(due.0)
    }

    /// Adds time that was spent on other work to a virtual clock. A real clock has counted it.
    pub fn pass_ps(&self, span_ps: u64) {
        self.clock.pass(span_ps);
    }

    /// Modelled energy that the medium has drawn so far.
    #[must_use]
    pub fn energy(&self) -> EnergyUse {
        self.model.energy(self.clock.now_ps())
    }
}

fn length(capacity_bytes: u64) -> Result<usize, EmulatorError> {
    let is_whole = capacity_bytes > 0 && capacity_bytes.is_multiple_of(4096);
    let len_bytes = usize::try_from(capacity_bytes).ok().filter(|_| is_whole);
    len_bytes.ok_or(EmulatorError::Capacity { capacity_bytes })
}

const PS_PER_NS: u64 = 1_000;
