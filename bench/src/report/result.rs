//! The results of `bench ycsb`: of a run, and of a sweep of many runs. The fields' names are the
//! keys of its JSON and must stay.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::pairs::Ratio;
use crate::tally::Summary;
use crate::workload::RecordKind;

/// The results of a run with one side, or two measured in turn. The first side's figures are at the
/// top level of the JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct YcsbResult {
    /// Always `ycsb`.
    pub kind: String,
    /// Letter of the workload.
    pub workload: String,
    /// The machine of the run.
    pub machine: Machine,
    /// The settings of the run.
    pub configuration: Configuration,
    /// Throughput of the first side over the second's, geometric mean over pairs of slices.
    pub ratio: Option<f64>,
    /// The 95 % confidence interval of the ratio.
    pub ratio_ci95: Option<[f64; 2]>,
    /// The ratio of each pair.
    pub ratio_per_pair: Vec<f64>,
    /// The first side.
    #[serde(flatten)]
    pub side: SideResult,
    /// The second side.
    pub compare: Option<SideResult>,
    /// Results with the first side's budget without the upkeep of recency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_recency: Option<SideResult>,
    /// The causes of the first side's loss against the second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causes: Option<Causes>,
}

impl YcsbResult {
    /// Sets the ratio of the sides.
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

/// The results of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepResult {
    /// Always `ycsb_sweep`.
    pub kind: String,
    /// The machine of the sweep.
    pub machine: Machine,
    /// Results of each workload at each budget, against 100 %.
    pub points: Vec<YcsbResult>,
    /// Results at the larger size.
    pub larger: Vec<YcsbResult>,
    /// Results of workload A at 11 %, with and without the upkeep of recency: first with the
    /// sweep's settings, then for records in an array whose stores trap.
    pub causes: Vec<YcsbResult>,
}

impl SweepResult {
    /// Operations that failed or did not find their record.
    pub fn failures(&self) -> u64 {
        let all = self.points.iter().chain(&self.larger).chain(&self.causes);
        all.map(YcsbResult::failures).sum()
    }
}

/// The settings of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// The workload in words.
    pub about: String,
    /// The distribution of accesses over the records.
    pub distribution: String,
    /// Number of records loaded.
    pub records: u64,
    /// The user's bytes of the loaded records: keys, names of fields, values. Budgets in percent
    /// are shares of them, as the paper's are of the initial heap.
    pub data_bytes: u64,
    /// Form in which a record is stored.
    pub record: RecordKind,
    /// Number of a record's fields.
    pub fields: usize,
    /// Bytes of a field's value.
    pub field_bytes: usize,
    /// Whether an update writes all fields.
    pub write_all_fields: bool,
    /// Share of the values' bytes that repeat, percent.
    #[serde(default)]
    pub values_repeating_percent: u32,
    /// Operations that each side was asked for.
    pub operations: Option<u64>,
    /// Time that each side was asked for, nanoseconds.
    pub duration_ns: Option<u64>,
    /// Number of threads.
    pub threads: usize,
    /// Operations that each thread has under way at a time.
    pub pipeline: usize,
    /// Operations a second that were asked for.
    pub target_rate_ops_per_s: Option<f64>,
    /// Time of other work for each operation, nanoseconds.
    pub think_ns: u64,
    /// Records of the longest scan.
    pub scan_max: usize,
    /// Slices of each side.
    pub pairs: usize,
    /// Seed of all streams.
    pub seed: u64,
    /// Victim policy; none if it is not known.
    pub policy: Option<String>,
    /// Whether writes are trapped instead of announced.
    pub trap_mode: bool,
}

