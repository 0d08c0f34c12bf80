//! The emergency flush: everything dirty to the SSD, sequentially, by whoever holds memory, ledger and image.
//!
//! It needs no process that wrote the data. First it settles what such a process left half done: frames in
//! the buffers are completed and written again to the same places with the same bytes, so that writes which
//! are still on their way can do no harm. Then dirty grains go, in address order and from several threads,
//! into the free segments that cleaning was never allowed to use; then one device flush; then the commit.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use perdura_media::{Completion, Device, DeviceError};

use crate::append::{Appender, Refusal, frame_bytes, free_buffer, free_segment, runs, seal};
use crate::error::RegionError;
use crate::format::{Extent, Layout};
use crate::image::{SlotContents, write_slot};
use crate::ledger::{BUFFER_FREE, Ledger, NO_HOME, SEGMENT_FREE, SEGMENT_USED};
use crate::sys::{Mapping, prefetch};

/// Bitmap words a thread takes at a time: 256 KiB of region at 64 B grains.
const WORDS_PER_CLAIM: usize = 64;

/// How many bitmap words ahead memory is asked for: 4 KiB each at 64 B grains.
const WORDS_AHEAD: usize = 2;

/// How to flush.
#[derive(Debug, Clone, Copy)]
pub struct FlushOptions {
    /// Threads that copy and write.
    pub threads: usize,
    /// Milliseconds since 1970, recorded in the commit.
    pub unix_ms: u64,
}

/// What a flush did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlushReport {
    /// Dirty bytes written.
    pub dirty_bytes: u64,
    /// Bytes written to the device, frames and commit slots.
    pub device_bytes: u64,
    /// Bytes of half-done frames written again.
    pub settled_bytes: u64,
    /// Extents written.
    pub extents: u64,
}

/// Completes and writes the frames that a stopped process left in its buffers; durable on return. The
/// account of dirty bytes is made anew.
pub(crate) fn settle(
    ledger: &Ledger,
    layout: &Layout,
    device: &dyn Device,
) -> Result<u64, DeviceError> {
    let image_id = ledger.image_id().load(Acquire);
    let mut written = 0;
    for number in 0..ledger.geometry().buffers {
        let buffer = ledger.buffer(number);
        if buffer.state().load(Acquire) == BUFFER_FREE {
            continue;
        }
        let segment = buffer.segment().load(Acquire) as u32;
        let at = buffer.segment_offset().load(Acquire);
        let len = frame_bytes(&buffer);
        seal(ledger, &buffer, image_id, ledger.epoch().load(Relaxed));
        // SAFETY: the process that filled the buffer is gone or stopped; nobody else writes it.
        let bytes = unsafe { buffer.bytes_mut(0, len as usize) };
        device.write_at(layout.segment_at(segment) + at, bytes)?;
        ledger.segment(segment).used_bytes().fetch_max(at + len, AcqRel);
        ledger.next_seq().fetch_max(buffer.seq().load(Acquire) + 1, AcqRel);
        written += len;
    }
    device.flush()?;
    for number in 0..ledger.geometry().buffers {
        ledger.buffer(number).charged_bytes().store(0, Relaxed);
        free_buffer(ledger, number);
    }
    let segments = ledger.segments().load(Acquire) as u32;
    for number in 0..segments {
        let entry = ledger.segment(number);
        if entry.used_bytes().load(Acquire) == 0 {
            entry.set_state(SEGMENT_FREE);
        }
    }
    // An epoch cut short never closes; what it owed is owed by the current one, with newer contents.
    let parity = ledger.epoch().load(Acquire);
    let mut dirty_grains = 0;
    let words = ledger.words_in_use();
    let bitmaps = ledger.bitmap(parity)[..words].iter().zip(&ledger.bitmap(parity ^ 1)[..words]);
    for (current, closing) in bitmaps {
        let owed = closing.load(Acquire);
        if owed != 0 {
            current.fetch_or(owed, AcqRel);
            closing.store(0, Release);
        }
        dirty_grains += u64::from(current.load(Relaxed).count_ones());
    }
    ledger.closing().store(0, Release);
    ledger.budget_used().store(dirty_grains << ledger.geometry().grain_shift, Release);
    Ok(written)
}

