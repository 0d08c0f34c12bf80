//! The replay of one region: its writer, and the order of events.
//!
//! There is one writer, and the cleaner beside it. The cleaner runs as long as it can, then the
//! writer. When neither can run, time passes to the next event, the cleaner's first at equal times.
//! The time that processors take is not modelled: a store that does not wait takes no time, and
//! neither does copying a page.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use parking_lot::Mutex;

use super::cleaner::Cleaner;
use super::config::{Loop, ReplayConfig};
use super::numbering::PageWrite;
use super::outcome::{Ending, Outcome, Writer};
use super::world::{Blocked, World};
use super::{SizingError, pages};

/// The time after which a store that waits looks again, as the region's faults do.
const LOOK_AGAIN_NS: u64 = 20_000_000;
/// The time that a region is open before the trace begins.
pub(super) const QUIET_NS: u64 = 10_000_000_000;

pub(super) struct Engine {
    config: ReplayConfig,
    world: Arc<Mutex<World>>,
    cleaner: Pin<Box<dyn Future<Output = ()> + Send>>,
    writer: Writer,
    /// The time at which the trace began, nanoseconds.
    start_ns: u64,
    /// The time at which the trace began, and by how much stalls have delayed it since.
    shift_ns: u64,
    pages_max: u32,
    flush_bytes: u64,
}

impl Engine {
    pub fn new(config: &ReplayConfig) -> Result<Self, SizingError> {
        let world = World::new(config)?;
        let pages = world.pages.words * pages::WORD_PAGES;
        let (_, geometry) = config.geometry()?;
        let world = Arc::new(Mutex::new(world));
        let cleaner = Cleaner::new(Arc::clone(&world), config.seed);
        let mut engine = Self {
            config: config.clone(),
            world,
            cleaner: Box::pin(cleaner.run(config.clone())),
            writer: Writer::new(),
            start_ns: 0,
            shift_ns: 0,
            pages_max: u32::try_from(pages).unwrap_or(u32::MAX),
            flush_bytes: geometry.flush_bytes(config.budget_bytes),
        };
        engine.settle();
        Ok(engine)
    }

    /// The region has been open for a while when the trace begins, with nothing written yet; its
    /// thread has just looked.
    fn settle(&mut self) {
        self.poll();
        while !self.world.lock().is_resting() {
            self.poll();
        }
        let open_ns =
            QUIET_NS.max(self.config.checkpoint_every.map_or(0, |every| every.as_nanos() as u64));
        let mut world = self.world.lock();
        self.start_ns = world.round_after(open_ns);
        self.shift_ns = self.start_ns;
        world.tally.start_ns = self.start_ns;
    }

    /// The number of pages in the region.
    pub fn pages_max(&self) -> u32 {
        self.pages_max
    }

    /// The time at which the trace began, nanoseconds after the region was opened.
    #[cfg(test)]
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// The next writes of the trace, in order of time; all pages are below [`Engine::pages_max`].
    pub fn add(&mut self, writes: &[PageWrite]) {
        self.writer.page_writes += writes.len() as u64;
        if let Some(highest) = writes.iter().map(|write| write.page).max() {
            self.world.lock().reach(highest);
        }
        let mut at = 0;
        while at < writes.len() {
            let mut world = self.world.lock();
            let mut blocked = None;
            // Until the cleaner is to run, or a store must wait.
            while let Some(write) = writes.get(at) {
                let time_ns = write.time_ns + self.shift_ns;
                if time_ns > world.now_ns {
                    if world.wake_ns <= time_ns {
                        break;
                    }
                    world.now_ns = time_ns;
                }
                if let Err(why) = world.store(write.page) {
                    blocked = Some((write.page, why));
                    break;
                }
                at += 1;
            }
            drop(world);
            match blocked {
                Some((page, why)) => {
                    self.stall(page, why);
                    at += 1;
                }
                None if at < writes.len() => self.poll(),
                None => {}
            }
        }
    }

    /// Lets the cleaner run, whose time has come.
    fn poll(&mut self) {
        {
            let mut world = self.world.lock();
            world.now_ns = world.now_ns.max(world.wake_ns);
            // Unless it says otherwise it is done for good.
            world.wake_ns = u64::MAX;
        }
        let done = self.cleaner.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(done.is_pending(), "the cleaner has no end");
    }

