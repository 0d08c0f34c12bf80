//! What a run of `bench ycsb` found. These names are the keys of its JSON: kept.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::causes::Causes;
use crate::machine::Machine;
use crate::pairs::Ratio;
use crate::tally::Summary;
use crate::workload::RecordKind;

/// A run: one side, or two in turn. Of two, the first side's figures stand at the top.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct YcsbResult {
    /// Always `ycsb`.
    pub kind: String,
    /// Letter of the workload.
    pub workload: String,
    /// Where it ran.
    pub machine: Machine,
    /// How it was set up.
    pub configuration: Configuration,
    /// Throughput of the first side over the second's, geometric mean over pairs of slices.
    pub ratio: Option<f64>,
    /// Its 95 % interval.
    pub ratio_ci95: Option<[f64; 2]>,
    /// Each pair's ratio.
    pub ratio_per_pair: Vec<f64>,
    /// The first side.
    #[serde(flatten)]
    pub side: SideResult,
    /// The second side.
    pub compare: Option<SideResult>,
    /// The first side's budget once more, without the upkeep of recency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_recency: Option<SideResult>,
    /// Where the first side's loss against the second comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causes: Option<Causes>,
}

impl YcsbResult {
    /// Notes how the sides compare.
    pub fn set_ratio(&mut self, ratio: Option<Ratio>) {
        if let Some(ratio) = ratio {
            self.ratio = Some(ratio.ratio);
            self.ratio_ci95 = Some(ratio.ci95);
            self.ratio_per_pair = ratio.per_pair;
        }
    }

    /// Operations that failed or did not find their record, on both sides.
    pub fn failures(&self) -> u64 {
        let sides = std::iter::once(&self.side).chain(&self.compare).chain(&self.without_recency);
        sides.map(|side| side.errors + side.missing).sum()
    }
}

/// How a run was set up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// What the workload does.
    pub about: String,
    /// Which records.
    pub distribution: String,
    /// Records loaded.
    pub records: u64,
    /// The user's bytes of the records loaded: keys, names of fields, values. Budgets in percent
    /// are shares of it, as the paper's are of the initial heap.
    pub data_bytes: u64,
    /// How a record is stored.
    pub record: RecordKind,
    /// Fields of a record.
    pub fields: usize,
    /// Bytes of a field's value.
    pub field_bytes: usize,
    /// Updates write all fields.
    pub write_all_fields: bool,
    /// Share of the values' bytes that repeat, percent.
    #[serde(default)]
    pub values_repeating_percent: u32,
    /// Operations of each side that were asked for.
    pub operations: Option<u64>,
    /// Time of each side that was asked for, nanoseconds.
    pub duration_ns: Option<u64>,
    /// Threads.
    pub threads: usize,
    /// Operations on their way at a time, for each thread.
    pub pipeline: usize,
    /// Operations a second that were asked for.
    pub target_rate_ops_per_s: Option<f64>,
    /// Other work of an operation, nanoseconds.
    pub think_ns: u64,
    /// Longest scan.
    pub scan_max: usize,
    /// Slices of each side.
    pub pairs: usize,
    /// Seed of all streams.
    pub seed: u64,
    /// Victim policy; none: not known.
    pub policy: Option<String>,
    /// Writes are trapped, not announced.
    pub trap_mode: bool,
}

/// One side of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SideResult {
    /// What was measured.
    pub target: String,
    /// Budget as a share of the data's bytes, percent.
    pub budget_percent: Option<f64>,
    /// Budget in force.
    pub budget_bytes: Option<u64>,
    /// Most bytes that were dirty.
    pub dirty_bytes_max: Option<u64>,
    /// `lz4` or `off`; none: not known.
    #[serde(default)]
    pub compression: Option<String>,
    /// Time between checkpoints, nanoseconds; none: none, or not known.
    #[serde(default)]
    pub checkpoint_ns: Option<u64>,
    /// Payload that was to be compressed; none: nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression_in_bytes: Option<u64>,
    /// What was stored for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression_out_bytes: Option<u64>,
    /// Processor time of that, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression_cpu_ns: Option<u64>,
    /// Operations done.
    pub operations: u64,
    /// Time of the slices, nanoseconds.
    pub elapsed_ns: u64,
    /// Operations over time.
    pub throughput_ops_per_s: f64,
    /// By kind of operation, from the intended start where there is a target rate.
    pub latency_ns: BTreeMap<String, Summary>,
    /// By kind, from the actual start; only with a target rate.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_ns: BTreeMap<String, Summary>,
    /// Of whole batches; only with a pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_ns: Option<Summary>,
    /// Operations refused.
    pub errors: u64,
    /// Operations that did not find their record.
    pub missing: u64,
    /// The first refusal.
    pub first_error: Option<String>,
    /// Processor time of an operation, nanoseconds.
    pub cpu_ns_per_operation: Option<f64>,
    /// Whose processor time that is.
    pub cpu_of: Option<String>,
    /// Keys, names and values written by the operations.
    pub user_bytes_written: u64,
    /// Written to the SSD from the first slice to the last, without the final flush.
    pub ssd_bytes_written: Option<u64>,
    /// The same with the final flush; between the points of a sweep, with what was dirty.
    pub ssd_bytes_written_with_flush: Option<u64>,
    /// Time of the final flush, nanoseconds.
    pub flush_ns: Option<u64>,
    /// Written to the SSD over the time of the slices.
    pub write_rate_bytes_per_s: Option<f64>,
    /// The same with the final flush's bytes, as the paper's figure 9 counts.
    pub write_rate_with_flush_bytes_per_s: Option<f64>,
    /// Times a writer waited for the SSD.
    pub stalls: Option<u64>,
    /// How long, all together, nanoseconds. Of a trapped store it is not known.
    pub stall_ns: Option<u64>,
    /// The longest, nanoseconds; none: none longer than while loading.
    pub stall_ns_max: Option<u64>,
    /// Stores that trapped.
    pub traps: Option<u64>,
    /// Pages protected again: to be cleaned, for a checkpoint, or to see which are written again.
    pub reprotections: Option<u64>,
    /// Everything else the target says, as differences or readings.
    pub figures: BTreeMap<String, u64>,
}
