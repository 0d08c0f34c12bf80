//! The cleaner: copies victims to frames, writes frames, and gives their bytes back once they are durable.
//!
//! One cleaner per region, behind a lock; it is driven by the region's thread, by writers that need room,
//! or step by step by a simulation. At most [`QUEUE_DEPTH`] writes are outstanding (Viyojit, section 6.1).

use std::collections::VecDeque;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

use perdura_media::{Completion, WriteQueue};

use crate::append::{Refusal, free_buffer};
use crate::core::Core;
use crate::error::RegionError;
use crate::floor::Floor;
use crate::heat::WORDS_PER_COOLED;
use crate::ledger::FrameBuffer;
use crate::observed::Observed;
use crate::planted::Planted;
use crate::policy::{self, PolicyKind};
use crate::promise::Terms;
use crate::seal::{Packer, frame_bytes, let_go, seal};
use crate::stats::Counters;
use crate::sweep::Sweep;

/// Writes outstanding at most.
pub(crate) const QUEUE_DEPTH: usize = 16;
/// A drain hands what it has copied to the device after this much, so that the device works meanwhile; no sooner, for
/// only a device with much on its way shows how fast it is (see `observed`).
const DRAIN_STEP_BYTES: u64 = 8 << 20;
/// In trap mode it looks after this much whether a fault waits for a page it owes.
const DRAIN_STEP_TRAPPED_BYTES: u64 = 256 << 10;
/// A round cleans a 64th of the budget, or this: a write and a device flush of their own have a price.
const CLEAN_ENOUGH_BYTES: u64 = 8 << 20;
/// Completed bytes that are worth a device flush of their own, at most.
const FLUSH_BATCH_BYTES: u64 = 4 << 20;

/// Smaller than what `observed` takes for a large flush: a larger frame goes by the queue, and shows the device's rate.
const SINGLE_BYTES_MAX: u64 = 128 << 10;

