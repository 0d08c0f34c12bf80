//! The unsafe part of `caches`: mapped pages and the processor's counters. Code above this folder
//! dereferences no raw pointer.

mod block;
mod counters;
mod pages;

pub use block::Block;
pub use counters::{CounterError, Counters, open_event};
pub use pages::{Backing, HUGE_PAGE_BYTES, PAGE_BYTES, Pages, populate};
