//! A Redis-protocol server over [`perdura_store::Store`].
//!
//! Where is…? `resp` bytes to arguments and values to bytes; `commands` one table and a function
//! per command; `net` the event loop, `sys` its ring; `config` what a server is told.
#![deny(unsafe_code)]

pub mod config;
pub mod glob;
pub mod number;
pub mod resp;

mod commands;
mod conn;
mod descriptors;
mod lately;
mod net;
mod saving;
mod session;
#[allow(unsafe_code)]
mod sys;

pub use config::{Durability, EventQueue, ServeError, ServerConfig, StartError, StopFlag};
pub use descriptors::clients_that_fit;
pub use net::{Ended, Listener, Report, run};