/// One part in so many of the budget is free when a checkpoint begins.
const CHECKPOINT_MARGIN_SHARE: u64 = 8;

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
    /// Where the next sweep begins: a bitmap word.
    hand: usize,
    /// The cooling hand, in eighths of a word.
    cooled: usize,
    round: u64,
    pressure_bytes: u64,
    net_dirtied_before: u64,
    lead_bytes: u64,
    /// Bytes copied by cleaning that still count, until the device has flushed them.
    pub(crate) in_flight_bytes: u64,
    /// Of durable writes of single frames, as far as they have not led to writing ahead.
    pub(crate) single_bytes: u64,
    /// Net dirtied bytes when cleaning began whose outcome is not durable yet.
    net_dirtied_begun: Option<u64>,
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
            hand: 0,
            cooled: 0,
            round: seed,
            pressure_bytes: 0,
            net_dirtied_before: 0,
            lead_bytes: 0,
            in_flight_bytes: 0,
            single_bytes: 0,
            net_dirtied_begun: None,
            dirtied_committed: 0,
            observed: Observed::default(),
            terms: None,
            limit_told_bytes: u64::MAX,
            nested: false,
        }
    }

    /// Nothing has changed and no frame was written since the last commit: another would say the same. What
    /// lanes keep as credit is in use, but nothing to write.
    pub(crate) fn is_committed(&self, core: &Core) -> bool {
        let unchanged = core.ledger.budget_used().load(Relaxed) == 0
            || core.tracking.pages().is_none() && core.dirtied_bytes() == self.dirtied_committed;
        let next_seq = core.ledger.next_seq().load(Relaxed);
        unchanged && next_seq == core.ledger.commit_seq().load(Relaxed) + 1
    }

    /// Frees at least `bytes` of budget or one frame buffer if that can be done. Returns the bytes freed.
    pub fn make_room(&mut self, core: &Core, bytes: u64) -> Result<u64, RegionError> {
        let freed = self.pump(core, Pump::Poll)?;
        if freed >= bytes.max(1) {
            return Ok(freed);
        }
        if bytes > 0 {
            let batch = (core.budget.effective_limit(&core.ledger) / 16).min(1 << 20);
            self.clean(core, bytes.max(batch))?;
        }
        Ok(freed + self.pump(core, Pump::Durable)?)
    }

    /// One round of the region's thread: the paper's proactive rule. `is_epoch`: an epoch has passed since the
    /// last one that was; rounds in between are those that writers have called for. Returns whether another round
    /// should follow at once.
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
            let net_dirtied = core.net_dirtied_bytes();
            let new_bytes = net_dirtied.saturating_sub(self.net_dirtied_before);
            self.net_dirtied_before = net_dirtied;
            self.pressure_bytes = policy::pressure(new_bytes, self.pressure_bytes);
        }
        // The device works on the last round's frames while the next are copied.
        self.pump(core, Pump::Poll)?;
        let threshold = self.threshold(core);
        let least = CLEAN_ENOUGH_BYTES.min(threshold / 64);
        if self.written_bytes >= least.max(1) {
            self.flush_written(core)?;
        }
        let used = core.ledger.budget_used().load(Relaxed);
        let excess = used.saturating_sub(self.in_flight_bytes).saturating_sub(threshold);
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
        let limit = core.budget.effective_limit(&core.ledger);
        let expected = self.pressure_bytes.min(limit / 4) + self.lead_bytes.min(limit / 4);
        policy::threshold(limit, expected)
    }

    /// Cleans a part of what a checkpoint is about to write anyway. After its cut every write costs budget anew, and
    /// nothing is given back until the first of its frames are durable: without a margin all writers would wait then.
    fn make_margin(&mut self, core: &Core) -> Result<(), RegionError> {
        let limit = core.budget.effective_limit(&core.ledger);
        let used = core.ledger.budget_used().load(Relaxed);
        let excess = used.saturating_sub(limit - limit / CHECKPOINT_MARGIN_SHARE);
        if excess > 0 {
            self.clean(core, excess)?;
            self.pump(core, Pump::Durable)?;
        }
        Ok(())
    }

    /// Copies victims worth about `want_bytes` into frames and submits them. Returns the bytes copied.
    pub fn clean(&mut self, core: &Core, want_bytes: u64) -> Result<u64, RegionError> {
        if !self.nested {
            self.ensure_space(core)?;
        }
        self.net_dirtied_begun.get_or_insert_with(|| core.net_dirtied_bytes());
        let mut copied = 0;
        // Two revolutions: the first may spare everything.
        let mut words_left = core.words_in_use() * 2;
        self.round = self.round.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut floor = Floor::plan(core, self.round, want_bytes);
        while copied < want_bytes && words_left > 0 {
            let spare = core.appender.lock().spare_segments();
            if spare <= core.spare_wanted() && copied > 0 {
                // The next call begins by making space.
                break;
            }
            let from = if self.hand < core.words_in_use() { self.hand } else { 0 };
            // A whole revolution that spares what is hot, then a whole one that does not, wherever the hand stands.
            let spared_left = words_left.saturating_sub(core.words_in_use());
            floor.spares = spared_left > 0;
            let part = if floor.spares { spared_left } else { words_left };
            let to = core.words_in_use().min(from + part);
            let parity = core.parity();
            let left = want_bytes - copied;
            let mut sweep = Sweep::new(core, parity, left);
            sweep.may_skip = floor.spares;
            let refusal = sweep.run(from, to, |word, dirty| floor.victims(core, word, dirty));
            let (bytes, next) = (sweep.copied_bytes, sweep.next);
            drop(sweep);
            Counters::add(&core.stats.cleaned_bytes, bytes);
            self.in_flight_bytes += bytes;
            copied += bytes;
            words_left -= (next - from).min(words_left);
            self.hand = next;
            self.cool(core, parity, next - from);
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

    /// Moves closed frames to the device and completed ones out of the account. Returns bytes given back.
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
            let batch = FLUSH_BATCH_BYTES.min(core.budget.effective_limit(&core.ledger) / 8);
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
            // SAFETY: the buffer lies in the ledger's mapping, which outlives the queue (both belong to
            // `core`), and is not touched until it is free again: after this write has completed.
            unsafe {
                self.queue.submit(u64::from(number), at, buffer.device_bytes(), len as usize)
            }
            .map_err(|error| core.latch(&error))?;
            self.on_device.push_back((number, false));
            self.observed.submitted(len, now_ns);
        }
        Ok(())
    }

    /// If one frame is all that a loss of power could take, makes it durable with one system call; where more is, it
    /// takes a device flush. Returns whether it did.
    pub(crate) fn write_single(&mut self, core: &Core) -> Result<bool, RegionError> {
        let mut appender = core.appender.lock();
        let others = self.on_device.len() + self.written.len();
        let is_single = appender.closed.len() == 1 && others == 0;
        if !is_single && core.planted != Planted::SingleAlways {
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
        // Its time says nothing about a device flush, which may be much dearer: `observed` is not told.
        // SAFETY: a closed frame that was taken out is the cleaner's, whose lock is held.
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
        if core.planted == Planted::CleanAtCopy {
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
            // From now until half of it is done the device is surely busy: that shows how fast it is.
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
            if core.planted == Planted::LetGoWhenWritten {
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
        if let Some(begun) = self.net_dirtied_begun.take() {
            let since = core.net_dirtied_bytes().saturating_sub(begun);
            self.lead_bytes = policy::lead(since, self.lead_bytes);
        }
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

    /// The cooling hand follows the other, which has passed so many words.
    fn cool(&mut self, core: &Core, parity: u64, passed: usize) {
        if core.policy != PolicyKind::ClockPro || !core.recency {
            return;
        }
        let before = self.cooled / WORDS_PER_COOLED;
        self.cooled += passed;
        for word in before..self.cooled / WORDS_PER_COOLED {
            let word = word % core.words_in_use().max(1);
            core.heat.cool(word, core.ledger.dirty_word(parity, word).load(Relaxed));
        }
        self.cooled %= (core.words_in_use() * WORDS_PER_COOLED).max(1);
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

    /// Body of the region's thread: an epoch's work, then sleep until the next or until somebody waits.
    pub fn run_cleaner(&self, epoch: Duration, checkpoint_every: Option<Duration>) {
        let mut last_checkpoint_ns = self.clock.now_ns();
        let mut epoch_now = epoch;
        let mut log_was_full = false;
        let mut last_epoch_ns = last_checkpoint_ns;
        self.settle_buffers();
        while !self.budget.is_closed() && self.failure.get().is_none() {
            let seen = self.budget.cleaner_version();
            let dirtied = self.dirtied_bytes();
            let mut cleaner = self.cleaner.lock();
            if self.budget.is_closed() {
                return;
            }
            let began_ns = self.clock.now_ns();
            let due = checkpoint_every
                .is_some_and(|every| began_ns - last_checkpoint_ns >= every.as_nanos() as u64);
            let is_epoch = began_ns - last_epoch_ns >= epoch.as_nanos() as u64;
            if is_epoch {
                last_epoch_ns = began_ns;
            }
            let outcome = cleaner.tick(self, is_epoch).and_then(|more| {
                if due && !cleaner.is_committed(self) {
                    last_checkpoint_ns = began_ns;
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
                // Not for good: a checkpoint that waited for a prepared write makes space. Said once.
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
            // Who waits because this thread was at work may go on, or do the rest itself. In trap mode a fault that
            // waits has called, and the call below returns at once.
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
            epoch_now = if quiet { (epoch_now * 2).min(epoch * 64) } else { epoch };
            let used = self.ledger.budget_used().load(Relaxed);
            // More than that already: what could be cleaned was, and a call would only make it look again.
            let call_above = if used <= threshold { threshold } else { u64::MAX };
            self.budget.wait_as_cleaner(&self.ledger, seen, call_above, epoch_now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_media::{SimClock, SimDevice};

    use crate::geometry::BLOCK_BYTES;
    use crate::testing::write;
    use crate::{Config, Region};

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
            core.cleaner.lock().hand = hand as usize * core.words_in_use() / blocks as usize;
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
