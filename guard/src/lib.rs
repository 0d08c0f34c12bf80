//! Keeps what is not saved within what the power allows, while the program goes on.
//!
//! A [`Watch`] heeds warnings in a thread of its own and lets a [`Keeper`] act in another, so that a
//! warning never waits for the device:
//!
//! - on battery the budget shrinks to what can be flushed in the time that can be counted on;
//! - when the battery is low, writers are refused and everything is saved, and the program goes on
//!   reading;
//! - when the power is back, the budget comes back, and writers are let in;
//! - at the end the program is called, and closes its region.
//!
//! Which reading asks for what is decided in [`perdura_warning::Response`].
#![forbid(unsafe_code)]

mod keeper;
mod watch;

pub use keeper::{Keeper, Writers};
pub use watch::Watch;
