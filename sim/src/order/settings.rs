//! How the heap is opened, when an operation is recorded and after each loss.

use std::sync::Arc;

use perdura_heap::{Config, Logging, Planted, Records};

use super::trace::Recorder;

/// Number of the boot in which operations are recorded.
pub(crate) const FIRST_BOOT: u64 = 1;

/// Settings of the heap that an operation is checked with.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub logging: Logging,
    pub records: Records,
    /// A bug of the heap.
    pub planted: Planted,
}

impl Settings {
    pub const REDO: Self =
        Self { logging: Logging::Redo, records: Records::Hybrid, planted: Planted::None };
    pub const UNDO: Self = Self { logging: Logging::Undo, ..Self::REDO };

    /// The configuration of a heap that is opened in the boot of this number.
    pub fn config(self, recorder: &Arc<Recorder>, boot: u64) -> Config {
        let mut config = Config::default();
        config.logging = self.logging;
        config.records = self.records;
        config.planted = self.planted;
        // One thread, so that the order of stores is always the same.
        config.threads = 1;
        config.contiguous = false;
        config.tap = Some(Arc::clone(recorder) as _);
        config.boot_id = Some([boot, !boot]);
        config
    }
}
