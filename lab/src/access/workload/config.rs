//! The settings of one benchmark, and the rules that they have to keep.

use std::path::PathBuf;

use perdura_media::Bytes;
use serde::Serialize;

use super::choices::{ExecMode, NumaPattern, Operation, Persist, RandomDistribution};
use super::custom::{Chain, CustomOp, LINE_BYTES, Memory};

/// Most threads of one benchmark.
pub const THREADS_MAX: u64 = 1024;

/// Settings of a benchmark. Keys of the published format keep its names and defaults; `trace_file`
/// and the last five are additions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Config {
    /// Size of the measured memory.
    pub memory_range: u64,
    /// Size of the DRAM beside the measured memory.
    pub dram_memory_range: u64,
    /// Share of the operations that go to that DRAM, 0 to 1.
    pub dram_operation_ratio: f64,
    /// Size of an access.
    pub access_size: u64,
    /// Bytes of a chunk, the work that a thread takes at a time.
    pub min_io_chunk_size: u64,
    /// Number of operations of random access, or of chains of custom access.
    pub number_operations: u64,
    /// Seconds after which the benchmark ends; 0: it ends when all work is done.
    pub run_time: u64,
    /// Number of threads.
    pub number_threads: u64,
    /// Parts into which the range is divided among groups of threads; 0: one part a thread.
    pub number_partitions: u64,
    /// Direction of the accesses.
    pub operation: Operation,
    /// Order of the accesses.
    pub exec_mode: ExecMode,
    /// Instructions that make stores durable.
    pub persist_instruction: Persist,
    /// NUMA node of the memory.
    pub numa_pattern: NumaPattern,
    /// Distribution of random places.
    pub random_distribution: RandomDistribution,
    /// Exponent of Zipf's law.
    pub zipf_alpha: f64,
    /// The chain of custom access.
    #[serde(serialize_with = "as_text", skip_serializing_if = "Option::is_none")]
    pub custom_operations: Option<Chain>,
    /// Trace whose accesses are replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_file: Option<PathBuf>,
    /// One in this many operations is timed; 0: none.
    pub latency_sample_frequency: u64,
    /// Whether all memory is touched before the run.
    pub prefault_file: bool,
    /// Whether DRAM has huge pages.
    pub dram_huge_pages: bool,
    /// Share of the operations in the direction opposite to `operation`, 0 to 1.
    pub mixed_operation_ratio: f64,
    /// Operations a second of all threads together; 0: no limit.
    pub rate_limit: u64,
    /// Seconds of the same accesses before those that count.
    pub warm_up_time: u64,
    /// Number of measurements.
    pub repetitions: u64,
    /// Seed of all random places.
    pub seed: u64,
}

fn as_text<S: serde::Serializer>(chain: &Option<Chain>, to: S) -> Result<S::Ok, S::Error> {
    match chain {
        Some(chain) => to.collect_str(chain),
        None => to.serialize_none(),
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            memory_range: 10 << 30,
            dram_memory_range: 0,
            dram_operation_ratio: 0.0,
            access_size: 256,
            min_io_chunk_size: 64 << 20,
            number_operations: 100_000_000,
            run_time: 0,
            number_threads: 1,
            number_partitions: 1,
            operation: Operation::Read,
            exec_mode: ExecMode::Sequential,
            persist_instruction: Persist::NoCache,
            numa_pattern: NumaPattern::Near,
            random_distribution: RandomDistribution::Uniform,
            zipf_alpha: 0.9,
            custom_operations: None,
            trace_file: None,
            latency_sample_frequency: 0,
            prefault_file: true,
            dram_huge_pages: true,
            mixed_operation_ratio: 0.0,
            rate_limit: 0,
            warm_up_time: 0,
            repetitions: 1,
            seed: 1,
        }
    }
}

