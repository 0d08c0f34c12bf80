//! Zeroed tables by `mmap`: as large as the heap may ever need, with memory only where they are
//! touched, and without `malloc`, which this heap may itself be in the preload library.

use std::marker::PhantomData;

use rustix::io::Errno;

use super::mapping::Mapping;

/// A fixed number of entries, all zero bytes at first.
#[derive(Debug)]
pub struct Table<T> {
    mapping: Mapping,
    len: usize,
    of: PhantomData<T>,
}

/// Types that may lie in a [`Table`].
///
/// # Safety
/// All bytes zero is a value, shared references may change it (atomics, cells under a lock that the
/// owner of the table argues), and it needs no drop.
pub unsafe trait Zeroed: Sync {}

// SAFETY: atomics of plain integers.
unsafe impl Zeroed for std::sync::atomic::AtomicU8 {}
// SAFETY: as above.
unsafe impl Zeroed for std::sync::atomic::AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroed for std::sync::atomic::AtomicU64 {}
// SAFETY: an array of what may be zero may be zero.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}

impl<T: Zeroed> Table<T> {
    /// A table of `len` entries.
    pub fn new(len: usize) -> Result<Self, Errno> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or(Errno::NOMEM)?;
        Ok(Self { mapping: Mapping::anonymous(bytes as u64)?, len, of: PhantomData })
    }
}

impl<T: Zeroed> std::ops::Deref for Table<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the mapping has room for `len` entries, zero bytes are a value of `T`, and it
        // lives as long as the table does; changes go through `T`'s own interior mutability.
        unsafe { std::slice::from_raw_parts(self.mapping.base().cast(), self.len) }
    }
}
