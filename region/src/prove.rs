//! The proven flush rate: measured by writing as the emergency flush does, not assumed.
//!
//! At least as many bytes as the budget has go to the free segments in the emergency flush's
//! layout: scattered records of 1 KiB are gathered into frames, checksummed, and written by the
//! same number of threads from the same buffers. A device flush ends the pass, so that a cache in
//! the device cannot improve the figure. The frames carry no magic number, so recovery never takes
//! them for data.
//!
//! A first pass is not counted: it turns reserved space into written space, which is faster from
//! then on. The conservative rate is the slower of the whole second pass and the 10th percentile of
//! its eighths.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use parking_lot::Mutex;
use perdura_media::{Clock, Completion, Device, DeviceError};

use crate::flush::flush_threads;
use crate::region::Region;
use perdura_dirty::sys::AlignedBytes;
use perdura_dirty::{Ledger, RegionError};
use perdura_image::format::FRAME_HEADER_BYTES;
use perdura_image::seal_for_proof;
use perdura_image::{Backed, Pump};

/// Bytes of the scattered source memory, more than processor caches hold.
const WINDOW_BYTES: usize = 64 << 20;
const RECORD_BYTES: usize = 1024;
const PARTS: u64 = 8;

/// A measured flush rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// The conservative rate, on which promises rest, bytes per second.
    pub rate_bytes_per_s: u64,
    /// Rate of the whole counted pass, its device flush included, bytes per second.
    pub mean_bytes_per_s: u64,
    /// Bytes written in the counted pass.
    pub bytes: u64,
    /// Time of the counted pass, nanoseconds.
    pub elapsed_ns: u64,
}

impl Region {
    /// Measures the flush rate with at least `bytes`, which are written twice: the first pass is
    /// not counted. `progress` is called with the bytes written so far, of `2 * bytes`. Cleaning
    /// stands still meanwhile.
    pub fn prove(
        &self,
        bytes: u64,
        threads: usize,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Proof, RegionError> {
        let (running, backed) = (self.running(), &self.running().backed);
        backed.memory.check()?;
        running.prepare_buffers();
        let mut cleaner = running.open_cleaner()?;
        backed.log.appender.lock().close_frame(&backed.memory.ledger, 0);
        cleaner.outlet.pump(backed, Pump::Durable)?;
        let buffers = std::mem::take(&mut backed.log.appender.lock().free_buffers);
        let proof = self.prove_with(&buffers, bytes, threads, progress);
        // Writers that found no free buffer meanwhile wait until the cleaner is released.
        let mut appender = backed.log.appender.lock();
        appender.free_buffers.extend(buffers);
        appender.sort_free(&backed.memory.ledger);
        drop(appender);
        proof
    }

    fn prove_with(
        &self,
        buffers: &[u32],
        bytes: u64,
        threads: usize,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Proof, RegionError> {
        let backed = &self.running().backed;
        let mut segments: Vec<u32> =
            backed.log.appender.lock().free_segments.iter().copied().collect();
        segments.sort_unstable();
        if segments.is_empty() {
            return Err(backed.log.full());
        }
        let threads = flush_threads(threads);
        let run = |before: u64| {
            Pass {
                backed,
                segments: &segments,
                buffers: buffers
                    .chunks_exact((buffers.len() / threads).max(1))
                    .take(threads)
                    .collect(),
                bytes,
                progress,
                before,
                next: AtomicUsize::new(0),
                done: Done::nothing_of(bytes),
            }
            .run()
        };
        let failed = |error: DeviceError| backed.memory.latch(&error);
        run(0).map_err(failed)?;
        run(bytes).map_err(failed)
    }
}

struct Pass<'a> {
    backed: &'a Backed,
    segments: &'a [u32],
    /// The frame buffers of each thread.
    buffers: Vec<&'a [u32]>,
    bytes: u64,
    progress: &'a (dyn Fn(u64) + Sync),
    before: u64,
    next: AtomicUsize,
    done: Done,
}

/// What a pass has written, and when each of its parts was.
struct Done {
    /// Bytes that the pass is to write; it may write a few more.
    of_bytes: u64,
    bytes: AtomicU64,
    /// The times at which a further part was written.
    marks_ns: Mutex<Vec<u64>>,
}

impl Pass<'_> {
    fn run(self) -> Result<Proof, DeviceError> {
        let window = filled_window()?;
        let began_ns = self.backed.memory.clock.now_ns();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (self.buffers.iter().enumerate())
                .map(|(index, buffers)| {
                    scope.spawn({
                        let (pass, window) = (&self, &window);
                        move || pass.write(window.as_slice(), index, buffers)
                    })
                })
                .collect();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        self.backed.log.device.flush()?;
        Ok(self.done.proof(began_ns, self.backed.memory.clock.now_ns()))
    }

