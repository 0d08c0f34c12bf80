//! Published traces, where they are installed: the readers and a few lines of independent code read
//! the same records.

use perdura_plan::trace::{Format, ReadOptions, Record, TimeUnit, TraceReader};

use crate::plain::{self, real_traces, text};
use crate::support::{all, refusal};

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
    for (name, volume) in [
        ("msr_wdev_1.csv", "wdev_1"),
        ("msr_wdev_3.csv", "wdev_3"),
        ("msr_hm_0_prefix.csv", "hm_0"),
        ("msr_hm_1_part_write.csv", "hm_1"),
    ] {
        if let Some(reader) = held_against(name, &ReadOptions::default(), Format::Msr, plain::msr) {
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
        held_against(name, &options, Format::DiskSim, |text| plain::disksim(text, unit.ns()));
    }
}

#[test]
fn loads_and_stores_are_what_splitting_at_blanks_makes_of_them() {
    for program in ["gcc", "gzip", "mcf", "swim", "twolf"] {
        let name = format!("mem_ucsd_{program}.trace.gz");
        held_against(&name, &ReadOptions::default(), Format::Ucsd, plain::ucsd);
    }
}

#[test]
fn traces_behind_a_cache_are_what_splitting_at_blanks_makes_of_them() {
    for program in ["403.gcc", "435.gromacs", "458.sjeng", "464.h264ref"] {
        let name = format!("mem_ramulator_{program}.gz");
        held_against(&name, &ReadOptions::default(), Format::Ramulator, plain::ramulator);
    }
}