/// Flushes everything and commits it as final. Nobody may write the region meanwhile.
pub(crate) fn flush_all(
    ledger: &Ledger,
    map: &Mapping,
    layout: &Layout,
    device: &dyn Device,
    options: FlushOptions,
) -> Result<FlushReport, RegionError> {
    let failed = |error: DeviceError| RegionError::Latched { cause: error.to_string() };
    let mut report = FlushReport {
        settled_bytes: settle(ledger, layout, device).map_err(failed)?,
        ..Default::default()
    };
    let segments = ledger.segments().load(Acquire) as u32;
    let mut free: Vec<u32> =
        (0..segments).filter(|number| ledger.segment(*number).state() == SEGMENT_FREE).collect();
    // Space that has been written before is up to twice as fast to write as reserved, unwritten space.
    free.sort_by_key(|number| !ledger.segment(*number).was_written());
    let work = Work {
        ledger,
        map,
        layout,
        device,
        free: &free,
        next_free: AtomicUsize::new(0),
        next_word: AtomicUsize::new(0),
        words: ledger.words_in_use(),
        dirty_bytes: AtomicU64::new(0),
        device_bytes: AtomicU64::new(0),
        extents: AtomicU64::new(0),
    };
    let written =
        work.run_all(flush_threads(options.threads)).and_then(|()| device.flush().map_err(failed));
    if let Err(error) = written {
        undo(ledger, &free, work.words);
        return Err(error);
    }
    let needed: Vec<bool> =
        (0..segments).map(|number| ledger.segment(number).state() == SEGMENT_USED).collect();
    let slot = SlotContents {
        needed: &needed,
        last_seq: ledger.next_seq().load(Acquire) - 1,
        is_final: true,
        unix_ms: options.unix_ms,
    };
    let slot_bytes = write_slot(ledger, layout, device, &slot, false).map_err(failed)?;
    report.dirty_bytes = work.dirty_bytes.into_inner();
    report.device_bytes = work.device_bytes.into_inner() + report.settled_bytes + slot_bytes;
    report.extents = work.extents.into_inner();
    // Cleared only now: a flush that fails or is killed on the way is repeated from memory as a whole.
    for bits in &ledger.bitmap(ledger.epoch().load(Acquire))[..work.words] {
        bits.store(0, Release);
    }
    ledger.budget_used().store(0, Release);
    Ok(report)
}

/// Threads a flush really uses: the emergency reserve is reckoned for so many ends of segments.
pub(crate) fn flush_threads(wanted: usize) -> usize {
    wanted.clamp(1, 4)
}

/// The frames of a failed attempt may be lost though their writes completed: their segments are free again,
/// and their grains, all of which are still dirty, live nowhere.
fn undo(ledger: &Ledger, taken_from: &[u32], words: usize) {
    for number in 0..ledger.geometry().buffers {
        ledger.buffer(number).charged_bytes().store(0, Relaxed);
        free_buffer(ledger, number);
    }
    let bitmap = ledger.bitmap(ledger.epoch().load(Acquire));
    for (word, bits) in bitmap[..words].iter().enumerate() {
        for run in runs(word, bits.load(Acquire)) {
            for home in &ledger.homes()[run.grain as usize..(run.grain + run.len) as usize] {
                home.store(NO_HOME, Release);
            }
        }
    }
    for &number in taken_from {
        free_segment(ledger, number);
    }
}

struct Work<'a> {
    ledger: &'a Ledger,
    map: &'a Mapping,
    layout: &'a Layout,
    device: &'a dyn Device,
    /// Segments for the taking, in the order they are taken, by all threads.
    free: &'a [u32],
    next_free: AtomicUsize,
    next_word: AtomicUsize,
    words: usize,
    dirty_bytes: AtomicU64,
    device_bytes: AtomicU64,
    extents: AtomicU64,
}

