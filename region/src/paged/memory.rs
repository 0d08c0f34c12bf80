//! Paged memory as its users see it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use perdura_dirty::EventCount;
use perdura_dirty::sys::signals::{FaultSignal, RANGES_MAX, Registration};
use perdura_dirty::sys::{FaultLock, Mapping, SharedMemory, Uffd};
use perdura_media::emulator::Emulator;
use perdura_media::{Clock, RealClock};

use super::config::{PAGE_BYTES, PagedConfig};
use super::error::PagedError;
use super::fault;
use super::pager::{Counts, Pager, State};
use super::recording::{Recorded, Recording};
use super::residents::{Residents, Unit};

/// A range of memory of which at most a cap is in DRAM. Any thread may read and write it as plain
/// memory.
pub struct PagedMemory {
    /// Dropped first, because the handler uses the pager.
    _registration: Registration,
    pager: Box<Pager>,
}

/// Counters since the memory was opened. Units are runs of [`PagedConfig::fault_pages`] pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PagedStats {
    /// Touches of units that were not in DRAM.
    pub misses: u64,
    /// Missed units that were read from the medium. The other missed units were new and began as
    /// zeros.
    pub page_ins: u64,
    /// Dirty units that were written to the medium because another unit came.
    pub page_outs: u64,
    /// Inactive units that were reactivated by a touch.
    pub reactivations: u64,
    /// First stores to clean units in DRAM.
    pub write_traps: u64,
    /// Bytes that are in DRAM now.
    pub resident_bytes: u64,
    /// Most bytes that have been in DRAM at once.
    pub resident_bytes_max: u64,
    /// Time that all threads together spent in the fault handler, waits for the medium included,
    /// nanoseconds.
    pub handler_ns: u64,
    /// Time that all threads together waited for the medium, nanoseconds.
    pub waited_ns: u64,
}

impl PagedStats {
    /// The number of traps of all kinds.
    pub fn traps(&self) -> u64 {
        self.misses + self.reactivations + self.write_traps
    }
}

impl PagedMemory {
    /// Opens memory that is all zeros, none of it in DRAM.
    ///
    /// # Errors
    /// A setting cannot work, the medium is too small, or the system refuses userfaultfd.
    pub fn open(config: &PagedConfig, medium: Arc<Emulator>) -> Result<Self, PagedError> {
        Self::open_with_clock(config, medium, Arc::new(RealClock))
    }

