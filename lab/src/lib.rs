//! The laboratory: what memory, media, caches and heaps do on this machine, and what models say of
//! those that it lacks. Each room measures, tells its result as JSON and draws its own page.
//!
//! `access` is memory access by workload files, and insights drawn from it; `caches` the cache that
//! persistent and capacity memory share; `haste` I/O-intensive work on fast media; `heap` allocators
//! in turn; `media` the paths to modelled media; `memory` a dirty budget over bare memory;
//! `plan_check` what `plan` says beside what a region does.

pub mod access;
pub mod caches;
pub mod haste;
pub mod heap;
pub mod media;
pub mod memory;
pub mod plan_check;
