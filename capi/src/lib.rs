//! The C interface of the heap: `libperdura.so`, `libperdura.a`, `include/perdura.h`.
//!
//! Names are the paper's (pMem: `persistmalloc`, `capmalloc`, `nvmmap`) where it has some. The
//! header is made from this source by cbindgen, and a test compares.
//!
//! Invariants: nothing unwinds into C; a panic is our own mistake and ends the process with what
//! was wrong on standard error. A call that fails leaves all as it was, returns null or a code, and
//! says what, where and what to do in `perdura_error()`. Pointers of C are believed where nothing
//! can check them: each function says what it needs.

// C's names.
#![allow(non_camel_case_types)]

mod called;
mod capacity;
mod compartment;
mod error;
mod open;
mod options;
mod persistent;
mod place;
mod roots;
mod transaction;

pub use capacity::*;
pub use compartment::*;
pub use error::{perdura_code, perdura_error, perdura_error_code};
pub use open::*;
pub use options::*;
pub use persistent::*;
pub use place::*;
pub use roots::*;
pub use transaction::*;