/// The results of one side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SideResult {
    /// The store that was measured.
    pub target: String,
    /// Budget as a share of the data's bytes, percent.
    pub budget_percent: Option<f64>,
    /// Budget in force, bytes.
    pub budget_bytes: Option<u64>,
    /// Most bytes that were dirty at once.
    pub dirty_bytes_max: Option<u64>,
    /// Compression, `lz4` or `off`; none if it is not known.
    #[serde(default)]
    pub compression: Option<String>,
    /// Whether what is written to the SSD is encrypted.
    #[serde(default)]
    pub is_encrypted: bool,
    /// Time between checkpoints, nanoseconds; none if there are none, or it is not known.
    #[serde(default)]
    pub checkpoint_ns: Option<u64>,
    /// Payload bytes given to compression; none if nothing was compressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression_in_bytes: Option<u64>,
    /// Bytes stored for that payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression_out_bytes: Option<u64>,
    /// Processor time of compression, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression_cpu_ns: Option<u64>,
    /// Operations done.
    pub operations: u64,
    /// Time of the slices, nanoseconds.
    pub elapsed_ns: u64,
    /// Operations a second.
    pub throughput_ops_per_s: f64,
    /// Latencies by kind of operation. With a target rate they run from the intended start.
    pub latency_ns: BTreeMap<String, Summary>,
    /// Latencies by kind of operation from the actual start; only with a target rate.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_ns: BTreeMap<String, Summary>,
    /// Times of whole batches; only with a pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_ns: Option<Summary>,
    /// Operations that were refused.
    pub errors: u64,
    /// Operations that did not find their record.
    pub missing: u64,
    /// The first error.
    pub first_error: Option<String>,
    /// Processor time of an operation, nanoseconds.
    pub cpu_ns_per_operation: Option<f64>,
    /// The process whose processor time is counted.
    pub cpu_of: Option<String>,
    /// Bytes of keys, names and values written by the operations.
    pub user_bytes_written: u64,
    /// Bytes written to the SSD from the first slice to the last, without the final flush.
    pub ssd_bytes_written: Option<u64>,
    /// Bytes written to the SSD with the final flush; at a point of a sweep, with the bytes that
    /// were dirty.
    pub ssd_bytes_written_with_flush: Option<u64>,
    /// Time of the final flush, nanoseconds.
    pub flush_ns: Option<u64>,
    /// Bytes written to the SSD a second, without the final flush.
    pub write_rate_bytes_per_s: Option<f64>,
    /// Bytes written to the SSD a second, with the final flush, as the paper's figure 9 counts.
    pub write_rate_with_flush_bytes_per_s: Option<f64>,
    /// Number of times that a writer waited for the SSD.
    pub stalls: Option<u64>,
    /// Sum of these waits, nanoseconds. Waits of trapped stores are not included.
    pub stall_ns: Option<u64>,
    /// The longest wait, nanoseconds; none if no wait was longer than one while loading.
    pub stall_ns_max: Option<u64>,
    /// Stores that trapped.
    pub traps: Option<u64>,
    /// Number of times that a page was protected again: to be cleaned, for a checkpoint, or to see
    /// whether it is written again.
    pub reprotections: Option<u64>,
    /// Other figures of the target, as differences or readings.
    pub figures: BTreeMap<String, u64>,
}

/// The loss of a run, split into its causes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Causes {
    /// Time of an operation with the first side's budget less the time with the second's.
    pub loss_ns_per_operation: f64,
    /// The part of the loss from waiting for the SSD; none if it was not timed.
    pub waiting_ns_per_operation: Option<f64>,
    /// The part of the loss from traps.
    pub traps_ns_per_operation: f64,
    /// The rest of the loss, first of all the cleaner's share of processors and memory.
    pub rest_ns_per_operation: f64,
    /// Price of a trap, measured in this run; none if nothing traps.
    pub trap_ns: Option<f64>,
    /// Throughput without the upkeep of recency over throughput with it at the same budget; none if
    /// it was not measured.
    pub without_recency_ratio: Option<f64>,
    /// The 95 % confidence interval of `without_recency_ratio`.
    pub without_recency_ci95: Option<[f64; 2]>,
    /// MODELLED, not measured: throughput of the first side if a memory management unit counted and
    /// limited dirty pages itself (section 5.4), so that nothing traps: the time of all its traps
    /// taken away. Waits for the SSD stay.
    pub modelled_mmu_throughput_ops_per_s: Option<f64>,
    /// MODELLED, not measured: throughput of the second side if nothing trapped.
    pub modelled_mmu_compare_throughput_ops_per_s: Option<f64>,
}
