//! What took long: events that were slower than latency-monitor-threshold.

use std::collections::{BTreeMap, VecDeque};

/// Samples that are kept of an event, as in Redis.
const SAMPLES_MAX: usize = 160;

/// What is known of one kind of events.
#[derive(Debug, Default, Clone)]
pub(crate) struct Event {
    /// Unix time in seconds and the longest that it took in that second, milliseconds; oldest
    /// first.
    pub samples: VecDeque<(u64, u64)>,
    /// The longest ever, milliseconds.
    pub max_ms: u64,
}

/// All kinds of events, by their names.
pub(crate) type Events = BTreeMap<&'static str, Event>;

impl Event {
    /// Notes how long it took.
    pub fn add(&mut self, unix_s: u64, ms: u64) {
        self.max_ms = self.max_ms.max(ms);
        match self.samples.back_mut() {
            Some((second, longest)) if *second == unix_s => *longest = (*longest).max(ms),
            _ => self.samples.push_back((unix_s, ms)),
        }
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
    }
}
