//! What the bench found. Times on systems that are not here are modelled and named so.

use perdura_media::System;
use perdura_media::profile::Pays;
use serde::{Deserialize, Serialize};

use super::kernels::{self, DramLine, Kernel, LineSettings, Scale};
use super::{HasteError, HasteSettings};
use perdura_bench::machine::Machine;

/// All of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HasteResult {
    /// Always `haste`.
    pub kind: String,
    /// Where software was measured.
    pub machine: Machine,
    /// How large the data were.
    pub scale: Scale,
    /// Decides places and data.
    pub seed: u64,
    /// The systems compared, with what they are.
    pub systems: Vec<(String, String)>,
    /// The disk array that gains are over.
    pub disks: String,
    /// Software of the I/O path, measured.
    pub software: Vec<SoftwarePoint>,
    /// Requests of one size: software measured, media modelled.
    pub raw: Vec<RawPoint>,
    /// What a file system adds, measured.
    pub filesystem: Option<FileSystemResult>,
    /// Databases.
    pub programs: Vec<ProgramResult>,
    /// Matrix multiply and kernels.
    pub kernels: Vec<KernelResult>,
    /// Modelled against measured time.
    pub checks: Vec<PaceCheck>,
    /// The slides' figures held against these.
    pub claims: Vec<Claim>,
    /// What this machine could not run.
    pub not_run: Vec<NotRun>,
}

/// Software of one request, one thread, measured: its whole time less the modelled medium's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoftwarePoint {
    /// Step of the I/O path: `base`, `unscheduled`, `atomic`, `spin`.
    pub step: String,
    /// Bytes a request.
    pub request_bytes: u64,
    /// Median, nanoseconds.
    pub software_ns: f64,
}

/// A load on a system: modelled, with the software that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RawPoint {
    /// The system.
    pub system: String,
    /// Step of the I/O path whose software it has.
    pub step: String,
    /// Whether with a file system.
    pub with_filesystem: bool,
    /// Whether requests read.
    pub is_read: bool,
    /// Whether one is behind the other.
    pub is_sequential: bool,
    /// Bytes a request.
    pub request_bytes: u64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Requests a second.
    pub requests_per_s: f64,
    /// Mean time of a request, nanoseconds.
    pub request_ns: f64,
    /// Whether the link is a memory bus, which pays for each line.
    pub on_memory_bus: bool,
    /// Share of the link's bandwidth that is used.
    pub link_share: Option<f64>,
}

/// What a file system adds to a request of a size, measured in pairs on a loop device over a file
/// in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileSystemResult {
    /// `xfs`.
    pub name: String,
    /// How it was had.
    pub how: String,
    /// Bytes a request, nanoseconds added to a read, to a write.
    pub added_ns: Vec<(u64, f64, f64)>,
}

/// A program's time on a system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeOn {
    /// The system.
    pub system: String,
    /// `paging, replayed`, `files, replayed`, `last-level cache, injected` …: how it was got.
    pub way: String,
    /// Computing: measured, s.
    pub compute_s: f64,
    /// Software of its requests or page faults: measured, s.
    pub software_s: f64,
    /// Waiting for the medium: modelled, s.
    pub medium_s: f64,
    /// What the medium drew until the end of the run (equal-time energy): modelled, J; where the
    /// run was replayed on its model.
    pub medium_j: Option<f64>,
}

impl TimeOn {
    /// All of it, s.
    #[must_use]
    pub fn total_s(&self) -> f64 {
        self.compute_s + self.software_s + self.medium_s
    }
}

/// A database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramResult {
    /// Name.
    pub name: String,
    /// What it is and does.
    pub about: String,
    /// Bytes of its files here.
    pub footprint_bytes: u64,
    /// Bytes of the slides' database.
    pub paper_footprint_bytes: u64,
    /// Requests for its files: reads, writes, flushes.
    pub requests: [u64; 3],
    /// What it said: rows found, bytes of its files.
    pub answer: String,
    /// By system.
    pub times: Vec<TimeOn>,
}

/// A kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelResult {
    /// Name.
    pub name: String,
    /// Bytes of its data here.
    pub footprint_bytes: u64,
    /// Of them in DRAM at most.
    pub resident_bytes: u64,
    /// Bytes at the slides' size.
    pub paper_footprint_bytes: u64,
    /// Units that came from the medium.
    pub page_ins: u64,
    /// Units that went to it.
    pub page_outs: u64,
    /// How its result was checked, and with what outcome.
    pub verified: String,
    /// By system.
    pub times: Vec<TimeOn>,
}

