//! Sockets and the event loop.
//!
//! `listen` opens sockets. `run` starts and ends the loops, `serve` is one of them, `events` the
//! kernel's event queue on which it waits (an io_uring, or the epoll of `queue`), `load` the number
//! of requests that it waits for, `turn` one connection's part of a turn. `clients` accepts and
//! closes connections, `sealed` is what TLS adds to them, and `ahead` parses a pipeline before it is
//! carried out. `group` holds the
//! replies that wait for a group commit, which `committer` makes in a thread. `driven` is the loop
//! without a thread beside it, turn by turn, for simulations.

mod ahead;
mod clients;
mod committer;
mod copies;
mod driven;
mod events;
mod group;
mod listen;
mod load;
mod queue;
mod run;
mod sealed;
mod serve;
mod turn;
mod waiting;

pub use driven::Driven;
pub use listen::Listener;
pub use run::{Beside, Ended, Report, run};
