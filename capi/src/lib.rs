//! The C interface of the heap and of mapped regions: `libperdura.so`, `libperdura.a`,
//! `include/perdura.h`.
//!
//! Names are those of the paper pMem (`persistmalloc`, `capmalloc`, `nvmmap`) where it has names.
//! The header is made from this source by cbindgen, and a test compares both. Opening, closing and
//! the holder are the library `perdura`'s; all other calls go to `perdura_heap` itself, because the
//! library has no calls on memory of its own, and signals are left to the C program.
//!
//! Invariants: nothing unwinds into C; a panic is our own mistake and ends the process with a
//! message on standard error. A call that fails changes nothing, returns null or a code, and
//! `perdura_error()` tells what failed, where, and what to do. A pointer from C is trusted where
//! nothing can check it: each function says what it needs.

// The types have C's names.
#![allow(non_camel_case_types)]

mod called;
mod capacity;
mod compartment;
mod error;
mod linked;
mod mapping;
mod open;
mod options;
mod persistent;
mod place;
mod roots;
mod transaction;

pub use capacity::*;
pub use compartment::*;
pub use error::{perdura_code, perdura_error, perdura_error_code};
pub use linked::*;
pub use mapping::*;
pub use open::*;
pub use options::*;
pub use persistent::*;
pub use place::*;
pub use roots::*;
pub use transaction::*;
