//! The ways by their names on the command line.

use std::path::PathBuf;

use crate::access::Access;
use crate::error::Result;
use crate::ways::{Dram, Files, HeapSettings, HeapWay, Mapped};

/// A way to keep data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// Plain memory by malloc.
    Dram,
    /// A persistent heap with explicit flushes; scratch memory is the heap's capacity memory (the
    /// paper's pMem-Full).
    Heap,
    /// A persistent heap with explicit flushes; scratch memory is malloc's (the paper's pMem I/O).
    HeapIo,
    /// A persistent heap in memory that a battery keeps: stores are ordered, not flushed.
    HeapOrdered,
    /// Files on a tmpfs, read and written.
    RamDisk,
    /// Mapped files without a wait for the device.
    Mmap,
    /// Mapped files, on the device when they are finished.
    MmapSync,
    /// Files read from and written to a device.
    Block,
}

/// Folders and sizes of the ways.
#[derive(Debug, Clone)]
pub struct Places {
    /// Folder on a tmpfs.
    pub ram_dir: PathBuf,
    /// Folder on a device's file system.
    pub disk_dir: PathBuf,
    /// Length of a heap.
    pub heap_bytes: u64,
}

impl Way {
    /// All ways, in the order of tables.
    pub const ALL: [Self; 8] = [
        Self::Dram,
        Self::Heap,
        Self::HeapIo,
        Self::HeapOrdered,
        Self::RamDisk,
        Self::Mmap,
        Self::MmapSync,
        Self::Block,
    ];

    /// The way's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dram => "dram",
            Self::Heap => "heap",
            Self::HeapIo => "heap-io",
            Self::HeapOrdered => "heap-ordered",
            Self::RamDisk => "ramdisk",
            Self::Mmap => "mmap",
            Self::MmapSync => "mmap-sync",
            Self::Block => "block",
        }
    }

    /// The losses that finished data survive.
    pub fn survives(self) -> &'static str {
        match self {
            Self::Dram => "nothing",
            Self::Heap | Self::HeapIo => "power loss, were its memory persistent",
            Self::HeapOrdered => "power loss, with a battery for memory and caches",
            Self::RamDisk | Self::Mmap => "the process",
            Self::MmapSync | Self::Block => "power loss",
        }
    }

    /// Whether the way keeps data in files.
    pub fn is_in_files(self) -> bool {
        self != Self::Dram
    }

    /// Opens the way without data.
    ///
    /// # Errors
    /// A folder or file cannot be made, or the heap refuses.
    pub fn open(self, places: &Places) -> Result<Box<dyn Access>> {
        let in_ram = || places.ram_dir.join(self.name());
        let on_disk = || places.disk_dir.join(self.name());
        let heap = |flushed: bool, capacity: bool| {
            let settings = HeapSettings { len_bytes: places.heap_bytes, flushed, capacity };
            HeapWay::create(self.name(), in_ram(), settings)
        };
        Ok(match self {
            Self::Dram => Box::new(Dram::default()),
            Self::Heap => Box::new(heap(true, true)?),
            Self::HeapIo => Box::new(heap(true, false)?),
            Self::HeapOrdered => Box::new(heap(false, true)?),
            Self::RamDisk => Box::new(Files::on_ram_disk(in_ram())?),
            Self::Mmap => Box::new(Mapped::new(on_disk(), false)?),
            Self::MmapSync => Box::new(Mapped::new(on_disk(), true)?),
            Self::Block => Box::new(Files::on_device(on_disk())?),
        })
    }
}
