//! The memory of a heap as its user sees it: filled before the heap is opened, then read and
//! written.

use perdura_heap::{Durability, Memory, MemoryError};

use super::contents::{Contents, PAGE_BYTES};

/// The bytes of a heap that is open, or about to be.
///
/// Invariant: made from a `Memory` that outlives it, which its owner (subject or script) keeps open
/// beside it.
#[derive(Clone, Copy)]
pub(crate) struct Bytes {
    base: *mut u8,
    len_bytes: u64,
}

/// Private memory that holds `contents`, and a way to look at it.
pub(crate) fn memory_of(contents: &Contents) -> Result<(Memory, Bytes), MemoryError> {
    let memory = Memory::anonymous(contents.len_bytes(), Durability::Flushed)?;
    let bytes = Bytes { base: memory.base(), len_bytes: contents.len_bytes() };
    for (offset, part) in contents.parts() {
        bytes.write(offset, part);
    }
    Ok((memory, bytes))
}

impl Bytes {
    /// Stores bytes, as a user of the heap does.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: inside the memory (checked), which is mapped (invariant); one thread uses the
        // heap here.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.base.add(offset as usize),
                bytes.len(),
            );
        }
    }

    /// Loads bytes.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        self.check(offset, len);
        let mut out = vec![0; len];
        // SAFETY: as for `write`.
        unsafe {
            std::ptr::copy_nonoverlapping(self.base.add(offset as usize), out.as_mut_ptr(), len);
        }
        out
    }

    /// The first byte that is not as in `contents`. If not `is_whole`, only the parts that are not
    /// zeros in `contents` are compared.
    pub fn first_difference(&self, contents: &Contents, is_whole: bool) -> Option<u64> {
        let mut end = 0;
        for (offset, part) in contents.parts() {
            if is_whole && let Some(at) = self.first_not_zero(end, offset) {
                return Some(at);
            }
            if let Some(at) = self.first_other(offset, part) {
                return Some(at);
            }
            end = offset + part.len() as u64;
        }
        if is_whole { self.first_not_zero(end, self.len_bytes) } else { None }
    }

    /// The first byte in a range of whole pages that is not zero.
    fn first_not_zero(&self, from: u64, to: u64) -> Option<u64> {
        // A page at a time: as many zeros as the memory has would be memory of their own.
        let pages = (from..to).step_by(PAGE_BYTES);
        pages.into_iter().find_map(|at| self.first_other(at, &[0; PAGE_BYTES]))
    }

    /// The first byte from `offset` on that is not as in `expected`.
    fn first_other(&self, offset: u64, expected: &[u8]) -> Option<u64> {
        self.check(offset, expected.len());
        // SAFETY: inside the memory (checked), which is mapped (invariant); the one thread that
        // uses the heap is this one, and changes nothing meanwhile.
        let found =
            unsafe { std::slice::from_raw_parts(self.base.add(offset as usize), expected.len()) };
        // Whole slices are compared many bytes at a time, in a development build, too.
        if found == expected {
            return None;
        }
        let differs = found.iter().zip(expected).position(|(one, other)| one != other);
        differs.map(|at| offset + at as u64)
    }

    fn check(&self, offset: u64, len: usize) {
        let end = offset.checked_add(len as u64);
        assert!(
            end.is_some_and(|end| end <= self.len_bytes),
            "{len} bytes at {offset:#x} leave the heap"
        );
    }
}

// SAFETY: plain memory; the threads that use one heap here do so one after the other.
unsafe impl Send for Bytes {}
