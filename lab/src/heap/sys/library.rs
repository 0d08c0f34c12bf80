//! Loads shared libraries at run time.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use crate::heap::contestant::ContestantError;

/// A loaded library, which stays loaded until the process ends.
pub struct Library {
    handle: NonNull<c_void>,
    path: PathBuf,
}

impl Library {
    /// Loads a library with all its dependencies.
    pub fn open(path: &Path) -> Result<Self, ContestantError> {
        let failed =
            |cause: String| ContestantError::Open { what: path.display().to_string(), cause };
        let name =
            CString::new(path.as_os_str().as_bytes()).map_err(|error| failed(error.to_string()))?;
        // SAFETY: the name is a terminated string; the library's constructors are trusted, as the
        // user trusts its package.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle = NonNull::new(handle).ok_or_else(|| failed(last_error()))?;
        Ok(Self { handle, path: path.to_owned() })
    }

    /// Address of a symbol that the library exports.
    pub fn symbol(&self, name: &CStr) -> Result<NonNull<c_void>, ContestantError> {
        // SAFETY: the handle is never closed, and the name is a terminated string.
        let address = unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) };
        NonNull::new(address).ok_or_else(|| ContestantError::Open {
            what: format!("{} in {}", name.to_string_lossy(), self.path.display()),
            cause: last_error(),
        })
    }
}

/// Address of a symbol of the program or of a library that was loaded with it.
pub fn global(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the name is a terminated string.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

/// The file from which an address was loaded.
pub fn file_of(address: NonNull<c_void>) -> Option<PathBuf> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address is allowed; `found` is filled in if the answer is not 0, and zeros are
    // valid for it.
    let info = unsafe {
        if libc::dladdr(address.as_ptr(), found.as_mut_ptr()) == 0 {
            return None;
        }
        found.assume_init()
    };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a terminated string that the loader keeps as long as the object is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
}

fn last_error() -> String {
    // SAFETY: this thread's message, valid until its next call of the loader; it is copied here.
    unsafe {
        let message = libc::dlerror();
        if message.is_null() {
            return "no cause given".into();
        }
        CStr::from_ptr(message).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let error = Library::open(Path::new("/nowhere/libnothing.so")).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("/nowhere/libnothing.so"), "{error}");
    }

    #[test]
    fn malloc_comes_from_the_c_library() {
        let file = file_of(global(c"malloc").unwrap()).unwrap();
        assert!(file.to_string_lossy().contains("libc.so"), "{}", file.display());
        assert_eq!(global(c"no_such_symbol_in_any_library"), None);
    }
}
