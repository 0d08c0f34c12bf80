//! Loading while the region is in use, by readers and by threads of their own, and the end of it.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use parking_lot::RwLock;
use perdura_dirty::{Lanes, Memory};
use perdura_media::Device;

use crate::error::{OpenError, Unreadable};
use crate::load::{Loading, Target};

/// The progress of loading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadProgress {
    /// Bytes in memory.
    pub loaded_bytes: u64,
    /// Bytes of the image's contents.
    pub total_bytes: u64,
    /// The first failure to read the image; `None` if there was none.
    pub failure: Option<String>,
}

/// The part of an image that is not in memory yet, if any.
pub struct Loads {
    left: RwLock<Option<Arc<Loading>>>,
}

/// The device from which bytes are loaded, and the memory to which they go.
#[derive(Clone, Copy)]
pub struct Place<'p> {
    /// The memory that is filled.
    pub(crate) memory: &'p Memory,
    /// The lanes, in which each block is marked while it is not loaded.
    pub(crate) lanes: &'p Lanes,
    /// The device of the image.
    pub(crate) device: &'p dyn Device,
}

impl Loads {
    /// The loads that recovery left to be done on first use.
    pub fn new(left: Option<Loading>) -> Self {
        Self { left: RwLock::new(left.map(Arc::new)) }
    }

    /// The loading that is left; `None`: everything is in memory.
    pub fn left(&self) -> Option<Arc<Loading>> {
        self.left.read().clone()
    }

    /// The progress of loading; `None`: everything is in memory.
    pub fn progress(&self) -> Option<LoadProgress> {
        self.left().map(|loading| {
            let (loaded_bytes, total_bytes) = loading.progress();
            let failure = loading.failure().map(|error| error.to_string());
            LoadProgress { loaded_bytes, total_bytes, failure }
        })
    }

    /// Loads a segment that nobody has taken up. Returns false if there is none.
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

    /// Loads everything that is left, also the segments that other threads have taken up.
    ///
    /// # Errors
    /// A piece is damaged or cannot be read; the first one is named.
    pub fn load_all(&self, place: Place<'_>) -> Result<(), Unreadable> {
        while self.load_next(place)? {}
        let Some(loading) = self.left() else { return Ok(()) };
        // Blocks at which other threads are at work are loaded here, too.
        loading.blocks().try_for_each(|block| self.load_block(place, block))
    }

    /// Loads a block if it is not in memory.
    ///
    /// # Errors
    /// The block is damaged or cannot be read.
    pub(crate) fn load_block(&self, place: Place<'_>, block: u64) -> Result<(), Unreadable> {
        if !place.lanes.is_unloaded(block) {
            return Ok(());
        }
        // Loading ended meanwhile, so the block is loaded.
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

/// Latches that the image cannot be read, and logs it once. Dirty data stay in memory and can be
/// flushed.
fn note_unreadable(memory: &Memory, source: Arc<OpenError>) -> Unreadable {
    let cause = source.to_string();
    if memory.fail(&cause) {
        tracing::error!(%cause, "the image cannot be loaded whole");
    }
    Unreadable { source }
}
