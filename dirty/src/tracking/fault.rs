//! The path of a store that met a closed page (Viyojit, figure 6).
//!
//! It runs in a signal handler, with every other signal blocked: no lock that a writer or the
//! cleaner holds (only bits and futexes), no allocation, no logging, no touch of the region. A
//! thread that is blocked leaves the gate, asks the cleaner's thread for what is missing, and waits
//! with nothing held.
//!
//! The order is budget, ledger bit, protection, because the process may be killed at any
//! instruction. The page's lock bit makes sure that threads which fault on one page are charged
//! once.
//!
//! A store cannot return an error. After the device failed, or once the final flush has begun, a
//! store that needs budget waits for as long as the region lives; `prepare_write` returns the typed
//! error.

use std::ffi::c_void;
use std::sync::atomic::Ordering::*;

use rustix::io::Errno;

use super::pages::{Guard, PAGE_BYTES, PageTracker};
use crate::event_count::LOOK_AGAIN;
use crate::geometry::WORD_GRAINS;
use crate::planted::Planted;
use crate::schedule::point;
use crate::stats::Counters;
use crate::sys::Delivery;
use crate::sys::signals::Touch;

/// One page in so many is forgotten by [`Planted::OpenBeforeAccounting`].
const PLANTED_EVERY: u64 = 7;

/// The reason why a fault cannot be served at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocked {
    /// A cut is being made, or stores are held.
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

/// Serves a store at `address` in signal context.
///
/// # Safety
/// `context` is the `PageTracker` whose mapping holds `address`.
pub(super) unsafe fn serve_signal(context: *const c_void, address: usize, touch: Touch) -> bool {
    if touch == Touch::Load {
        // A protected page can be read, so this fault is of another kind.
        return false;
    }
    // SAFETY: the caller's promise; the service that registered it keeps the tracker alive.
    let tracker = unsafe { &*context.cast::<PageTracker>() };
    let offset = address - tracker.memory.map.base() as usize;
    offset < tracker.memory.region_bytes() as usize
        && tracker.open_waiting(offset as u64 / PAGE_BYTES)
}

impl PageTracker {
    /// Opens a page, however long that takes. Returns false if it cannot be opened.
    fn open_waiting(&self, page: u64) -> bool {
        Counters::add(&self.memory.stats.faults, 1);
        let mut waited = false;
        loop {
            if self.gone.load(SeqCst) {
                return false;
            }
            let (unblocked, room) = (self.unblocked.version(), self.memory.budget.version());
            let blocked = match self.open_page(page, None) {
                Ok(()) => return true,
                Err(Blocked::Broken) => return false,
                Err(blocked) => blocked,
            };
            if !waited && matches!(blocked, Blocked::Room | Blocked::Owed) {
                waited = true;
                Counters::add(&self.memory.stats.stalls, 1);
            }
            self.ask(page, blocked);
            match blocked {
                Blocked::Room => self.memory.budget.wait(&*self.memory.clock, room, LOOK_AGAIN),
                _ => self.unblocked.wait(&*self.memory.clock, unblocked),
            }
        }
    }

    /// Tells the cleaner's thread what is missing, or the thread that has the cleaner and waits for
    /// prepared writes.
    pub fn ask(&self, page: u64, blocked: Blocked) {
        match blocked {
            Blocked::Owed => self.urgent.ask(page),
            Blocked::Room => self.room_asked.store(true, Release),
            Blocked::Crowded => self.crowded.store(true, Release),
            Blocked::Cut | Blocked::Locked | Blocked::Broken => return,
        }
        self.memory.budget.call_cleaner();
        self.prepared.news.notify();
    }

