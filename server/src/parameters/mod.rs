//! The parameters of Redis' configuration, by their names there: those that this server heeds
//! (`live`), and those that change nothing here (`inert`), each with the reason.

pub mod inert;
mod live;
mod notify;
mod tls;

pub use live::{Encodings, LIVE, get, set};
pub use notify::Notify;
