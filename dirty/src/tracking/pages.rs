//! The state of pages: closed, open, locked.
//!
//! Invariants:
//! - a page whose `open` bit is clear is write-protected; the bit is set before the protection goes
//!   and cleared after it is back;
//! - an open page is dirty in the current epoch, and not owed by the closing one;
//! - pages of capacity blocks are not protected, and have no `open` bit;
//! - protection and the `open` bit of a page change only under its lock bit, or while the gate is
//!   shut;
//! - a fault holds a page's lock for a few system calls and never while it waits; the cleaner holds
//!   the locks of pages that it copies; a prepared write holds those of its range until it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::guests::Guests;
use super::kind::TrapKind;
use super::recency::Recency;
use super::urgent::Urgent;
use crate::error::{RegionError, SetupError};
use crate::event_count::EventCount;
use crate::extent::{Extent, mask, runs};
use crate::gate::{Gate, Inside};
use crate::geometry::{BLOCK_BYTES, WORD_GRAINS};
use crate::memory::Memory;
use crate::planted::Planted;
use crate::policy::sampling::{MESSAGE_TRAP_NS, SIGNAL_TRAP_NS};
use crate::schedule::point;
use crate::stats::Counters;
use crate::sys::{Access, Delivery, Mapping, Uffd};

/// Bytes of a page, and of a grain in trap mode.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// A cut protects up to this many closed pages again rather than make one more call. A call costs
/// about 1 us, a page inside a range 80 ns (measured by `region/examples/tracking_cost.rs`).
const BRIDGE_PAGES: u64 = 12;
// Bridged pages are never of a capacity block, which must not be protected.
const _: () = assert!(BRIDGE_PAGES < BLOCK_BYTES / PAGE_BYTES);

/// The mechanism that write-protects pages.
#[derive(Debug)]
pub(super) enum Guard {
    Uffd(Uffd, Delivery),
    Mprotect,
    Guests(Guests),
}

/// Trapped tracking: pages are closed (write-protected) unless entered in the ledger.
pub struct PageTracker {
    pub(super) memory: Arc<Memory>,
    pub(super) guard: Guard,
    why: String,
    /// Lock bits, a word for 64 pages; private, and mapped so that only touched words take memory.
    locks: Mapping,
    /// Open bits, laid out like the lock bits.
    open: Mapping,
    /// A bit for each word of `open` that may be non-zero.
    open_summary: Box<[AtomicU64]>,
    pub(super) open_pages: AtomicU64,
    /// Most pages that may be open at a time, because each may take an entry of the mapping table.
    pub open_pages_max: u64,
    /// Runs of capacity blocks, each of which is a mapping of its own under `mprotect`. Changed by
    /// the holder of the cleaner.
    capacity_runs: AtomicU64,
    /// The gate of faults that are being served. Nobody waits inside, so a cut waits only for a few
    /// system calls.
    pub(super) gate: Gate,
    /// The gate of prepared writes. They may last, so a cut waits for them first, with faults still
    /// served.
    pub prepared: Gate,
    /// Counts the events for which stores wait: a page is unlocked, a cut is over, old bytes are
    /// captured.
    pub unblocked: EventCount,
    /// Whether stores to closed pages wait until this is over.
    held: AtomicBool,
    /// Whether the region is being dropped: faults then end unserved.
    pub(super) gone: AtomicBool,
    pub(super) urgent: Urgent,
    /// Whether a fault found no budget since the cleaner last looked.
    pub(super) room_asked: AtomicBool,
    /// Whether a fault found `open_pages_max` pages open.
    pub(super) crowded: AtomicBool,
    /// Number of faults on pages that were dirty already.
    pub(super) touches: AtomicU64,
    pub(super) recency: Mutex<Recency>,
}

