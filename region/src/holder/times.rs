//! The times that a server gives its holder: for a flush, and for waiting for another server.

use std::time::Duration;

/// The number that stands for a wait without end in a message.
const NO_END_MS: u64 = u64::MAX;

/// The times that a server gives its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Time between a warning and the loss of power: a flush may take that long.
    pub grace: Duration,
    /// Time that a holder without a server waits for one before it flushes and frees the memory.
    /// `None` waits without end.
    pub wait: Option<Duration>,
}

impl Times {
    /// The times as two numbers of a message, in milliseconds.
    pub(super) fn encode(self) -> String {
        let wait_ms = self.wait.map_or(NO_END_MS, |wait| wait.as_millis() as u64);
        format!("{} {wait_ms}", self.grace.as_millis() as u64)
    }

    /// The times that [`Times::encode`] has written as two numbers.
    pub(super) fn decode(grace_ms: u64, wait_ms: u64) -> Self {
        let wait = (wait_ms != NO_END_MS).then(|| Duration::from_millis(wait_ms));
        Self { grace: Duration::from_millis(grace_ms), wait }
    }
}
