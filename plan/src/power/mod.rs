//! From dirty bytes to energy, batteries and times (Viyojit, sections 2.2 and 8).
//!
//! The room is arithmetic, and all results are modelled. A machine draws `watts` while it flushes
//! `bytes` at a rate. A battery must still give that energy at the end of its life, at its
//! temperature, from the part of its charge that may be used and is not reserved for others. The
//! paper's figures are constants, so that a test can compare the arithmetic with them.

mod server;

pub use perdura_media::battery::{Battery, BatteryError, Cells};
pub use server::{Backup, Comparison, Layout, Limit, Machine, Server};
