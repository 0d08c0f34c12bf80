//! A region's memory and ledger, as a holder has them: enough to flush when the process that wrote
//! is gone.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use perdura_media::Device;

use crate::flush::{FlushOptions, FlushReport, flush_all};
use crate::memory_files::{adopt, map_region};
use perdura_dirty::sys::Mapping;
use perdura_dirty::{Ledger, RegionError, SetupError};
use perdura_image::OpenError;
use perdura_image::format::Layout;

/// A region's memory and ledger in a process that does not write to them. Together with the image
/// they are all that a flush needs.
pub struct Attachment {
    map: Mapping,
    pub(crate) ledger: Ledger,
}

impl Attachment {
    /// Version of the layout that the memory has.
    pub fn layout(&self) -> u64 {
        self.ledger.layout()
    }

    /// Maps the memory and the ledger of a region.
    ///
    /// # Errors
    /// They are not those of a region, or not of the same one.
    pub fn new(memory: OwnedFd, ledger: OwnedFd) -> Result<Self, OpenError> {
        let ledger = Ledger::attach(adopt("ledger", ledger)?)?;
        let memory = adopt("region", memory)?;
        let expected_bytes = ledger.geometry().reserved_bytes;
        if memory.len_bytes() != expected_bytes {
            return Err(SetupError::Setting {
                name: "length of the memory file",
                value: format!("{} bytes", memory.len_bytes()),
                expected: "as many as its ledger says",
            }
            .into());
        }
        let map = map_region(&memory)?;
        Ok(Self { map, ledger })
    }

    /// Whether the image is encrypted: then its key lies in the ledger.
    pub fn has_key(&self) -> bool {
        self.ledger.key_words().is_some()
    }

    /// Keeps the pages of memory and ledger in DRAM that this process touches.
    ///
    /// # Errors
    /// The system does not allow so much locked memory.
    pub fn lock_in_memory(&self) -> Result<(), rustix::io::Errno> {
        self.map.lock_in_memory().and_then(|()| self.ledger.lock_in_memory())
    }

    /// Bytes on the account of the budget: at least what a flush has to write.
    pub fn used_bytes(&self) -> u64 {
        self.possible(self.ledger.budget_used().load(Acquire))
    }

    /// A number of bytes that the server says, which may be hostile: no more than all of its region
    /// dirty, and once more on its way.
    fn possible(&self, bytes: u64) -> u64 {
        bytes.min(2 * self.ledger.geometry().reserved_bytes)
    }

    /// Bytes that may be on the account.
    pub fn budget_bytes(&self) -> u64 {
        self.possible(self.ledger.budget_limit().load(Acquire))
    }

    /// Time to flush `bytes` on the account, at a proven rate.
    pub fn flush_time(&self, rate_bytes_per_s: u64, bytes: u64) -> Duration {
        perdura_dirty::promise::flush_time(self.ledger.geometry(), rate_bytes_per_s, bytes)
    }

    /// Largest size of the region: that of the memory file, which nobody can change.
    pub fn reserved_bytes(&self) -> u64 {
        self.ledger.geometry().reserved_bytes
    }

    /// Size of the region, as its ledger says.
    pub fn region_bytes(&self) -> u64 {
        self.possible(self.ledger.region_bytes().load(Acquire))
    }

    /// A number that changes while a process cleans or flushes.
    pub fn progress(&self) -> u64 {
        let ledger = &self.ledger;
        ledger.next_seq().load(Acquire).wrapping_add(ledger.commits().load(Acquire) << 32)
    }

    /// Whether a flush waits for the device. [`Attachment::progress`] stands still meanwhile.
    pub fn awaits_device(&self) -> bool {
        self.ledger.syncing().load(Acquire) != 0
    }

    /// Group commits of the region so far.
    pub fn group_commits(&self) -> u64 {
        self.ledger.group_commits().load(Relaxed)
    }

    /// Asks the region's cleaner to keep a short queue at the device, or asks no more.
    pub fn ask_for_short_queue(&self, is_asked: bool) {
        self.ledger.short_queue().store(is_asked.into(), Relaxed);
    }

    /// Flushes everything that is dirty. No process may write to the region any more.
    ///
    /// # Errors
    /// The device fails or the log is full; or the ledger was damaged since it was mapped.
    pub fn flush(
        &self,
        device: &dyn Device,
        options: FlushOptions,
    ) -> Result<FlushReport, RegionError> {
        let damaged = |source| RegionError::DamagedLedger { source: Arc::new(source) };
        self.ledger.check_states().map_err(damaged)?;
        let layout = Layout::of(self.ledger.geometry());
        flush_all(&self.ledger, &self.map, &layout, device, options)
    }
}

#[cfg(test)]
mod tests {
    use perdura_media::{SimClock, SimDevice};

    use super::*;
    use crate::{Config, Region};

    #[test]
    fn a_ledger_damaged_after_it_was_mapped_is_refused_and_flushed_once_it_is_right() {
        let device = Arc::new(SimDevice::new(0, 1));
        let config = Config { thread: false, ..Config::new(1 << 20, 256 << 10) };
        let region = Region::open(device.clone(), Arc::new(SimClock::new(0)), config).unwrap();
        crate::testing::write(&region, 0, &[1; 8192]);
        let (memory, ledger) = region.fds();
        let fds = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
        drop(region);
        let [memory, ledger] = fds;
        let holder = Attachment::new(memory, ledger).unwrap();
        let options = FlushOptions { threads: 1, unix_ms: 7 };
        assert!((8192..=256 << 10).contains(&holder.used_bytes()), "{}", holder.used_bytes());
        let right = holder.ledger.kinds()[0].swap(2, Relaxed);
        let ops = device.ops();
        let refused = holder.flush(&*device, options);
        assert!(matches!(refused, Err(RegionError::DamagedLedger { .. })), "{refused:?}");
        assert_eq!(device.ops(), ops, "durable operations of a refused flush");
        holder.ledger.kinds()[0].store(right, Relaxed);
        let flushed = holder.flush(&*device, options).unwrap();
        assert_eq!((flushed.dirty_bytes, holder.used_bytes()), (8192, 0));
    }
}
