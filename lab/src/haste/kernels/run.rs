//! Runs a kernel in DRAM and paged, and replays its requests on other media.

use std::sync::Arc;
use std::time::Instant;

use perdura_heap::{Config, Durability, Heap, Memory};
use perdura_media::emulator::{Emulator, Pace};
use perdura_media::model::Model;
use perdura_media::profile::System;
use perdura_media::recording::{Step, replay};
use perdura_region::paged::{PagedConfig, PagedMemory, PagedStats, Recorded};

use serde::Serialize;

use super::probe::Unwatched;
use super::room::Room;
use super::{Kernel, KernelError, Scale, Verified, Watch, drive};

/// Settings of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Size of the data.
    pub scale: Scale,
    /// Percent of the data that may be in DRAM.
    pub resident_percent: u32,
    /// Pages that come and go together: 8, as many as Linux reads ahead from swap.
    pub fault_pages: u32,
    /// Percent of the resident bytes that are inactive; see [`PagedConfig::inactive_percent`].
    pub inactive_percent: u32,
    /// Most accesses to the medium that are recorded, of 24 bytes each.
    pub steps_max: usize,
}

impl Settings {
    /// Default settings for a scale: a third of the data in DRAM.
    pub fn new(scale: Scale) -> Self {
        Self {
            scale,
            resident_percent: 33,
            fault_pages: 8,
            inactive_percent: 25,
            steps_max: 1 << 24,
        }
    }

    fn paged(&self, footprint_bytes: u64) -> Result<PagedConfig, KernelError> {
        if !(1..=100).contains(&self.resident_percent) {
            let value = self.resident_percent.into();
            let (name, expected) = ("resident_percent", "1 to 100");
            return Err(KernelError::Setting { name, value, expected });
        }
        let unit_bytes = u64::from(self.fault_pages.max(1)) * 4096;
        let least_bytes = RESIDENT_BYTES_LEAST.max(UNITS_LEAST * unit_bytes);
        let resident_bytes = footprint_bytes / 100 * u64::from(self.resident_percent);
        let len_bytes = heap_bytes(footprint_bytes).next_multiple_of(unit_bytes);
        Ok(PagedConfig {
            fault_pages: self.fault_pages,
            inactive_percent: self.inactive_percent,
            steps_max: self.steps_max,
            // A program of a few pages needs that many in DRAM to make progress.
            ..PagedConfig::new(len_bytes, resident_bytes.max(least_bytes))
        })
    }
}

/// Fewest units in DRAM: a kernel touches that many at a time.
const UNITS_LEAST: u64 = 8;
const RESIDENT_BYTES_LEAST: u64 = 256 << 10;

/// Size of the heap: the data, their alignment, and the heap's own tables.
pub(super) fn heap_bytes(footprint_bytes: u64) -> u64 {
    (footprint_bytes + footprint_bytes / 16).next_multiple_of(1 << 20) + (16 << 20)
}

/// How a time on a medium was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The misses of a resident cap were replayed on the medium's model.
    PagingReplayed,
    /// The misses of a modelled last-level cache were multiplied by the additional time of a line.
    LinesAccounted,
}

impl Way {
    /// The way in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::PagingReplayed => {
                "paged through a resident cap; misses replayed on the medium's model"
            }
            Self::LinesAccounted => {
                "lines missed by a modelled last-level cache, one after the other"
            }
        }
    }
}

/// MODELLED time of a kernel with its data on a medium.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OnMedium {
    /// Name of the medium and its link.
    pub system: String,
    /// How the time was found.
    pub way: Way,
    /// Measured time of computing with all data in DRAM, seconds.
    pub compute_s: f64,
    /// Measured time of traps and page tables here, seconds.
    pub software_s: f64,
    /// Modelled time of waiting for the medium, seconds.
    pub medium_s: f64,
    /// Modelled energy of the medium until the end, joules. `None`: the run was not replayed on a
    /// model that counts energy.
    pub medium_j: Option<f64>,
}

impl OnMedium {
    /// Sum of computing, software and waiting, seconds.
    pub fn total_s(&self) -> f64 {
        self.compute_s + self.software_s + self.medium_s
    }
}

