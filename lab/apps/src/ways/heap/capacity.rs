//! Capacity memory of a heap as the place of a thread's allocations.
//!
//! Memory that an application leaves behind there (in a library's static, for example) must stay
//! mapped. A counted run finds such memory; then the heap stays mapped for ever and the way fails.

use std::alloc::Layout;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use perdura_heap::Heap;

use crate::error::{AppError, Result};
use crate::scratch::Scratch;
use crate::sys::alloc::{self, Registration, Source};

/// A heap's capacity memory, registered with the allocator of this program.
pub struct Capacity {
    source: Arc<HeapSource>,
    registration: Option<Registration>,
}

impl Capacity {
    pub fn register(way: &'static str, heap: &Arc<Heap>) -> Result<Self> {
        let source = Arc::new(HeapSource {
            heap: Arc::clone(heap),
            live: AtomicI64::new(0),
            live_bytes: AtomicI64::new(0),
            peak_bytes: AtomicU64::new(0),
        });
        let registration = alloc::register(Arc::clone(&source) as Arc<dyn Source>);
        if registration.is_none() {
            return Err(AppError::TooManyHeaps { way });
        }
        Ok(Self { source, registration })
    }

    pub fn scratch(&self) -> Scratch {
        Scratch::of(Arc::clone(&self.source) as Arc<dyn Source>)
    }

    /// Most bytes in use at once while allocations were counted.
    pub fn peak_bytes(&self, way: &'static str) -> Result<u64> {
        match self.source.live.load(Ordering::Relaxed) {
            0 => Ok(self.source.peak_bytes.load(Ordering::Relaxed)),
            live => Err(AppError::CapacityInUse { way, live }),
        }
    }
}

impl Drop for Capacity {
    fn drop(&mut self) {
        // With memory in use, the registration and the heap stay for ever.
        if self.source.live.load(Ordering::Relaxed) == 0
            && let Some(registration) = self.registration.take()
        {
            registration.end();
        }
    }
}

struct HeapSource {
    heap: Arc<Heap>,
    live: AtomicI64,
    live_bytes: AtomicI64,
    peak_bytes: AtomicU64,
}

impl HeapSource {
    fn count(&self, objects: i64, bytes: i64) {
        if alloc::is_counting() {
            self.live.fetch_add(objects, Ordering::Relaxed);
            let live_bytes = self.live_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
            self.peak_bytes.fetch_max(live_bytes.max(0) as u64, Ordering::Relaxed);
        }
    }

    fn usable(&self, at: NonNull<u8>) -> i64 {
        if alloc::is_counting() {
            self.heap.cap_usable_bytes(at).map_or(0, |bytes| bytes as i64)
        } else {
            0
        }
    }
}

impl Source for HeapSource {
    fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.heap.cap_alloc_aligned(layout.size() as u64, layout.align() as u64) {
            Ok(at) => {
                self.count(1, self.usable(at));
                at.as_ptr()
            }
            Err(_) => ptr::null_mut(),
        }
    }

    fn free(&self, at: NonNull<u8>) {
        self.count(-1, -self.usable(at));
        if let Err(error) = self.heap.cap_free(at) {
            // The allocator's state is damaged, so nothing after this could be trusted.
            eprintln!("perdura-apps: capacity memory: {error}");
            std::process::abort();
        }
    }

    fn realloc(&self, at: NonNull<u8>, layout: Layout, new_bytes: usize) -> *mut u8 {
        let before = self.usable(at);
        // The size classes keep a large alignment only when they allocate, so such memory is not
        // resized in place.
        if layout.align() > 16 {
            return self.moved(at, layout, new_bytes);
        }
        match self.heap.cap_realloc(at, new_bytes as u64) {
            Ok(at) => {
                self.count(0, self.usable(at) - before);
                at.as_ptr()
            }
            Err(_) => ptr::null_mut(),
        }
    }

    fn bounds(&self) -> Range<usize> {
        let memory = self.heap.memory();
        let start = memory.base().addr();
        start..start + memory.len_bytes() as usize
    }
}

impl HeapSource {
    fn moved(&self, at: NonNull<u8>, layout: Layout, new_bytes: usize) -> *mut u8 {
        let Ok(longer) = Layout::from_size_align(new_bytes, layout.align()) else {
            return ptr::null_mut();
        };
        let into = self.alloc(longer);
        if !into.is_null() {
            // SAFETY: both have so many bytes, and they are different objects.
            unsafe { into.copy_from_nonoverlapping(at.as_ptr(), layout.size().min(new_bytes)) };
            self.free(at);
        }
        into
    }
}
