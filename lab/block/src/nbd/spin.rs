//! Who may look for requests without sleeping: to wake a thread costs more here than a request.
//!
//! At most one processor less than there are spins at a time; a connection spins while requests
//! come fast, and holds replies back for each other only while its client has unread ones anyway.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Shared by all connections of a server.
pub(super) struct Spinners {
    now: AtomicUsize,
    max: usize,
}

/// The right to spin, until dropped.
pub(super) struct Spinning<'a>(&'a Spinners);

impl Spinners {
    /// For a machine of so many processors; one leaves one to the client.
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

/// How long one connection spins: as long as it may, if requests came so fast lately; else only a
/// moment.
pub(super) struct Patience {
    max_ns: u64,
    worth_it: bool,
    idle_since_ns: Option<u64>,
}

/// Where requests do not come fast.
const MOMENT_NS: u64 = 2_000;

impl Patience {
    pub fn new(max_ns: u64) -> Self {
        Self { max_ns, worth_it: true, idle_since_ns: None }
    }

    pub fn ns(&self) -> u64 {
        if self.worth_it { self.max_ns } else { MOMENT_NS.min(self.max_ns) }
    }

    /// There is nothing to do, perhaps since a while.
    pub fn idle(&mut self, now_ns: u64) {
        self.idle_since_ns.get_or_insert(now_ns);
    }

    /// Something came. Had it been worth it to spin until now? What was slept counts, too: else a
    /// connection that sleeps would never learn that requests come fast.
    pub fn came(&mut self, now_ns: u64) {
        if let Some(since_ns) = self.idle_since_ns.take() {
            self.worth_it = now_ns - since_ns <= self.max_ns;
        }
    }
}

/// Whether replies wait a moment for each other, to go in one call.
///
/// A client with many requests under way sends the next as it reads a reply. If they come on our
/// replies' heels, it has replies left to read, and loses nothing if the next ones come together;
/// each call saved is one whose cost it bears, too.
#[derive(Default)]
pub(super) struct Gathering {
    sent_ns: Option<u64>,
    /// How many in a row came so fast.
    fast: u32,
}

/// A request so soon after a reply cannot be the answer to it: the client would have had to be
/// woken first.
const HEELS_NS: u64 = 4_000;

/// Fast ones in a row that are believed.
const FAST_MIN: u32 = 16;

/// Replies that go without waiting for more. A client has this many under way, and some more, or it
/// is not believed.
pub(super) const GATHERED_MIN: usize = 4;

impl Gathering {
    /// Replies have gone.
    pub fn sent(&mut self, now_ns: u64) {
        self.sent_ns = Some(now_ns);
    }

    /// A request has come.
    pub fn came(&mut self, now_ns: u64) {
        if let Some(sent_ns) = self.sent_ns.take() {
            let soon = now_ns.saturating_sub(sent_ns) <= HEELS_NS;
            self.fast = if soon { (self.fast + 1).min(FAST_MIN) } else { 0 };
        }
    }

    /// Until when replies may wait for more, if they may.
    pub fn hold_until_ns(&self, now_ns: u64) -> Option<u64> {
        (self.fast == FAST_MIN).then_some(now_ns + HEELS_NS)
    }

    /// They waited, and nothing came: the client had read all it had.
    pub fn in_vain(&mut self) {
        self.fast = 0;
    }
}
