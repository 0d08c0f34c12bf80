//! The replay of a trace in the plainest code, as an oracle for the tests of the quick replay: sets
//! and maps of pages, a look at every page for each write, and no code shared with the quick one.
//!
//! The oracle covers a smaller case: the policy `fifo`, a log that is never short of space, and no
//! checkpoints. The quick replay keeps bitmaps and summaries and skips rounds, and must come to the
//! same result.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use perdura_dirty::policy::hands::{Hands, Revolutions};
use perdura_dirty::policy::pace::{self, Pace, QUEUE_DEPTH, Rhythm};
use perdura_dirty::policy::{Mark, PolicyKind, View};
use perdura_media::Channel;

use super::config::ReplayConfig;
use super::numbering::PageWrite;

const PAGE: u64 = 4096;

/// The figures of a naive replay.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Naive {
    pub device_bytes: u64,
    pub dirtied_bytes: u64,
    pub device_flushes: u64,
    pub stalls_ns: Vec<u64>,
    pub used_max_bytes: u64,
}

struct Frame {
    pages: Vec<u64>,
    extents: usize,
}

/// A frame on its way.
struct Sent {
    done_ns: u64,
    bytes: u64,
    charged_bytes: u64,
}

pub(super) struct World<'t> {
    config: &'t ReplayConfig,
    writes: VecDeque<PageWrite>,
    start_ns: u64,
    now_ns: u64,
    marks: BTreeMap<u64, Mark>,
    dirty: BTreeSet<u64>,
    open: BTreeSet<u64>,
    used_bytes: u64,
    epoch: u32,
    sampled_ns: u64,
    end_ns: u64,
    /// The time at which the write at the front began to wait, nanoseconds.
    stalled_since_ns: Option<u64>,
    /// Times that room was made, of which the waiting write has seen so many; and when it looks
    /// again anyway.
    freed: u64,
    freed_seen: u64,
    look_again_ns: u64,
    is_called: bool,
    call_above: u64,
    is_room_asked: bool,
    pace: Pace,
    segment_left: u64,
    open_frame: Option<(Frame, u64)>,
    closed: VecDeque<Sent>,
    sent: VecDeque<Sent>,
    written: Vec<Sent>,
    in_flight_bytes: u64,
    channel: Channel,
    hands: Hands,
    buffers: usize,
    result: Naive,
}

impl<'t> World<'t> {
    /// Lets time pass until then; the writer stores whatever is due and fits.
    fn pass(&mut self, until_ns: u64) {
        while until_ns > self.now_ns {
            self.store_all();
            let next_ns = self.next_ns();
            self.now_ns = self.now_ns.max(next_ns.min(until_ns));
        }
    }

    /// Lets time pass as [`World::pass`] does, but ends when the cleaner is called.
    fn sleep(&mut self, until_ns: u64) {
        while !self.is_called {
            self.store_all();
            let next_ns = self.next_ns();
            if self.is_called {
                return;
            }
            if next_ns >= until_ns {
                self.now_ns = self.now_ns.max(until_ns);
                return;
            }
            self.now_ns = self.now_ns.max(next_ns);
        }
    }

    fn next_ns(&self) -> u64 {
        match (self.stalled_since_ns, self.writes.front()) {
            (None, Some(write)) => self.start_ns + write.time_ns,
            (Some(_), _) => self.look_again_ns,
            (None, None) => u64::MAX,
        }
    }

    fn store_all(&mut self) {
        let is_as_it_was = self.freed == self.freed_seen && self.now_ns < self.look_again_ns;
        if self.stalled_since_ns.is_some() && is_as_it_was {
            return;
        }
        while let Some(write) = self.writes.front()
            && self.start_ns + write.time_ns <= self.now_ns
            && self.store(u64::from(write.page))
        {
            self.writes.pop_front();
            if let Some(since_ns) = self.stalled_since_ns.take() {
                self.result.stalls_ns.push(self.now_ns - since_ns);
            }
        }
    }

    fn store(&mut self, page: u64) -> bool {
        if self.open.contains(&page) {
            return true;
        }
        let was_dirty = self.dirty.contains(&page);
        if !was_dirty {
            if self.used_bytes + PAGE > self.config.budget_bytes {
                if self.stalled_since_ns.is_none() {
                    self.stalled_since_ns = Some(self.now_ns);
                }
                (self.is_called, self.is_room_asked) = (true, true);
                (self.freed_seen, self.look_again_ns) = (self.freed, self.now_ns + 20_000_000);
                return false;
            }
            self.used_bytes += PAGE;
            self.result.used_max_bytes = self.result.used_max_bytes.max(self.used_bytes);
            self.result.dirtied_bytes += PAGE;
            self.dirty.insert(page);
            if self.used_bytes > self.call_above {
                (self.is_called, self.call_above) = (true, u64::MAX);
            }
        }
        let mark = self.marks.get(&page).copied().unwrap_or_default();
        self.marks.insert(page, PolicyKind::Fifo.mark(mark, was_dirty, self.epoch));
        self.open.insert(page);
        true
    }
}

