//! Every number has a source, and the profiles in `media` give the published peaks through workload
//! files.

use std::collections::BTreeSet;

use perdura_media::System;

use super::super::result::Figures;
use super::super::simulate::simulate;
use super::super::workload::{Benchmark, Config, parse};
use super::*;

/// Highest bandwidth of a benchmark on a system with a limited number of threads, GiB/s, and the
/// cell that has it.
fn peak<'a>(system: &System, benchmark: &'a Benchmark, threads_max: u64) -> (f64, &'a Config) {
    let cell = |config: &'a Config| {
        let run = simulate(system, &[(config, None)]).runs.remove(0);
        (Figures::of(&[run], 0, false).bandwidth, config)
    };
    let cells = benchmark.parts[0].cells.iter().map(|one| &one.config);
    let cells = cells.filter(|config| config.number_threads <= threads_max);
    cells.map(cell).max_by(|one, other| one.0.total_cmp(&other.0)).unwrap()
}

/// Each core runs two threads. Streamed writes to DRAM grow beyond the 32 threads of the published
/// files, so their peak is that of 32 threads.
fn threads_of(reference: &Reference) -> u64 {
    match reference.memory {
        MemoryKind::Persistent => 2 * u64::from(reference.cores.unwrap()),
        MemoryKind::Dram => 32,
    }
}

fn workloads() -> Vec<Benchmark> {
    parse("peaks.yaml", include_str!("peaks.yaml")).unwrap()
}

fn workload<'a>(all: &'a [Benchmark], name: &str) -> &'a Benchmark {
    all.iter().find(|benchmark| benchmark.name == name).unwrap()
}

fn is_near(found: f64, published: f64) -> bool {
    (found / published - 1.0).abs() <= 0.05
}

fn with_profile(references: &References) -> Vec<(&Reference, System)> {
    let profile =
        |system: &Reference| Some(System::find(system.profile.as_deref()?).expect("built in"));
    references.systems.iter().filter_map(|one| Some((one, profile(one)?))).collect()
}

#[test]
fn every_number_of_a_system_has_its_source() {
    let text: toml::Table = toml::from_str(include_str!("systems.toml")).unwrap();
    for system in text["system"].as_array().unwrap() {
        let system = system.as_table().unwrap();
        let numbers = system.iter().filter(|(_, value)| !value.is_str()).map(|(key, _)| key);
        let numbers: BTreeSet<&str> =
            numbers.map(String::as_str).filter(|key| *key != "sources").collect();
        let sources = system["sources"].as_table().unwrap();
        let sources: BTreeSet<&str> = sources.keys().map(String::as_str).collect();
        assert_eq!(numbers, sources, "{}", system["name"]);
    }
}

#[test]
fn what_is_no_such_file_is_refused() {
    let text = include_str!("systems.toml");
    let refused = |from: &str, to: &str| {
        toml::from_str::<References>(&text.replacen(from, to, 1)).unwrap_err().to_string()
    };
    assert!(refused("\"published\"", "\"measured\"").contains("published"));
    assert!(refused("cores = 18", "cors = 18").contains("unknown field `cors`"));
    assert!(refused("random_write = 10.4", "random_write = \"10\"").contains("invalid type"));
}

#[test]
fn the_systems_of_the_issue_are_there_with_the_eight_insights() {
    let references = References::built_in();
    for name in ["apache-128", "apache-256", "apache-512", "barlow-256", "a-dram", "b-dram"] {
        assert!(references.find(name).is_some(), "{name}");
    }
    assert!((1..=8).all(|number| references.insight(number).is_some()));
}

/// For sequential accesses, which are the same on the poster and in the peaks, both give the same
/// price to the last digit.
#[test]
fn prices_over_sequential_peaks_are_the_posters() {
    let references = References::built_in();
    let mut compared = 0;
    for system in &references.systems {
        let Some(own) = system.euro_per_gb_per_s() else { continue };
        let poster = system.poster_euro_per_gb_per_s;
        for (own, poster) in [
            (own.sequential_read, poster.sequential_read),
            (own.sequential_write, poster.sequential_write),
        ] {
            let Some(poster) = poster else { continue };
            assert!((own - poster).abs() < 0.0051, "{}: {own} {poster}", system.name);
            compared += 1;
        }
    }
    assert_eq!(compared, 5);
}

