//! The proven flush rate: measured by doing what the emergency flush does, not assumed.
//!
//! At least the budget's bytes go to the free segments in the emergency flush's layout: scattered 1
//! KiB records gathered into frames, checksummed, written by the same number of threads from the
//! same buffers, ended by a device flush so that a cache in the device cannot flatter the figure.
//! The frames carry no magic, so recovery never sees them. A first pass over fresh space is not
//! counted: it also turns reserved space into written space, which is faster from then on. What
//! counts is the slower of the whole pass and the 10th percentile of its eighths.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use parking_lot::Mutex;
use perdura_media::{Completion, Device, DeviceError};

use crate::flush::flush_threads;
use crate::region::Region;
use perdura_dirty::RegionError;
use perdura_dirty::sys::AlignedBytes;
use perdura_image::format::{CHECK_BYTES, FRAME_HEADER_BYTES, checksum};
use perdura_image::{Backed, Pump};

/// Scattered source memory, larger than processor caches.
const WINDOW_BYTES: usize = 64 << 20;
const RECORD_BYTES: usize = 1024;
const PARTS: u64 = 8;

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// The conservative rate, bytes per second.
    pub rate_bytes_per_s: u64,
    /// Rate of the whole pass including the last device flush, bytes per second.
    pub mean_bytes_per_s: u64,
    /// Bytes written in the counted pass.
    pub bytes: u64,
    /// Time of the counted pass, nanoseconds.
    pub elapsed_ns: u64,
}

impl Region {
    /// Measures the flush rate with at least `bytes` (twice: the first pass is not counted).
    /// `progress` is told the bytes written so far, of `2 * bytes`. Cleaning stands still
    /// meanwhile.
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
        // Writers that met none meanwhile wait for the cleaner, which is held.
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
                done_bytes: AtomicU64::new(0),
                marks_ns: Mutex::new(Vec::new()),
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
    /// A share for each thread.
    buffers: Vec<&'a [u32]>,
    bytes: u64,
    progress: &'a (dyn Fn(u64) + Sync),
    before: u64,
    next: AtomicUsize,
    done_bytes: AtomicU64,
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
        let elapsed_ns = (self.backed.memory.clock.now_ns() - began_ns).max(1);
        let bytes = self.done_bytes.into_inner();
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
        // With eight parts the 10th percentile is the slowest; short passes have no parts worth
        // counting.
        let slowest = eighths.first().copied().filter(|_| bytes >= 64 << 20).unwrap_or(mean);
        Ok(Proof { rate_bytes_per_s: mean.min(slowest), mean_bytes_per_s: mean, bytes, elapsed_ns })
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
            fill_frame(unsafe { buffer.bytes_mut(0, frame_bytes as usize) }, window, &mut position);
            let segment = self.segments[number / frames % self.segments.len()];
            ledger.segment(segment).set_written();
            let at =
                self.backed.log.layout.segment_at(segment) + (number % frames) as u64 * frame_bytes;
            // SAFETY: the buffer lies in the ledger's mapping, which outlives the queue (dropping
            // it waits), and is not touched again before its completion is reaped.
            unsafe {
                queue.submit(u64::from(own), at, buffer.device_bytes(), frame_bytes as usize)
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
            let before = self.done_bytes.fetch_add(frame_bytes, AcqRel);
            let part = |done: u64| done * PARTS / self.bytes.max(1);
            if part(before + frame_bytes) > part(before) {
                self.marks_ns.lock().push(self.backed.memory.clock.now_ns());
            }
            (self.progress)(self.before + before + frame_bytes);
        }
        Ok(())
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
    // Not zeros: a device that compresses must not profit.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for word in window.as_mut().chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    Ok(window)
}

/// As much work as sealing a frame of scattered records: gather, checksum, table.
fn fill_frame(frame: &mut [u8], window: &[u8], position: &mut usize) {
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
    for (sum, block) in tail.chunks_exact_mut(8).zip(payload.chunks(CHECK_BYTES)) {
        sum.copy_from_slice(&checksum(block).to_le_bytes());
    }
}
