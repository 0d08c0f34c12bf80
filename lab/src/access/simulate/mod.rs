//! A benchmark on a medium that is not here: the same places, as a run's threads would go to them,
//! in the time of its model.
//!
//! Threads take turns by who is earliest, and the medium takes requests in the order in which they
//! arrive: so what comes of an access later, as the write of what had to be fetched first, is a
//! turn of its own. The medium says how long an access of some bytes takes, its lines overlapping
//! as its profile has it (`perdura_media::Model`); `waits` says what of it the thread waits for.
//! What a processor adds (address arithmetic, caches that hold more than the last access) is not in
//! the figures. Modelled, not measured.

mod part;
mod waits;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use perdura_media::{Access, Model, System};

use super::replay::Replay;
use super::run::PartRun;
use super::workload::Config;
use part::{Part, Step, WriteBack};

/// Accesses simulated at most: more change the figures by less than is told of them.
pub const ACCESSES_MAX: u64 = 400_000;
/// The memory beside a medium, for what goes to DRAM.
const BESIDE: &str = "dram";

/// Something that happens at an instant; the earliest first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    at_ps: u64,
    part: usize,
    thread: usize,
    what: What,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The thread may begin its next access.
    Next,
    /// Lines go back to the medium.
    Write(WriteBack),
}

/// The medium, and DRAM beside it.
struct Media {
    medium: Model,
    dram: Model,
}

impl Media {
    fn of(&self, is_dram: bool) -> &Model {
        if is_dram { &self.dram } else { &self.medium }
    }
}

/// What came of a run on a model.
pub struct Simulated {
    /// Of each part.
    pub runs: Vec<PartRun>,
    /// What the medium drew, and DRAM beside it if there is any.
    pub joules: f64,
    /// It would have gone on with more accesses than are simulated.
    pub is_cut: bool,
}

/// Runs parts together on one medium; beside each its trace, if it replays one.
///
/// # Panics
/// Without the profile of DRAM, which is built in.
pub fn simulate(system: &System, configs: &[(&Config, Option<Arc<Replay>>)]) -> Simulated {
    let memory_bytes = configs.iter().map(|(config, _)| config.memory_range).sum::<u64>();
    let dram_bytes = configs.iter().map(|(config, _)| config.dram_memory_range).sum::<u64>();
    let Ok(beside) = System::find(BESIDE) else { unreachable!("a profile that is built in") };
    let model = |system: &System, bytes: u64| Model::new(system, system.capacity().0.max(bytes));
    let media = Media { medium: model(system, memory_bytes), dram: model(&beside, dram_bytes) };
    let mut parts: Vec<Part<'_>> = Vec::new();
    let mut base_bytes = [0, 0];
    for (config, replay) in configs {
        parts.push(Part::new(config, replay.clone(), base_bytes));
        base_bytes[0] += config.memory_range;
        base_bytes[1] += config.dram_memory_range;
    }
    let mut turns: BinaryHeap<Reverse<Turn>> = BinaryHeap::new();
    for (part, own) in parts.iter().enumerate() {
        let turn = |thread| Reverse(Turn { at_ps: 0, part, thread, what: What::Next });
        turns.extend((0..own.threads()).map(turn));
    }
    // Where one part is cut short, all end: what the others did alone after that is not what they
    // do together.
    let mut end_ps = u64::MAX;
    while let Some(Reverse(turn)) = turns.pop() {
        let Turn { at_ps, part, thread, what } = turn;
        let own = &mut parts[part];
        let mut then = |at_ps, what| turns.push(Reverse(Turn { at_ps, part, thread, what }));
        match what {
            What::Next => match own.begin(thread, at_ps, end_ps, &media) {
                Some(Step::Next(next_ps)) => then(next_ps, What::Next),
                Some(Step::Write(at_ps, write)) => then(at_ps, What::Write(write)),
                Some(Step::Beside(next_ps, at_ps, write)) => {
                    then(next_ps, What::Next);
                    then(at_ps, What::Write(write));
                }
                None if own.is_cut() => end_ps = end_ps.min(at_ps),
                None => {}
            },
            What::Write(write) => {
                let medium = media.of(write.is_dram);
                let done_ps = medium.book(at_ps, Access::Write, write.place, write.bytes);
                if write.is_waited_for {
                    then(own.done(thread, done_ps, done_ps), What::Next);
                }
            }
        }
    }
    let joules_beside = if dram_bytes > 0 { media.dram.energy(0).execution.0 } else { 0.0 };
    Simulated {
        joules: media.medium.energy(0).execution.0 + joules_beside,
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
        let text = "b:\n  parallel_benchmark:\n    fast:\n      args: {memory_range: 1G, access_size: 64, number_threads: 8, run_time: 1}\n    \
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

    /// A unit has a read and a write for each; nothing waits for what comes only later.
    #[test]
    fn stores_that_fetch_their_lines_keep_all_units_busy() {
        let args = "memory_range: 1G, access_size: 64, exec_mode: random, operation: write, number_operations: 200000";
        let with = |persist, threads| {
            let args = format!("{args}, persist_instruction: {persist}, number_threads: {threads}");
            million_per_s("apache-256", &args)
        };
        let (one, many, streamed) = (with("cache", 1), with("cache", 32), with("nocache", 32));
        assert!((1.2..2.5).contains(&one), "{one}");
        assert!(many > 15.0 * one && many > streamed / 3.0, "{many} of {one}, {streamed}");
        assert!(with("none", 1) > 4.0 * one && with("none", 32) > streamed / 3.0);
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
        let args = "memory_range: 1G, exec_mode: custom, custom_operations: 'r_64,w_64_cache', number_threads: 32, number_operations: 3200, \
                    latency_sample_frequency: 5000";
        assert_eq!(ran("apache-256", args).latency_ns.len(), 3200);
    }
}
