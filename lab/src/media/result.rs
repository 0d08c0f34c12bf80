//! The result of `perdura-lab media`, as it is written to JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use perdura_bench::machine::Machine;
use perdura_bench::pairs::Ratio;

/// The result of a run. Targets are modelled; figures called measured are measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MediaResult {
    /// Always `media`.
    pub kind: String,
    /// Name or path of the profile.
    pub profile: String,
    /// Modelled latency of reading one granule from an idle medium, nanoseconds.
    pub target_read_ns: f64,
    /// Measured median of reading one granule, nanoseconds. A medium that may be faster than this
    /// machine's DRAM is measured in a range that fits into a processor's caches (`read` says
    /// which; `accesses` has the whole range), any other medium anywhere.
    pub measured_read_ns_p50: f64,
    /// Measured 99th percentile of reading one granule, nanoseconds.
    pub measured_read_ns_p99: f64,
    /// Modelled latency of writing one granule to an idle medium, nanoseconds.
    pub target_write_ns: f64,
    /// Measured median of writing one granule, nanoseconds.
    pub measured_write_ns_p50: f64,
    /// Measured 99th percentile of writing one granule, nanoseconds.
    pub measured_write_ns_p99: f64,
    /// Modelled bandwidth of saturated reads.
    pub target_read_bandwidth_bytes_per_s: f64,
    /// Measured bandwidth of many reads under way from one thread.
    pub measured_read_bandwidth_bytes_per_s: f64,
    /// Modelled bandwidth of saturated writes.
    pub target_write_bandwidth_bytes_per_s: f64,
    /// Measured bandwidth of many writes under way from one thread.
    pub measured_write_bandwidth_bytes_per_s: f64,
    /// Random reads of 4 KiB a second that one thread models on a virtual clock.
    pub modelled_requests_per_s: f64,
    /// Random reads of one granule a second that one thread models on a virtual clock.
    pub modelled_requests_per_s_of_a_granule: f64,
    /// Latency of reads of one granule: modelled, measured, and the error.
    pub read: Latency,
    /// Latency of writes of one granule: modelled, measured, and the error.
    pub write: Latency,
    /// Bandwidth of reads: modelled, measured, and the error.
    pub read_stream: Stream,
    /// Bandwidth of writes: modelled, measured, and the error.
    pub write_stream: Stream,
    /// Latencies with other lengths and behind other links.
    pub accesses: Vec<Latency>,
    /// Bandwidths with other lengths and behind other links.
    pub streams: Vec<Stream>,
    /// Software time of a read of 4 KiB by one thread, nanoseconds, by I/O path; the path's entry
    /// in `paths` says what it includes.
    pub software_ns_per_4k: BTreeMap<String, f64>,
    /// The medium behind the driver's paths.
    pub software_medium: String,
    /// Each I/O path with each number of threads.
    pub paths: Vec<PathResult>,
    /// What the steps save, what hides that, and which conditions of the slides do not hold here.
    pub findings: Vec<String>,
    /// Whether each step is faster than the step before.
    pub verdicts: Vec<Verdict>,
    /// The driver's steps on a medium that takes no time, so that nobody sleeps and their own work
    /// shows.
    pub alone: Vec<PathResult>,
    /// Whether each step does less work of its own than the step before.
    pub verdicts_alone: Vec<Verdict>,
    /// A call of the emulator beside copying the same blocks.
    pub direct: DirectResult,
    /// I/O paths that this machine refuses, with the reason.
    pub refused: Vec<String>,
    /// The machine that measured.
    pub machine: Machine,
    /// The settings of the run.
    pub configuration: MediaConfiguration,
}

/// Settings of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MediaConfiguration {
    /// What the profile says about the medium.
    pub about: String,
    /// The link that was asked for.
    pub link: Option<String>,
    /// Size of the emulated medium, bytes.
    pub size_bytes: u64,
    /// Size of the files that the kernel's paths read, bytes.
    pub file_bytes: u64,
    /// Duration that was asked for, seconds.
    pub seconds: f64,
    /// Seed of all random places.
    pub seed: u64,
    /// The clock of all measurements.
    pub clock: String,
}

/// Latency of accesses one at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Name of the medium and its link.
    pub medium: String,
    /// `read` or `write`.
    pub access: String,
    /// Length of each access, bytes.
    pub len_bytes: u64,
    /// Length of the range that is accessed, bytes; a small range fits into the processor's caches.
    pub range_bytes: u64,
    /// Modelled median of the same accesses, nanoseconds.
    pub target_ns: f64,
    /// Measured median, nanoseconds.
    pub measured_ns_p50: f64,
    /// Measured 99th percentile, nanoseconds.
    pub measured_ns_p99: f64,
    /// Measured median over the target, less one.
    pub relative_error: f64,
    /// Whether the error is within 5 % (targets from 500 ns on) or within 30 ns (shorter targets).
    pub is_within: bool,
    /// The machine's own time, where it is the reason for missing the target.
    pub limited_by: Option<String>,
    /// Number of accesses that were measured.
    pub accesses: u64,
}

