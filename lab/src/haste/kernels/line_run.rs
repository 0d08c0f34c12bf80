//! A kernel with its data on a DDR-attached medium: a modelled last-level cache says which lines it
//! misses.

use std::time::Instant;

use perdura_heap::{Durability, Memory};
use perdura_media::model::{Access, Model};
use perdura_media::profile::System;
use serde::Serialize;

use super::probe::{Injection, Lines};
use super::random::mixed;
use super::room::Room;
use super::run::{OnMedium, Timer, Way, heap_bytes, open};
use super::{Kernel, KernelError, Scale, Verified, Watch, drive};
use crate::caches::model::{CacheShape, Counts};

/// Size of a line, bytes.
const LINE_BYTES: u64 = 64;
/// Lines that are followed to measure the latency of DRAM: 128 MiB.
const CHASED_LINES: u64 = 2 << 20;

/// Settings of a run by lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineSettings {
    /// Size of the kernel's data.
    pub scale: Scale,
    /// Size and shape of the modelled cache.
    pub shape: CacheShape,
    /// One set in this many is modelled, and stands for the others.
    pub sampled_one_in: u64,
}

impl LineSettings {
    /// Settings for a scale. Machines of the slides' time had caches of 8 MB beside tens of
    /// gigabytes of data; the cache is smaller for smaller data.
    pub fn new(scale: Scale) -> Self {
        let (size_bytes, sampled_one_in) = match scale {
            Scale::Tiny => (64 << 10, 1),
            Scale::Small => (1 << 20, 4),
            Scale::Medium => (4 << 20, 16),
            Scale::Paper => (8 << 20, 64),
        };
        let shape = CacheShape { size_bytes, ways: 16, line_bytes: LINE_BYTES };
        Self { scale, shape, sampled_one_in }
    }
}

/// Time of a line of DRAM: only the time beyond this counts for a medium in its place.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DramLine {
    /// Time to read a line, picoseconds.
    pub read_ps: u64,
    /// Time to write a line, picoseconds.
    pub write_ps: u64,
}

impl DramLine {
    /// The modelled time of a DRAM system's line. This is the right one to subtract from a modelled
    /// medium: on a real machine a load also takes the way through caches and controllers, which is
    /// the same for both.
    pub fn modelled(dram: &System) -> Self {
        Self { read_ps: line_ps(dram, Access::Read), write_ps: line_ps(dram, Access::Write) }
    }

    /// The measured time of a load that depends on the load before; a write is assumed to take the
    /// same. A medium's model lacks this machine's caches and controllers, so subtracting this time
    /// gives a lower bound.
    pub fn measured() -> Self {
        // Each line, in memory that no cache holds, is visited once in an unpredictable order.
        let mut next: Vec<[u64; 8]> = (0..CHASED_LINES).map(|line| [line; 8]).collect();
        for line in (1..CHASED_LINES).rev() {
            // Sattolo's shuffle makes one cycle of all lines.
            next.swap(line as usize, (mixed(71, line) % line) as usize);
        }
        let began = Instant::now();
        let last = (0..CHASED_LINES / 4).fold(0, |line, _| next[line as usize][0]);
        let spent_ps = began.elapsed().as_nanos() as u64 * 1000;
        let line_ps = std::hint::black_box(spent_ps + last % 2) / (CHASED_LINES / 4);
        Self { read_ps: line_ps, write_ps: line_ps }
    }

    /// The additional time of `system` for each line read and each line written back.
    pub fn longer_on(&self, system: &System, epoch_ns: u64) -> Injection {
        Injection {
            read_ps: line_ps(system, Access::Read).saturating_sub(self.read_ps),
            write_ps: line_ps(system, Access::Write).saturating_sub(self.write_ps),
            epoch_ns,
        }
    }
}

fn line_ps(system: &System, access: Access) -> u64 {
    Model::unloaded(system, access, LINE_BYTES).0
}

/// A kernel's accesses to memory behind the modelled cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineRun {
    /// Which kernel ran.
    pub kernel: Kernel,
    /// Size of its data.
    pub scale: Scale,
    /// Size of its data here.
    pub footprint_bytes: u64,
    /// Size of its data in the paper.
    pub paper_footprint_bytes: u64,
    /// Size of the MODELLED cache.
    pub cache_bytes: u64,
    /// Measured time with all data in DRAM and without the modelled cache, seconds.
    pub compute_s: f64,
    /// MODELLED counts of lines looked up, missed and written back.
    pub counts: Counts,
    /// Outcome of the kernel's own check.
    pub verified: Verified,
}

