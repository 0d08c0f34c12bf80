//! The allocator of this program: malloc, or the source that a thread was directed to. It also
//! counts the bytes that malloc gives out.
//!
//! While a `Source` runs, its thread is directed back to malloc, so that its own allocations do not
//! come back to it. Memory within a registered source's bounds is freed by that source, whichever
//! thread frees it. A source must outlive all its allocations: whoever registers one keeps it until
//! `live` is 0, or for ever.
//!
//! Without direction an allocation costs one look at a thread-local variable beside malloc's own
//! work, so a preloaded malloc can be compared with the system's in this program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicPtr, AtomicUsize, Ordering};

/// Memory that allocations can be directed to.
pub trait Source: Send + Sync {
    /// Allocates memory for a layout; null if there is none.
    fn alloc(&self, layout: Layout) -> *mut u8;
    /// Frees memory that this source allocated.
    fn free(&self, at: NonNull<u8>);
    /// Allocates memory of another length with the same contents and frees the old; null, with the
    /// old memory unchanged, if there is none.
    fn realloc(&self, at: NonNull<u8>, layout: Layout, new_bytes: usize) -> *mut u8;
    /// All addresses that this source can ever return.
    fn bounds(&self) -> Range<usize>;
}

/// The place of a thread's allocations; `None` is malloc.
pub type Direction = Option<NonNull<dyn Source>>;

thread_local! {
    static DIRECTION: Cell<Direction> = const { Cell::new(None) };
}

/// Directs this thread's allocations; returns the direction before, for `restore`.
pub fn direct(to: Option<&(dyn Source + 'static)>) -> Direction {
    turn(to.map(NonNull::from))
}

/// Restores a direction.
pub fn restore(before: Direction) {
    turn(before);
}

/// A thread that ends has no thread-local variables any more, so its last allocations are malloc's.
fn turn(to: Direction) -> Direction {
    DIRECTION.try_with(|direction| direction.replace(to)).unwrap_or(None)
}

const SOURCES_MAX: usize = 8;

struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    /// A leaked box of the source; null if the slot is free.
    source: AtomicPtr<Arc<dyn Source>>,
}

static SLOTS: [Slot; SOURCES_MAX] = [const {
    Slot {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        source: AtomicPtr::new(ptr::null_mut()),
    }
}; SOURCES_MAX];
/// Number of used slots, so that no slot is searched while all are free.
static REGISTERED: AtomicUsize = AtomicUsize::new(0);

/// Entry of a source in the table by which memory finds its source when it is freed.
#[derive(Debug)]
pub struct Registration {
    slot: usize,
}

/// Registers a source; `None` if all slots are used.
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
    /// Removes the source. Nothing that it allocated may still be in use.
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
    // SAFETY: a slot with bounds has a source as long as its allocations are in use, and `at` is in
    // use.
    unsafe { found.source.load(Ordering::Acquire).as_ref() }
}

static COUNTING: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

/// Counts from now on the bytes that malloc gives out.
pub fn count_from_here() {
    LIVE.store(0, Ordering::Relaxed);
    PEAK.store(0, Ordering::Relaxed);
    COUNTING.store(true, Ordering::Relaxed);
}

/// Ends the counting. Returns the most bytes that were in use at once beyond those before it.
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

/// Returns memory that malloc keeps for later to the system, so that it does not count for the next
/// run.
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

/// Guard of a thread that was directed to a source: the thread allocates by malloc until it is
/// dropped.
struct Away(NonNull<dyn Source>);

fn turned_away() -> Option<Away> {
    turn(None).map(Away)
}

impl Away {
    fn source(&self) -> &dyn Source {
        // SAFETY: the caller of `direct` keeps the source until the thread is directed back.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        restore(Some(self.0));
    }
}

/// Calls a source while the thread allocates by malloc.
fn away<R>(call: impl FnOnce() -> R) -> R {
    let before = turn(None);
    let found = call();
    restore(before);
    found
}
