//! The allocator of this program: malloc, or what a thread was directed to; and what malloc was
//! asked for.
//!
//! A `Source` is asked with the thread directed back to malloc, so that what it allocates itself
//! does not come back to it. What lies within a registered source's bounds is freed there, whoever
//! frees it. A source must outlive all that was allocated in it: who registers one keeps it until
//! `live` says 0, or for ever.
//!
//! Undirected, an allocation costs one look at a variable of the thread beside malloc's own: a
//! preloaded malloc can be compared with the system's in this program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicPtr, AtomicUsize, Ordering};

/// Memory that allocations can be directed to.
pub trait Source: Send + Sync {
    /// Memory for a layout; null: there is none.
    fn alloc(&self, layout: Layout) -> *mut u8;
    /// Takes back what it gave.
    fn free(&self, at: NonNull<u8>);
    /// Memory of another length with the same contents; null: there is none, and the old is as it
    /// was.
    fn realloc(&self, at: NonNull<u8>, layout: Layout, new_bytes: usize) -> *mut u8;
    /// All addresses it ever gives.
    fn bounds(&self) -> Range<usize>;
}

/// Where a thread's allocations go.
pub type Direction = Option<NonNull<dyn Source>>;

thread_local! {
    static DIRECTION: Cell<Direction> = const { Cell::new(None) };
}

/// Directs this thread's allocations; returns where they went before, for `restore`.
pub fn direct(to: Option<&(dyn Source + 'static)>) -> Direction {
    turn(to.map(NonNull::from))
}

/// Directs them back.
pub fn restore(before: Direction) {
    turn(before);
}

/// A thread that ends has no variables any more: its last allocations are malloc's.
fn turn(to: Direction) -> Direction {
    DIRECTION.try_with(|direction| direction.replace(to)).unwrap_or(None)
}

const SOURCES_MAX: usize = 8;

struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    /// A leaked box of the source; null: the slot is free.
    source: AtomicPtr<Arc<dyn Source>>,
}

static SLOTS: [Slot; SOURCES_MAX] = [const {
    Slot {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        source: AtomicPtr::new(ptr::null_mut()),
    }
}; SOURCES_MAX];
/// So that nobody looks through the slots while there is nothing in them.
static REGISTERED: AtomicUsize = AtomicUsize::new(0);

/// A source that memory is given back to.
#[derive(Debug)]
pub struct Registration {
    slot: usize,
}

/// Enters a source; `None`: there are too many.
pub fn register(source: Arc<dyn Source>) -> Option<Registration> {
    let bounds = source.bounds();
    let boxed = Box::into_raw(Box::new(source));
    let empty = ptr::null_mut();
    for (number, slot) in SLOTS.iter().enumerate() {
        if slot.source.compare_exchange(empty, boxed, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            slot.start.store(bounds.start, Ordering::Release);
            slot.end.store(bounds.end, Ordering::Release);
            REGISTERED.fetch_add(1, Ordering::AcqRel);
            return Some(Registration { slot: number });
        }
    }
    // SAFETY: no slot took it.
    drop(unsafe { Box::from_raw(boxed) });
    None
}

impl Registration {
    /// Takes the source out: nothing that was allocated in it is in use any more.
    pub fn end(self) {
        let slot = &SLOTS[self.slot];
        slot.end.store(0, Ordering::Release);
        slot.start.store(0, Ordering::Release);
        REGISTERED.fetch_sub(1, Ordering::AcqRel);
        let boxed = slot.source.swap(ptr::null_mut(), Ordering::AcqRel);
        if !boxed.is_null() {
            // SAFETY: `register` leaked it, and the swap made this its only holder.
            drop(unsafe { Box::from_raw(boxed) });
        }
    }
}

fn source_of(at: *mut u8) -> Option<&'static Arc<dyn Source>> {
    if REGISTERED.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let within = |slot: &&Slot| {
        let start = slot.start.load(Ordering::Acquire);
        (start..slot.end.load(Ordering::Acquire)).contains(&at.addr())
    };
    let found = SLOTS.iter().find(within)?;
    // SAFETY: a slot with bounds holds a source, until nothing allocated in it is in use; `at` is.
    unsafe { found.source.load(Ordering::Acquire).as_ref() }
}

static COUNTING: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

/// Counts what malloc is asked for, from 0.
pub fn count_from_here() {
    LIVE.store(0, Ordering::Relaxed);
    PEAK.store(0, Ordering::Relaxed);
    COUNTING.store(true, Ordering::Relaxed);
}

/// Ends counting: the most that was in use at once above what was before, bytes.
pub fn counted_peak_bytes() -> u64 {
    COUNTING.store(false, Ordering::Relaxed);
    PEAK.load(Ordering::Relaxed).max(0) as u64
}

/// Whether allocations are counted now.
pub fn is_counting() -> bool {
    COUNTING.load(Ordering::Relaxed)
}

fn count(bytes: isize) {
    if is_counting() {
        let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
        PEAK.fetch_max(live, Ordering::Relaxed);
    }
}

/// Gives the system what malloc keeps for later, so that the next figure is not the last one's.
pub fn trim() {
    // SAFETY: takes no memory of ours.
    unsafe { libc::malloc_trim(0) };
}

struct Directed;

#[global_allocator]
static ALLOCATOR: Directed = Directed;

// SAFETY: each request goes to one allocator, and what it gave goes back to the same one, by its
// address.
unsafe impl GlobalAlloc for Directed {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match turned_away() {
            Some(away) => away.source().alloc(layout),
            None => {
                count(layout.size() as isize);
                // SAFETY: the caller's promise.
                unsafe { System.alloc(layout) }
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match turned_away() {
            Some(away) => {
                let at = away.source().alloc(layout);
                if !at.is_null() {
                    // SAFETY: it has the layout's size.
                    unsafe { at.write_bytes(0, layout.size()) };
                }
                at
            }
            None => {
                count(layout.size() as isize);
                // SAFETY: the caller's promise.
                unsafe { System.alloc_zeroed(layout) }
            }
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        match (source_of(at), NonNull::new(at)) {
            (Some(source), Some(given)) => away(|| source.free(given)),
            _ => {
                count(-(layout.size() as isize));
                // SAFETY: the caller's promise, and no source gave it.
                unsafe { System.dealloc(at, layout) }
            }
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        match (source_of(at), NonNull::new(at)) {
            (Some(source), Some(given)) => away(|| source.realloc(given, layout, new_bytes)),
            _ => {
                count(new_bytes as isize - layout.size() as isize);
                // SAFETY: the caller's promise, and no source gave it.
                unsafe { System.realloc(at, layout, new_bytes) }
            }
        }
    }
}

/// The thread was directed to a source; it allocates by malloc until this is dropped.
struct Away(NonNull<dyn Source>);

fn turned_away() -> Option<Away> {
    turn(None).map(Away)
}

impl Away {
    fn source(&self) -> &dyn Source {
        // SAFETY: who directed the thread here keeps the source until it is directed back.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        restore(Some(self.0));
    }
}

/// Calls a source, which allocates by malloc meanwhile.
fn away<R>(call: impl FnOnce() -> R) -> R {
    let before = turn(None);
    let found = call();
    restore(before);
    found
}
