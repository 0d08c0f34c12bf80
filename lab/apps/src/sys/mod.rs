//! The only `unsafe` code of this program: its allocator and mapped files.

pub mod alloc;
pub mod map;
pub mod object;
