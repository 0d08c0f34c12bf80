//! The real drives behind a store's devices: what power they take, and letting those sleep that
//! have nothing to do (Sprint-AEP, section II: the others sleep).
//!
//! Policy and mechanism are apart: [`rest`] says when, from the kernel's counts of requests; the
//! drives themselves are `perdura_media::drives`. A thread of its own looks once a second. Nothing
//! of it is on the way of a request, and no failure here stops anything: it is logged once, and
//! shown.

mod keeper;
mod rest;
mod status;
#[cfg(test)]
mod tests;
mod thread;

pub use keeper::{Keeper, Lookup, Sleep};
pub use status::{DeviceDrives, DriveStatus, DrivesStatus, Observed, Rested};
pub use thread::DriveKeeper;
