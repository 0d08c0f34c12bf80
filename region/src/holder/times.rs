//! How long a holder may take for a flush, and how long it waits for a server.

use std::time::Duration;

/// Stands for a wait without an end in a message.
const NO_END_MS: u64 = u64::MAX;

/// What the server that is linked tells its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Time between a warning and the cut: what a flush may take.
    pub grace: Duration,
    /// Time that a holder without a server waits for one before it flushes and lets the memory go;
    /// `None`: without end.
    pub wait: Option<Duration>,
}

impl Times {
    /// Two numbers of a message, in milliseconds.
    pub(super) fn encode(self) -> String {
        let wait_ms = self.wait.map_or(NO_END_MS, |wait| wait.as_millis() as u64);
        format!("{} {wait_ms}", self.grace.as_millis() as u64)
    }

    /// The times that [`Times::encode`] has put into two numbers.
    pub(super) fn decode(grace_ms: u64, wait_ms: u64) -> Self {
        let wait = (wait_ms != NO_END_MS).then(|| Duration::from_millis(wait_ms));
        Self { grace: Duration::from_millis(grace_ms), wait }
    }
}
