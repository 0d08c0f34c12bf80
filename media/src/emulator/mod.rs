//! A medium that is not there: its bytes in DRAM, its time by a model.
//!
//! An access puts the bytes in place at once and returns [`Due`], the instant at which the medium
//! would be done; who waits until then (or answers no earlier) has the medium's latency, and with
//! many accesses outstanding its bandwidth. Nobody else learns that the bytes were there before.
//!
//! - The model decides, never the machine: what the emulator costs itself passes within the
//!   modelled time. Where the machine is slower than the medium, [`Emulator::wait`] returns how
//!   late it was, and [`Punctuality`] adds that up: every run can say by how much it missed its
//!   model.
//! - [`Pace::Real`] waits by the processor's own clock, calibrated against the system's;
//!   [`Pace::Virtual`] lets no real time pass: waiting moves the emulator's clock.
//! - Accesses are of any length at any offset within the capacity. Two that overlap at the same
//!   time mix their bytes.

mod clock;
mod punctuality;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;

use crate::device::{DeviceError, check_range};
use crate::model::{Access, EnergyUse, Model};
use crate::profile::System;
use crate::sys::SharedBytes;
use clock::EmulatorClock;
pub use clock::{Pace, Tsc};
pub use punctuality::Punctuality;

/// An instant of an emulator's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Due(u64);

impl Due {
    /// The instant so many picoseconds after the emulator was made: for disks with a clock of their
    /// own.
    #[must_use]
    pub const fn at_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Picoseconds since the emulator was made.
    #[must_use]
    pub const fn ps(self) -> u64 {
        self.0
    }
}

/// An emulator that cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulatorError {
    /// A capacity that is none.
    #[error("a medium of {capacity_bytes} bytes: expected a multiple of 4096 above zero")]
    Capacity {
        /// As given.
        capacity_bytes: u64,
    },
    /// The system gives no memory.
    #[error("no memory for a medium of {capacity_bytes} bytes: {source}")]
    Memory {
        /// As asked for.
        capacity_bytes: u64,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// A modelled medium. Shared between threads.
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

    /// A medium whose bytes are a file's, all of it: what is written is in the file at once, for
    /// others to see. The file should lie in memory (`/dev/shm`): how long the system needs for it
    /// is not modelled.
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

    /// Bytes that it holds.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.bytes.len_bytes() as u64
    }

    /// What it is, for banners: always with the word *modelled*.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("modelled {}, {}", self.name, self.clock.describe())
    }

    /// Whether its time passes.
    #[must_use]
    pub fn pace(&self) -> Pace {
        match self.clock {
            EmulatorClock::Real { .. } => Pace::Real,
            EmulatorClock::Virtual { .. } => Pace::Virtual,
        }
    }

    /// Copies bytes out; the medium would have them at the instant returned.
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

    /// Copies bytes in; the medium would have taken them at the instant returned.
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

    /// The bytes alone, at no modelled time: for who books their time apart ([`Emulator::book`]).
    ///
    /// # Errors
    /// The range is beyond the end.
    #[inline]
    pub fn copy_out(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        check_range(offset_bytes, buf.len() as u64, self.capacity_bytes())?;
        self.bytes.read(offset_bytes as usize, buf);
        Ok(())
    }

    /// As [`Emulator::copy_out`], the other way.
    ///
    /// # Errors
    /// The range is beyond the end; nothing is written.
    #[inline]
    pub fn copy_in(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        check_range(offset_bytes, buf.len() as u64, self.capacity_bytes())?;
        self.bytes.write(offset_bytes as usize, buf);
        Ok(())
    }

    /// Makes a range zeros and gives its memory back. Costs the medium a command.
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

    /// When everything written so far is off the medium's buffers.
    pub fn flush(&self) -> Due {
        Due(self.model.flush(self.clock.now_ps()))
    }

    /// The time of an access, without its bytes.
    #[inline]
    pub fn book(&self, access: Access, offset_bytes: u64, len_bytes: u64) -> Due {
        Due(self.model.book(self.clock.now_ps(), access, offset_bytes, len_bytes))
    }

    /// The time of an access that began at `since`: what has passed already counts.
    #[inline]
    pub fn book_since(&self, since: Due, access: Access, offset_bytes: u64, len_bytes: u64) -> Due {
        Due(self.model.book(since.0, access, offset_bytes, len_bytes))
    }

    /// The present.
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

    /// Nanoseconds until an instant, rounded up; 0 when it has come.
    #[inline]
    #[must_use]
    pub fn until_due_ns(&self, due: Due) -> u64 {
        due.0.saturating_sub(self.clock.now_ps()).div_ceil(PS_PER_NS)
    }

    /// Waits for an instant; returns how late it is, in picoseconds. The last part is spun, more
    /// than a quarter of a millisecond is slept.
    #[inline]
    pub fn wait(&self, due: Due) -> u64 {
        self.clock.wait(due.0)
    }

    /// Lets time pass that was spent on something else: on the virtual clock only; the real one
    /// goes by itself.
    pub fn pass_ps(&self, span_ps: u64) {
        self.clock.pass(span_ps);
    }

    /// What the medium has drawn so far; modelled.
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
