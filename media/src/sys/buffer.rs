//! Buffers that a device accepts: aligned to a block, a whole number of blocks long.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::device::BLOCK_BYTES;

/// Zeroed memory aligned to [`BLOCK_BYTES`], fit for `O_DIRECT`.
pub struct BlockBuf {
    start: NonNull<u8>,
    layout: Layout,
}

impl BlockBuf {
    /// `len_bytes` of zeros.
    ///
    /// # Panics
    /// When `len_bytes` is zero or not a multiple of [`BLOCK_BYTES`]; when memory is exhausted the
    /// allocation error hook decides, as for `Vec`.
    #[must_use]
    pub fn zeroed(len_bytes: usize) -> Self {
        assert!(
            len_bytes > 0 && len_bytes.is_multiple_of(ALIGN_BYTES),
            "a block buffer of {len_bytes} bytes is not a whole number of blocks"
        );
        let layout = match Layout::from_size_align(len_bytes, ALIGN_BYTES) {
            Ok(layout) => layout,
            Err(_) => panic!("a block buffer of {len_bytes} bytes exceeds the address space"),
        };
        // SAFETY: the layout's size is not zero (asserted above).
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Self { start, layout },
            None => handle_alloc_error(layout),
        }
    }
}

impl Deref for BlockBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is an allocation of `layout.size()` initialised bytes owned by `self`;
        // the borrow of `self` keeps it alive and unaliased by writers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for BlockBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the exclusive borrow of `self` excludes every other access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for BlockBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this very layout, released only here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

// SAFETY: the allocation is owned, like a `Vec<u8>`: no thread affinity, no shared mutation.
unsafe impl Send for BlockBuf {}
// SAFETY: `&BlockBuf` gives only `&[u8]`.
unsafe impl Sync for BlockBuf {}

const ALIGN_BYTES: usize = BLOCK_BYTES as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_buffer_is_aligned_zeroed_and_writable() {
        let mut buf = BlockBuf::zeroed(3 * ALIGN_BYTES);
        assert!(buf.as_ptr().addr().is_multiple_of(ALIGN_BYTES));
        assert!(buf.iter().all(|byte| *byte == 0));
        buf[3 * ALIGN_BYTES - 1] = 7;
        assert_eq!(buf.last(), Some(&7));
    }

    #[test]
    #[should_panic(expected = "not a whole number of blocks")]
    fn half_a_block_is_our_own_mistake() {
        let _ = BlockBuf::zeroed(2048);
    }
}
