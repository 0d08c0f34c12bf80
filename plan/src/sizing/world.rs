//! The state that a replayed region's writer and cleaner share: time, account, pages, log, device,
//! and counters.
//!
//! The account is a region's: `used` counts dirty pages, and pages that are copied but not yet
//! durable. It rises only where there is room (Viyojit, section 5.1: before a page opens), and
//! falls when a device flush has ended.

use perdura_dirty::policy::pace::Pace;
use perdura_dirty::policy::sampling::{SIGNAL_TRAP_NS, Sampling};
use perdura_media::Channel;

use super::config::{Planted, ReplayConfig};
use super::floor::Floor;
use super::log::{Log, Refusal};
use super::outcome::{Cause, Tally};
use super::pages::{Pages, WORD_PAGES};
use super::{SizingError, pages};
use crate::trace::PAGE_BYTES;
use perdura_dirty::policy::hands::Stretch;

/// The reason why a store must wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocked {
    /// A checkpoint still owes the old bytes of the page.
    Owed,
    /// The budget is used up.
    Room,
}

/// A sweep of the policy's hands that ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Swept {
    pub bytes: u64,
    pub next: usize,
    pub refusal: Option<Refusal>,
}

/// A rest of the cleaner, which is not woken while it would only find nothing to do.
#[derive(Debug, Clone, Copy)]
struct Rest {
    from_ns: u64,
    every_ns: u64,
}

/// The state of a replayed region, but for what only the cleaner knows.
#[derive(Debug)]
pub(super) struct World {
    pub now_ns: u64,
    /// The time at which the cleaner runs next, nanoseconds, if it is not called before.
    pub wake_ns: u64,
    /// Whether the cleaner waits to be called, and not for the device.
    pub is_callable: bool,
    pub calls: u32,
    /// The bytes in use beyond which a store calls the cleaner.
    pub call_above: u64,
    pub used_bytes: u64,
    region_bytes: u64,
    budget_bytes: u64,
    space_limit_bytes: u64,
    /// Changes whenever writers that wait for room should look again.
    pub room_version: u32,
    /// Changes whenever a writer that waits for an owed page should look again.
    pub unblocked_version: u32,
    pub is_room_waited_for: bool,
    pub room_asked: bool,
    pub urgent: Option<u32>,
    pub dirtied_bytes: u64,
    touches: u64,
    /// The epoch of the policy.
    pub tick: u32,
    sample_hand: usize,
    sampling: Sampling,
    pub pace: Pace,
    pub pages: Pages,
    pub log: Log,
    pub channel: Channel,
    pub tally: Tally,
    rest: Option<Rest>,
    /// The time of the last round that was left out in the rest, nanoseconds.
    pub last_left_out_ns: Option<u64>,
    pub policy: perdura_dirty::policy::PolicyKind,
    recency: bool,
    protect_ns: u64,
    pub planted: Planted,
}

impl World {
    pub fn new(config: &ReplayConfig) -> Result<Self, SizingError> {
        let (region_bytes, geometry) = config.geometry()?;
        let log = Log::new(geometry, config.log_percent, region_bytes, config.budget_bytes);
        let mut world = Self {
            now_ns: 0,
            wake_ns: 0,
            is_callable: false,
            calls: 0,
            call_above: u64::MAX,
            used_bytes: 0,
            region_bytes,
            budget_bytes: config.budget_bytes,
            space_limit_bytes: u64::MAX,
            room_version: 0,
            unblocked_version: 0,
            is_room_waited_for: false,
            room_asked: false,
            urgent: None,
            dirtied_bytes: 0,
            touches: 0,
            tick: 1,
            sample_hand: 0,
            sampling: Sampling::new(config.epoch.as_nanos() as u64, SIGNAL_TRAP_NS),
            pace: Pace::default(),
            pages: Pages::new(region_bytes, config.policy, config.recency),
            log,
            channel: Channel::new(config.device),
            tally: Tally::default(),
            rest: None,
            last_left_out_ns: None,
            policy: config.policy,
            recency: config.recency,
            protect_ns: config.protect_ns,
            planted: config.planted,
        };
        world.note_space();
        Ok(world)
    }

    /// Hands bytes to the device, and returns the time when they are written, nanoseconds.
    pub fn write(&mut self, bytes: u64) -> u64 {
        let from_ns = self.now_ns.max(self.channel.busy_until_ns());
        let done_ns = self.channel.write(self.now_ns, bytes);
        self.tally.wrote(from_ns, self.channel.busy_until_ns(), bytes);
        done_ns
    }

