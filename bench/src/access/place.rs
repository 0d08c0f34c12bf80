//! Where accesses go: memory of several kinds, made ready for a benchmark and gone after it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use perdura_heap::{Durability, Memory, MemoryError};
use perdura_media::{Bytes, Device, DeviceError, Direct, Engine, FileDevice, OpenMode, System};
use perdura_region::region::REGION_MIN_BYTES;
use perdura_region::{BLOCK_BYTES, Config as RegionConfig, Region, TrackingKind, TrapKind};
use tempfile::TempDir;

use super::nodes::{self, NoFarNode, Placement};
use super::replay::{Replay, ReplayError};
use super::sys::pages;
use super::workload::{Config, CustomOp, ExecMode, Memory as SpaceOf, NumaPattern};
use crate::machine::memory_available_bytes;
use crate::target::{StoreOptions, TargetError, new_region};

/// What is measured.
#[derive(Debug, Clone)]
pub enum Place {
    /// Memory of the process.
    Dram,
    /// A file in this folder, mapped: real persistent memory on a DAX file system, memory on tmpfs, the page cache elsewhere.
    Folder {
        /// Where.
        path: PathBuf,
        /// Nothing but DAX will do.
        dax_only: bool,
    },
    /// A region's memory, of which so much may be dirty.
    Region {
        /// Dirty bytes allowed.
        budget_bytes: u64,
        /// Folder of its image.
        dir: PathBuf,
    },
    /// A device, or a file that stands for one, by direct I/O of whole blocks.
    Device {
        /// Which.
        path: PathBuf,
        /// What is on it may be written over.
        overwrite: bool,
    },
    /// A medium that is not here, by its model: no time passes.
    Model(Box<System>),
}

/// Why memory is not ready.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// More than the machine has.
    #[error("{key}: {}: more than the {} of memory that can be had; give less, or --range-max", Bytes(*.asked), Bytes(*.available))]
    TooLarge {
        /// Which range.
        key: &'static str,
        /// Bytes.
        asked: u64,
        /// Bytes.
        available: u64,
    },
    /// The file system has no room.
    #[error("{}: memory_range: {}: {} are free there; give less, or --range-max", .path.display(), Bytes(*.asked), Bytes(*.available))]
    NoRoom {
        /// Where.
        path: PathBuf,
        /// Bytes.
        asked: u64,
        /// Bytes.
        available: u64,
    },
    /// A mapping that cannot be had.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// DAX was asked for.
    #[error(
        "{0}: no DAX file system, so no MAP_SYNC: a store there is not persistent without a system call; mount one with -o dax, or leave --dax out"
    )]
    NotDax(PathBuf),
    /// Pages that are not to be had.
    #[error("{what} of {}: {source}", Bytes(*.bytes))]
    Pages {
        /// What was asked of the kernel.
        what: &'static str,
        /// Of so much.
        bytes: u64,
        /// Its answer.
        source: std::io::Error,
    },
    /// A device that cannot be had.
    #[error("--device {}: {source}", .path.display())]
    Device {
        /// Which.
        path: PathBuf,
        /// Why.
        source: DeviceError,
    },
    /// Writes to a device whose data nobody gave up.
    #[error("--device {}: this benchmark writes, which destroys what is there; give --overwrite if that may be", .0.display())]
    Precious(PathBuf),
    /// A device is accessed by blocks.
    #[error("{key}: {}: a device is accessed by whole blocks of 4 KiB", Bytes(*.value))]
    Blocks {
        /// The key, or the access of a chain.
        key: &'static str,
        /// Bytes.
        value: u64,
    },
    /// Accesses of a trace are of any size.
    #[error(
        "exec_mode: trace: not on a device, which takes whole blocks; use memory or a file (--dram, --path)"
    )]
    TraceOnDevice,
    /// A trace that cannot be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// Far memory was asked for.
    #[error(transparent)]
    Far(#[from] NoFarNode),
    /// The region could not be made.
    #[error("a region whose image is in {}: {source}", .dir.display())]
    Region {
        /// Folder of its image.
        dir: PathBuf,
        /// Why.
        source: Box<TargetError>,
    },
}

/// Memory of one part, ready.
pub struct Ready {
    /// `memory_range` bytes; none of a device.
    pub memory: Option<Memory>,
    /// What is accessed in the place of memory.
    pub device: Option<Arc<dyn Device>>,
    /// `dram_memory_range` bytes, if any.
    pub dram: Option<Memory>,
    /// What is done again, if anything is.
    pub replay: Option<Arc<Replay>>,
    /// What it is, in words.
    pub what: String,
    /// Where its threads run; none: anywhere.
    pub processors: Option<Vec<usize>>,
    file: Option<PathBuf>,
    /// Whose memory it is, and the folder of its image.
    _region: Option<(Arc<Region>, TempDir)>,
}

