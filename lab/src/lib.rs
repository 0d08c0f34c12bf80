//! The laboratory: it measures memory, media, caches and heaps on this machine, and models those
//! that the machine lacks. Each room measures, reports its result as JSON and draws its own page.
//!
//! `access` runs memory access by workload files and draws insights from it; `caches` measures the
//! cache that persistent and capacity memory share; `haste` runs I/O-intensive work on fast media;
//! `heap` runs allocators in turn; `media` measures the paths to modelled media; `memory` measures
//! a dirty budget over bare memory; `plan_check` compares a prediction of `plan` with a region.

pub mod access;
pub mod caches;
pub mod haste;
pub mod heap;
pub mod media;
pub mod memory;
pub mod plan_check;
