//! The laboratory's tests: its commands as programs, and small runs of the library. They are one
//! program, so that it is linked once.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

mod access;
mod block;
mod caches;
mod docs;
mod files;
mod haste;
mod heap;
mod insights;
mod kept_inputs;
mod kernels;
mod media;
mod memory;
mod pages;
mod places;
mod process;
mod rivals;
