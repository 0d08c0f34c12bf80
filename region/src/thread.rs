//! The thread of a region, which cleans in advance and makes checkpoints.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::thread::JoinHandle;
use std::time::Duration;

use perdura_dirty::policy::pace::{self, Rhythm};
use perdura_dirty::{RegionError, SetupError};

use crate::config::Config;
use crate::panics::PanicWatch;
use crate::running::Running;

/// Time between two coolings of blocks, nanoseconds: heat is halved each 80 s.
const COOLING_NS: u64 = 10_000_000_000;

/// Starts a region's thread.
pub(crate) fn spawn_cleaner(
    running: &Arc<Running>,
    config: &Config,
) -> Result<JoinHandle<()>, SetupError> {
    let running = Arc::clone(running);
    let (epoch, every) = (config.epoch, config.checkpoint_every);
    std::thread::Builder::new()
        .name("perdura-cleaner".into())
        .spawn(move || running.run_cleaner(epoch, every))
        .map_err(|error| SetupError::Setting {
            name: "cleaner thread",
            value: error.to_string(),
            expected: "a machine that can start one more thread",
        })
}

impl Running {
    /// Runs the region's thread: a round of work, then sleep until the next round is due or a
    /// writer calls.
    fn run_cleaner(&self, epoch: Duration, checkpoint_every: Option<Duration>) {
        let backed = &self.backed;
        let _watch = PanicWatch::new(backed);
        let nanoseconds = |time: Duration| time.as_nanos() as u64;
        let every_ns = checkpoint_every.map(nanoseconds);
        let mut rhythm = Rhythm::new(nanoseconds(epoch), every_ns, backed.memory.clock.now_ns());
        let mut log_was_full = false;
        let mut cooled_ns = backed.memory.clock.now_ns();
        self.prepare_buffers();
        while backed.memory.failure().is_none() {
            let seen = backed.memory.budget.cleaner_version();
            let dirtied = backed.tracked.dirtied_bytes();
            let mut cleaner = self.any_cleaner();
            if backed.memory.budget.is_closed() {
                return;
            }
            let began_ns = backed.memory.clock.now_ns();
            if began_ns.saturating_sub(cooled_ns) >= COOLING_NS {
                cooled_ns = began_ns;
                backed.memory.block_heat.cool();
            }
            let due = rhythm.checkpoint_due_ns().is_some_and(|due_ns| began_ns >= due_ns);
            let outcome = cleaner.tick(backed, rhythm.is_epoch(began_ns)).and_then(|more| {
                if due && !cleaner.is_committed(backed) {
                    rhythm.checkpointed(began_ns);
                    cleaner.make_margin(backed)?;
                    cleaner.checkpoint(backed, false)?;
                }
                Ok(more)
            });
            let threshold = cleaner.threshold(backed);
            let mut prezeroing = self.choose_prezeroing(&mut cleaner);
            drop(cleaner);
            if backed.memory.budget.is_closed() {
                // The final flush does the rest, and reports its errors.
                return;
            }
            match outcome {
                Ok(true) => continue,
                Ok(false) => {}
                // Not final: a checkpoint that waits for a prepared write makes space later. Logged
                // once.
                Err(error @ RegionError::LogFull { .. }) => {
                    if !std::mem::replace(&mut log_was_full, true) {
                        tracing::error!(%error, "cleaning waits for space");
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "the cleaner stopped");
                    return;
                }
            }
            // Zeros are written after the work that threads wait for. A failure was logged by
            // whoever met it first.
            if prezeroing.write_piece(backed).is_err() {
                return;
            }
            drop(prezeroing);
            // An idle region is looked at less often. A writer that waits wakes the thread at once.
            let quiet = backed.tracked.dirtied_bytes() == dirtied;
            let longest = Duration::from_nanos(rhythm.sleep_ns(quiet));
            let used = backed.memory.ledger.budget_used().load(Relaxed);
            let call_above = pace::call_above(used, threshold);
            backed.memory.budget.wait_as_cleaner(
                &*backed.memory.clock,
                &backed.memory.ledger,
                seen,
                call_above,
                longest,
            );
        }
    }
}