/// The same run at a fast medium's real pace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PaceCheck {
    /// Which run.
    pub what: String,
    /// The medium.
    pub system: String,
    /// By the model, s.
    pub modelled_s: f64,
    /// By the clock, s.
    pub measured_s: f64,
}

impl PaceCheck {
    /// How much longer it took than modelled, as a share of that.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.measured_s / self.modelled_s - 1.0
    }
}

/// A figure of the slides beside ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// What the slides say.
    pub published: String,
    /// What was found here, and how much of it is modelled.
    pub here: String,
    /// Whether it is of that order.
    pub holds: bool,
}

/// What could not be run here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotRun {
    /// What.
    pub what: String,
    /// Why, and what would help.
    pub reason: String,
}

impl HasteResult {
    pub(super) fn new(machine: Machine, settings: &HasteSettings) -> Self {
        let named = |system: &perdura_media::System| (system.name.clone(), system.about.clone());
        Self {
            kind: "haste".into(),
            machine,
            scale: settings.scale,
            seed: settings.seed,
            systems: settings.systems.iter().map(named).collect(),
            disks: settings.disks.clone(),
            software: Vec::new(),
            raw: Vec::new(),
            filesystem: None,
            programs: Vec::new(),
            kernels: Vec::new(),
            checks: Vec::new(),
            claims: Vec::new(),
            not_run: Vec::new(),
        }
    }

    pub(super) fn leave_out(&mut self, what: &str, reason: String) {
        self.not_run.push(NotRun { what: what.to_owned(), reason });
    }

    /// Software of a request of 4 KiB by the leanest path.
    pub(super) fn software_ps_4k(&self) -> u64 {
        let found =
            self.software.iter().find(|one| one.step == "spin" && one.request_bytes == 4096);
        found.map_or(0, |one| (one.software_ns * 1e3) as u64)
    }

    /// Runs a kernel, on every system's model and at one's real pace.
    pub(super) fn kernel(
        &mut self,
        kernel: Kernel,
        settings: &HasteSettings,
    ) -> Result<(), HasteError> {
        let paging = kernels::Settings::new(settings.scale);
        let run = kernels::run(kernel, &paging)?;
        let lines = kernels::lines(kernel, &LineSettings::new(settings.scale), run.compute_s)?;
        let dram = DramLine::modelled(
            &System::find("dram")
                .and_then(|dram| dram.with_link("ddr3x6"))
                .map_err(kernels::KernelError::from)?,
        );
        let times = settings.systems.iter().map(|system| {
            // What takes the place of DRAM is not paged.
            let (on, way) = match system.link.as_ref().map(|link| link.pays) {
                Some(Pays::Line { .. }) => (
                    lines.on(system, dram),
                    "lines that a modelled last-level cache misses, accounted",
                ),
                _ => (run.on(system), "paging through a resident cap, recorded and replayed"),
            };
            TimeOn {
                system: on.system.clone(),
                way: way.into(),
                compute_s: on.compute_s,
                software_s: on.software_s,
                medium_s: on.medium_s,
                medium_j: on.medium_j,
            }
        });
        let times = times.collect();
        let paced = kernels::measure(&run, &paging, &settings.paced)?;
        self.checks.push(PaceCheck {
            what: kernel.name().to_owned(),
            system: paced.system,
            modelled_s: paced.modelled_s,
            measured_s: paced.measured_s,
        });
        if kernel == Kernel::Cg {
            self.checks.push(injected(kernel, settings, dram)?);
        }
        self.kernels.push(KernelResult {
            name: kernel.name().to_owned(),
            footprint_bytes: run.footprint_bytes,
            resident_bytes: run.resident_bytes,
            paper_footprint_bytes: run.paper_footprint_bytes,
            page_ins: run.page_ins,
            page_outs: run.page_outs,
            verified: format!(
                "{}: {:.1e}, at most {:.1e}",
                run.verified.what, run.verified.found, run.verified.bound
            ),
            times,
        });
        Ok(())
    }
}

/// Delay that a modelled last-level cache really injects, beside what was to be.
fn injected(
    kernel: Kernel,
    settings: &HasteSettings,
    dram: DramLine,
) -> Result<PaceCheck, HasteError> {
    let system = System::find("ddr-pcm").map_err(kernels::KernelError::from)?;
    let found = kernels::inject(
        kernel,
        &LineSettings::new(settings.scale),
        dram.longer_on(&system, INJECTED_EVERY_NS),
    )?;
    Ok(PaceCheck {
        what: format!("{}: delay injected for lines missed", kernel.name()),
        system: system.name,
        modelled_s: found.accounted_s,
        measured_s: found.delayed_s - found.base_s,
    })
}

/// Delays are gathered and spun so often.
const INJECTED_EVERY_NS: u64 = 10_000;
