//! The physical world: devices, clocks, energy, and units of bytes, joules and seconds. The rooms
//! above take them as parameters, so that the same code runs on real, simulated and faulty media.

pub mod battery;
pub mod clock;
pub mod device;
pub mod drives;
pub mod emulator;
pub mod energy;
pub mod faulty;
pub mod file;
mod latch;
pub mod meters;
pub mod model;
pub mod profile;
pub mod recording;
pub mod sim;
mod sys;
pub mod time;
pub mod timed;
pub mod turns;
pub mod units;

pub use clock::{Clock, LoneClock, RealClock, SimClock};
pub use device::{
    BLOCK_BYTES, Completion, Device, DeviceError, QUEUE_DEPTH_MAX, ReadAt, WriteQueue,
};
pub use emulator::{Due, Emulator, EmulatorError, Pace};
pub use energy::{Energy, EnergyError};
pub use faulty::{FaultPlan, FaultyDevice, Slowdown};
pub use file::{Direct, Engine, FileDevice, OpenMode};
pub use model::{Access, Model};
pub use profile::{ProfileError, System};
pub use sim::{Channel, SimDevice, SimFiles, Timing};
pub use sys::BlockBuf;
pub use timed::TimedDevice;
pub use turns::TurnClock;
pub use units::{
    Bytes, BytesPerSecond, Joules, ParseError, Percent, Picoseconds, Watts, format_duration,
    parse_duration,
};
