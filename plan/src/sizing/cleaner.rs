//! The region's cleaner in a replay: the steps of `region/src/clean.rs`, with counts in the place
//! of bytes.
//!
//! The cleaner is a coroutine. Where the region's thread waits, for the device or to be called, the
//! coroutine yields and the trace goes on. The decisions (how much, when, which pages) are the
//! region's own code in `policy`; this file only applies them.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::{Mutex, MutexGuard};
use perdura_dirty::policy::hands::{Hands, Revolutions};
use perdura_dirty::policy::next_round;
use perdura_dirty::policy::pace::{self, QUEUE_DEPTH, Rhythm};

use super::config::{Planted, ReplayConfig};
use super::floor::Floor;
use super::log::{Frame, Refusal};
use super::world::World;
use crate::trace::PAGE_BYTES;

/// The log has no space; cleaning goes on when there is some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogFull;

/// How far [`Cleaner::pump`] goes, as in the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pump {
    Poll,
    One,
    Durable,
}

pub(super) struct Cleaner {
    world: Arc<Mutex<World>>,
    /// Frames handed to the device, in order, and when each will have been written.
    on_device: VecDeque<(u64, Frame)>,
    written: Vec<Frame>,
    written_bytes: u64,
    pub in_flight_bytes: u64,
    hands: Hands,
    round: u64,
    /// The number of frames begun up to the last commit.
    pub committed: u64,
    /// Room is made for a store in the middle of something else: no checkpoint may begin.
    pub nested: bool,
}

/// The state of the world when a round began.
struct Began {
    calls: u32,
    dirtied_bytes: u64,
    now_ns: u64,
}

/// A step of work that another step of the same work may be part of.
pub(super) type Nested<'n, T> = Pin<Box<dyn Future<Output = T> + Send + 'n>>;

impl Cleaner {
    pub fn new(world: Arc<Mutex<World>>, seed: u64) -> Self {
        Self {
            world,
            on_device: VecDeque::new(),
            written: Vec::new(),
            written_bytes: 0,
            in_flight_bytes: 0,
            hands: Hands::default(),
            round: seed,
            committed: 0,
            nested: false,
        }
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock()
    }

    /// The body of the region's thread.
    pub async fn run(mut self, config: ReplayConfig) {
        let nanoseconds = |time: std::time::Duration| time.as_nanos() as u64;
        let every_ns = config.checkpoint_every.map(nanoseconds);
        let mut rhythm = Rhythm::new(nanoseconds(config.epoch), every_ns, 0);
        loop {
            let began = self.begin(&mut rhythm);
            let is_due = rhythm.checkpoint_due_ns().is_some_and(|due_ns| began.now_ns >= due_ns);
            let outcome = self.round(&mut rhythm, began.now_ns, is_due).await;
            if outcome == Ok(true) {
                continue;
            }
            if self.sleep(&mut rhythm, &began, outcome.is_err()) {
                Yield(false).await;
                self.world().call_above = u64::MAX;
            }
        }
    }

    /// Notes the state of the world when a round begins.
    fn begin(&self, rhythm: &mut Rhythm) -> Began {
        let mut world = self.world();
        world.wake_from_rest();
        world.is_callable = false;
        if let Some(last_ns) = world.last_left_out_ns.take() {
            rhythm.is_epoch(last_ns);
        }
        Began { calls: world.calls, dirtied_bytes: world.dirtied_bytes, now_ns: world.now_ns }
    }

    /// Sleeps after a round; returns false where a writer has called meanwhile.
    fn sleep(&self, rhythm: &mut Rhythm, began: &Began, is_log_full: bool) -> bool {
        let has_rest = self.on_device.is_empty() && self.written.is_empty() && !is_log_full;
        let is_committed = self.is_committed();
        let mut world = self.world();
        world.tally.log_full += u64::from(is_log_full);
        let threshold = world.threshold();
        let sleep_ns = rhythm.sleep_ns(world.dirtied_bytes == began.dirtied_bytes);
        let call_above = pace::call_above(world.used_bytes, threshold);
        // A writer that took more before the limit was set has not called.
        if world.calls != began.calls || world.used_bytes > call_above {
            return false;
        }
        world.call_above = call_above;
        let may_rest =
            has_rest && sleep_ns == rhythm.longest_sleep_ns() && world.used_bytes <= threshold;
        let due_ns = rhythm.checkpoint_due_ns().filter(|_| !is_committed);
        world.sleep(sleep_ns, may_rest, due_ns.unwrap_or(u64::MAX));
        true
    }

