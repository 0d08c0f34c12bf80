//! A region's memory and ledger, as a holder has them: enough to flush when the process that wrote
//! is gone.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Acquire;

use perdura_media::Device;

use crate::flush::{FlushOptions, FlushReport, flush_all};
use crate::memory_files::{adopt, map_region};
use perdura_dirty::sys::Mapping;
use perdura_dirty::{Ledger, RegionError};
use perdura_image::OpenError;
use perdura_image::format::Layout;

/// A region's memory and ledger in a process that does not write to them. Together with the image
/// they are all that a flush needs.
pub struct Attachment {
    map: Mapping,
    pub(crate) ledger: Ledger,
}

impl Attachment {
    /// Maps the memory and the ledger of a region.
    pub fn new(memory: OwnedFd, ledger: OwnedFd) -> Result<Self, OpenError> {
        let ledger = Ledger::attach(adopt("ledger", ledger)?)?;
        let memory = adopt("region", memory)?;
        let map = map_region(&memory)?;
        Ok(Self { map, ledger })
    }

    /// Keeps the pages of memory and ledger in DRAM that this process touches.
    pub(crate) fn lock_in_memory(&self) -> Result<(), rustix::io::Errno> {
        self.map.lock_in_memory().and_then(|()| self.ledger.lock_in_memory())
    }

    /// Bytes on the account of the budget: at least what a flush has to write.
    pub fn used_bytes(&self) -> u64 {
        self.ledger.budget_used().load(Acquire)
    }

    /// A number that changes while a process cleans or flushes.
    pub(crate) fn progress(&self) -> u64 {
        let ledger = &self.ledger;
        ledger.next_seq().load(Acquire).wrapping_add(ledger.commits().load(Acquire) << 32)
    }

    /// Whether a flush waits for the device. [`Attachment::progress`] stands still meanwhile.
    pub(crate) fn awaits_device(&self) -> bool {
        self.ledger.syncing().load(Acquire) != 0
    }

    /// Flushes everything that is dirty. No process may write to the region any more.
    pub fn flush(
        &self,
        device: &dyn Device,
        options: FlushOptions,
    ) -> Result<FlushReport, RegionError> {
        let layout = Layout::of(self.ledger.geometry());
        flush_all(&self.ledger, &self.map, &layout, device, options)
    }
}
