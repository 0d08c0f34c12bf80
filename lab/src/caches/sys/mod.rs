//! The unsafe seam of `caches`: mapped pages and the processor's counters. What is above this
//! folder dereferences no raw pointer.

mod block;
mod counters;
mod pages;

pub use block::Block;
pub use counters::{CounterError, Counters, open_event};
pub use pages::{Backing, HUGE_PAGE_BYTES, PAGE_BYTES, Pages, populate};
