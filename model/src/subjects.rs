//! What is checked, each with its models and planted orderings.

pub mod budget;
pub mod gate;
pub mod owned;
pub mod waited;
