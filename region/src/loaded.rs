//! Loading while the region is in use: who loads what, and when it is over.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use perdura_media::Device;

use crate::attachment::map_region;
use crate::config::Config;
use crate::core::Core;
use crate::error::{OpenError, Unreadable};
use crate::load::{Loading, Target};
use crate::region::Region;
use crate::tracking::TrackingKind;
use perdura_dirty::error::RegionError;
use perdura_dirty::huge_pages::HugePages;
use perdura_dirty::ledger::Ledger;
use perdura_dirty::sys::SharedMemory;

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

impl Region {
    /// Loads a piece of what recovery left to be loaded on first use
    /// ([`crate::Config::defer_load`]), a segment of the image; several threads may. False: nothing
    /// is left to be taken up, though others may still be at work.
    ///
    /// # Errors
    /// The piece is damaged or cannot be read. What else there is can still be loaded; who touches
    /// this unwinds with [`Unreadable`].
    pub fn load_next(&self) -> Result<bool, Unreadable> {
        let core = self.core();
        // The final flush has the device to itself.
        let Some(loading) = core.loading().filter(|_| !core.budget.is_closed()) else {
            return Ok(false);
        };
        let outcome = loading.load_next(&core.target(&|block| core.lanes.set_loaded(block)));
        core.end_loading(&loading);
        outcome.map_err(|source| core.note_unreadable(source))
    }

    /// Loads all that is left, whoever has taken it up.
    ///
    /// # Errors
    /// As [`Region::load_next`].
    pub fn load_all(&self) -> Result<(), Unreadable> {
        let core = self.core();
        while self.load_next()? {}
        let Some(loading) = core.loading() else { return Ok(()) };
        // What others are at work on is loaded here, too.
        loading.blocks().try_for_each(|block| core.load_block(block))
    }

    /// How far loading has come; `None`: everything is in memory.
    pub fn load_progress(&self) -> Option<LoadProgress> {
        self.core().loading().map(|loading| {
            let (loaded_bytes, total_bytes) = loading.progress();
            let failure = loading.failure().map(|error| error.to_string());
            LoadProgress { loaded_bytes, total_bytes, failure }
        })
    }
}

impl Core {
    pub(crate) fn loading(&self) -> Option<Arc<Loading>> {
        self.loading.read().clone()
    }

    fn target<'t>(&'t self, loaded: &'t (dyn Fn(u64) + Sync)) -> Target<'t> {
        let huge_pages = Some(&self.huge_pages);
        Target { device: &*self.device, ledger: &self.ledger, map: &self.map, loaded, huge_pages }
    }

    /// Has a block's bytes in memory when it returns.
    pub fn load_block(&self, block: u64) -> Result<(), Unreadable> {
        if !self.lanes.is_unloaded(block) {
            return Ok(());
        }
        // Ended in between: it was the last.
        let Some(loading) = self.loading() else { return Ok(()) };
        let loaded = |block| self.lanes.set_loaded(block);
        let outcome = loading.load_block(&self.target(&loaded), block);
        self.end_loading(&loading);
        outcome.map_err(|source| self.note_unreadable(source))
    }

    #[cold]
    pub fn load_or_unwind(&self, block: u64) {
        if let Err(unreadable) = self.load_block(block) {
            // Not a mistake of this program: no message, no backtrace.
            std::panic::resume_unwind(Box::new(unreadable));
        }
    }

    fn end_loading(&self, loading: &Loading) {
        if loading.is_complete() && self.loading.write().take().is_some() {
            self.ledger.loading().store(0, Release);
        }
    }

    /// Said once, and for good: dirty data stay, and can be flushed.
    fn note_unreadable(&self, source: Arc<OpenError>) -> Unreadable {
        let cause = source.to_string();
        if self.failure.set(cause.clone()).is_ok() {
            tracing::error!(%cause, "the image cannot be loaded whole");
            self.budget.notify();
        }
        Unreadable { source }
    }
}

impl From<Unreadable> for RegionError {
    fn from(unreadable: Unreadable) -> Self {
        Self::Latched { cause: unreadable.source.to_string() }
    }
}

/// Fills memory, or leaves that for later.
pub(crate) fn load_or_defer(
    device: &dyn Device,
    config: &Config,
    ledger: &Ledger,
    memory: &SharedMemory,
    loading: Loading,
) -> Result<Option<Loading>, OpenError> {
    let defers = config.defer_load && matches!(config.tracking, TrackingKind::Barrier);
    if defers && !loading.is_complete() {
        ledger.loading().store(1, Release);
        return Ok(Some(loading));
    }
    let map = map_region(memory)?;
    let huge_pages = HugePages::new(&map, ledger);
    // Where pages are trapped one by one they must be small.
    let huge_pages = matches!(config.tracking, TrackingKind::Barrier).then_some(&huge_pages);
    let to = Target { device, ledger, map: &map, loaded: &|_| {}, huge_pages };
    loading.load_all(&to, load_threads())?;
    ledger.loading().store(0, Release);
    Ok(None)
}

/// Threads that keep a device busy reading: while one reads, another verifies and copies.
fn load_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).clamp(2, 4)
}
