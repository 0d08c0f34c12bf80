//! From dirty bytes to energy, batteries and times (Viyojit, sections 2.2 and 8).
//!
//! Arithmetic only, all of it modelled: a machine draws `watts` while it flushes `bytes` at a rate,
//! and a battery must still give that energy at the end of its life, at its temperature, from the
//! part of it that may be discharged and is not promised to somebody else. The paper's figures are
//! constants of their own, so that a test can hold this room to them.

mod battery;
mod server;

pub use battery::{Battery, BatteryError, Cells};
pub use server::{Backup, Comparison, Layout, Limit, Machine, Server};
