//! Serving a touch that trapped. This runs in a signal handler with every other signal blocked. It
//! takes one lock, which is held for a few system calls and never while the medium is waited for.
//! It does not allocate, log, or touch paged memory.
//!
//! Order of a miss: the victim leaves the page table first, so that the cap holds; a dirty victim
//! is written to the medium; the missing unit is read; the unit is entered into the page table. A
//! store by another thread to the victim traps, and waits until the victim has left.
//!
//! A touch cannot return an error. If the kernel refuses a step, the process dies of the signal, as
//! it would if there were no memory.

use std::ffi::c_void;
use std::sync::atomic::Ordering::*;

use perdura_media::model::Access;
use rustix::io::Errno;

use super::pager::{Pager, State};
use super::residents::{Parting, Place, Touched, Unit, Victim};
use perdura_dirty::sys::FaultGuard;
use perdura_dirty::sys::signals::Touch;

/// Serves a touch of `address` in a signal handler. Returns whether it was served.
///
/// # Safety
/// `context` points to the `Pager` whose mapping contains `address`.
pub(super) unsafe fn serve(context: *const c_void, address: usize, touch: Touch) -> bool {
    // SAFETY: the caller's promise; the registration keeps the pager alive.
    let pager = unsafe { &*context.cast::<Pager>() };
    let offset = (address - pager.map.base() as usize) as u64;
    if offset >= pager.len_bytes {
        return false;
    }
    let began_ns = pager.clock.now_ns();
    let served = pager.serve((offset / pager.unit_bytes) as Unit, touch, began_ns);
    let spent_ns = pager.clock.now_ns().saturating_sub(began_ns);
    pager.counts.handler_ns.fetch_add(spent_ns, Relaxed);
    served.is_ok()
}

impl Pager {
    fn serve(&self, unit: Unit, touch: Touch, began_ns: u64) -> Result<(), Errno> {
        loop {
            let seen = self.unblocked.version();
            let mut state = self.state.lock_in_handler();
            state.recording.began(began_ns);
            // If the processor does not tell loads from stores, a unit is entered protected. A
            // store then traps once more, and is known to be one.
            let is_mapped = state.residents.place(unit) == Place::Mapped;
            let is_store = match touch {
                Touch::Load => false,
                Touch::Store => true,
                Touch::Unknown => is_mapped,
            };
            match state.residents.touched(unit, is_store) {
                Touched::Busy => {
                    drop(state);
                    self.unblocked.wait(&*self.clock, seen);
                    continue;
                }
                Touched::Missed { victim, is_stored } => {
                    return self.miss(state, unit, is_store, victim, is_stored);
                }
                // The kernel may have dropped the entry of a page that it swapped out. Entering the
                // page again costs little.
                Touched::Present { is_dirty } => self.enter(unit, is_dirty)?,
                Touched::Dirtied => {
                    self.counts.write_traps.fetch_add(1, Relaxed);
                    self.uffd.protect(self.address(unit), self.unit_bytes as usize, false)?;
                }
                Touched::Reactivated { is_dirty, to_deactivate } => {
                    self.counts.reactivations.fetch_add(1, Relaxed);
                    self.deactivate(to_deactivate)?;
                    self.enter(unit, is_dirty)?;
                }
            }
            state.recording.ended(self.clock.now_ns());
            return Ok(());
        }
    }

    fn miss(
        &self,
        state: FaultGuard<'_, State>,
        unit: Unit,
        is_store: bool,
        victim: Option<Victim>,
        is_stored: bool,
    ) -> Result<(), Errno> {
        self.counts.misses.fetch_add(1, Relaxed);
        let resident = u64::from(state.residents.resident());
        self.counts.resident_units_max.fetch_max(resident, Relaxed);
        if let Some(victim) = victim.filter(|victim| victim.is_mapped) {
            self.take_out(victim.unit)?;
        }
        drop(state);
        if let Some(victim) = victim.filter(|victim| victim.parting != Parting::Nothing) {
            if victim.parting == Parting::Write {
                self.counts.page_outs.fetch_add(1, Relaxed);
                self.ask_medium(Access::Write, victim.unit);
            } else {
                self.file.punch(self.offset(victim.unit), self.unit_bytes)?;
            }
            self.state.lock_in_handler().residents.left(victim.unit);
            self.unblocked.notify();
        }
        if is_stored {
            self.counts.page_ins.fetch_add(1, Relaxed);
            self.ask_medium(Access::Read, unit);
        } else {
            self.file.provide(self.offset(unit), self.unit_bytes)?;
        }
        let mut state = self.state.lock_in_handler();
        let to_deactivate = state.residents.arrived(unit, is_store);
        self.deactivate(to_deactivate)?;
        self.enter(unit, is_store)?;
        state.recording.ended(self.clock.now_ns());
        drop(state);
        self.unblocked.notify();
        Ok(())
    }

    /// Asks the medium, and waits as long as it takes.
    fn ask_medium(&self, access: Access, unit: Unit) {
        let (offset, len_bytes) = (self.offset(unit), self.unit_bytes);
        self.state.lock_in_handler().recording.push(access, offset, len_bytes);
        let began_ns = self.clock.now_ns();
        self.medium.wait(self.medium.book(access, offset, len_bytes));
        let waited_ns = self.clock.now_ns().saturating_sub(began_ns);
        self.counts.waited_ns.fetch_add(waited_ns, Relaxed);
    }

    /// Forgets a unit's contents: it is not in DRAM, and the medium has none of it. The memory file
    /// still has its bytes.
    pub(super) fn forget(&self, unit: Unit) -> Result<(), Errno> {
        loop {
            let seen = self.unblocked.version();
            let mut state = self.state.lock_outside();
            if state.residents.place(unit) == Place::Mapped {
                // Taken out of the page table before it ceases to count as resident.
                self.take_out(unit)?;
            }
            if state.residents.forget(unit) {
                return Ok(());
            }
            drop(state);
            self.unblocked.wait(&*self.clock, seen);
        }
    }

    fn deactivate(&self, unit: Option<Unit>) -> Result<(), Errno> {
        unit.map_or(Ok(()), |unit| self.take_out(unit))
    }

    fn take_out(&self, unit: Unit) -> Result<(), Errno> {
        self.map.take_out(self.offset(unit), self.unit_bytes)
    }

    /// Enters a unit into the page table. A clean unit is protected, so that its first store traps.
    fn enter(&self, unit: Unit, is_dirty: bool) -> Result<(), Errno> {
        self.uffd.enter(self.address(unit), self.unit_bytes as usize, !is_dirty)
    }

    fn offset(&self, unit: Unit) -> u64 {
        u64::from(unit) * self.unit_bytes
    }

    fn address(&self, unit: Unit) -> usize {
        self.map.base() as usize + self.offset(unit) as usize
    }
}
