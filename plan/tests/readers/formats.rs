//! Every format: generated traces are detected by their contents and read back unchanged.

use perdura_plan::trace::{Format, Op, ReadOptions, Record, TimeUnit, generate};
use proptest::prelude::*;

use crate::support::{read, refusal, says};

fn options(format: Format) -> ReadOptions {
    ReadOptions { time_unit: generate::time_unit(format), ..ReadOptions::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn made_up_traces_are_read_back_and_their_format_is_found(
        seed in any::<u64>(),
        count in 1usize..3000,
    ) {
        for &format in Format::ALL {
            let records = generate::records(format, seed, count);
            let read = read(&generate::render(format, &records), &options(format)).unwrap();
            prop_assert_eq!(read.reader, format.name());
            prop_assert!(read.records == records, "{} with seed {}", format, seed);
        }
    }

    /// A changed byte is an error or other records; it is never a panic, nor a hang.
    #[test]
    fn changed_bytes_are_errors_or_records(
        seed in any::<u64>(),
        changes in prop::collection::vec((any::<u64>(), any::<u8>()), 1..8),
        reorder_ns in 0u64..3_000,
    ) {
        for &format in Format::ALL {
            let mut trace = generate::render(format, &generate::records(format, seed, 20));
            for (at, value) in &changes {
                let at = (at % trace.len() as u64) as usize;
                trace[at] = *value;
            }
            for (skip_bad, format) in [(0, Some(format)), (100, Some(format)), (100, None)] {
                let unit = Some(TimeUnit::Micros);
                let options = ReadOptions::default();
                let lenient = ReadOptions { skip_bad, reorder_ns, format, time_unit: unit, ..options };
                let _ = generate::read_soundly(&trace, &lenient);
            }
        }
    }

    #[test]
    fn any_bytes_are_errors_or_records(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        text in "[ -~\n]{0,400}",
        numbers in "([0-9]{1,20}[ ,\n]){0,60}",
    ) {
        for &format in Format::ALL {
            for trace in [bytes.as_slice(), text.as_bytes(), numbers.as_bytes()] {
                let given = Some(format);
                let lenient = ReadOptions { skip_bad: 1000, format: given, ..options(format) };
                let _ = generate::read_soundly(trace, &lenient);
            }
        }
    }
}

/// All of a trace of one volume, short.
fn brief(trace: &str, options: &ReadOptions) -> Vec<(u64, Op, u64, u64)> {
    let read = read(trace.as_bytes(), options).unwrap();
    let brief = |r: &Record| (r.time_ns, r.op, r.offset_bytes, r.len_bytes);
    read.records.iter().map(brief).collect()
}

#[test]
fn a_time_without_a_unit_is_refused_with_what_there_is_to_tell_it_by() {
    let trace = "0 0 280605840 2 1\n979 0 287641400 128 1\n3976 0 8347504 8 0\n";
    let said = refusal(trace.as_bytes(), &ReadOptions::default());
    says(
        &said,
        &["disksim", "first 3 records run from 0 to 3976", "--time-unit", "s, ms, us, 100ns, ns"],
    );
    let millis = ReadOptions { time_unit: Some(TimeUnit::Millis), ..ReadOptions::default() };
    let read = brief(trace, &millis);
    assert_eq!(read[2], (3_976_000_000, Op::Write, 8_347_504 * 512, 8 * 512));
}

#[test]
fn a_line_of_another_format_is_named_as_one() {
    let trace = "0,303567,3584,w,0.000000\n1,55590,3072,w,0.000000\n\
                 128166372003061629,hm,0,Read,383496192,32768,413\n";
    let said = refusal(trace.as_bytes(), &ReadOptions::default());
    says(&said, &["line 3: ", "line of format msr, in a trace of format spc", "split"]);
}

#[test]
fn instructions_are_the_clock_of_memory_traces() {
    let half = ReadOptions { instructions_per_s: 500_000_000, ..ReadOptions::default() };
    let ucsd = "s 0x1fffff50 1\nl 0x1fffff58 2\nl 0x10 6\n";
    let expected =
        [(2, Op::Write, 0x1fff_ff50, 1), (6, Op::Read, 0x1fff_ff58, 1), (18, Op::Read, 0x10, 1)];
    assert_eq!(brief(ucsd, &half), expected);
    let lackey = "==7== \nI  04016b80,3\n M 1ffe,8\nI  04016b83,5\n S 1fff000bf8,8\n";
    let expected =
        [(1, Op::Read, 0x1ffe, 8), (1, Op::Write, 0x1ffe, 8), (2, Op::Write, 0x1f_ff00_0bf8, 8)];
    let options = ReadOptions::default();
    assert_eq!(brief(lackey, &options), expected);
    assert_eq!(read(lackey.as_bytes(), &options).unwrap().ignored, 3);
    let ramulator = "3 9618752\n0 89528200 64\n";
    let expected =
        [(3, Op::Read, 9_618_752, 64), (4, Op::Read, 89_528_192, 64), (4, Op::Write, 64, 64)];
    assert_eq!(brief(ramulator, &options), expected);
}

#[test]
fn loads_and_stores_are_spelled_in_many_ways_but_never_guessed() {
    let options = ReadOptions::default();
    let trace = "R 0x1000\nstore 4096 8\n0xff W\n";
    let expected = [(0, Op::Read, 4096, 1), (1, Op::Write, 4096, 8), (2, Op::Write, 255, 1)];
    assert_eq!(brief(trace, &options), expected);
    let bare = refusal(b"R 0x1000\nW 7ffe10\n", &options);
    says(&bare, &["line 2: address is \"7ffe10\"", "hexadecimal one with 0x"]);
}

#[test]
fn fio_logs_have_waits_in_version_2_and_times_in_version_3() {
    let options = ReadOptions::default();
    let two = "fio version 2 iolog\n/f add\n/f open\n/f read 0 4096\n/f wait 150 0\n/f write 512 \
        1024\n/f sync 0 0\n/f close\n";
    assert_eq!(brief(two, &options), [(0, Op::Read, 0, 4096), (150_000, Op::Write, 512, 1024)]);
    let three = "fio version 3 iolog\n31 /f add\n137 /f open\n142 /f read 0 4096\n391 /f write \
        45056 4096\n500 /f trim 0 4096\n";
    let read = read(three.as_bytes(), &options).unwrap();
    assert_eq!((read.records.len(), read.ignored, read.volumes), (2, 3, vec!["/f".to_owned()]));
    assert_eq!(read.records[1].time_ns, 391_000);
    let said = refusal(b"fio version 3 iolog\n1 /f read 0\n", &options);
    says(&said, &["line 2: 3 columns", "an offset and bytes"]);
}

#[test]
fn of_the_steps_of_a_block_access_one_is_chosen() {
    let trace = "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n\
                 \x20 8,0    3        2     0.000001829   697  D   W 223490 + 8 [kjournald]\n\
                 \x20 8,0    3        3     0.000101829   697  Q  DS 1000 + 8 [fstrim]\n\
                 \x20 8,0    3        4     0.000201829   697  Q FWS [fsync]\n\
                 \x20 8,16   3        5     0.000301829   697  Q  RA 8 + 8 [cat]\n\
                 \x20 8,16   3        5     0.000301829   0  m   N cfq697S / alloced\n\
                 CPU3 (8,0):\n Reads Queued:           0,        0KiB\t Writes Queued:           \
                 1,        4KiB\n\
                 Throughput (R/W): 0KiB/s / 0KiB/s\n";
    let options = ReadOptions::default();
    let queued = read(trace.as_bytes(), &options).unwrap();
    assert_eq!((queued.records.len(), queued.ignored, queued.volumes.len()), (2, 7, 2));
    assert_eq!(queued.records[0].offset_bytes, 223_490 * 512);
    let driver = ReadOptions { block_action: 'D', ..options };
    assert_eq!(brief(trace, &driver), [(1_829, Op::Write, 223_490 * 512, 4096)]);
}

#[test]
fn cloud_traces_have_their_units_and_their_own_numbers_for_ops() {
    let options = ReadOptions::default();
    let alibaba =
        "419,W,8792731648,16384,1577808144360767\n725,R,59110326272,360448,1577808144360813\n";
    let expected = [
        (1_577_808_144_360_767_000, Op::Write, 8_792_731_648, 16_384),
        (1_577_808_144_360_813_000, Op::Read, 59_110_326_272, 360_448),
    ];
    assert_eq!(brief(alibaba, &options), expected);
    let tencent = "1538323200,12910952,128,0,1063\n1538323200,6338688,8,1,1627\n";
    let expected = [
        (1_538_323_200_000_000_000, Op::Read, 12_910_952 * 512, 65_536),
        (1_538_323_200_000_000_000, Op::Write, 6_338_688 * 512, 4_096),
    ];
    assert_eq!(brief(tencent, &options), expected);
}

#[test]
fn both_versions_of_vscsi_are_told_apart_and_other_commands_ignored() {
    let two = |code: u16, block: u64, time: u64| {
        let mut record = Vec::new();
        record.extend_from_slice(&code.to_le_bytes());
        record.extend_from_slice(&0x0200u16.to_le_bytes());
        [1u32, 8192, 1].iter().for_each(|word| record.extend_from_slice(&word.to_le_bytes()));
        [block, time, 7].iter().for_each(|word| record.extend_from_slice(&word.to_le_bytes()));
        record
    };
    let trace = [two(0x2a, 8, 100), two(0x35, 0, 150), two(0x88, 16, 200)].concat();
    let options = ReadOptions::default();
    let read = read(&trace, &options).unwrap();
    let places: Vec<_> =
        read.records.iter().map(|r| (r.time_ns, r.op, r.offset_bytes, r.len_bytes)).collect();
    assert_eq!(places, [(100_000, Op::Write, 4096, 8192), (200_000, Op::Read, 8192, 8192)]);
    assert_eq!((read.ignored, read.volumes), (1, vec!["trace".to_owned()]));
    let said = refusal(&trace[..trace.len() - 1], &options);
    says(&said, &["byte 80: ", "39 of 40 bytes", "fetch it again"]);
}

#[test]
fn keys_get_slots_in_order_of_first_sight() {
    let trace = "***************** properties *****************\n\
                 INSERT usertable user6284781860667377211 [ field0=a ]\n\
                 READ usertable user8517097267634966620 [ <all fields>]\n\
                 READMODIFYWRITE usertable user6284781860667377211 [ field1=b ]\n\
                 [OVERALL], RunTime(ms), 8\n";
    let options =
        ReadOptions { record_bytes: 4096, operations_per_s: 1_000_000, ..ReadOptions::default() };
    let expected = [
        (0, Op::Write, 0, 4096),
        (1_000, Op::Read, 4096, 4096),
        (2_000, Op::Read, 0, 4096),
        (2_000, Op::Write, 0, 4096),
    ];
    assert_eq!(brief(trace, &options), expected);
}
