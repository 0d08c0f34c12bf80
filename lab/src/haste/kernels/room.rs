//! The memory of a kernel's data: capacity memory of a heap, on plain or on paged memory.

use perdura_heap::Heap;

use super::KernelError;
use super::probe::Probe;
use super::sys::{Array, Word};

/// Hands out arrays from a heap at page boundaries; they live as long as the heap.
pub struct Room<'h, P> {
    heap: &'h Heap,
    probe: &'h P,
}

impl<'h, P: Probe> Room<'h, P> {
    /// A room whose accesses `probe` sees.
    pub fn new(heap: &'h Heap, probe: &'h P) -> Self {
        Self { heap, probe }
    }

    /// An array with arbitrary contents.
    ///
    /// # Errors
    /// The heap is full.
    pub fn array<T: Word>(&self, len: usize) -> Result<Array<'h, T, P>, KernelError> {
        let bytes = (len * size_of::<T>()) as u64;
        let at = self.heap.cap_alloc_aligned(bytes, 4096)?;
        // SAFETY: the heap just handed out this many bytes, and they are never freed while it
        // lives.
        Ok(unsafe { Array::of(at, len, self.probe) })
    }
}
