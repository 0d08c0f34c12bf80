//! The calls on files, with the C library's conventions: those of a file on a modelled medium are
//! answered, all others go on to the C library. [`crate::calls`] has the names that are replaced;
//! those that only a modelled medium needs are replaced here.
//!
//! Calls with a variable number of arguments are defined with the most that they can have. On the
//! supported processors these arguments are where a caller puts them; arguments that were not given
//! are passed on unread.

mod control;
mod data;
mod listed;
mod open;
mod program;

pub use control::*;
pub use data::*;
pub use open::*;
pub use program::pass_on_vfork;

use std::ffi::c_int;

use crate::modelled::request::Outcome;

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
