//! Measures how fast the analysis counts records in memory, and the memory that the analysis takes.
//! With `--dump`, the records are written to a file, for other programs.
//!
//! `skew_speed PAGES zipf|uniform RECORDS [VOLUMES] [--mergeable] [--apart] [--sample] [--windows
//! 1,10,60] [--step-ns 10000] [--rounds 3] [--dump FILE | --load FILE]`
//!
//! A dump has four little-endian words of 8 bytes for each record: time, page, volume, and whether
//! it writes. Every request is one page.

use std::io::{Read, Write};
use std::time::Instant;

use anyhow_free::{Failure, fail};
use perdura_plan::skew::{Analyzer, Options, Sampling, Share};
use perdura_plan::trace::{Op, PAGE_BYTES, Record};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Errors of a small program.
mod anyhow_free {
    pub type Failure = Box<dyn std::error::Error>;

    pub fn fail<T>(what: String) -> Result<T, Failure> {
        Err(what.into())
    }
}

struct Words {
    pages: u64,
    zipf: bool,
    records: usize,
    volumes: u32,
    mergeable: bool,
    apart: bool,
    sample: bool,
    windows_ns: Vec<u64>,
    step_ns: u64,
    rounds: usize,
    dump: Option<String>,
    load: Option<String>,
}

fn words() -> Result<Words, Failure> {
    let mut words = Words {
        pages: 1 << 20,
        zipf: false,
        records: 20_000_000,
        volumes: 1,
        mergeable: false,
        apart: false,
        sample: false,
        windows_ns: [1, 10, 60].map(|s| s * 1_000_000_000).to_vec(),
        step_ns: 10_000,
        rounds: 3,
        dump: None,
        load: None,
    };
    let (mut given, mut place) = (std::env::args().skip(1), 0);
    while let Some(word) = given.next() {
        let mut value = || given.next().ok_or(format!("{word} needs a value"));
        match (word.as_str(), place) {
            ("--mergeable", _) => words.mergeable = true,
            ("--apart", _) => words.apart = true,
            ("--sample", _) => words.sample = true,
            ("--step-ns", _) => words.step_ns = value()?.parse()?,
            ("--rounds", _) => words.rounds = value()?.parse()?,
            ("--dump", _) => words.dump = Some(value()?),
            ("--load", _) => words.load = Some(value()?),
            ("--windows", _) => {
                let seconds = value()?;
                let parsed: Result<Vec<f64>, _> = seconds.split(',').map(str::parse).collect();
                words.windows_ns = parsed?.iter().map(|s| (s * 1e9) as u64).collect();
            }
            (_, 0) => (words.pages, place) = (word.parse()?, 1),
            ("zipf" | "uniform", 1) => (words.zipf, place) = (word == "zipf", 2),
            (_, 2) => (words.records, place) = (word.parse()?, 3),
            (_, 3) => (words.volumes, place) = (word.parse()?, 4),
            _ => return fail(format!("{word}: not understood; see the file's first lines")),
        }
    }
    Ok(words)
}

/// Pages scattered over the volume, so that hot ones are no neighbours. Zipf's law with an exponent
/// near 1 by its inverse: ranks are `pages ^ u` for a uniform u.
fn generate(words: &Words) -> Vec<Record> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let (mut time_ns, pages) = (0, words.pages);
    let mut one = || {
        time_ns += rng.random_range(1..2 * words.step_ns);
        let rank = match words.zipf {
            true => ((pages as f64).powf(rng.random()) as u64).min(pages) - 1,
            false => rng.random_range(0..pages),
        };
        let page = if words.zipf { rank.wrapping_mul(0x9E37_79B1) % pages } else { rank };
        let op = if rng.random_ratio(1, 5) { Op::Read } else { Op::Write };
        let volume = rng.random_range(0..words.volumes);
        Record { time_ns, offset_bytes: page * PAGE_BYTES, len_bytes: PAGE_BYTES, volume, op }
    };
    (0..words.records).map(|_| one()).collect()
}

fn load(path: &str) -> Result<Vec<Record>, Failure> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.read_to_end(&mut bytes)?;
    let (numbers, _) = bytes.as_chunks::<8>();
    let numbers: Vec<u64> = numbers.iter().map(|n| u64::from_le_bytes(*n)).collect();
    let record = |of: &[u64; 4]| Record {
        time_ns: of[0],
        offset_bytes: of[1] * PAGE_BYTES,
        len_bytes: PAGE_BYTES,
        volume: of[2] as u32,
        op: if of[3] == 1 { Op::Write } else { Op::Read },
    };
    Ok(numbers.as_chunks::<4>().0.iter().map(record).collect())
}

fn dump(records: &[Record], path: &str) -> Result<(), Failure> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for record in records {
        let (page, _) = record.pages();
        let write = u64::from(record.op == Op::Write);
        for word in [record.time_ns, page, u64::from(record.volume), write] {
            file.write_all(&word.to_le_bytes())?;
        }
    }
    Ok(file.flush()?)
}

fn main() -> Result<(), Failure> {
    let words = words()?;
    let records = match &words.load {
        Some(path) => load(path)?,
        None => generate(&words),
    };
    if let Some(path) = &words.dump {
        return dump(&records, path);
    }
    let shares =
        [90.0, 95.0, 99.0].map(Share::percent).into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut options = Options::new(words.windows_ns.clone(), shares)?;
    options.mergeable = words.mergeable;
    options.apart = words.apart;
    options.sampling = words.sample.then(Sampling::default);
    let start_ns = records.first().map_or(0, |record| record.time_ns);
    for _ in 0..words.rounds {
        let began = Instant::now();
        let mut analyzer = Analyzer::new(&options, start_ns)?;
        for batch in records.chunks(8192) {
            analyzer.add(batch)?;
        }
        let counted_s = began.elapsed().as_secs_f64();
        let (bytes, spilled) = (analyzer.page_bytes(), analyzer.spilled_bytes());
        let figures = analyzer.finish()?.all()?.figures(&options)?;
        let seconds = began.elapsed().as_secs_f64();
        let rate = records.len() as f64 / seconds / 1e6;
        let line = serde_json::json!({
            "records_per_s_millions": (rate * 100.0).round() / 100.0,
            "seconds": seconds,
            "seconds_before_finish": counted_s,
            "table_bytes_a_page": bytes as f64 / figures.touched_pages.pages.max(1) as f64,
            "spilled_bytes": spilled,
            "figures": figures,
        });
        println!("{line}");
    }
    Ok(())
}
