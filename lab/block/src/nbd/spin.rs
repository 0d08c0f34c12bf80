//! Decides which connections may poll for requests without sleeping: to wake a thread costs more
//! than to serve a request.
//!
//! At most one thread less than there are processors polls at a time. A connection polls while
//! requests come fast, and holds replies back to send several together only while its client has
//! unread replies anyway.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Count of polling threads, shared by all connections of a server.
pub(super) struct Spinners {
    now: AtomicUsize,
    max: usize,
}

/// The right to poll, until dropped.
pub(super) struct Spinning<'a>(&'a Spinners);

impl Spinners {
    /// Limits polling on a machine of so many processors. One processor is left to the clients.
    pub fn new(processors: usize) -> Self {
        Self { now: AtomicUsize::new(0), max: processors.saturating_sub(1) }
    }

    pub fn begin(&self) -> Option<Spinning<'_>> {
        if self.now.fetch_add(1, Relaxed) < self.max {
            return Some(Spinning(self));
        }
        self.now.fetch_sub(1, Relaxed);
        None
    }
}

impl Drop for Spinning<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Relaxed);
    }
}

/// How long one connection polls: as long as the settings allow if requests came fast lately, else
/// only a moment.
pub(super) struct Patience {
    max_ns: u64,
    worth_it: bool,
    idle_since_ns: Option<u64>,
}

/// Polling time of a connection whose requests do not come fast.
const MOMENT_NS: u64 = 2_000;

impl Patience {
    pub fn new(max_ns: u64) -> Self {
        Self { max_ns, worth_it: true, idle_since_ns: None }
    }

    pub fn ns(&self) -> u64 {
        if self.worth_it { self.max_ns } else { MOMENT_NS.min(self.max_ns) }
    }

    /// Notes that there is nothing to do, perhaps since a while.
    pub fn idle(&mut self, now_ns: u64) {
        self.idle_since_ns.get_or_insert(now_ns);
    }

    /// Notes that bytes came, and whether polling until now would have been worth it. Time asleep
    /// counts, too: otherwise a connection that sleeps would never learn that requests come fast.
    pub fn came(&mut self, now_ns: u64) {
        if let Some(since_ns) = self.idle_since_ns.take() {
            self.worth_it = now_ns - since_ns <= self.max_ns;
        }
    }
}

/// Whether replies wait a moment for each other, to go in one call.
///
/// A client with many requests under way sends the next as it reads a reply. If requests come right
/// after our replies, the client has replies left to read, and loses nothing if the next ones come
/// together; each call saved saves its share of the time, too.
#[derive(Default)]
pub(super) struct Gathering {
    sent_ns: Option<u64>,
    /// Requests in a row that came right after a reply.
    fast: u32,
}

/// A request that comes so soon after a reply cannot be the answer to it: the client would have had
/// to be woken first.
const HEELS_NS: u64 = 4_000;

/// Fast requests in a row before replies are held back.
const FAST_MIN: u32 = 16;

/// Ready replies that are sent without waiting for more.
pub(super) const GATHERED_MIN: usize = 4;

impl Gathering {
    /// Notes that replies were sent.
    pub fn sent(&mut self, now_ns: u64) {
        self.sent_ns = Some(now_ns);
    }

    /// Notes that a request came.
    pub fn came(&mut self, now_ns: u64) {
        if let Some(sent_ns) = self.sent_ns.take() {
            let soon = now_ns.saturating_sub(sent_ns) <= HEELS_NS;
            self.fast = if soon { (self.fast + 1).min(FAST_MIN) } else { 0 };
        }
    }

    /// The instant until which replies may wait for more; `None` if they may not wait.
    pub fn hold_until_ns(&self, now_ns: u64) -> Option<u64> {
        (self.fast == FAST_MIN).then_some(now_ns + HEELS_NS)
    }

    /// Notes that replies waited and nothing came: the client had read all of them.
    pub fn in_vain(&mut self) {
        self.fast = 0;
    }
}
