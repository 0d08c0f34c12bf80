//! The options of a region, which are the same in every command that opens one.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use perdura_media::{Direct, Engine, parse_duration};
use perdura_region::{Compression, PolicyKind, TrackingKind, TrapKind};

use crate::words::{named, one_of};

/// `--policy`: which dirty data are cleaned first.
pub fn policy(name: &Option<String>) -> Result<PolicyKind> {
    let Some(name) = name else { return Ok(PolicyKind::default()) };
    PolicyKind::parse(name).with_context(|| {
        let names: Vec<_> = PolicyKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("--policy {name}: expected one of {}", names.join(", "))
    })
}

/// `--compress`, or another option with the same words: how data on the SSD are compressed.
pub fn compression(option: &str, name: &Option<String>) -> Result<Compression> {
    one_of(option, name, &Compression::ALL)
}

/// `--checkpoint`, or another option with the same words: the time between checkpoints; `None` for
/// `off`.
pub fn checkpoint(option: &str, value: &Option<String>) -> Result<Option<Duration>> {
    match value.as_deref() {
        Some("off") => Ok(None),
        None => Ok(Some(Duration::from_secs(1))),
        Some(value) => Ok(Some(named(option, value, parse_duration(value))?)),
    }
}

/// `--tracking`: how the region learns which pages are written.
pub fn tracking(name: &Option<String>) -> Result<TrackingKind> {
    let choices = [
        ("barrier", TrackingKind::Barrier),
        ("trap", TrackingKind::Trap(TrapKind::Auto)),
        ("uffd-sigbus", TrackingKind::Trap(TrapKind::UffdSigbus)),
        ("uffd-thread", TrackingKind::Trap(TrapKind::UffdThread)),
        ("mprotect", TrackingKind::Trap(TrapKind::Mprotect)),
    ];
    one_of("tracking", name, &choices)
}

/// `--io`: the system calls that write the image.
pub fn engine(name: &Option<String>) -> Result<Engine> {
    let engines = [("auto", Engine::Auto), ("uring", Engine::Uring), ("pwrite", Engine::Pwrite)];
    one_of("io", name, &engines)
}

/// `--direct`: whether the image bypasses the page cache.
pub fn direct(name: &Option<String>) -> Result<Direct> {
    one_of("direct", name, &[("auto", Direct::Auto), ("on", Direct::On), ("off", Direct::Off)])
}

/// The threads of a flush, as an option such as `flush-threads` says; the default is the number of
/// the machine's processors, at most four.
pub fn flush_threads(option: &str, wanted: Option<usize>) -> Result<usize> {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let threads = wanted.unwrap_or(processors.min(4));
    if threads == 0 || threads > 64 {
        bail!("--{option} {threads}: expected 1 to 64");
    }
    Ok(threads)
}