/// A kernel's run, in DRAM and paged.
#[derive(Debug, Clone, Serialize)]
pub struct KernelRun {
    /// Which kernel ran.
    pub kernel: Kernel,
    /// Size of its data.
    pub scale: Scale,
    /// Size of its data here.
    pub footprint_bytes: u64,
    /// Most bytes of the data in DRAM.
    pub resident_bytes: u64,
    /// Bytes that are paged together.
    pub unit_bytes: u64,
    /// Size of its data in the paper.
    pub paper_footprint_bytes: u64,
    /// Measured time with all data in DRAM, seconds.
    pub compute_s: f64,
    /// Measured time paged on a medium that takes no time, seconds.
    pub paged_s: f64,
    /// Units read from the medium while the kernel worked.
    pub page_ins: u64,
    /// Units written to the medium while the kernel worked.
    pub page_outs: u64,
    /// Traps of any kind.
    pub traps: u64,
    /// Outcome of the check of the paged run; the run in DRAM was right, too.
    pub verified: Verified,
    /// Requests to the medium while the kernel worked.
    #[serde(skip)]
    pub steps: Vec<Step>,
    /// Size of the medium.
    #[serde(skip)]
    medium_bytes: u64,
}

impl KernelRun {
    /// Time of traps and page tables, seconds.
    pub fn software_s(&self) -> f64 {
        (self.paged_s - self.compute_s).max(0.0)
    }

    /// Time of traps and page tables for each unit read or written, nanoseconds.
    pub fn software_ns_per_access(&self) -> f64 {
        self.software_s() * 1e9 / (self.steps.len().max(1) as f64)
    }

    /// MODELLED time with the data on another medium: the recording is replayed on the system's
    /// model.
    pub fn on(&self, system: &System) -> OnMedium {
        // A disk keeps its full size: a small footprint on it means short seeks.
        let model = Model::new(system, system.capacity().0.max(self.medium_bytes));
        let replayed = replay(&self.steps, &model);
        OnMedium {
            system: system.name.clone(),
            way: Way::PagingReplayed,
            compute_s: self.compute_s,
            software_s: self.software_s(),
            medium_s: replayed.medium_ps as f64 / 1e12,
            medium_j: Some(model.energy(replayed.elapsed_ps).equal_time.0),
        }
    }
}

/// Runs a kernel in DRAM and paged, and records its requests to the medium.
///
/// # Errors
/// There is no memory or no paging, the results are wrong, or there are too many accesses.
pub fn run(kernel: Kernel, settings: &Settings) -> Result<KernelRun, KernelError> {
    let compute_s = in_dram(kernel, settings.scale)?;
    // On the virtual clock the recording does not depend on the medium.
    let system = System::find("dram")?;
    let paged = paged(kernel, settings, &system, Pace::Virtual)?;
    let Recorded { mut steps, left_out, .. } = paged.recorded;
    if left_out > 0 {
        let steps_max = settings.steps_max;
        return Err(KernelError::Steps { kernel: kernel.name(), left_out, steps_max });
    }
    stretch(&mut steps, paged.elapsed_s);
    Ok(KernelRun {
        kernel,
        scale: settings.scale,
        footprint_bytes: kernel.footprint_bytes(settings.scale),
        resident_bytes: paged.resident_bytes,
        unit_bytes: u64::from(settings.fault_pages) * 4096,
        paper_footprint_bytes: kernel.footprint_bytes(Scale::Paper),
        compute_s,
        paged_s: paged.elapsed_s,
        page_ins: paged.after.page_ins - paged.before.page_ins,
        page_outs: paged.after.page_outs - paged.before.page_outs,
        traps: paged.after.traps() - paged.before.traps(),
        verified: paged.verified,
        steps,
        medium_bytes: paged.medium_bytes,
    })
}

/// A kernel's run at the real pace of a medium, beside the model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// Name of the medium and its link.
    pub system: String,
    /// Measured time, seconds.
    pub measured_s: f64,
    /// Modelled time as [`KernelRun::on`] computes it, seconds.
    pub modelled_s: f64,
}

