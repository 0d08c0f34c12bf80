//! The memory of the models: words of loom, and bytes of which loom checks that their users exclude
//! each other.

use crate::sync::{AtomicU64, UnsafeCell};

#[path = "../../dirty/src/sys/fault_lock.rs"]
mod fault_lock;

pub(crate) use fault_lock::FaultLock;

/// Words and bytes, each from offset 0.
#[derive(Debug)]
pub struct Mapping {
    words: Box<[AtomicU64]>,
    bytes: UnsafeCell<Box<[u8]>>,
}

// SAFETY: the bytes are reached by threads that exclude each other; loom reports it if not.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeros.
    pub(crate) fn new(words: usize, bytes: usize) -> Self {
        Self {
            words: (0..words).map(|_| AtomicU64::default()).collect(),
            bytes: UnsafeCell::new(vec![0; bytes].into()),
        }
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.bytes.get().cast()
    }

    pub(crate) fn words(&self, offset: u64, count: usize) -> &[AtomicU64] {
        &self.words[offset as usize / 8..][..count]
    }

    /// `len` bytes at `offset`, used alone from now on.
    ///
    /// # Safety
    /// As of the mapping that this one stands for.
    pub(crate) unsafe fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        // SAFETY: as of `bytes_mut`.
        unsafe { self.bytes_mut(offset, len) }
    }

    /// `len` bytes at `offset`, used alone from now on.
    ///
    /// # Safety
    /// As of the mapping that this one stands for.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn bytes_mut(&self, offset: u64, len: usize) -> &mut [u8] {
        // SAFETY: the caller excludes all others, and loom reports it if not.
        unsafe { &mut (&mut *self.bytes.get())[offset as usize..][..len] }
    }
}

/// No cache has to be warmed here.
pub(crate) fn prefetch(_address: *const u8) {}