impl PageTracker {
    /// Protects the region's bytes in use and makes the rest of the mapping inaccessible. With
    /// `seal` neither `munmap` nor `mremap` may take the protection away.
    pub fn new(
        kind: TrapKind,
        memory: Arc<Memory>,
        epoch: Duration,
        seal: bool,
    ) -> Result<Self, SetupError> {
        let (guard, why) = choose(kind, &memory.map)?;
        let (geometry, region_bytes) = (*memory.ledger.geometry(), memory.region_bytes());
        let mode = mode_name(&guard);
        let refused = |source| SetupError::Tracking { mode, source };
        let table_bytes = geometry.words() as u64 * 8;
        let trap_ns = match guard {
            Guard::Uffd(_, Delivery::Signal) | Guard::Mprotect => SIGNAL_TRAP_NS,
            Guard::Uffd(_, Delivery::Message) | Guard::Guests(_) => MESSAGE_TRAP_NS,
        };
        let mut tracker = Self {
            open_pages_max: match guard {
                Guard::Uffd(..) | Guard::Guests(_) => u64::MAX,
                Guard::Mprotect => mappings_max() / 4,
            },
            guard,
            why,
            locks: Mapping::anonymous(table_bytes).map_err(refused)?,
            open: Mapping::anonymous(table_bytes).map_err(refused)?,
            open_summary: (0..geometry.words().div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            open_pages: AtomicU64::new(0),
            capacity_runs: AtomicU64::new(0),
            gate: Gate::default(),
            prepared: Gate::default(),
            unblocked: EventCount::default(),
            held: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            urgent: Urgent::default(),
            room_asked: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
            touches: AtomicU64::new(0),
            recency: Mutex::new(Recency::new(epoch, trap_ns)),
            memory: Arc::clone(&memory),
        };
        let map = &memory.map;
        map.dont_fork().map_err(refused)?;
        if let Guard::Uffd(uffd, _) = &tracker.guard {
            uffd.register(map.base() as usize, map.len_bytes() as usize).map_err(refused)?;
        }
        let rest = (map.len_bytes() - region_bytes) as usize;
        if rest > 0 {
            map.set_access(region_bytes, rest, Access::None).map_err(refused)?;
        }
        tracker.protect(0, region_bytes / PAGE_BYTES, true).map_err(refused)?;
        if seal {
            tracker.seal(region_bytes)?;
        }
        Ok(tracker)
    }

    fn seal(&mut self, region_bytes: u64) -> Result<(), SetupError> {
        if !matches!(self.guard, Guard::Uffd(..)) {
            return Err(SetupError::Setting {
                name: "seal_mapping",
                value: "true".into(),
                expected: "false where pages are protected by mprotect, which sealing forbids, or \
                           in other processes",
            });
        }
        match self.memory.map.seal(0, region_bytes as usize) {
            Ok(()) => self.why.push_str(", mapping sealed"),
            Err(why) => self.why.push_str(&format!(", mapping not sealed ({why})")),
        }
        Ok(())
    }

    /// Protects the bytes `from..to` by which the region grows, and makes them accessible.
    pub fn extend(&self, from: u64, to: u64) -> Result<(), SetupError> {
        let refused = |source| SetupError::Tracking { mode: mode_name(&self.guard), source };
        self.protect(from / PAGE_BYTES, (to - from) / PAGE_BYTES, true).map_err(refused)?;
        if !matches!(self.guard, Guard::Mprotect) {
            let map = &self.memory.map;
            map.set_access(from, (to - from) as usize, Access::Write).map_err(refused)?;
        }
        Ok(())
    }

    /// Whether there may be `more` runs of capacity blocks (fewer, if negative). Each splits the
    /// mapping, as an open page that stands alone does.
    #[inline]
    pub fn admits_runs(&self, more: i64) -> bool {
        let runs = self.capacity_runs.load(Relaxed).saturating_add_signed(more);
        more <= 0 || runs <= self.open_pages_max
    }

    /// Counts `more` runs of capacity blocks (fewer, if negative).
    pub fn count_runs(&self, more: i64) {
        self.capacity_runs
            .store(self.capacity_runs.load(Relaxed).saturating_add_signed(more), Relaxed);
    }

    /// Protects a block or opens it for stores. The caller has locked all its pages.
    pub fn set_protected(&self, block: u64, protect: bool) -> Result<(), RegionError> {
        let pages = BLOCK_BYTES / PAGE_BYTES;
        let outcome = self.protect(block * pages, pages, protect);
        outcome.map_err(|source| RegionError::Protection { source })
    }

    /// The mode, and why it was chosen.
    pub fn describe(&self) -> String {
        format!("trap by {}: {}", mode_name(&self.guard), self.why)
    }

    /// Locks those pages `bits` of a bitmap word that nobody else has locked, and write-protects
    /// them. Returns the pages that are closed now. Their bytes do not change until they are
    /// released.
    pub fn close(&self, word: usize, bits: u64) -> u64 {
        let locked = self.lock_pages(word, bits);
        let mut failed = 0;
        for run in runs(word, locked & self.open()[word].load(Acquire)) {
            let bits = mask_of(run);
            match self.protect(run.grain, run.len, true) {
                Ok(()) => self.note_closed(word, bits),
                Err(_) => failed |= bits,
            }
        }
        if failed != 0 {
            tracing::warn!(word, "pages could not be protected; they stay open and dirty");
            self.unlock_pages(word, failed);
        }
        self.open_summary_check(word);
        locked & !failed
    }

    /// Locks all pages `bits` if they are closed, clean and not locked. No epoch is cut until the
    /// result is dropped, which should be after a few system calls. A drain is not concerned,
    /// because it does not owe these pages.
    pub fn lock_idle(&self, word: usize, bits: u64) -> Option<Inside<'_>> {
        let inside = self.gate.enter()?;
        let is_idle = || {
            let dirty = [0, 1].map(|parity| self.memory.ledger.bitmap(parity)[word].load(Acquire));
            (dirty[0] | dirty[1] | self.open()[word].load(Acquire)) & bits == 0
        };
        if !is_idle() {
            return None;
        }
        let locked = self.lock_pages(word, bits);
        // Checked again, because a fault may have come in between.
        if locked == bits && is_idle() {
            return Some(inside);
        }
        self.release(word, locked, 0);
        None
    }

