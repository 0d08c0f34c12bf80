//! The calls that this library replaces, with the C library's conventions.
//!
//! Calls with a variable number of arguments are defined with the most that they can have. On the
//! supported processors these arguments are where a caller puts them; arguments that were not given
//! are passed on unread.

mod control;
mod data;
mod listed;
mod open;
mod program;

use std::ffi::c_int;

use crate::request::Outcome;

/// The result of a call, as C returns it.
fn answer(outcome: Outcome) -> isize {
    match outcome {
        Ok(moved) => moved as isize,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// Sets `errno`, unless it is 0: then the C library has set it.
fn set_errno(errno: c_int) {
    if errno != 0 {
        // SAFETY: this thread's.
        unsafe { *libc::__errno_location() = errno };
    }
}

const _: () = assert!(cfg!(any(target_arch = "x86_64", target_arch = "aarch64")));
const _: () = assert!(size_of::<libc::off_t>() == 8);