/// Bandwidth of many accesses under way, from one thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// Name of the medium and its link.
    pub medium: String,
    /// `read` or `write`.
    pub access: String,
    /// Length of each access, bytes.
    pub len_bytes: u64,
    /// Whether accesses follow one another; otherwise their places are random.
    pub is_sequential: bool,
    /// Modelled bandwidth.
    pub target_bytes_per_s: f64,
    /// Measured bandwidth with the bytes copied.
    pub measured_bytes_per_s: f64,
    /// Measured bandwidth with the time booked and no bytes copied.
    pub booked_bytes_per_s: f64,
    /// Measured bandwidth over the target, less one.
    pub relative_error: f64,
    /// Whether the error is within 3 %.
    pub is_within: bool,
    /// The machine's own limit, where it is the reason for missing the target.
    pub limited_by: Option<String>,
}

/// One I/O path with one number of threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathResult {
    /// Name of the path: base, unscheduled, atomic, spin, direct, or a kernel's path with `_ssd` or
    /// `_tmpfs`.
    pub path: String,
    /// The medium that the path leads to.
    pub medium: String,
    /// How the path works: what is polled, what is cached.
    pub how: String,
    /// Threads at a time.
    pub threads: usize,
    /// Software time of one request, nanoseconds.
    pub software_ns: f64,
    /// What the software time includes.
    pub software_is: String,
    /// Least and greatest software time of the slices, nanoseconds.
    pub software_ns_range: [f64; 2],
    /// Modelled time of the medium, nanoseconds; none where the medium is real.
    pub hardware_ns: Option<f64>,
    /// Median time of the whole request, nanoseconds.
    pub total_ns_p50: f64,
    /// 99th percentile of the whole request, nanoseconds.
    pub total_ns_p99: f64,
    /// Processor time of a request on its thread, nanoseconds.
    pub cpu_ns: f64,
    /// Requests a second of all threads together.
    pub requests_per_s: f64,
    /// Time by part for the driver's steps, nanoseconds: mean of the middle half of the requests.
    pub parts_ns: BTreeMap<String, f64>,
    /// Software time by slice, nanoseconds, in the order of measuring, so that paths can be paired.
    pub slices_ns: Vec<f64>,
    /// Software time by slice without waking up and copying, nanoseconds; for the driver's steps.
    pub awake_slices_ns: Vec<f64>,
    /// Number of requests; each was verified.
    pub requests: u64,
}

impl MediaResult {
    /// Says how many latencies and bandwidths are within their tolerance, and which error is the
    /// largest.
    #[must_use]
    pub fn accuracy(&self) -> String {
        let latencies = [&self.read, &self.write].into_iter().chain(&self.accesses);
        let streams = [&self.read_stream, &self.write_stream].into_iter().chain(&self.streams);
        let latencies = latencies.map(|one| {
            let what = format!("{} of {} bytes, {}", one.access, one.len_bytes, one.medium);
            (one.is_within, one.relative_error, what)
        });
        let streams = streams.map(|one| {
            let what = format!("a stream of {}s, {}", one.access, one.medium);
            (one.is_within, one.relative_error, what)
        });
        let all: Vec<_> = latencies.chain(streams).collect();
        let within = all.iter().filter(|(is_within, ..)| *is_within).count();
        let farthest = all.iter().max_by(|one, other| one.1.abs().total_cmp(&other.1.abs()));
        let farthest = farthest.map_or(String::new(), |(_, error, what)| {
            format!("; the largest error is that of {what}: {:+.0} %", error * 100.0)
        });
        format!(
            "{within} of {} figures are within their tolerance of the model{farthest}",
            all.len()
        )
    }
}

impl DirectResult {
    /// Says whether a direct call is within its target.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        if self.is_within { "within that" } else { "MORE than that" }
    }
}

impl PathResult {
    pub(super) fn entry(&self) -> (String, f64) {
        (self.path.clone(), self.software_ns)
    }
}

/// A step beside the step before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Name of the step.
    pub step: String,
    /// Name of the step before.
    pub before: String,
    /// Threads at a time.
    pub threads: usize,
    /// Ratio of the software times, from pairs of slices.
    pub ratio: Option<Ratio>,
    /// Ratio of the software times without waking up and copying.
    pub awake_ratio: Option<Ratio>,
    /// Whether the whole interval lies below 1; `None` if it contains 1.
    pub is_faster: Option<bool>,
    /// The comparison in a sentence, with the reason if the step is not faster.
    pub sentence: String,
}

/// A direct call, without queue and driver, beside copying the same blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectResult {
    /// Length of the range, bytes.
    pub size_bytes: u64,
    /// Median of reading a block through the emulator of a medium that takes no time, nanoseconds.
    pub direct_ns_p50: f64,
    /// 99th percentile of reading a block through the emulator, nanoseconds.
    pub direct_ns_p99: f64,
    /// Median of copying a block, nanoseconds.
    pub memcpy_ns_p50: f64,
    /// 99th percentile of copying a block, nanoseconds.
    pub memcpy_ns_p99: f64,
    /// Mean over the pairs of the difference of medians, nanoseconds.
    pub above_memcpy_ns: f64,
    /// The 95 % interval of that mean, nanoseconds.
    pub above_memcpy_ns_ci95: [f64; 2],
    /// Most that a direct call may take above copying, nanoseconds.
    pub target_ns: f64,
    /// Whether the interval lies below the target.
    pub is_within: bool,
    /// Blocks that were read each way and verified.
    pub blocks: u64,
    /// Number of pairs of slices.
    pub pairs: usize,
    /// Difference of the medians of each pair, nanoseconds.
    pub per_pair_ns: Vec<f64>,
    /// Processor time of a direct call, nanoseconds.
    pub cpu_ns: f64,
}
