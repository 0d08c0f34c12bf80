//! Connections whose first message has not come yet.
//!
//! - A visitor is waited for beside everything else, so one that says nothing delays nobody.
//! - Their number is bounded, in all and for each user, and each has a moment to speak.

use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::sys::{Peer, accept};

/// Most visitors at a time.
const VISITORS_MAX: usize = 64;
/// Most visitors of one user at a time.
const VISITORS_OF_ONE_MAX: usize = 16;
/// Time in which a visitor must say what it wants.
const SPEAKS_WITHIN: Duration = Duration::from_millis(500);

/// A connection that has not said yet what it wants.
pub(crate) struct Visitor {
    pub socket: OwnedFd,
    pub peer: Peer,
    number: u64,
    since_ns: u64,
}

/// The visitors that are waited for.
#[derive(Default)]
pub(crate) struct Visitors {
    waiting: Vec<Visitor>,
    /// Number of the next visitor.
    next: u64,
}

impl Visitors {
    /// Accepts a connection that waits. One that the system does not name, or that `is_welcome`
    /// refuses, or that is one too many, is closed.
    pub(crate) fn admit(
        &mut self,
        listener: &OwnedFd,
        now_ns: u64,
        is_welcome: impl Fn(Peer) -> bool,
    ) {
        let Some(socket) = accept(listener) else { return };
        let Some(peer) = Peer::of(&socket).filter(|peer| is_welcome(*peer)) else { return };
        let same = self.waiting.iter().filter(|visitor| visitor.peer.user == peer.user).count();
        if self.waiting.len() >= VISITORS_MAX || same >= VISITORS_OF_ONE_MAX {
            tracing::warn!(
                pid = peer.process.pid,
                user = peer.user,
                "too many visitors; one is sent away"
            );
            return;
        }
        self.waiting.push(Visitor { socket, peer, number: self.next, since_ns: now_ns });
        self.next += 1;
    }

    /// Sends away those who have said nothing for too long.
    pub(crate) fn expire(&mut self, now_ns: u64) {
        let limit_ns = SPEAKS_WITHIN.as_nanos() as u64;
        self.waiting.retain(|visitor| now_ns.saturating_sub(visitor.since_ns) < limit_ns);
    }

    /// Takes a visitor that has something to say.
    pub(crate) fn take(&mut self, number: u64) -> Option<Visitor> {
        let at = self.waiting.iter().position(|visitor| visitor.number == number)?;
        Some(self.waiting.swap_remove(at))
    }

    /// The connections and their numbers.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (&OwnedFd, u64)> {
        self.waiting.iter().map(|visitor| (&visitor.socket, visitor.number))
    }

    pub(crate) fn are_none(&self) -> bool {
        self.waiting.is_empty()
    }
}
