//! Page-aligned bytes for direct I/O.

use rustix::io::Errno;

use super::mapping::Mapping;

/// A page-aligned buffer, zeroed at first and exclusively owned.
#[derive(Debug)]
pub struct AlignedBytes {
    map: Mapping,
    len: usize,
}

impl AlignedBytes {
    /// `len` zero bytes, rounded up to 4 KiB.
    pub fn zeroed(len: usize) -> Result<Self, Errno> {
        let len = len.next_multiple_of(4096);
        Ok(Self { map: Mapping::anonymous(len as u64)?, len })
    }

    /// `len` zero bytes, rounded up to 4 KiB, in huge pages if the buffer is large enough for one
    /// and the kernel has one.
    pub fn in_huge_pages(len: usize) -> Result<Self, Errno> {
        let bytes = Self::zeroed(len)?;
        bytes.map.prefer_huge_pages();
        Ok(bytes)
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping is private to this value, and `&self` excludes writers.
        unsafe { self.map.bytes(0, self.len) }
    }
}

impl AsMut<[u8]> for AlignedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, with `&mut self`.
        unsafe { self.map.bytes_mut(0, self.len) }
    }
}
