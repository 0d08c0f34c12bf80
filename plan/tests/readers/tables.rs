//! Tables in text, by chosen columns.

use perdura_plan::trace::{Columns, Op, ReadOptions, TimeUnit};

use crate::support::{read, refusal, says};

fn chosen(words: &str) -> ReadOptions {
    ReadOptions { columns: Some(Columns::parse(words).unwrap()), ..ReadOptions::default() }
}

#[test]
fn columns_are_found_by_name_whatever_separates_them() {
    for separator in [",", ";", "\t", " | "] {
        let trace = ["ts,disk,lba,kind,\"blocks\"", "12,a,7,w,2", "13,b,8,r,1", ""]
            .join("\n")
            .replace(',', separator);
        let read = read(
            trace.as_bytes(),
            &chosen("time=ts:ms,volume=disk,offset=LBA:512,op=kind,size=blocks:512"),
        );
        let read = read.unwrap();
        let brief: Vec<_> = read
            .records
            .iter()
            .map(|r| (r.time_ns, r.volume, r.op, r.offset_bytes, r.len_bytes))
            .collect();
        assert_eq!(
            brief,
            [(12_000_000, 0, Op::Write, 3584, 1024), (13_000_000, 1, Op::Read, 4096, 512)]
        );
        assert_eq!(read.volumes, ["a", "b"]);
    }
}

#[test]
fn a_byte_order_mark_belongs_to_no_column() {
    let tables = [
        ("ts,lba,kind\n12,7,w\n", chosen("time=ts:ms,offset=lba:512,op=kind,size=*512")),
        ("128166372003061629,hm,0,Write,3584,512,1\n", ReadOptions::default()),
    ];
    for (plain, options) in tables {
        let marked = read(format!("\u{feff}{plain}").as_bytes(), &options).unwrap();
        assert_eq!(marked.records, read(plain.as_bytes(), &options).unwrap().records);
        assert_eq!(marked.records[0].offset_bytes, 3584);
    }
}

#[test]
fn columns_are_found_by_number_with_or_without_a_header() {
    for header in ["", "time offset op\n"] {
        let trace = format!("{header}1.5 8192 1\n2.5 0 0\n");
        let read = read(trace.as_bytes(), &chosen("time=1:s,offset=2,op=3:1,size=*4096")).unwrap();
        let brief: Vec<_> =
            read.records.iter().map(|r| (r.time_ns, r.op, r.offset_bytes, r.len_bytes)).collect();
        assert_eq!(
            brief,
            [(1_500_000_000, Op::Write, 8192, 4096), (2_500_000_000, Op::Read, 0, 4096)]
        );
        assert_eq!(read.volumes, ["trace"]);
    }
}

#[test]
fn a_column_that_is_not_there_is_named_with_those_that_are() {
    let said =
        refusal(b"ts,lba,len,rw\n1,2,3,w\n", &chosen("time=ts:s,offset=block:1,size=len,op=rw"));
    says(&said, &["no column \"block\"", "ts,lba,len,rw", "--columns"]);
    let said = refusal(b"1,2,3,w\n", &chosen("time=1:s,offset=2,size=3,op=5"));
    says(&said, &["no column 5"]);
    let said = refusal(
        b"ts,lba,len,rw\n1,2,3,w\n1,2,3\n",
        &chosen("time=ts:s,offset=lba:1,size=len,op=rw"),
    );
    says(&said, &["line 3: 3 columns where there should be as many as in the first line"]);
    let said =
        refusal(b"ts,lba,len,rw\n1,2,3,trim\n", &chosen("time=ts:s,offset=lba:1,size=len,op=rw"));
    says(&said, &["line 2: op is \"trim\""]);
}

#[test]
fn a_header_that_is_not_known_is_said_to_need_columns() {
    for header in ["ts,lba,len,rw", "\"ts\";\"lba\";\"len\"", "Time Offset Size"] {
        let said = refusal(format!("{header}\n1,2,3,4\n").as_bytes(), &ReadOptions::default());
        says(&said, &["looks like the header of a table", "--columns", "--format (one of ptrace"]);
        says(&said, &[&header.replace('"', "\\\"")]);
    }
    for other in ["ts,lba", "7,lba,len,rw", "ts,,len,rw", "a,\u{1},b", "\u{1}"] {
        let said = refusal(format!("{other}\n").as_bytes(), &ReadOptions::default());
        assert!(!said.contains("--columns"), "{said}");
    }
}

#[test]
fn bytes_that_are_no_text_are_escaped_once() {
    let said = refusal(b"\xa6D \xb7\x01", &ReadOptions::default());
    says(&said, &["the trace starts with \"\\xa6D \\xb7\\u{1}\""]);
}

#[test]
fn a_time_without_a_unit_is_refused_unless_one_is_given() {
    let trace = b"ts,lba,len,rw\n7,2,3,w\n";
    let options = chosen("time=ts,offset=lba:1,size=len,op=rw");
    says(
        &refusal(trace, &options),
        &["column \"ts\" is text", "what unit", "--columns time=NAME:us", "--time-unit"],
    );
    let given = ReadOptions { time_unit: Some(TimeUnit::Millis), ..options };
    assert_eq!(read(trace, &given).unwrap().records[0].time_ns, 7_000_000);
}

#[test]
fn times_with_parts_of_nanoseconds_are_of_another_unit_than_ns() {
    let disksim = b"0.0 0 8 8 0\n0.7 0 8 8 0\n1.4 0 8 8 0\n";
    let nanos = ReadOptions { time_unit: Some(TimeUnit::Nanos), ..ReadOptions::default() };
    let parts = ["trace: line 2: time is \"0.7\"", "--time-unit", "--columns", "s, ms, us, 100ns"];
    says(&refusal(disksim, &nanos), &parts);
    let table = b"ts,lba,len,rw\n7.0,2,3,w\n7.25,2,3,w\n";
    let options = chosen("time=ts:ns,offset=lba:1,size=len,op=rw");
    says(&refusal(table, &options), &["trace: line 3: time is \"7.25\"", "time=NAME:us"]);
    let micros = ReadOptions { time_unit: Some(TimeUnit::Micros), ..ReadOptions::default() };
    let times: Vec<_> =
        read(disksim, &micros).unwrap().records.iter().map(|record| record.time_ns).collect();
    assert_eq!(times, [0, 700, 1400]);
    // What a calculation in seconds leaves below a nanosecond says nothing.
    let spc = read(b"0,8,512,w,0.5670999999999\n0,8,512,w,0.6\n", &ReadOptions::default());
    assert_eq!(spc.unwrap().records[0].time_ns, 567_099_999);
}
