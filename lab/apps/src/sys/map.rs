//! A mapped file.

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{self, MapFlags, MsyncFlags, ProtFlags};

/// A shared mapping of a file's first bytes, unmapped when it is dropped.
///
/// Nobody may shorten the file meanwhile: the files are this program's own, in its own folder.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<u8>,
    len_bytes: usize,
    writable: bool,
}

impl Mapping {
    /// Maps the first `len_bytes` of a file, which must have them. An empty file is not mapped.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new(file: &File, len_bytes: usize, writable: bool) -> io::Result<Self> {
        if len_bytes == 0 {
            return Ok(Self { at: NonNull::dangling(), len_bytes, writable });
        }
        let write = if writable { ProtFlags::WRITE } else { ProtFlags::empty() };
        // SAFETY: a new mapping, where the kernel has room.
        let at = unsafe {
            mm::mmap(ptr::null_mut(), len_bytes, ProtFlags::READ | write, MapFlags::SHARED, file, 0)
        }?;
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, len_bytes, writable })
    }

    /// The mapped bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped as long as `self` lives, and written through `self` only.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len_bytes) }
    }

    /// The mapped bytes, writable.
    ///
    /// # Panics
    /// The file was mapped only for reading.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.writable, "a mapping for reading");
        // SAFETY: as above, and `self` is borrowed for it alone.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len_bytes) }
    }

    /// Waits until all stores are on the device.
    ///
    /// # Errors
    /// The device or the system refuses.
    pub fn sync(&self) -> io::Result<()> {
        if self.len_bytes == 0 {
            return Ok(());
        }
        // SAFETY: mapped.
        unsafe { mm::msync(self.at.as_ptr().cast(), self.len_bytes, MsyncFlags::SYNC) }?;
        Ok(())
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len_bytes > 0 {
            // SAFETY: mapped by `new`; slices of it borrowed `self`.
            let unmapped = unsafe { mm::munmap(self.at.as_ptr().cast(), self.len_bytes) };
            debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        }
    }
}
