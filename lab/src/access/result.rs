//! What a run found, in the shape of the published benchmark's results, and what it leaves out
//! beside it.
//!
//! A file is an array of benchmarks. Their names, types, matrix arguments, configurations and
//! figures have the published keys, so that scripts for those read these; each benchmark adds
//! `machine`, `place`, `instructions` and `label`, each result `repetitions` and `cpu_share`.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::economy::Costs;
use super::fit::{CellFit, SystemFit};
use super::run::PartRun;
use super::workload::{Config, ExecMode};
use perdura_bench::machine::Machine;

/// Where figures come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Label {
    /// Measured on the machine.
    Measured,
    /// Of a model's time.
    Modelled,
}

impl Label {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Modelled => "modelled",
        }
    }
}

/// A benchmark of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchmarkResult {
    /// Its name.
    pub bm_name: String,
    /// `single` or `parallel`.
    pub bm_type: String,
    /// Names of what runs together, if several do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sub_bm_names: Vec<String>,
    /// What was varied: a list of keys, or one for each that runs together.
    pub matrix_args: Value,
    /// Each cell of the matrix.
    pub benchmarks: Vec<CellResult>,
    /// Measured or modelled.
    pub label: Label,
    /// What was accessed.
    pub place: String,
    /// Loads and stores.
    pub instructions: String,
    /// What the command line bounded, if it did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounded: Vec<String>,
    /// Of a published system's model, how well it fits that system's tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<SystemFit>,
    /// Where it ran.
    pub machine: Machine,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// Its settings; of several that run together, by their names.
    pub config: Value,
    /// What was found; of several, by their names.
    pub results: Results,
}

/// Of one benchmark, or of several that ran together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Results {
    /// Of one.
    One(Box<Figures>),
    /// By their names.
    Parallel(BTreeMap<String, Nested>),
}

/// The published shape nests results of benchmarks that run together once more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Nested {
    /// What was found.
    pub results: Figures,
}

/// Figures of one benchmark: of its repetitions, where there are several, that with the median
/// bandwidth of all that ran together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// GiB/s of all threads.
    pub bandwidth: f64,
    /// Bytes accessed.
    pub accessed_bytes: u64,
    /// Mean bandwidth of a thread.
    pub thread_bandwidth_avg: f64,
    /// Standard deviation over threads.
    pub thread_bandwidth_std_dev: f64,
    /// Operations; of custom access, chains.
    pub num_operations: u64,
    /// A second.
    pub ops_per_second: f64,
    /// Mean of a thread.
    pub thread_ops_per_second_avg: f64,
    /// Standard deviation over threads.
    pub thread_ops_per_second_std_dev: f64,
    /// From the first thread's beginning to the last one's end, seconds.
    pub execution_time: f64,
    /// Share of the time that its threads ran on a processor, 0 to 1; none of a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_share: Option<f64>,
    /// Times of sampled operations, if any were taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Each repetition's bandwidth, GiB/s, in order.
    pub repetitions: Vec<f64>,
    /// 95 % interval of their mean; none of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_ci95: Option<[f64; 2]>,
    /// What an operation costs, if anything is known of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
    /// Of a model, the error to expect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<CellFit>,
    /// Each thread.
    pub threads: Vec<ThreadFigures>,
}

/// Figures of one thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadFigures {
    /// GiB/s.
    pub bandwidth: f64,
    /// Seconds.
    pub execution_time: f64,
    /// Bytes.
    pub accessed_bytes: u64,
    /// Operations.
    pub num_operations: u64,
    /// A second.
    pub ops_per_second: f64,
}

/// Times of operations, nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // as they are published
pub struct Latency {
    pub min: u64,
    pub avg: f64,
    pub max: u64,
    pub std_dev: f64,
    pub median: u64,
    pub lower_quartile: u64,
    pub upper_quartile: u64,
    pub percentile_90: u64,
    pub percentile_95: u64,
    pub percentile_99: u64,
    pub percentile_999: u64,
    pub percentile_9999: u64,
    /// How many were taken.
    pub samples: u64,
}

const GIB: f64 = (1u64 << 30) as f64;

/// GiB/s.
pub fn bandwidth(run: &PartRun) -> f64 {
    per_second(run.bytes(), run.ns) / GIB
}

