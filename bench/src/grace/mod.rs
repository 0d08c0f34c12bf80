//! The gauntlet: a server is filled, loaded with writes, warned, and killed when the grace ends, on
//! a disk as slow as clouds give; then it is restarted, and every acknowledged write is counted.
//!
//! `disk` is the disk that can be throttled and cut, `server` the servers and their settings,
//! `writes` what was sent and acknowledged, `clients` those who write and those who are stuck,
//! `round` one round, and `page` the page of all of them.

mod clients;
mod disk;
mod page;
mod round;
mod server;
mod writes;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use perdura_media::Bytes;
use serde::{Deserialize, Serialize};

use crate::machine::{Machine, disk_available_bytes, memory_available_bytes};

pub use page::{COLUMNS, page};
pub use round::Round;
pub use server::{Kind, Programs};

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Folder for the disks, which are files.
    pub dir: PathBuf,
    /// The servers' programs.
    pub programs: Programs,
    /// The servers to run.
    pub kinds: Vec<Kind>,
    /// Sizes of the data, bytes.
    pub sizes: Vec<u64>,
    /// Time from the warning to the kill.
    pub grace: Duration,
    /// Time of writing before the warning.
    pub load: Duration,
    /// Rate of the disk, bytes a second, until its credit is used up.
    pub rate_bytes_per_s: u64,
    /// Rate of the disk from then on.
    pub low_rate_bytes_per_s: u64,
    /// Rounds of each server and size.
    pub rounds: u64,
    /// Seed of the first round; each further one has the next.
    pub seed: u64,
}

/// All rounds of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GraceResult {
    /// The kind of this result: `grace`.
    pub kind: String,
    /// The machine.
    pub machine: Machine,
    /// Time from the warning to the kill, seconds.
    pub grace_s: f64,
    /// Rate of the disk with credit, bytes a second.
    pub rate_bytes_per_s: u64,
    /// Rate of the disk without, bytes a second.
    pub low_rate_bytes_per_s: u64,
    /// Every round.
    pub rounds: Vec<Round>,
}

/// Why a run came to no result.
#[derive(Debug, thiserror::Error)]
pub enum GraceError {
    /// The machine has no room for data of this size.
    #[error(
        "data of {} need about {} of {what}, and {} are free: give less --size, or --dir on a \
         larger disk",
        Bytes(*size_bytes), Bytes(*needed_bytes), Bytes(*free_bytes)
    )]
    TooLarge {
        /// Size of the data.
        size_bytes: u64,
        /// `memory` or `disk`.
        what: &'static str,
        /// Bytes that they need.
        needed_bytes: u64,
        /// Bytes that are free.
        free_bytes: u64,
    },
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// The disk could not be made, throttled or cut.
    #[error("{what}: {why}")]
    Disk {
        /// What was tried.
        what: String,
        /// The reason.
        why: String,
    },
    /// A server did not do what it must.
    #[error("{server}: {why}; its output:\n{output}")]
    Server {
        /// The server.
        server: String,
        /// What it did.
        why: String,
        /// The end of what it wrote.
        output: String,
    },
    /// The connection to a server failed where it must not.
    #[error(transparent)]
    Target(#[from] crate::target::TargetError),
}

/// Runs all rounds. `progress` is told what is done of what; `is_over` ends the run early. Returns
/// the rounds that were made, and why there are no more: a disk or a server has failed in a way
/// that is no result.
pub fn run(
    settings: &Settings,
    is_over: &AtomicBool,
    progress: &dyn Fn(&str, u64, u64),
) -> (GraceResult, Result<(), GraceError>) {
    let mut result = GraceResult {
        kind: "grace".into(),
        machine: Machine::here(),
        grace_s: settings.grace.as_secs_f64(),
        rate_bytes_per_s: settings.rate_bytes_per_s,
        low_rate_bytes_per_s: settings.low_rate_bytes_per_s,
        rounds: Vec::new(),
    };
    let outcome = run_all(settings, is_over, progress, &mut result.rounds);
    (result, outcome)
}

/// Refuses data that surely do not fit: a quarter more than they are in memory, and their log and
/// what was written before on the disk.
fn check_room(settings: &Settings, size_bytes: u64) -> Result<(), GraceError> {
    let memory = (size_bytes.saturating_add(size_bytes / 4), "memory", memory_available_bytes());
    let disk = (size_bytes.saturating_mul(4), "disk", disk_available_bytes(&settings.dir));
    for (needed_bytes, what, free_bytes) in [memory, disk] {
        if let Some(free_bytes) = free_bytes.filter(|free_bytes| *free_bytes < needed_bytes) {
            return Err(GraceError::TooLarge { size_bytes, what, needed_bytes, free_bytes });
        }
    }
    Ok(())
}

fn run_all(
    settings: &Settings,
    is_over: &AtomicBool,
    progress: &dyn Fn(&str, u64, u64),
    rounds: &mut Vec<Round>,
) -> Result<(), GraceError> {
    settings.sizes.iter().try_for_each(|size_bytes| check_room(settings, *size_bytes))?;
    let total = settings.rounds * (settings.sizes.len() * settings.kinds.len()) as u64;
    for &size_bytes in &settings.sizes {
        for number in 0..settings.rounds {
            for &kind in &settings.kinds {
                let seed = settings.seed.wrapping_add(number);
                progress(kind.name(), rounds.len() as u64, total);
                rounds.push(round::run(settings, kind, size_bytes, seed, is_over)?);
            }
        }
    }
    progress("done", total, total);
    Ok(())
}