    /// Closes all pages `bits`, or none and waits: no page is held during the wait. `None`: a page
    /// was locked; it may stay so for as long as a prepared write lasts.
    pub fn close_all(&self, word: usize, bits: u64) -> Option<()> {
        let seen = self.unblocked.version();
        let closed = self.close(word, bits);
        if closed == bits {
            return Some(());
        }
        self.release(word, closed, 0);
        self.unblocked.wait(&*self.memory.clock, seen);
        None
    }

    /// Unlocks pages that were closed before. Those of `reopen` that are dirty in the current epoch
    /// are opened again, unless the closing epoch owes them.
    pub fn release(&self, word: usize, bits: u64, reopen: u64) {
        if bits == 0 {
            return;
        }
        let parity = self.memory.parity();
        let dirty = self.memory.ledger.bitmap(parity)[word].load(Acquire);
        let owed = self.memory.ledger.bitmap(parity ^ 1)[word].load(Acquire);
        for run in runs(word, bits & reopen & dirty & !owed) {
            if self.open_pages.load(Relaxed) + run.len > self.open_pages_max {
                break;
            }
            self.note_open(word, mask_of(run), run.len);
            // Nothing depends on this call: pages that stay closed trap again and cost no budget.
            if self.protect(run.grain, run.len, false).is_err() {
                self.open()[word].fetch_and(!mask_of(run), AcqRel);
                self.open_pages.fetch_sub(run.len, AcqRel);
            }
        }
        self.unlock_pages(word, bits);
        self.unblocked.notify();
        // Stores to these pages may trap, and be entered in the ledger, from here on.
        point();
    }

    /// Runs `flip` at an instant at which no page is open, so that memory is a consistent cut. A
    /// store to a page that was closed already waits until `flip` is done, and so does every store
    /// that depends on it; so no effect is in the cut without its cause. A cut takes as long as
    /// protecting the open pages. The caller has shut `prepared` and found it empty.
    pub fn cut(&self, flip: impl FnOnce()) -> Result<(), RegionError> {
        self.gate.shut(&*self.memory.clock);
        let outcome = self.protect_open().map(|()| flip());
        self.gate.reopen();
        self.prepared.reopen();
        self.unblocked.notify();
        outcome.map_err(|source| RegionError::Protection { source })
    }

