//! The binary format `ptrace`: written records are read back, and any damage is found.

use perdura_plan::trace::{Looks, Op, ReadOptions, Record, TraceWriter, WriteError};
use proptest::prelude::*;

use crate::support::{all, open, read, refusal, says};

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
        let trace = written(&records, &["a", "b", "\u{e9}"], true);
        let read = read(&trace, &ReadOptions::default()).unwrap();
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

/// As `perdura plan record` wrote it before it said how far apart its looks were.
const VERSION_1: &[u8] = include_bytes!("version1.ptrace");

#[test]
fn a_recording_of_version_1_is_read_as_ever() {
    let mut reader = open(VERSION_1, &ReadOptions::default()).unwrap();
    let records = all(&mut reader).unwrap();
    assert_eq!(records.iter().map(|record| record.pages().1).sum::<u64>(), 19);
    assert_eq!((reader.volumes().len(), reader.looks()), (5, None));
    // A trace that was not made by looks is one of version 1 still, and old programs read it.
    assert_eq!(written(&[], &[], true)[8..12], [1, 0, 0, 0]);
    assert_eq!(VERSION_1[8..12], [1, 0, 0, 0]);
}

const EVERY_NS: u64 = 100_000_000;

/// A recording by looks of which the longest were these, in turn.
fn looked(longest_ns: &[u64], finished: bool) -> Vec<u8> {
    let mut trace = Vec::new();
    let looks = Looks { every_ns: EVERY_NS, longest_ns: 0 };
    let mut writer = TraceWriter::of_looks(&mut trace, looks).unwrap();
    writer.volume("heap").unwrap();
    for (longest_ns, record) in longest_ns.iter().zip(three()) {
        writer.looked(*longest_ns).unwrap();
        writer.write(&record).unwrap();
        writer.flush().unwrap();
    }
    if finished {
        writer.finish().unwrap();
    }
    trace
}

fn looks_of(trace: &[u8], skip_bad: u64) -> Option<Looks> {
    let mut reader = open(trace, &ReadOptions { skip_bad, ..ReadOptions::default() }).unwrap();
    assert_eq!(all(&mut reader).unwrap(), three());
    reader.looks()
}

#[test]
fn a_recording_says_how_far_apart_its_looks_were_and_a_cut_one_nearly() {
    let as_meant = [EVERY_NS, EVERY_NS + 1_000, EVERY_NS + 2_000];
    let late = [EVERY_NS, 7 * EVERY_NS, 7 * EVERY_NS + 9];
    let said = |longest_ns| Some(Looks { every_ns: EVERY_NS, longest_ns });
    assert_eq!(looks_of(&looked(&as_meant, true), 0), said(EVERY_NS + 2_000));
    assert_eq!(looks_of(&looked(&as_meant, false), 1), said(0), "no block for a microsecond");
    assert_eq!(looks_of(&looked(&late, true), 0), said(7 * EVERY_NS + 9));
    assert_eq!(looks_of(&looked(&late, false), 1), said(7 * EVERY_NS));
    assert_eq!(said(0).unwrap().interval_ns(), EVERY_NS);
    assert_eq!(said(7 * EVERY_NS).unwrap().interval_ns(), 7 * EVERY_NS);
}

#[test]
fn every_changed_byte_of_a_recording_is_found() {
    let trace = looked(&[EVERY_NS, 2 * EVERY_NS, 2 * EVERY_NS], true);
    for at in 8..trace.len() {
        let mut changed = trace.clone();
        changed[at] ^= 0x40;
        says(&refusal(&changed, &ReadOptions::default()), &["trace: byte "]);
    }
}

#[test]
fn looks_without_time_between_them_are_neither_written_nor_believed_nor_in_version_1() {
    let none = Looks { every_ns: 0, longest_ns: 5 };
    assert!(matches!(TraceWriter::of_looks(Vec::new(), none), Err(WriteError::Looks)));
    let sound = looked(&[], true);
    let header = sound[..32].to_vec();
    let first_block = &sound[32..32 + 24 + 16];
    let as_version_1 = [&written(&[], &[], true)[..32], first_block].concat();
    says(&refusal(&as_version_1, &ReadOptions::default()), &["byte 32", "no block of such a file"]);
    let mut of_3 = header;
    of_3[8] = 3;
    let sum = xxhash_rust::xxh3::xxh3_64(&of_3[..24]);
    of_3[24..].copy_from_slice(&sum.to_le_bytes());
    says(&refusal(&of_3, &ReadOptions::default()), &["version 3", "versions up to 2", "newer"]);
}

/// Has room for so many bytes, but for a moment.
struct Full {
    room: usize,
    held: Vec<u8>,
}

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.room == 0 {
            self.room = usize::MAX;
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(self.room);
        self.room -= taken;
        self.held.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_trace_that_a_full_disk_cut_can_be_read_up_to_there() {
    let whole = written(&three(), &["heap"], true);
    for room in 32..whole.len() {
        let mut full = Full { room, held: Vec::new() };
        let mut writer = TraceWriter::new(&mut full).unwrap();
        let failed = writer.volume("heap").and_then(|_| {
            three().iter().try_for_each(|record| {
                writer.write(record)?;
                writer.flush()
            })
        });
        // There may be room again: a half block is not to be followed by anything.
        let ended = writer.finish();
        if failed.is_err() {
            assert!(matches!(ended, Err(WriteError::Cut)), "room {room}");
        }
        let lenient = ReadOptions { skip_bad: 1, ..ReadOptions::default() };
        let read = read(&full.held, &lenient).unwrap();
        assert!(three().starts_with(&read.records), "room {room}");
    }
}
