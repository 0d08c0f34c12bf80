//! Sockets and the event loop.
//!
//! `listen` opens sockets, `events` is the queue of the kernel that the loop waits on, `serve` the
//! loop, `load` how much is coming, `turn` one connection's part of it, `clients` their
//! coming and going, `ahead` the look at a pipeline before it is carried out, `group` the replies
//! that wait for a group commit, `committer` the thread that makes it.

mod ahead;
mod clients;
mod committer;
mod events;
mod group;
mod listen;
mod load;
mod serve;
mod turn;

pub use listen::Listener;
pub use serve::{Ended, Report, run};
