//! Loading while the region is in use: who loads what, and when it is over.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use parking_lot::RwLock;
use perdura_dirty::{Lanes, Memory};
use perdura_media::Device;

use crate::error::{OpenError, Unreadable};
use crate::load::{Loading, Target};

/// How far loading has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadProgress {
    /// Bytes in memory.
    pub loaded_bytes: u64,
    /// Bytes there are.
    pub total_bytes: u64,
    /// The first thing that could not be read, if anything.
    pub failure: Option<String>,
}

/// What of an image is not in memory yet, if anything.
pub struct Loads {
    left: RwLock<Option<Arc<Loading>>>,
}

/// Where bytes are loaded from and to.
#[derive(Clone, Copy)]
pub struct Place<'p> {
    /// The memory that is filled.
    pub memory: &'p Memory,
    /// Beside its lane each block is marked as long as it is not loaded.
    pub lanes: &'p Lanes,
    /// Where the image lies.
    pub device: &'p dyn Device,
}

impl Loads {
    /// What recovery left to be loaded on first use.
    pub fn new(left: Option<Loading>) -> Self {
        Self { left: RwLock::new(left.map(Arc::new)) }
    }

    /// What is left; `None`: everything is in memory.
    pub fn left(&self) -> Option<Arc<Loading>> {
        self.left.read().clone()
    }

    /// How far loading has come; `None`: everything is in memory.
    pub fn progress(&self) -> Option<LoadProgress> {
        self.left().map(|loading| {
            let (loaded_bytes, total_bytes) = loading.progress();
            let failure = loading.failure().map(|error| error.to_string());
            LoadProgress { loaded_bytes, total_bytes, failure }
        })
    }

    /// Loads a segment that nobody has taken up. False: there is none.
    ///
    /// # Errors
    /// The segment is damaged or cannot be read.
    pub fn load_next(&self, place: Place<'_>) -> Result<bool, Unreadable> {
        // The final flush has the device to itself.
        let Some(loading) = self.left().filter(|_| !place.memory.budget.is_closed()) else {
            return Ok(false);
        };
        let loaded = |block| place.lanes.set_loaded(block);
        let outcome = loading.load_next(&place.target(&loaded));
        self.end(place.memory, &loading);
        outcome.map_err(|source| note_unreadable(place.memory, source))
    }

    /// Loads all that is left, whoever has taken it up.
    ///
    /// # Errors
    /// The first piece that is damaged or cannot be read.
    pub fn load_all(&self, place: Place<'_>) -> Result<(), Unreadable> {
        while self.load_next(place)? {}
        let Some(loading) = self.left() else { return Ok(()) };
        // What others are at work on is loaded here, too.
        loading.blocks().try_for_each(|block| self.load_block(place, block))
    }

    /// Has a block's bytes in memory when it returns.
    ///
    /// # Errors
    /// They are damaged or cannot be read.
    pub fn load_block(&self, place: Place<'_>, block: u64) -> Result<(), Unreadable> {
        if !place.lanes.is_unloaded(block) {
            return Ok(());
        }
        // Ended in between: it was the last.
        let Some(loading) = self.left() else { return Ok(()) };
        let loaded = |block| place.lanes.set_loaded(block);
        let outcome = loading.load_block(&place.target(&loaded), block);
        self.end(place.memory, &loading);
        outcome.map_err(|source| note_unreadable(place.memory, source))
    }

    fn end(&self, memory: &Memory, loading: &Loading) {
        if loading.is_complete() && self.left.write().take().is_some() {
            memory.ledger.loading().store(0, Release);
        }
    }
}

impl<'p> Place<'p> {
    fn target(&self, loaded: &'p (dyn Fn(u64) + Sync)) -> Target<'p> {
        let Memory { ledger, map, huge_pages, .. } = self.memory;
        Target { device: self.device, ledger, map, loaded, huge_pages: Some(huge_pages) }
    }
}

/// Said once, and for good: dirty data stay, and can be flushed.
fn note_unreadable(memory: &Memory, source: Arc<OpenError>) -> Unreadable {
    let cause = source.to_string();
    if memory.fail(&cause) {
        tracing::error!(%cause, "the image cannot be loaded whole");
    }
    Unreadable { source }
}
