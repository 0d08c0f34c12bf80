//! How much is cleaned, and when: the arithmetic of the cleaner's thread (Viyojit, section 5.3).
//! Pure code, which is given bytes and times.
//!
//! The region's cleaner and `plan`'s replay of traces both run this code.

use super::{lead, pressure, threshold};

/// Most writes that are outstanding at the device (Viyojit, section 6.1).
pub const QUEUE_DEPTH: usize = 16;
/// Bytes after which a drain in barrier mode hands its copies to the device, so that the device
/// works meanwhile. The step is large, because only a device with much work shows how fast it is
/// (see `observed`).
pub const DRAIN_STEP_BYTES: u64 = 8 << 20;
/// Bytes after which a drain in trap mode looks whether a fault waits for a page that it owes.
pub const DRAIN_STEP_TRAPPED_BYTES: u64 = 256 << 10;
/// A round cleans at least this, or a 64th of the threshold if that is less, because each write and
/// device flush has a fixed price.
const CLEAN_ENOUGH_BYTES: u64 = 8 << 20;
/// Completed bytes that are always worth a device flush of their own.
const FLUSH_BATCH_BYTES: u64 = 4 << 20;
/// Most bytes that are cleaned for a waiting writer that needs less.
const DEMANDED_BATCH_BYTES: u64 = 1 << 20;
/// One part in this many of the budget is free when a checkpoint begins.
const CHECKPOINT_MARGIN_SHARE: u64 = 8;
/// Most epochs between two looks at an idle region.
const IDLE_EPOCHS_MAX: u64 = 64;

/// The threshold at which cleaning begins: the budget less the bytes that are expected to become
/// dirty meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    pressure_bytes: u64,
    net_dirtied_before: u64,
    lead_bytes: u64,
    /// Net dirtied bytes at the beginning of the cleaning that is not durable yet.
    net_dirtied_begun: Option<u64>,
}

impl Pace {
    /// Notes the end of an epoch. `net_dirtied_bytes` became dirty since the region was opened,
    /// less those dropped again.
    pub fn epoch(&mut self, net_dirtied_bytes: u64) {
        let new_bytes = net_dirtied_bytes.saturating_sub(self.net_dirtied_before);
        self.net_dirtied_before = net_dirtied_bytes;
        self.pressure_bytes = pressure(new_bytes, self.pressure_bytes);
    }

    /// Notes that cleaning begins.
    pub fn cleaning(&mut self, net_dirtied_bytes: u64) {
        self.net_dirtied_begun.get_or_insert(net_dirtied_bytes);
    }

    /// Notes that the cleaned bytes are durable.
    pub fn durable(&mut self, net_dirtied_bytes: u64) {
        if let Some(begun) = self.net_dirtied_begun.take() {
            let since = net_dirtied_bytes.saturating_sub(begun);
            self.lead_bytes = lead(since, self.lead_bytes);
        }
    }

    /// The bytes in use above which cleaning begins, so that writers find room for what they write
    /// meanwhile. They always find it where all of a region may be dirty: cleaning there would only
    /// write hot data again and again, and let pages trap.
    pub fn threshold(&self, limit_bytes: u64, region_bytes: u64) -> u64 {
        if limit_bytes >= region_bytes {
            return limit_bytes;
        }
        let most = limit_bytes / 4;
        threshold(limit_bytes, self.pressure_bytes.min(most) + self.lead_bytes.min(most))
    }

    /// Whether an epoch in which nothing becomes dirty would change nothing here, if nothing is on
    /// its way.
    pub fn is_at_rest(&self) -> bool {
        self.pressure_bytes == 0
    }
}

/// The fewest bytes that a round cleans.
pub fn round_bytes_min(threshold_bytes: u64) -> u64 {
    CLEAN_ENOUGH_BYTES.min(threshold_bytes / 64)
}

