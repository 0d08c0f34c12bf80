//! `perdura-lab caches`: what persistent and capacity memory in one heap cost each other in the
//! cache they share, step by step as in the pMem paper (contiguity buckets, the write-aware
//! allocator, the hybrid log).
//!
//! `frames` and `placement` measure where pages lie, `model` is a last-level cache (MODELLED), fed
//! by `access` with real page frames; `work` is what runs, on a `ground`; `result` says what was
//! found, `estimate` what it would mean on non-volatile memory (MODELLED); `run` does it all.
//! System calls are in `sys`.

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
