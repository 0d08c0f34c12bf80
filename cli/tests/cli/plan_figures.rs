//! The figures that `perdura plan trace` writes, for the whole trace and for each volume, equal
//! those of the naive oracle to the last digit.

#[path = "../../../plan/tests/skew/generate.rs"]
#[allow(dead_code)] // its part of it
mod generate;
#[path = "../../../plan/tests/skew/naive.rs"]
#[allow(dead_code)]
mod naive;
#[path = "../../../plan/tests/readers/plain.rs"]
pub mod plain;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use perdura_plan::trace::{Format, Record, generate as made};
use serde_json::Value;
use tempfile::TempDir;

const SHARES: [u64; 5] = [1, 50, 90, 95, 99];
/// Most windows that an analysis may have.
const WINDOWS_MAX: usize = 16;

/// A trace: its records as the naive oracle reads them, and the names of their volumes by number.
struct Plain {
    records: Vec<Record>,
    names: Vec<String>,
}

/// The JSON of each trace in these files.
fn planned(files: &[&Path], windows_ns: &[u64], more: &[&str]) -> Vec<Value> {
    let list = |numbers: &[u64], unit: &str| {
        numbers.iter().map(|number| format!("{number}{unit}")).collect::<Vec<_>>().join(",")
    };
    let json = tempfile::NamedTempFile::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_perdura"))
        .args(["plan", "trace", "--no-sizing", "--windows", &list(windows_ns, "ns")])
        .args(["--shares", &list(&SHARES, "")])
        .args(more)
        .arg("--json")
        .arg(json.path())
        .args(files)
        .output()
        .unwrap();
    assert!(output.status.success(), "{files:?}: {}", String::from_utf8_lossy(&output.stderr));
    let plan: Value = serde_json::from_slice(&std::fs::read(json.path()).unwrap()).unwrap();
    plan["traces"].as_array().unwrap().clone()
}

/// Checks every figure of the naive oracle, for the whole trace and for each volume.
fn check(found: &Value, plain: &Plain, windows_ns: &[u64], whose: &str) {
    let Plain { records, names } = plain;
    let start_ns = records[0].time_ns;
    let volumes: BTreeSet<u32> = records.iter().map(|record| record.volume).collect();
    let all = naive::figures(records, start_ns, None, windows_ns, &SHARES);
    same(found, &all, whose);
    let each = found["volumes"].as_array().unwrap();
    assert_eq!(each.len(), volumes.len(), "{whose}");
    for volume in &volumes {
        let name = &names[*volume as usize];
        let found = each.iter().find(|found| found["volume"] == **name);
        let found = found.unwrap_or_else(|| panic!("{whose}: no volume {name}"));
        let whose = format!("{whose}, volume {name}");
        // The only volume is the whole trace.
        match volumes.len() {
            1 => same(found, &all, &whose),
            _ => {
                let expected =
                    naive::figures(records, start_ns, Some(*volume), windows_ns, &SHARES);
                same(found, &expected, &whose);
            }
        }
    }
}

fn same(found: &Value, expected: &Value, whose: &str) {
    for (name, expected) in expected.as_object().unwrap() {
        assert_eq!(found[name], *expected, "{whose}: {name}");
    }
}

/// Writes traces to files of a format that can hold all that they have.
fn written(dir: &TempDir, name: String, format: Format, records: &[Record]) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, made::render(format, records)).unwrap();
    path
}

#[test]
fn generated_traces_of_several_volumes_have_the_figures_of_the_plain_way() {
    let dir = tempfile::tempdir().unwrap();
    let mut several = 0;
    for group in 0..40u64 {
        let (mut files, mut plains, mut windows) = (Vec::new(), Vec::new(), BTreeSet::new());
        for seed in 4 * group..4 * (group + 1) {
            let generate::Case { records, windows_ns, .. } = generate::case(seed, 300);
            if records.is_empty() {
                continue;
            }
            let format = [Format::Csv, Format::Ptrace, Format::Parquet][(seed % 3) as usize];
            files.push(written(&dir, format!("{seed}.{format}"), format, &records));
            // Volumes of made-up traces are named by their numbers.
            plains.push(Plain { records, names: (0..9).map(|n: u32| n.to_string()).collect() });
            windows.extend(windows_ns);
        }
        let windows: Vec<u64> = windows.into_iter().take(WINDOWS_MAX).collect();
        let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
        let found = planned(&paths, &windows, &[]);
        assert_eq!(found.len(), plains.len());
        for ((found, plain), path) in found.iter().zip(&plains).zip(&paths) {
            check(found, plain, &windows, &path.display().to_string());
            several += usize::from(found["volumes"].as_array().unwrap().len() > 1);
        }
    }
    assert!(several > 40, "only {several} had several volumes");
}

