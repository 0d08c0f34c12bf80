//! Unsafe code beside that of the calls themselves: locks that survive signals and forks, mappings.

pub mod gate;
pub mod mapping;