    /// Makes room for the pages up to this one, before the first store to it.
    pub fn reach(&mut self, page: u32) {
        self.pages.reach(page);
        self.log.reach(page);
    }

    /// Stores to a page for which there is room. `Err` says what the store must wait for.
    #[inline]
    pub fn store(&mut self, page: u32) -> Result<(), Blocked> {
        let (word, bit) = (page as usize / WORD_PAGES, 1 << (page as usize % WORD_PAGES));
        if self.pages.open.word(word) & bit != 0 {
            return Ok(());
        }
        self.store_closed(word, bit)
    }

    fn store_closed(&mut self, word: usize, bit: u64) -> Result<(), Blocked> {
        self.wake_from_rest();
        if self.pages.owed().word(word) & bit != 0 {
            return Err(Blocked::Owed);
        }
        let was_dirty = self.pages.current().word(word) & bit != 0;
        if was_dirty {
            self.touches += 1;
        } else {
            if self.used_bytes + PAGE_BYTES > self.limit_bytes() {
                return Err(Blocked::Room);
            }
            self.used_bytes += PAGE_BYTES;
            self.tally.used_max_bytes = self.tally.used_max_bytes.max(self.used_bytes);
            self.dirtied_bytes += PAGE_BYTES;
            if self.used_bytes > self.call_above {
                self.call_above = u64::MAX;
                self.call();
            }
        }
        self.pages.enter(word, bit, was_dirty, self.tick);
        Ok(())
    }

    /// Wakes the cleaner if it waits to be called.
    pub fn call(&mut self) {
        self.calls += 1;
        if self.is_callable {
            self.wake_ns = self.wake_ns.min(self.now_ns);
        }
    }

    /// The bytes that may be in use now: the budget, or what the log's spare space can take.
    pub fn limit_bytes(&self) -> u64 {
        self.budget_bytes.min(self.space_limit_bytes)
    }

    pub fn note_space(&mut self) {
        self.space_limit_bytes = self.log.space().limit_bytes(self.log.spare());
    }

    pub fn threshold(&self) -> u64 {
        self.pace.threshold(self.limit_bytes(), self.region_bytes)
    }

    /// Calls the region's sampling of recent pages (Viyojit, section 5.2).
    pub fn sample(&mut self) {
        if !self.sampling.is_due(self.now_ns) {
            return;
        }
        let is_needed = Sampling::is_needed(self.policy, self.used_bytes, self.limit_bytes());
        if !self.recency || !is_needed {
            self.sampling.rest();
            return self.end_epoch();
        }
        let batch = self.sampling.batch(self.touches);
        let (pages, next) = self.pages.close_open(self.sample_hand, batch);
        self.sampling.protected(pages, pages * self.protect_ns);
        match next {
            Some(word) => self.sample_hand = word,
            None => self.end_epoch(),
        }
    }

    fn end_epoch(&mut self) {
        self.sample_hand = 0;
        self.tick = self.tick.wrapping_add(1);
    }

    /// Whether rounds would change nothing but the epoch's number until a page is dirtied or
    /// closed.
    fn may_rest(&self) -> bool {
        let is_sampled =
            self.recency && Sampling::is_needed(self.policy, self.used_bytes, self.limit_bytes());
        self.pace.is_at_rest() && (!is_sampled || self.pages.open_count == 0)
    }

    /// The cleaner sleeps: `every_ns` at a time until `until_ns`, if nothing comes, or this once.
    pub fn sleep(&mut self, every_ns: u64, may_rest: bool, until_ns: u64) {
        self.is_callable = true;
        let next_ns = self.now_ns + every_ns;
        self.wake_ns = next_ns;
        if may_rest && self.may_rest() && until_ns > next_ns {
            self.rest = Some(Rest { from_ns: self.now_ns, every_ns });
            let rounds = until_ns.saturating_sub(self.now_ns).div_ceil(every_ns);
            self.wake_ns = self.now_ns.saturating_add(rounds.saturating_mul(every_ns));
        }
    }

    /// Whether nothing is going to happen until a page is written.
    pub fn is_resting(&self) -> bool {
        self.rest.is_some()
    }

