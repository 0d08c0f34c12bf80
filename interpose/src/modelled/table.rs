//! The table of descriptors of served files.
//!
//! A look-up takes no lock. It reads the descriptor's entry and the description's file, enters the
//! file's gate, and checks that both are still the same: then neither the file's mapping nor its
//! length changes until the gate is left. All changes of the table are made by one thread at a
//! time, with signals blocked.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

use rustix::fs::{FileType, Stat, fstat};

use crate::modelled::served::{File, Key, Open};
use crate::modelled::sys::gate::{Quiet, Turn};

/// Descriptors from this number on are never served.
const SLOTS_MAX: usize = 1 << 16;
/// Files whose place on the medium is remembered. When there are more, all places are forgotten and
/// given anew.
const PLACES_MAX: usize = 1 << 16;

static SLOTS: [AtomicPtr<Open>; SLOTS_MAX] = [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS_MAX];
/// One more than the highest slot ever used.
static SLOTS_USED: AtomicUsize = AtomicUsize::new(0);
static TURN: Turn = Turn::new();

/// The part of the table that only the thread with the turn uses.
struct State {
    files: BTreeMap<Key, &'static File>,
    free_files: Vec<&'static File>,
    free_opens: Vec<&'static Open>,
    places: BTreeMap<Key, u64>,
    next_place_bytes: u64,
}

struct Shared(std::cell::UnsafeCell<State>);

// SAFETY: reached only by `Turned`, of which there is one at a time.
unsafe impl Sync for Shared {}

static STATE: Shared = Shared(std::cell::UnsafeCell::new(State {
    files: BTreeMap::new(),
    free_files: Vec::new(),
    free_opens: Vec::new(),
    places: BTreeMap::new(),
    next_place_bytes: 0,
}));

/// The right to change the table.
pub struct Turned {
    quiet: Quiet,
}

/// A served file inside its gate: it does not change until this is dropped.
pub struct Entered {
    pub open: &'static Open,
    pub file: &'static File,
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        self.file.gate.leave();
    }
}

#[inline]
fn slot(fd: c_int) -> Option<&'static AtomicPtr<Open>> {
    SLOTS.get(usize::try_from(fd).ok()?)
}

/// Whether a descriptor may be of a served file.
#[inline]
pub fn is_served(fd: c_int) -> bool {
    slot(fd).is_some_and(|slot| !slot.load(Relaxed).is_null())
}

/// Whether any descriptor was ever served.
pub fn is_used() -> bool {
    SLOTS_USED.load(Relaxed) > 0
}

/// Looks up a descriptor; `None` if it is not served.
#[inline]
pub fn enter(fd: c_int) -> Option<Entered> {
    let slot = slot(fd)?;
    loop {
        let open = slot.load(SeqCst);
        // SAFETY: null, or a description, which are never freed.
        let open = unsafe { open.as_ref() }?;
        let file = open.file.load(SeqCst);
        // SAFETY: null, or a file, which are never freed.
        let Some(file) = (unsafe { file.as_ref() }) else { continue };
        file.gate.enter();
        let entered = Entered { open, file };
        if ptr::eq(slot.load(SeqCst), open) && ptr::eq(open.file.load(SeqCst), file) {
            return Some(entered);
        }
    }
}

pub fn turn() -> Turned {
    Turned { quiet: TURN.take() }
}

impl Turned {
    fn state(&mut self) -> &mut State {
        // SAFETY: only one thread has the turn, and `self` is borrowed as long as the state.
        unsafe { &mut *STATE.0.get() }
    }

