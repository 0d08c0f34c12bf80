//! A drive's power state: asked for, and changed.

use std::fmt;
use std::path::Path;

use super::drive::{Bus, Drive, Requests};
use super::error::DriveError;
use super::{ata, nvme};
use crate::units::Watts;

/// What an ATA drive does, by its answer to CHECK POWER MODE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtaMode {
    /// Its medium stands still.
    Standby,
    /// Its medium stands still, and its flash memory answers.
    StandbyWithFlash,
    /// Ready, with less power.
    Idle,
    /// Active, or idle: the drive does not tell which.
    ActiveOrIdle,
    /// An answer that the specification does not have.
    Unknown(u8),
}

impl AtaMode {
    /// The mode for a value of the count register.
    pub fn from_count(count: u8) -> Self {
        match count {
            0x00 | 0x01 => Self::Standby,
            0x40 => Self::StandbyWithFlash,
            0x80..=0x83 => Self::Idle,
            0x41 | 0xFF => Self::ActiveOrIdle,
            other => Self::Unknown(other),
        }
    }
}

impl fmt::Display for AtaMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standby => f.write_str("standby"),
            Self::StandbyWithFlash => f.write_str("standby, with its flash awake"),
            Self::Idle => f.write_str("idle"),
            Self::ActiveOrIdle => f.write_str("active or idle"),
            Self::Unknown(count) => write!(f, "unknown ({count:#04x})"),
        }
    }
}

/// The power state that a drive is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerState {
    /// One of an NVMe drive's states.
    Nvme {
        /// Its number: 0 takes most power.
        number: u8,
        /// How many states the drive has.
        count: u8,
        /// Whether reads and writes are done in it.
        is_operational: bool,
    },
    /// An ATA drive's mode.
    Ata(AtaMode),
}

impl PowerState {
    /// Whether it is one to sleep in: an NVMe state other than the first, or a medium that stands
    /// still.
    pub fn is_low(self) -> bool {
        match self {
            Self::Nvme { number, .. } => number > 0,
            Self::Ata(mode) => matches!(mode, AtaMode::Standby | AtaMode::StandbyWithFlash),
        }
    }
}

impl fmt::Display for PowerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nvme { number, count: 1, .. } => write!(f, "ps{number} (the only one)"),
            Self::Nvme { number, count, is_operational } => {
                let kind = if *is_operational { "" } else { ", non-operational" };
                write!(f, "ps{number} (of 0 to {}{kind})", count - 1)
            }
            Self::Ata(mode) => mode.fmt(f),
        }
    }
}

/// What a drive answered about its power.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerReading {
    /// The state that it is in.
    pub state: PowerState,
    /// The most power that it takes in this state, as its maker says; nothing is measured.
    pub nameplate: Option<Watts>,
}

/// A drive that was told to sleep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asleep {
    /// What the drive answered afterwards.
    pub reading: PowerReading,
    /// The NVMe state that it was in before, if it does not go back there by itself.
    pub restores: Option<u8>,
    /// The NVMe state that it was in before, if that does reads and writes.
    pub was: Option<u8>,
}

/// What a keeper of drives does with each: a real drive, or a test's.
pub trait DrivePower: Send {
    /// The kernel's name of the drive.
    fn name(&self) -> &str;

    /// How it is connected, in a word.
    fn bus(&self) -> String;

    /// The kernel's own power management of the drive: its state, and whether it may change it.
    fn runtime(&self) -> Option<(String, String)>;

    /// Whether a directory of sysfs is that of the drive's device, or of a part of it.
    fn owns(&self, device: &Path) -> bool;

    /// The requests that the kernel has counted.
    ///
    /// # Errors
    /// The kernel's file cannot be read.
    fn requests(&self) -> std::io::Result<Requests>;

    /// Asks the drive for its power state. It is not woken by that.
    ///
    /// # Errors
    /// The kernel or the drive refuses, or there is nothing to ask.
    fn observe(&self) -> Result<PowerReading, DriveError>;

