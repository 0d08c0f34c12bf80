//! Memory of trap mode, for code that just stores.
//!
//! Any store through [`TrappedMemory::as_ptr`], by any thread of this process, is tracked: the
//! first store to a clean page waits until the page fits the budget. Some writes are not tracked: a
//! store through another mapping of the memory file, `pwrite` on it, and DMA into pages that were
//! pinned before they were closed (registered `io_uring` buffers, `O_DIRECT` reads in flight).
//! [`TrappedMemory::prepare_write`] is for those, and for system calls.
//!
//! Capacity blocks ([`crate::Kind`]) are plain memory, which none of this concerns. A forked child
//! does not have the mapping, and dies when it touches it.

use std::ops::Range;
use std::sync::atomic::Ordering::Acquire;

use rustix::io::Errno;

use crate::running::Running;
use perdura_dirty::geometry::WORD_GRAINS;
use perdura_dirty::{Blocked, Inside, Memory, Need, PageTracker, RegionError};

const PAGE_BYTES: u64 = 4096;

/// The bytes of a region in trap mode.
///
/// Threads that store must not block SIGBUS (SIGSEGV with `mprotect`). A handler for this signal
/// that is installed after the region was opened must pass on signals that it does not know.
#[derive(Clone, Copy)]
pub struct TrappedMemory<'r> {
    running: &'r Running,
    memory: &'r Memory,
    tracker: &'r PageTracker,
}

impl<'r> TrappedMemory<'r> {
    pub(crate) fn new(running: &'r Running) -> Option<Self> {
        let tracked = &running.backed.tracked;
        Some(Self { running, memory: &tracked.memory, tracker: tracked.pages()? })
    }

