//! The only unsafe code of this crate besides the calls themselves: the C library's own functions,
//! locks that survive signals and forks, mappings.

pub mod gate;
pub mod mapping;
pub mod next;
