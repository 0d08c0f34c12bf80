//! Frames on their way to the device. They are submitted in order and become durable in batches;
//! then their bytes return to the budget.
//!
//! At most [`QUEUE_DEPTH`] writes are outstanding (Viyojit, section 6.1), or one where another
//! region's commits would wait for them.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::*;

use perdura_dirty::planted::Planted;
use perdura_dirty::policy::pace::{self, Pace, QUEUE_DEPTH};
use perdura_dirty::{Counters, FrameBuffer, RateWatch, RegionError};
use perdura_media::{Completion, WriteQueue};

use crate::append::free_buffer;
use crate::backed::Backed;
use crate::pack::Packer;
use crate::seal::{frame_bytes, let_go, seal};

/// Most bytes of a frame that is written by a single system call. A larger frame goes through the
/// queue and shows the device's rate.
const SINGLE_BYTES_MAX: u64 = 128 << 10;

/// How long [`Outlet::pump`] waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pump {
    /// Submit closed frames and take completed ones; wait for nothing.
    Poll,
    /// Wait for one write, if any is outstanding.
    One,
    /// Wait for all writes and flush the device.
    Durable,
}

/// Writes frames to the device. The cleaner has one.
pub struct Outlet {
    queue: Box<dyn WriteQueue>,
    completions: Vec<Completion>,
    packer: Packer,
    /// Buffers of frames that were handed to the device, in order, and whether they have been
    /// written.
    on_device: VecDeque<(u32, bool)>,
    /// Buffers of frames that were written, as were all frames before them.
    written: Vec<u32>,
    written_bytes: u64,
    /// Whether the queue was short when frames were last submitted.
    was_short: bool,
    /// The threshold at which cleaning begins; it is told when cleaned bytes are durable.
    pub pace: Pace,
    /// The device's rate as these writes show it, and its effect on the budget.
    pub rate: RateWatch,
    /// Bytes copied by cleaning that count in the budget until the device has flushed them.
    pub in_flight_bytes: u64,
    /// Bytes of frames that were written by a single system call and have not led to prezeroing
    /// yet.
    pub single_bytes: u64,
}

impl Outlet {
    /// Makes an outlet with nothing on its way.
    pub fn new(queue: Box<dyn WriteQueue>) -> Self {
        Self {
            queue,
            completions: Vec::new(),
            packer: Packer::default(),
            on_device: VecDeque::new(),
            written: Vec::new(),
            written_bytes: 0,
            was_short: false,
            pace: Pace::default(),
            rate: RateWatch::default(),
            in_flight_bytes: 0,
            single_bytes: 0,
        }
    }

    /// Bytes that were written and not flushed yet.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Whether anything is on its way or waits for a device flush.
    pub fn is_busy(&self) -> bool {
        self.queue.outstanding() > 0 || !self.written.is_empty()
    }

    /// Submits closed frames, and flushes the device after completed ones. Returns the bytes given
    /// back to the budget.
    pub fn pump(&mut self, backed: &Backed, how: Pump) -> Result<u64, RegionError> {
        let mut freed = 0;
        loop {
            let is_short = self.submit_closed(backed)?;
            let wait = match how {
                Pump::Poll => 0,
                Pump::One => usize::from(self.written.is_empty() || is_short),
                Pump::Durable => self.queue.outstanding(),
            };
            self.reap(backed, wait)?;
            let idle =
                self.queue.outstanding() == 0 && backed.log.appender.lock().closed.is_empty();
            let batch =
                pace::flush_batch(backed.memory.budget.effective_limit(&backed.memory.ledger));
            let due = match how {
                Pump::Poll => self.written_bytes >= batch || backed.memory.budget.has_waiters(),
                // A short queue has one write at a time, which is not worth a device flush.
                Pump::One => !is_short || idle || self.written_bytes >= batch,
                Pump::Durable => idle,
            };
            if due && !self.written.is_empty() {
                freed += self.flush_written(backed)?;
            }
            if due || how == Pump::Poll {
                return Ok(freed);
            }
        }
    }

