//! Capacity memory: a plain heap on the same medium. Nothing of it is logged, flushed or kept.

use std::convert::Infallible;
use std::ptr::NonNull;

use crate::engine::Kind;
use crate::engine::classes::UNIT_BYTES;
use crate::error::HeapError;
use crate::heap::{Heap, not_freed, refusal};
use crate::object::check_request;
use crate::sys::prefetch_for_write;

impl Heap {
    /// Takes capacity memory of `bytes`; its contents are arbitrary. It is gone after a restart.
    ///
    /// # Errors
    /// Zero bytes, more than the heap, or none free.
    #[inline]
    pub fn cap_alloc(&self, bytes: u64) -> Result<NonNull<u8>, HeapError> {
        self.cap_alloc_aligned(bytes, UNIT_BYTES)
    }

    /// As [`Heap::cap_alloc`], at a multiple of `align`, a power of two.
    ///
    /// # Errors
    /// As [`Heap::cap_alloc`], or the alignment cannot be.
    #[inline]
    pub fn cap_alloc_aligned(&self, bytes: u64, align: u64) -> Result<NonNull<u8>, HeapError> {
        check_request(&self.core, bytes, align)?;
        let mut refused = None;
        let taken = self.with_local(Kind::Capacity, |local| {
            match self.core.engine.alloc(&local.cache, Kind::Capacity, bytes, align) {
                Ok(offset) => NonNull::new(self.core.memory.at(offset, bytes)),
                Err(error) => {
                    refused = Some(error);
                    None
                }
            }
        })?;
        match (taken, refused) {
            (Some(address), _) => Ok(address),
            (None, Some(error)) => Err(refusal(error, Kind::Capacity)),
            (None, None) => unreachable!("a mapping does not begin at zero"),
        }
    }

    /// Frees capacity memory.
    ///
    /// # Errors
    /// It is none of this heap's, or free already.
    #[inline]
    pub fn cap_free(&self, memory: NonNull<u8>) -> Result<(), HeapError> {
        let offset = self.cap_offset(memory)?;
        let wrong = self.with_local(Kind::Capacity, |local| {
            // It is likely to be taken again soon, and filled.
            prefetch_for_write(memory.as_ptr());
            let unrecorded = || Ok::<_, Infallible>(());
            self.core.engine.free(&local.cache, Kind::Capacity, offset, unrecorded, || {}).err()
        })?;
        match wrong {
            None => Ok(()),
            Some(error) => Err(not_freed(error, offset, Kind::Capacity)),
        }
    }

    /// Gives capacity memory another size: in place if it fits its slot and does not leave most of
    /// it empty, else by a copy.
    ///
    /// # Errors
    /// As [`Heap::cap_alloc`] and [`Heap::cap_free`]; the memory is as it was then.
    pub fn cap_realloc(&self, memory: NonNull<u8>, bytes: u64) -> Result<NonNull<u8>, HeapError> {
        let usable_bytes = self.cap_usable_bytes(memory)?;
        if bytes <= usable_bytes && bytes > usable_bytes / 2 {
            return Ok(memory);
        }
        let moved = self.cap_alloc(bytes)?;
        let len = usable_bytes.min(bytes) as usize;
        // SAFETY: both are objects of at least `len` bytes, and different ones.
        unsafe { std::ptr::copy_nonoverlapping(memory.as_ptr(), moved.as_ptr(), len) };
        self.cap_free(memory)?;
        Ok(moved)
    }

    /// Bytes that capacity memory may use: those asked for, rounded up.
    ///
    /// # Errors
    /// As [`Heap::cap_free`].
    pub fn cap_usable_bytes(&self, memory: NonNull<u8>) -> Result<u64, HeapError> {
        let offset = self.cap_offset(memory)?;
        let wrong = |error| not_freed(error, offset, Kind::Capacity);
        let found = self.core.engine.find(offset).map_err(wrong)?;
        if found.kind() != Kind::Capacity {
            return Err(wrong(crate::engine::NotFreed::OtherKind));
        }
        Ok(found.bytes())
    }

    #[inline]
    fn cap_offset(&self, memory: NonNull<u8>) -> Result<u64, HeapError> {
        let offset = self.core.memory.offset_of(memory.as_ptr()).filter(|offset| *offset > 0);
        offset.ok_or(HeapError::Foreign { address: memory.as_ptr() as usize })
    }
}
