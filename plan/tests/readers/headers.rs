//! Sector sizes, versions, kinds and lengths are read from a file's header and never assumed. A
//! value that the format does not have is an error that names place and value.

use perdura_plan::trace::{Columns, Op, ReadOptions, TraceWriter};

use crate::support::{read, refusal, says};

/// An access of HP's traces: a write of 8,192 B at sector 1,000, 7 us after its start.
fn srt_words(record_bytes: u32, version: u32, kind: u32) -> Vec<u8> {
    let words = [
        record_bytes,
        version << 16 | kind,
        3,
        7,
        10,
        20,
        8192,
        1000,
        0x1f01_6000,
        0,
        0,
        2,
        0,
        5,
        0,
    ];
    words.iter().flat_map(|word: &u32| word.to_be_bytes()).take(record_bytes as usize).collect()
}

/// A header as these traces have it: lines of `name = "value";`, and a form feed.
fn srt_header(lines: &str) -> Vec<u8> {
    let about = "$$TR_IOREC-1.3 : derived from KI trace data\nversion\t= \"1.3\";\n";
    let date = "tracedate\t= \"Sat Apr 18 00:05:02 1992\";\n";
    [about.as_bytes(), date.as_bytes(), lines.as_bytes(), b"\x0c"].concat()
}

fn srt(lines: &str) -> Vec<u8> {
    [srt_header(lines), srt_words(52, 3, 1)].concat()
}

fn first_offset(trace: &[u8], options: &ReadOptions) -> u64 {
    read(trace, options).unwrap().records[0].offset_bytes
}

#[test]
fn the_header_of_an_srt_trace_says_how_large_its_sectors_are() {
    let options = ReadOptions::default();
    for (said, bytes) in [
        ("sectorsize\t= \"256\";\n", 256),
        ("sectorsize = 512;\n", 512),
        ("# sectorsize = 9;\nsectorsize=1024\n", 1024),
        ("sectorsize = 256;\nsectorsize = 256;\n", 256),
    ] {
        assert_eq!(first_offset(&srt(said), &options), 1000 * bytes, "{said:?}");
    }
    let read = read(&srt("sectorsize = 256;\n"), &options).unwrap();
    let record = &read.records[0];
    assert_eq!((record.time_ns, record.op, record.len_bytes), (3_000_007_000, Op::Write, 8192));
    assert_eq!((read.reader, read.volumes), ("srt", vec!["0x1f016000".to_owned()]));
}

#[test]
fn a_sector_size_that_is_missing_or_cannot_be_is_an_error_unless_it_is_given() {
    let options = ReadOptions::default();
    let given = ReadOptions { sector_bytes: Some(256), ..ReadOptions::default() };
    for (trace, parts) in [
        (srt(""), ["does not say how many bytes a sector has", "--sector-size"]),
        (srt_words(52, 3, 1), ["format srt counts in sectors", "--sector-size"]),
        (srt("sectorsize = \"0\";\n"), ["byte 101: its sectorsize is \"0\"", "from 1 to 65536"]),
        (srt("sectorsize = twenty;\n"), ["its sectorsize is \"twenty\"", "from 1 to 65536"]),
        (srt("sectorsize = 256;\nsectorsize = 512;\n"), ["is \"512\"", "the same for all disks"]),
    ] {
        says(&refusal(&trace, &options), &parts);
        assert_eq!(first_offset(&trace, &given), 256_000);
    }
}

#[test]
fn srt_records_are_of_a_known_version_kind_and_length_or_an_error() {
    let options = ReadOptions::default();
    let header = srt_header("sectorsize = 512;\n");
    let with = |record: &[u8]| [header.as_slice(), record].concat();
    for (record_bytes, version, kind) in [(52, 1, 1), (56, 4, 1), (56, 2, 4), (60, 4, 4)] {
        let trace = with(&srt_words(record_bytes, version, kind));
        assert_eq!(read(&trace, &options).unwrap().records.len(), 1, "{version} {kind}");
    }
    assert_eq!(read(&with(&srt_words(16, 3, 3)), &options).unwrap().ignored, 1);
    for (record, part) in [
        (srt_words(52, 7, 1), "the record's version is \"7\", which is not 1, 2, 3 or 4"),
        (srt_words(52, 3, 2), "the record's kind is \"2\""),
        (srt_words(52, 3, 11), "the record's kind is \"11\""),
        (srt_words(56, 3, 1), "the record's length is \"56\""),
        (srt_words(52, 4, 1), "the record's length is \"52\""),
    ] {
        says(&refusal(&with(&record), &options), &[part, "byte 120: "]);
    }
}

