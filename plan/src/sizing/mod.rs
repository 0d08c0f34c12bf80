//! Sizing: the effect of a budget on a region that takes the page writes of a trace, found by
//! replaying the trace.
//!
//! The region's own decisions (`perdura_dirty::policy`) run on a virtual clock over counts and
//! bitmaps: which pages are cleaned when (Viyojit, sections 5.2 and 5.3), how much a checkpoint and
//! compaction write, and when a write has to wait. No bytes move, so millions of writes are
//! replayed in a second, for several budgets in one pass over the trace.
//!
//! The replayed region is in trap mode: a page write makes a page of 4 KiB dirty. Barrier mode
//! charges only the 64 B grains that a writer announces, which are never more than their pages. So
//! for barrier mode the figures are bounds, on the safe side.
//!
//! The device is modelled (a rate, and latencies that overlap; no real device is so even). There is
//! one writer, and processors take no time. Every output that shows results of a replay says that
//! they are modelled.

mod ages;
mod cleaner;
mod config;
mod engine;
mod error;
mod floor;
mod log;
#[cfg(test)]
mod naive;
mod numbering;
mod outcome;
mod pages;
mod real;
mod search;
mod space;
mod world;

pub use config::{Loop, Planted, ReplayConfig, rated_by_drive_writes};
pub use error::SizingError;
pub use numbering::{Numbering, PageWrite};
pub use outcome::{DeviceBytes, Outcome};
pub use real::{Measured, measure, measure_virtual};
pub use search::{Search, Target, smallest_budget};

use crate::trace::Record;
use engine::Engine;

/// Writes that are gathered before they are replayed: what one region needs is then in the caches
/// while it is its turn.
const GATHERED: usize = 1 << 16;

/// Replays one trace on regions of one or several settings, in one pass.
pub struct Replay {
    numbering: Numbering,
    writes: Vec<PageWrite>,
    engines: Vec<Engine>,
    threads: usize,
    region_bytes: u64,
    pages_max: u32,
}

impl Replay {
    /// Makes a replay on one region.
    ///
    /// # Errors
    /// A setting has a value that no region takes.
    pub fn new(config: &ReplayConfig) -> Result<Self, SizingError> {
        Self::of(std::slice::from_ref(config))
    }

    /// Makes a replay on several regions, each by itself.
    ///
    /// # Errors
    /// The errors of [`Replay::new`].
    pub fn of(configs: &[ReplayConfig]) -> Result<Self, SizingError> {
        let engines: Vec<Engine> = configs.iter().map(Engine::new).collect::<Result<_, _>>()?;
        Ok(Self {
            numbering: Numbering::default(),
            writes: Vec::new(),
            threads: 1,
            region_bytes: configs.iter().map(|config| config.region_bytes).min().unwrap_or(0),
            pages_max: engines.iter().map(Engine::pages_max).min().unwrap_or(u32::MAX),
            engines,
        })
    }

    /// Uses so many threads where there are several regions.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Self { threads: threads.max(1), ..self }
    }

    /// The next records, in order of time. Reads only let time pass.
    ///
    /// # Errors
    /// Time goes back, or the trace writes to more pages than a region has.
    pub fn add(&mut self, records: &[Record]) -> Result<(), SizingError> {
        let numbered = self.numbering.number(records, &mut self.writes);
        numbered.map_err(|(before_ns, found_ns)| SizingError::Order { before_ns, found_ns })?;
        if self.numbering.pages() > self.pages_max {
            return Err(SizingError::Footprint { region_bytes: self.region_bytes });
        }
        if self.writes.len() >= GATHERED {
            self.replay();
        }
        Ok(())
    }

    fn replay(&mut self) {
        let writes = &self.writes;
        let share = self.engines.len().div_ceil(self.threads).max(1);
        if share >= self.engines.len() {
            self.engines.iter_mut().for_each(|engine| engine.add(writes));
        } else {
            std::thread::scope(|scope| {
                for engines in self.engines.chunks_mut(share) {
                    scope.spawn(|| engines.iter_mut().for_each(|engine| engine.add(writes)));
                }
            });
        }
        self.writes.clear();
    }

    /// Ends the trace, and gives an outcome for each of the settings, in their order.
    #[must_use]
    pub fn finish_all(mut self) -> Vec<Outcome> {
        self.replay();
        let (trace_ns, pages) = (self.numbering.last_ns(), u64::from(self.numbering.pages()));
        self.engines.into_iter().map(|engine| engine.finish(trace_ns, pages)).collect()
    }

    /// Ends the trace, and gives the outcome of the first of the settings.
    ///
    /// # Panics
    /// The replay was made without settings.
    #[must_use]
    pub fn finish(self) -> Outcome {
        let mut outcomes = self.finish_all();
        assert!(!outcomes.is_empty(), "a replay of no region");
        outcomes.swap_remove(0)
    }
}
