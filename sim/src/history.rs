//! Histories of clients that work at the same time, and whether they are linearizable.
//!
//! Several threads are clients of one server with several loops, over sockets. Each draws commands
//! from the seed, and notes for each command when it was sent, when its answer had come, and the
//! answer. Such a history is *linearizable* if every command can be given one moment between the
//! two, so that a naive model that carries the commands out one by one, in the order of these
//! moments, gives the same answers (Herlihy and Wing, *Linearizability*, 1990). `check` searches
//! for such an order.
//!
//! Commands of keys that nothing connects are checked apart, because a history is linearizable
//! exactly if those of its objects are.
//!
//! The seed decides what the clients send. What comes when is up to the threads, so a failure shows
//! the whole history of the keys in question: that is what is to be looked at, and a second run of
//! the same seed is likely to fail, too, but need not.

mod broken;
mod check;
mod clients;
mod model;
mod record;
mod round;
#[cfg(test)]
mod tests;

use perdura_region::Planted;

pub use broken::{Broken, Wrong};
pub use round::{Plan, Shown, run};

/// Runs the rounds of a seed, with a planted bug if one is named.
///
/// # Errors
/// A history that is not linearizable, a client that waits though there is something for it, or a
/// server that does not serve.
pub fn life(seed: u64, planted: Planted) -> Result<Shown, Broken> {
    run(&Plan { seed, planted, ..Plan::default() })
}
