//! The beginning and the end of this library in a process.
//!
//! This library is initialised before all others, even the C library (`build.rs`): see
//! [`crate::malloc`]. So the environment is what the loader passes.

use std::ffi::{c_char, c_int};

use crate::environment::Environment;
use crate::{hosted, malloc, modelled};

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static AT_START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".fini_array"))]
static AT_EXIT: extern "C" fn() = end;

extern "C" fn start(_: c_int, _: *const *const c_char, words: *const *const c_char) {
    // SAFETY: the loader passes the environment; there is no other thread yet.
    let environment = unsafe { Environment::new(words) };
    // First of all, so that its handlers run last before a fork and first after it.
    malloc::start(&environment);
    hosted::start::start(&environment);
    modelled::process::start(&environment);
}

extern "C" fn end() {
    modelled::report::end();
    malloc::report();
}
