//! The heap that the replaced functions use, once it is open.

use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use perdura_heap::Heap;

static HEAP: AtomicPtr<Heap> = AtomicPtr::new(ptr::null_mut());
static DIR: OnceLock<PathBuf> = OnceLock::new();

/// The heap, once it is open. It stays open for the rest of the process.
#[inline]
pub fn heap() -> Option<&'static Heap> {
    // SAFETY: null, or a heap that was leaked.
    unsafe { HEAP.load(Acquire).as_ref() }
}

/// The directory of the heap's file, if the heap lies in a file.
pub fn dir() -> Option<&'static PathBuf> {
    DIR.get()
}

/// Gives the heap to all threads for the rest of the process. Called once.
pub fn publish(heap: Heap, dir: Option<PathBuf>) {
    if let Some(dir) = dir {
        let _ = DIR.set(dir);
    }
    HEAP.store(Box::into_raw(Box::new(heap)), Release);
}
