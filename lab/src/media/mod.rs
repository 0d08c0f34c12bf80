//! `perdura-lab media`: how well an emulated medium keeps to its model, and the time of the
//! software on the way to it.
//!
//! `accuracy` compares measured with modelled latency and bandwidth; `steps` runs the four I/O
//! paths of HASTE over the same medium; `direct` compares a call of the emulator with copying the
//! same blocks; `files` measures the kernel's paths to a file; `blocks` defines the contents of
//! every block, so that each read can be verified outside of the timed part. The time of a medium
//! is modelled and labelled so; the time of software is measured.

mod accuracy;
mod blocks;
mod direct;
mod files;
pub mod page;
pub mod result;
mod steps;
mod verdicts;

use std::path::PathBuf;

use perdura_block::path::{FilePathError, PathError, Step};
use perdura_media::DeviceError;
use perdura_media::emulator::{Emulator, EmulatorError, Pace, Tsc};
use perdura_media::profile::{ProfileError, System};

use perdura_bench::machine::{Machine, disk_available_bytes, memory_available_bytes};
use result::{MediaConfiguration, MediaResult, PathResult};

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct MediaSettings {
    /// The medium, behind its link if it has one.
    pub system: System,
    /// Profile as given on the command line.
    pub profile: String,
    /// Link as given on the command line.
    pub link: Option<String>,
    /// Steps of the driver to compare, each once, in the order in which HASTE took them.
    pub steps: Vec<Step>,
    /// Size of the emulated medium, bytes.
    pub size_bytes: u64,
    /// Size of the files that the kernel's paths read, bytes.
    pub file_bytes: u64,
    /// Duration of the measurements, seconds, roughly; filling the medium comes on top.
    pub seconds: f64,
    /// Folder of the file on the disk.
    pub dir: PathBuf,
    /// Folder of the file in memory.
    pub tmpfs_dir: PathBuf,
    /// Seed of all random places.
    pub seed: u64,
}