    async fn round(
        &mut self,
        rhythm: &mut Rhythm,
        began_ns: u64,
        is_due: bool,
    ) -> Result<bool, LogFull> {
        let more = self.tick(rhythm.is_epoch(began_ns)).await?;
        if is_due && !self.is_committed() {
            rhythm.checkpointed(began_ns);
            self.make_margin().await?;
            self.checkpoint().await?;
        }
        Ok(more)
    }

    fn is_committed(&self) -> bool {
        let world = self.world();
        world.used_bytes == 0 && world.log.begun == self.committed
    }

    async fn make_margin(&mut self) -> Result<(), LogFull> {
        let excess = {
            let world = self.world();
            pace::checkpoint_excess(world.used_bytes, world.limit_bytes())
        };
        if excess > 0 {
            self.clean(excess).await?;
            self.pump(Pump::Durable).await;
        }
        Ok(())
    }

    /// Makes one round: the paper's proactive rule (Viyojit, section 5.3).
    async fn tick(&mut self, is_epoch: bool) -> Result<bool, LogFull> {
        self.serve_stores().await?;
        if is_epoch {
            let mut world = self.world();
            world.sample();
            let dirtied_bytes = world.dirtied_bytes;
            world.pace.epoch(dirtied_bytes);
        }
        self.pump(Pump::Poll).await;
        let threshold = self.world().threshold();
        let least = pace::round_bytes_min(threshold);
        if self.written_bytes >= least.max(1) {
            self.flush_written().await;
        }
        let excess = pace::excess(self.world().used_bytes, self.in_flight_bytes, threshold);
        if excess > 0 && self.clean(excess.max(least)).await? > 0 {
            return Ok(true);
        }
        if !self.on_device.is_empty() || !self.written.is_empty() {
            self.pump(Pump::Durable).await;
        }
        Ok(false)
    }

    /// Makes room where a store waits for it.
    async fn serve_stores(&mut self) -> Result<(), LogFull> {
        let is_asked = {
            let mut world = self.world();
            let is_full = world.used_bytes + PAGE_BYTES > world.limit_bytes();
            std::mem::take(&mut world.room_asked) && is_full
        };
        if is_asked {
            self.make_room(PAGE_BYTES).await?;
        }
        Ok(())
    }

