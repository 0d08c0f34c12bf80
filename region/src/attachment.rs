//! What a holder has of a region: memory and ledger, enough to flush with no part of the process
//! that wrote.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Acquire;

use perdura_media::Device;

use crate::error::OpenError;
use crate::flush::{FlushOptions, FlushReport, flush_all};
use crate::format::Layout;
use crate::kinds::empty_capacity;
use perdura_dirty::error::RegionError;
use perdura_dirty::ledger::Ledger;
use perdura_dirty::planted::Planted;
use perdura_dirty::sys::{Mapping, SharedMemory};

/// The three things any holder needs to flush: memory, ledger, image.
pub struct Attachment {
    map: Mapping,
    pub(crate) ledger: Ledger,
}

impl Attachment {
    /// Adopts the memory and ledger descriptors of a region.
    pub fn new(memory: OwnedFd, ledger: OwnedFd) -> Result<Self, OpenError> {
        let ledger = Ledger::attach(adopt("ledger", ledger)?)?;
        let memory = adopt("region", memory)?;
        let map = map_region(&memory)?;
        Ok(Self { map, ledger })
    }

    /// Keeps memory and ledger in DRAM as far as this process touches them.
    pub fn lock_in_memory(&self) -> Result<(), rustix::io::Errno> {
        self.map.lock_in_memory().and_then(|()| self.ledger.lock_in_memory())
    }

    /// Dirty bytes now: what a flush has to write.
    pub fn used_bytes(&self) -> u64 {
        self.ledger.budget_used().load(Acquire)
    }

    /// A number that changes while somebody cleans or flushes.
    pub fn progress(&self) -> u64 {
        let ledger = &self.ledger;
        ledger.next_seq().load(Acquire).wrapping_add(ledger.commits().load(Acquire) << 32)
    }

    /// Whether a flush waits for the device, so that [`Attachment::progress`] stands still.
    pub fn awaits_device(&self) -> bool {
        self.ledger.syncing().load(Acquire) != 0
    }

    /// The budget in force, bytes.
    pub fn budget_bytes(&self) -> u64 {
        self.ledger.budget_limit().load(Acquire)
    }

    /// Flushes everything; nobody may write the region any more.
    pub fn flush(
        &self,
        device: &dyn Device,
        options: FlushOptions,
    ) -> Result<FlushReport, RegionError> {
        let layout = Layout::of(self.ledger.geometry());
        flush_all(&self.ledger, &self.map, &layout, device, options)
    }
}

/// A descriptor that another process handed over.
pub(crate) fn adopt(what: &'static str, fd: OwnedFd) -> Result<SharedMemory, OpenError> {
    SharedMemory::from_fd(fd).map_err(|source| OpenError::Memory { what, len_bytes: 0, source })
}

/// The memory that a region left, for a new one: what was capacity is emptied before anybody can
/// read it.
pub(crate) fn take_over(
    ledger: &Ledger,
    memory: OwnedFd,
    planted: Planted,
) -> Result<SharedMemory, OpenError> {
    let memory = adopt("region", memory)?;
    empty_capacity(ledger, &memory, planted)?;
    Ok(memory)
}

pub(crate) fn map_region(memory: &SharedMemory) -> Result<Mapping, OpenError> {
    let len_bytes = memory.len_bytes();
    memory.map().map_err(|source| OpenError::Memory { what: "region", len_bytes, source })
}
