//! A block of capacity memory as words that may be read and written.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A block that belongs to its holder for as long as the memory it was taken from lives.
#[derive(Debug)]
pub struct Block<'m> {
    at: NonNull<AtomicU64>,
    words: usize,
    memory: PhantomData<&'m ()>,
}

// SAFETY: the block is its holder's alone, and its words are atomics.
unsafe impl Send for Block<'_> {}

impl<'m> Block<'m> {
    /// Takes what an allocator handed out.
    ///
    /// # Safety
    /// `bytes` bytes at `at`, aligned to 8, are the caller's alone until `'m` ends or
    /// [`Block::leave`].
    pub unsafe fn of(at: NonNull<u8>, bytes: usize) -> Self {
        Self { at: at.cast(), words: bytes / 8, memory: PhantomData }
    }

    /// The words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: as `of` was promised; atomics accept any bytes.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.words) }
    }

    /// Address of the first word.
    pub fn address(&self) -> u64 {
        self.at.addr().get() as u64
    }

    /// What is to be given back to the allocator.
    pub fn leave(self) -> NonNull<u8> {
        self.at.cast()
    }
}
