//! The environment, before the C library knows of it.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;

/// The environment as the loader hands it to a constructor.
pub struct Environment(*const *const c_char);

impl Environment {
    /// # Safety
    /// `words` is the environment that a constructor gets, or null, and nobody changes it.
    pub unsafe fn new(words: *const *const c_char) -> Self {
        Self(words)
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        let mut at = self.0;
        // SAFETY: a list of words that ends with null, by the contract of `new`.
        while !at.is_null() && !unsafe { *at }.is_null() {
            // SAFETY: as above; each word ends with a zero byte.
            let word = unsafe { CStr::from_ptr(*at) }.to_bytes();
            if let Some([b'=', value @ ..]) = word.strip_prefix(name.as_bytes()) {
                return Some(OsStr::from_bytes(value));
            }
            at = at.wrapping_add(1);
        }
        None
    }
}
