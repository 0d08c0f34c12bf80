//! `perdura-lab haste`: what fast non-volatile memories do to I/O-intensive work (HASTE, UCSD), on media
//! that are not here.
//!
//! Software is measured on this machine; media are modelled, and every result says so. `raw` are
//! requests of one size, with and without a file system (`filesystem` measures what that adds);
//! `programs` are databases, run unmodified with their files recorded; `kernels` are the
//! memory-hungry applications, with their data in capacity memory on a medium. What was recorded
//! once is replayed on every system's model, so that a disk's hours take milliseconds; some runs
//! are repeated at a fast medium's real pace, which shows by how much the models are wrong.

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

/// What is to be run.
#[derive(Clone, Debug)]
pub struct HasteSettings {
    /// How large the data are.
    pub scale: Scale,
    /// Systems to compare; [`HasteSettings::disks`] is among them.
    pub systems: Vec<System>,
    /// The disk array that gains are over.
    pub disks: String,
    /// A fast system for runs at real pace.
    pub paced: System,
    /// Which parts.
    pub parts: Vec<HastePart>,
    /// Where files lie while it runs; in memory, best.
    pub dir: PathBuf,
    /// The program `perdura-lab`, whose `run` other programs are run by.
    pub program: PathBuf,
    /// Decides places and data.
    pub seed: u64,
}

/// A part of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HastePart {
    /// Raw requests, and with a file system.
    Raw,
    /// Databases.
    Programs,
    /// Matrix multiply and kernels.
    Kernels,
}

/// Why the bench ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HasteError {
    /// The modelled device.
    #[error(transparent)]
    Device(#[from] perdura_media::DeviceError),
    /// No memory for it.
    #[error(transparent)]
    Emulator(#[from] perdura_media::EmulatorError),
    /// The driver.
    #[error(transparent)]
    Path(#[from] perdura_block::path::PathError),
    /// A database.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A kernel.
    #[error(transparent)]
    Kernel(#[from] kernels::KernelError),
}

/// Runs all parts that were asked for; what this machine lacks is in [`HasteResult::not_run`], with
/// the reason.
///
/// # Errors
/// Something failed that should not; results so far are lost.
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
