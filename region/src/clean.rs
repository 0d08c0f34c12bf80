//! The cleaner: copies victims to frames, writes frames, and gives their bytes back once they are
//! durable.
//!
//! One cleaner per region, behind a lock; it is driven by the region's thread, by writers that need
//! room, or step by step by a simulation. At most [`QUEUE_DEPTH`] writes are outstanding (Viyojit,
//! section 6.1).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

use perdura_media::{Completion, WriteQueue};

use crate::append::{Refusal, free_buffer};
use crate::core::Core;
use crate::floor::Floor;
use crate::seal::{Packer, frame_bytes, let_go, seal};
use crate::sweep::Sweep;
use perdura_dirty::error::RegionError;
use perdura_dirty::ledger::FrameBuffer;
use perdura_dirty::observed::Observed;
use perdura_dirty::planted::Planted;
use perdura_dirty::policy::hands::{Hands, Revolutions};
use perdura_dirty::policy::pace::{
    self, DRAIN_STEP_BYTES, DRAIN_STEP_TRAPPED_BYTES, Pace, QUEUE_DEPTH, Rhythm,
};
use perdura_dirty::policy::{RankedBy, next_round};
use perdura_dirty::promise::Terms;
use perdura_dirty::stats::Counters;

/// Smaller than what `observed` takes for a large flush: a larger frame goes by the queue, and
/// shows the device's rate.
const SINGLE_BYTES_MAX: u64 = 128 << 10;

/// How far [`Cleaner::pump`] goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pump {
    /// Submit what is closed and take what has completed; wait for nothing.
    Poll,
    /// Wait for one write, if any is outstanding.
    One,
    /// Wait for all writes and flush the device.
    Durable,
}

pub(crate) struct Cleaner {
    queue: Box<dyn WriteQueue>,
    completions: Vec<Completion>,
    packer: Packer,
    /// Frames handed to the device, in order, and whether they have been written.
    on_device: VecDeque<(u32, bool)>,
    /// Frames written, as all before them: none of them lies behind a gap in the log.
    written: Vec<u32>,
    written_bytes: u64,
    hands: Hands,
    round: u64,
    pace: Pace,
    /// Bytes copied by cleaning that still count, until the device has flushed them.
    pub(crate) in_flight_bytes: u64,
    /// Of durable writes of single frames, as far as they have not led to writing ahead.
    pub(crate) single_bytes: u64,
    /// `dirtied_bytes` at the cut of the last commit.
    pub(crate) dirtied_committed: u64,
    pub(crate) observed: Observed,
    /// What the budget rests on, if anything is promised.
    pub(crate) terms: Option<Terms>,
    /// The limit that was last reported.
    pub(crate) limit_told_bytes: u64,
    /// Room is made for faults in the middle of something else: no checkpoint may begin.
    pub(crate) nested: bool,
}

impl Cleaner {
    pub fn new(queue: Box<dyn WriteQueue>, seed: u64) -> Self {
        Self {
            queue,
            completions: Vec::new(),
            packer: Packer::default(),
            on_device: VecDeque::new(),
            written: Vec::new(),
            written_bytes: 0,
            hands: Hands::default(),
            round: seed,
            pace: Pace::default(),
            in_flight_bytes: 0,
            single_bytes: 0,
            dirtied_committed: 0,
            observed: Observed::default(),
            terms: None,
            limit_told_bytes: u64::MAX,
            nested: false,
        }
    }

    /// Nothing has changed and no frame was written since the last commit: another would say the
    /// same. What lanes keep as credit is in use, but nothing to write.
    pub(crate) fn is_committed(&self, core: &Core) -> bool {
        let unchanged = core.ledger.budget_used().load(Relaxed) == 0
            || core.tracking.pages().is_none() && core.dirtied_bytes() == self.dirtied_committed;
        let next_seq = core.ledger.next_seq().load(Relaxed);
        unchanged && next_seq == core.ledger.commit_seq().load(Relaxed) + 1
    }

    /// Frees at least `bytes` of budget or one frame buffer if that can be done. Returns the bytes
    /// freed.
    pub fn make_room(&mut self, core: &Core, bytes: u64) -> Result<u64, RegionError> {
        let freed = self.pump(core, Pump::Poll)?;
        if freed >= bytes.max(1) {
            return Ok(freed);
        }
        if bytes > 0 {
            let limit = core.budget.effective_limit(&core.ledger);
            self.clean(core, pace::demanded(bytes, limit))?;
        }
        Ok(freed + self.pump(core, Pump::Durable)?)
    }