    /// Closes all pages for good: no store happens any more, in any thread.
    pub fn shut(&self) -> Result<(), RegionError> {
        self.gate.shut(&*self.memory.clock);
        let outcome = self.protect_open();
        outcome.map_err(|source| RegionError::Protection { source })
    }

    /// Lets stores to closed pages wait, or go on. Pages that are open are closed by the next cut,
    /// and none is stored to from then on.
    pub fn hold(&self, is_held: bool) {
        self.held.store(is_held, SeqCst);
        self.unblocked.notify();
    }

    /// Whether stores wait. Asked inside a gate, because a cut that follows [`PageTracker::hold`]
    /// waits for whoever is inside.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.held.load(SeqCst)
    }

    /// Ends every fault unserved, because the region is dropped.
    pub fn retire(&self) {
        self.gone.store(true, SeqCst);
        self.unblocked.notify();
    }

    /// Protects every open page, neighbours in one call. The gate is shut and no write is prepared.
    fn protect_open(&self) -> Result<(), Errno> {
        let mut pending: Option<Extent> = None;
        let mut pages = 0;
        for group in 0..self.open_summary.len() {
            let mut words = self.open_summary[group].load(Acquire);
            while words != 0 {
                let word = group * 64 + words.trailing_zeros() as usize;
                words &= words - 1;
                let open = self.open()[word].load(Acquire);
                debug_assert!(self.are_dirty(word, open), "an open page of word {word} is clean");
                for run in runs(word, open) {
                    pages += run.len;
                    pending = match pending {
                        Some(before) if run.grain - before.grain - before.len <= BRIDGE_PAGES => {
                            let len = run.grain + run.len - before.grain;
                            Some(Extent { grain: before.grain, len })
                        }
                        Some(before) => {
                            self.protect(before.grain, before.len, true)?;
                            Some(run)
                        }
                        None => Some(run),
                    };
                }
            }
        }
        if let Some(last) = pending {
            self.protect(last.grain, last.len, true)?;
        }
        for (group, summary) in self.open_summary.iter().enumerate() {
            let mut words = summary.swap(0, AcqRel);
            while words != 0 {
                self.open()[group * 64 + words.trailing_zeros() as usize].store(0, Release);
                words &= words - 1;
            }
        }
        self.open_pages.store(0, Release);
        Counters::add(&self.memory.stats.reprotections, pages);
        Ok(())
    }

    /// Whether all pages `bits` are dirty in the current epoch. A planted bug may open others.
    fn are_dirty(&self, word: usize, bits: u64) -> bool {
        let dirty = self.memory.ledger.bitmap(self.memory.parity())[word].load(Acquire);
        bits & !dirty == 0 || self.memory.planted != Planted::None
    }

    /// Protects pages, or opens them. Async-signal-safe.
    pub(super) fn protect(&self, first: u64, pages: u64, protect: bool) -> Result<(), Errno> {
        let (offset, len) = (first * PAGE_BYTES, (pages * PAGE_BYTES) as usize);
        match &self.guard {
            Guard::Uffd(uffd, _) => {
                uffd.protect(self.memory.map.base() as usize + offset as usize, len, protect)
            }
            Guard::Mprotect => self.memory.map.set_access(
                offset,
                len,
                if protect { Access::Read } else { Access::Write },
            ),
            Guard::Guests(guests) => guests.protect(first, pages, protect),
        }
    }

    pub(super) fn lock_pages(&self, word: usize, bits: u64) -> u64 {
        bits & !self.locks()[word].fetch_or(bits, AcqRel)
    }

    pub(super) fn unlock_pages(&self, word: usize, bits: u64) {
        self.locks()[word].fetch_and(!bits, AcqRel);
    }

    /// Whether all pages `bits` are locked.
    pub(crate) fn are_locked(&self, word: usize, bits: u64) -> bool {
        bits & !self.locks()[word].load(Acquire) == 0
    }

    pub(super) fn is_open(&self, word: usize, bit: u64) -> bool {
        self.open()[word].load(Acquire) & bit != 0
    }

    /// Notes pages as open. The caller holds their locks and opens them next.
    pub(super) fn note_open(&self, word: usize, bits: u64, pages: u64) {
        self.open()[word].fetch_or(bits, AcqRel);
        self.open_summary[word / 64].fetch_or(1 << (word % 64), AcqRel);
        self.open_pages.fetch_add(pages, AcqRel);
    }

    fn note_closed(&self, word: usize, bits: u64) {
        self.open()[word].fetch_and(!bits, AcqRel);
        self.open_pages.fetch_sub(u64::from(bits.count_ones()), AcqRel);
        Counters::add(&self.memory.stats.reprotections, u64::from(bits.count_ones()));
    }

    /// Clears the summary's bit of a word without open pages, in the order that [`crate::summary`]
    /// explains.
    fn open_summary_check(&self, word: usize) {
        if self.open()[word].load(Acquire) == 0 {
            let bit = 1 << (word % 64);
            self.open_summary[word / 64].fetch_and(!bit, AcqRel);
            if self.open()[word].load(Acquire) != 0 {
                self.open_summary[word / 64].fetch_or(bit, AcqRel);
            }
        }
    }

    /// Calls `f` with each word of open pages from `from` on and its bits, until `f` returns false.
    pub(super) fn for_open_words(&self, from: usize, mut f: impl FnMut(usize, u64) -> bool) {
        for group in from / 64..self.open_summary.len() {
            let mut words = self.open_summary[group].load(Acquire);
            if group == from / 64 {
                words &= u64::MAX << (from % 64);
            }
            while words != 0 {
                let word = group * 64 + words.trailing_zeros() as usize;
                words &= words - 1;
                if !f(word, self.open()[word].load(Acquire)) {
                    return;
                }
            }
        }
    }

    fn locks(&self) -> &[AtomicU64] {
        self.locks.words(0, (self.locks.len_bytes() / 8) as usize)
    }

    fn open(&self) -> &[AtomicU64] {
        self.open.words(0, (self.open.len_bytes() / 8) as usize)
    }
}

