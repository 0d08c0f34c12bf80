//! Tests of this room from outside, all in one program: to link one is quicker than many.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)] // a test's own failure

mod budget;
mod compression;
mod directory;
mod encryption;
mod files;
mod guests;
mod holding;
mod kept_inputs;
mod kinds;
mod loading;
mod memory_dir;
mod paged;
mod races;
mod rate;
mod recovery;
mod satisfied;
mod sizes;
mod support;
mod trap;
mod trap_bypass;
