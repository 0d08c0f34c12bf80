//! The cleaner: copies victims to frames, writes frames, and gives their bytes back once they are
//! durable.
//!
//! A region has one cleaner, behind a lock. The region's thread drives it, writers that need room
//! do, or a simulation step by step. No function in this file makes space in the log: the functions
//! in `rounds` do that first, and it is impossible in the middle of a checkpoint or of a
//! compaction.

use std::ops::Range;
use std::sync::atomic::Ordering::*;

use perdura_dirty::policy::hands::{Hands, Revolutions};
use perdura_dirty::policy::{RankedBy, next_round, pace};
use perdura_dirty::{Counters, Floor, RegionError};
use perdura_image::{Backed, Outlet, Pump, Refusal, TableSpace};
use perdura_media::WriteQueue;

use crate::space::gives_up_budget;
use crate::sweep::Sweep;

/// Cleans a region. The thread that holds the cleaner's lock may copy, write and commit.
pub(crate) struct Cleaner {
    /// Frames on their way to the device.
    pub outlet: Outlet,
    /// Memory for the tables of segments that are emptied.
    pub tables: TableSpace,
    hands: Hands,
    round: u64,
    /// Whether the next group commit must be a checkpoint.
    pub groups_need_commit: bool,
}

/// A choice of victims, and how much of it has been copied.
pub(crate) struct Round {
    floor: Floor,
    revolutions: Revolutions,
    want_bytes: u64,
    pub copied_bytes: u64,
}

impl Cleaner {
    /// A cleaner that writes by `queue`, which is idle. `seed` is for the policy `random`.
    pub(crate) fn new(queue: Box<dyn WriteQueue>, seed: u64, groups_need_commit: bool) -> Self {
        Self {
            outlet: Outlet::new(queue),
            tables: TableSpace::default(),
            hands: Hands::default(),
            round: seed,
            groups_need_commit,
        }
    }

    /// Whether nothing has changed and no frame was written since the last commit, so that another
    /// commit would be the same. Credit that lanes keep counts as used, but there is nothing to
    /// write for it.
    pub(crate) fn is_committed(&self, backed: &Backed) -> bool {
        let unchanged = backed.memory.ledger.budget_used().load(Relaxed) == 0
            || backed.tracked.pages().is_none()
                && backed.tracked.dirtied_bytes() == backed.log.dirtied_committed.load(Relaxed);
        let next_seq = backed.memory.ledger.next_seq().load(Relaxed);
        unchanged && next_seq == backed.memory.ledger.commit_seq().load(Relaxed) + 1
    }

    /// Frees budget for `bytes`, as far as that needs no new space in the log. Returns the bytes
    /// freed.
    pub(crate) fn make_room_in_place(
        &mut self,
        backed: &Backed,
        bytes: u64,
    ) -> Result<u64, RegionError> {
        let freed = self.outlet.pump(backed, Pump::Poll)?;
        if freed >= bytes.max(1) {
            return Ok(freed);
        }
        if bytes > 0 {
            let limit = backed.memory.budget.effective_limit(&backed.memory.ledger);
            let mut round = self.begin_round(backed, pace::demanded(bytes, limit));
            self.run_round(backed, &mut round)?;
            self.end_round(backed)?;
        }
        Ok(freed + self.outlet.pump(backed, Pump::Durable)?)
    }

    /// Chooses victims worth about `want_bytes`.
    pub(crate) fn begin_round(&mut self, backed: &Backed, want_bytes: u64) -> Round {
        self.outlet.pace.cleaning(backed.tracked.net_dirtied_bytes());
        self.round = next_round(self.round);
        let floor = Floor::plan(&backed.tracked, self.round, want_bytes);
        let revolutions = Revolutions::of(backed.memory.ledger.words_in_use());
        Round { floor, revolutions, want_bytes, copied_bytes: 0 }
    }

    /// Copies victims into frames. Returns true if the log has no segment for them: the round may
    /// go on when it has one.
    pub(crate) fn run_round(
        &mut self,
        backed: &Backed,
        round: &mut Round,
    ) -> Result<bool, RegionError> {
        while round.copied_bytes < round.want_bytes
            && let Some(stretch) = round.revolutions.next(&self.hands)
        {
            let spare = backed.log.appender.lock().spare_segments();
            let is_short = backed.space().is_short(spare) && !gives_up_budget(backed, spare);
            if is_short && round.copied_bytes > 0 {
                // The log is short of space, which the next round makes first.
                break;
            }
            round.floor.spares = stretch.spares;
            let parity = backed.memory.parity();
            let mut sweep = Sweep::new(backed, parity, round.want_bytes - round.copied_bytes);
            sweep.may_skip = round.floor.spares;
            let floor = &round.floor;
            let refusal = sweep.run(stretch.from, stretch.to, |word, dirty| {
                floor.victims(&backed.tracked, word, dirty)
            });
            let (bytes, next) = (sweep.copied_bytes, sweep.next);
            drop(sweep);
            Counters::add(&backed.memory.stats.cleaned_bytes, bytes);
            self.outlet.in_flight_bytes += bytes;
            round.copied_bytes += bytes;
            let cooled = round.revolutions.swept(&mut self.hands, stretch, next);
            cool(backed, parity, cooled);
            match refusal {
                None => {}
                Some(Refusal::NoBuffer) => _ = self.outlet.pump(backed, Pump::One)?,
                Some(Refusal::NoSegment) => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Hands the frames of a round to the device.
    pub(crate) fn end_round(&mut self, backed: &Backed) -> Result<(), RegionError> {
        backed.log.appender.lock().close_frame(&backed.memory.ledger, 0);
        self.outlet.pump(backed, Pump::Poll).map(drop)
    }
}

/// Lowers the heat of the grains in these words. Numbers beyond the last word begin again at the
/// first.
fn cool(backed: &Backed, parity: u64, words: Range<usize>) {
    let hints = &backed.memory.hints;
    if hints.policy.ranked_by() != RankedBy::Heat || !hints.recency {
        return;
    }
    for word in words {
        let word = word % backed.memory.ledger.words_in_use().max(1);
        backed
            .memory
            .hints
            .heat
            .cool(word, backed.memory.ledger.dirty_word(parity, word).load(Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_media::{SimClock, SimDevice};

    use crate::testing::write;
    use crate::{Config, Region};
    use perdura_dirty::geometry::BLOCK_BYTES;

    #[test]
    fn what_is_hot_is_cleaned_in_the_end_wherever_the_hand_stands() {
        let blocks = 64;
        for hand in [0, blocks / 4, blocks / 2, blocks - 1] {
            let config = Config {
                segment_bytes: Some(64 << 10),
                lanes: Some(1),
                thread: false,
                checkpoint_every: None,
                ..Config::new(blocks * BLOCK_BYTES, 8 * BLOCK_BYTES)
            };
            let device = Arc::new(SimDevice::new(0, 1));
            let region = Region::open(device, Arc::new(SimClock::new(1_000)), config).unwrap();
            let backed = &region.running().backed;
            region.running().any_cleaner().hands.next =
                hand as usize * backed.memory.ledger.words_in_use() / blocks as usize;
            for round in 0..8 {
                for block in (0..4 * 4).map(|n| blocks / 2 + 4 + n % 4) {
                    write(&region, block * BLOCK_BYTES, &[1; 65_536]);
                }
                let copied = region.running().any_cleaner().clean(backed, BLOCK_BYTES).unwrap();
                assert!(copied >= BLOCK_BYTES, "hand at block {hand}, round {round}: {copied}");
            }
        }
    }
}
