//! Sockets and the event loop.
//!
//! `listen` opens sockets, `conn` is one connection's bytes, `serve` the loop, `group` the replies
//! that wait for a group commit.

mod conn;
mod group;
mod listen;
mod serve;

pub(crate) use conn::Peers;
pub use listen::Listener;
pub use serve::{Ended, Report, run};