    /// Pointer to the first byte, valid while the region lives. A store may wait for the cleaner.
    /// It waits for ever if the region is closed, or if the device has failed and the budget is
    /// used up.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.map.base()
    }

    /// Bytes that may be used now; more after the region has grown.
    pub fn len_bytes(&self) -> u64 {
        self.memory.region_bytes()
    }

    /// Copies bytes out. Each byte that another thread is changing comes out old or new.
    ///
    /// # Panics
    /// When the range leaves the region.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        self.check(offset, out.len() as u64);
        self.memory.map.copy_out(offset, out);
    }

    /// Stores bytes, each whole aligned word in one store.
    ///
    /// # Panics
    /// When the range leaves the region.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.check(offset, bytes.len() as u64);
        self.memory.map.copy_in(offset, bytes);
    }

    /// Marks every page of a range in the ledger, opens it, and keeps it open and dirty until the
    /// result is dropped. Meanwhile a system call or a device may write to the range in any way,
    /// pinned and registered buffers included. Drop the result when that write has ended and the
    /// device writes no more.
    ///
    /// Checkpoints wait for the result to be dropped, and the log waits with them for space. Hold
    /// it for one transfer, not while waiting for a peer or for other writers, and hold no two in
    /// one thread. The final flush waits 20 ms. A registered buffer needs it only during transfers,
    /// because pages keep their place in memory.
    ///
    /// # Errors
    /// The range is larger than the budget, the device has failed, or the region is closed.
    ///
    /// # Panics
    /// When the range leaves the region.
    pub fn prepare_write(&self, range: Range<u64>) -> Result<Prepared<'r>, RegionError> {
        assert!(range.start <= range.end, "a range of negative length");
        self.check(range.start, range.end - range.start);
        let pages = match range.is_empty() {
            true => 0..0,
            false => range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES),
        };
        let mut credit_bytes = self.credit_for(&pages)?;
        let outcome = loop {
            let seen = self.tracker.unblocked.version();
            let Some(inside) = self.tracker.prepared.enter() else {
                if let Err(error) = self.check_running() {
                    break Err(error);
                }
                self.tracker.unblocked.wait(&*self.memory.clock, seen);
                continue;
            };
            if self.tracker.is_held() {
                drop(inside);
                let back_bytes = std::mem::take(&mut credit_bytes);
                self.memory.budget.give_back(&self.memory.ledger, back_bytes);
                self.check_running()?;
                self.tracker.unblocked.wait(&*self.memory.clock, seen);
                credit_bytes = self.credit_for(&pages)?;
                continue;
            }
            match self.prepare_pages(pages.clone(), inside, &mut credit_bytes) {
                Ok(Went::Through(prepared)) => break Ok(prepared),
                // Too many pages are open. The cleaner closes some, now that none is held here.
                Ok(Went::Crowded) => self.tracker.unblocked.wait(&*self.memory.clock, seen),
                Ok(Went::Short) => {
                    self.memory
                        .budget
                        .give_back(&self.memory.ledger, std::mem::take(&mut credit_bytes));
                    match self.credit_for(&pages) {
                        Ok(bytes) => credit_bytes = bytes,
                        Err(error) => break Err(error),
                    }
                }
                Err(error) => break Err(error),
            }
        };
        self.memory.budget.give_back(&self.memory.ledger, credit_bytes);
        outcome
    }

    /// Takes budget for every page that may have to be charged. This is done before the first page
    /// is locked, because nobody may wait for budget with pages locked. Capacity pages cost
    /// nothing.
    fn credit_for(&self, pages: &Range<u64>) -> Result<u64, RegionError> {
        let is_charged = |page: &u64| !self.memory.ledger.is_capacity_page(*page);
        let bytes = pages.clone().filter(is_charged).count() as u64 * PAGE_BYTES;
        let limit_bytes = self.tracker.open_pages_max.saturating_mul(PAGE_BYTES) / 2;
        match bytes {
            0 => Ok(0),
            bytes if bytes > limit_bytes => {
                Err(RegionError::BeyondBudget { asked_bytes: bytes, budget_bytes: limit_bytes })
            }
            bytes => self.running.satisfy(Need::Room { bytes }),
        }
    }

    /// Locks and opens the pages. Unless the outcome is `Through`, all pages are released again,
    /// and the caller tries once more.
    fn prepare_pages(
        &self,
        pages: Range<u64>,
        inside: Inside<'r>,
        credit_bytes: &mut u64,
    ) -> Result<Went<'r>, RegionError> {
        let (memory, tracker) = (self.memory, self.tracker);
        let mut prepared =
            Prepared { memory, tracker, pages: pages.start..pages.start, _inside: inside };
        for page in pages {
            loop {
                let seen = tracker.unblocked.version();
                self.check_running()?;
                match tracker.open_page(page, Some(credit_bytes)) {
                    Ok(()) => break,
                    Err(Blocked::Broken) => {
                        return Err(RegionError::Protection { source: Errno::FAULT });
                    }
                    Err(blocked) => {
                        tracker.ask(page, blocked);
                        match blocked {
                            Blocked::Crowded => return Ok(Went::Crowded),
                            // The page's block has become persistent since the credit was taken.
                            Blocked::Room => return Ok(Went::Short),
                            _ => tracker.unblocked.wait(&*memory.clock, seen),
                        }
                    }
                }
            }
            prepared.pages.end = page + 1;
        }
        Ok(Went::Through(prepared))
    }

    fn check_running(&self) -> Result<(), RegionError> {
        self.memory.check_open()?;
        self.memory.check()
    }

    fn check(&self, offset: u64, len: u64) {
        let region_bytes = self.memory.ledger.region_bytes().load(Acquire);
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= region_bytes),
            "access of {len} bytes at {offset} leaves a region of {region_bytes} bytes"
        );
    }
}

/// The outcome of preparing a write.
enum Went<'r> {
    Through(Prepared<'r>),
    /// Too many pages are open.
    Crowded,
    /// The credit was not enough.
    Short,
}

/// Pages kept open and dirty for a write that cannot trap.
#[must_use]
pub struct Prepared<'r> {
    memory: &'r Memory,
    tracker: &'r PageTracker,
    pages: Range<u64>,
    /// Dropped after the pages are released: fields drop after `drop` has run.
    _inside: Inside<'r>,
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        let mut page = self.pages.start;
        while page < self.pages.end {
            let end = self.pages.end.min((page | (WORD_GRAINS - 1)) + 1);
            let bits = perdura_dirty::extent::mask(page % WORD_GRAINS, end - page);
            self.tracker.release((page / WORD_GRAINS) as usize, bits, 0);
            page = end;
        }
        // Threads that wait for budget can clean these pages from now on.
        self.memory.budget.notify();
    }
}