    /// Enters a page in the ledger and opens it, if that is possible at once.
    ///
    /// `credit_bytes` is budget that was taken before. If it is given, the page stays locked until
    /// [`PageTracker::release`], and the caller has asked whether stores are held.
    pub fn open_page(&self, page: u64, credit_bytes: Option<&mut u64>) -> Result<(), Blocked> {
        let _inside = self.gate.enter().ok_or(Blocked::Cut)?;
        if credit_bytes.is_none() && self.is_held() {
            return Err(Blocked::Cut);
        }
        let (word, bit) = ((page / WORD_GRAINS) as usize, 1 << (page % WORD_GRAINS));
        // Inside the gate no epoch is cut, so a page that is not owed now will not be owed.
        if self.memory.ledger.bitmap(self.memory.parity() ^ 1)[word].load(Acquire) & bit != 0 {
            return Err(Blocked::Owed);
        }
        if self.lock_pages(word, bit) == 0 {
            return Err(Blocked::Locked);
        }
        let keep = credit_bytes.is_some();
        let outcome = self.open_locked(page, word, bit, credit_bytes);
        if !keep || outcome.is_err() {
            self.unlock_pages(word, bit);
            self.unblocked.notify();
        }
        outcome
    }

    fn open_locked(
        &self,
        page: u64,
        word: usize,
        bit: u64,
        credit_bytes: Option<&mut u64>,
    ) -> Result<(), Blocked> {
        // The ledger has no bits of capacity pages. A page's kind does not change while its lock is
        // held.
        if self.is_open(word, bit) || self.memory.ledger.is_capacity_page(page) {
            return self.open_again(page);
        }
        if self.open_pages.load(Relaxed) >= self.open_pages_max {
            return Err(Blocked::Crowded);
        }
        let parity = self.memory.parity();
        let bits = &self.memory.ledger.bitmap(parity)[word];
        let was_dirty = bits.load(Acquire) & bit != 0;
        let forgotten =
            self.memory.planted.is(Planted::OpenBeforeAccounting) && page % PLANTED_EVERY == 3;
        if !was_dirty && !forgotten {
            match credit_bytes {
                Some(credit) if *credit >= PAGE_BYTES => *credit -= PAGE_BYTES,
                _ if self.memory.budget.try_take(&self.memory.ledger, PAGE_BYTES) => {}
                _ => return Err(Blocked::Room),
            }
            point();
            bits.fetch_or(bit, AcqRel);
            self.memory.summary(parity).mark(word);
            point();
            Counters::add(&self.memory.stats.dirtied_bytes, PAGE_BYTES);
        }
        self.touch(page, word, bit, was_dirty);
        self.note_open(word, bit, 1);
        // If this fails, the page counts as open though it is closed; its next store traps again.
        self.unprotect(page)
    }

    fn unprotect(&self, page: u64) -> Result<(), Blocked> {
        self.protect(page, 1, false).map_err(|why| match why {
            Errno::NOMEM => Blocked::Crowded,
            _ => Blocked::Broken,
        })
    }

    /// Serves a trap of a page that counts as open: another thread was first, or the block has
    /// become capacity memory meanwhile, or the system has no memory for the page.
    fn open_again(&self, page: u64) -> Result<(), Blocked> {
        self.unprotect(page)?;
        if !matches!(self.guard, Guard::Uffd(_, Delivery::Signal)) {
            return Ok(());
        }
        // SIGBUS is also sent when the system has no memory for the page; repeating the store would
        // then never end.
        match self.memory.map.populate(page * PAGE_BYTES, PAGE_BYTES as usize) {
            Ok(()) | Err(Errno::INVAL | Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(_) => Err(Blocked::Broken),
        }
    }

    /// Notes a store for the policy. A store to a page that was dirty already is seen only because
    /// the page was closed in between.
    fn touch(&self, page: u64, word: usize, bit: u64, was_dirty: bool) {
        if was_dirty {
            self.touches.fetch_add(1, Relaxed);
            self.memory.hints.heat.written_among_others(word, bit);
        }
        // A page is a policy unit, and its lock keeps other writers of the mark out.
        self.memory.hints.mark_written(page, was_dirty);
    }

    /// Takes the pages whose old bytes a fault waits for. The cleaner asks between two copies of a
    /// drain.
    pub fn take_urgent(&self, f: impl FnMut(u64)) {
        self.urgent.take(f);
    }

    /// Whether a fault found no budget since the last call.
    pub fn take_room_asked(&self) -> bool {
        self.room_asked.swap(false, AcqRel)
    }
}