    /// The first round at `at_ns` or later, while resting, nanoseconds.
    pub fn round_after(&self, at_ns: u64) -> u64 {
        let Some(rest) = self.rest else { return self.now_ns };
        let rounds = at_ns.saturating_sub(rest.from_ns).div_ceil(rest.every_ns);
        rest.from_ns + rounds * rest.every_ns
    }

    /// Something happens: what would have happened meanwhile is caught up with. Returns when the
    /// last of the rounds that were left out would have been.
    pub fn wake_from_rest(&mut self) {
        let Some(rest) = self.rest.take() else { return };
        // A round at this very moment is done by the cleaner.
        let due_ns = self.now_ns.min(self.wake_ns);
        let left_out = (due_ns - rest.from_ns) / rest.every_ns;
        let is_now = left_out > 0 && due_ns == self.wake_ns;
        let left_out = left_out - u64::from(is_now);
        if left_out > 0 {
            self.tick = self.tick.wrapping_add(left_out as u32);
            self.sample_hand = 0;
            let last_ns = rest.from_ns + left_out * rest.every_ns;
            self.sampling.is_due(last_ns);
            self.last_left_out_ns = Some(last_ns);
        }
        if !is_now {
            self.wake_ns = rest.from_ns + (left_out + 1) * rest.every_ns;
        }
    }

    /// Copies what `floor` chooses of a stretch (all of it: `None`, and of the bitmap that a
    /// checkpoint owes).
    pub fn sweep(&mut self, floor: Option<&Floor>, stretch: Stretch, want_bytes: u64) -> Swept {
        let owed = floor.is_none();
        let mut swept = Swept { bytes: 0, next: stretch.to, refusal: None };
        let mut at = stretch.from;
        while let Some(word) = self.pages.bits(owed).next(at, stretch.to) {
            at = word + 1;
            let dirty = self.pages.bits(owed).word(word);
            let victims =
                floor.map_or(dirty, |floor| floor.victims(&mut self.pages, &stretch, word, dirty));
            if victims == 0 {
                continue;
            }
            self.pages.close(word, victims);
            let cause = if owed { Cause::Checkpoint } else { Cause::Cleaning };
            let (done, refusal) = self.append_dirty(owed, word, victims, cause);
            self.pages.reopen(word, victims & !done);
            self.unblocked_version += 1;
            if !owed {
                self.pages.cleaned(word, done);
            }
            swept.bytes += u64::from(done.count_ones()) * PAGE_BYTES;
            if refusal.is_some() || swept.bytes >= want_bytes {
                // After a refusal the same word is taken up again.
                swept.next = if refusal.is_some() { word } else { word + 1 };
                swept.refusal = refusal;
                break;
            }
        }
        swept
    }

    /// Appends dirty pages of a word and clears their bits. Returns those done; the rest met a
    /// refusal.
    pub fn append_dirty(
        &mut self,
        owed: bool,
        word: usize,
        bits: u64,
        cause: Cause,
    ) -> (u64, Option<Refusal>) {
        let spare = self.log.spare();
        let (mut done, mut left, mut refusal) = (0, bits, None);
        while left != 0 && refusal.is_none() {
            match self.append_run(word, &mut left, true, cause) {
                Ok(bits) => done |= bits,
                Err(why) => refusal = Some(why),
            }
        }
        self.pages.clear_dirty(owed, word, done);
        if self.log.spare() != spare && refusal.is_none() {
            self.note_space();
        }
        (done, refusal)
    }

    /// Appends what fits of the first run of `left`, and takes it out of `left`.
    pub fn append_run(
        &mut self,
        word: usize,
        left: &mut u64,
        charged: bool,
        cause: Cause,
    ) -> Result<u64, Refusal> {
        let from = left.trailing_zeros();
        let len = (*left >> from).trailing_ones();
        let first = (word * pages::WORD_PAGES) as u32 + from;
        let done = self.log.append(first, len, charged)?;
        let bits = (u64::MAX >> (64 - done)) << from;
        *left &= !bits;
        self.tally.copied(cause, u64::from(done) * PAGE_BYTES);
        Ok(bits)
    }

    /// Gives bytes of the budget back that are durable, or let go by a planted mistake.
    pub fn give_back(&mut self, bytes: u64) {
        assert!(self.used_bytes >= bytes, "the account fell below zero");
        self.used_bytes -= bytes;
        self.room_version += 1;
    }
}
