//! Settings of a run, as they are asked for and as a result reports them.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use perdura_bench::machine::memory_available_bytes;

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct InsightsSettings {
    /// Folder to measure besides DRAM: persistent memory on a DAX file system.
    pub path: Option<PathBuf>,
    /// Folder of the store's image.
    pub dir: PathBuf,
    /// Price of the whole DRAM, euro.
    pub price_euro: Option<f64>,
    /// Price of the whole memory of the folder's file system, euro.
    pub path_price_euro: Option<f64>,
    /// Whether the run is short, for a first look.
    pub is_quick: bool,
    /// Rounds in which each cell is measured.
    pub rounds: usize,
    /// Most threads of structures.
    pub threads_max: u64,
    /// Most threads where the highest bandwidth is sought.
    pub peak_threads_max: u64,
    /// Longest range, bytes.
    pub range_max: u64,
    /// Most operations of a cell.
    pub operations_max: Option<u64>,
    /// Records of the store.
    pub records: u64,
    /// Duration of a measurement of the store.
    pub slice: Duration,
}

impl InsightsSettings {
    /// Default settings: minutes with up to 32 threads, as on the poster; with `is_quick` about one
    /// minute, and at most twice as many threads as processors.
    pub fn usual(dir: PathBuf, is_quick: bool) -> Self {
        const POSTERS_THREADS: u64 = 32;
        const PEAK_THREADS: u64 = 64;
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let twice = 2 * processors;
        // Two ranges and the store are in memory at a time, and some memory is left for others.
        let range_max = memory_available_bytes().map_or(1 << 30, |bytes| bytes / 6);
        // A multiple of all threads' accesses: otherwise the ranges of cells would differ, and each
        // would have memory made ready for it.
        let range_max = range_max.clamp(1 << 20, if is_quick { 1 << 30 } else { 2 << 30 }) >> 20;
        Self {
            path: None,
            dir,
            price_euro: None,
            path_price_euro: None,
            is_quick,
            rounds: if is_quick { 3 } else { 5 },
            threads_max: if is_quick { twice.min(POSTERS_THREADS) } else { POSTERS_THREADS },
            // More threads than all processors run at once raise no bandwidth.
            peak_threads_max: match is_quick {
                true => twice.min(POSTERS_THREADS),
                false => twice.clamp(POSTERS_THREADS, PEAK_THREADS),
            },
            range_max: range_max << 20,
            operations_max: is_quick.then_some(200_000),
            records: if is_quick { 300_000 } else { 2_000_000 },
            slice: Duration::from_millis(if is_quick { 250 } else { 1000 }),
        }
    }
}

/// The settings with which a result was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsedSettings {
    /// Whether `--quick` was given.
    pub is_quick: bool,
    /// Rounds in which each cell was measured, in turn with others.
    pub rounds: usize,
    /// Most threads of structures.
    pub threads_max: u64,
    /// Most threads where the highest bandwidth was sought.
    pub peak_threads_max: u64,
    /// Longest range, bytes.
    pub range_max_bytes: u64,
    /// Most operations of a cell; none: as the workloads say.
    pub operations_max: Option<u64>,
    /// Records of the store.
    pub records: u64,
    /// Duration of a measurement of the store, milliseconds.
    pub slice_ms: u64,
}

impl From<&InsightsSettings> for UsedSettings {
    fn from(settings: &InsightsSettings) -> Self {
        Self {
            is_quick: settings.is_quick,
            rounds: settings.rounds,
            threads_max: settings.threads_max,
            peak_threads_max: settings.peak_threads_max,
            range_max_bytes: settings.range_max,
            operations_max: settings.operations_max,
            records: settings.records,
            slice_ms: settings.slice.as_millis() as u64,
        }
    }
}

impl std::fmt::Display for UsedSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let quick = if self.is_quick { "--quick: " } else { "" };
        let operations = self
            .operations_max
            .map_or(String::new(), |max| format!(", {max} operations of a cell at most"));
        write!(
            f,
            "{quick}{} rounds, ranges of {} at most{operations}; structures with up to {} threads, \
             bandwidth with up to {}; a store of {} records, {} ms at a time",
            self.rounds,
            perdura_media::Bytes(self.range_max_bytes),
            self.threads_max,
            self.peak_threads_max,
            self.records,
            self.slice_ms
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_settings_fit_the_machine() {
        for is_quick in [false, true] {
            let usual = InsightsSettings::usual("d".into(), is_quick);
            assert!((2..=32).contains(&usual.threads_max) && usual.rounds >= 3);
            assert!(usual.range_max <= 2 << 30 && usual.range_max.is_multiple_of(1 << 20));
            assert!((usual.threads_max..=64).contains(&usual.peak_threads_max));
            if !is_quick {
                assert_eq!(usual.threads_max, 32, "the poster's structures go up to it");
            }
        }
    }

    #[test]
    fn a_result_says_what_it_was_measured_with() {
        let usual = InsightsSettings::usual("d".into(), true);
        let said = UsedSettings::from(&usual).to_string();
        for part in ["--quick: 3 rounds", "200000 operations", "300000 records, 250 ms"] {
            assert!(said.contains(part), "{said}");
        }
        let usual = InsightsSettings::usual("d".into(), false);
        let said = UsedSettings::from(&usual).to_string();
        assert!(!said.contains("quick") && !said.contains("operations"), "{said}");
        assert!(said.contains("up to 32 threads"), "{said}");
    }
}
