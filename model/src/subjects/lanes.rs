//! Lanes: a block has one user though it moves between lanes, and what a loader read is seen by who
//! finds the block loaded.

use std::sync::Arc;

use crate::explore::{Model, Planted, Subject, spawn};
use crate::lanes::{LaneId, Lanes};
use crate::sync::UnsafeCell;

const FILE: &str = "dirty/src/lanes.rs";
const MOVED: &str = "a block that moves has one user";
const CLEANED: &str = "a cleaner that does not wait meets no writer";
const LOADED: &str = "who finds a block loaded sees its bytes";

/// The locks of blocks.
pub const SUBJECT: Subject = Subject {
    models: &[
        Model { name: MOVED, run: moved, preemptions: 2 },
        Model { name: CLEANED, run: cleaned, preemptions: 2 },
        Model { name: LOADED, run: loaded, preemptions: 3 },
    ],
    planted: &[
        Planted {
            file: FILE,
            text: "self.owner[block as usize].fetch_and(!UNLOADED, Release)",
            found_by: LOADED,
        },
        Planted {
            file: FILE,
            text: "self.owner[(offset / BLOCK_BYTES) as usize].load(Acquire) == lane.0",
            found_by: LOADED,
        },
        Planted {
            file: FILE,
            text: "self.owner[block as usize].load(Acquire) & UNLOADED != 0",
            found_by: LOADED,
        },
    ],
};

/// Two lanes, and one block with its bytes.
struct Region {
    lanes: Lanes,
    bytes: UnsafeCell<u32>,
}

// SAFETY: the bytes are reached under the block's lane; loom reports it if not.
unsafe impl Sync for Region {}

impl Region {
    fn new() -> Arc<Self> {
        Arc::new(Self { lanes: Lanes::new(2, 1), bytes: UnsafeCell::new(0) })
    }

    fn change(&self) {
        // SAFETY: the caller holds the block's lane.
        unsafe { *self.bytes.get() += 1 };
    }

    /// Gives the block, which lane 0 owns, to lane 1. Both are held, as when spans are handed out.
    fn give(&self) {
        let taker = self.lanes.lock(LaneId(1)).lock();
        let owner = self.lanes.lock(LaneId(0)).lock();
        self.change();
        self.lanes.assign(0, LaneId(1));
        drop(owner);
        self.change();
        drop(taker);
    }
}

/// A block moves while another thread locks its owner.
fn moved() {
    let region = Region::new();
    let giver = {
        let region = Arc::clone(&region);
        spawn(move || region.give())
    };
    let (lane, held) = region.lanes.lock_owner_of(0);
    assert_eq!(region.lanes.of(0), lane, "the lane is not the block's any more");
    region.change();
    drop(held);
    assert!(giver.join().is_ok());
}

/// A block moves while a thread that holds another lane tries to lock its owner.
fn cleaned() {
    let region = Region::new();
    let giver = {
        let region = Arc::clone(&region);
        spawn(move || region.give())
    };
    if let Some((_lane, _held)) = region.lanes.try_lock_owner_of(0) {
        region.change();
    }
    assert!(giver.join().is_ok());
}

/// A block is loaded by one thread, and used by two others that look at its word alone.
fn loaded() {
    let region = Region::new();
    region.lanes.set_unloaded(0);
    let loader = {
        let region = Arc::clone(&region);
        spawn(move || {
            region.change();
            region.lanes.set_loaded(0);
        })
    };
    if region.lanes.is_ready(0, LaneId(0)) || !region.lanes.is_unloaded(0) {
        region.change();
    }
    assert!(loader.join().is_ok());
}
