//! The harness of `perdura-lab access run` beside plain loops in C, in turn: sequential bandwidth,
//! random reads, dependent reads.
//!
//! `cargo run --release -p perdura-lab --example access_baselines -- [MIB [PAIRS]]`: memory in MiB
//! (2048), and pairs (11). The loops are `lab/baselines/access.c`, compiled with
//! `cc -O3 -march=native`. Prints medians, the median ratio of the pairs, and their spread.

use std::path::Path;
use std::process::Command;

use perdura_lab::access::economy::Economy;
use perdura_lab::access::place::Place;
use perdura_lab::access::result::{Figures, Results};
use perdura_lab::access::suite::{Bounds, Settings, run_benchmark};
use perdura_lab::access::workload::parse;

const RANDOM_READS: u64 = 20_000_000;
const CHASED_READS: u64 = 3_000_000;
const CACHED_BYTES: u64 = 16 << 10;

/// What a side found, or what kept it from that.
type Found = Result<f64, Box<dyn std::error::Error>>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let bytes = words.next().transpose()?.unwrap_or(2048) << 20;
    let pairs = words.next().transpose()?.unwrap_or(11);
    let dir = tempfile::tempdir()?;
    let program = dir.path().join("access");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("baselines/access.c");
    let options =
        ["-O3", "-march=native", "-mprefer-vector-width=512", "-funroll-loops", "-pthread", "-o"];
    let built = Command::new("cc").args(options).arg(&program).arg(&source).status()?;
    assert!(built.success(), "cc: {built}");
    let plain = |mode: &str, bytes: u64, threads: u64, amount: u64| -> Found {
        let words = [mode.to_owned(), bytes.to_string(), threads.to_string(), amount.to_string()];
        let output = Command::new(&program).args(words).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
    };
    let rounds = (8 << 30) / bytes.max(1);
    for threads in [1, 2] {
        let text = format!(
            "b:\n  args:\n    memory_range: {bytes}\n    access_size: 4096\n    \
             number_threads: {threads}\n    run_time: 2\n    min_io_chunk_size: 16M\n"
        );
        compare(
            &format!("sequential read, 4 KiB, {threads} threads, GiB/s"),
            pairs,
            || bandwidth(&text),
            || plain("read", bytes, threads, rounds),
        )?;
    }
    let text = format!(
        "b:\n  args:\n    memory_range: {bytes}\n    access_size: 256\n    run_time: 2\n    \
         min_io_chunk_size: 16M\n"
    );
    compare(
        "sequential read, 256 B, 1 thread, GiB/s",
        pairs,
        || bandwidth(&text),
        || plain("read", bytes, 1, rounds),
    )?;
    let random = |bytes: u64, more: &str| {
        format!(
            "b:\n  args:\n    memory_range: {bytes}\n    min_io_chunk_size: 4096\n    \
             access_size: 64\n    exec_mode: random\n    number_operations: {RANDOM_READS}\n{more}"
        )
    };
    for (name, bytes) in [("in memory", bytes), ("in the first cache", CACHED_BYTES)] {
        compare(
            &format!("random read of a line, {name}, ns"),
            pairs,
            || ns(&random(bytes, "")),
            || plain("random", bytes, 1, RANDOM_READS),
        )?;
    }
    let zipf = "    random_distribution: zipf\n    zipf_alpha: 0.9\n";
    let by_zipf = ns(&random(CACHED_BYTES, zipf))?;
    println!("random read of a line by Zipf's law, in the first cache, ns: {by_zipf:.2}");
    let chain = format!(
        "b:\n  args:\n    memory_range: {bytes}\n    min_io_chunk_size: 4096\n    \
         exec_mode: custom\n    custom_operations: r_64\n    number_operations: {CHASED_READS}\n"
    );
    compare(
        "dependent read of a line, ns",
        pairs,
        || ns(&chain),
        || plain("chase", bytes, 1, CHASED_READS),
    )?;
    Ok(())
}

fn compare(
    name: &str,
    pairs: u64,
    ours: impl Fn() -> Found,
    plain: impl Fn() -> Found,
) -> Result<(), Box<dyn std::error::Error>> {
    let (mut own, mut other) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        // Neither is always first.
        if pair % 2 == 0 {
            own.push(ours()?);
            other.push(plain()?);
        } else {
            other.push(plain()?);
            own.push(ours()?);
        }
    }
    let mut ratios: Vec<f64> = own.iter().zip(&other).map(|(own, other)| own / other).collect();
    let [own, other, ratio] = [&mut own, &mut other, &mut ratios].map(|all| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    });
    println!(
        "{name}: harness {own:.3}, plain loop {other:.3}, ratio {ratio:.3} ({:.3} to {:.3})",
        ratios[0],
        ratios[ratios.len() - 1]
    );
    Ok(())
}

fn figures(text: &str) -> Result<Figures, Box<dyn std::error::Error>> {
    let benchmarks = parse("baselines", text)?;
    let settings = Settings {
        place: Place::Dram,
        isa: None,
        bounds: Bounds::default(),
        economy: Economy::default(),
    };
    let mut result = run_benchmark(&benchmarks[0], &settings, &|_, _| {})?;
    match result.benchmarks.remove(0).results {
        Results::One(figures) => Ok(*figures),
        Results::Parallel(_) => unreachable!("one benchmark"),
    }
}

fn bandwidth(text: &str) -> Found {
    Ok(figures(text)?.bandwidth)
}

fn ns(text: &str) -> Found {
    Ok(1e9 / figures(text)?.ops_per_second)
}