impl MediaSettings {
    /// The default settings for a medium.
    #[must_use]
    pub fn usual(system: System, profile: &str) -> Self {
        Self {
            system,
            steps: Step::ALL.to_vec(),
            profile: profile.to_owned(),
            link: None,
            size_bytes: 4 << 30,
            file_bytes: 1 << 30,
            seconds: 24.0,
            dir: PathBuf::from("."),
            tmpfs_dir: PathBuf::from("/dev/shm"),
            seed: 1,
        }
    }
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MediaBenchError {
    /// A size is too small, or not a multiple of a block.
    #[error("{what} of {found} bytes: expected a multiple of 4096 of at least {min}")]
    Size {
        /// The part that has the size.
        what: &'static str,
        /// The size as given, bytes.
        found: u64,
        /// The least size, bytes.
        min: u64,
    },
    /// The memory or the disk has too little room.
    #[error(
        "{what} needs {needed_bytes} bytes, {place} has {available_bytes}: give a smaller {option}"
    )]
    NoRoom {
        /// The part that needs the room.
        what: &'static str,
        /// Bytes that are needed.
        needed_bytes: u64,
        /// The memory or folder that lacks the room.
        place: String,
        /// Bytes that are available.
        available_bytes: u64,
        /// The option that decides how much is needed.
        option: &'static str,
    },
    /// The emulator cannot be created.
    #[error(transparent)]
    Emulator(#[from] EmulatorError),
    /// A profile that this program has built in is refused.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// An I/O path to the medium cannot be created.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A file, or a path to one, cannot be had.
    #[error(transparent)]
    File(#[from] FilePathError),
    /// A file for the measurement cannot be created.
    #[error("a file of {bytes} bytes in {dir} cannot be created: {source}")]
    Make {
        /// Folder of the file.
        dir: PathBuf,
        /// Length of the file, bytes.
        bytes: u64,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// A request failed.
    #[error("{what}: {source}")]
    Device {
        /// The I/O path of the request.
        what: String,
        /// The device's error.
        #[source]
        source: DeviceError,
    },
    /// A read returned other bytes than were written.
    #[error("{what}: the block at {offset_bytes} holds {found:#x} where {expected:#x} was written")]
    Corrupt {
        /// The I/O path of the read.
        what: String,
        /// Offset of the word, bytes from the start of the medium.
        offset_bytes: u64,
        /// The first word that differs.
        found: u64,
        /// The word that was written there.
        expected: u64,
    },
}

/// Called with the name of a phase, the steps done, and the number of steps.
pub type Progress<'p> = &'p dyn Fn(&str, u64, u64);

/// Least size of an emulated medium, bytes: smaller ones fit into a processor's caches.
const SIZE_BYTES_MIN: u64 = 1 << 20;
/// The link of the slides' prototype, for a medium that has none: a driver needs a device.
const DRIVER_LINK: &str = "pcie1x8";
/// Blocks that are filled between two calls of the progress function.
const TOLD_BLOCKS: u64 = 8192;
/// Shares of the time that the parts get.
const ACCURACY: f64 = 0.25;
const STEPS: f64 = 0.2;
const STEPS_ALONE: f64 = 0.2;
const DIRECT: f64 = 0.15;
const FILES: f64 = 0.2;

/// Runs all measurements.
///
/// # Errors
/// A size that does not fit, a medium or a file that cannot be had, or a read that returned wrong
/// bytes.
pub fn run(
    settings: &MediaSettings,
    progress: Progress<'_>,
) -> Result<MediaResult, MediaBenchError> {
    check(settings)?;
    let machine = Machine::here();
    // First, so that a folder without room for a file is found before anything is measured.
    let places = files::places(settings, progress)?;
    let seconds = settings.seconds;
    let accuracy = accuracy::measure(settings, ACCURACY * seconds, progress)?;
    let direct = direct::measure(settings, DIRECT * seconds, progress)?;
    let driven = match &settings.system.link {
        Some(_) => settings.system.clone(),
        None => settings.system.clone().with_link(DRIVER_LINK)?,
    };
    let mut paths = steps::measure(&driven, settings, STEPS * seconds, progress)?;
    let verdicts = verdicts::verdicts(&paths, &settings.steps);
    // On a medium that takes no time nobody sleeps: only the steps' own work is left.
    let instant = direct::instant()?;
    let alone = steps::measure(&instant, settings, STEPS_ALONE * seconds, progress)?;
    let verdicts_alone = verdicts::verdicts_alone(&alone, &settings.steps);
    let findings = verdicts::findings(&paths, &alone, &verdicts_alone);
    paths.results.push(direct.path());
    let files = files::measure(&places, settings, FILES * seconds, progress)?;
    paths.results.extend(files.results);
    let software_ns_per_4k =
        paths.results.iter().filter(|path| path.threads == 1).map(PathResult::entry).collect();
    Ok(MediaResult {
        kind: "media".into(),
        profile: settings.profile.clone(),
        target_read_ns: accuracy.read.target_ns,
        measured_read_ns_p50: accuracy.read.measured_ns_p50,
        measured_read_ns_p99: accuracy.read.measured_ns_p99,
        target_write_ns: accuracy.write.target_ns,
        measured_write_ns_p50: accuracy.write.measured_ns_p50,
        measured_write_ns_p99: accuracy.write.measured_ns_p99,
        target_read_bandwidth_bytes_per_s: accuracy.read_stream.target_bytes_per_s,
        measured_read_bandwidth_bytes_per_s: accuracy.read_stream.measured_bytes_per_s,
        target_write_bandwidth_bytes_per_s: accuracy.write_stream.target_bytes_per_s,
        measured_write_bandwidth_bytes_per_s: accuracy.write_stream.measured_bytes_per_s,
        modelled_requests_per_s: accuracy.modelled_requests_per_s,
        modelled_requests_per_s_of_a_granule: accuracy.modelled_requests_per_s_of_a_granule,
        read: accuracy.read,
        write: accuracy.write,
        read_stream: accuracy.read_stream,
        write_stream: accuracy.write_stream,
        accesses: accuracy.accesses,
        streams: accuracy.streams,
        software_ns_per_4k,
        software_medium: format!("modelled {}", driven.name),
        findings,
        paths: paths.results,
        verdicts,
        alone: alone.results,
        verdicts_alone,
        direct,
        refused: files.refused,
        machine,
        configuration: MediaConfiguration {
            about: settings.system.about.clone(),
            link: settings.link.clone(),
            size_bytes: settings.size_bytes,
            file_bytes: settings.file_bytes,
            seconds: settings.seconds,
            seed: settings.seed,
            clock: Tsc::calibrated().describe(),
        },
    })
}

fn check(settings: &MediaSettings) -> Result<(), MediaBenchError> {
    for (what, found) in [("a medium", settings.size_bytes), ("a file", settings.file_bytes)] {
        if found < SIZE_BYTES_MIN || !found.is_multiple_of(blocks::BLOCK_BYTES as u64) {
            return Err(MediaBenchError::Size { what, found, min: SIZE_BYTES_MIN });
        }
    }
    // The emulator and the file in memory must leave some memory free.
    let needed_bytes = (settings.size_bytes + settings.file_bytes).saturating_mul(17) / 16;
    let room = |what, option, needed_bytes, place: String, available: Option<u64>| match available {
        Some(available_bytes) if available_bytes < needed_bytes => {
            Err(MediaBenchError::NoRoom { what, needed_bytes, place, available_bytes, option })
        }
        _ => Ok(()),
    };
    room("the medium", "--size", needed_bytes, "memory".into(), memory_available_bytes())?;
    for dir in [&settings.dir, &settings.tmpfs_dir] {
        let place = dir.display().to_string();
        room("a file", "--file-size", settings.file_bytes, place, disk_available_bytes(dir))?;
    }
    Ok(())
}

/// An emulator whose blocks have the contents that `blocks` defines. Filling takes seconds for some
/// GiB, so progress is reported.
fn filled(
    system: &System,
    size_bytes: u64,
    progress: Progress<'_>,
) -> Result<Emulator, MediaBenchError> {
    let emulator = Emulator::anonymous(system, size_bytes, Pace::Real)?;
    let device = |source| MediaBenchError::Device { what: "filling".into(), source };
    let mut block = [0; blocks::BLOCK_BYTES];
    let count = size_bytes / blocks::BLOCK_BYTES as u64;
    for number in 0..count {
        if number.is_multiple_of(TOLD_BLOCKS) {
            progress("filling the medium", number, count);
        }
        blocks::fill(number, &mut block);
        emulator.copy_in(number * blocks::BLOCK_BYTES as u64, &block).map_err(device)?;
    }
    Ok(emulator)
}

/// Nanoseconds between two readings of the processor's clock.
fn ns(tsc: Tsc, from: u64, to: u64) -> f64 {
    tsc.ps(to.saturating_sub(from)) as f64 / 1e3
}

/// The value at a share of a sorted slice; 0 if the slice is empty.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(0.0)
}

/// The values in ascending order.
fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// Nanoseconds between two consecutive readings of the clock: subtracted from times that are taken
/// request by request.
fn stamp_ns(tsc: Tsc) -> f64 {
    let pairs = (0..2001).map(|_| {
        let from = tsc.ticks();
        ns(tsc, from, tsc.ticks_behind())
    });
    quantile(&sorted(pairs.collect()), 0.5)
}
