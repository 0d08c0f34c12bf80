//! A kernel in DRAM, paged, and replayed on other media.

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

/// How a kernel is run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How large its data are.
    pub scale: Scale,
    /// Percent of its data that may be in DRAM.
    pub resident_percent: u32,
    /// Pages that come and go together: 8, as many as Linux reads ahead from swap.
    pub fault_pages: u32,
    /// Percent of the resident bytes that are inactive; see [`PagedConfig::inactive_percent`].
    pub inactive_percent: u32,
    /// Accesses of the medium that can be recorded, 24 bytes each.
    pub steps_max: usize,
}

impl Settings {
    /// A third in DRAM.
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
            // A program of a few pages needs as many to get on.
            ..PagedConfig::new(len_bytes, resident_bytes.max(least_bytes))
        })
    }
}

/// Units, and bytes, in DRAM at least: what a kernel touches at a time.
const UNITS_LEAST: u64 = 8;
const RESIDENT_BYTES_LEAST: u64 = 256 << 10;

/// Room for the data, for what alignment takes and for the heap's own tables.
pub(super) fn heap_bytes(footprint_bytes: u64) -> u64 {
    (footprint_bytes + footprint_bytes / 16).next_multiple_of(1 << 20) + (16 << 20)
}

/// How a time on a medium was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The program's misses of a resident cap, replayed on the medium's model.
    PagingReplayed,
    /// The program's misses of a modelled last-level cache, times what a line takes longer.
    LinesAccounted,
}

impl Way {
    /// For a person.
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

/// A kernel's time with its data on a medium, MODELLED.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OnMedium {
    /// The medium and its link.
    pub system: String,
    /// How it was found.
    pub way: Way,
    /// Computing, all data in DRAM: measured.
    pub compute_s: f64,
    /// Traps and page tables: measured, here.
    pub software_s: f64,
    /// Waiting for the medium: modelled.
    pub medium_s: f64,
    /// What the medium drew until the end: modelled, J. `None`: it was not replayed on a model that
    /// counts it.
    pub medium_j: Option<f64>,
}

impl OnMedium {
    /// All of it.
    pub fn total_s(&self) -> f64 {
        self.compute_s + self.software_s + self.medium_s
    }
}

/// What a kernel did.
#[derive(Debug, Clone, Serialize)]
pub struct KernelRun {
    /// Which.
    pub kernel: Kernel,
    /// How large.
    pub scale: Scale,
    /// Bytes of its data.
    pub footprint_bytes: u64,
    /// Bytes of them that could be in DRAM.
    pub resident_bytes: u64,
    /// Bytes that were paged together.
    pub unit_bytes: u64,
    /// Bytes of its data at the paper's size.
    pub paper_footprint_bytes: u64,
    /// Its time with all data in DRAM, measured.
    pub compute_s: f64,
    /// Its time paged, on a medium that takes none: measured.
    pub paged_s: f64,
    /// Units read from the medium while it worked.
    pub page_ins: u64,
    /// Units written to it.
    pub page_outs: u64,
    /// Traps of any kind.
    pub traps: u64,
    /// What its check found, of the paged run; the other was right, too.
    pub verified: Verified,
    /// What it asked of the medium while it worked.
    #[serde(skip)]
    pub steps: Vec<Step>,
    /// Bytes of the medium.
    #[serde(skip)]
    medium_bytes: u64,
}

impl KernelRun {
    /// What traps and page tables cost.
    pub fn software_s(&self) -> f64 {
        (self.paged_s - self.compute_s).max(0.0)
    }

    /// What it cost for each unit that came from or went to the medium, nanoseconds.
    pub fn software_ns_per_access(&self) -> f64 {
        self.software_s() * 1e9 / (self.steps.len().max(1) as f64)
    }

    /// Its time with its data on another medium, MODELLED: the recording is replayed on the
    /// system's model.
    pub fn on(&self, system: &System) -> OnMedium {
        // A disk is as large as it is: a small footprint on it means short ways.
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

/// Runs a kernel in DRAM and paged, and records what it asks of its medium.
///
/// # Errors
/// There is no memory or no paging, the results are wrong, or there are too many accesses.
pub fn run(kernel: Kernel, settings: &Settings) -> Result<KernelRun, KernelError> {
    let compute_s = in_dram(kernel, settings.scale)?;
    // On the virtual clock no medium makes a difference to what is recorded.
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

/// A kernel at the real pace of a medium, beside what the model said.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// The medium and its link.
    pub system: String,
    /// What it took.
    pub measured_s: f64,
    /// What [`KernelRun::on`] says.
    pub modelled_s: f64,
}

impl Measured {
    /// How much longer it took than modelled, as a share of that.
    pub fn error(&self) -> f64 {
        self.measured_s / self.modelled_s - 1.0
    }
}

/// Runs a kernel at the real pace of a medium, which should be a fast one.
///
/// # Errors
/// As [`run`].
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

/// The timed part.
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

/// Seconds of a kernel with all of its data in DRAM.
fn in_dram(kernel: Kernel, scale: Scale) -> Result<f64, KernelError> {
    let heap =
        open(Memory::anonymous(heap_bytes(kernel.footprint_bytes(scale)), Durability::Ordered)?)?;
    let mut timer = Timer::default();
    drive(kernel, scale, &Room::new(&heap, &Unwatched), &mut timer)?;
    Ok(timer.elapsed_s)
}

/// A heap for one run.
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

/// What paging does while it is timed.
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
        // What making the data asked is not the kernel's.
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

/// Gives what was spent in handlers to the thinking before each step, in proportion: a medium is
/// idle then as well.
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
