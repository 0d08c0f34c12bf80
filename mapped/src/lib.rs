//! Files of unmodified programs as bounded-dirty memory: what a program maps shared and writable
//! below a directory lies in one region, so that `msync` returns at once and all of it is safe
//! within the warning (Viyojit, section 4.3).
//!
//! A [`Host`] has the region, with a [`catalog`] of the files in its first bytes. Programs run with
//! the library of `interpose` preloaded, which asks the host over a socket, in the words of
//! [`wire`], to serve a file, and maps the host's memory in the file's place. The host's memory is
//! tracked in every process that maps it ([`perdura_region::TrapKind::Guests`]).
//!
//! Until the end the file itself is as it was before, but for its length. [`Host::write_files`]
//! writes all files again as ordinary ones, at the end or when the host's memory is recovered.
#![forbid(unsafe_code)]

mod attributes;
mod board;
pub mod catalog;
mod error;
mod host;
mod journal;
mod serving;
#[cfg(test)]
mod testing;
mod wire;

pub use error::MappedError;
pub use host::{Host, REGION_NAME, region_config};
pub use serving::Serving;
pub use wire::{DIR_VARIABLE, SOCKET_VARIABLE};
