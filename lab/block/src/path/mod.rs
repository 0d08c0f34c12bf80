//! The path of a request from a program to a medium and back, by the four steps of HASTE (Caulfield
//! et al., SC 2010).
//!
//! A driver in user space over [`Hardware`], which says when a command would be done. Each step
//! removes something from the one before: [`Step::Base`] has a queue with an elevator, a lock over
//! the queue, one over the device, and sleeps until its interrupt; [`Step::Unscheduled`] has no
//! elevator; [`Step::Atomic`] no locks; [`Step::Spin`] does not sleep for small requests. Each
//! request can be timed by part ([`Parts`]), and the parts are what this is for.
//!
//! Invariants:
//! - A request returns only when the command that carries it is due. (Planted bugs break this and
//!   what follows, for the tests.)
//! - A tag belongs to one command from its issue until it is due.
//! - A command has one direction, and merges only requests that follow each other without a gap.
//! - Requests, commands and tags are bounded ([`PathSettings`]); a thread that finds none left
//!   waits for one.
//! - In the base, a request whose expiry has passed goes before all that have not expired.
//!
//! *Interrupts.* Modelled hardware raises none. A sleeping submitter sets a timer for the instant
//! at which its command is due and is woken by that timer's interrupt: one real sleep and one real
//! wake-up, as in a kernel's driver. The woken thread then does the handler's work for all that are
//! due. Its own timer wakes every submitter, so the handler wakes only those that had no command
//! yet.
//!
//! *DMA.* The submitter copies its bytes itself once its command is issued, while it would
//! otherwise wait. Copying within the modelled time counts as the hardware's, as DMA would; copying
//! beyond it counts as copying.
//!
//! The bytes of requests that overlap and are under way at once may mix, as on any device. A caller
//! that needs an order waits for the first request.

mod atomic;
mod elevator;
mod file;
mod hardware;
mod locked;
mod parts;
mod planted;
mod sys;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use perdura_media::DeviceError;

use atomic::Atomic;
pub use file::{FilePath, FilePathError, FileWay};
pub use hardware::{Access, Hardware};
use locked::Locked;
pub use parts::{PARTS, Part, Parts};
use parts::{Probe, Silent, Stamps};
pub use planted::PlantedPath;

/// A step of HASTE: how much of the path has been removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// An elevator, locks, and sleeping.
    Base,
    /// Locks and sleeping, without the elevator.
    Unscheduled,
    /// Atomic operations in the place of locks, and sleeping.
    Atomic,
    /// Atomic operations; small requests poll in the place of sleeping.
    Spin,
}

impl Step {
    /// All steps, in the order in which HASTE took them.
    pub const ALL: [Self; 4] = [Self::Base, Self::Unscheduled, Self::Atomic, Self::Spin];

    /// The step's name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Unscheduled => "unscheduled",
            Self::Atomic => "atomic",
            Self::Spin => "spin",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Step {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let found = Self::ALL.into_iter().find(|step| step.name() == text);
        found.ok_or_else(|| PathError::UnknownStep { found: text.to_owned() })
    }
}

/// Bounds and choices of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathSettings {
    /// Most commands at the device at a time, at most [`TAGS_MAX`].
    pub tags: usize,
    /// Most requests under way or waiting at a time, in the steps with a queue; at least as many as
    /// tags.
    pub requests: usize,
    /// Longest command that merging makes.
    pub merge_bytes_max: u64,
    /// Waiting time after which a request goes first.
    pub expiry: Duration,
    /// Longest request for which [`Step::Spin`] spins.
    pub spin_max_bytes: usize,
    /// A planted bug, for tests.
    pub planted: PlantedPath,
}

impl Default for PathSettings {
    fn default() -> Self {
        Self {
            tags: 32,
            requests: 128,
            merge_bytes_max: 512 << 10,
            // Linux' deadline scheduler gives reads half a second; none of these media is that
            // slow.
            expiry: Duration::from_millis(5),
            spin_max_bytes: 4096,
            planted: PlantedPath::None,
        }
    }
}

/// Most tags: the bits of a word.
pub const TAGS_MAX: usize = 64;
/// Most requests that a queue may hold. It is kept sorted by moving entries.
pub const REQUESTS_MAX: usize = 1024;

/// Why a path cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// No step has this name.
    #[error("no I/O path is called {found:?}: expected base, unscheduled, atomic or spin")]
    UnknownStep {
        /// The name that was given.
        found: String,
    },
    /// A setting is out of range.
    #[error("{setting} is {found}: expected {min} to {max}")]
    Bound {
        /// Name of the setting.
        setting: &'static str,
        /// Its value.
        found: usize,
        /// The smallest allowed value.
        min: usize,
        /// The largest allowed value.
        max: usize,
    },
}