impl Measured {
    /// Measured over modelled time, less one.
    pub fn error(&self) -> f64 {
        self.measured_s / self.modelled_s - 1.0
    }
}

/// Runs a kernel at the real pace of a medium, which should be a fast one.
///
/// # Errors
/// The same as those of [`run`].
pub fn measure(
    modelled: &KernelRun,
    settings: &Settings,
    system: &System,
) -> Result<Measured, KernelError> {
    let settings = Settings { steps_max: 0, ..settings.clone() };
    let paged = paged(modelled.kernel, &settings, system, Pace::Real)?;
    let modelled_s = modelled.on(system).total_s();
    Ok(Measured { system: system.name.clone(), measured_s: paged.elapsed_s, modelled_s })
}

/// Measures the timed part.
#[derive(Default)]
pub(super) struct Timer {
    began: Option<Instant>,
    pub elapsed_s: f64,
}

impl Watch for Timer {
    fn begin(&mut self) {
        self.began = Some(Instant::now());
    }

    fn end(&mut self) {
        self.elapsed_s = self.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
    }
}

/// Seconds of a kernel with all data in DRAM.
fn in_dram(kernel: Kernel, scale: Scale) -> Result<f64, KernelError> {
    let heap =
        open(Memory::anonymous(heap_bytes(kernel.footprint_bytes(scale)), Durability::Ordered)?)?;
    let mut timer = Timer::default();
    drive(kernel, scale, &Room::new(&heap, &Unwatched), &mut timer)?;
    Ok(timer.elapsed_s)
}

/// A new heap for one run.
pub(super) fn open(memory: Memory) -> Result<Heap, KernelError> {
    let mut config = Config::default();
    config.contiguous = false;
    Ok(Heap::open(memory, config)?)
}

struct Paged {
    elapsed_s: f64,
    verified: Verified,
    recorded: Recorded,
    before: PagedStats,
    after: PagedStats,
    resident_bytes: u64,
    medium_bytes: u64,
}

/// Counts paging within the timed part.
struct PagedWatch<'p> {
    paged: &'p PagedMemory,
    timer: Timer,
    before: PagedStats,
    after: PagedStats,
    recorded: Recorded,
}

impl Watch for PagedWatch<'_> {
    fn begin(&mut self) {
        self.before = self.paged.stats();
        // Requests made while the data were created are not the kernel's.
        drop(self.paged.take_recorded());
        self.timer.begin();
    }

    fn end(&mut self) {
        self.timer.end();
        self.recorded = self.paged.take_recorded();
        self.after = self.paged.stats();
    }
}

fn paged(
    kernel: Kernel,
    settings: &Settings,
    system: &System,
    pace: Pace,
) -> Result<Paged, KernelError> {
    let config = settings.paged(kernel.footprint_bytes(settings.scale))?;
    let medium = Arc::new(Emulator::anonymous(system, config.len_bytes, pace)?);
    let paged = Arc::new(PagedMemory::open(&config, medium)?);
    let heap = open(Memory::paged(Arc::clone(&paged)))?;
    let mut watch = PagedWatch {
        paged: &paged,
        timer: Timer::default(),
        before: PagedStats::default(),
        after: PagedStats::default(),
        recorded: Recorded::default(),
    };
    let verified = drive(kernel, settings.scale, &Room::new(&heap, &Unwatched), &mut watch)?;
    Ok(Paged {
        elapsed_s: watch.timer.elapsed_s,
        verified,
        recorded: watch.recorded,
        before: watch.before,
        after: watch.after,
        resident_bytes: paged.resident_cap_bytes(),
        medium_bytes: config.len_bytes,
    })
}

/// Adds the time spent in handlers to the computing time before each step, in proportion: the
/// medium is idle then as well.
fn stretch(steps: &mut [Step], elapsed_s: f64) {
    let thought_ps: u64 = steps.iter().map(|step| step.think_ps).sum();
    if thought_ps == 0 {
        return;
    }
    let factor = elapsed_s * 1e12 / thought_ps as f64;
    for step in steps {
        step.think_ps = (step.think_ps as f64 * factor) as u64;
    }
}
