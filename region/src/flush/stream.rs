//! Copying and writing during a flush. Threads share the bitmap by claims and the free segments by
//! a counter; frames, queue and account belong to one thread each.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use perdura_media::{Completion, Device, DeviceError, WriteQueue};

use perdura_dirty::extent::{Extent, runs};
use perdura_dirty::geometry::WORD_GRAINS;
use perdura_dirty::sys::{Mapping, prefetch};
use perdura_dirty::{Ledger, RegionError};
use perdura_image::format::Layout;
use perdura_image::{Appender, Refusal, frame_bytes, free_buffer, seal};

/// Bitmap words that a thread claims at a time: 256 KiB of region with grains of 64 B.
const WORDS_PER_CLAIM: usize = 64;

/// How many bitmap words ahead memory is prefetched: 4 KiB each with grains of 64 B.
const WORDS_AHEAD: usize = 2;

/// The segment that has the dirty grains of a stretch of the region.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    from_grain: u64,
    to_grain: u64,
    pub segment: u32,
}

impl Placed {
    /// The non-zero bitmap words of the stretch, without the bits of other stretches.
    pub(super) fn words<'b>(
        self,
        bitmap: &'b [AtomicU64],
    ) -> impl Iterator<Item = (usize, u64)> + use<'b> {
        let words = self.from_grain / WORD_GRAINS..self.to_grain.div_ceil(WORD_GRAINS);
        words.filter_map(move |word| {
            let start = word * WORD_GRAINS;
            let from = self.from_grain.max(start);
            let to = self.to_grain.min(start + WORD_GRAINS);
            let mask = perdura_dirty::extent::mask(from - start, to - from);
            let bits = bitmap[word as usize].load(Acquire) & mask;
            (bits != 0).then_some((word as usize, bits))
        })
    }
}

/// The outcome of one thread's writing, or of all.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub dirty_bytes: u64,
    pub device_bytes: u64,
    pub extents: u64,
    /// The stretches, a few words for each claim: little beside the bitmap.
    pub placed: Vec<Placed>,
}

pub(super) struct Stream<'a> {
    ledger: &'a Ledger,
    map: &'a Mapping,
    layout: &'a Layout,
    device: &'a dyn Device,
    /// Free segments, in the order in which the threads take them.
    free: &'a [u32],
    next_free: AtomicUsize,
    next_word: AtomicUsize,
    bitmap: &'a [AtomicU64],
}

impl<'a> Stream<'a> {
    pub(super) fn new(
        ledger: &'a Ledger,
        map: &'a Mapping,
        layout: &'a Layout,
        device: &'a dyn Device,
        free: &'a [u32],
    ) -> Self {
        let bitmap = &ledger.bitmap(ledger.epoch().load(Acquire))[..ledger.words_in_use()];
        let (next_free, next_word) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { ledger, map, layout, device, free, next_free, next_word, bitmap }
    }

    /// Writes all dirty grains. All writes have completed on return, but none need be durable.
    pub(super) fn run(&self, threads: usize) -> Result<Written, RegionError> {
        let buffers: Vec<u32> = (0..self.ledger.geometry().buffers).collect();
        let mut shares = buffers.chunks_exact(buffers.len() / threads).take(threads);
        let own = shares.next();
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = shares
                .filter_map(|own| {
                    let worker = std::thread::Builder::new()
                        .spawn_scoped(scope, move || self.run_worker(own))
                        .inspect_err(|error| tracing::warn!(%error, "flushing with fewer threads"));
                    worker.ok()
                })
                .collect();
            // If the system starts no more threads, this one writes everything.
            let outcome = own.map_or(Ok(Written::default()), |own| self.run_worker(own));
            let outcomes = workers.into_iter().map(|worker| worker.join());
            outcomes.chain([Ok(outcome)]).collect()
        });
        let mut written = Written::default();
        for outcome in outcomes {
            let part = match outcome {
                Ok(outcome) => outcome?,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            written.dirty_bytes += part.dirty_bytes;
            written.device_bytes += part.device_bytes;
            written.extents += part.extents;
            written.placed.extend(part.placed);
        }
        Ok(written)
    }

    fn run_worker(&self, buffers: &[u32]) -> Result<Written, RegionError> {
        let frame_bytes_max = self.ledger.geometry().frame_limit();
        let mut worker = Worker {
            stream: self,
            appender: Appender::new(buffers.to_vec(), VecDeque::new(), 0, frame_bytes_max),
            queue: self.device.queue(buffers.len()).map_err(failed)?,
            completions: Vec::new(),
            written: Written::default(),
        };
        worker.run()?;
        Ok(worker.written)
    }

    /// Claims the next stretch of bitmap words.
    fn claim(&self) -> Option<std::ops::Range<usize>> {
        let from = self.next_word.fetch_add(WORDS_PER_CLAIM, Relaxed);
        let to = self.bitmap.len().min(from + WORDS_PER_CLAIM);
        (from < to).then_some(from..to)
    }

    /// Prefetches the first cache lines of the dirty runs in a word. Without that, scattered
    /// records cost a wait for memory each.
    fn prefetch(&self, word: usize) {
        let Some(bits) = self.bitmap.get(word) else { return };
        let grain_bytes = self.ledger.geometry().grain_bytes();
        for run in runs(word, bits.load(Relaxed)) {
            let bytes = run.len * grain_bytes;
            for line in (0..bytes.min(4 * 64)).step_by(64) {
                prefetch(self.map.base().wrapping_add((run.grain * grain_bytes + line) as usize));
            }
        }
    }
}

