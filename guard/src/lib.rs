//! Keeps what is not saved within what the power allows, while programs go on and when they are
//! gone.
//!
//! In the program that uses a region, a [`Watch`] heeds warnings in a thread of its own and lets a
//! [`Keeper`] act in another, so that a warning never waits for the device:
//!
//! - on battery the budget shrinks to what can be flushed in the time that can be counted on;
//! - when the battery is low, writers are refused and everything is saved, and the program goes on
//!   reading;
//! - when the power is back, the budget comes back, and writers are let in;
//! - at the end the program is called, and closes its region.
//!
//! Which reading asks for what is decided in [`perdura_warning::Response`].
//!
//! In a process beside it, memory outlives the program: a *holder* ([`hold`]) has the memory of one
//! program, a *guard* ([`Guard`]) that of many, with one loop for both. A guard has a [`Parent`],
//! which keeps the descriptors if the guard is killed. A guard also tells its programs what the
//! power is like ([`Guarded`]), and a program that loses its guard saves everything and stops
//! writing.
#![forbid(unsafe_code)]

mod battery;
mod cores;
mod daemon;
mod drill;
mod emergency;
mod error;
mod foreign;
mod guarded;
mod held;
mod holder;
mod holding;
mod isolate;
mod keeper;
mod look;
mod neighbours;
mod parent;
mod readings;
mod shares;
mod sys;
mod tenancy;
mod visitor;
mod watch;

pub use battery::{BatteryWatch, LOOK_EVERY};
pub use cores::forbid_cores;
pub use daemon::{Guard, GuardOptions, GuardSocket, REGIONS_MAX};
pub use drill::{DrillOutcome, Drilled, drill};
pub use error::HoldError;
pub use guarded::{GuardEar, Guarded};
pub use holder::{HolderOptions, hold};
pub use isolate::open_many_files;
pub use keeper::{Keeper, Most, Writers};
pub use look::{GuardedRegion, Looked, LookedBattery, look};
pub use parent::Parent;
pub use tenancy::{Battery, Tenant, Whose};
pub use watch::{Orders, Watch};
