//! Results in the shape of the published benchmark's, with additional keys.
//!
//! A file is an array of benchmarks. Names, types, matrix arguments, configurations and figures
//! have the published keys, so that scripts for those read these; each benchmark adds `machine`,
//! `place`, `instructions` and `label`, each result `repetitions` and `cpu_share`.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::economy::Costs;
use super::fit::{CellFit, SystemFit};
use super::run::PartRun;
use super::workload::{Config, ExecMode};
use perdura_bench::machine::Machine;

/// Origin of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Label {
    /// Measured on the machine.
    Measured,
    /// Computed from a model's time.
    Modelled,
}

impl Label {
    /// Name of the origin in results.
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
    /// Name of the benchmark.
    pub bm_name: String,
    /// `single` or `parallel`.
    pub bm_type: String,
    /// Names of the parts, if several run together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sub_bm_names: Vec<String>,
    /// Keys that the matrix varies: a list, or a list for each part.
    pub matrix_args: Value,
    /// The cells of the matrix.
    pub benchmarks: Vec<CellResult>,
    /// Origin of the figures.
    pub label: Label,
    /// Description of the memory.
    pub place: String,
    /// Instructions that load and store.
    pub instructions: String,
    /// Settings that the command line limited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounded: Vec<String>,
    /// For the model of a published system: how well it fits that system's tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<SystemFit>,
    /// The machine that measured.
    pub machine: Machine,
}

/// A cell of the matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// Settings of the cell; for several parts, by their names.
    pub config: Value,
    /// Figures of the cell; for several parts, by their names.
    pub results: Results,
}

/// Figures of one benchmark, or of several that ran together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Results {
    /// Figures of one benchmark.
    One(Box<Figures>),
    /// Figures by the parts' names.
    Parallel(BTreeMap<String, Nested>),
}

/// A level that the published shape has for benchmarks that run together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Nested {
    /// Figures of the part.
    pub results: Figures,
}

/// Figures of one benchmark. With several repetitions they are those of the repetition with the
/// median bandwidth of all parts together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Bandwidth of all threads, GiB/s.
    pub bandwidth: f64,
    /// Bytes accessed.
    pub accessed_bytes: u64,
    /// Mean bandwidth of a thread, GiB/s.
    pub thread_bandwidth_avg: f64,
    /// Standard deviation of the bandwidth over the threads.
    pub thread_bandwidth_std_dev: f64,
    /// Number of operations; for custom access, of chains.
    pub num_operations: u64,
    /// Operations a second.
    pub ops_per_second: f64,
    /// Mean operations a second of a thread.
    pub thread_ops_per_second_avg: f64,
    /// Standard deviation of operations a second over the threads.
    pub thread_ops_per_second_std_dev: f64,
    /// Time from the first thread's beginning to the last one's end, seconds.
    pub execution_time: f64,
    /// Share of the time in which the threads ran on a processor, 0 to 1; none for a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_share: Option<f64>,
    /// Times of sampled operations, if any were sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Bandwidth of each repetition, GiB/s, in order.
    pub repetitions: Vec<f64>,
    /// The 95 % interval of the repetitions' mean; none for a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_ci95: Option<[f64; 2]>,
    /// Cost of an operation, if anything is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
    /// For a model: the error to expect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<CellFit>,
    /// Figures of each thread.
    pub threads: Vec<ThreadFigures>,
}

/// Figures of one thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadFigures {
    /// Bandwidth, GiB/s.
    pub bandwidth: f64,
    /// Time, seconds.
    pub execution_time: f64,
    /// Bytes accessed.
    pub accessed_bytes: u64,
    /// Number of operations.
    pub num_operations: u64,
    /// Operations a second.
    pub ops_per_second: f64,
}

/// Times of sampled operations, nanoseconds.
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
    /// Number of samples.
    pub samples: u64,
}

const GIB: f64 = (1u64 << 30) as f64;

/// Bandwidth of a run, GiB/s.
pub fn bandwidth(run: &PartRun) -> f64 {
    per_second(run.bytes(), run.ns) / GIB
}

impl Figures {
    /// Figures of one or more repetitions; `told` is the index of the one that is reported.
    ///
    /// # Panics
    /// If `told` is no repetition: the caller's mistake.
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
        // All repetitions count for the tail. All histograms have the same bounds, so none is
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

/// A configuration with the published keys; settings without effect are left out.
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

/// Mean and standard deviation of the whole population.
fn spread(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count().max(1) as f64;
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}