struct Worker<'s, 'a> {
    stream: &'s Stream<'a>,
    appender: Appender,
    queue: Box<dyn WriteQueue>,
    completions: Vec<Completion>,
    written: Written,
}

impl Worker<'_, '_> {
    fn run(&mut self) -> Result<(), RegionError> {
        while let Some(words) = self.stream.claim() {
            let mut begins = true;
            for word in words {
                self.stream.prefetch(word + WORDS_AHEAD);
                for run in runs(word, self.stream.bitmap[word].load(Acquire)) {
                    self.append(run, begins)?;
                    begins = false;
                }
            }
        }
        self.appender.close_frame(self.stream.ledger, 0);
        self.submit()?;
        while self.queue.outstanding() > 0 {
            self.reap()?;
        }
        Ok(())
    }

    /// Appends a run of dirty grains. `begins` says that the run is the first of a claim: the
    /// grains before it may be another thread's.
    fn append(&mut self, mut run: Extent, begins: bool) -> Result<(), RegionError> {
        let Stream { ledger, map, free, next_free, .. } = self.stream;
        self.written.extents += 1;
        self.written.dirty_bytes += run.len * ledger.geometry().grain_bytes();
        let mut joins = !begins;
        while run.len > 0 {
            match self.appender.put(ledger, *map, run) {
                Ok((len, segment)) => {
                    let to_grain = run.grain + len;
                    match self.written.placed.last_mut() {
                        Some(last) if joins && last.segment == segment => last.to_grain = to_grain,
                        _ => {
                            let from_grain = run.grain;
                            self.written.placed.push(Placed { from_grain, to_grain, segment });
                        }
                    }
                    joins = true;
                    run = Extent { grain: to_grain, len: run.len - len };
                }
                Err(Refusal::NoBuffer) => {
                    self.submit()?;
                    self.reap()?;
                }
                Err(Refusal::NoSegment) => match free.get(next_free.fetch_add(1, Relaxed)) {
                    Some(&segment) => self.appender.free_segments.push_back(segment),
                    None => {
                        return Err(RegionError::LogFull {
                            free_segments: 0,
                            reserve_segments: free.len() as u32,
                        });
                    }
                },
            }
            if !self.appender.closed.is_empty() {
                self.submit()?;
            }
        }
        Ok(())
    }

    fn submit(&mut self) -> Result<(), RegionError> {
        let Stream { ledger, layout, .. } = self.stream;
        let image_id = ledger.image_id().load(Relaxed);
        while let Some(number) = self.appender.closed.pop_front() {
            let buffer = ledger.buffer(number);
            seal(ledger, &buffer, image_id, ledger.epoch().load(Relaxed));
            let segment = buffer.segment().load(Relaxed) as u32;
            let at = layout.segment_at(segment) + buffer.segment_offset().load(Relaxed);
            let len = frame_bytes(&buffer);
            ledger.segment(segment).count_written(len, ledger.geometry().segment_bytes);
            self.written.device_bytes += len;
            // SAFETY: the buffer lies in the ledger's mapping, which outlives this call's queue
            // (dropping the queue waits), and is this thread's own until its completion is reaped.
            unsafe {
                self.queue.submit(u64::from(number), at, buffer.device_bytes(len), len as usize)
            }
            .map_err(failed)?;
        }
        Ok(())
    }

    fn reap(&mut self) -> Result<(), RegionError> {
        self.queue.wait(1, &mut self.completions).map_err(failed)?;
        for completion in self.completions.drain(..) {
            completion.result.map_err(failed)?;
            // The write is completed, not durable. The buffer can be used again all the same: a
            // flush that fails before the final commit is repeated as a whole from memory.
            free_buffer(self.stream.ledger, completion.token as u32);
            self.appender.free_buffers.push(completion.token as u32);
        }
        Ok(())
    }
}

fn failed(error: DeviceError) -> RegionError {
    RegionError::Latched { cause: error.to_string() }
}