impl<'t> World<'t> {
    pub fn run(
        config: &'t ReplayConfig,
        writes: &[PageWrite],
        start_ns: u64,
        trace_ns: u64,
    ) -> Naive {
        let every_ns = config.epoch.as_nanos() as u64;
        let (_, geometry) = config.geometry().unwrap();
        let mut world = Self {
            config,
            writes: writes.iter().copied().collect(),
            start_ns,
            now_ns: 0,
            marks: BTreeMap::new(),
            dirty: BTreeSet::new(),
            open: BTreeSet::new(),
            used_bytes: 0,
            epoch: 1,
            sampled_ns: 0,
            end_ns: start_ns + trace_ns,
            stalled_since_ns: None,
            freed: 0,
            freed_seen: 0,
            look_again_ns: 0,
            is_called: false,
            call_above: u64::MAX,
            is_room_asked: false,
            pace: Pace::default(),
            segment_left: 0,
            open_frame: None,
            closed: VecDeque::new(),
            sent: VecDeque::new(),
            written: Vec::new(),
            in_flight_bytes: 0,
            channel: Channel::new(config.device),
            hands: Hands::default(),
            buffers: geometry.buffers as usize,
            result: Naive {
                device_bytes: 0,
                dirtied_bytes: 0,
                device_flushes: 0,
                stalls_ns: Vec::new(),
                used_max_bytes: 0,
            },
        };
        let mut rhythm = Rhythm::new(every_ns, None, 0);
        let end_ns = world.end_ns;
        let mut rounds = 0u64;
        while world.now_ns <= end_ns || !world.writes.is_empty() {
            rounds += 1;
            assert!(
                rounds < 200_000,
                "no end: at {} of {end_ns} ns, {} in use",
                world.now_ns,
                world.used_bytes
            );
            world.is_called = false;
            let dirtied = world.result.dirtied_bytes;
            let is_epoch = rhythm.is_epoch(world.now_ns);
            if world.round(is_epoch) {
                continue;
            }
            let sleep_ns = rhythm.sleep_ns(world.result.dirtied_bytes == dirtied);
            let threshold = world.pace.threshold(config.budget_bytes, config.region_bytes);
            if world.is_called {
                continue;
            }
            world.call_above = pace::call_above(world.used_bytes, threshold);
            world.sleep(world.now_ns + sleep_ns);
            world.call_above = u64::MAX;
            if world.writes.is_empty() && world.now_ns > end_ns {
                break;
            }
        }
        world.result
    }

    fn round(&mut self, is_epoch: bool) -> bool {
        let limit = self.config.budget_bytes;
        if std::mem::take(&mut self.is_room_asked)
            && self.used_bytes + PAGE > limit
            && self.poll() < PAGE
        {
            self.clean(pace::demanded(PAGE, limit));
            self.drain();
        }
        if is_epoch {
            if self.now_ns - self.sampled_ns >= self.config.epoch.as_nanos() as u64 {
                self.sampled_ns = self.now_ns;
                self.epoch += 1;
            }
            self.pace.epoch(self.result.dirtied_bytes);
        }
        self.poll();
        let threshold = self.pace.threshold(limit, self.config.region_bytes);
        let least = pace::round_bytes_min(threshold);
        if self.written_bytes() >= least.max(1) {
            self.flush();
        }
        let excess = pace::excess(self.used_bytes, self.in_flight_bytes, threshold);
        if excess > 0 && self.clean(excess.max(least)) > 0 {
            return true;
        }
        self.drain();
        false
    }

