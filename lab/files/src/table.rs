//! Which descriptors are of served files.
//!
//! Looking one up takes no lock. A descriptor's entry, its description's file, and that both are
//! still the same inside the file's gate: then neither its mapping nor its length is changed before
//! the gate is left. All changes are made one at a time, with signals blocked.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};

use rustix::fs::{FileType, Stat, fstat};

use crate::served::{File, Key, Open};
use crate::start;
use crate::sys::gate::{Quiet, Turn};

/// Descriptors from here on are passed through.
const SLOTS_MAX: usize = 1 << 16;
/// Files whose place on the medium is remembered; then it is forgotten and given anew.
const PLACES_MAX: usize = 1 << 16;

static SLOTS: [AtomicPtr<Open>; SLOTS_MAX] = [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS_MAX];
/// One more than the highest slot ever used.
static SLOTS_USED: AtomicUsize = AtomicUsize::new(0);
static TURN: Turn = Turn::new();

/// What was not served though it lies where files are served.
#[derive(Default)]
pub struct Passed {
    pub opens: AtomicU64,
    pub streams: AtomicU64,
    pub mappings: AtomicU64,
}

pub static PASSED: Passed =
    Passed { opens: AtomicU64::new(0), streams: AtomicU64::new(0), mappings: AtomicU64::new(0) };

/// What only those see whose turn it is.
struct State {
    files: BTreeMap<Key, &'static File>,
    free_files: Vec<&'static File>,
    free_opens: Vec<&'static Open>,
    places: BTreeMap<Key, u64>,
    next_place_bytes: u64,
}

struct Shared(std::cell::UnsafeCell<State>);

// SAFETY: reached by `Turned` only, of which there is one at a time.
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

/// A served file that is looked at; it stays as it is until this is dropped.
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

/// Whether any ever was.
pub fn is_used() -> bool {
    SLOTS_USED.load(Relaxed) > 0
}

/// Looks a descriptor up; `None`: it is not served.
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
        // SAFETY: the turn is this one's alone, and `self` is borrowed as long as the state.
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

    /// The served file of a name; `None`: it is not open here.
    pub fn find(&mut self, stat: &Stat) -> Option<&'static File> {
        self.state().files.get(&key(stat)).copied()
    }

    /// Runs what may make a file shorter while nobody looks at it, and then looks at its length.
    pub fn change<T>(&self, file: &'static File, fd: c_int, change: impl FnOnce() -> T) -> T {
        file.gate.alone(&self.quiet, || {
            let outcome = change();
            if let Some(stat) = stat_of(fd) {
                file.size_bytes.store(stat.st_size as u64, Release);
            }
            outcome
        })
    }

    /// As [`Turned::change`], for a file that is only known by a name; also says what that names
    /// afterwards.
    pub fn change_named<T>(
        &self,
        file: &'static File,
        change: impl FnOnce() -> (T, Option<Stat>),
    ) -> T {
        file.gate.alone(&self.quiet, || {
            let (outcome, stat) = change();
            // The name may be another file's by now. Then this one's length is not known, and 0 is
            // never too much: who reads there asks the kernel.
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

    /// Serves a descriptor that was just opened. False: it cannot be.
    pub fn adopt(&mut self, fd: c_int, flags: c_int, place_bytes: u64) -> bool {
        self.forget(fd);
        let Some(slot) = slot(fd) else { return false };
        // Looked at in this turn: a length found before it may have been cut since, by another
        // thread.
        let Some(stat) = stat_of(fd) else { return false };
        let stat = &stat;
        let known = self.find(stat);
        let file = known.unwrap_or_else(|| {
            self.state().free_files.pop().unwrap_or_else(|| Box::leak(Box::default()))
        });
        // SAFETY: the caller's descriptor, just opened.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        // Of a known file, too: another process may have changed it. What this one makes shorter
        // has the turn, so it is not too much; and the gate stays open, for a signal's handler may
        // open the file that it interrupted a copy of.
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
            // Streams of the C library write there without being seen.
            open.offset.hand_over(&self.quiet, fd);
        }
    }

    /// A descriptor means what another does.
    pub fn duplicate(&mut self, from: c_int, to: c_int) {
        let Some(open) = self.open(from) else { return self.forget(to) };
        if self.open(to).is_some_and(|other| ptr::eq(other, open)) {
            return;
        }
        self.forget(to);
        match slot(to) {
            Some(slot) => self.enter_slot(to, slot, open),
            // Beyond the slots: the kernel's from here on, so all of the description is.
            None => open.offset.hand_over(&self.quiet, from),
        }
    }

    /// A descriptor is closed, or about to be.
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

    /// Those of a range that are served.
    pub fn served_in(&self, first: u32, last: u32) -> Vec<c_int> {
        let end = SLOTS_USED.load(Relaxed).min((last as usize).saturating_add(1));
        let all = (first as usize..end).filter_map(|fd| c_int::try_from(fd).ok());
        all.filter(|fd| is_served(*fd)).collect()
    }

    /// From now on the kernel keeps all offsets.
    pub fn hand_over(&self) {
        for fd in self.served_in(0, u32::MAX) {
            self.hand_over_of(fd);
        }
    }

    /// From now on the kernel keeps this descriptor's.
    pub fn hand_over_of(&self, fd: c_int) {
        if let Some(open) = self.open(fd) {
            open.offset.hand_over(&self.quiet, fd);
        }
    }

    /// In a forked child: whoever was inside a gate is not here.
    pub fn part(&mut self) {
        let state = self.state();
        // Free ones as well: somebody may have just looked in.
        state.files.values().chain(&state.free_files).for_each(|file| file.gate.reset());
    }
}

fn key(stat: &Stat) -> Key {
    (stat.st_dev, stat.st_ino)
}

/// What a descriptor is of; `None`: of no regular file.
pub fn stat_of(fd: c_int) -> Option<Stat> {
    // SAFETY: a number that a program calls a descriptor; whether it is one the kernel says.
    let stat = fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(stat)
}

/// Serves a descriptor that was just opened, if it lies where files are served.
pub fn opened(fd: c_int, flags: c_int) {
    let Some(settings) = start::settings() else { return };
    if is_served(fd) {
        // Closed by a way that this library did not see.
        turn().forget(fd);
    }
    if settings.at.is_empty() || flags & libc::O_PATH != 0 || !lies_there(fd) {
        return;
    }
    let Some(stat) = stat_of(fd) else { return };
    let medium = start::medium(settings);
    let place_bytes = medium.place_bytes(stat.st_size as u64);
    if !turn().adopt(fd, flags, place_bytes) {
        PASSED.opens.fetch_add(1, Relaxed);
    }
}

/// Whether a descriptor's file lies where files are served.
pub fn lies_there(fd: c_int) -> bool {
    let Some(settings) = start::settings() else { return false };
    let path = rustix::fs::readlink(format!("/proc/self/fd/{fd}"), Vec::new());
    path.is_ok_and(|path| {
        settings.serves(std::os::unix::ffi::OsStrExt::from_bytes(path.as_bytes()))
    })
}
