//! Memory that other processes map and store to: each of them brings a userfaultfd of its own, and
//! a thread here serves its faults.
//!
//! A page is open in all mappings or in none, as far as the ledger is concerned. A mapping that
//! comes later begins with all pages closed; a store to a page that counts as open traps once and
//! opens it there, too.
//!
//! Nobody here runs in a signal handler: whoever stores waits in the kernel for the thread.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::pages::{Guard, PAGE_BYTES, PageTracker};
use super::serve::serve_messages;
use crate::error::SetupError;
use crate::ranks::{Rank, Ranked};
use crate::sys::Uffd;

/// The mappings of all processes.
#[derive(Debug)]
pub(super) struct Guests {
    mapped: Ranked<Vec<Mapped>>,
    next_number: AtomicU64,
}

/// A part of the memory that a process has mapped.
#[derive(Debug, Clone)]
struct Mapped {
    guest: u64,
    uffd: Arc<Uffd>,
    /// Where it begins in the process.
    address: usize,
    first: u64,
    pages: u64,
}

/// A process whose stores to its mappings are tracked until this is dropped. Drop it before the
/// region.
pub struct Guest {
    number: u64,
    uffd: Arc<Uffd>,
    tracker: Arc<PageTracker>,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Default for Guests {
    fn default() -> Self {
        Self { mapped: Ranked::new(Rank::Guests, Vec::new()), next_number: AtomicU64::new(0) }
    }
}

impl Guests {
    /// Protects pages in all mappings, or opens them. A mapping that is gone has nobody who stores
    /// to it.
    pub(super) fn protect(&self, first: u64, pages: u64, protect: bool) -> Result<(), Errno> {
        for mapped in self.mapped.lock().iter() {
            let from = first.max(mapped.first);
            let to = (first + pages).min(mapped.first + mapped.pages);
            if from >= to {
                continue;
            }
            let address = mapped.address + ((from - mapped.first) * PAGE_BYTES) as usize;
            match mapped.uffd.protect(address, ((to - from) * PAGE_BYTES) as usize, protect) {
                Ok(()) | Err(Errno::NOENT | Errno::SRCH) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// The page that a process has at an address.
    pub(super) fn page_at(&self, guest: u64, address: usize) -> Option<u64> {
        self.mapped.lock().iter().filter(|mapped| mapped.guest == guest).find_map(|mapped| {
            let page = (address.checked_sub(mapped.address)? as u64) / PAGE_BYTES;
            (page < mapped.pages).then_some(mapped.first + page)
        })
    }

    /// Takes a range of a process out. What is left of a mapping stays.
    fn remove(&self, guest: u64, from: usize, to: usize) {
        let mut mapped = self.mapped.lock();
        let mut left = Vec::with_capacity(mapped.len());
        for one in mapped.drain(..) {
            let end = one.address + (one.pages * PAGE_BYTES) as usize;
            if one.guest != guest || end <= from || to <= one.address {
                left.push(one);
                continue;
            }
            let pages = |bytes: usize| bytes as u64 / PAGE_BYTES;
            if one.address < from {
                left.push(Mapped { pages: pages(from - one.address), ..one.clone() });
            }
            if to < end {
                let first = one.first + pages(to - one.address);
                left.push(Mapped { address: to, first, pages: pages(end - to), ..one });
            }
        }
        *mapped = left;
    }
}

impl Guest {
    /// Serves the faults that a process's userfaultfd reports. `uffd` is as the process opened it.
    ///
    /// # Errors
    /// The region is not one of guests, or the system refuses.
    pub fn admit(tracker: &Arc<PageTracker>, uffd: OwnedFd) -> Result<Self, SetupError> {
        let refused = |source| SetupError::Tracking { mode: "another process", source };
        let Guard::Guests(guests) = &tracker.guard else {
            return Err(refused(Errno::OPNOTSUPP));
        };
        let uffd = Arc::new(Uffd::of_guest(uffd).map_err(refused)?);
        let number = guests.next_number.fetch_add(1, Relaxed);
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(refused)?;
        let stopped = stop.try_clone().map_err(|_| refused(Errno::MFILE))?;
        let (served, of_thread) = (Arc::clone(tracker), Arc::clone(&uffd));
        let serve = move || {
            let page_at = |address| match &served.guard {
                Guard::Guests(guests) => guests.page_at(number, address),
                _ => None,
            };
            serve_messages(&served, &of_thread, &stopped, &page_at);
        };
        let thread = std::thread::Builder::new()
            .name("perdura-faults".into())
            .spawn(serve)
            .map_err(|_| refused(Errno::AGAIN))?;
        Ok(Self { number, uffd, tracker: Arc::clone(tracker), stop, thread: Some(thread) })
    }

    /// Tracks a mapping of this process: `len` bytes of the memory from `offset` on, at `address`.
    /// The process stores nothing there before this returns.
    ///
    /// # Errors
    /// The range is not one of whole pages of the memory, or is no mapping of it.
    pub fn map(&self, address: usize, offset: u64, len: u64) -> Result<(), SetupError> {
        let refused = |source| SetupError::Tracking { mode: "another process", source };
        let end = offset.checked_add(len).filter(|end| *end <= self.tracker.memory.region_bytes());
        if end.is_none() || [offset, len, address as u64].iter().any(|it| it % PAGE_BYTES != 0) {
            return Err(refused(Errno::INVAL));
        }
        let mut mapped = self.guests().mapped.lock();
        self.uffd.register(address, len as usize).map_err(refused)?;
        self.uffd.protect(address, len as usize, true).map_err(refused)?;
        let (first, pages) = (offset / PAGE_BYTES, len / PAGE_BYTES);
        let (guest, uffd) = (self.number, Arc::clone(&self.uffd));
        mapped.push(Mapped { guest, uffd, address, first, pages });
        Ok(())
    }

    /// Ends the tracking of what the process has at `address`, which it unmaps next.
    pub fn unmap(&self, address: usize, len: u64) {
        self.guests().remove(self.number, address, address.saturating_add(len as usize));
    }

    fn guests(&self) -> &Guests {
        match &self.tracker.guard {
            Guard::Guests(guests) => guests,
            _ => unreachable!("a guest is admitted only where there are guests"),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.guests().remove(self.number, 0, usize::MAX);
        // An eventfd at 0 accepts a 1, so this cannot fail.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the fault thread of a process panicked");
        }
    }
}