impl Work<'_> {
    fn run_all(&self, threads: usize) -> Result<(), RegionError> {
        let buffers: Vec<u32> = (0..self.ledger.geometry().buffers).collect();
        let mut appenders =
            buffers.chunks_exact(buffers.len() / threads).take(threads).map(|own| {
                let segment_bytes = self.ledger.geometry().segment_bytes;
                Appender::for_flush(own.to_vec(), VecDeque::new(), segment_bytes)
            });
        if threads == 1 {
            return appenders.next().map_or(Ok(()), |appender| self.run(appender));
        }
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                appenders.map(|appender| scope.spawn(move || self.run(appender))).collect();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }

    fn run(&self, mut appender: Appender) -> Result<(), RegionError> {
        let failed = |error: DeviceError| RegionError::Latched { cause: error.to_string() };
        let depth = appender.free_buffers.len();
        let mut queue = self.device.queue(depth).map_err(failed)?;
        let mut completions = Vec::new();
        let parity = self.ledger.epoch().load(Acquire);
        let bitmap = self.ledger.bitmap(parity);
        loop {
            let from = self.next_word.fetch_add(WORDS_PER_CLAIM, Relaxed);
            if from >= self.words {
                break;
            }
            for word in from..self.words.min(from + WORDS_PER_CLAIM) {
                if let Some(ahead) = bitmap.get(word + WORDS_AHEAD) {
                    self.prefetch(word + WORDS_AHEAD, ahead.load(Relaxed));
                }
                for run in runs(word, bitmap[word].load(Acquire)) {
                    self.append(&mut appender, run, &mut *queue, &mut completions)?;
                }
            }
        }
        appender.close_frame(self.ledger, 0);
        self.submit(&mut appender, &mut *queue)?;
        while queue.outstanding() > 0 {
            self.reap(&mut appender, &mut *queue, &mut completions, 1)?;
        }
        Ok(())
    }

    /// Scattered records are found by waiting for memory: ask for the first lines of the next ones early.
    fn prefetch(&self, word: usize, bits: u64) {
        let grain_bytes = self.ledger.geometry().grain_bytes();
        for run in runs(word, bits) {
            let bytes = run.len * grain_bytes;
            for line in (0..bytes.min(4 * 64)).step_by(64) {
                prefetch(self.map.base().wrapping_add((run.grain * grain_bytes + line) as usize));
            }
            prefetch((&raw const self.ledger.homes()[run.grain as usize]).cast());
        }
    }

    fn append(
        &self,
        appender: &mut Appender,
        mut run: Extent,
        queue: &mut dyn perdura_media::WriteQueue,
        completions: &mut Vec<Completion>,
    ) -> Result<(), RegionError> {
        self.extents.fetch_add(1, Relaxed);
        self.dirty_bytes.fetch_add(run.len * self.ledger.geometry().grain_bytes(), Relaxed);
        while run.len > 0 {
            match appender.append(self.ledger, self.map, run, false) {
                Ok(len) => run = Extent { grain: run.grain + len, len: run.len - len },
                Err(Refusal::NoBuffer) => {
                    self.submit(appender, queue)?;
                    self.reap(appender, queue, completions, 1)?;
                }
                Err(Refusal::NoSegment) => {
                    match self.free.get(self.next_free.fetch_add(1, Relaxed)) {
                        Some(&segment) => appender.free_segments.push_back(segment),
                        None => {
                            return Err(RegionError::LogFull {
                                free_segments: 0,
                                reserve_segments: self.free.len() as u32,
                            });
                        }
                    }
                }
            }
            if !appender.closed.is_empty() {
                self.submit(appender, queue)?;
            }
        }
        Ok(())
    }

    fn submit(
        &self,
        appender: &mut Appender,
        queue: &mut dyn perdura_media::WriteQueue,
    ) -> Result<(), RegionError> {
        let failed = |error: DeviceError| RegionError::Latched { cause: error.to_string() };
        let image_id = self.ledger.image_id().load(Relaxed);
        while let Some(number) = appender.closed.pop_front() {
            let buffer = self.ledger.buffer(number);
            seal(self.ledger, &buffer, image_id, self.ledger.epoch().load(Relaxed));
            let at = self.layout.segment_at(buffer.segment().load(Relaxed) as u32)
                + buffer.segment_offset().load(Relaxed);
            let len = frame_bytes(&buffer);
            self.device_bytes.fetch_add(len, Relaxed);
            // SAFETY: the buffer lies in the ledger's mapping, which outlives this call's queue (dropping
            // the queue waits), and is this thread's own until its completion is reaped.
            unsafe { queue.submit(u64::from(number), at, buffer.device_bytes(), len as usize) }
                .map_err(failed)?;
        }
        Ok(())
    }

    fn reap(
        &self,
        appender: &mut Appender,
        queue: &mut dyn perdura_media::WriteQueue,
        completions: &mut Vec<Completion>,
        at_least: usize,
    ) -> Result<(), RegionError> {
        let failed = |error: DeviceError| RegionError::Latched { cause: error.to_string() };
        queue.wait(at_least, completions).map_err(failed)?;
        for completion in completions.drain(..) {
            completion.result.map_err(failed)?;
            // Only completed, not durable: but the region is closed, and a flush that fails before the
            // final commit is repeated from memory as a whole.
            free_buffer(self.ledger, completion.token as u32);
            appender.free_buffers.push(completion.token as u32);
        }
        Ok(())
    }
}
