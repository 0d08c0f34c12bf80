//! Simulates a benchmark on a modelled medium: the places are those of a real run's threads, the
//! time is the model's.
//!
//! If the profile has a server ([`perdura_media::profile::Server`]), the figures include its
//! processor and its modules (`server`); otherwise the medium's model alone decides (`turns`). All
//! figures are modelled, not measured.

mod part;
mod server;
mod turns;
mod waits;

use std::sync::Arc;

use perdura_media::System;

use super::replay::Replay;
use super::run::PartRun;
use super::workload::Config;
use part::Part;

/// Most accesses that are simulated: more change the figures by less than their last printed digit.
pub const ACCESSES_MAX: u64 = 400_000;

/// Figures of a run on a model.
pub struct Simulated {
    /// The figures of each part.
    pub runs: Vec<PartRun>,
    /// Energy of the medium, and of DRAM beside it, joules.
    pub joules: f64,
    /// Whether the workload has more accesses than were simulated.
    pub is_cut: bool,
}

/// Runs parts together on one medium; each part has its trace, if it replays one.
pub fn simulate(system: &System, configs: &[(&Config, Option<Arc<Replay>>)]) -> Simulated {
    simulate_within(system, configs, Limits::default())
}

/// Limits of a simulation.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most accesses of each part.
    pub accesses_max: u64,
    /// Most bytes that a read in a chain touches, however large the read is.
    pub chained_read_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { accesses_max: ACCESSES_MAX, chained_read_bytes_max: u64::MAX }
    }
}

/// Runs parts together on one medium, within limits.
pub fn simulate_within(
    system: &System,
    configs: &[(&Config, Option<Arc<Replay>>)],
    limits: Limits,
) -> Simulated {
    let mut parts: Vec<Part<'_>> = Vec::new();
    let mut base_bytes = [0, 0];
    for (config, replay) in configs {
        parts.push(Part::new(config, replay.clone(), base_bytes, limits));
        base_bytes[0] += config.memory_range;
        base_bytes[1] += config.dram_memory_range;
    }
    let joules = match &system.server {
        Some(server) => server::run(system, server, &mut parts),
        None => turns::run(system, &mut parts),
    };
    Simulated {
        joules,
        is_cut: parts.iter().any(Part::is_cut),
        runs: parts.into_iter().map(Part::run).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::bandwidth;
    use super::super::workload::parse;
    use super::*;

    fn ran(system: &str, args: &str) -> PartRun {
        let args = format!("b:\n  args: {{{args}}}\n");
        let benchmark = parse("w.yaml", &args).unwrap().remove(0);
        let config = benchmark.parts[0].cells[0].config.clone();
        simulate(&System::find(system).unwrap(), &[(&config, None)]).runs.remove(0)
    }

    fn million_per_s(system: &str, args: &str) -> f64 {
        let run = ran(system, args);
        run.operations() as f64 * 1e3 / run.ns as f64
    }

    #[test]
    fn parts_that_run_together_end_together_where_one_is_cut_short() {
        let text = "b:\n  parallel_benchmark:\n    fast:\n      args: \
                    {memory_range: 1G, access_size: 64, number_threads: 8, run_time: 1}\n    \
                    slow:\n      args: {memory_range: 1G, access_size: 16K, run_time: 1}\n";
        let benchmark = parse("w.yaml", text).unwrap().remove(0);
        let system = System::find("apache-256").unwrap();
        let run = benchmark.runs().next().unwrap();
        let configs: Vec<_> = run.iter().map(|cell| (&cell.config, None)).collect();
        let Simulated { runs, .. } = simulate(&system, &configs);
        assert_eq!(runs[0].operations(), ACCESSES_MAX);
        assert!(runs[1].operations() < ACCESSES_MAX / 2, "{}", runs[1].operations());
        let apart_ns = runs[0].ns.abs_diff(runs[1].ns);
        assert!(apart_ns < runs[0].ns / 100, "{} and {} ns", runs[0].ns, runs[1].ns);
    }

    /// Published for this server: 4.6 million a second with one thread, 49 million with 32; and 9.6
    /// and 52 million without a flush.
    #[test]
    fn stores_that_fetch_their_lines_keep_all_units_busy() {
        let args = "memory_range: 1G, access_size: 64, exec_mode: random, operation: write, \
                    number_operations: 200000";
        let with = |persist, threads| {
            let args = format!("{args}, persist_instruction: {persist}, number_threads: {threads}");
            million_per_s("apache-256", &args)
        };
        let (one, many, streamed) = (with("cache", 1), with("cache", 32), with("nocache", 32));
        assert!((3.0..6.0).contains(&one), "{one}");
        assert!(many > 8.0 * one && many > streamed / 3.0, "{many} of {one}, {streamed}");
        assert!(with("none", 1) > 1.5 * one && with("none", 32) > streamed / 3.0);
    }

    #[test]
    fn threads_of_a_partition_have_chunks_of_their_own() {
        let with = |more: &str| {
            let args =
                "memory_range: 256M, access_size: 256, number_threads: 16, min_io_chunk_size: ";
            bandwidth(&ran("apache-256", &format!("{args}{more}")))
        };
        let (chunks, partitions) = (with("16M"), with("16M, number_partitions: 0"));
        assert!((chunks / partitions - 1.0).abs() < 0.05, "{chunks} {partitions}");
    }

    #[test]
    fn every_modelled_operation_is_sampled_if_any_is() {
        let args = "memory_range: 1G, exec_mode: custom, custom_operations: 'r_64,w_64_cache', \
                    number_threads: 32, number_operations: 3200, latency_sample_frequency: 5000";
        assert_eq!(ran("apache-256", args).latency_ns.len(), 3200);
    }
}