    /// The description of a descriptor.
    pub fn open(&self, fd: c_int) -> Option<&'static Open> {
        // SAFETY: null, or a description, which are never freed.
        slot(fd).and_then(|slot| unsafe { slot.load(SeqCst).as_ref() })
    }

    fn file_of(&self, open: &'static Open) -> Option<&'static File> {
        // SAFETY: null, or a file, which are never freed.
        unsafe { open.file.load(SeqCst).as_ref() }
    }

    /// The served file of a name; `None` if this process does not have it open.
    pub fn find(&mut self, stat: &Stat) -> Option<&'static File> {
        self.state().files.get(&key(stat)).copied()
    }

    /// Runs a change that may shorten a file while no thread is inside its gate, and then reads its
    /// length.
    pub fn change<T>(&self, file: &'static File, fd: c_int, change: impl FnOnce() -> T) -> T {
        file.gate.alone(&self.quiet, || {
            let outcome = change();
            if let Some(stat) = stat_of(fd) {
                file.size_bytes.store(stat.st_size as u64, Release);
            }
            outcome
        })
    }

    /// As [`Turned::change`], for a file that is known only by a name. `change` also returns the
    /// facts of the name's file afterwards.
    pub fn change_named<T>(
        &self,
        file: &'static File,
        change: impl FnOnce() -> (T, Option<Stat>),
    ) -> T {
        file.gate.alone(&self.quiet, || {
            let (outcome, stat) = change();
            // The name may be another file's by now. Then this file's length is unknown, and 0 is
            // never too much: a read beyond it asks the kernel.
            let same = stat.filter(|stat| key(stat) == file.key());
            file.size_bytes.store(same.map_or(0, |stat| stat.st_size as u64), Release);
            outcome
        })
    }

    /// Runs a change of a descriptor's file. The descriptor itself need not be served: it may be a
    /// stream's.
    pub fn change_of<T>(&mut self, fd: c_int, change: impl FnOnce() -> T) -> T {
        match stat_of(fd).and_then(|stat| self.find(&stat)) {
            Some(file) => self.change(file, fd, change),
            None => change(),
        }
    }

    /// Serves a descriptor that was just opened; false if it cannot be served.
    pub fn adopt(&mut self, fd: c_int, flags: c_int, place_bytes: u64) -> bool {
        self.forget(fd);
        let Some(slot) = slot(fd) else { return false };
        // Read with the turn: another thread may have shortened the file since an earlier look.
        let Some(stat) = stat_of(fd) else { return false };
        let stat = &stat;
        let known = self.find(stat);
        let file = known.unwrap_or_else(|| {
            self.state().free_files.pop().unwrap_or_else(|| Box::leak(Box::default()))
        });
        // SAFETY: the caller's descriptor, just opened.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        // Also for a known file, for another process may have changed it. This process shortens
        // files only with the turn, so the length is not too much. The gate stays open, for a
        // signal handler may open the file whose copy it interrupted.
        file.size_bytes.store(stat.st_size as u64, Release);
        if file.map(&self.quiet, borrowed, flags).is_err() {
            if known.is_none() {
                self.state().free_files.push(file);
            }
            return false;
        }
        if known.is_none() {
            let key = key(stat);
            file.base_bytes.store(self.place(key, place_bytes), Relaxed);
            file.key[0].store(key.0, Relaxed);
            file.key[1].store(key.1, Relaxed);
            self.state().files.insert(key, file);
        }
        file.users.fetch_add(1, Relaxed);
        let open = self.state().free_opens.pop();
        let open = open.unwrap_or_else(|| Box::leak(Box::new(Open::new())));
        open.offset.reset(0);
        open.flags.store(flags as u32, Relaxed);
        open.file.store(ptr::from_ref(file).cast_mut(), SeqCst);
        self.enter_slot(fd, slot, open);
        true
    }

    fn place(&mut self, key: Key, place_bytes: u64) -> u64 {
        let state = self.state();
        if let Some(place) = state.places.get(&key) {
            return *place;
        }
        if state.places.len() >= PLACES_MAX {
            state.places.clear();
        }
        let place = state.next_place_bytes;
        state.next_place_bytes = place.saturating_add(place_bytes);
        state.places.insert(key, place);
        place
    }

    fn enter_slot(&self, fd: c_int, slot: &AtomicPtr<Open>, open: &'static Open) {
        open.descriptors.fetch_add(1, Relaxed);
        SLOTS_USED.fetch_max(fd as usize + 1, Relaxed);
        slot.store(ptr::from_ref(open).cast_mut(), SeqCst);
        if fd <= 2 {
            // The C library's standard streams write there past this library.
            open.offset.hand_over(&self.quiet, fd);
        }
    }

    /// Makes a descriptor mean the same description as another.
    pub fn duplicate(&mut self, from: c_int, to: c_int) {
        let Some(open) = self.open(from) else { return self.forget(to) };
        if self.open(to).is_some_and(|other| ptr::eq(other, open)) {
            return;
        }
        self.forget(to);
        match slot(to) {
            Some(slot) => self.enter_slot(to, slot, open),
            // Descriptors beyond the table go to the kernel, so the whole description's offset
            // does.
            None => open.offset.hand_over(&self.quiet, from),
        }
    }

    /// Removes a descriptor that is closed, or about to be.
    pub fn forget(&mut self, fd: c_int) {
        let Some(open) = self.open(fd) else { return };
        if let Some(slot) = slot(fd) {
            slot.store(ptr::null_mut(), SeqCst);
        }
        if open.descriptors.fetch_sub(1, Relaxed) > 1 {
            return;
        }
        let Some(file) = self.file_of(open) else { return };
        open.file.store(ptr::null_mut(), SeqCst);
        self.state().free_opens.push(open);
        if file.users.fetch_sub(1, Relaxed) > 1 {
            return;
        }
        file.gate.alone(&self.quiet, || file.unmap());
        self.state().files.remove(&file.key());
        self.state().free_files.push(file);
    }

    /// The served descriptors of a range.
    pub fn served_in(&self, first: u32, last: u32) -> Vec<c_int> {
        let end = SLOTS_USED.load(Relaxed).min((last as usize).saturating_add(1));
        let all = (first as usize..end).filter_map(|fd| c_int::try_from(fd).ok());
        all.filter(|fd| is_served(*fd)).collect()
    }

    /// Hands all offsets to the kernel.
    pub fn hand_over(&self) {
        for fd in self.served_in(0, u32::MAX) {
            self.hand_over_of(fd);
        }
    }

    /// Hands the offset of a descriptor's description to the kernel.
    pub fn hand_over_of(&self, fd: c_int) {
        if let Some(open) = self.open(fd) {
            open.offset.hand_over(&self.quiet, fd);
        }
    }

    /// Opens all gates in a forked child: threads that were inside are not in the child.
    pub fn part(&mut self) {
        let state = self.state();
        // Gates of free files, too: a thread may have just tried one.
        state.files.values().chain(&state.free_files).for_each(|file| file.gate.reset());
    }
}

fn key(stat: &Stat) -> Key {
    (stat.st_dev, stat.st_ino)
}

/// Facts about a descriptor's file; `None` if it is no regular file.
pub fn stat_of(fd: c_int) -> Option<Stat> {
    // SAFETY: a number that a program calls a descriptor; the kernel checks whether it is one.
    let stat = fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(stat)
}
