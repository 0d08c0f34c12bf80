//! The unsafe seam: Arrow's C data interface, Python's buffer protocol, the end of the process.

mod arrow;
mod exit;
mod exported;

pub use arrow::*;
pub use exit::close_at_exit;
pub use exported::{Capacity, Exported};
