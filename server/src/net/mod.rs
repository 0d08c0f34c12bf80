//! Sockets and the event loop.
//!
//! `listen` opens sockets, `conn` is one connection's bytes, `events` what the loop waits on,
//! `serve` the loop, `load` how much is coming, `turn` one connection's part of it, `clients` their
//! coming and going, `ahead` the look at a pipeline before it is carried out, `group` the replies
//! that wait for a group commit, `committer` the thread that makes it.

mod ahead;
mod clients;
mod committer;
mod conn;
mod descriptors;
mod events;
mod group;
mod listen;
mod load;
mod serve;
mod turn;

pub(crate) use conn::Peers;
pub use descriptors::clients_that_fit;
pub(crate) use listen::BACKLOG;
pub use listen::Listener;
pub use serve::{Ended, Report, run};
