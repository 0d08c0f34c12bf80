//! Perdura's embedded store beside engines that users would pick instead, in one process and one
//! run.
//!
//! `engine` is what each must do, `engines` what they are, `contest` measures them in turn, `show`
//! tells it, `args` the command line, `pages` the huge pages that a hash map needs to be at its
//! best.

pub mod args;
pub mod contest;
pub mod engine;
pub mod engines;
pub mod pages;
pub mod show;
