//! What a holder has of a region: memory and ledger, enough to flush with no part of the process
//! that wrote.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Acquire;

use perdura_media::Device;

use crate::flush::{FlushOptions, FlushReport, flush_all};
use crate::memory_files::{adopt, map_region};
use perdura_dirty::sys::Mapping;
use perdura_dirty::{Ledger, RegionError};
use perdura_image::OpenError;
use perdura_image::format::Layout;

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
