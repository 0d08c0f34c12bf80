//! The only place of `unsafe`: the program's allocator, mapped files.

pub mod alloc;
pub mod map;
pub mod object;