impl LineRun {
    /// MODELLED time with the data on a medium in place of DRAM, one line after the other.
    pub fn on(&self, system: &System, dram: DramLine) -> OnMedium {
        let longer = dram.longer_on(system, 0);
        let read_s = self.counts.misses as f64 * longer.read_ps as f64 / 1e12;
        let written_s = self.counts.writebacks as f64 * longer.write_ps as f64 / 1e12;
        OnMedium {
            system: system.name.clone(),
            way: Way::LinesAccounted,
            compute_s: self.compute_s,
            software_s: 0.0,
            medium_s: read_s + written_s,
            medium_j: None,
        }
    }
}

/// Runs a kernel in DRAM and counts the lines that a modelled cache misses. `compute_s` is the
/// kernel's time without that cache, as in [`super::KernelRun::compute_s`].
///
/// # Errors
/// There is no memory, the cache's shape is impossible, or the kernel's results are wrong.
pub fn lines(
    kernel: Kernel,
    settings: &LineSettings,
    compute_s: f64,
) -> Result<LineRun, KernelError> {
    let watched = watched(kernel, settings, None)?;
    Ok(LineRun {
        kernel,
        scale: settings.scale,
        footprint_bytes: kernel.footprint_bytes(settings.scale),
        paper_footprint_bytes: kernel.footprint_bytes(Scale::Paper),
        cache_bytes: settings.shape.size_bytes,
        compute_s,
        counts: watched.counts,
        verified: watched.verified,
    })
}

/// A delay that was really injected, beside the computed one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Injected {
    /// Time of the kernel with the modelled cache alone, seconds.
    pub base_s: f64,
    /// Time of the kernel with the modelled cache and the delay, seconds.
    pub delayed_s: f64,
    /// Delay computed from the counts, seconds.
    pub accounted_s: f64,
}

impl Injected {
    /// Time beyond the computed delay, as a share of that delay.
    pub fn error(&self) -> f64 {
        (self.delayed_s - self.base_s) / self.accounted_s - 1.0
    }
}

/// Runs a kernel twice with the modelled cache: without delay, and with delay that is spun in
/// epochs.
///
/// # Errors
/// The same as those of [`lines`].
pub fn inject(
    kernel: Kernel,
    settings: &LineSettings,
    injection: Injection,
) -> Result<Injected, KernelError> {
    let base = watched(kernel, settings, None)?;
    let delayed = watched(kernel, settings, Some(injection))?;
    Ok(Injected {
        base_s: base.elapsed_s,
        delayed_s: delayed.elapsed_s,
        accounted_s: delayed.injected_ps as f64 / 1e12,
    })
}

struct Watched {
    elapsed_s: f64,
    counts: Counts,
    injected_ps: u64,
    verified: Verified,
}

struct LineWatch<'p> {
    probe: &'p Lines,
    timer: Timer,
    counts: Counts,
    injected_ps: u64,
}

impl Watch for LineWatch<'_> {
    fn begin(&mut self) {
        self.probe.forget_counts();
        self.timer.begin();
    }

    fn end(&mut self) {
        // The rest of the delay is spun within the timed part.
        self.injected_ps = self.probe.injected_ps();
        self.timer.end();
        self.counts = self.probe.counts();
    }
}

fn watched(
    kernel: Kernel,
    settings: &LineSettings,
    injection: Option<Injection>,
) -> Result<Watched, KernelError> {
    let probe = Lines::new(settings.shape, settings.sampled_one_in, injection)?;
    let bytes = heap_bytes(kernel.footprint_bytes(settings.scale));
    let heap = open(Memory::anonymous(bytes, Durability::Ordered)?)?;
    let mut watch = LineWatch {
        probe: &probe,
        timer: Timer::default(),
        counts: Counts::default(),
        injected_ps: 0,
    };
    let verified = drive(kernel, settings.scale, &Room::new(&heap, &probe), &mut watch)?;
    Ok(Watched {
        elapsed_s: watch.timer.elapsed_s,
        counts: watch.counts,
        injected_ps: watch.injected_ps,
        verified,
    })
}
