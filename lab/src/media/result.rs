//! What `perdura-lab media` found.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use perdura_bench::machine::Machine;
use perdura_bench::pairs::Ratio;

/// A run. Targets are modelled; what is called measured is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MediaResult {
    /// `media`.
    pub kind: String,
    /// Name or path of the profile.
    pub profile: String,
    /// One granule at an idle medium, by the model.
    pub target_read_ns: f64,
    /// Median of the same, measured: of a medium that may be faster than this machine's DRAM in a
    /// range that lies in a processor's caches (`read` says which; `accesses` has the whole range),
    /// of others anywhere.
    pub measured_read_ns_p50: f64,
    /// 99th percentile.
    pub measured_read_ns_p99: f64,
    /// One granule at an idle medium, by the model.
    pub target_write_ns: f64,
    /// Median of the same, measured.
    pub measured_write_ns_p50: f64,
    /// 99th percentile.
    pub measured_write_ns_p99: f64,
    /// Saturated, by the model.
    pub target_read_bandwidth_bytes_per_s: f64,
    /// Many requests of one thread, measured.
    pub measured_read_bandwidth_bytes_per_s: f64,
    /// Saturated, by the model.
    pub target_write_bandwidth_bytes_per_s: f64,
    /// Many requests of one thread, measured.
    pub measured_write_bandwidth_bytes_per_s: f64,
    /// Random 4 KiB on the virtual clock, one thread.
    pub modelled_requests_per_s: f64,
    /// The same with requests of a granule.
    pub modelled_requests_per_s_of_a_granule: f64,
    /// The figures above, with their errors.
    pub read: Latency,
    /// As `read`.
    pub write: Latency,
    /// As `read`.
    pub read_stream: Stream,
    /// As `read`.
    pub write_stream: Stream,
    /// Other lengths, and other links.
    pub accesses: Vec<Latency>,
    /// Bandwidth with other lengths and links.
    pub streams: Vec<Stream>,
    /// Software of a read of 4 KiB by one thread, by I/O path; what that is of each, its entry in
    /// `paths` says.
    pub software_ns_per_4k: BTreeMap<String, f64>,
    /// What the driver's paths lead to.
    pub software_medium: String,
    /// Each path with each number of threads.
    pub paths: Vec<PathResult>,
    /// What of the base's software is only the wake-up, which hides what the steps change.
    pub hidden: Option<String>,
    /// Whether each step is faster than the one before.
    pub verdicts: Vec<Verdict>,
    /// The driver's steps on a medium that takes no time: nobody sleeps, so their own work shows.
    pub alone: Vec<PathResult>,
    /// Whether each step's own work is less than that of the one before.
    pub verdicts_alone: Vec<Verdict>,
    /// A call into the emulator beside copying the same blocks.
    pub direct: DirectResult,
    /// Ways that could not be had here, and why.
    pub refused: Vec<String>,
    /// Where.
    pub machine: Machine,
    /// With what.
    pub configuration: MediaConfiguration,
}

/// With what it was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MediaConfiguration {
    /// What the medium is.
    pub about: String,
    /// The link that was asked for.
    pub link: Option<String>,
    /// The emulator's.
    pub size_bytes: u64,
    /// Today's paths lead to files of this size.
    pub file_bytes: u64,
    /// Time asked for.
    pub seconds: f64,
    /// Seed of all places.
    pub seed: u64,
    /// The clock of all measurements.
    pub clock: String,
}

/// Accesses one at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Medium and link.
    pub medium: String,
    /// `read` or `write`.
    pub access: String,
    /// Length of each.
    pub len_bytes: u64,
    /// Anywhere in the first so many bytes: small ones lie in the processor's caches.
    pub range_bytes: u64,
    /// Modelled, of the median of these very accesses.
    pub target_ns: f64,
    /// Median.
    pub measured_ns_p50: f64,
    /// 99th percentile.
    pub measured_ns_p99: f64,
    /// Measured over target, less one.
    pub relative_error: f64,
    /// Whether it is within 5 % from 500 ns, within 30 ns below.
    pub is_within: bool,
    /// What the machine itself takes, where that is why it is not within.
    pub limited_by: Option<String>,
    /// How many.
    pub accesses: u64,
}

