//! A Redis-protocol server over [`perdura_store::Store`].
//!
//! `resp` parses requests and writes replies. `commands` has a table of all commands and a function
//! for each. `net` is the event loop, `sys` its ring, `config` its settings.
#![deny(unsafe_code)]

pub mod config;
pub mod export;
mod geo;
mod glob;
mod hll;
pub mod number;
pub mod parameters;
pub mod resp;

mod acl;
mod commands;
mod conn;
mod copying;
mod descriptors;
mod lately;
mod look;
mod migration;
mod net;
mod power;
mod saving;
mod script;
mod session;
mod shared;
#[allow(unsafe_code)]
mod sys;
mod tls;
mod turn_clock;

pub use config::{Backup, Durability, EventQueue, ServeError, ServerConfig, StartError, StopFlag};
pub use descriptors::clients_that_fit;
pub use look::{CommandLook, Look, Looker, Spread, Watcher};
#[doc(hidden)]
pub use net::{Beside, Driven};
pub use net::{Ended, Listener, Report, run};
pub use power::{BatteryState, Power, Said};
pub use tls::{AuthClients, TlsError, TlsSettings};

/// The version of Redis whose answers these are. Clients and scripts decide by it what to send.
pub(crate) const REDIS_VERSION: &str = "7.2.0";
pub(crate) const REDIS_VERSION_NUMBER: i64 = 0x0007_0200;
