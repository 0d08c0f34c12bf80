//! What people are told of drives and meters.

use perdura_media::drives::PowerReading;
use perdura_media::meters::MeterReading;

/// What is known of a drive's power state.
#[derive(Debug, Clone, PartialEq)]
pub enum Observed {
    /// Nobody has asked yet.
    NotYet,
    /// What it answered when it was asked last.
    Answer {
        /// The answer.
        reading: PowerReading,
        /// When, nanoseconds of the clock.
        at_ns: u64,
    },
    /// It was not asked, or did not answer.
    No(String),
}

/// Whether a drive sleeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rested {
    /// It is left alone, as all are.
    Off,
    /// It is left alone, although others are not; why.
    LeftAlone(String),
    /// It has something to do, or not had nothing for long enough.
    Awake,
    /// It was told to sleep, and had no request since.
    Asleep,
    /// It was told to sleep and did not; why.
    Refused(String),
}

/// One real drive.
#[derive(Debug, Clone, PartialEq)]
pub struct DriveStatus {
    /// The kernel's name.
    pub name: String,
    /// How it is connected.
    pub bus: String,
    /// The kernel's own power management: its state, and whether it may change it.
    pub runtime: Option<(String, String)>,
    /// Its power state.
    pub observed: Observed,
    /// Whether it sleeps.
    pub rested: Rested,
    /// How often it was told to sleep and did.
    pub sleeps: u64,
    /// Its own meters, numbers into [`DrivesStatus::meters`].
    pub meters: Vec<usize>,
}

/// Which drives a device of the store lies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceDrives {
    /// The device's number.
    pub number: u16,
    /// The device's directory.
    pub place: String,
    /// The drives in words: names, or why none is known.
    pub words: String,
    /// Numbers into [`DrivesStatus::drives`].
    pub drives: Vec<usize>,
}

/// The drives of all devices, and the machine's meters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DrivesStatus {
    /// The drives, each once, sorted by name.
    pub drives: Vec<DriveStatus>,
    /// The devices.
    pub devices: Vec<DeviceDrives>,
    /// The meters.
    pub meters: Vec<MeterReading>,
}