    fn write(&self, window: &[u8], index: usize, buffers: &[u32]) -> Result<(), DeviceError> {
        let ledger = &self.backed.memory.ledger;
        let frame_bytes = ledger.geometry().frame_limit();
        let frames = (ledger.geometry().segment_bytes / frame_bytes) as usize;
        let mut idle = buffers.to_vec();
        let mut queue = self.backed.log.device.queue(buffers.len())?;
        let mut completions = Vec::new();
        let mut position = index.wrapping_mul(7_919);
        loop {
            let number = self.next.fetch_add(1, Relaxed);
            if (number / frames * frames) as u64 * frame_bytes >= self.bytes {
                break;
            }
            while idle.is_empty() {
                queue.wait(1, &mut completions)?;
                self.account(&mut completions, &mut idle, frame_bytes)?;
            }
            let Some(own) = idle.pop() else { continue };
            let buffer = ledger.buffer(own);
            // SAFETY: the buffer was free, is taken from the appender while the proof lasts, and
            // belongs to this thread.
            let frame = unsafe { buffer.bytes_mut(0, frame_bytes as usize) };
            fill_frame(ledger, frame, window, &mut position);
            let segment = self.segments[number / frames % self.segments.len()];
            ledger.segment(segment).set_written();
            let at =
                self.backed.log.layout.segment_at(segment) + (number % frames) as u64 * frame_bytes;
            // SAFETY: the buffer lies in the ledger's mapping, which outlives the queue (dropping
            // it waits), and is not touched again before its completion is reaped.
            unsafe {
                queue.submit(
                    u64::from(own),
                    at,
                    buffer.device_bytes(frame_bytes),
                    frame_bytes as usize,
                )
            }?;
        }
        while queue.outstanding() > 0 {
            queue.wait(1, &mut completions)?;
            self.account(&mut completions, &mut idle, frame_bytes)?;
        }
        Ok(())
    }

    fn account(
        &self,
        completions: &mut Vec<Completion>,
        idle: &mut Vec<u32>,
        frame_bytes: u64,
    ) -> Result<(), DeviceError> {
        for completion in completions.drain(..) {
            completion.result?;
            idle.push(completion.token as u32);
            let done = self.done.add(frame_bytes, &*self.backed.memory.clock);
            (self.progress)(self.before + done);
        }
        Ok(())
    }
}

impl Done {
    fn nothing_of(of_bytes: u64) -> Self {
        Self { of_bytes, bytes: AtomicU64::new(0), marks_ns: Mutex::new(Vec::new()) }
    }

    /// Adds bytes, and returns how many there are then.
    fn add(&self, bytes: u64, clock: &dyn Clock) -> u64 {
        let before = self.bytes.fetch_add(bytes, AcqRel);
        let part = |done: u64| done * PARTS / self.of_bytes.max(1);
        if part(before + bytes) > part(before) {
            self.marks_ns.lock().push(clock.now_ns());
        }
        before + bytes
    }

    fn proof(self, began_ns: u64, ended_ns: u64) -> Proof {
        let elapsed_ns = (ended_ns - began_ns).max(1);
        let bytes = self.bytes.into_inner();
        let per_second = |bytes: u64, ns: u64| {
            (u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1))) as u64
        };
        let mean = per_second(bytes, elapsed_ns);
        let mut marks = self.marks_ns.into_inner();
        marks.sort_unstable();
        let mut eighths: Vec<u64> = std::iter::once(began_ns)
            .chain(marks.iter().copied())
            .zip(&marks)
            .map(|(from_ns, to_ns)| per_second(bytes / PARTS, to_ns - from_ns))
            .collect();
        eighths.sort_unstable();
        // Of eight parts the slowest is the 10th percentile. The parts of a short pass are too
        // small to count.
        let slowest = eighths.first().copied().filter(|_| bytes >= 64 << 20).unwrap_or(mean);
        Proof { rate_bytes_per_s: mean.min(slowest), mean_bytes_per_s: mean, bytes, elapsed_ns }
    }
}

