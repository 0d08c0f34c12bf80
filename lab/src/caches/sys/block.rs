//! A block of capacity memory as words that may be read and written.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A block that belongs to its holder as long as the memory exists from which it was taken.
#[derive(Debug)]
pub struct Block<'m> {
    at: NonNull<AtomicU64>,
    words: usize,
    memory: PhantomData<&'m ()>,
}

// SAFETY: the block belongs to its holder alone, and its words are atomics.
unsafe impl Send for Block<'_> {}

impl<'m> Block<'m> {
    /// Takes memory from an allocator.
    ///
    /// # Safety
    /// `bytes` bytes at `at`, aligned to 8, belong to the caller alone until `'m` ends or
    /// [`Block::leave`].
    pub unsafe fn of(at: NonNull<u8>, bytes: usize) -> Self {
        Self { at: at.cast(), words: bytes / 8, memory: PhantomData }
    }

    /// The block's words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the caller of `of` promised the memory; atomics accept any bytes.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.words) }
    }

    /// Address of the first word.
    pub fn address(&self) -> u64 {
        self.at.addr().get() as u64
    }

    /// Gives up the block and returns its address, for the allocator.
    pub fn leave(self) -> NonNull<u8> {
        self.at.cast()
    }
}
