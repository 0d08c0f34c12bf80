//! The one unsafe seam of this crate beside the calls themselves: the C library's own functions,
//! locks that signals and forks do not break, mappings.

pub mod gate;
pub mod mapping;
pub mod next;