    fn stall(&mut self, page: u32, mut why: Blocked) {
        let began_ns = self.world.lock().now_ns;
        loop {
            let (seen, deadline_ns) = self.ask(page, why);
            self.wait(why, seen, deadline_ns);
            let mut world = self.world.lock();
            world.is_room_waited_for = false;
            match world.store(page) {
                Ok(()) => break,
                Err(again) => why = again,
            }
        }
        let waited_ns = self.world.lock().now_ns - began_ns;
        self.writer.stalled(waited_ns);
        if self.config.pacing == Loop::Closed {
            self.shift_ns += waited_ns;
        }
    }

    /// Tells the cleaner what is missing. Returns what changes when it may be there, and when to
    /// look again anyway.
    fn ask(&self, page: u32, why: Blocked) -> (u32, u64) {
        let mut world = self.world.lock();
        let deadline_ns = world.now_ns + LOOK_AGAIN_NS;
        match why {
            Blocked::Owed => world.urgent = Some(page),
            Blocked::Room => {
                world.room_asked = true;
                world.is_room_waited_for = true;
            }
        }
        world.call();
        (version(&world, why), deadline_ns)
    }

    fn wait(&mut self, why: Blocked, seen: u32, deadline_ns: u64) {
        loop {
            let mut world = self.world.lock();
            if world.wake_ns <= world.now_ns {
                drop(world);
                self.poll();
            } else if version(&world, why) != seen || world.now_ns >= deadline_ns {
                return;
            } else if world.wake_ns <= deadline_ns {
                drop(world);
                self.poll();
            } else {
                world.now_ns = deadline_ns;
            }
        }
    }

    /// The trace has ended, `trace_ns` after its beginning; it wrote so many pages.
    pub fn finish(mut self, trace_ns: u64, written_pages: u64) -> Outcome {
        let end_ns = trace_ns + self.shift_ns;
        while self.world.lock().wake_ns <= end_ns {
            self.poll();
        }
        let mut world = self.world.lock();
        world.now_ns = world.now_ns.max(end_ns);
        Ending {
            config: &self.config,
            tally: &world.tally,
            writer: &self.writer,
            unwritten_bytes: world.log.unwritten_page_bytes(),
            dirtied_bytes: world.dirtied_bytes,
            written_pages,
            trace_ns,
            run_ns: world.now_ns - self.start_ns,
            device_ns: world.channel.busy_until_ns().saturating_sub(self.start_ns),
            flush_bytes: self.flush_bytes,
        }
        .outcome()
    }
}

fn version(world: &World, why: Blocked) -> u32 {
    match why {
        Blocked::Owed => world.unblocked_version,
        Blocked::Room => world.room_version,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use perdura_dirty::policy::PolicyKind;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Replays with all pages of the region kept from the beginning, or those that are met.
    fn replayed(config: &ReplayConfig, writes: &[PageWrite], keeps_all: bool) -> Outcome {
        let mut engine = Engine::new(config).unwrap();
        if keeps_all {
            engine.world.lock().reach(engine.pages_max() - 1);
        }
        writes.chunks(700).for_each(|part| engine.add(part));
        engine.finish(writes.last().unwrap().time_ns, 0)
    }

    #[test]
    fn keeping_only_what_was_met_changes_no_figure_of_any_policy() {
        let mut compacted = 0;
        for seed in 0..40 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let (mut met, mut time_ns) = (0, 0);
            // Pages by first sight, as a trace's are numbered; few of the region's.
            let writes: Vec<PageWrite> = (0..20_000)
                .map(|_| {
                    time_ns += random.random_range(0..100_000);
                    let old = random.random::<f64>().powi(3) * f64::from(met);
                    let is_new = met < 2_000 && random.random_range(0..4) == 0;
                    let page = if is_new { met } else { old as u32 };
                    met = met.max(page + 1);
                    PageWrite { time_ns, page }
                })
                .collect();
            let region_bytes = random.random_range(2_000..60_000) * 4096;
            let mut config = ReplayConfig {
                policy: PolicyKind::ALL[seed as usize % 5],
                checkpoint_every: (seed % 3 > 0).then_some(Duration::from_millis(150)),
                reserved_bytes: Some(region_bytes),
                segment_bytes: Some(64 << 10),
                log_percent: 125,
                ..ReplayConfig::new(region_bytes, random.random_range(128..1_024) << 10)
            };
            config.device.bandwidth.0 = random.random_range(20_000_000..500_000_000);
            let outcome = replayed(&config, &writes, false);
            assert_eq!(outcome, replayed(&config, &writes, true), "seed {seed}: {config:?}");
            compacted += outcome.device.compaction;
        }
        assert!(compacted > 0, "no log was ever short of space");
    }
}
