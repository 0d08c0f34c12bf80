//! Room for an image on its file system: how much an image takes, how much is free, and what fits.
//!
//! An image takes a multiple of the memory: the log, twice the space that the emergency flush of a
//! full budget may need, and a ninth for compaction. The budget may be the whole memory where the
//! warning allows it. All of the space is allocated before it is needed, because a flush must never
//! find a full disk. On a small disk the log is smaller and less may be dirty; the promise stays.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use perdura_dirty::geometry::{BUDGET_MIN_BYTES, Geometry};
use perdura_image::OpenError;
use perdura_image::format::Layout;

use crate::config::Config;

/// Sizes of the log in percent of the memory. The first that fits is taken.
pub const LOG_PERCENTS: [u64; 3] = [200, 150, 125];
/// A smaller log is taken rather than a budget below one part in so many of the memory: with an
/// eighth, most workloads never make a writer wait.
const BUDGET_WORTH: u64 = 8;
/// One part in so many of the free space stays free, because a file system needs some for itself.
const LEFT_ALONE: u64 = 32;

/// An image that fits on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// Size of the log, percent of the memory.
    pub log_percent: u64,
    /// Most bytes that may be dirty: all of the memory if there is room for that.
    pub budget_bytes_max: u64,
    /// Most bytes that the image takes.
    pub image_bytes: u64,
}

/// Chooses one of `log_percents` for an image of these settings in `free_bytes`. The inner `Err`
/// holds the bytes that the smallest image needs.
///
/// # Errors
/// No image can have the size that `config` names.
pub fn fit(
    config: &Config,
    free_bytes: u64,
    log_percents: &[u64],
) -> Result<Result<Fit, u64>, OpenError> {
    let geometry = config.geometry()?;
    let memory_bytes = config.region_bytes;
    let usable_bytes = free_bytes - free_bytes / LEFT_ALONE;
    let (mut best, mut smallest_bytes) = (None, u64::MAX);
    for &log_percent in log_percents {
        let size = |budget_bytes| image_bytes(&geometry, log_percent, memory_bytes, budget_bytes);
        smallest_bytes = smallest_bytes.min(size(BUDGET_MIN_BYTES));
        let found = largest_budget(&geometry, log_percent, memory_bytes, usable_bytes);
        let Some(budget_bytes_max) = found else { continue };
        let image_bytes = size(budget_bytes_max);
        let fit = Fit { log_percent, budget_bytes_max, image_bytes };
        if budget_bytes_max >= memory_bytes / BUDGET_WORTH {
            return Ok(Ok(fit));
        }
        best = Some(fit);
    }
    Ok(best.ok_or(smallest_bytes))
}

/// Bytes of an image whose log has room for `memory_bytes` and `budget_bytes`.
fn image_bytes(geometry: &Geometry, log_percent: u64, memory_bytes: u64, budget_bytes: u64) -> u64 {
    let segments = geometry.segments_wanted(log_percent, memory_bytes, budget_bytes);
    Layout::of(geometry).segment_at(segments)
}

/// The largest budget, up to the whole memory, whose image is no larger than `room_bytes`.
pub(crate) fn largest_budget(
    geometry: &Geometry,
    log_percent: u64,
    memory_bytes: u64,
    room_bytes: u64,
) -> Option<u64> {
    let fits = |budget_bytes: u64| {
        image_bytes(geometry, log_percent, memory_bytes, budget_bytes) <= room_bytes
    };
    if fits(memory_bytes) {
        return Some(memory_bytes);
    }
    if !fits(BUDGET_MIN_BYTES) {
        return None;
    }
    let (mut below, mut beyond) = (BUDGET_MIN_BYTES, memory_bytes);
    while beyond - below > 4096 {
        let middle = below + (beyond - below) / 2;
        if fits(middle) { below = middle } else { beyond = middle }
    }
    Some(below)
}

/// Memory that the process of a server takes beside its region and the ledger.
const BESIDE_BYTES: u64 = 64 << 20;
/// One part in so many of the region is what its ledger and tables take at most.
const LEDGER_PART: u64 = 20;

/// Memory that a server with a region of `memory_bytes` takes, with all that belongs to it. A
/// cgroup that holds the server and its holder needs it once, because they share it.
pub fn process_bytes(memory_bytes: u64) -> u64 {
    memory_bytes.saturating_add(memory_bytes / LEDGER_PART).saturating_add(BESIDE_BYTES)
}

/// The free space that [`fit`] finds enough for an image of `image_bytes`.
pub fn disk_bytes(image_bytes: u64) -> u64 {
    image_bytes.saturating_add(image_bytes / (LEFT_ALONE - 1)).saturating_add(LEFT_ALONE)
}

