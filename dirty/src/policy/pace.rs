//! How much is cleaned, and when: the arithmetic of the cleaner's thread (Viyojit, section 5.3).
//! Pure: bytes and times in.
//!
//! The region's cleaner and `plan`'s replay of traces run the same: what differs is only who moves
//! the bytes.

use super::{lead, pressure, threshold};

/// Writes outstanding at most (Viyojit, section 6.1).
pub const QUEUE_DEPTH: usize = 16;
/// A drain hands what it has copied to the device after this much, so that the device works
/// meanwhile; no sooner, for only a device with much on its way shows how fast it is (see
/// `observed`).
pub const DRAIN_STEP_BYTES: u64 = 8 << 20;
/// In trap mode it looks after this much whether a fault waits for a page it owes.
pub const DRAIN_STEP_TRAPPED_BYTES: u64 = 256 << 10;
/// A round cleans a 64th of the budget, or this: a write and a device flush of their own have a
/// price.
const CLEAN_ENOUGH_BYTES: u64 = 8 << 20;
/// Completed bytes that are worth a device flush of their own, at most.
const FLUSH_BATCH_BYTES: u64 = 4 << 20;
/// A writer that waits has this cleaned beside what it needs, at most.
const DEMANDED_BATCH_BYTES: u64 = 1 << 20;
/// One part in so many of the budget is free when a checkpoint begins.
const CHECKPOINT_MARGIN_SHARE: u64 = 8;
/// An idle region is looked at less often, down to once in so many epochs.
const IDLE_EPOCHS_MAX: u64 = 64;

/// Where cleaning begins: the budget less what is expected to become dirty meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    pressure_bytes: u64,
    net_dirtied_before: u64,
    lead_bytes: u64,
    /// Net dirtied bytes when cleaning began whose outcome is not durable yet.
    net_dirtied_begun: Option<u64>,
}

impl Pace {
    /// An epoch has passed, and so much became dirty since the region was opened, less what was
    /// dropped again.
    pub fn epoch(&mut self, net_dirtied_bytes: u64) {
        let new_bytes = net_dirtied_bytes.saturating_sub(self.net_dirtied_before);
        self.net_dirtied_before = net_dirtied_bytes;
        self.pressure_bytes = pressure(new_bytes, self.pressure_bytes);
    }

    /// Cleaning begins.
    pub fn cleaning(&mut self, net_dirtied_bytes: u64) {
        self.net_dirtied_begun.get_or_insert(net_dirtied_bytes);
    }

    /// What was cleaned is durable.
    pub fn durable(&mut self, net_dirtied_bytes: u64) {
        if let Some(begun) = self.net_dirtied_begun.take() {
            let since = net_dirtied_bytes.saturating_sub(begun);
            self.lead_bytes = lead(since, self.lead_bytes);
        }
    }

    /// More than this in use is cleaned, in time for what comes meanwhile.
    pub fn threshold(&self, limit_bytes: u64) -> u64 {
        let most = limit_bytes / 4;
        threshold(limit_bytes, self.pressure_bytes.min(most) + self.lead_bytes.min(most))
    }

    /// An epoch in which nothing becomes dirty, with nothing on its way, would change nothing here.
    pub fn is_at_rest(&self) -> bool {
        self.pressure_bytes == 0
    }
}

/// A round cleans no less, once it cleans at all.
pub fn round_bytes_min(threshold_bytes: u64) -> u64 {
    CLEAN_ENOUGH_BYTES.min(threshold_bytes / 64)
}

/// What a round should clean: what is in use and not being cleaned yet, above the threshold.
pub fn excess(used_bytes: u64, in_flight_bytes: u64, threshold_bytes: u64) -> u64 {
    used_bytes.saturating_sub(in_flight_bytes).saturating_sub(threshold_bytes)
}

/// Completed bytes after which the device is flushed though others are on their way.
pub fn flush_batch(limit_bytes: u64) -> u64 {
    FLUSH_BATCH_BYTES.min(limit_bytes / 8)
}

/// What is cleaned for a writer that waits for `bytes`.
pub fn demanded(bytes: u64, limit_bytes: u64) -> u64 {
    bytes.max((limit_bytes / 16).min(DEMANDED_BATCH_BYTES))
}