#[test]
fn other_sectors_than_512_bytes_can_be_given_where_a_file_cannot_say_them() {
    let large = ReadOptions { sector_bytes: Some(4096), ..ReadOptions::default() };
    let spc = b"0,8,512,w,0.5\n1,16,512,r,0.6\n";
    assert_eq!(first_offset(spc, &ReadOptions::default()), 8 * 512);
    assert_eq!(first_offset(spc, &large), 8 * 4096);
    let tencent = b"1538323200,3,2,1,1063\n";
    assert_eq!(first_offset(tencent, &large), 3 * 4096);
    assert_eq!(read(tencent, &large).unwrap().records[0].len_bytes, 8192);
    // The kernel counts in 512 B whatever the device has.
    let blkparse = b"  8,0    3        1     0.000000000   697  Q   W 8 + 8 [kjournald]\n";
    assert_eq!(first_offset(blkparse, &large), 8 * 512);
}

#[test]
fn a_scsi_command_that_is_not_known_is_an_error_with_its_code() {
    let record = |code: u16| {
        let mut record = Vec::new();
        [7u32, 4096, 1].iter().for_each(|word| record.extend_from_slice(&word.to_le_bytes()));
        [code, 0x0100].iter().for_each(|half| record.extend_from_slice(&half.to_le_bytes()));
        [8u64, 100].iter().for_each(|word| record.extend_from_slice(&word.to_le_bytes()));
        record
    };
    let options = ReadOptions::default();
    let trace = |code| [record(0x2a), record(code)].concat();
    assert_eq!(read(&trace(0x89), &options).unwrap().records[1].op, Op::Write);
    assert_eq!(read(&trace(0x42), &options).unwrap().ignored, 1);
    says(&refusal(&trace(0xc7), &options), &["byte 32: the command is \"0xc7\""]);
}

#[test]
fn steps_and_flags_that_blkparse_does_not_print_are_errors() {
    let options = ReadOptions::default();
    let first = "  8,0    3        1     0.000000000   697  Q   W 8 + 8 [dd]\n";
    let of = |step: &str, flags: &str| {
        format!("{first}  8,0    3        2     0.000001000   697  {step}  {flags} 16 + 8 [dd]\n")
    };
    says(&refusal(of("Y", "W").as_bytes(), &options), &["line 2: action is \"Y\""]);
    says(&refusal(of("Q", "WQ").as_bytes(), &options), &["line 2: flags is \"WQ\""]);
    for (flags, accesses) in [("ZA", 2), ("ZR", 1), ("WAS", 2), ("DE", 1), ("WU", 2), ("N", 1)] {
        let read = read(of("Q", flags).as_bytes(), &options).unwrap();
        assert_eq!(read.records.len(), accesses, "{flags}");
    }
}

#[test]
fn a_wait_in_a_log_of_fio_that_has_times_is_an_error() {
    let said = refusal(b"fio version 3 iolog\n5 /f wait 10 0\n", &ReadOptions::default());
    says(&said, &["line 2: action is \"wait\"", "version 3"]);
}

#[test]
fn reserved_words_and_kinds_of_a_ptrace_file_are_checked() {
    use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};
    let mut whole = Vec::new();
    TraceWriter::new(&mut whole).unwrap().finish().unwrap();
    let options = ReadOptions::default();
    let with_header = |at: usize, value: u8| {
        let mut trace = whole.clone();
        trace[at] = value;
        let sum = xxh3_64(&trace[..24]).to_le_bytes();
        trace[24..32].copy_from_slice(&sum);
        refusal(&trace, &options)
    };
    says(&with_header(8, 9), &["byte 0: it is of version 9", "versions up to 2"]);
    says(&with_header(12, 40), &["its size of a record is \"40\"", "32 bytes"]);
    says(&with_header(16, 1), &["its reserved word is \"1\""]);
    let with_block = |at: usize, value: u8| {
        let mut trace = whole.clone();
        trace[32 + at] = value;
        let sum = xxh3_64_with_seed(&trace[56..], xxh3_64(&trace[32..48])).to_le_bytes();
        trace[48..56].copy_from_slice(&sum);
        refusal(&trace, &options)
    };
    says(&with_block(0, 7), &["byte 32: its kind of block is \"7\""]);
    says(&with_block(12, 1), &["byte 32: its reserved word is \"1\""]);
}

#[test]
fn a_column_that_by_its_name_counts_no_bytes_needs_its_unit() {
    for words in ["time=t:us,offset=lba,size=len,op=rw", "time=t:us,offset=o,size=io_sectors,op=rw"]
    {
        let said = Columns::parse(words).unwrap_err().to_string();
        says(&said, &["does not count in bytes by its name", ":512"]);
    }
    for words in ["time=t:us,offset=lba:1,size=len,op=rw", "time=t:us,offset=5,size=bytes,op=rw"] {
        Columns::parse(words).unwrap();
    }
}