fn mask_of(run: Extent) -> u64 {
    mask(run.grain % WORD_GRAINS, run.len)
}

fn mode_name(guard: &Guard) -> &'static str {
    match guard {
        Guard::Uffd(_, Delivery::Signal) => "userfaultfd write-protection and SIGBUS",
        Guard::Uffd(_, Delivery::Message) => "userfaultfd write-protection and a thread",
        Guard::Mprotect => "mprotect and SIGSEGV",
        Guard::Guests(_) => "userfaultfd write-protection in other processes",
    }
}

fn choose(kind: TrapKind, map: &Mapping) -> Result<(Guard, String), SetupError> {
    let by_signal = |how: &str| {
        let uffd = Uffd::open(Delivery::Signal)?;
        // A kernel that grants the descriptor may still refuse to write-protect shared memory.
        uffd.register(map.base() as usize, map.len_bytes() as usize)?;
        uffd.unregister(map.base() as usize, map.len_bytes() as usize)?;
        let seen = if uffd.is_user_mode_only() { "user-mode faults only" } else { "privileged" };
        Ok((Guard::Uffd(uffd, Delivery::Signal), format!("{how}, {seen}")))
    };
    let refused = |mode, source| SetupError::Tracking { mode, source };
    match kind {
        TrapKind::Auto => Ok(by_signal("first choice").unwrap_or_else(|why: Errno| {
            (Guard::Mprotect, format!("userfaultfd was refused ({why})"))
        })),
        TrapKind::UffdSigbus => by_signal("as configured").map_err(|why| refused("SIGBUS", why)),
        TrapKind::UffdThread => Uffd::open(Delivery::Message)
            .map(|uffd| (Guard::Uffd(uffd, Delivery::Message), "as configured".into()))
            .map_err(|why| refused("userfaultfd write-protection and a thread", why)),
        TrapKind::Mprotect => Ok((Guard::Mprotect, "as configured".into())),
        TrapKind::Guests => Ok((Guard::Guests(Guests::default()), "as configured".into())),
    }
}

/// `vm.max_map_count`, or the kernel's default where it cannot be read.
fn mappings_max() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(65_530)
}

#[cfg(test)]
mod tests;