    /// One round of the region's thread: the paper's proactive rule. `is_epoch`: an epoch has
    /// passed since the last one that was; rounds in between are those that writers have called
    /// for. Returns whether another round should follow at once.
    pub fn tick(&mut self, core: &Core, is_epoch: bool) -> Result<bool, RegionError> {
        let pages = core.tracking.pages();
        if pages.is_some() {
            self.serve_faults(core)?;
        }
        if is_epoch {
            match pages {
                None => _ = core.tick.fetch_add(1, Relaxed),
                Some(tracker) => tracker.sample(core),
            }
            self.pace.epoch(core.net_dirtied_bytes());
        }
        // The device works on the last round's frames while the next are copied.
        self.pump(core, Pump::Poll)?;
        let threshold = self.threshold(core);
        let least = pace::round_bytes_min(threshold);
        if self.written_bytes >= least.max(1) {
            self.flush_written(core)?;
        }
        let used = core.ledger.budget_used().load(Relaxed);
        let excess = pace::excess(used, self.in_flight_bytes, threshold);
        if excess > 0 && self.clean(core, excess.max(least))? > 0 {
            return Ok(true);
        }
        if self.queue.outstanding() > 0 || !self.written.is_empty() {
            self.pump(core, Pump::Durable)?;
        }
        Ok(false)
    }

    /// More than this in use is cleaned (Viyojit, section 5.3), in time for what comes meanwhile.
    fn threshold(&self, core: &Core) -> u64 {
        self.pace.threshold(core.budget.effective_limit(&core.ledger))
    }

    /// Cleans a part of what a checkpoint is about to write anyway. After its cut every write costs
    /// budget anew, and nothing is given back until the first of its frames are durable: without a
    /// margin all writers would wait then.
    fn make_margin(&mut self, core: &Core) -> Result<(), RegionError> {
        let limit = core.budget.effective_limit(&core.ledger);
        let used = core.ledger.budget_used().load(Relaxed);
        let excess = pace::checkpoint_excess(used, limit);
        if excess > 0 {
            self.clean(core, excess)?;
            self.pump(core, Pump::Durable)?;
        }
        Ok(())
    }

    /// Copies victims worth about `want_bytes` into frames and submits them. Returns the bytes
    /// copied.
    pub fn clean(&mut self, core: &Core, want_bytes: u64) -> Result<u64, RegionError> {
        if !self.nested {
            self.ensure_space(core)?;
        }
        self.pace.cleaning(core.net_dirtied_bytes());
        let mut copied = 0;
        self.round = next_round(self.round);
        let mut floor = Floor::plan(core, self.round, want_bytes);
        let mut revolutions = Revolutions::of(core.words_in_use());
        while copied < want_bytes
            && let Some(stretch) = revolutions.next(&self.hands)
        {
            let spare = core.appender.lock().spare_segments();
            if core.space().is_short(spare) && copied > 0 {
                // The next call begins by making space.
                break;
            }
            floor.spares = stretch.spares;
            let parity = core.parity();
            let mut sweep = Sweep::new(core, parity, want_bytes - copied);
            sweep.may_skip = floor.spares;
            let refusal =
                sweep.run(stretch.from, stretch.to, |word, dirty| floor.victims(core, word, dirty));
            let (bytes, next) = (sweep.copied_bytes, sweep.next);
            drop(sweep);
            Counters::add(&core.stats.cleaned_bytes, bytes);
            self.in_flight_bytes += bytes;
            copied += bytes;
            let cooled = revolutions.swept(&mut self.hands, stretch, next);
            cool(core, parity, cooled);
            match refusal {
                None => {}
                Some(Refusal::NoBuffer) => {
                    self.pump(core, Pump::One)?;
                }
                Some(Refusal::NoSegment) if self.nested => break,
                Some(Refusal::NoSegment) => {
                    self.ensure_space(core)?;
                    if core.appender.lock().spare_segments() == 0 {
                        return Err(core.log_full());
                    }
                }
            }
        }
        core.appender.lock().close_frame(&core.ledger, 0);
        self.pump(core, Pump::Poll)?;
        Ok(copied)
    }

