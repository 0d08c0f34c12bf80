//! The memory of several kinds that accesses go to: made ready for a benchmark and removed after
//! it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use perdura_heap::{Durability, Memory, MemoryError};
use perdura_media::{Bytes, Device, DeviceError, Direct, Engine, FileDevice, OpenMode, System};
use perdura_region::{
    BLOCK_BYTES, Config as RegionConfig, REGION_MIN_BYTES, Region, TrackingKind, TrapKind,
};
use rustix::io::Errno;
use tempfile::TempDir;

use super::nodes::{self, NoFarNode};
use super::replay::{ACCESSES_MAX, Replay, ReplayError};
use super::sys::pages::{self, Populate};
use super::workload::{Config, CustomOp, ExecMode, Memory as SpaceOf, NumaPattern};
use perdura_bench::machine::memory_available_bytes;
use perdura_bench::target::{StoreOptions, TargetError, new_region};

/// The memory that is measured.
#[derive(Debug, Clone)]
pub enum Place {
    /// Memory of the process.
    Dram,
    /// A mapped file in this folder: real persistent memory on a DAX file system, memory on tmpfs,
    /// the page cache elsewhere.
    Folder {
        /// The folder.
        path: PathBuf,
        /// Whether a folder without DAX is refused.
        dax_only: bool,
    },
    /// The memory of a region with a dirty budget.
    Region {
        /// Dirty budget, bytes.
        budget_bytes: u64,
        /// Folder of the region's image.
        dir: PathBuf,
    },
    /// A block device, or a file that stands for one, by direct I/O of whole blocks.
    Device {
        /// Path of the device.
        path: PathBuf,
        /// Whether the data on the device may be overwritten.
        overwrite: bool,
    },
    /// The model of a medium: no time passes.
    Model(Box<System>),
}

/// Why memory is not ready.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// A range is larger than the machine's memory.
    #[error("{key}: {}: more than the {} of available memory; give less, or \
             --range-max", Bytes(*.asked), Bytes(*.available))]
    TooLarge {
        /// Key of the range.
        key: &'static str,
        /// Bytes that were asked for.
        asked: u64,
        /// Bytes that are available.
        available: u64,
    },
    /// The file system has too little room.
    #[error("{}: memory_range: {}: {} are free there; give less, or \
             --range-max", .path.display(), Bytes(*.asked), Bytes(*.available))]
    NoRoom {
        /// Folder on the file system.
        path: PathBuf,
        /// Bytes that were asked for.
        asked: u64,
        /// Bytes that are available.
        available: u64,
    },
    /// Memory cannot be mapped.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// DAX was asked for, and the folder has none.
    #[error(
        "{0}: not a DAX file system (no MAP_SYNC), so stores are not persistent without a system \
         call; mount one with -o dax, or leave --dax out"
    )]
    NotDax(PathBuf),
    /// The kernel refused to prepare pages.
    #[error("{what} of {}: {source}", Bytes(*.bytes))]
    Pages {
        /// The request to the kernel.
        what: &'static str,
        /// Size of the range.
        bytes: u64,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// A device cannot be opened.
    #[error("--device {}: {source}", .path.display())]
    Device {
        /// Path of the device.
        path: PathBuf,
        /// The device's error.
        source: DeviceError,
    },
    /// Writing to a device needs permission to destroy its data.
    #[error("--device {}: this benchmark writes, which destroys the data on the device; give \
             --overwrite to allow that", .0.display())]
    Precious(PathBuf),
    /// A size is not a multiple of a device's block.
    #[error("{key}: {}: a device is accessed by whole blocks of 4 KiB", Bytes(*.value))]
    Blocks {
        /// Key of the size.
        key: &'static str,
        /// The size, bytes.
        value: u64,
    },
    /// A trace has accesses of any size, which a device cannot do.
    #[error(
        "exec_mode: trace: not on a device, which takes whole blocks; use memory or a file \
         (--dram, --path)"
    )]
    TraceOnDevice,
    /// A trace cannot be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// Far memory was asked for, and there is none.
    #[error(transparent)]
    Far(#[from] NoFarNode),
    /// The region could not be created.
    #[error("a region whose image is in {}: {source}", .dir.display())]
    Region {
        /// Folder of the region's image.
        dir: PathBuf,
        /// The region's error.
        source: Box<TargetError>,
    },
}

/// The memory of one part, ready for use.
pub struct Ready {
    /// Memory of `memory_range` bytes; none for a device.
    pub memory: Option<Memory>,
    /// The device that is accessed instead of memory, and the offset of its first byte.
    pub device: Option<(Arc<dyn Device>, u64)>,
    /// Memory of `dram_memory_range` bytes, if any.
    pub dram: Option<Memory>,
    /// The trace that is replayed, if any.
    pub replay: Option<Arc<Replay>>,
    /// Description of the memory.
    pub what: String,
    /// Settings that differ from the configuration's, with the reason.
    pub notes: Vec<String>,
    /// Processors for the part's threads; none: any.
    pub processors: Option<Vec<usize>>,
    /// The region that owns the memory, and the folder of its image.
    _region: Option<(Arc<Region>, TempDir)>,
}

