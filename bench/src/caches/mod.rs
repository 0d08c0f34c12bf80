//! Cache conflicts of a heap with two uses.

pub mod frames;
pub mod model;
pub mod placement;
mod sys;
