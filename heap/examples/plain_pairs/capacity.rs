//! Capacity memory beside `malloc`: an object's address in DRAM.

use std::cell::UnsafeCell;
use std::error::Error;
use std::ptr::{NonNull, null_mut};

use perdura_heap::{Config, Durability, Heap, Memory};

use crate::{HEAP_BYTES, Pairs, failed, touch};

/// Addresses in DRAM, each used by the thread whose share it is in.
struct Table(Vec<UnsafeCell<*mut u8>>);

// SAFETY: the threads' shares do not overlap, and a thread reaches its own share only.
unsafe impl Sync for Table {}

fn table(objects: usize) -> Table {
    Table((0..objects).map(|_| UnsafeCell::new(null_mut())).collect())
}

impl Table {
    fn exchange(&self, index: usize, free: impl Fn(NonNull<u8>), make: impl Fn() -> *mut u8) {
        // SAFETY: see above: no other thread has this entry.
        let entry = unsafe { &mut *self.0[index].get() };
        if let Some(old) = NonNull::new(*entry) {
            free(old);
        }
        *entry = make();
        touch(*entry, index);
    }
}

/// Perdura's capacity memory.
pub struct Capacity {
    heap: Heap,
    at: Table,
}

impl Capacity {
    pub fn open(objects: usize) -> Result<Self, Box<dyn Error>> {
        let memory = Memory::anonymous(HEAP_BYTES, Durability::Ordered)?;
        println!("perdura_heap in {}", memory.describe());
        Ok(Self { heap: Heap::open(memory, Config::default())?, at: table(objects) })
    }
}

impl Pairs for Capacity {
    fn replace(&self, index: usize, bytes: usize) {
        let free = |old| match self.heap.cap_free(old) {
            Ok(()) => {}
            Err(error) => failed("cap_free", &error),
        };
        self.at.exchange(index, free, || match self.heap.cap_alloc(bytes as u64) {
            Ok(new) => new.as_ptr(),
            Err(error) => failed("cap_alloc", &error),
        });
    }
}

/// The allocator that the program runs with.
pub struct Malloc {
    at: Table,
}

impl Malloc {
    pub fn new(objects: usize) -> Self {
        Self { at: table(objects) }
    }
}

impl Pairs for Malloc {
    fn replace(&self, index: usize, bytes: usize) {
        // SAFETY: what `malloc` gave for this entry is freed once.
        let free = |old: NonNull<u8>| unsafe { libc::free(old.as_ptr().cast()) };
        // SAFETY: any size may be asked for.
        self.at.exchange(index, free, || match unsafe { libc::malloc(bytes) } {
            new if new.is_null() => failed("malloc", &"no memory"),
            new => new.cast(),
        });
    }
}