impl Ready {
    /// Prepares the memory of a place that is not modelled; `from_bytes` of a device belong to
    /// other parts.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub fn of(place: &Place, config: &Config, from_bytes: u64) -> Result<Self, PlaceError> {
        check(place, config)?;
        let mut notes = Vec::new();
        let dram = match config.dram_memory_range {
            0 => None,
            bytes => Some(anonymous(bytes, config, &mut notes)?),
        };
        let replay = replay_of(config)?;
        if replay.as_ref().is_some_and(|replay| replay.is_cut) {
            notes.push(format!("trace_file: its first {ACCESSES_MAX} accesses"));
        }
        let (mut device, mut kept) = (None, None);
        let (memory, what) = match place {
            Place::Model(_) => unreachable!("a model has no memory to be made ready"),
            Place::Dram => {
                (Some(anonymous(config.memory_range, config, &mut notes)?), "DRAM".to_owned())
            }
            Place::Device { path, .. } => {
                let (opened, what) = open_device(path, config, from_bytes)?;
                device = Some((opened, from_bytes));
                (None, what)
            }
            Place::Folder { path, dax_only } => {
                let (memory, what) = in_folder(path, *dax_only, config)?;
                (Some(memory), what)
            }
            Place::Region { budget_bytes, dir } => {
                let failed = |source: TargetError| PlaceError::Region {
                    dir: dir.clone(),
                    source: Box::new(source),
                };
                // A multiple of the block; the bytes beyond the range are not accessed.
                let bytes = config.memory_range.next_multiple_of(BLOCK_BYTES);
                let bytes = bytes.max(REGION_MIN_BYTES);
                let (region, dir) =
                    region(dir, bytes, *budget_bytes, config.seed).map_err(failed)?;
                let memory = Memory::region(Arc::clone(&region))?;
                if config.prefault_file {
                    // Pages are brought in by reading: a write would be tracked, which is what is
                    // measured.
                    pages::populate(memory.base(), bytes, Populate::Read)
                        .map_err(pages_failed("the region's pages", bytes))?;
                }
                let (budget, how) = (Bytes(region.budget_bytes()), region.describe_tracking());
                kept = Some((region, dir));
                (Some(memory), format!("a region with a budget of {budget}, {how}"))
            }
        };
        let lies_on = memory.as_ref().and_then(|memory| pages::node_of(memory.base()));
        let processors = nodes::processors(&nodes::here(), lies_on, is_far(config))?;
        Ok(Self { memory, device, dram, replay, what, notes, processors, _region: kept })
    }
}

/// Whether a configuration can run in a place, as far as that is known before memory is mapped:
/// nobody should wait an hour for an error.
///
/// # Errors
/// [`PlaceError`].
pub fn check(place: &Place, config: &Config) -> Result<(), PlaceError> {
    if let Place::Model(_) = place {
        return Ok(());
    }
    nodes::memory_node(&nodes::here(), is_far(config))?;
    let dram_bytes = config.dram_memory_range;
    let in_dram = match place {
        Place::Dram | Place::Region { .. } => config.memory_range.saturating_add(dram_bytes),
        Place::Folder { .. } | Place::Model(_) | Place::Device { .. } => dram_bytes,
    };
    enough("memory_range", in_dram)?;
    if let Place::Folder { path, .. } = place {
        room(path, config.memory_range)?;
    }
    if let Some(file) = &config.trace_file {
        Replay::check(file)?;
    }
    match place {
        Place::Device { path, overwrite } if config.writes() && !overwrite => {
            Err(PlaceError::Precious(path.clone()))
        }
        Place::Device { .. } => whole_blocks(config),
        _ => Ok(()),
    }
}

fn is_far(config: &Config) -> bool {
    config.numa_pattern == NumaPattern::Far
}

/// Checks that all sizes are multiples of a device's block.
fn whole_blocks(config: &Config) -> Result<(), PlaceError> {
    let whole = |key, value: u64| match value.is_multiple_of(perdura_media::BLOCK_BYTES) {
        true => Ok(()),
        false => Err(PlaceError::Blocks { key, value }),
    };
    match (config.exec_mode, &config.custom_operations) {
        (ExecMode::Trace, _) => return Err(PlaceError::TraceOnDevice),
        (ExecMode::Custom, Some(chain)) => {
            let own = |op: &&CustomOp| op.memory() == SpaceOf::Persistent;
            for op in chain.ops().iter().filter(own) {
                whole("custom_operations", op.bytes())?;
                if let CustomOp::Write { offset_bytes, .. } = op {
                    whole("custom_operations", offset_bytes.unsigned_abs())?;
                }
            }
        }
        _ => whole("access_size", config.access_size)?,
    }
    whole("memory_range in each partition", config.memory_range / config.partitions())
}

