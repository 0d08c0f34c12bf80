//! The ways to keep data, by name.

mod bytes;
mod choice;
mod dram;
mod files;
mod folder;
mod free;
mod heap;
mod mapped;

pub use choice::{Places, Way};
pub use dram::Dram;
pub use files::Files;
pub use heap::{HeapSettings, HeapWay};
pub use mapped::Mapped;