    fn clean(&mut self, want_bytes: u64) -> u64 {
        self.pace.cleaning(self.result.dirtied_bytes);
        let view = View::of(PolicyKind::Fifo.ranked_by(), self.epoch, 0, |seen| {
            self.dirty.iter().for_each(|page| seen(self.marks[page], 1));
        });
        let rank = |mark: Mark| PolicyKind::Fifo.rank(0, mark, &view);
        // The victims' least rank, by sorting all of them.
        let mut ranks: Vec<u64> = self.dirty.iter().map(|page| rank(self.marks[page])).collect();
        ranks.sort_unstable_by_key(|rank| std::cmp::Reverse(*rank));
        let last = usize::try_from(want_bytes.div_ceil(PAGE)).unwrap();
        let least = ranks.get(last - 1).copied().unwrap_or(0);
        let words =
            usize::try_from((self.config.geometry().unwrap().0 / PAGE).div_ceil(64)).unwrap();
        let (mut copied, mut revolutions) = (0, Revolutions::of(words));
        while copied < want_bytes
            && let Some(stretch) = revolutions.next(&self.hands)
        {
            let mut next = stretch.to;
            let mut is_refused = false;
            for word in stretch.from..stretch.to {
                let pages: Vec<u64> = (word as u64 * 64..word as u64 * 64 + 64)
                    .filter(|page| self.dirty.contains(page) && rank(self.marks[page]) >= least)
                    .collect();
                let mut reopened = false;
                for page in &pages {
                    self.open.remove(page);
                    is_refused = is_refused || !self.append(*page);
                    if is_refused {
                        reopened = true;
                        self.open.insert(*page);
                    } else {
                        copied += PAGE;
                    }
                }
                if reopened || (!pages.is_empty() && copied >= want_bytes) {
                    next = if reopened { word } else { word + 1 };
                    break;
                }
            }
            revolutions.swept(&mut self.hands, stretch, next);
            if is_refused {
                self.one();
            }
        }
        self.close();
        self.poll();
        copied
    }

    /// Copies a dirty page to the open frame; false: there is no buffer.
    fn append(&mut self, page: u64) -> bool {
        use perdura_image::format::{frame_body_bytes, room_for_payload};
        let (_, geometry) = self.config.geometry().unwrap();
        loop {
            if self.open_frame.is_none() {
                let used = self.closed.len() + self.sent.len() + self.written.len();
                if used == self.buffers {
                    return false;
                }
                if self.segment_left < perdura_dirty::geometry::FRAME_MIN_BYTES {
                    self.segment_left = geometry.segment_bytes;
                }
                let limit = geometry.frame_bytes_max(self.config.budget_bytes);
                let frame = Frame { pages: Vec::new(), extents: 0 };
                self.open_frame = Some((frame, limit.min(self.segment_left)));
            }
            let Some((frame, limit)) = &mut self.open_frame else { unreachable!() };
            let merges = frame.pages.last().is_some_and(|last| last + 1 == page);
            let extents = frame.extents + usize::from(!merges);
            let payload = frame.pages.len() * PAGE as usize;
            if room_for_payload(*limit as usize, payload, extents) >= PAGE as usize {
                assert!(frame_body_bytes(payload + PAGE as usize, extents) as u64 <= *limit);
                frame.extents = extents;
                frame.pages.push(page);
                self.dirty.remove(&page);
                self.in_flight_bytes += PAGE;
                return true;
            }
            self.close();
        }
    }

    fn close(&mut self) {
        use perdura_image::format::frame_body_bytes;
        let Some((frame, _)) = self.open_frame.take() else { return };
        let charged_bytes = frame.pages.len() as u64 * PAGE;
        let body = frame_body_bytes(charged_bytes as usize, frame.extents);
        let bytes = body.next_multiple_of(4096) as u64;
        self.segment_left -= bytes;
        self.closed.push_back(Sent { done_ns: 0, bytes, charged_bytes });
    }

    fn submit(&mut self) {
        while self.sent.len() < QUEUE_DEPTH
            && let Some(mut frame) = self.closed.pop_front()
        {
            frame.done_ns = self.channel.write(self.now_ns, frame.bytes);
            self.result.device_bytes += if self.counts() { frame.bytes } else { 0 };
            self.sent.push_back(frame);
        }
    }

    fn reap(&mut self) {
        while self.sent.front().is_some_and(|frame| frame.done_ns <= self.now_ns) {
            self.written.extend(self.sent.pop_front());
        }
    }

    fn written_bytes(&self) -> u64 {
        self.written.iter().map(|frame| frame.bytes).sum()
    }

    /// Returns the bytes freed.
    fn poll(&mut self) -> u64 {
        self.submit();
        self.reap();
        let is_due = self.written_bytes() >= pace::flush_batch(self.config.budget_bytes)
            || self.stalled_since_ns.is_some();
        if is_due && !self.written.is_empty() { self.flush() } else { 0 }
    }

    fn one(&mut self) {
        self.submit();
        if self.written.is_empty()
            && let Some(first) = self.sent.front()
        {
            self.pass(first.done_ns);
        }
        self.reap();
        if !self.written.is_empty() {
            self.flush();
        }
    }