#[test]
fn files_taken_together_have_the_figures_of_all_their_records() {
    let dir = tempfile::tempdir().unwrap();
    for seed in 0..30 {
        let generate::Case { records, windows_ns, .. } = generate::case(seed, 300);
        // Every file has records of every volume, under another number for each.
        let part =
            |of: usize| -> Vec<Record> { records.iter().skip(of).step_by(3).copied().collect() };
        if records.len() < 3 {
            continue;
        }
        let files: Vec<_> = (0..3)
            .map(|of| written(&dir, format!("{seed}-{of}"), Format::Csv, &part(of)))
            .collect();
        let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
        let found = planned(&paths, &windows_ns, &["--together"]);
        let names = (0..9).map(|n: u32| n.to_string()).collect();
        check(&found[0], &Plain { records, names }, &windows_ns, &format!("seed {seed}"));
    }
}

/// A published trace as the naive oracle reads it, and the options with which the program reads it.
fn published(path: &Path) -> (Plain, &'static [&'static str]) {
    let text = plain::text(path);
    let name = path.file_name().unwrap().to_str().unwrap();
    let disksim = |unit_ns: u64| {
        let mut names: Vec<String> = Vec::new();
        for device in text.lines().filter_map(|line| line.split_whitespace().nth(1)) {
            if !names.iter().any(|known| known == device) {
                names.push(device.to_owned());
            }
        }
        Plain { records: plain::disksim(&text, unit_ns), names }
    };
    // Formats that name no volume have one, named like the file.
    let of_program = |records| {
        let name = name.trim_end_matches(".gz");
        let names = vec![name.rsplit_once('.').unwrap().0.to_owned()];
        Plain { records, names }
    };
    match name.split('_').next().unwrap() {
        "msr" => {
            let fields: Vec<&str> = text.lines().next().unwrap().split(',').collect();
            let names = vec![format!("{}_{}", fields[1], fields[2])];
            (Plain { records: plain::msr(&text), names }, &[])
        }
        "ms" => (disksim(1000), &["--time-unit", "us"]),
        "umass" => (disksim(1), &["--time-unit", "ns"]),
        _ if name.starts_with("mem_ucsd") => (of_program(plain::ucsd(&text)), &[]),
        _ if name.starts_with("mem_ramulator") => (of_program(plain::ramulator(&text)), &[]),
        _ => panic!("{name}: which other way reads it?"),
    }
}

fn published_paths() -> Vec<PathBuf> {
    let Some(place) = plain::real_traces() else { return Vec::new() };
    let mut paths: Vec<_> =
        std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.retain(|path| path.extension().is_none_or(|end| end != "md"));
    assert!(!paths.is_empty());
    paths
}

#[test]
fn published_traces_have_the_figures_of_the_plain_way() {
    for path in published_paths() {
        let (plain, options) = published(&path);
        let name = path.file_name().unwrap().to_str().unwrap();
        // In traces of programs a nanosecond is an instruction, so the windows are of 60,000
        // instructions and more.
        let unit_ns = if name.starts_with("mem_") { 1000 } else { 1_000_000_000 };
        let windows_ns = [60, 600, 3600].map(|units| units * unit_ns);
        let [one, two] = ["1", "2"].map(|threads| {
            planned(&[&path], &windows_ns, &[options, &["--jobs", threads]].concat())
        });
        check(&one[0], &plain, &windows_ns, name);
        // With two jobs the file is read ahead, and counted in two stages at the same time.
        assert_eq!(one, two, "{name}");
    }
}

#[test]
fn published_traces_of_a_machine_s_disks_taken_together_have_the_figures_of_the_plain_way() {
    let mut paths = published_paths();
    paths.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("msr_"));
    let mut all = Plain { records: Vec::new(), names: Vec::new() };
    for path in &paths {
        let (Plain { records, names }, _) = published(path);
        let volume = all.names.len() as u32;
        all.records.extend(records.into_iter().map(|record| Record { volume, ..record }));
        all.names.extend(names);
    }
    if paths.is_empty() {
        return;
    }
    all.records.sort_by_key(|record| record.time_ns);
    let windows_ns = [60, 600, 3600].map(|seconds| seconds * 1_000_000_000);
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let found = planned(&paths, &windows_ns, &["--together"]);
    assert_eq!(found[0]["volumes"].as_array().unwrap().len(), all.names.len());
    check(&found[0], &all, &windows_ns, "the disks together");
}