/// Many accesses at a time, from one thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// Medium and link.
    pub medium: String,
    /// `read` or `write`.
    pub access: String,
    /// Length of each.
    pub len_bytes: u64,
    /// One behind the other, or all over the place.
    pub is_sequential: bool,
    /// Modelled.
    pub target_bytes_per_s: f64,
    /// Measured, bytes copied.
    pub measured_bytes_per_s: f64,
    /// Measured, with the time booked and no byte copied.
    pub booked_bytes_per_s: f64,
    /// Measured over target, less one.
    pub relative_error: f64,
    /// Whether it is within 3 %.
    pub is_within: bool,
    /// What the machine itself can do, where that is why it is not within.
    pub limited_by: Option<String>,
}

/// One I/O path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathResult {
    /// Name: base, unscheduled, atomic, spin, direct, or today's with `_ssd` or `_tmpfs`.
    pub path: String,
    /// What it leads to.
    pub medium: String,
    /// What is polled, what is cached.
    pub how: String,
    /// Threads at a time.
    pub threads: usize,
    /// Software of one request.
    pub software_ns: f64,
    /// What that is.
    pub software_is: String,
    /// Of slices: least and most.
    pub software_ns_range: [f64; 2],
    /// Modelled time of the medium; none where the medium is real.
    pub hardware_ns: Option<f64>,
    /// Median of the whole.
    pub total_ns_p50: f64,
    /// 99th percentile of the whole.
    pub total_ns_p99: f64,
    /// Processor time of the thread.
    pub cpu_ns: f64,
    /// All threads together.
    pub requests_per_s: f64,
    /// Where the time goes, for the driver's steps: mean of the middle half of the requests.
    pub parts_ns: BTreeMap<String, f64>,
    /// Software by slice, in the order in which they were measured: pairs with those of other
    /// paths.
    pub slices_ns: Vec<f64>,
    /// The same without waking up and copying, for the driver's steps.
    pub awake_slices_ns: Vec<f64>,
    /// How many requests, each verified.
    pub requests: u64,
}

impl MediaResult {
    /// How many of the medium's latencies and bandwidths are as near to the model as they are to
    /// be, and which is the farthest from it.
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
            format!("; the farthest off is {what}: {:+.0} %", error * 100.0)
        });
        format!(
            "{within} of {} figures are as near to the model as they are to be{farthest}",
            all.len()
        )
    }
}

impl DirectResult {
    /// Whether a direct call costs no more than it may, in words.
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

/// A step beside the one before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Which step.
    pub step: String,
    /// The one before.
    pub before: String,
    /// Threads at a time.
    pub threads: usize,
    /// Of the software's medians, in pairs.
    pub ratio: Option<Ratio>,
    /// The same without the time from due to awake, which all steps that sleep have in common.
    pub awake_ratio: Option<Ratio>,
    /// Whether the whole interval lies below 1; `None` where it holds 1.
    pub is_faster: Option<bool>,
    /// The same for a person, with why.
    pub sentence: String,
}

/// A direct call: no queue, no driver; the same blocks copied and verified.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectResult {
    /// How large a range.
    pub size_bytes: u64,
    /// Median of reading a block through the emulator of a medium that takes no time.
    pub direct_ns_p50: f64,
    /// 99th percentile.
    pub direct_ns_p99: f64,
    /// Median of copying it.
    pub memcpy_ns_p50: f64,
    /// 99th percentile.
    pub memcpy_ns_p99: f64,
    /// Mean of the pairs' differences of medians.
    pub above_memcpy_ns: f64,
    /// Its 95 % interval.
    pub above_memcpy_ns_ci95: [f64; 2],
    /// At most that much is allowed.
    pub target_ns: f64,
    /// Whether the interval lies below it.
    pub is_within: bool,
    /// Blocks that were read each way and verified.
    pub blocks: u64,
    /// Pairs of slices.
    pub pairs: usize,
    /// Median of each pair's difference.
    pub per_pair_ns: Vec<f64>,
    /// Processor time of a request.
    pub cpu_ns: f64,
}
