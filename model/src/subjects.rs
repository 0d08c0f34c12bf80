//! What is checked, each with its models and planted orderings.

pub mod appender;
pub mod budget;
pub mod fault_lock;
pub mod gate;
pub mod lanes;
pub mod owned;
pub mod waited;