/// A driver and its device. Several threads may use it at once.
#[derive(Debug)]
pub struct IoPath<H> {
    hardware: H,
    step: Step,
    spin_max_bytes: usize,
    driver: Driver,
}

#[derive(Debug)]
enum Driver {
    Locked(Locked),
    Atomic(Atomic),
}

/// The bytes of a program's request, and their direction.
enum Transfer<'b> {
    Read(&'b mut [u8]),
    Write(&'b [u8]),
}

impl Transfer<'_> {
    fn access(&self) -> Access {
        match self {
            Self::Read(_) => Access::Read,
            Self::Write(_) => Access::Write,
        }
    }

    fn len_bytes(&self) -> usize {
        match self {
            Self::Read(buf) => buf.len(),
            Self::Write(buf) => buf.len(),
        }
    }

    /// Copies the bytes in the place of DMA.
    fn copy(&mut self, hardware: &impl Hardware, offset_bytes: u64) -> Result<(), DeviceError> {
        match self {
            Self::Read(buf) => hardware.copy_out(offset_bytes, buf),
            Self::Write(buf) => hardware.copy_in(offset_bytes, buf),
        }
    }
}

impl<H: Hardware> IoPath<H> {
    /// Makes a path to `hardware` with the parts of `step`.
    ///
    /// # Errors
    /// A bound of the settings is out of range.
    pub fn new(hardware: H, step: Step, settings: &PathSettings) -> Result<Self, PathError> {
        let within = |setting, found, min, max| match found {
            found if (min..=max).contains(&found) => Ok(()),
            found => Err(PathError::Bound { setting, found, min, max }),
        };
        within("tags", settings.tags, 1, TAGS_MAX)?;
        within("requests", settings.requests, settings.tags, REQUESTS_MAX)?;
        let driver = match step {
            Step::Base => Driver::Locked(Locked::new(settings, true)),
            Step::Unscheduled => Driver::Locked(Locked::new(settings, false)),
            Step::Atomic | Step::Spin => Driver::Atomic(Atomic::new(settings)),
        };
        Ok(Self { hardware, step, spin_max_bytes: settings.spin_max_bytes, driver })
    }

    /// The device of the path.
    pub fn hardware(&self) -> &H {
        &self.hardware
    }

    /// The step that the path was made with.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Reads bytes at an offset, and returns when the device would be done.
    ///
    /// # Errors
    /// The range is not on the device.
    pub fn read(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.submit(offset_bytes, Transfer::Read(buf), &mut Silent)
    }

    /// Writes bytes at an offset, and returns when the device would be done.
    ///
    /// # Errors
    /// The range is not on the device.
    pub fn write(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.submit(offset_bytes, Transfer::Write(buf), &mut Silent)
    }

    /// Reads as [`IoPath::read`] does, and returns the time of each part.
    ///
    /// # Errors
    /// The range is not on the device.
    pub fn read_timed(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<Parts, DeviceError> {
        self.timed(offset_bytes, Transfer::Read(buf))
    }

    /// Writes as [`IoPath::write`] does, and returns the time of each part.
    ///
    /// # Errors
    /// The range is not on the device.
    pub fn write_timed(&self, offset_bytes: u64, buf: &[u8]) -> Result<Parts, DeviceError> {
        self.timed(offset_bytes, Transfer::Write(buf))
    }

    fn timed(&self, offset_bytes: u64, transfer: Transfer<'_>) -> Result<Parts, DeviceError> {
        let mut stamps = Stamps::begin(self.hardware.now_ps());
        self.submit(offset_bytes, transfer, &mut stamps)?;
        stamps.mark(Part::Return, &self.hardware);
        Ok(stamps.parts())
    }

    #[inline]
    fn submit(
        &self,
        offset_bytes: u64,
        transfer: Transfer<'_>,
        probe: &mut impl Probe,
    ) -> Result<(), DeviceError> {
        let len_bytes = transfer.len_bytes() as u64;
        let capacity_bytes = self.hardware.capacity_bytes();
        if offset_bytes.checked_add(len_bytes).is_none_or(|end| end > capacity_bytes) {
            return Err(DeviceError::OutOfRange { offset_bytes, len_bytes, capacity_bytes });
        }
        if len_bytes == 0 {
            return Ok(());
        }
        match &self.driver {
            Driver::Locked(driver) => driver.submit(&self.hardware, offset_bytes, transfer, probe),
            Driver::Atomic(driver) => {
                let spins = self.step == Step::Spin && len_bytes <= self.spin_max_bytes as u64;
                driver.submit(&self.hardware, offset_bytes, transfer, spins, probe)
            }
        }
    }
}