    /// Copies every grain the closing epoch still owes.
    pub fn drain(&mut self, core: &Core) -> Result<(), RegionError> {
        let closing = core.parity() ^ 1;
        let mut from = 0;
        loop {
            let mut want_bytes = DRAIN_STEP_BYTES;
            if core.tracking.pages().is_some() {
                self.serve_urgent(core, closing)?;
                want_bytes = DRAIN_STEP_TRAPPED_BYTES;
            }
            let mut sweep = Sweep::new(core, closing, want_bytes);
            let words = core.words_in_use();
            let refusal = sweep.run(from, words, |_, dirty| dirty);
            let (bytes, next) = (sweep.copied_bytes, sweep.next);
            drop(sweep);
            Counters::add(&core.stats.drained_bytes, bytes);
            self.in_flight_bytes += bytes;
            match refusal {
                None if next >= words => return Ok(()),
                None => self.pump(core, Pump::Poll).map(drop)?,
                Some(Refusal::NoBuffer) => self.pump(core, Pump::One).map(drop)?,
                Some(Refusal::NoSegment) => return Err(core.log_full()),
            }
            from = next;
        }
    }

    /// Moves closed frames to the device and completed ones out of the account. Returns bytes given
    /// back.
    pub fn pump(&mut self, core: &Core, how: Pump) -> Result<u64, RegionError> {
        let mut freed = 0;
        loop {
            self.submit_closed(core)?;
            let wait = match how {
                Pump::Poll => 0,
                Pump::One => usize::from(self.written.is_empty()),
                Pump::Durable => self.queue.outstanding(),
            };
            self.reap(core, wait)?;
            let idle = self.queue.outstanding() == 0 && core.appender.lock().closed.is_empty();
            let batch = pace::flush_batch(core.budget.effective_limit(&core.ledger));
            let due = match how {
                Pump::Poll => self.written_bytes >= batch || core.budget.has_waiters(),
                Pump::One => true,
                Pump::Durable => idle,
            };
            if due && !self.written.is_empty() {
                freed += self.flush_written(core)?;
            }
            if how != Pump::Durable || idle {
                return Ok(freed);
            }
        }
    }

    fn submit_closed(&mut self, core: &Core) -> Result<(), RegionError> {
        while self.queue.outstanding() < QUEUE_DEPTH {
            let Some(number) = core.appender.lock().closed.pop_front() else { break };
            let (buffer, at) = self.seal(core, number);
            let len = frame_bytes(&buffer);
            // Before the write: an engine may carry it out at once.
            let now_ns = if self.observed.is_idle() { core.clock.now_ns() } else { 0 };
            // SAFETY: the buffer lies in the ledger's mapping, which outlives the queue (both
            // belong to `core`), and is not touched until it is free again: after this write has
            // completed.
            unsafe {
                self.queue.submit(u64::from(number), at, buffer.device_bytes(), len as usize)
            }
            .map_err(|error| core.latch(&error))?;
            self.on_device.push_back((number, false));
            self.observed.submitted(len, now_ns);
        }
        Ok(())
    }

    /// If one frame is all that a loss of power could take, makes it durable with one system call;
    /// where more is, it takes a device flush. Returns whether it did.
    pub(crate) fn write_single(&mut self, core: &Core) -> Result<bool, RegionError> {
        let mut appender = core.appender.lock();
        let others = self.on_device.len() + self.written.len();
        let is_single = appender.closed.len() == 1 && others == 0;
        if !is_single && !core.planted.is(Planted::SingleAlways) {
            return Ok(false);
        }
        let Some(&number) = appender.closed.back() else { return Ok(false) };
        let len = frame_bytes(&core.ledger.buffer(number));
        if len >= SINGLE_BYTES_MAX {
            return Ok(false);
        }
        appender.closed.pop_back();
        appender.prefer_written(&core.ledger);
        drop(appender);
        let (buffer, at) = self.seal(core, number);
        // Its time says nothing about a device flush, which may be much dearer: `observed` is not
        // told. SAFETY: a closed frame that was taken out is the cleaner's, whose lock is held.
        let bytes = unsafe { buffer.stored_mut(len as usize) };
        core.device.write_durable_at(at, bytes).map_err(|error| core.latch(&error))?;
        Counters::add(&core.stats.device_flushes, 1);
        self.single_bytes += len;
        self.settle(core, &[number]);
        core.appender.lock().free_buffers.push(number);
        Ok(true)
    }