impl Drop for Ready {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // What cannot be removed here is named by the next run that meets it.
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Ready {
    /// Of a place that is not modelled.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub fn of(place: &Place, config: &Config) -> Result<Self, PlaceError> {
        let placement = nodes::place(&nodes::here(), config.numa_pattern == NumaPattern::Far)?;
        let dram_bytes = config.dram_memory_range;
        let in_dram = match place {
            Place::Dram | Place::Region { .. } => config.memory_range.saturating_add(dram_bytes),
            Place::Folder { .. } | Place::Model(_) | Place::Device { .. } => dram_bytes,
        };
        enough("memory_range", in_dram)?;
        let dram = match dram_bytes {
            0 => None,
            bytes => Some(anonymous(bytes, config, placement.as_ref())?),
        };
        let replay = replay_of(config)?;
        let processors = placement.as_ref().map(|placement| placement.processors.clone());
        let (mut device, mut file, mut kept) = (None, None, None);
        let (memory, what) = match place {
            Place::Model(_) => unreachable!("a model has no memory to be made ready"),
            Place::Dram => {
                let memory = anonymous(config.memory_range, config, placement.as_ref())?;
                (Some(memory), "DRAM".to_owned())
            }
            Place::Device { path, overwrite } => {
                let (opened, what) = open_device(path, *overwrite, config)?;
                device = Some(opened);
                (None, what)
            }
            Place::Folder { path, dax_only } => {
                let (memory, path) = in_folder(path, *dax_only, config)?;
                let what = memory.describe();
                file = Some(path);
                (Some(memory), what)
            }
            Place::Region { budget_bytes, dir } => {
                let failed = |source: TargetError| PlaceError::Region {
                    dir: dir.clone(),
                    source: Box::new(source),
                };
                // Whole blocks: what is beyond the range is not accessed.
                let bytes = config.memory_range.next_multiple_of(BLOCK_BYTES);
                let bytes = bytes.max(REGION_MIN_BYTES);
                let (region, dir) =
                    region(dir, bytes, *budget_bytes, config.seed).map_err(failed)?;
                let memory = Memory::region(Arc::clone(&region))?;
                let (budget, how) = (Bytes(region.budget_bytes()), region.describe_tracking());
                kept = Some((region, dir));
                (Some(memory), format!("a region with a budget of {budget}, {how}"))
            }
        };
        Ok(Self { memory, device, dram, replay, what, processors, file, _region: kept })
    }
}

/// The trace of a configuration that names one.
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

fn anonymous(
    bytes: u64,
    config: &Config,
    placement: Option<&Placement>,
) -> Result<Memory, PlaceError> {
    let memory = Memory::anonymous(bytes, Durability::Ordered)?;
    let failed =
        |what, source: rustix::io::Errno| PlaceError::Pages { what, bytes, source: source.into() };
    if config.dram_huge_pages {
        // A kernel that knows none measures without; what was got is in the result.
        let _ = pages::want_huge(memory.base(), bytes);
    }
    if let Some(placement) = placement {
        pages::bind(memory.base(), bytes, placement.node).map_err(|e| failed("mbind", e))?;
    }
    // DRAM has no file to fault in, but what is not there yet would be measured, too.
    pages::populate(memory.base(), bytes).map_err(|e| failed("memory", e))?;
    Ok(memory)
}

fn in_folder(
    folder: &Path,
    dax_only: bool,
    config: &Config,
) -> Result<(Memory, PathBuf), PlaceError> {
    let asked = config.memory_range;
    if let Some(available) = crate::machine::disk_available_bytes(folder)
        && asked > available
    {
        return Err(PlaceError::NoRoom { path: folder.to_owned(), asked, available });
    }
    let path = folder.join(format!("perdura-access-{}.tmp", std::process::id()));
    let outcome = Memory::file(&path, asked, Durability::Ordered);
    let memory = match outcome {
        Ok(memory) if !dax_only || memory.describe().contains("DAX") => memory,
        outcome => {
            let _ = std::fs::remove_file(&path);
            outcome?;
            return Err(PlaceError::NotDax(folder.to_owned()));
        }
    };
    if config.prefault_file
        && let Err(errno) = pages::populate(memory.base(), asked)
    {
        let _ = std::fs::remove_file(&path);
        let source = errno.into();
        return Err(PlaceError::Pages { what: "the file's pages", bytes: asked, source });
    }
    Ok((memory, path))
}

fn open_device(
    path: &Path,
    overwrite: bool,
    config: &Config,
) -> Result<(Arc<dyn Device>, String), PlaceError> {
    let failed = |source| PlaceError::Device { path: path.to_owned(), source };
    if config.writes() && !overwrite {
        return Err(PlaceError::Precious(path.to_owned()));
    }
    if config.exec_mode == ExecMode::Trace {
        return Err(PlaceError::TraceOnDevice);
    }
    let odd = |bytes: &u64| !bytes.is_multiple_of(perdura_media::BLOCK_BYTES);
    match &config.custom_operations {
        None if odd(&config.access_size) => {
            return Err(PlaceError::Blocks { key: "access_size", value: config.access_size });
        }
        None => {}
        Some(chain) => {
            let of = |op: &CustomOp| (op.memory() == SpaceOf::Persistent).then(|| op.bytes());
            if let Some(value) = chain.ops().iter().filter_map(of).find(|bytes| odd(bytes)) {
                return Err(PlaceError::Blocks { key: "custom_operations", value });
            }
        }
    }
    let mode = if config.writes() { OpenMode::Existing } else { OpenMode::ReadOnly };
    let device = FileDevice::open(path, mode, Engine::Auto, Direct::Auto).map_err(failed)?;
    let (asked, available) = (config.memory_range, device.capacity_bytes());
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