/// What is cleaned before a checkpoint's cut, after which every write costs budget anew.
pub fn checkpoint_excess(used_bytes: u64, limit_bytes: u64) -> u64 {
    used_bytes.saturating_sub(limit_bytes - limit_bytes / CHECKPOINT_MARGIN_SHARE)
}

/// In use above which a writer wakes the cleaner's thread. More than that already: what could be
/// cleaned was, and a call would only make it look again.
pub fn call_above(used_bytes: u64, threshold_bytes: u64) -> u64 {
    if used_bytes <= threshold_bytes { threshold_bytes } else { u64::MAX }
}

/// When the cleaner's thread does what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rhythm {
    epoch_ns: u64,
    checkpoint_every_ns: Option<u64>,
    last_epoch_ns: u64,
    last_checkpoint_ns: u64,
    sleep_ns: u64,
}

impl Rhythm {
    /// From `now_ns` on.
    pub fn new(epoch_ns: u64, checkpoint_every_ns: Option<u64>, now_ns: u64) -> Self {
        Self {
            epoch_ns,
            checkpoint_every_ns,
            last_epoch_ns: now_ns,
            last_checkpoint_ns: now_ns,
            sleep_ns: epoch_ns,
        }
    }

    /// A round begins. True: an epoch has passed since the last one that was; rounds in between are
    /// those that writers have called for.
    pub fn is_epoch(&mut self, now_ns: u64) -> bool {
        let is_epoch = now_ns - self.last_epoch_ns >= self.epoch_ns;
        if is_epoch {
            self.last_epoch_ns = now_ns;
        }
        is_epoch
    }

    /// When a checkpoint is due next, if one ever is.
    pub fn checkpoint_due_ns(&self) -> Option<u64> {
        self.checkpoint_every_ns.map(|every| self.last_checkpoint_ns.saturating_add(every))
    }

    /// A checkpoint begins.
    pub fn checkpointed(&mut self, now_ns: u64) {
        self.last_checkpoint_ns = now_ns;
    }

    /// How long to sleep unless called. `is_quiet`: nothing became dirty during the round.
    pub fn sleep_ns(&mut self, is_quiet: bool) -> u64 {
        self.sleep_ns = match is_quiet {
            true => (self.sleep_ns * 2).min(self.longest_sleep_ns()),
            false => self.epoch_ns,
        };
        self.sleep_ns
    }

    /// The longest such sleep.
    pub fn longest_sleep_ns(&self) -> u64 {
        self.epoch_ns * IDLE_EPOCHS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaning_begins_early_enough_for_what_came_while_the_last_was_on_its_way() {
        let mut pace = Pace::default();
        assert_eq!(pace.threshold(1_000_000), 1_000_000);
        pace.epoch(40_000);
        assert_eq!(pace.threshold(1_000_000), 970_000);
        pace.cleaning(40_000);
        // Only the first beginning counts.
        pace.cleaning(90_000);
        pace.durable(140_000);
        assert_eq!(pace.threshold(1_000_000), 870_000);
        // At most half of the budget is kept for what may come.
        assert_eq!(pace.threshold(8_000), 4_000);
        assert!(!pace.is_at_rest());
        (0..20).for_each(|_| pace.epoch(140_000));
        assert!(pace.is_at_rest());
    }

    #[test]
    fn idle_regions_are_looked_at_less_often_and_checkpoints_come_when_due() {
        let mut rhythm = Rhythm::new(10, Some(1_000), 5);
        assert!(!rhythm.is_epoch(14));
        assert!(rhythm.is_epoch(15));
        assert!(!rhythm.is_epoch(16));
        assert_eq!([true, true, false, true].map(|quiet| rhythm.sleep_ns(quiet)), [20, 40, 10, 20]);
        assert_eq!((0..9).map(|_| rhythm.sleep_ns(true)).last(), Some(640));
        assert_eq!(rhythm.checkpoint_due_ns(), Some(1_005));
        rhythm.checkpointed(1_100);
        assert_eq!(rhythm.checkpoint_due_ns(), Some(2_100));
    }
}