    /// Makes the frame in a closed buffer what is to be written. Returns where to.
    fn seal<'c>(&mut self, core: &'c Core, number: u32) -> (FrameBuffer<'c>, u64) {
        let buffer = core.ledger.buffer(number);
        let epoch = core.ledger.epoch().load(Relaxed);
        self.packer.pack(core, &buffer);
        seal(&core.ledger, &buffer, core.ledger.image_id().load(Relaxed), epoch);
        if core.planted.is(Planted::CleanAtCopy) {
            core.budget.give_back(&core.ledger, buffer.charged_bytes().swap(0, AcqRel));
        }
        let segment = buffer.segment().load(Relaxed) as u32;
        let len = frame_bytes(&buffer);
        let segment_bytes = core.ledger.geometry().segment_bytes;
        core.ledger.segment(segment).count_written(len, segment_bytes);
        Counters::add(&core.stats.frames, 1);
        Counters::add(&core.stats.device_bytes, len);
        let at = core.layout.segment_at(segment) + buffer.segment_offset().load(Relaxed);
        (buffer, at)
    }

    fn reap(&mut self, core: &Core, at_least: usize) -> Result<(), RegionError> {
        if at_least > 1 && self.observed.is_deep() {
            // From now until half of it is done the device is surely busy: that shows how fast it
            // is.
            self.reap_once(core, 0)?;
            self.reap_once(core, self.queue.outstanding() / 2)?;
            return self.reap_once(core, self.queue.outstanding().min(at_least));
        }
        self.reap_once(core, at_least)
    }

    fn reap_once(&mut self, core: &Core, at_least: usize) -> Result<(), RegionError> {
        self.queue.wait(at_least, &mut self.completions).map_err(|error| core.latch(&error))?;
        let mut done_bytes = 0;
        for completion in self.completions.drain(..) {
            completion.result.map_err(|error| core.latch(&error))?;
            let number = completion.token as u32;
            let buffer = core.ledger.buffer(number);
            done_bytes += frame_bytes(&buffer);
            if core.planted.is(Planted::LetGoWhenWritten) {
                let_go(&buffer);
            }
            if let Some(frame) = self.on_device.iter_mut().find(|frame| frame.0 == number) {
                frame.1 = true;
            }
        }
        while let Some(&(number, true)) = self.on_device.front() {
            self.on_device.pop_front();
            self.written_bytes += frame_bytes(&core.ledger.buffer(number));
            self.written.push(number);
        }
        if self.observed.is_watching() && self.observed.looked(core.clock.now_ns(), done_bytes) {
            self.heed_rate(core);
        }
        Ok(())
    }

    fn flush_written(&mut self, core: &Core) -> Result<u64, RegionError> {
        Counters::add(&core.stats.device_flushes, 1);
        let is_alone = self.observed.is_watching() && self.queue.outstanding() == 0;
        let began_ns = if is_alone { core.clock.now_ns() } else { 0 };
        core.device.flush().map_err(|error| core.latch(&error))?;
        if is_alone {
            let took_ns = core.clock.now_ns().saturating_sub(began_ns);
            self.observed.flushed(self.written_bytes, took_ns);
        }
        self.pace.durable(core.net_dirtied_bytes());
        let mut written = std::mem::take(&mut self.written);
        let freed = self.settle(core, &written);
        core.appender.lock().free_buffers.append(&mut written);
        // Its memory is used again.
        self.written = written;
        self.written_bytes = 0;
        Ok(freed)
    }

    /// These frames are durable: their bytes leave the account. Returns how many.
    fn settle(&mut self, core: &Core, durable: &[u32]) -> u64 {
        let mut freed = 0;
        for &number in durable {
            freed += core.ledger.buffer(number).charged_bytes().swap(0, AcqRel);
            free_buffer(&core.ledger, number);
        }
        // What writers captured is in there as well.
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(freed);
        core.budget.give_back(&core.ledger, freed);
        core.budget.notify();
        freed
    }

    /// Everything the queue holds has ended when this returns, whatever its outcome.
    pub fn quiesce(&mut self) {
        let outstanding = self.queue.outstanding();
        // An error here has been latched by the device; the final flush writes these frames again.
        let _ = self.queue.wait(outstanding, &mut self.completions);
        self.completions.clear();
        self.observed.forget_outstanding();
    }

    /// A flush has written and freed all buffers behind the cleaner's back.
    pub fn forget_written(&mut self) {
        self.on_device.clear();
        self.written.clear();
        self.written_bytes = 0;
        self.in_flight_bytes = 0;
    }
}

