//! A modelled medium as a block device.
//!
//! [`disk`] is the device. Programs reach it by NBD over a socket ([`nbd`]) or as a file in a
//! mounted directory ([`fuse`]). [`path`] is a driver's path of a request, in four steps.
//!
//! An operation has two halves. Its bytes are in place when the call returns; the client is told
//! only at the instant at which the medium would be done ([`Due`]). So many requests overlap in
//! time on one thread, and no reader sees half of a write.

pub mod disk;
pub mod fuse;
pub mod nbd;
pub mod path;
pub mod scripted;

pub use disk::{Disk, ReadOnly};
pub use perdura_media::Due;