    /// Submits closed frames. Returns whether it submits one at a time.
    fn submit_closed(&mut self, backed: &Backed) -> Result<bool, RegionError> {
        let is_short = self.is_short(backed);
        self.rate.observed.set_short(is_short);
        // Each time, because a drill makes another appender.
        if std::mem::replace(&mut self.was_short, is_short) || is_short {
            backed.log.appender.lock().are_frames_short = is_short;
        }
        let depth = if is_short { 1 } else { QUEUE_DEPTH };
        while self.queue.outstanding() < depth {
            let Some(number) = backed.log.appender.lock().closed.pop_front() else { break };
            let (buffer, at) = self.seal(backed, number);
            let len = frame_bytes(&buffer);
            // Read before the write, because an engine may carry it out at once.
            let now_ns =
                if self.rate.observed.is_idle() { backed.memory.clock.now_ns() } else { 0 };
            // SAFETY: the buffer lies in the ledger's mapping, which outlives the queue (the
            // cleaner goes before the memory), and is not touched until it is free again: after
            // this write has completed.
            unsafe {
                self.queue.submit(u64::from(number), at, buffer.device_bytes(len), len as usize)
            }
            .map_err(|error| backed.memory.latch(&error))?;
            self.on_device.push_back((number, false));
            self.rate.observed.submitted(len, now_ns);
            if is_short {
                Counters::add(&backed.memory.stats.short_queue_frames, 1);
            }
        }
        Ok(is_short)
    }

    /// Whether one write at a time is outstanding, so that other regions' group commits wait for no
    /// more than that: if a guard asks for it, unless a smaller budget must be reached, or only a
    /// deep queue shows how fast the device is, or is fast.
    fn is_short(&self, backed: &Backed) -> bool {
        let memory = &backed.memory;
        memory.ledger.short_queue().load(Relaxed) != 0
            && !memory.budget.is_shrinking(&memory.ledger)
            && self.rate.observed.may_be_short(memory.clock.now_ns())
    }

    /// Makes the closed frame durable with one system call, if nothing else is on its way or waits
    /// for a device flush. Returns whether it did.
    pub fn write_single(&mut self, backed: &Backed) -> Result<bool, RegionError> {
        let mut appender = backed.log.appender.lock();
        let others = self.on_device.len() + self.written.len();
        let is_single = appender.closed.len() == 1 && others == 0;
        if !is_single && !backed.memory.planted.is(Planted::SingleAlways) {
            return Ok(false);
        }
        let Some(&number) = appender.closed.back() else { return Ok(false) };
        let len = frame_bytes(&backed.memory.ledger.buffer(number));
        if len >= SINGLE_BYTES_MAX {
            return Ok(false);
        }
        appender.closed.pop_back();
        appender.prefer_written(&backed.memory.ledger);
        drop(appender);
        let (buffer, at) = self.seal(backed, number);
        // Its time says nothing about a device flush, which may be much dearer: `observed` is not
        // told.
        // SAFETY: a closed frame that was taken out is the cleaner's, whose lock is held.
        let bytes = unsafe { buffer.stored_mut(len as usize) };
        backed
            .log
            .device
            .write_durable_at(at, bytes)
            .map_err(|error| backed.memory.latch(&error))?;
        Counters::add(&backed.memory.stats.device_flushes, 1);
        self.single_bytes += len;
        self.release(backed, &[number]);
        backed.log.appender.lock().free_buffers.push(number);
        backed.memory.budget.notify();
        Ok(true)
    }

