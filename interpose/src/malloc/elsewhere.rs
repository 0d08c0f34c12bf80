//! Memory that the C library's allocator gave in the heap's place: before the heap was open, beyond
//! the heap's room, or to threads that the heap cannot serve.
//!
//! The memory is listed in a table of addresses and sizes with open addressing, under one lock,
//! because such memory is rare. The table has a fixed size; once it is full, such memory is
//! refused.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::kernel;
use crate::malloc::own;

/// Entries of the table; only memory of used entries is touched.
const ENTRIES: usize = 1 << 22;
/// Most entries in use, so that searches end soon.
const USED_MAX: usize = ENTRIES / 4 * 3;

#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    address: usize,
    bytes: usize,
}

/// The table of memory from the C library.
pub struct Table {
    entries: *mut Entry,
    used: usize,
    /// Number of all entries there ever were.
    taken: u64,
    /// The first and the last address of all entries there ever were.
    first: usize,
    last: usize,
}

// SAFETY: the entries are reached under the lock only.
unsafe impl Send for Table {}

static TABLE: Mutex<Table> =
    Mutex::new(Table { entries: ptr::null_mut(), used: 0, taken: 0, first: usize::MAX, last: 0 });

/// Locks the table; also held during a fork.
pub fn lock() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allocates memory from the C library; null if there is none.
pub fn alloc(bytes: usize, align: usize) -> *mut c_void {
    let memory = own::alloc(bytes, align);
    if memory.is_null() || lock().insert(memory as usize, bytes) {
        return memory;
    }
    // SAFETY: the memory was just allocated, and nobody knows of it.
    unsafe { own::free(memory) };
    ptr::null_mut()
}

/// The bytes that were asked for; `None` if the memory is not on the list.
pub fn bytes_of(memory: *mut c_void) -> Option<usize> {
    lock().bytes_of(memory as usize)
}

/// Frees memory; returns false if the memory is not on the list.
pub fn free(memory: *mut c_void) -> bool {
    // Of several threads that free one address only one finds it. It leaves the list first, because
    // the address may be allocated again at once.
    if !lock().remove(memory as usize) {
        return false;
    }
    // SAFETY: the memory was on the list, so it is the C library's.
    unsafe { own::free(memory) };
    true
}

/// Ends all changes of the list: nothing is allocated here any more. The table stays locked for
/// good, so it can be read without the lock.
pub fn freeze() -> &'static Table {
    Box::leak(Box::new(lock()))
}

/// The number of all allocations so far.
pub fn taken() -> u64 {
    lock().taken
}

impl Table {
    /// The bytes that were asked for at an address; `None` if it is not on the list.
    pub fn bytes_of(&self, address: usize) -> Option<usize> {
        // Most addresses are nowhere near.
        if !(self.first..=self.last).contains(&address) {
            return None;
        }
        Some(self.get(self.find(address)?).bytes)
    }

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
        (self.first, self.last) = (self.first.min(address), self.last.max(address));
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

    /// Removes an entry, and moves later entries up, so that no search ends too early.
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
        // SAFETY: inside the mapping (just checked), which has zeros or entries.
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
            let Ok(made) = (unsafe { kernel::map(0, len, protection, flags, -1, 0) }) else {
                return false;
            };
            self.entries = ptr::with_exposed_provenance_mut(made);
        }
        true
    }
}

fn home(address: usize) -> usize {
    // Fibonacci hashing: addresses differ in their middle bits.
    (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 42
}

const _: () = assert!(ENTRIES == 1 << (64 - 42));
