//! Published traces, where there are any: read as a few lines that know nothing of the readers read them.

use std::io::Read;
use std::path::Path;

use perdura_plan::trace::{Format, Op, ReadOptions, Record, TimeUnit, TraceReader};

use crate::support::{all, real_traces, refusal};

fn text(path: &Path) -> String {
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

/// Reads a trace, and holds it against what another way of reading makes of its text.
fn held_against(
    name: &str,
    options: &ReadOptions,
    format: Format,
    expected: impl Fn(&str) -> Vec<Record>,
) -> Option<TraceReader> {
    let path = real_traces()?.join(name);
    let mut reader = TraceReader::open(&path, options).unwrap();
    let (read, expected) = (all(&mut reader).unwrap(), expected(&text(&path)));
    assert_eq!((reader.format(), read.len()), (format, expected.len()), "{name}");
    assert!(read == expected, "{name}");
    assert_eq!(Some(reader.bytes_read()), reader.total_bytes());
    Some(reader)
}

#[test]
fn msr_traces_are_what_splitting_at_commas_makes_of_them() {
    let msr = |text: &str| {
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
    };
    for (name, volume) in [
        ("msr_wdev_1.csv", "wdev_1"),
        ("msr_wdev_3.csv", "wdev_3"),
        ("msr_hm_0_prefix.csv", "hm_0"),
        ("msr_hm_1_part_write.csv", "hm_1"),
    ] {
        if let Some(reader) = held_against(name, &ReadOptions::default(), Format::Msr, msr) {
            assert_eq!(reader.volumes(), [volume]);
        }
    }
}

#[test]
fn disksim_traces_are_what_splitting_at_blanks_makes_of_them_once_their_unit_is_given() {
    let Some(place) = real_traces() else { return };
    for (name, unit) in [
        ("ms_DTRS1K.trace.gz", TimeUnit::Micros),
        ("umass_fin1_prefix_example.ascii", TimeUnit::Nanos),
    ] {
        let refused = refusal(&std::fs::read(place.join(name)).unwrap(), &ReadOptions::default());
        assert!(refused.contains("--time-unit"), "{refused}");
        let options = ReadOptions { time_unit: Some(unit), ..ReadOptions::default() };
        held_against(name, &options, Format::DiskSim, |text| {
            let mut devices = Vec::new();
            let record = |line: &str| {
                let words: Vec<u64> = line.split_whitespace().map(number).collect();
                if !devices.contains(&words[1]) {
                    devices.push(words[1]);
                }
                let volume = devices.iter().position(|&device| device == words[1]).unwrap() as u32;
                let op = if words[4] == 0 { Op::Write } else { Op::Read };
                let (offset_bytes, len_bytes) = (words[2] * 512, words[3] * 512);
                Record { time_ns: words[0] * unit.ns(), offset_bytes, len_bytes, volume, op }
            };
            text.lines().map(record).collect()
        });
    }
}

#[test]
fn loads_and_stores_are_what_splitting_at_blanks_makes_of_them() {
    for program in ["gcc", "gzip", "mcf", "swim", "twolf"] {
        let name = format!("mem_ucsd_{program}.trace.gz");
        held_against(&name, &ReadOptions::default(), Format::Ucsd, |text| {
            let mut time_ns = 0;
            let record = |line: &str| {
                let words: Vec<_> = line.split_whitespace().collect();
                time_ns += number(words[2]);
                let op = if words[0] == "s" { Op::Write } else { Op::Read };
                Record { time_ns, offset_bytes: number(words[1]), len_bytes: 1, volume: 0, op }
            };
            text.lines().map(record).collect()
        });
    }
}

#[test]
fn traces_behind_a_cache_are_what_splitting_at_blanks_makes_of_them() {
    for program in ["403.gcc", "435.gromacs", "458.sjeng", "464.h264ref"] {
        let name = format!("mem_ramulator_{program}.gz");
        held_against(&name, &ReadOptions::default(), Format::Ramulator, |text| {
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
        });
    }
}
