//! Capacity memory: a plain heap on the same medium, of which nothing is logged, flushed or kept.

use std::convert::Infallible;
use std::ptr::NonNull;

use crate::engine::Kind;
use crate::engine::classes::UNIT_BYTES;
use crate::error::HeapError;
use crate::heap::{Heap, not_freed, refusal};
use crate::object::check_request;
use crate::sys::prefetch_for_write;

impl Heap {
    /// Takes capacity memory of `bytes`, whose contents are arbitrary at first. The memory is gone
    /// after a restart.
    ///
    /// # Errors
    /// `bytes` is zero or more than the heap has, or no memory is free.
    #[inline]
    pub fn cap_alloc(&self, bytes: u64) -> Result<NonNull<u8>, HeapError> {
        self.cap_alloc_aligned(bytes, UNIT_BYTES)
    }

    /// Takes capacity memory as [`Heap::cap_alloc`] does, at a multiple of `align`, a power of two.
    ///
    /// # Errors
    /// The errors of [`Heap::cap_alloc`], or the alignment is not supported.
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
    /// The memory is not an object of this heap's capacity memory, or is free already.
    #[inline]
    pub fn cap_free(&self, memory: NonNull<u8>) -> Result<(), HeapError> {
        let offset = self.cap_offset(memory)?;
        let wrong = self.with_local(Kind::Capacity, |local| {
            // The memory is likely to be taken and filled again soon.
            prefetch_for_write(memory.as_ptr());
            let unrecorded = || Ok::<_, Infallible>(());
            self.core.engine.free(&local.cache, Kind::Capacity, offset, unrecorded, || {}).err()
        })?;
        match wrong {
            None => Ok(()),
            Some(error) => Err(not_freed(error, offset, Kind::Capacity)),
        }
    }

    /// Gives capacity memory another size. Memory that does not fit its slot, or would leave most
    /// of the slot empty, is copied to a new one.
    ///
    /// # Errors
    /// The errors of [`Heap::cap_alloc`] and [`Heap::cap_free`]. The memory then stays as it was.
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

    /// Bytes that capacity memory may use, which are those asked for, rounded up.
    ///
    /// # Errors
    /// The errors of [`Heap::cap_free`].
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