    /// Opens memory as [`PagedMemory::open`] does. `clock` tells how long the program computes
    /// between two faults.
    fn open_with_clock(
        config: &PagedConfig,
        medium: Arc<Emulator>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, PagedError> {
        let units = config.check(medium.capacity_bytes())?;
        let memory = |source| PagedError::Memory { len_bytes: config.len_bytes, source };
        let file = SharedMemory::create("perdura-paged", config.len_bytes).map_err(memory)?;
        let map = file.map().map_err(memory)?;
        map.dont_fork().map_err(memory)?;
        let refused = |step| move |source| PagedError::Refused { step, source };
        let uffd = Uffd::open_for_paging().map_err(refused("userfaultfd"))?;
        let (start, len) = (map.base() as usize, config.len_bytes as usize);
        uffd.register_for_paging(start, len).map_err(refused("registering memory for paging"))?;
        try_out(&file, &map, &uffd).map_err(refused("entering a protected page"))?;
        let residents =
            Residents::new(units.all, units.resident, units.inactive_max, config.planted);
        let pager = Box::new(Pager {
            state: FaultLock::new(State {
                residents,
                recording: Recording::new(config.steps_max, clock.now_ns()),
            }),
            unit_bytes: config.unit_bytes(),
            len_bytes: config.len_bytes,
            resident_cap_bytes: u64::from(units.resident) * config.unit_bytes(),
            unblocked: EventCount::default(),
            counts: Counts::default(),
            file,
            map,
            uffd,
            medium,
            clock,
        });
        let context = std::ptr::from_ref(&*pager).cast();
        // SAFETY: the pager lies in a box of its own, which `Self` drops after the registration.
        let registration = unsafe {
            Registration::new(FaultSignal::Bus, start, start + len, context, fault::serve)
        };
        let registration = registration
            .map_err(refused("a handler of SIGBUS"))?
            .ok_or(PagedError::TooMany { ranges_max: RANGES_MAX })?;
        Ok(Self { _registration: registration, pager })
    }

    /// Pointer to the first byte.
    pub fn base(&self) -> *mut u8 {
        self.pager.map.base()
    }

    /// Length of the memory, bytes.
    pub fn len_bytes(&self) -> u64 {
        self.pager.len_bytes
    }

    /// Most bytes that may be in DRAM.
    pub fn resident_cap_bytes(&self) -> u64 {
        self.pager.resident_cap_bytes
    }

    /// Bytes of a unit, which come and go together.
    pub fn unit_bytes(&self) -> u64 {
        self.pager.unit_bytes
    }

    /// The medium that has the units which are not in DRAM.
    pub fn medium(&self) -> &Emulator {
        &self.pager.medium
    }

    /// A reading of all counters.
    pub fn stats(&self) -> PagedStats {
        let counts = &self.pager.counts;
        let resident = self.pager.state.lock_outside().residents.resident();
        PagedStats {
            misses: counts.misses.load(Relaxed),
            page_ins: counts.page_ins.load(Relaxed),
            page_outs: counts.page_outs.load(Relaxed),
            reactivations: counts.reactivations.load(Relaxed),
            write_traps: counts.write_traps.load(Relaxed),
            resident_bytes: u64::from(resident) * self.pager.unit_bytes,
            resident_bytes_max: counts.resident_units_max.load(Relaxed) * self.pager.unit_bytes,
            handler_ns: counts.handler_ns.load(Relaxed),
            waited_ns: counts.waited_ns.load(Relaxed),
        }
    }

    /// The accesses of the medium since the memory was opened, or since the last call: at most
    /// [`PagedConfig::steps_max`] of them.
    pub fn take_recorded(&self) -> Recorded {
        // Made before the lock is taken: nothing is allocated or freed while it is held.
        let steps_max = self.pager.state.lock_outside().recording.steps_max();
        let now_ns = self.pager.clock.now_ns();
        let fresh = Recording::new(steps_max, now_ns);
        let mut state = self.pager.state.lock_outside();
        let before = std::mem::replace(&mut state.recording, fresh);
        drop(state);
        before.into_recorded(now_ns)
    }

    /// Bytes that are in the page table now, as the kernel tells. Meant for audits and tests.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn entered_bytes(&self) -> std::io::Result<u64> {
        let pages = self.pager.map.entered_pages()?;
        Ok(pages.into_iter().filter(|is_entered| *is_entered).count() as u64 * PAGE_BYTES)
    }

    /// Makes a range read as zeros, and frees its contents in DRAM and on the medium. Nobody may
    /// use the range meanwhile.
    ///
    /// # Errors
    /// The system refuses. A part of the range is zeros then.
    ///
    /// # Panics
    /// The range leaves the memory.
    pub fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), PagedError> {
        let pager = &*self.pager;
        let end = offset.checked_add(len_bytes).filter(|end| *end <= pager.len_bytes);
        let Some(end) = end else {
            panic!("{len_bytes} bytes at {offset} leave a memory of {} bytes", pager.len_bytes)
        };
        let first = offset.next_multiple_of(pager.unit_bytes).min(end);
        let last = (end / pager.unit_bytes * pager.unit_bytes).max(first);
        // SAFETY: inside the mapping (checked), and nobody uses the range.
        unsafe {
            pager.map.clear(offset, (first - offset) as usize);
            pager.map.clear(last, (end - last) as usize);
        }
        let refused = |step| move |source| PagedError::Refused { step, source };
        for unit in first / pager.unit_bytes..last / pager.unit_bytes {
            pager.forget(unit as Unit).map_err(refused("taking pages out"))?;
        }
        if first == last {
            return Ok(());
        }
        pager.file.punch(first, last - first).map_err(refused("giving memory back"))
    }
}

impl std::fmt::Debug for PagedMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (cap, len) = (self.resident_cap_bytes(), self.len_bytes());
        write!(f, "PagedMemory({len} bytes, {cap} of them in DRAM)")
    }
}

/// Tests whether this kernel can enter a page that is protected against writing (Linux 6.4).
fn try_out(file: &SharedMemory, map: &Mapping, uffd: &Uffd) -> Result<(), rustix::io::Errno> {
    file.provide(0, PAGE_BYTES)?;
    uffd.enter(map.base() as usize, PAGE_BYTES as usize, true)?;
    map.take_out(0, PAGE_BYTES)?;
    file.punch(0, PAGE_BYTES)
}
