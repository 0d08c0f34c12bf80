//! What is measured, and how long: as it is asked for, and as a result tells it.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use perdura_bench::machine::memory_available_bytes;

/// What to measure, and how long.
#[derive(Debug, Clone)]
pub struct InsightsSettings {
    /// A folder to measure beside DRAM: persistent memory on a DAX file system.
    pub path: Option<PathBuf>,
    /// Folder of the store's image.
    pub dir: PathBuf,
    /// Price of the whole DRAM.
    pub price_euro: Option<f64>,
    /// Price of all that the folder's file system is on.
    pub path_price_euro: Option<f64>,
    /// Short, for a first look.
    pub is_quick: bool,
    /// How often each cell is measured.
    pub rounds: usize,
    /// No more threads of structures.
    pub threads_max: u64,
    /// No more threads where the highest bandwidth is sought.
    pub peak_threads_max: u64,
    /// No longer ranges.
    pub range_max: u64,
    /// No more operations of a cell.
    pub operations_max: Option<u64>,
    /// Records of the store.
    pub records: u64,
    /// How long the store is measured at a time.
    pub slice: Duration,
}

impl InsightsSettings {
    /// Minutes with up to 32 threads, as the poster has them; with `is_quick` about one, and no
    /// more threads than twice the processors.
    pub fn usual(dir: PathBuf, is_quick: bool) -> Self {
        const POSTERS_THREADS: u64 = 32;
        const PEAK_THREADS: u64 = 64;
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let twice = 2 * processors;
        // Two ranges and the store at a time, and something is left for others.
        let range_max = memory_available_bytes().map_or(1 << 30, |bytes| bytes / 6);
        // Whole accesses of all threads: otherwise cells differ in their ranges, and each would
        // have memory made ready for it.
        let range_max = range_max.clamp(1 << 20, if is_quick { 1 << 30 } else { 2 << 30 }) >> 20;
        Self {
            path: None,
            dir,
            price_euro: None,
            path_price_euro: None,
            is_quick,
            rounds: if is_quick { 3 } else { 5 },
            threads_max: if is_quick { twice.min(POSTERS_THREADS) } else { POSTERS_THREADS },
            // More than all processors have at once raise no bandwidth.
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

/// The settings that a result was found with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsedSettings {
    /// `--quick`.
    pub is_quick: bool,
    /// How often each cell was measured, in turn with others.
    pub rounds: usize,
    /// Threads of structures, at most.
    pub threads_max: u64,
    /// Threads where the highest bandwidth was sought, at most.
    pub peak_threads_max: u64,
    /// No range was longer.
    pub range_max_bytes: u64,
    /// No cell had more operations; none: as the workloads say.
    pub operations_max: Option<u64>,
    /// Of the store.
    pub records: u64,
    /// How long the store was measured at a time.
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
            "{quick}{} rounds, ranges of {} at most{operations}; structures with up to {} threads, bandwidth with up to {}; \
             a store of {} records, {} ms at a time",
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