    /// Serves stores as [`Cleaner::serve_stores`] does, in the middle of a checkpoint or a
    /// compaction.
    pub fn serve_stores_nested(&mut self) -> Nested<'_, Result<(), LogFull>> {
        Box::pin(async {
            let before = std::mem::replace(&mut self.nested, true);
            let outcome = self.serve_stores().await;
            self.nested = before;
            outcome
        })
    }

    async fn make_room(&mut self, bytes: u64) -> Result<(), LogFull> {
        if self.pump(Pump::Poll).await >= bytes.max(1) {
            return Ok(());
        }
        let limit = self.world().limit_bytes();
        self.clean(pace::demanded(bytes, limit)).await?;
        self.pump(Pump::Durable).await;
        Ok(())
    }

    /// Copies victims worth about `want_bytes` into frames and hands them to the device. Returns
    /// the bytes copied.
    async fn clean(&mut self, want_bytes: u64) -> Result<u64, LogFull> {
        if !self.nested {
            self.ensure_space().await?;
        }
        self.round = next_round(self.round);
        let (floor, mut revolutions) = {
            let mut world = self.world();
            let dirtied_bytes = world.dirtied_bytes;
            world.pace.cleaning(dirtied_bytes);
            let floor = Floor::plan(&world.pages, world.tick, self.round, want_bytes);
            (floor, Revolutions::of(world.pages.words))
        };
        let mut copied = 0;
        while copied < want_bytes
            && let Some(stretch) = revolutions.next(&self.hands)
        {
            let refusal = {
                let mut world = self.world.lock();
                if world.log.space().is_short(world.log.spare()) && copied > 0 {
                    break;
                }
                let swept = world.sweep(Some(&floor), stretch, want_bytes - copied);
                self.in_flight_bytes += swept.bytes;
                copied += swept.bytes;
                let cooled = revolutions.swept(&mut self.hands, stretch, swept.next);
                world.pages.cool(cooled);
                swept.refusal
            };
            match refusal {
                None => {}
                Some(Refusal::NoBuffer) => _ = self.pump(Pump::One).await,
                Some(Refusal::NoSegment) if self.nested => break,
                Some(Refusal::NoSegment) => {
                    self.ensure_space().await?;
                    if self.world().log.spare() == 0 {
                        return Err(LogFull);
                    }
                }
            }
        }
        self.world().log.close_frame();
        self.pump(Pump::Poll).await;
        Ok(copied)
    }

    /// Moves closed frames to the device and completed ones out of the account. Returns bytes given
    /// back.
    pub async fn pump(&mut self, how: Pump) -> u64 {
        let mut freed = 0;
        loop {
            self.submit_closed();
            let wait = match how {
                Pump::Poll => 0,
                Pump::One => usize::from(self.written.is_empty()),
                Pump::Durable => self.on_device.len(),
            };
            self.reap(wait).await;
            let (is_idle, due) = {
                let world = self.world();
                let is_idle = self.on_device.is_empty() && world.log.closed.is_empty();
                let batch = pace::flush_batch(world.limit_bytes());
                let due = match how {
                    Pump::Poll => self.written_bytes >= batch || world.is_room_waited_for,
                    Pump::One => true,
                    Pump::Durable => is_idle,
                };
                (is_idle, due)
            };
            if due && !self.written.is_empty() {
                freed += self.flush_written().await;
            }
            if how != Pump::Durable || is_idle {
                return freed;
            }
        }
    }

    fn submit_closed(&mut self) {
        while self.on_device.len() < QUEUE_DEPTH {
            let mut world = self.world.lock();
            let Some(mut frame) = world.log.closed.pop_front() else { break };
            if world.planted == Planted::CleanAtCopy {
                world.give_back(std::mem::take(&mut frame.charged_bytes));
            }
            let done_ns = world.write(frame.bytes);
            drop(world);
            self.on_device.push_back((done_ns, frame));
        }
    }

    /// Takes what the device has written; waits until at least `at_least` frames are.
    async fn reap(&mut self, at_least: usize) {
        if let Some(&(done_ns, _)) = at_least.checked_sub(1).and_then(|at| self.on_device.get(at)) {
            self.wait_until(done_ns).await;
        }
        let now_ns = self.world().now_ns;
        while let Some(&(done_ns, frame)) = self.on_device.front()
            && done_ns <= now_ns
        {
            self.on_device.pop_front();
            self.written_bytes += frame.bytes;
            self.written.push(frame);
        }
    }

    /// A device flush: what was written is durable, and its bytes leave the account. Returns how
    /// many.
    pub async fn flush_written(&mut self) -> u64 {
        let done_ns = {
            let mut world = self.world();
            world.tally.device_flushes += 1;
            world.channel.flush(world.now_ns)
        };
        self.wait_until(done_ns).await;
        let mut world = self.world.lock();
        let dirtied_bytes = world.dirtied_bytes;
        world.pace.durable(dirtied_bytes);
        let mut freed = 0;
        for frame in self.written.drain(..) {
            freed += frame.charged_bytes;
            world.log.settled(&frame);
        }
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(freed);
        world.give_back(freed);
        self.written_bytes = 0;
        freed
    }

    /// Lets the trace go on until then.
    pub async fn wait_until(&mut self, until_ns: u64) {
        let is_over = {
            let mut world = self.world();
            let is_over = until_ns <= world.now_ns;
            if !is_over {
                world.wake_ns = until_ns;
            }
            is_over
        };
        if !is_over {
            Yield(false).await;
        }
    }
}

/// Yields once; the poller knows from the world when to go on.
struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}
