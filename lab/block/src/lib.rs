//! A medium as a block device: what it is ([`disk`]), and how programs of other makes reach it: NBD
//! over a socket ([`nbd`]), a file in a mounted directory ([`fuse`]); and the path of a request
//! through a driver ([`path`]).
//!
//! An operation has two halves. Bytes are in place when the call returns; the medium would be done
//! at the instant it returns ([`Due`]), and nobody is told before. So many requests overlap in time
//! on one thread, and bytes are never half there.

pub mod disk;
pub mod fuse;
pub mod nbd;
pub mod path;
pub mod scripted;

pub use disk::{Disk, ReadOnly};
pub use perdura_media::Due;