    /// Tells the drive to sleep until its next request.
    ///
    /// # Errors
    /// The kernel or the drive refuses, or the drive has no state to sleep in.
    fn sleep(&self) -> Result<Asleep, DriveError>;

    /// Puts the drive back into an NVMe state.
    ///
    /// # Errors
    /// The kernel or the drive refuses.
    fn restore(&self, number: u8) -> Result<(), DriveError>;
}

impl DrivePower for Drive {
    fn name(&self) -> &str {
        self.name()
    }

    fn bus(&self) -> String {
        self.bus().to_string()
    }

    fn runtime(&self) -> Option<(String, String)> {
        self.runtime()
    }

    fn owns(&self, device: &Path) -> bool {
        self.owns(device)
    }

    fn requests(&self) -> std::io::Result<Requests> {
        self.requests()
    }

    fn observe(&self) -> Result<PowerReading, DriveError> {
        if self.is_suspended() {
            return Err(DriveError::Suspended);
        }
        match Drive::bus(self) {
            Bus::Nvme(_) => {
                let path = self.command_file("Identify Controller")?;
                let states = nvme::states(&path)?;
                nvme_reading(&states, nvme::state(&path)?)
            }
            Bus::Ata => {
                let mode = ata::mode(&self.command_file("CHECK POWER MODE")?)?;
                Ok(PowerReading { state: PowerState::Ata(mode), nameplate: None })
            }
            bus => Err(no_interface(bus)),
        }
    }

    fn sleep(&self) -> Result<Asleep, DriveError> {
        if self.is_suspended() {
            return Err(DriveError::Suspended);
        }
        match Drive::bus(self) {
            Bus::Nvme(_) => {
                let path = self.command_file("Identify Controller")?;
                let states = nvme::states(&path)?;
                let was = nvme::state(&path)?;
                let Some(deepest) = states.deepest() else {
                    return Err(DriveError::Unsupported {
                        why: "the drive has one power state only".into(),
                    });
                };
                nvme::set_state(&path, deepest)?;
                let reading = nvme_reading(&states, nvme::state(&path)?)?;
                let does_requests = |n| states.get(n).is_some_and(|state| state.is_operational);
                // The kernel's own management may have put it into a quiet state before.
                let was = Some(was).filter(|was| does_requests(*was) && *was != deepest);
                let restores = was.filter(|_| does_requests(deepest));
                Ok(Asleep { reading, restores, was })
            }
            Bus::Ata => {
                let path = self.command_file("STANDBY IMMEDIATE")?;
                ata::stand_by(&path)?;
                let state = PowerState::Ata(ata::mode(&path)?);
                let reading = PowerReading { state, nameplate: None };
                Ok(Asleep { reading, restores: None, was: None })
            }
            bus => Err(no_interface(bus)),
        }
    }

    fn restore(&self, number: u8) -> Result<(), DriveError> {
        match Drive::bus(self) {
            Bus::Nvme(_) => nvme::set_state(&self.command_file("Set Features")?, number),
            bus => Err(no_interface(bus)),
        }
    }
}

fn nvme_reading(states: &nvme::NvmeStates, number: u8) -> Result<PowerReading, DriveError> {
    let (Some(state), Ok(count)) = (states.get(number), u8::try_from(states.count())) else {
        let why = format!("the drive is in state {number} of {}", states.count());
        return Err(DriveError::Unsupported { why });
    };
    let is_operational = state.is_operational;
    let state_now = PowerState::Nvme { number, count, is_operational };
    Ok(PowerReading { state: state_now, nameplate: state.watts_max })
}

fn no_interface(bus: &Bus) -> DriveError {
    DriveError::Unsupported {
        why: match bus {
            Bus::Scsi => "a SCSI drive that does not say it speaks ATA is left alone".into(),
            other => format!("there is no power state to ask for ({other})"),
        },
    }
}
