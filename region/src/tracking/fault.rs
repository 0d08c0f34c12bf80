//! The path of a store that met a closed page (Viyojit, figure 6).
//!
//! It runs in a signal handler, with every other signal blocked: no lock that a writer or the
//! cleaner holds (only bits and futexes), no allocation, no logging, no touch of the region.
//! Whoever is blocked leaves the gate, asks the cleaner's thread for what is missing, and waits
//! with nothing held.
//!
//! Order, for a process that may be killed at any instruction: budget, ledger bit, protection. The
//! lock bit makes it one charge for any number of threads that fault on one page.
//!
//! A store cannot return an error. After the device failed, or once the final flush has begun, a
//! store that needs budget waits for as long as the region lives; `prepare_write` returns the typed
//! error.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering::*};

use rustix::io::Errno;

use super::Tracking;
use super::door::LOOK_AGAIN;
use super::pages::{Guard, PAGE_BYTES, PageTracker};
use crate::core::Core;
use perdura_dirty::geometry::WORD_GRAINS;
use perdura_dirty::planted::Planted;
use perdura_dirty::stats::Counters;
use perdura_dirty::sys::Delivery;
use perdura_dirty::sys::signals::Touch;

/// Every n-th page that [`Planted::OpenBeforeAccounting`] forgets.
const PLANTED_EVERY: u64 = 7;

/// What a fault must wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// A cut is being made.
    Cut,
    /// Another thread, the cleaner or a prepared write has locked the page.
    Locked,
    /// The closing epoch still owes the page's old bytes.
    Owed,
    /// No budget.
    Room,
    /// Too many pages are open (`mprotect` only).
    Crowded,
    /// The page cannot be opened: its protection is not ours any more, or memory is exhausted.
    Broken,
}

/// Pages whose old bytes somebody waits for. A fault that finds no room waits for the drain's
/// ordinary course.
#[derive(Debug, Default)]
pub(super) struct Urgent {
    /// Page number plus one; 0: free.
    slots: [AtomicU64; 32],
}

impl Urgent {
    fn ask(&self, page: u64) {
        let from = page as usize % self.slots.len();
        for index in 0..self.slots.len() {
            let slot = &self.slots[(from + index) % self.slots.len()];
            match slot.compare_exchange(0, page + 1, AcqRel, Acquire) {
                Ok(_) => return,
                Err(asked) if asked == page + 1 => return,
                Err(_) => {}
            }
        }
    }
}

/// Serves a store at `address` in signal context.
///
/// # Safety
/// `context` is the `Core` whose mapping holds `address`.
pub(super) unsafe fn serve_signal(context: *const c_void, address: usize, touch: Touch) -> bool {
    if touch == Touch::Load {
        // A protected page can be read: this is something else.
        return false;
    }
    // SAFETY: the caller's promise; the registration keeps the core alive.
    let core = unsafe { &*context.cast::<Core>() };
    let Tracking::Pages(tracker) = &core.tracking else { return false };
    let offset = address - core.map.base() as usize;
    offset < core.region_bytes() as usize && tracker.open_waiting(core, offset as u64 / PAGE_BYTES)
}

impl PageTracker {
    /// Opens a page, however long it takes. False: it cannot be opened.
    fn open_waiting(&self, core: &Core, page: u64) -> bool {
        Counters::add(&core.stats.faults, 1);
        let mut waited = false;
        loop {
            if self.gone.load(SeqCst) {
                return false;
            }
            let (door, room) = (self.door.version(), core.budget.version());
            let blocked = match self.open_page(core, page, None) {
                Ok(()) => return true,
                Err(Blocked::Broken) => return false,
                Err(blocked) => blocked,
            };
            if !waited && matches!(blocked, Blocked::Room | Blocked::Owed) {
                waited = true;
                Counters::add(&core.stats.stalls, 1);
            }
            self.ask(core, page, blocked);
            match blocked {
                Blocked::Room => core.budget.wait(&*core.clock, room, LOOK_AGAIN),
                _ => self.door.wait(&*core.clock, door),
            }
        }
    }

    /// Tells the cleaner's thread what is missing.
    pub(crate) fn ask(&self, core: &Core, page: u64, blocked: Blocked) {
        match blocked {
            Blocked::Owed => self.urgent.ask(page),
            Blocked::Room => self.room_asked.store(true, Release),
            Blocked::Crowded => self.crowded.store(true, Release),
            Blocked::Cut | Blocked::Locked | Blocked::Broken => return,
        }
        core.budget.call_cleaner();
    }

