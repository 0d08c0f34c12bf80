//! What the C library's allocator gave in the heap's place: from before the heap was open, beyond
//! its room, or from threads that it cannot serve.
//!
//! A table of addresses and sizes with open addressing, under one lock: such memory is rare. It
//! grows to nothing beyond its bound; then there is no more such memory.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::next;

/// Entries; memory is touched where they are used.
const ENTRIES: usize = 1 << 22;
/// Never fuller, so that searches end soon.
const USED_MAX: usize = ENTRIES / 4 * 3;

#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    address: usize,
    bytes: usize,
}

/// The table; all zeros is an empty one.
pub struct Table {
    entries: *mut Entry,
    used: usize,
    /// Ever entered.
    taken: u64,
}

// SAFETY: the entries are reached under the lock only.
unsafe impl Send for Table {}

static TABLE: Mutex<Table> = Mutex::new(Table { entries: ptr::null_mut(), used: 0, taken: 0 });

/// The table, for whoever forks.
pub fn lock() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes memory; null: there is none.
pub fn alloc(bytes: usize, align: usize) -> *mut c_void {
    let memory = next::alloc(bytes, align);
    if memory.is_null() || lock().insert(memory as usize, bytes) {
        return memory;
    }
    // SAFETY: just taken, and nobody knows of it.
    unsafe { next::free(memory) };
    ptr::null_mut()
}

/// Bytes asked for; `None`: it is not from here.
pub fn bytes_of(memory: *mut c_void) -> Option<usize> {
    let table = lock();
    let at = table.find(memory as usize)?;
    Some(table.get(at).bytes)
}

/// Gives memory back; false: it is not from here.
pub fn free(memory: *mut c_void) -> bool {
    // Of several who free it one finds it. Off the list first: the address may be given out again
    // at once.
    if !lock().remove(memory as usize) {
        return false;
    }
    // SAFETY: it was on the list, so it is the C library's.
    unsafe { next::free(memory) };
    true
}

/// How many there ever were.
pub fn taken() -> u64 {
    lock().taken
}

impl Table {
    fn insert(&mut self, address: usize, bytes: usize) -> bool {
        if self.used >= USED_MAX || !self.make() {
            return false;
        }
        let mut at = home(address);
        while self.get(at).address != 0 {
            at = (at + 1) % ENTRIES;
        }
        self.set(at, Entry { address, bytes });
        self.used += 1;
        self.taken += 1;
        true
    }

    fn find(&self, address: usize) -> Option<usize> {
        if self.entries.is_null() {
            return None;
        }
        let mut at = home(address);
        while self.get(at).address != 0 {
            if self.get(at).address == address {
                return Some(at);
            }
            at = (at + 1) % ENTRIES;
        }
        None
    }

    /// Those behind move up, so that no search ends too early.
    fn remove(&mut self, address: usize) -> bool {
        let Some(mut hole) = self.find(address) else { return false };
        let mut at = hole;
        loop {
            at = (at + 1) % ENTRIES;
            let entry = self.get(at);
            if entry.address == 0 {
                break;
            }
            let from_home = at.wrapping_sub(home(entry.address)) % ENTRIES;
            if from_home >= at.wrapping_sub(hole) % ENTRIES {
                self.set(hole, entry);
                hole = at;
            }
        }
        self.set(hole, Entry { address: 0, bytes: 0 });
        self.used -= 1;
        true
    }

    fn get(&self, at: usize) -> Entry {
        assert!(at < ENTRIES && !self.entries.is_null(), "an entry outside the table");
        // SAFETY: inside the mapping (just checked), which holds zeros or entries.
        unsafe { *self.entries.add(at) }
    }

    fn set(&mut self, at: usize, entry: Entry) {
        assert!(at < ENTRIES && !self.entries.is_null(), "an entry outside the table");
        // SAFETY: as in `get`; the lock is held.
        unsafe { *self.entries.add(at) = entry };
    }

    fn make(&mut self) -> bool {
        if self.entries.is_null() {
            let (protection, flags) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            );
            let len = ENTRIES * size_of::<Entry>();
            // SAFETY: fresh addresses that the kernel chooses.
            let made = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
            if made == libc::MAP_FAILED {
                return false;
            }
            self.entries = made.cast();
        }
        true
    }
}

fn home(address: usize) -> usize {
    // Fibonacci hashing: addresses differ in their middle bits.
    (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 42
}

const _: () = assert!(ENTRIES == 1 << (64 - 42));
