//! Tests of this room from outside, all in one program: to link one is quicker than many.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)] // a test's own failure

mod building;
mod counts;
mod crash;
mod damage;
mod deferred;
mod evict;
mod far;
mod harness;
mod hash_expiry;
mod in_place;
mod limits;
mod lists;
mod loading;
mod model;
mod overwrite;
mod packed;
mod set;
mod snapshot;
mod sorted;
mod streams;
mod watch;
mod whole_values;