    /// Seals the frame in a closed buffer. Returns the buffer and its offset on the device.
    fn seal<'c>(&mut self, backed: &'c Backed, number: u32) -> (FrameBuffer<'c>, u64) {
        let buffer = backed.memory.ledger.buffer(number);
        let epoch = backed.memory.ledger.epoch().load(Relaxed);
        self.packer.pack(backed, &buffer);
        seal(&backed.memory.ledger, &buffer, backed.memory.ledger.image_id().load(Relaxed), epoch);
        if backed.memory.planted.is(Planted::CleanAtCopy) {
            backed
                .memory
                .budget
                .give_back(&backed.memory.ledger, buffer.charged_bytes().swap(0, AcqRel));
        }
        let segment = buffer.segment().load(Relaxed) as u32;
        let len = frame_bytes(&buffer);
        let segment_bytes = backed.memory.ledger.geometry().segment_bytes;
        backed.memory.ledger.segment(segment).count_written(len, segment_bytes);
        Counters::add(&backed.memory.stats.frames, 1);
        Counters::add(&backed.memory.stats.device_bytes, len);
        let at = backed.log.layout.segment_at(segment) + buffer.segment_offset().load(Relaxed);
        (buffer, at)
    }

    fn reap(&mut self, backed: &Backed, at_least: usize) -> Result<(), RegionError> {
        if at_least > 1 && self.rate.observed.is_deep() {
            // Until half of the writes have completed the device is surely busy, so the time shows
            // its rate.
            self.reap_once(backed, 0)?;
            self.reap_once(backed, self.queue.outstanding() / 2)?;
            return self.reap_once(backed, self.queue.outstanding().min(at_least));
        }
        self.reap_once(backed, at_least)
    }

    fn reap_once(&mut self, backed: &Backed, at_least: usize) -> Result<(), RegionError> {
        self.queue
            .wait(at_least, &mut self.completions)
            .map_err(|error| backed.memory.latch(&error))?;
        let mut done_bytes = 0;
        for completion in self.completions.drain(..) {
            completion.result.map_err(|error| backed.memory.latch(&error))?;
            let number = completion.token as u32;
            let buffer = backed.memory.ledger.buffer(number);
            done_bytes += frame_bytes(&buffer);
            if backed.memory.planted.is(Planted::LetGoWhenWritten) {
                let_go(&buffer);
            }
            if let Some(frame) = self.on_device.iter_mut().find(|frame| frame.0 == number) {
                frame.1 = true;
            }
        }
        while let Some(&(number, true)) = self.on_device.front() {
            self.on_device.pop_front();
            self.written_bytes += frame_bytes(&backed.memory.ledger.buffer(number));
            self.written.push(number);
        }
        // What has ended is noted though nobody watches, or it would be on its way for ever.
        let now_ns =
            if self.rate.observed.is_watching() { backed.memory.clock.now_ns() } else { 0 };
        if self.rate.observed.looked(now_ns, done_bytes) {
            self.rate.heed(&backed.memory);
        }
        Ok(())
    }

    /// Flushes the device, so that all frames written are durable. Returns the bytes given back to
    /// the budget.
    ///
    /// # Errors
    /// The device failed.
    pub fn flush_written(&mut self, backed: &Backed) -> Result<u64, RegionError> {
        Counters::add(&backed.memory.stats.device_flushes, 1);
        let is_alone = self.rate.observed.is_idle();
        let began_ns = if is_alone { backed.memory.clock.now_ns() } else { 0 };
        backed.log.device.flush().map_err(|error| backed.memory.latch(&error))?;
        if is_alone {
            let took_ns = backed.memory.clock.now_ns().saturating_sub(began_ns);
            self.rate.observed.flushed(self.written_bytes, took_ns);
        }
        self.pace.durable(backed.tracked.net_dirtied_bytes());
        let mut written = std::mem::take(&mut self.written);
        let freed = self.release(backed, &written);
        backed.log.appender.lock().free_buffers.append(&mut written);
        // Writers that wait for a frame buffer find these ones.
        backed.memory.budget.notify();
        // The vector's memory is used again.
        self.written = written;
        self.written_bytes = 0;
        Ok(freed)
    }

    /// Frees the buffers of durable frames and gives their bytes back to the budget. Returns the
    /// bytes.
    fn release(&mut self, backed: &Backed, durable: &[u32]) -> u64 {
        let mut freed = 0;
        for &number in durable {
            freed += backed.memory.ledger.buffer(number).charged_bytes().swap(0, AcqRel);
            free_buffer(&backed.memory.ledger, number);
        }
        // Bytes that writers captured are among them, so the count may be smaller.
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(freed);
        backed.memory.budget.give_back(&backed.memory.ledger, freed);
        freed
    }

    /// Waits until every outstanding write has ended, whatever its outcome.
    pub fn quiesce(&mut self) {
        let outstanding = self.queue.outstanding();
        // An error here has been latched by the device; the final flush writes these frames again.
        let _ = self.queue.wait(outstanding, &mut self.completions);
        self.completions.clear();
        self.rate.observed.forget_outstanding();
    }

    /// Forgets all frames on their way, because a flush has written and freed all buffers.
    pub fn forget_written(&mut self) {
        self.on_device.clear();
        self.written.clear();
        self.written_bytes = 0;
        self.in_flight_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_dirty::extent::Extent;
    use perdura_dirty::geometry::{BLOCK_BYTES, GRAIN_SHIFT_BARRIER, Geometry};
    use perdura_dirty::policy::PolicyKind;
    use perdura_dirty::sys::SharedMemory;
    use perdura_dirty::{BufferState, Lanes, Ledger, Memory, MemoryParts, Tracked};
    use perdura_media::{Device, SimClock, SimDevice};

    use super::*;
    use crate::codec::Compression;
    use crate::format::Layout;
    use crate::loads::Loads;
    use crate::log::Log;

    const BUDGET_BYTES: u64 = 1 << 20;
    const BUFFERS: u32 = 20;

    /// Memory of 64 blocks with an empty log, and the outlet to its device.
    fn backed() -> (Backed, Outlet, SimDevice) {
        let bytes = 64 * BLOCK_BYTES;
        let geometry = Geometry::new(bytes, GRAIN_SHIFT_BARRIER, None, BUFFERS).unwrap();
        let device = SimDevice::new(0, 1);
        device.grow(Layout::of(&geometry).segment_at(20)).unwrap();
        device.flush().unwrap();
        let ledger = Ledger::create(geometry, 7, bytes).unwrap();
        ledger.budget_limit().store(BUDGET_BYTES, Relaxed);
        ledger.segments().store(20, Relaxed);
        let file = SharedMemory::create("test", bytes).unwrap();
        let (map, clock) = (file.map().unwrap(), Arc::new(SimClock::new(1_000)));
        let (policy, recency, planted) = (PolicyKind::default(), false, Planted::None);
        let parts = MemoryParts { file, map, ledger, clock, policy, recency, planted };
        let memory = Arc::new(Memory::new(parts).unwrap());
        let log = Arc::new(device.clone());
        let log = Log::new(log, &memory.ledger, BUDGET_BYTES, Compression::Off, 100);
        let outlet = Outlet::new(log.device.queue(QUEUE_DEPTH).unwrap());
        let tracked = Tracked::new(memory, Lanes::new(1, 64), None);
        (Backed::new(tracked, log, Loads::new(None)), outlet, device)
    }

    /// Closes a frame with this many grains, which count in the budget.
    fn close(backed: &Backed, grains: u64) -> u64 {
        let (ledger, mut appender) = (&backed.memory.ledger, backed.log.appender.lock());
        assert!(backed.memory.budget.try_take(ledger, grains * 64));
        let run = Extent { grain: 0, len: grains };
        assert_eq!(appender.append(ledger, &backed.memory.map, run, true), Ok(grains));
        appender.close_frame(ledger, 0);
        grains * 64
    }

    fn frame_len(grains: u64) -> u64 {
        let payload = grains as usize * 64;
        (crate::format::frame_body_bytes(payload, 1) as u64).next_multiple_of(4096)
    }

    fn used(backed: &Backed) -> u64 {
        backed.memory.ledger.budget_used().load(Relaxed)
    }

    /// Asserts how many buffers are free, for the appender and in the ledger.
    fn expect_free(backed: &Backed, free: u32) {
        let mut numbers = backed.log.appender.lock().free_buffers.clone();
        numbers.sort_unstable();
        let is_free =
            |number: &u32| backed.memory.ledger.buffer(*number).state() == BufferState::Free;
        assert_eq!(numbers, Vec::from_iter((0..BUFFERS).filter(is_free)));
        assert_eq!(numbers.len(), free as usize);
    }

    #[test]
    fn bytes_return_to_the_budget_when_their_frames_are_durable_and_not_before() {
        let (backed, mut outlet, device) = backed();
        let polled = outlet.pump(&backed, Pump::Poll).unwrap();
        assert!(polled == 0 && !outlet.is_busy());
        let bytes = close(&backed, 10) + close(&backed, 100);
        outlet.in_flight_bytes = bytes + 5;
        // A poll begins with the flush of a batch only.
        while outlet.written_bytes() < 2 * frame_len(10) + 4096 {
            assert_eq!(outlet.pump(&backed, Pump::Poll).unwrap(), 0);
            assert!(outlet.is_busy());
        }
        assert_eq!(outlet.written_bytes(), frame_len(10) + frame_len(100));
        assert!(used(&backed) == bytes && device.unflushed_bytes() > 0);
        expect_free(&backed, BUFFERS - 2);
        let seen = backed.memory.budget.version();
        assert_eq!(outlet.pump(&backed, Pump::One).unwrap(), bytes);
        assert!(!outlet.is_busy() && device.unflushed_bytes() == 0);
        assert_ne!(backed.memory.budget.version(), seen, "whoever waits was not told");
        assert_eq!((used(&backed), outlet.written_bytes(), outlet.in_flight_bytes), (0, 0, 5));
        expect_free(&backed, BUFFERS);
        // More frames than the queue takes: all are durable.
        let bytes: u64 = (0..QUEUE_DEPTH as u64 + 2).map(|number| close(&backed, number + 1)).sum();
        assert_eq!(outlet.pump(&backed, Pump::Durable).unwrap(), bytes);
        assert!(!outlet.is_busy() && device.unflushed_bytes() == 0 && used(&backed) == 0);
        assert_eq!(backed.log.appender.lock().closed.len(), 0);
        expect_free(&backed, BUFFERS);
        let bytes = close(&backed, 7);
        assert_eq!(outlet.pump(&backed, Pump::One).unwrap(), bytes);
        let stats = backed.memory.stats.read();
        assert_eq!(stats.frames, 2 + QUEUE_DEPTH as u64 + 2 + 1);
    }

    #[test]
    fn a_batch_is_flushed_by_a_poll() {
        let (backed, mut outlet, device) = backed();
        let batch = pace::flush_batch(BUDGET_BYTES);
        let mut closed = 0;
        let mut frames = 0;
        while frames * frame_len(1000) < batch {
            closed += close(&backed, 1000);
            frames += 1;
        }
        let mut freed = 0;
        for _ in 0..1000 {
            freed += outlet.pump(&backed, Pump::Poll).unwrap();
        }
        assert_eq!((freed, used(&backed), device.unflushed_bytes()), (closed, 0, 0));
    }

    #[test]
    fn a_short_queue_has_one_write_at_a_time_and_a_device_flush_for_many() {
        let (backed, mut outlet, device) = backed();
        backed.memory.ledger.short_queue().store(1, Relaxed);
        let bytes: u64 = (0..8).map(|number| close(&backed, number + 1)).sum();
        outlet.submit_closed(&backed).unwrap();
        assert_eq!((outlet.queue.outstanding(), outlet.on_device.len()), (1, 1));
        let (flushes, used_before) = (backed.memory.stats.read().device_flushes, used(&backed));
        assert_eq!(outlet.pump(&backed, Pump::One).unwrap(), bytes);
        let stats = backed.memory.stats.read();
        assert_eq!((stats.device_flushes, stats.short_queue_frames), (flushes + 1, 8));
        assert_eq!((used(&backed), device.unflushed_bytes()), (used_before - bytes, 0));
        // A batch is worth a flush of its own.
        let batch = pace::flush_batch(BUDGET_BYTES);
        let frames = batch.div_ceil(frame_len(1000)) + 2;
        (0..frames).for_each(|_| _ = close(&backed, 1000));
        let freed = outlet.pump(&backed, Pump::One).unwrap();
        assert_eq!(freed, (frames - 2) * 1000 * 64);
        assert_eq!(outlet.pump(&backed, Pump::Durable).unwrap(), 2 * 1000 * 64);
        assert_eq!(used(&backed), 0);
        expect_free(&backed, BUFFERS);
    }

    #[test]
    fn frames_are_short_while_the_queue_is_and_a_smaller_budget_is_reached_with_all_the_device() {
        let (backed, mut outlet, _) = backed();
        let ledger = &backed.memory.ledger;
        let are_short = |outlet: &mut Outlet| {
            outlet.submit_closed(&backed).unwrap();
            let depth = outlet.queue.outstanding();
            outlet.pump(&backed, Pump::Durable).unwrap();
            (0..4).for_each(|_| _ = close(&backed, 1));
            (backed.log.appender.lock().are_frames_short, depth)
        };
        assert_eq!(are_short(&mut outlet), (false, 0));
        assert_eq!(are_short(&mut outlet), (false, 4));
        ledger.short_queue().store(1, Relaxed);
        assert_eq!(are_short(&mut outlet), (true, 1));
        // As after a drill, which makes another appender.
        backed.log.appender.lock().are_frames_short = false;
        assert_eq!(are_short(&mut outlet), (true, 1));
        backed.memory.budget.begin_shrink(BUDGET_BYTES / 2);
        assert_eq!(are_short(&mut outlet), (false, 4));
        backed.memory.budget.abandon_change();
        assert_eq!(are_short(&mut outlet), (true, 1));
        ledger.short_queue().store(0, Relaxed);
        assert_eq!(are_short(&mut outlet), (false, 4));
    }

    #[test]
    fn a_single_short_frame_is_durable_by_one_write_and_only_if_nothing_else_is_on_its_way() {
        let (backed, mut outlet, device) = backed();
        assert!(!outlet.write_single(&backed).unwrap(), "there is none");
        close(&backed, 3);
        assert!(outlet.write_single(&backed).unwrap());
        assert_eq!((used(&backed), device.unflushed_bytes()), (0, 0));
        assert_eq!((outlet.single_bytes, outlet.is_busy()), (frame_len(3), false));
        assert!(backed.log.appender.lock().prefers_written());
        expect_free(&backed, BUFFERS);
        let bytes = close(&backed, 3) + close(&backed, 4);
        assert!(!outlet.write_single(&backed).unwrap(), "there are two");
        assert_eq!(backed.log.appender.lock().closed.len(), 2);
        while outlet.written_bytes() == 0 {
            assert_eq!(outlet.pump(&backed, Pump::Poll).unwrap(), 0);
        }
        close(&backed, 5);
        assert!(!outlet.write_single(&backed).unwrap(), "others are on their way");
        assert_eq!(outlet.pump(&backed, Pump::Durable).unwrap(), bytes + 5 * 64);
        // The shortest frame that is not short.
        let grains = (1..).find(|grains| frame_len(*grains) >= SINGLE_BYTES_MAX).unwrap();
        for (grains, is_single) in [(grains, false), (grains - 1, true)] {
            close(&backed, grains);
            assert_eq!(outlet.write_single(&backed).unwrap(), is_single, "{grains}");
            outlet.pump(&backed, Pump::Durable).unwrap();
        }
        assert_eq!((used(&backed), device.unflushed_bytes()), (0, 0));
        expect_free(&backed, BUFFERS);
    }
}
