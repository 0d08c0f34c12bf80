//! `perdura-lab haste`: what fast non-volatile memories do to I/O-intensive work (HASTE, UCSD), for
//! media that this machine does not have.
//!
//! Software is measured on this machine; media are modelled, and every result says so. `raw` has
//! requests of one size, with and without a file system (`filesystem` measures what the file system
//! adds); `programs` has databases, run unmodified while their requests are recorded; `kernels` has
//! the memory-hungry applications, with their data in capacity memory on a medium. A recording is
//! replayed on the model of every system, so that a disk's hours take milliseconds; some runs are
//! repeated at the real pace of a fast medium, which shows the error of the models.

pub mod kernels;

mod claims;
mod filesystem;
pub mod page;
mod programs;
mod raw;
mod result;

use std::path::PathBuf;

use perdura_media::profile::System;

pub use kernels::Scale;
use perdura_bench::machine::Machine;
pub use programs::ProgramError;
pub use raw::SIZES;
pub use result::{
    Claim, FileSystemResult, HasteResult, KernelResult, NotRun, PaceCheck, ProgramResult, RawPoint,
    SoftwarePoint, TimeOn,
};

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct HasteSettings {
    /// Size of the data.
    pub scale: Scale,
    /// Systems to compare; [`HasteSettings::disks`] is among them.
    pub systems: Vec<System>,
    /// Name of the disk array with which the other systems are compared.
    pub disks: String,
    /// A fast system for the runs at real pace.
    pub paced: System,
    /// Parts to run.
    pub parts: Vec<HastePart>,
    /// Folder for files during the run; best in memory.
    pub dir: PathBuf,
    /// The program `perdura-lab`, whose command `run` starts other programs.
    pub program: PathBuf,
    /// Seed of all random places and data.
    pub seed: u64,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HastePart {
    /// Requests of one size, with and without a file system.
    Raw,
    /// Databases with their requests recorded.
    Programs,
    /// Matrix multiply and kernels in capacity memory.
    Kernels,
}

/// Why the benchmark ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HasteError {
    /// The modelled device failed.
    #[error(transparent)]
    Device(#[from] perdura_media::DeviceError),
    /// The emulated medium cannot be created.
    #[error(transparent)]
    Emulator(#[from] perdura_media::EmulatorError),
    /// The I/O path cannot be created.
    #[error(transparent)]
    Path(#[from] perdura_block::path::PathError),
    /// A database failed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A kernel failed.
    #[error(transparent)]
    Kernel(#[from] kernels::KernelError),
}

/// Runs all parts of the settings. Parts that this machine cannot run are listed in
/// [`HasteResult::not_run`] with the reason.
///
/// # Errors
/// A part failed although the machine has all it needs; the results so far are lost.
pub fn run(
    settings: &HasteSettings,
    progress: &dyn Fn(&str, u64, u64),
) -> Result<HasteResult, HasteError> {
    let mut result = HasteResult::new(Machine::here(), settings);
    let wants = |part| settings.parts.contains(&part);
    let steps = 3 + programs::ALL.len() as u64 + kernels::Kernel::ALL.len() as u64;
    progress("software of the I/O path", 0, steps);
    result.software = raw::software(settings)?;
    if wants(HastePart::Raw) {
        progress("file system", 1, steps);
        match filesystem::measure(settings) {
            Ok(found) => result.filesystem = Some(found),
            Err(reason) => result.leave_out("XDD XFS", reason.to_string()),
        }
        progress("raw requests", 2, steps);
        result.raw = raw::points(settings, &result.software, result.filesystem.as_ref());
        result.checks.push(raw::at_real_pace(settings)?);
    }
    if wants(HastePart::Programs) {
        for (number, program) in programs::ALL.iter().enumerate() {
            progress(program.name, 3 + number as u64, steps);
            match program.run(settings, result.software_ps_4k()) {
                Ok((found, check)) => {
                    result.programs.push(found);
                    result.checks.push(check);
                }
                Err(ProgramError::Missing { needs }) => result.leave_out(program.name, needs),
                Err(error) => return Err(error.into()),
            }
        }
    }
    if wants(HastePart::Kernels) {
        for (number, kernel) in kernels::Kernel::ALL.into_iter().enumerate() {
            progress(kernel.name(), 3 + (programs::ALL.len() + number) as u64, steps);
            result.kernel(kernel, settings)?;
        }
    }
    result.claims = claims::of(&result);
    Ok(result)
}
