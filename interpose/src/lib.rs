//! `libperdura_interpose.so`: takes the place of functions of the C library in an unmodified
//! program.
//!
//! `perdura run` and `perdura-lab run` load the library with `LD_PRELOAD`. Environment variables
//! say what it does; what is not asked for costs a look at a word for each call.
//!
//! - [`malloc`]: the program's heap lies in capacity memory (docs/heap.md).
//! - [`hosted`]: files that the program maps shared are a host's durable memory (docs/mapped.md).
//! - [`modelled`]: files are on a modelled medium (docs/files.md).
//!
//! A call goes from the outside inwards: [`calls`] asks [`hosted`], then [`modelled`], then the C
//! library ([`next`]). Nothing here calls the functions that it replaces, and this library's own
//! memory is the C library's ([`malloc::own`]).

#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
// A test does not export the calls, or it would use them itself.
#![cfg_attr(test, allow(dead_code))]

mod calls;
mod environment;
mod hosted;
mod kernel;
mod malloc;
mod modelled;
mod next;
mod say;
mod start;
