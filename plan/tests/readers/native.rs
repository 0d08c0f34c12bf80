//! The binary format: what is written is read, and any damage is found.

use perdura_plan::trace::{Op, ReadOptions, Record, TraceWriter, WriteError};
use proptest::prelude::*;

use crate::support::{read, refusal, says};

fn records() -> impl Strategy<Value = Vec<Record>> {
    let step = (0u64..1 << 40, 0u64..1 << 62, 1u64..=32 << 30, 0u32..3, any::<bool>());
    prop::collection::vec(step, 0..20_000).prop_map(|steps| {
        let mut time_ns = 0;
        let made = steps.into_iter().map(|(step_ns, offset_bytes, len_bytes, volume, write)| {
            time_ns += step_ns;
            let op = if write { Op::Write } else { Op::Read };
            Record { time_ns, offset_bytes, len_bytes, volume, op }
        });
        made.collect()
    })
}

pub fn written(records: &[Record], volumes: &[&str], finished: bool) -> Vec<u8> {
    let mut trace = Vec::new();
    let mut writer = TraceWriter::new(&mut trace).unwrap();
    for name in volumes {
        writer.volume(name).unwrap();
    }
    records.iter().for_each(|record| writer.write(record).unwrap());
    if finished {
        writer.finish().unwrap();
    } else {
        writer.flush().unwrap();
    }
    trace
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn what_is_written_is_read(records in records()) {
        let read = read(&written(&records, &["a", "b", "\u{e9}"], true), &ReadOptions::default()).unwrap();
        prop_assert!(read.records == records);
        prop_assert_eq!(read.reader, "ptrace");
        prop_assert_eq!(read.volumes, ["a", "b", "\u{e9}"]);
    }
}

fn three() -> Vec<Record> {
    (0..3)
        .map(|n| Record {
            time_ns: n,
            offset_bytes: n << 12,
            len_bytes: 4096,
            volume: 0,
            op: Op::Write,
        })
        .collect()
}

#[test]
fn a_recording_that_was_not_finished_is_told_from_one_that_was() {
    let trace = written(&three(), &["heap"], false);
    let options = ReadOptions::default();
    says(
        &refusal(&trace, &options),
        &["not finished", "ends after 3 whole records", "--skip-bad 1"],
    );
    let lenient = ReadOptions { skip_bad: 1, ..options };
    assert_eq!(read(&trace, &lenient).unwrap().records, three());
}

#[test]
fn every_changed_byte_is_found_and_every_cut() {
    let trace = written(&three(), &["heap"], true);
    for at in 8..trace.len() {
        let mut changed = trace.clone();
        changed[at] ^= 0x40;
        says(&refusal(&changed, &ReadOptions::default()), &["trace: byte "]);
    }
    for len in 1..trace.len() {
        refusal(&trace[..len], &ReadOptions::default());
    }
    refusal(&[trace.as_slice(), b"x"].concat(), &ReadOptions::default());
}

#[test]
fn what_could_not_be_read_is_not_written() {
    let mut writer = TraceWriter::new(Vec::new()).unwrap();
    let [record, ..] = three()[..] else { unreachable!() };
    assert!(matches!(writer.write(&record), Err(WriteError::Volume { volume: 0, volumes: 0 })));
    writer.volume("a").unwrap();
    writer.write(&Record { time_ns: 5, ..record }).unwrap();
    assert!(matches!(writer.write(&record), Err(WriteError::Record(_))));
    assert!(matches!(
        writer.write(&Record { time_ns: 5, len_bytes: 0, ..record }),
        Err(WriteError::Record(_))
    ));
}
