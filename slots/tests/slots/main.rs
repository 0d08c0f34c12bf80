//! Tests of this room from outside, all in one program: to link one is quicker than many.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)] // a test's own failure

mod budget;
mod damage;
mod heap;
mod refused;
mod runs;
