//! The physical world: bytes, joules, seconds. Devices, clocks and units; everything above takes them
//! as parameters, so that the same code runs on real, simulated and faulty media.

pub mod device;

pub use device::{BLOCK_BYTES, Completion, Device, DeviceError, WriteQueue};