impl Figures {
    /// Of one or more repetitions. The figures are those of the one that is told.
    ///
    /// # Panics
    /// Without it: our own mistake.
    pub fn of(runs: &[PartRun], told: usize, is_measured: bool) -> Self {
        let repetitions: Vec<f64> = runs.iter().map(bandwidth).collect();
        let run = &runs[told];
        let threads: Vec<ThreadFigures> = run
            .threads
            .iter()
            .map(|thread| ThreadFigures {
                bandwidth: per_second(thread.bytes, thread.ns) / GIB,
                execution_time: thread.ns as f64 / 1e9,
                accessed_bytes: thread.bytes,
                num_operations: thread.operations,
                ops_per_second: per_second(thread.operations, thread.ns),
            })
            .collect();
        let (bandwidth_avg, bandwidth_dev) = spread(threads.iter().map(|thread| thread.bandwidth));
        let (ops_avg, ops_dev) = spread(threads.iter().map(|thread| thread.ops_per_second));
        let mut latency_ns = run.latency_ns.clone();
        latency_ns.reset();
        // All repetitions have their say in the tail; the same bounds everywhere, so nothing is
        // refused.
        for run in runs {
            let _ = latency_ns.add(&run.latency_ns);
        }
        let busy_ns: u64 = run.threads.iter().map(|thread| thread.cpu_ns).sum();
        let all_ns: u64 = run.threads.iter().map(|thread| thread.ns).sum();
        Self {
            bandwidth: bandwidth(run),
            accessed_bytes: run.bytes(),
            thread_bandwidth_avg: bandwidth_avg,
            thread_bandwidth_std_dev: bandwidth_dev,
            num_operations: run.operations(),
            ops_per_second: per_second(run.operations(), run.ns),
            thread_ops_per_second_avg: ops_avg,
            thread_ops_per_second_std_dev: ops_dev,
            execution_time: run.ns as f64 / 1e9,
            cpu_share: is_measured.then(|| (busy_ns as f64 / all_ns.max(1) as f64).min(1.0)),
            latency: Latency::of(&latency_ns),
            bandwidth_ci95: perdura_bench::pairs::mean_ci95(&repetitions),
            repetitions,
            costs: None,
            fit: None,
            threads,
        }
    }
}

impl Latency {
    fn of(times_ns: &Histogram<u64>) -> Option<Self> {
        let at = |quantile| times_ns.value_at_quantile(quantile);
        (!times_ns.is_empty()).then(|| Self {
            min: times_ns.min(),
            avg: times_ns.mean(),
            max: times_ns.max(),
            std_dev: times_ns.stdev(),
            median: at(0.5),
            lower_quartile: at(0.25),
            upper_quartile: at(0.75),
            percentile_90: at(0.9),
            percentile_95: at(0.95),
            percentile_99: at(0.99),
            percentile_999: at(0.999),
            percentile_9999: at(0.9999),
            samples: times_ns.len(),
        })
    }
}

/// A configuration as the published results tell it: what has no effect is left out.
pub fn config_json(config: &Config) -> Value {
    let Ok(Value::Object(mut all)) = serde_json::to_value(config) else { return Value::Null };
    let default = Config::default();
    let mut leave = |keys: &[&str]| keys.iter().for_each(|key| drop(all.remove(*key)));
    let mode = config.exec_mode;
    if config.dram_memory_range == 0 {
        leave(&["dram_memory_range", "dram_operation_ratio"]);
    }
    if mode == ExecMode::Custom {
        leave(&["access_size", "operation", "persist_instruction"]);
    }
    if !mode.counts_operations() {
        leave(&["number_operations"]);
    }
    if mode != ExecMode::Random {
        leave(&["mixed_operation_ratio"]);
    }
    if !matches!(mode, ExecMode::Random | ExecMode::Custom) {
        leave(&["random_distribution", "zipf_alpha"]);
    }
    if config.random_distribution == default.random_distribution {
        leave(&["zipf_alpha"]);
    }
    for (key, is_off) in [
        ("run_time", config.run_time == 0),
        ("latency_sample_frequency", config.latency_sample_frequency == 0),
        ("rate_limit", config.rate_limit == 0),
        ("warm_up_time", config.warm_up_time == 0),
        ("mixed_operation_ratio", config.mixed_operation_ratio == 0.0),
    ] {
        if is_off {
            all.remove(key);
        }
    }
    Value::Object(all)
}

fn per_second(count: u64, ns: u64) -> f64 {
    count as f64 * 1e9 / ns.max(1) as f64
}

/// Mean, and standard deviation of all there are.
fn spread(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count().max(1) as f64;
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}
