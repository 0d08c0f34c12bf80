//! The ways to data, by name.

mod dram;
mod files;
mod folder;
mod free;
mod mapped;

pub use dram::Dram;
pub use files::Files;
pub use mapped::Mapped;
