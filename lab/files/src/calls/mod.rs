//! The calls that are replaced, with the C library's manners.
//!
//! Those with a variable number of arguments are defined with as many as they may have: on the
//! processors that this library is built for these lie where a caller puts them, and what was not
//! given is passed on and not looked at.

mod control;
mod data;
mod listed;
mod open;
mod program;

use std::ffi::c_int;

use crate::request::Outcome;

/// The result of a call in C.
fn answer(outcome: Outcome) -> isize {
    match outcome {
        Ok(moved) => moved as isize,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// 0: it is set already.
fn set_errno(errno: c_int) {
    if errno != 0 {
        // SAFETY: this thread's.
        unsafe { *libc::__errno_location() = errno };
    }
}

const _: () = assert!(cfg!(any(target_arch = "x86_64", target_arch = "aarch64")));
const _: () = assert!(size_of::<libc::off_t>() == 8);