/// A broken rule: its key, and the rule in words.
pub(super) type Broken = (&'static str, String);

impl Config {
    /// Number of parts of the range, at least one.
    pub fn partitions(&self) -> u64 {
        match self.number_partitions {
            0 => self.number_threads,
            some => some,
        }
    }

    /// Whether the measured memory is written.
    pub fn writes(&self) -> bool {
        match (&self.custom_operations, self.exec_mode) {
            (Some(chain), ExecMode::Custom) => chain
                .ops()
                .iter()
                .any(|op| matches!(op, CustomOp::Write { memory: Memory::Persistent, .. })),
            // The trace has not been read yet, so it may write.
            (_, ExecMode::Trace) => true,
            _ => self.operation == Operation::Write || self.mixed_operation_ratio > 0.0,
        }
    }

    /// Whether every rule holds. A configuration from a file keeps all rules; one that was changed
    /// afterwards has to be checked.
    pub fn is_sound(&self) -> bool {
        self.broken_rule().is_none()
    }

    /// The first rule that is broken.
    pub(super) fn broken_rule(&self) -> Option<Broken> {
        self.sizes()
            .or_else(|| self.sharing())
            .or_else(|| self.dram())
            .or_else(|| self.trace())
            .or_else(|| self.custom())
            .or_else(|| self.amounts())
    }

    fn sizes(&self) -> Option<Broken> {
        let power = |bytes: u64| bytes >= LINE_BYTES && bytes.is_power_of_two();
        let rule = format!("a power of two, {LINE_BYTES} or more");
        if !power(self.access_size) {
            return Some(("access_size", rule));
        }
        if !power(self.min_io_chunk_size) {
            return Some(("min_io_chunk_size", rule));
        }
        let whole = |bytes: u64| bytes.is_multiple_of(self.access_size);
        let rule = format!("a multiple of access_size, {}", Bytes(self.access_size));
        if self.memory_range == 0 || !whole(self.memory_range) {
            return Some(("memory_range", rule));
        }
        if !whole(self.dram_memory_range) {
            return Some(("dram_memory_range", rule));
        }
        None
    }

    fn sharing(&self) -> Option<Broken> {
        let threads = self.number_threads;
        if threads == 0 || threads > THREADS_MAX {
            return Some(("number_threads", format!("1 to {THREADS_MAX}")));
        }
        let partitions = self.partitions();
        if !threads.is_multiple_of(partitions) {
            let rule = format!("divides number_threads, {threads}, or is 0 for one a thread");
            return Some(("number_partitions", rule));
        }
        for (key, bytes) in
            [("memory_range", self.memory_range), ("dram_memory_range", self.dram_memory_range)]
        {
            let even = bytes.is_multiple_of(partitions)
                && (bytes / partitions).is_multiple_of(self.access_size);
            if !even {
                let rule = format!(
                    "{partitions} equal parts, each a multiple of access_size, {}",
                    Bytes(self.access_size)
                );
                return Some((key, rule));
            }
        }
        None
    }

    fn dram(&self) -> Option<Broken> {
        let ratio = self.dram_operation_ratio;
        if !(0.0..=1.0).contains(&ratio) {
            return Some(("dram_operation_ratio", "0 to 1".into()));
        }
        if ratio > 0.0 && self.exec_mode != ExecMode::Random {
            let rule =
                "more than 0 with exec_mode random only; custom operations name DRAM (rd, wd)";
            return Some(("dram_operation_ratio", rule.into()));
        }
        let chain = self.custom_operations.as_ref();
        let asks = ratio > 0.0 || chain.is_some_and(|chain| chain.touches(Memory::Dram));
        if asks && self.dram_memory_range == 0 {
            let rule = "more than 0, because some operations go to DRAM";
            return Some(("dram_memory_range", rule.into()));
        }
        None
    }

    fn trace(&self) -> Option<Broken> {
        match (self.exec_mode == ExecMode::Trace, &self.trace_file) {
            (true, None) => Some(("trace_file", "given with exec_mode trace".into())),
            (false, Some(_)) => Some(("trace_file", "with exec_mode trace only".into())),
            _ => None,
        }
    }

    fn custom(&self) -> Option<Broken> {
        let is_custom = self.exec_mode == ExecMode::Custom;
        match &self.custom_operations {
            None if is_custom => {
                return Some(("custom_operations", "given with exec_mode custom".into()));
            }
            Some(_) if !is_custom => {
                return Some(("custom_operations", "with exec_mode custom only".into()));
            }
            _ => {}
        }
        let chain = self.custom_operations.as_ref()?;
        let partitions = self.partitions();
        for (key, memory, bytes) in [
            ("memory_range", Memory::Persistent, self.memory_range / partitions),
            ("dram_memory_range", Memory::Dram, self.dram_memory_range / partitions),
        ] {
            let (before, behind) = chain.reach(memory);
            let reach = before + behind;
            if chain.touches(memory) && reach > bytes {
                let rule =
                    format!("holds a chain of custom_operations, {}, in each part", Bytes(reach));
                return Some((key, rule));
            }
        }
        None
    }

    fn amounts(&self) -> Option<Broken> {
        let default = Self::default();
        let counts = self.exec_mode.counts_operations();
        if !counts && self.number_operations != default.number_operations {
            return Some(("number_operations", "with exec_mode random or custom only".into()));
        }
        if counts && self.number_operations < self.number_threads {
            let rule = format!("one a thread at least, {}", self.number_threads);
            return Some(("number_operations", rule));
        }
        if !(self.zipf_alpha > 0.0 && self.zipf_alpha < 100.0) {
            return Some(("zipf_alpha", "more than 0, less than 100".into()));
        }
        let mixed = self.mixed_operation_ratio;
        if !(0.0..=1.0).contains(&mixed) {
            return Some(("mixed_operation_ratio", "0 to 1".into()));
        }
        if mixed > 0.0 && self.exec_mode != ExecMode::Random {
            return Some((
                "mixed_operation_ratio",
                "more than 0 with exec_mode random only".into(),
            ));
        }
        if !(1..=1000).contains(&self.repetitions) {
            return Some(("repetitions", "1 to 1000".into()));
        }
        if self.run_time > 86_400 || self.warm_up_time > 86_400 {
            let key = if self.run_time > 86_400 { "run_time" } else { "warm_up_time" };
            return Some((key, "a day at most, 86400 s".into()));
        }
        None
    }
}
