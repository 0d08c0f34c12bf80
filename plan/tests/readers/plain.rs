//! Reads published traces by splitting lines at commas or blanks: an oracle of a few lines that
//! shares no code with the readers.

use std::io::Read;
use std::path::{Path, PathBuf};

use perdura_plan::trace::{Op, Record};

/// Where published traces lie, if they do.
pub fn real_traces() -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let place = std::env::var_os("PERDURA_TRACES").map_or(beside, PathBuf::from);
    if place.is_dir() {
        return Some(place);
    }
    eprintln!(
        "skipped: no real traces at {} (PERDURA_TRACES names another place)",
        place.display()
    );
    None
}

pub fn text(path: &Path) -> String {
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    match path.extension().is_some_and(|end| end == "gz") {
        true => flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap(),
        false => std::io::BufReader::new(file).read_to_string(&mut text).unwrap(),
    };
    text
}

fn number(word: &str) -> u64 {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => word.parse().unwrap(),
    }
}

/// MSR Cambridge lines of one volume.
pub fn msr(text: &str) -> Vec<Record> {
    let record = |line: &str| {
        let fields: Vec<_> = line.split(',').collect();
        Record {
            time_ns: number(fields[0]) * 100,
            offset_bytes: number(fields[4]),
            len_bytes: number(fields[5]),
            volume: 0,
            op: if fields[3] == "Write" { Op::Write } else { Op::Read },
        }
    };
    text.lines().map(record).collect()
}

/// DiskSim lines, whose times are in this unit.
pub fn disksim(text: &str, unit_ns: u64) -> Vec<Record> {
    let mut devices = Vec::new();
    let record = |line: &str| {
        let words: Vec<u64> = line.split_whitespace().map(number).collect();
        if !devices.contains(&words[1]) {
            devices.push(words[1]);
        }
        let volume = devices.iter().position(|&device| device == words[1]).unwrap() as u32;
        let op = if words[4] == 0 { Op::Write } else { Op::Read };
        let (offset_bytes, len_bytes) = (words[2] * 512, words[3] * 512);
        Record { time_ns: words[0] * unit_ns, offset_bytes, len_bytes, volume, op }
    };
    text.lines().map(record).collect()
}

/// Loads and stores, each after so many instructions of 1 ns.
pub fn ucsd(text: &str) -> Vec<Record> {
    let mut time_ns = 0;
    let record = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        time_ns += number(words[2]);
        let op = if words[0] == "s" { Op::Write } else { Op::Read };
        Record { time_ns, offset_bytes: number(words[1]), len_bytes: 1, volume: 0, op }
    };
    text.lines().map(record).collect()
}

/// Lines of a cache that are read and written back, after so many instructions of 1 ns.
pub fn ramulator(text: &str) -> Vec<Record> {
    let (mut next_ns, mut records) = (0, Vec::new());
    for line in text.lines() {
        let words: Vec<u64> = line.split_whitespace().map(number).collect();
        let time_ns = next_ns + words[0];
        next_ns = time_ns + 1;
        for (&offset_bytes, op) in words[1..].iter().zip([Op::Read, Op::Write]) {
            records.push(Record { time_ns, offset_bytes, len_bytes: 64, volume: 0, op });
        }
    }
    records
}
