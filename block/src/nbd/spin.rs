//! Who may look for requests without sleeping: to wake a thread costs more here than a request.
//!
//! At most one processor less than there are spins at a time, and a connection spins the less the less it finds.

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

/// How long one connection spins: as long as it may, if requests came so fast lately; else only a moment.
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

    /// Whether there was nothing to do.
    pub fn is_idle(&self) -> bool {
        self.idle_since_ns.is_some()
    }

    /// Something came. Had it been worth it to spin until now? What was slept counts, too: else a connection that sleeps
    /// would never learn that requests come fast.
    pub fn came(&mut self, now_ns: u64) {
        if let Some(since_ns) = self.idle_since_ns.take() {
            self.worth_it = now_ns - since_ns <= self.max_ns;
        }
    }
}
