//! Where accesses go: memory of several kinds, made ready for a benchmark and gone after it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use perdura_heap::{Durability, Memory, MemoryError};
use perdura_media::file::{Direct, Engine};
use perdura_media::{Bytes, System};
use perdura_region::region::REGION_MIN_BYTES;
use perdura_region::{BLOCK_BYTES, Config as RegionConfig, Region, TrackingKind, TrapKind};
use tempfile::TempDir;

use super::nodes::{self, NoFarNode, Placement};
use super::sys::pages;
use super::workload::{Config, NumaPattern};
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
    /// `memory_range` bytes.
    pub memory: Memory,
    /// `dram_memory_range` bytes, if any.
    pub dram: Option<Memory>,
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
            Place::Folder { .. } | Place::Model(_) => dram_bytes,
        };
        enough("memory_range", in_dram)?;
        let dram = match dram_bytes {
            0 => None,
            bytes => Some(anonymous(bytes, config, placement.as_ref())?),
        };
        let processors = placement.as_ref().map(|placement| placement.processors.clone());
        let ready = |memory, what, file, region| Self {
            memory,
            dram,
            what,
            processors,
            file,
            _region: region,
        };
        match place {
            Place::Dram | Place::Model(_) => {
                let memory = anonymous(config.memory_range, config, placement.as_ref())?;
                Ok(ready(memory, "DRAM".into(), None, None))
            }
            Place::Folder { path, dax_only } => {
                let (memory, file) = in_folder(path, *dax_only, config)?;
                let what = memory.describe();
                Ok(ready(memory, what, Some(file), None))
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
                let budget = Bytes(region.budget_bytes());
                let what =
                    format!("a region with a budget of {budget}, {}", region.describe_tracking());
                Ok(ready(memory, what, None, Some((region, dir))))
            }
        }
    }
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