/// Reads the trace of a configuration that names one.
///
/// # Errors
/// [`ReplayError`].
pub fn replay_of(config: &Config) -> Result<Option<Arc<Replay>>, ReplayError> {
    config.trace_file.as_deref().map(|file| Ok(Arc::new(Replay::load(file)?))).transpose()
}

fn enough(key: &'static str, asked: u64) -> Result<(), PlaceError> {
    match memory_available_bytes() {
        Some(available) if asked > available => Err(PlaceError::TooLarge { key, asked, available }),
        _ => Ok(()),
    }
}

fn room(folder: &Path, asked: u64) -> Result<(), PlaceError> {
    match perdura_bench::machine::disk_available_bytes(folder) {
        Some(available) if asked > available => {
            Err(PlaceError::NoRoom { path: folder.to_owned(), asked, available })
        }
        _ => Ok(()),
    }
}

fn pages_failed(what: &'static str, bytes: u64) -> impl Fn(Errno) -> PlaceError {
    move |source| PlaceError::Pages { what, bytes, source: source.into() }
}

fn anonymous(bytes: u64, config: &Config, notes: &mut Vec<String>) -> Result<Memory, PlaceError> {
    let memory = Memory::anonymous(bytes, Durability::Ordered)?;
    let base = memory.base();
    // A kernel that knows neither advice has no huge pages.
    let _ = pages::huge(base, bytes, config.dram_huge_pages);
    if let Some(node) = nodes::memory_node(&nodes::here(), is_far(config))? {
        match pages::bind(base, bytes, node) {
            Ok(()) => {}
            // Containers often refuse this. Memory that a near thread touches first is near all the
            // same.
            Err(errno @ (Errno::PERM | Errno::NOSYS)) if !is_far(config) => {
                notes.push(format!("numa_pattern: near: memory is not bound ({errno})"));
            }
            Err(errno) => return Err(pages_failed("mbind", bytes)(errno)),
        }
    }
    // Page faults would be measured, too, so DRAM is always brought in.
    pages::populate(base, bytes, Populate::Write).map_err(pages_failed("memory", bytes))?;
    let huge_bytes = pages::huge_bytes(base);
    if config.dram_huge_pages && huge_bytes < bytes / 2 && bytes >= pages::HUGE_BYTES {
        notes.push("dram_huge_pages: true: the kernel gave pages of 4 KiB for most of it".into());
    }
    Ok(memory)
}

/// Maps a file of its own, whose name is removed at once, so that it goes with the process.
fn in_folder(
    folder: &Path,
    dax_only: bool,
    config: &Config,
) -> Result<(Memory, String), PlaceError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let asked = config.memory_range;
    let number = NUMBER.fetch_add(1, Relaxed);
    let path = folder.join(format!("perdura-access-{}-{number}.tmp", std::process::id()));
    let outcome = Memory::file(&path, asked, Durability::Ordered);
    // Removal fails only if the file could not be created, which `outcome` reports.
    let _ = std::fs::remove_file(&path);
    let memory = outcome?;
    let is_dax = memory.describe().contains("DAX");
    if dax_only && !is_dax {
        return Err(PlaceError::NotDax(folder.to_owned()));
    }
    if config.prefault_file {
        pages::populate(memory.base(), asked, Populate::Write)
            .map_err(pages_failed("the file's pages", asked))?;
    }
    let what = match is_dax {
        true => "a DAX file (MAP_SYNC)",
        false if is_tmpfs(folder) => "a file on tmpfs",
        false => "a file, by the page cache",
    };
    Ok((memory, what.to_owned()))
}

fn is_tmpfs(folder: &Path) -> bool {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    rustix::fs::statfs(folder).is_ok_and(|found| found.f_type as u64 == TMPFS_MAGIC)
}

fn open_device(
    path: &Path,
    config: &Config,
    from_bytes: u64,
) -> Result<(Arc<dyn Device>, String), PlaceError> {
    let failed = |source| PlaceError::Device { path: path.to_owned(), source };
    let mode = if config.writes() { OpenMode::Existing } else { OpenMode::ReadOnly };
    let device = FileDevice::open(path, mode, Engine::Auto, Direct::Auto).map_err(failed)?;
    let (asked, available) = (from_bytes + config.memory_range, device.capacity_bytes());
    if asked > available {
        return Err(PlaceError::NoRoom { path: path.to_owned(), asked, available });
    }
    let what = format!("device {}: {}", path.display(), device.describe());
    Ok((Arc::new(device), what))
}

fn region(
    dir: &Path,
    memory_bytes: u64,
    budget_bytes: u64,
    seed: u64,
) -> Result<(Arc<Region>, TempDir), TargetError> {
    let config = RegionConfig {
        reserved_bytes: Some(memory_bytes),
        tracking: TrackingKind::Trap(TrapKind::Auto),
        seed,
        ..RegionConfig::new(memory_bytes, budget_bytes)
    };
    let (region, dir) = new_region(&StoreOptions {
        dir: dir.to_owned(),
        config,
        engine: Engine::Auto,
        direct: Direct::Auto,
        flush_threads: 1,
        commit_each: false,
    })?;
    Ok((Arc::new(region), dir))
}
