//! The malloc of this process: the C library's, or the preloaded one.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

use super::library::{file_of, global};
use super::touch;
use crate::heap::contestant::{Contestant, ContestantError};

/// `malloc` and `free`.
pub struct Malloc;

impl Malloc {
    /// The process's malloc, if it comes from `library` (none: from the C library), and its
    /// description.
    pub fn open(library: Option<&Path>) -> Result<(Self, String), ContestantError> {
        let found = global(c"malloc").and_then(file_of);
        let found = found.ok_or_else(|| ContestantError::Open {
            what: "malloc".into(),
            cause: "the loader does not know where it comes from".into(),
        })?;
        let is_expected = match library {
            Some(library) => same_file(library, &found),
            None => {
                global(c"gnu_get_libc_version").and_then(file_of).is_some_and(|libc| libc == found)
            }
        };
        if !is_expected {
            return Err(ContestantError::OtherAllocator {
                found: found.display().to_string(),
                expected: library
                    .map_or("the C library's".into(), |path| path.display().to_string()),
            });
        }
        let name = jemalloc().or_else(mimalloc).or_else(glibc);
        Ok((Self, name.unwrap_or_else(|| found.display().to_string())))
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

fn jemalloc() -> Option<String> {
    type Mallctl =
        unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;
    let address = global(c"mallctl")?;
    // SAFETY: jemalloc's public function of this name and type.
    let mallctl = unsafe { std::mem::transmute::<*mut c_void, Mallctl>(address.as_ptr()) };
    let mut version: *const c_char = std::ptr::null();
    let mut length = size_of::<*const c_char>();
    let into = (&raw mut version).cast();
    // SAFETY: `version` has the length given; nothing is set.
    let failed =
        unsafe { mallctl(c"version".as_ptr(), into, &raw mut length, std::ptr::null_mut(), 0) };
    if failed != 0 || version.is_null() {
        return None;
    }
    // SAFETY: a constant string in the library.
    Some(format!("jemalloc {}", unsafe { CStr::from_ptr(version) }.to_string_lossy()))
}

fn mimalloc() -> Option<String> {
    let address = global(c"mi_version")?;
    // SAFETY: mimalloc's public function of this name and type.
    let version =
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(address.as_ptr())() };
    Some(format!("mimalloc {}.{}.{}", version / 100, version / 10 % 10, version % 10))
}

fn glibc() -> Option<String> {
    let address = global(c"gnu_get_libc_version")?;
    // SAFETY: glibc's public function of this name and type; it returns a constant string.
    let version = unsafe {
        let version =
            std::mem::transmute::<*mut c_void, extern "C" fn() -> *const c_char>(address.as_ptr());
        CStr::from_ptr(version())
    };
    Some(format!("glibc {}", version.to_string_lossy()))
}

impl Contestant for Malloc {
    #[inline]
    fn allocate(&self, bytes: usize) -> Result<u64, ContestantError> {
        // SAFETY: malloc accepts any size.
        let address = unsafe { libc::malloc(bytes) };
        if address.is_null() {
            return Err(ContestantError::Allocate { bytes, cause: "malloc returned null".into() });
        }
        Ok(address as u64)
    }

    #[inline]
    fn free(&self, place: u64) -> Result<(), ContestantError> {
        // SAFETY: a share frees each address once that `allocate` returned.
        unsafe { libc::free(place as *mut c_void) };
        Ok(())
    }

    #[inline]
    fn touch(&self, place: u64, bytes: usize, value: u64) {
        // SAFETY: an object of the caller's share, of at least `bytes`.
        unsafe { touch(place as *mut u8, bytes, value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocator_that_was_not_preloaded_is_not_taken_for_one_that_was() {
        let (_, name) = Malloc::open(None).unwrap();
        assert!(name.starts_with("glibc "), "{name}");
        let error = Malloc::open(Some(Path::new("/usr/lib/libjemalloc.so.2"))).map(|_| ());
        let said = error.unwrap_err().to_string();
        assert!(said.contains("libc") && said.contains("/usr/lib/libjemalloc.so.2"), "{said}");
    }
}
