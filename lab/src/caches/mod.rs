//! `perdura-lab caches`: how persistent and capacity memory in one heap disturb each other in the
//! cache they share, step by step as in the pMem paper (contiguity buckets, the write-aware
//! allocator, the hybrid log).
//!
//! `frames` and `placement` measure where pages lie; `model` is a MODELLED last-level cache, which
//! `access` feeds with real page frames; `work` is the measured work, whose memory is behind
//! `ground`; `result` has the results, `estimate` the MODELLED run times on non-volatile memory;
//! `run` runs everything. System calls are in `sys`.

pub mod access;
pub mod estimate;
pub mod frames;
pub mod ground;
pub mod heap;
pub mod model;
pub mod page;
pub mod placement;
pub mod result;
pub mod run;
mod sys;
pub mod work;

pub(crate) use sys::open_event;
