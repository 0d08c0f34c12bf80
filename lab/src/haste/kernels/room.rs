//! Where a kernel's data lie: capacity memory of a heap, on plain or on paged memory.

use perdura_heap::Heap;

use super::KernelError;
use super::probe::Probe;
use super::sys::{Array, Word};

/// Arrays are taken from the heap, at page boundaries, and live as long as it does.
pub struct Room<'h, P> {
    heap: &'h Heap,
    probe: &'h P,
}

impl<'h, P: Probe> Room<'h, P> {
    /// A room whose accesses `probe` sees.
    pub fn new(heap: &'h Heap, probe: &'h P) -> Self {
        Self { heap, probe }
    }

    /// An array of arbitrary contents.
    ///
    /// # Errors
    /// The heap is full.
    pub fn array<T: Word>(&self, len: usize) -> Result<Array<'h, T, P>, KernelError> {
        let bytes = (len * size_of::<T>()) as u64;
        let at = self.heap.cap_alloc_aligned(bytes, 4096)?;
        // SAFETY: so many bytes were just handed out, and are never freed while the heap lives.
        Ok(unsafe { Array::of(at, len, self.probe) })
    }
}