/// The cooling hand passes these words, round and round.
fn cool(core: &Core, parity: u64, words: Range<usize>) {
    if core.policy.ranked_by() != RankedBy::Heat || !core.recency {
        return;
    }
    for word in words {
        let word = word % core.words_in_use().max(1);
        core.heat.cool(word, core.ledger.dirty_word(parity, word).load(Relaxed));
    }
}

impl Core {
    pub fn log_full(&self) -> RegionError {
        let appender = self.appender.lock();
        RegionError::LogFull {
            free_segments: appender.free_segments.len() as u32,
            reserve_segments: appender.reserve_segments,
        }
    }

    /// Body of the region's thread: an epoch's work, then sleep until the next or until somebody
    /// waits.
    pub fn run_cleaner(&self, epoch: Duration, checkpoint_every: Option<Duration>) {
        let nanoseconds = |time: Duration| time.as_nanos() as u64;
        let every_ns = checkpoint_every.map(nanoseconds);
        let mut rhythm = Rhythm::new(nanoseconds(epoch), every_ns, self.clock.now_ns());
        let mut log_was_full = false;
        self.settle_buffers();
        while !self.budget.is_closed() && self.failure.get().is_none() {
            let seen = self.budget.cleaner_version();
            let dirtied = self.dirtied_bytes();
            let mut cleaner = self.cleaner.lock();
            if self.budget.is_closed() {
                return;
            }
            let began_ns = self.clock.now_ns();
            let due = rhythm.checkpoint_due_ns().is_some_and(|due_ns| began_ns >= due_ns);
            let outcome = cleaner.tick(self, rhythm.is_epoch(began_ns)).and_then(|more| {
                if due && !cleaner.is_committed(self) {
                    rhythm.checkpointed(began_ns);
                    cleaner.make_margin(self)?;
                    cleaner.checkpoint(self, false)?;
                }
                Ok(more)
            });
            let threshold = cleaner.threshold(self);
            let mut ahead = self.choose_ahead(&mut cleaner);
            drop(cleaner);
            if self.budget.is_closed() {
                // What is left is the final flush's, and so are its errors.
                return;
            }
            match outcome {
                Ok(true) => continue,
                Ok(false) => {}
                // Not for good: a checkpoint that waited for a prepared write makes space. Said
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
            // Who waits because this thread was at work may go on, or do the rest itself. In trap
            // mode a fault that waits has called, and the call below returns at once.
            if self.budget.has_waiters() && self.tracking.pages().is_none() {
                self.budget.notify();
            }
            // After those who wait. The first to fail has said so.
            if ahead.write_piece(self).is_err() {
                return;
            }
            drop(ahead);
            // Idle regions are looked at less often; a waiting writer wakes the thread at once.
            let quiet = self.dirtied_bytes() == dirtied;
            let longest = Duration::from_nanos(rhythm.sleep_ns(quiet));
            let used = self.ledger.budget_used().load(Relaxed);
            let call_above = pace::call_above(used, threshold);
            self.budget.wait_as_cleaner(&*self.clock, &self.ledger, seen, call_above, longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_media::{SimClock, SimDevice};

    use crate::Config;
    use crate::Region;
    use crate::testing::write;
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
            let core = region.core();
            core.cleaner.lock().hands.next = hand as usize * core.words_in_use() / blocks as usize;
            for round in 0..8 {
                for block in (0..4 * 4).map(|n| blocks / 2 + 4 + n % 4) {
                    write(&region, block * BLOCK_BYTES, &[1; 65_536]);
                }
                let copied = core.cleaner.lock().clean(core, BLOCK_BYTES).unwrap();
                assert!(copied >= BLOCK_BYTES, "hand at block {hand}, round {round}: {copied}");
            }
        }
    }
}