    fn drain(&mut self) {
        loop {
            self.submit();
            if let Some(last) = self.sent.back() {
                self.pass(last.done_ns);
            }
            self.reap();
            let is_idle = self.sent.is_empty() && self.closed.is_empty();
            if is_idle && !self.written.is_empty() {
                self.flush();
            }
            if is_idle {
                return;
            }
        }
    }

    /// Whether the trace goes on; what comes after its end is not counted.
    fn counts(&self) -> bool {
        self.now_ns <= self.end_ns || !self.writes.is_empty()
    }

    fn flush(&mut self) -> u64 {
        self.result.device_flushes += u64::from(self.counts());
        let written = self.written.len();
        self.pass(self.channel.flush(self.now_ns));
        self.pace.durable(self.result.dirtied_bytes);
        let freed: u64 = self.written.drain(..written).map(|frame| frame.charged_bytes).sum();
        self.used_bytes -= freed;
        self.in_flight_bytes -= freed;
        self.freed += 1;
        freed
    }
}

mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::super::config::Planted;
    use super::super::engine::Engine;
    use super::*;

    /// Bursts, pauses and quiet times; every seed another mixture.
    fn writes(random: &mut Xoshiro256PlusPlus, pages: u32) -> Vec<PageWrite> {
        let mut time_ns = 0;
        let (gap_ns, hot) = (random.random_range(500..200_000), random.random_range(1..=pages));
        (0..random.random_range(200..3_000))
            .map(|_| {
                time_ns += match random.random_range(0..200) {
                    0 => random.random_range(0..2_000_000_000),
                    1..10 => random.random_range(0..200 * gap_ns),
                    10..60 => 0,
                    _ => random.random_range(0..gap_ns),
                };
                let most = if random.random_range(0..3) == 0 { pages } else { hot };
                PageWrite { time_ns, page: random.random_range(0..most) }
            })
            .collect()
    }

    fn compared(seed: u64, planted: Planted) -> (Naive, Naive) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let pages = random.random_range(64..2_048u32);
        let writes = writes(&mut random, pages);
        let mut config = ReplayConfig {
            policy: PolicyKind::Fifo,
            checkpoint_every: None,
            // Never short of space: nothing is compacted, and no commit is needed.
            log_percent: 5_000,
            segment_bytes: Some(256 << 10),
            reserved_bytes: Some(256 << 20),
            planted,
            ..ReplayConfig::new(u64::from(pages) * 4096, random.random_range(128..2_048) << 10)
        };
        config.device.bandwidth.0 = random.random_range(20_000_000..2_000_000_000);
        config.device.flush_latency_ns = random.random_range(0..3_000_000);
        config.device.write_latency_ns = random.random_range(0..300_000);
        let mut engine = Engine::new(&config).unwrap();
        let start_ns = engine.start_ns();
        let trace_ns = writes.last().unwrap().time_ns;
        writes.chunks(random.random_range(1..500)).for_each(|part| engine.add(part));
        let outcome = engine.finish(trace_ns, 0);
        assert_eq!((outcome.checkpoints, outcome.device.compaction), (0, 0), "seed {seed}");
        let naive = World::run(&config, &writes, start_ns, trace_ns);
        let quick = Naive {
            device_bytes: outcome.device.total(),
            dirtied_bytes: outcome.dirtied_bytes,
            device_flushes: outcome.device_flushes,
            // Which is told of them is how many, how long in all, and the longest.
            stalls_ns: vec![outcome.stalls, outcome.stalled_ns, outcome.stall_max_ns],
            used_max_bytes: outcome.used_max_bytes,
        };
        let waits = &naive.stalls_ns;
        let all =
            vec![waits.len() as u64, waits.iter().sum(), waits.iter().max().copied().unwrap_or(0)];
        (quick, Naive { stalls_ns: all, ..naive })
    }

    #[test]
    fn the_quick_replay_is_the_naive_one() {
        let mut stalls = 0;
        for seed in 0..150 {
            let (quick, naive) = compared(seed, Planted::None);
            assert_eq!(quick, naive, "seed {seed}");
            stalls += naive.stalls_ns[0];
        }
        assert!(stalls > 1_000, "{stalls}: hardly anything was compared");
    }

    #[test]
    fn budget_given_back_too_early_is_seen() {
        let seen = (0..20).filter(|seed| {
            let (quick, naive) = compared(*seed, Planted::CleanAtCopy);
            quick != naive
        });
        assert!(seen.count() > 10);
    }
}
