//! A kernel whose data lie on a DDR-attached medium: the lines that a modelled last-level cache
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

/// Bytes of a line.
const LINE_BYTES: u64 = 64;
/// 128 MiB of lines.
const CHASED_LINES: u64 = 2 << 20;

/// How a kernel is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineSettings {
    /// How large its data are.
    pub scale: Scale,
    /// The cache.
    pub shape: CacheShape,
    /// One in so many of its sets is modelled.
    pub sampled_one_in: u64,
}

impl LineSettings {
    /// The slides' time had caches of 8 MB beside data of tens of gigabytes; for smaller data it is
    /// smaller, too.
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

/// What a line of DRAM takes: what a medium in its place takes longer is what counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DramLine {
    /// To read it.
    pub read_ps: u64,
    /// To write it.
    pub write_ps: u64,
}

impl DramLine {
    /// By the model of a DRAM system. The right one where the medium's time is modelled, too: a
    /// load on a real machine also takes the way through caches and controllers, which is the same
    /// for both.
    pub fn modelled(dram: &System) -> Self {
        Self { read_ps: line_ps(dram, Access::Read), write_ps: line_ps(dram, Access::Write) }
    }

    /// What a load that depends on the one before takes on this machine, which writing is taken to
    /// take, too. Against it a medium whose model knows nothing of this machine's caches and
    /// controllers comes off too well: a lower bound.
    pub fn measured() -> Self {
        // All lines of memory that no cache holds, each once, in an order that nothing can foresee.
        let mut next: Vec<[u64; 8]> = (0..CHASED_LINES).map(|line| [line; 8]).collect();
        for line in (1..CHASED_LINES).rev() {
            // Sattolo's shuffle: one cycle.
            next.swap(line as usize, (mixed(71, line) % line) as usize);
        }
        let began = Instant::now();
        let last = (0..CHASED_LINES / 4).fold(0, |line, _| next[line as usize][0]);
        let spent_ps = began.elapsed().as_nanos() as u64 * 1000;
        let line_ps = std::hint::black_box(spent_ps + last % 2) / (CHASED_LINES / 4);
        Self { read_ps: line_ps, write_ps: line_ps }
    }

    /// What a line on `system` takes longer, for each line read and written back.
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

/// What a kernel asks of memory behind the modelled cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineRun {
    /// Which.
    pub kernel: Kernel,
    /// How large.
    pub scale: Scale,
    /// Bytes of its data.
    pub footprint_bytes: u64,
    /// Bytes of its data at the paper's size.
    pub paper_footprint_bytes: u64,
    /// The cache, MODELLED.
    pub cache_bytes: u64,
    /// Its time with all data in DRAM, measured without the modelled cache.
    pub compute_s: f64,
    /// Lines looked up, missed, written back: MODELLED.
    pub counts: Counts,
    /// What its check found.
    pub verified: Verified,
}

impl LineRun {
    /// Its time with its data on a medium in place of DRAM, MODELLED: lines one after the other.
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

/// Runs a kernel in DRAM and counts the lines that a modelled cache misses. `compute_s` is its time
/// without that cache, as [`super::KernelRun::compute_s`] has it.
///
/// # Errors
/// There is no memory, the cache is none, or the results are wrong.
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

/// Delay really injected, beside what was to be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Injected {
    /// The kernel with the modelled cache alone.
    pub base_s: f64,
    /// The same, with the delay.
    pub delayed_s: f64,
    /// The delay by count.
    pub accounted_s: f64,
}

impl Injected {
    /// How much more time it took than was to be injected, as a share of that.
    pub fn error(&self) -> f64 {
        (self.delayed_s - self.base_s) / self.accounted_s - 1.0
    }
}

/// Runs a kernel twice with the modelled cache: without delay and with it, spun in epochs.
///
/// # Errors
/// As [`lines`].
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
        // What is owed is spun within the timed part.
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
