//! Values of a store on several devices.
//!
//! Memory is the buffer and the cache before all devices: values are written in memory, leave it in
//! batches when it is nearly full, the coldest first, and come back when they are used often. Each
//! value has a home device, by the hash of its key; the batches of several devices are written at
//! the same time, so that a device works in short bursts and can sleep between them. If not all
//! devices are primaries, the home is one of these, and the idle ones are only read.
//!
//! [`Devices`] reads (it is the store's [`FarStorage`]), and [`Mover`] moves. The only record of
//! where a value lies is its address in the store's memory, which is durable as everything there
//! is; a device has no table of its own that could disagree with it.
//!
//! The order of a move makes a loss of power harmless at every point:
//!
//! 1. a batch is written to free room of the device, and flushed;
//! 2. each value's record in memory is replaced by the address, if the value is still the same;
//! 3. room that no address leads to any more is written again only after a checkpoint of the store
//!    that began later, because an older state may still have such addresses.

mod assign;
mod batch;
mod busy;
mod compact;
mod device;
mod directory;
mod error;
mod format;
mod home;
mod members;
mod mover;
mod policy;
mod readers;
mod roles;
mod segments;
mod status;
mod storage;
#[cfg(test)]
mod tests;

pub use device::{DeviceState, Named, Watts};
pub use directory::VALUES_NAME;
pub use error::{DevicesError, MoveError};
pub use members::Devices;
pub use mover::{Moved, Mover};
pub use policy::{Memory, Policy};
pub use roles::{NotPrimaries, Primaries, RolesStatus};
pub use status::{DeviceStatus, DevicesStatus};