    /// Enters a page in the ledger and opens it, if that can be done at once.
    ///
    /// `credit_bytes`: budget taken before; the page's lock is then kept, until
    /// [`PageTracker::release`].
    pub(crate) fn open_page(
        &self,
        core: &Core,
        page: u64,
        credit_bytes: Option<&mut u64>,
    ) -> Result<(), Blocked> {
        let _inside = self.gate.enter().ok_or(Blocked::Cut)?;
        let (word, bit) = ((page / WORD_GRAINS) as usize, 1 << (page % WORD_GRAINS));
        // Inside the gate no epoch is cut, so what is not owed now will not be.
        if core.ledger.bitmap(core.parity() ^ 1)[word].load(Acquire) & bit != 0 {
            return Err(Blocked::Owed);
        }
        if self.lock_pages(word, bit) == 0 {
            return Err(Blocked::Locked);
        }
        let keep = credit_bytes.is_some();
        let outcome = self.open_locked(core, page, word, bit, credit_bytes);
        if !keep || outcome.is_err() {
            self.unlock_pages(word, bit);
            self.door.notify();
        }
        outcome
    }

    fn open_locked(
        &self,
        core: &Core,
        page: u64,
        word: usize,
        bit: u64,
        credit_bytes: Option<&mut u64>,
    ) -> Result<(), Blocked> {
        // Of a capacity page the ledger knows nothing. Its kind stays while its lock is held.
        if self.is_open(word, bit) || core.is_capacity_page(page) {
            return self.open_again(core, page);
        }
        if self.open_pages.load(Relaxed) >= self.open_pages_max {
            return Err(Blocked::Crowded);
        }
        let parity = core.parity();
        let bits = &core.ledger.bitmap(parity)[word];
        let was_dirty = bits.load(Acquire) & bit != 0;
        let forgotten = core.planted.is(Planted::OpenBeforeAccounting) && page % PLANTED_EVERY == 3;
        if !was_dirty && !forgotten {
            match credit_bytes {
                Some(credit) if *credit >= PAGE_BYTES => *credit -= PAGE_BYTES,
                _ if core.budget.try_take(&core.ledger, PAGE_BYTES) => {}
                _ => return Err(Blocked::Room),
            }
            bits.fetch_or(bit, AcqRel);
            core.summary(parity).mark(word);
            Counters::add(&core.stats.dirtied_bytes, PAGE_BYTES);
        }
        self.touch(core, page, word, bit, was_dirty);
        self.note_open(word, bit, 1);
        // Dirty and closed is a state like any other: if this fails, the page counts as open and is
        // not.
        self.unprotect(core, page)
    }

    fn unprotect(&self, core: &Core, page: u64) -> Result<(), Blocked> {
        self.protect(&core.map, page, 1, false).map_err(|why| match why {
            Errno::NOMEM => Blocked::Crowded,
            _ => Blocked::Broken,
        })
    }

    /// A page that counts as open trapped: another thread was first, or its block has become
    /// capacity meanwhile, or there is no memory behind it.
    fn open_again(&self, core: &Core, page: u64) -> Result<(), Blocked> {
        self.unprotect(core, page)?;
        if !matches!(self.guard, Guard::Uffd(_, Delivery::Signal)) {
            return Ok(());
        }
        // SIGBUS also says that a page could not be had: going back to the store would never end.
        match core.map.populate(page * PAGE_BYTES, PAGE_BYTES as usize) {
            Ok(()) | Err(Errno::INVAL | Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(_) => Err(Blocked::Broken),
        }
    }

    /// Recency: a store to a page that was dirty already is seen only because the page was closed
    /// in between.
    fn touch(&self, core: &Core, page: u64, word: usize, bit: u64, was_dirty: bool) {
        if was_dirty {
            self.touches.fetch_add(1, Relaxed);
            core.heat.written_among_others(word, bit);
        }
        // A page is a unit, and its lock is held.
        core.mark_written(page, was_dirty);
    }

    /// Takes the pages whose old bytes somebody waits for. The cleaner asks between two copies of a
    /// drain.
    pub(crate) fn take_urgent(&self, mut f: impl FnMut(u64)) {
        for slot in &self.urgent.slots {
            if slot.load(Relaxed) != 0 {
                let page = slot.swap(0, AcqRel);
                if page != 0 {
                    f(page - 1);
                }
            }
        }
    }

    /// Whether a fault found no budget since this was last asked.
    pub(crate) fn take_room_asked(&self) -> bool {
        self.room_asked.swap(false, AcqRel)
    }
}