/// What [`free_bytes`] returns for a file system that counts no blocks at all, as FUSE without
/// `statfs`, ramfs, and tmpfs without a size: such a file system does not tell. Every image is
/// taken to fit, and a file that gets no space is an error when the space is allocated.
pub const UNTOLD_BYTES: u64 = 1 << 62;

/// Free bytes on the file system of a directory, which need not exist yet.
///
/// # Errors
/// The system does not tell, or the file system is read-only.
pub fn free_bytes(dir: &Path) -> io::Result<u64> {
    for place in dir.ancestors().filter(|place| !place.as_os_str().is_empty()) {
        match rustix::fs::statvfs(place) {
            Ok(found) if found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) => {
                return Err(rustix::io::Errno::ROFS.into());
            }
            Ok(found) => return Ok(free_of(&found)),
            Err(rustix::io::Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(free_of(&rustix::fs::statvfs(".")?))
}

fn free_of(found: &rustix::fs::StatVfs) -> u64 {
    match found.f_blocks {
        0 => UNTOLD_BYTES,
        _ => found.f_bavail.saturating_mul(found.f_frsize),
    }
}

/// Bytes by which an image may grow: 0 on a block device.
pub(crate) fn growth_bytes(image: impl AsFd) -> io::Result<u64> {
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&image)?.st_mode);
    if kind != rustix::fs::FileType::RegularFile {
        return Ok(0);
    }
    let free_bytes = free_of(&rustix::fs::fstatvfs(&image)?);
    Ok(free_bytes - free_bytes / LEFT_ALONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_file_system_that_does_not_tell_has_room_for_every_image() {
        // The file system of /proc counts no blocks.
        let untold_bytes = free_bytes(Path::new("/proc")).unwrap();
        assert_eq!(untold_bytes, UNTOLD_BYTES);
        let fit = fit(&Config::new(1 << 40, 0), untold_bytes, &LOG_PERCENTS).unwrap().unwrap();
        assert_eq!((fit.log_percent, fit.budget_bytes_max), (200, 1 << 40));
        assert!(free_bytes(Path::new("/")).unwrap() < UNTOLD_BYTES);
    }

    #[test]
    fn a_small_disk_gets_a_smaller_log_and_then_a_smaller_budget() {
        let config = Config::new(256 * MIB, 0);
        let of = |free_bytes| fit(&config, free_bytes, &LOG_PERCENTS).unwrap();
        let plenty = of(4096 * MIB).unwrap();
        assert_eq!((plenty.log_percent, plenty.budget_bytes_max), (200, 256 * MIB));
        let mut before = plenty;
        for free in [1000, 700, 600, 500, 450, 420] {
            let Ok(found) = of(free * MIB) else { continue };
            assert!(found.image_bytes <= free * MIB, "{found:?} in {free} MiB");
            assert!(found.log_percent <= before.log_percent, "{found:?} after {before:?}");
            assert!(found.budget_bytes_max >= BUDGET_MIN_BYTES);
            before = found;
        }
        assert_eq!(before.log_percent, 125);
        let needed_bytes = of(300 * MIB).unwrap_err();
        assert!(needed_bytes > 300 * MIB && of(needed_bytes * 32 / 31 + MIB).is_ok());
    }

    #[test]
    fn the_largest_budget_that_fits_is_taken_and_a_part_of_the_disk_stays_free() {
        let config = Config::new(256 * MIB, 0);
        let geometry = config.geometry().unwrap();
        for free_bytes in (400 * MIB..1100 * MIB).step_by(7_654_321) {
            let Ok(found) = fit(&config, free_bytes, &LOG_PERCENTS).unwrap() else { continue };
            let room_bytes = free_bytes / 32 * 31;
            assert!(found.image_bytes <= room_bytes + 32, "{found:?} in {free_bytes}");
            let size = |budget_bytes| {
                image_bytes(&geometry, found.log_percent, config.region_bytes, budget_bytes)
            };
            assert_eq!(size(found.budget_bytes_max), found.image_bytes);
            let is_all = found.budget_bytes_max == config.region_bytes;
            let more_bytes = size(found.budget_bytes_max + 4096);
            assert!(is_all || more_bytes > room_bytes, "{found:?} in {free_bytes}");
        }
    }

    #[test]
    fn an_image_may_grow_by_most_of_what_is_free_and_a_device_by_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(dir.path().join("image")).unwrap();
        let growth_bytes = |file| growth_bytes(file).unwrap() as f64;
        let free_bytes = free_bytes(dir.path()).unwrap() as f64;
        // Others use the same disk. A full one has nothing to share.
        let share = (growth_bytes(file) + 1.0) / (free_bytes + 1.0);
        assert!(free_bytes < 1e8 || (share - 31.0 / 32.0).abs() < 0.05, "{share}");
        assert_eq!(growth_bytes(std::fs::File::open("/dev/null").unwrap()), 0.0);
    }
}