fn aligned(len: usize) -> Result<AlignedBytes, DeviceError> {
    AlignedBytes::zeroed(len).map_err(|errno| DeviceError::Io {
        op: "buffer for a rate proof",
        offset_bytes: 0,
        len_bytes: len as u64,
        source: errno.into(),
    })
}

fn filled_window() -> Result<AlignedBytes, DeviceError> {
    let mut window = aligned(WINDOW_BYTES)?;
    // Random words: a device that compresses must not be faster here than with real data.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for word in window.as_mut().chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    Ok(window)
}

/// Does as much work as filling and sealing a frame of scattered records: gathering, and checksums
/// or encryption.
fn fill_frame(ledger: &Ledger, frame: &mut [u8], window: &[u8], position: &mut usize) {
    let payload_max = frame.len() * 63 / 64 - FRAME_HEADER_BYTES;
    let records = payload_max / RECORD_BYTES;
    let slots = window.len() / RECORD_BYTES;
    let (head, rest) = frame.split_at_mut(FRAME_HEADER_BYTES);
    head.fill(0);
    let (payload, tail) = rest.split_at_mut(records * RECORD_BYTES);
    for record in payload.chunks_exact_mut(RECORD_BYTES) {
        *position = position
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let from = (*position >> 20) % slots * RECORD_BYTES;
        record.copy_from_slice(&window[from..from + RECORD_BYTES]);
    }
    seal_for_proof(ledger, payload, tail);
}

#[cfg(test)]
mod tests {
    use perdura_dirty::geometry::{GRAIN_SHIFT_BARRIER, Geometry};
    use perdura_image::format::{CHECK_BYTES, SUM_BYTES, block_sum};
    use perdura_media::SimClock;

    use super::*;

    #[test]
    fn the_slowest_eighth_is_what_a_promise_rests_on_if_the_pass_was_long_enough() {
        const FRAME: u64 = 1 << 20;
        let proof = |frames: u64, slow: u64| {
            let (clock, done) = (SimClock::new(0), Done::nothing_of(frames * FRAME));
            for frame in 0..frames {
                clock.advance_ns(if frame * 8 / frames == slow { 4_000_000 } else { 1_000_000 });
                assert_eq!(done.add(FRAME, &clock), (frame + 1) * FRAME);
            }
            done.proof(0, clock.now_ns())
        };
        for slow in 0..8 {
            let found = proof(128, slow);
            assert_eq!((found.bytes, found.elapsed_ns), (128 * FRAME, 176_000_000));
            assert_eq!(found.rate_bytes_per_s, 250 * FRAME, "the slow eighth is {slow}");
            assert_eq!(found.mean_bytes_per_s, 128 * FRAME * 1_000 / 176);
            let short = proof(32, slow);
            assert_eq!(short.rate_bytes_per_s, short.mean_bytes_per_s);
        }
    }

    #[test]
    fn a_frame_of_a_proof_is_full_of_scattered_records_and_their_checksums() {
        let record = |number: usize| [number as u8; RECORD_BYTES];
        let window: Vec<u8> = (1..=200).flat_map(record).collect();
        let geometry = Geometry::new(1 << 20, GRAIN_SHIFT_BARRIER, None, 4).unwrap();
        let ledger = Ledger::create(geometry, 7, 1 << 20).unwrap();
        let mut position = 7;
        for len in [64 << 10, 1 << 20] {
            let mut frame = vec![0xff; len];
            fill_frame(&ledger, &mut frame, &window, &mut position);
            let (head, rest) = frame.split_at(FRAME_HEADER_BYTES);
            assert!(head.iter().all(|byte| *byte == 0), "recovery takes the frame for data");
            // All but a 64th and less than a record.
            let records = (len - len / 64 - FRAME_HEADER_BYTES) / RECORD_BYTES;
            let (payload, sums) = rest.split_at(records * RECORD_BYTES);
            let numbers: Vec<_> = payload.chunks(RECORD_BYTES).map(|record| record[0]).collect();
            for (found, number) in payload.chunks(RECORD_BYTES).zip(&numbers) {
                assert_eq!(found, record(usize::from(*number)));
            }
            let follow = numbers.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
            assert!(follow * 8 < records, "{follow} of {records} records follow each other");
            let mut distinct = numbers;
            distinct.sort_unstable();
            distinct.dedup();
            assert!(distinct.len() * 4 > records.min(200), "{} records", distinct.len());
            for (block, sum) in payload.chunks(CHECK_BYTES).zip(sums.chunks(SUM_BYTES)) {
                assert_eq!(sum, block_sum(block));
            }
        }
    }
}
