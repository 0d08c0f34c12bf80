//! The bytes of a heap's objects.

use std::ptr::NonNull;

use perdura_heap::{Heap, HeapError, Offset};

/// An object of a heap and its length. The object is not freed when this is dropped.
#[derive(Debug, Clone, Copy)]
pub struct Object {
    offset: Offset,
    len_bytes: usize,
}

impl Object {
    /// The object at an offset.
    ///
    /// # Errors
    /// No object begins there.
    pub fn at(heap: &Heap, offset: Offset) -> Result<Self, HeapError> {
        let len_bytes = heap.usable_bytes(offset)? as usize;
        Ok(Self { offset, len_bytes })
    }

    pub fn offset(self) -> Offset {
        self.offset
    }

    /// Bytes that the object can hold.
    pub fn len_bytes(self) -> usize {
        self.len_bytes
    }

    fn within(self, heap: &Heap, at: usize, len_bytes: usize) -> Option<NonNull<u8>> {
        let end = at.checked_add(len_bytes)?;
        let base = NonNull::new(heap.pointer(self.offset))?;
        // SAFETY: inside the object.
        (end <= self.len_bytes).then(|| unsafe { base.add(at) })
    }

    /// Some of the object's bytes; `None` if the range is outside the object.
    ///
    /// # Safety
    /// While the slice is used, the object is not freed, and these bytes are not written.
    pub unsafe fn bytes(self, heap: &Heap, at: usize, len_bytes: usize) -> Option<&[u8]> {
        let from = self.within(heap, at, len_bytes)?;
        // SAFETY: inside the object; the rest is the caller's promise.
        Some(unsafe { std::slice::from_raw_parts(from.as_ptr(), len_bytes) })
    }

    /// Changes bytes by plain stores; `None` if the range is outside the object.
    ///
    /// # Safety
    /// No other thread uses these bytes meanwhile, and the object is not freed.
    pub unsafe fn store(self, heap: &Heap, at: usize, bytes: &[u8]) -> Option<()> {
        let into = self.within(heap, at, bytes.len())?;
        // SAFETY: inside the object; the rest is the caller's promise. What is copied from may lie
        // in the same heap, but not in bytes that only the caller uses.
        unsafe { into.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Some(())
    }
}