/// Peaks of profiles that differ by more than they may, with the threads that `threads` gives.
fn off(threads: impl Fn(&Reference) -> u64) -> Vec<String> {
    let (references, all) = (References::built_in(), workloads());
    let mut off = Vec::new();
    for (reference, system) in with_profile(&references) {
        let published = reference.peak_gib_per_s.unwrap();
        for (name, published) in [
            ("sequential_reads", published.sequential_read),
            ("sequential_writes", published.sequential_write),
            ("random_reads", published.random_read),
            ("random_writes", published.random_write),
        ] {
            let (found, config) = peak(&system, workload(&all, name), threads(reference));
            if !is_near(found, published) {
                let (threads, bytes) = (config.number_threads, config.access_size);
                off.push(format!(
                    "{} {name}: {found:.2} GiB/s with {threads} threads of {bytes} B, published \
                     {published}",
                    reference.name
                ));
            }
        }
    }
    off
}

#[test]
fn profiles_reach_the_published_peaks_through_workload_files() {
    let off = off(threads_of);
    assert!(off.is_empty(), "{}", off.join("\n"));
}

/// The published workload files end at 32 threads, fewer than most of the machines run.
#[test]
fn profiles_reach_the_published_peaks_with_the_threads_of_the_published_files() {
    let off = off(|_| 32);
    assert!(off.is_empty(), "{}", off.join("\n"));
}

#[test]
fn random_accesses_of_the_size_that_the_data_name_are_at_the_peak() {
    let (references, all) = (References::built_in(), workloads());
    for (reference, system) in with_profile(&references) {
        let peaks = reference.peak_gib_per_s.unwrap();
        // DRAM's peak is that of plain stores of a line, not of streamed ones.
        let write_bytes = match reference.memory {
            MemoryKind::Persistent => references.accesses.random_write_bytes,
            MemoryKind::Dram => 64,
        };
        for (name, bytes, published) in [
            ("random_reads", references.accesses.random_read_bytes, peaks.random_read),
            ("random_writes", write_bytes, peaks.random_write),
        ] {
            let mut own = workload(&all, name).clone();
            own.parts[0].cells.retain(|cell| cell.config.access_size == bytes);
            let (found, _) = peak(&system, &own, threads_of(reference));
            assert!(is_near(found, published), "{} {name}: {found} {published}", reference.name);
        }
    }
}

/// A prediction, not a fit: the poster's random writes are single lines, a quarter of what a module
/// writes at a time.
#[test]
fn single_lines_written_at_random_cost_what_the_poster_says() {
    let (references, mut all) = (References::built_in(), workloads());
    let writes = all.iter_mut().find(|benchmark| benchmark.name == "random_writes").unwrap();
    writes.parts[0].cells.retain(|cell| cell.config.access_size == 64);
    let writes = workload(&all, "random_writes");
    for name in ["apache-128", "apache-512"] {
        let reference = references.find(name).unwrap();
        let poster = reference.poster_euro_per_gb_per_s.random_write.unwrap();
        let published = reference.euro_per_gb / poster;
        let (found, _) = peak(&System::find(name).unwrap(), writes, threads_of(reference));
        assert!(is_near(found, published), "{name}: {found} {published}");
    }
}

#[test]
fn a_dependent_read_of_a_line_takes_its_published_time() {
    let (references, all) = (References::built_in(), workloads());
    let reads = &workload(&all, "dependent_reads").parts[0].cells[0].config;
    let mut compared = 0;
    for (reference, system) in with_profile(&references) {
        let Some(published) = reference.read_64b_ns else { continue };
        let run = simulate(&system, &[(reads, None)]).runs.remove(0);
        let found = run.latency_ns.mean();
        assert!(is_near(found, published.average), "{}: {found} {published:?}", reference.name);
        compared += 1;
    }
    assert_eq!(compared, 3);
}
