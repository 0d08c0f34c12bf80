//! Perdura's embedded store beside engines that users would choose instead, in one process and one
//! run.
//!
//! `engine` is the interface of an engine, `engines` has them all, `contest` measures them in turn,
//! `show` prints the results, `args` is the command line, and `pages` obtains the huge pages that a
//! hash map needs to be at its best.

pub mod args;
pub mod contest;
pub mod engine;
pub mod engines;
pub mod pages;
pub mod show;
