//! Models of the locks and lock-free words: their code runs under loom, which tries every order of
//! its threads' steps, and every value that a weak memory may show, within a bound.
//!
//! The files that are checked are compiled here a second time, from the rooms they belong to. There
//! they take atomics, mutexes and the futex from their room's `sync`; here `sync` has loom's. What
//! such a file needs besides is a stand-in of the same name, or, where it holds no lock, the room's
//! own. Nothing of the models is compiled into the product.

// Each file brings more than the models use.
#![allow(dead_code)]
// The unit tests in the files belong to their rooms, so there is nothing here for a test build.
#![cfg(not(test))]

// The files name their neighbours by these crates' names.
extern crate self as perdura_dirty;
extern crate self as perdura_media;

pub mod explore;
pub mod subjects;

mod ledger;
mod planted;
mod ranks;
mod seal;
mod sync;
mod sys;

#[path = "../../image/src/append.rs"]
mod append;
#[path = "../../dirty/src/budget.rs"]
mod budget;
#[path = "../../dirty/src/cache_padded.rs"]
mod cache_padded;
#[path = "../../dirty/src/event_count.rs"]
mod event_count;
#[path = "../../dirty/src/gate.rs"]
mod gate;
#[path = "../../dirty/src/lanes.rs"]
mod lanes;
#[path = "../../dirty/src/locations.rs"]
mod locations;
#[path = "../../heap/src/sys/owned.rs"]
mod owned;
#[path = "../../dirty/src/summary.rs"]
mod summary;
#[path = "../../dirty/src/waited.rs"]
mod waited;

use ledger::{BufferState, FrameBuffer, Ledger, SegmentState};
use locations::NO_LOCATION;
use plain_dirty::{extent, geometry, policy};
use plain_image::format;
use sync::Clock;
