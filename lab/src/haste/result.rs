//! Results of `perdura-lab haste`, as they are written to JSON. Times on systems that this machine
//! does not have are modelled and say so.

use perdura_media::System;
use perdura_media::profile::Pays;
use serde::{Deserialize, Serialize};

use super::kernels::{self, DramLine, Kernel, LineSettings, Scale};
use super::{HasteError, HasteSettings};
use perdura_bench::machine::Machine;

/// The result of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HasteResult {
    /// Always `haste`.
    pub kind: String,
    /// The machine on which software was measured.
    pub machine: Machine,
    /// Size of the data.
    pub scale: Scale,
    /// Seed of all random places and data.
    pub seed: u64,
    /// The compared systems: name and description.
    pub systems: Vec<(String, String)>,
    /// Name of the disk array with which the other systems are compared.
    pub disks: String,
    /// Measured software time of the I/O path.
    pub software: Vec<SoftwarePoint>,
    /// Requests of one size: software measured, media modelled.
    pub raw: Vec<RawPoint>,
    /// Measured time that a file system adds.
    pub filesystem: Option<FileSystemResult>,
    /// Databases with their requests replayed.
    pub programs: Vec<ProgramResult>,
    /// Matrix multiply and kernels in capacity memory.
    pub kernels: Vec<KernelResult>,
    /// Modelled beside measured times, at the real pace of a system.
    pub checks: Vec<PaceCheck>,
    /// The slides' figures beside these results.
    pub claims: Vec<Claim>,
    /// Parts that this machine could not run, with the reason.
    pub not_run: Vec<NotRun>,
}

/// Measured software time of a request by one thread: the whole time less the modelled time of the
/// medium.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoftwarePoint {
    /// Step of the I/O path: `base`, `unscheduled`, `atomic`, `spin`.
    pub step: String,
    /// Size of the request.
    pub request_bytes: u64,
    /// Median software time, nanoseconds.
    pub software_ns: f64,
}

/// A load on a system: modelled, with the measured software time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RawPoint {
    /// Name of the system.
    pub system: String,
    /// The step of the I/O path whose software time counts.
    pub step: String,
    /// Whether the time that a file system adds is included.
    pub with_filesystem: bool,
    /// Whether requests read.
    pub is_read: bool,
    /// Whether requests follow one another; otherwise their places are random.
    pub is_sequential: bool,
    /// Size of each request.
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

/// Time that a file system adds to a request of a size, measured in pairs on a loop device over a
/// file in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileSystemResult {
    /// Name of the file system: `xfs`.
    pub name: String,
    /// How the file system was set up.
    pub how: String,
    /// For each request size: bytes, nanoseconds added to a read, nanoseconds added to a write.
    pub added_ns: Vec<(u64, f64, f64)>,
}

/// Time of a program on a system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeOn {
    /// Name of the system.
    pub system: String,
    /// How the time was found: `paging, replayed`, `files, replayed`, `last-level cache, injected`,
    /// …
    pub way: String,
    /// Measured time of computing, seconds.
    pub compute_s: f64,
    /// Measured software time of requests or page faults, seconds.
    pub software_s: f64,
    /// Modelled time of waiting for the medium, seconds.
    pub medium_s: f64,
    /// Modelled energy of the medium until the end of the run (equal-time energy), joules; none
    /// where the run was not replayed on the medium's model.
    pub medium_j: Option<f64>,
}

impl TimeOn {
    /// Sum of computing, software and waiting, seconds.
    #[must_use]
    pub fn total_s(&self) -> f64 {
        self.compute_s + self.software_s + self.medium_s
    }
}

/// Result of a database program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramResult {
    /// Name of the program.
    pub name: String,
    /// What the program is and does.
    pub about: String,
    /// Size of its files here.
    pub footprint_bytes: u64,
    /// Size of the slides' database.
    pub paper_footprint_bytes: u64,
    /// Requests for its files: reads, writes, flushes.
    pub requests: [u64; 3],
    /// The program's own output: rows found, bytes of its files.
    pub answer: String,
    /// Time on each system.
    pub times: Vec<TimeOn>,
}

/// Result of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelResult {
    /// Name of the kernel.
    pub name: String,
    /// Size of its data here.
    pub footprint_bytes: u64,
    /// Most bytes of its data that are in DRAM.
    pub resident_bytes: u64,
    /// Size of its data in the slides.
    pub paper_footprint_bytes: u64,
    /// Units read from the medium.
    pub page_ins: u64,
    /// Units written to the medium.
    pub page_outs: u64,
    /// How the kernel's result was checked, and the outcome.
    pub verified: String,
    /// Time on each system.
    pub times: Vec<TimeOn>,
}

/// A run repeated at the real pace of a fast medium.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PaceCheck {
    /// Name of the run.
    pub what: String,
    /// Name of the medium.
    pub system: String,
    /// Modelled time, seconds.
    pub modelled_s: f64,
    /// Measured time, seconds.
    pub measured_s: f64,
}

impl PaceCheck {
    /// Measured over modelled time, less one.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.measured_s / self.modelled_s - 1.0
    }
}

/// A figure of the slides beside the result here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The figure as published.
    pub published: String,
    /// The result here, saying which part is modelled.
    pub here: String,
    /// Whether the result is of the published order.
    pub holds: bool,
}

/// A part that this machine could not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotRun {
    /// Name of the part.
    pub what: String,
    /// The reason, and what would help.
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

    /// Software time of a request of 4 KiB by the leanest path, picoseconds.
    pub(super) fn software_ps_4k(&self) -> u64 {
        let found =
            self.software.iter().find(|one| one.step == "spin" && one.request_bytes == 4096);
        found.map_or(0, |one| (one.software_ns * 1e3) as u64)
    }

    /// Runs a kernel: on the model of every system, and at the real pace of one.
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
            // A medium in place of DRAM is not paged.
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

/// Compares the delay that a modelled last-level cache really injects with the computed one.
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

/// Delay is gathered up to this much and then spun, nanoseconds.
const INJECTED_EVERY_NS: u64 = 10_000;