/// The bytes that a round should clean: those in use and not on their way yet, above the threshold.
pub fn excess(used_bytes: u64, in_flight_bytes: u64, threshold_bytes: u64) -> u64 {
    used_bytes.saturating_sub(in_flight_bytes).saturating_sub(threshold_bytes)
}

/// Completed bytes after which the device is flushed though other writes are on their way.
pub fn flush_batch(limit_bytes: u64) -> u64 {
    FLUSH_BATCH_BYTES.min(limit_bytes / 8)
}

/// The bytes that are cleaned for a writer that waits for `bytes`.
pub fn demanded(bytes: u64, limit_bytes: u64) -> u64 {
    bytes.max((limit_bytes / 16).min(DEMANDED_BATCH_BYTES))
}

/// The bytes that are cleaned before a checkpoint's cut, because every write costs budget anew
/// after it.
pub fn checkpoint_excess(used_bytes: u64, limit_bytes: u64) -> u64 {
    used_bytes.saturating_sub(limit_bytes - limit_bytes / CHECKPOINT_MARGIN_SHARE)
}

/// The bytes in use above which a writer wakes the cleaner's thread. If more is in use already, the
/// cleaner has cleaned what it could, and nobody wakes it.
pub fn call_above(used_bytes: u64, threshold_bytes: u64) -> u64 {
    if used_bytes <= threshold_bytes { threshold_bytes } else { u64::MAX }
}

/// The rhythm of the cleaner's thread: epochs, checkpoints and sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rhythm {
    epoch_ns: u64,
    checkpoint_every_ns: Option<u64>,
    last_epoch_ns: u64,
    last_checkpoint_ns: u64,
    sleep_ns: u64,
}

impl Rhythm {
    /// Begins the rhythm at `now_ns`.
    pub fn new(epoch_ns: u64, checkpoint_every_ns: Option<u64>, now_ns: u64) -> Self {
        Self {
            epoch_ns,
            checkpoint_every_ns,
            last_epoch_ns: now_ns,
            last_checkpoint_ns: now_ns,
            sleep_ns: epoch_ns,
        }
    }

    /// Notes that a round begins. Returns whether an epoch has passed since the last one; other
    /// rounds are those that writers have called for.
    pub fn is_epoch(&mut self, now_ns: u64) -> bool {
        let is_epoch = now_ns - self.last_epoch_ns >= self.epoch_ns;
        if is_epoch {
            self.last_epoch_ns = now_ns;
        }
        is_epoch
    }

    /// Time at which the next checkpoint is due, nanoseconds; `None` if checkpoints are off.
    pub fn checkpoint_due_ns(&self) -> Option<u64> {
        self.checkpoint_every_ns.map(|every| self.last_checkpoint_ns.saturating_add(every))
    }

    /// Notes that a checkpoint begins.
    pub fn checkpointed(&mut self, now_ns: u64) {
        self.last_checkpoint_ns = now_ns;
    }

    /// The nanoseconds to sleep unless called. `is_quiet`: nothing became dirty during the round.
    pub fn sleep_ns(&mut self, is_quiet: bool) -> u64 {
        self.sleep_ns = match is_quiet {
            true => (self.sleep_ns * 2).min(self.longest_sleep_ns()),
            false => self.epoch_ns,
        };
        self.sleep_ns
    }

    /// The longest sleep of an idle region, nanoseconds.
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
        let region_bytes = 2_000_000;
        assert_eq!(pace.threshold(1_000_000, region_bytes), 1_000_000);
        pace.epoch(40_000);
        assert_eq!(pace.threshold(1_000_000, region_bytes), 970_000);
        pace.cleaning(40_000);
        // Only the first call of `cleaning` counts.
        pace.cleaning(90_000);
        pace.durable(140_000);
        assert_eq!(pace.threshold(1_000_000, region_bytes), 870_000);
        // At most half of the budget is kept for what may come.
        assert_eq!(pace.threshold(8_000, region_bytes), 4_000);
        // Nothing is kept where everything may be dirty.
        assert_eq!(pace.threshold(1_000_000, 1_000_000), 1_000_000);
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
