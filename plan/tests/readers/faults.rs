//! Errors in traces: each names its place, its value and its remedy.

use std::path::Path;

use perdura_plan::trace::{Fault, Place, ReadOptions, TraceReader};

use crate::support::{all, open, read, refusal, says};

const GOOD: &str = "128166372003061629,hm,0,Read,383496192,32768,413\n";

fn after_good(line: &str) -> String {
    refusal(format!("{GOOD}{line}").as_bytes(), &ReadOptions::default())
}

#[test]
fn a_bad_line_is_named_by_file_line_and_value() {
    let columns = after_good("128166372003061630,hm,0,Read,383496192\n");
    says(&columns, &["trace: line 2: 5 columns", "7: time,host,disk", "383496192", "--skip-bad"]);
    says(
        &after_good("128166372003061630,hm,0,Trim,1,1,1\n"),
        &["line 2: op is \"Trim\"", "read or write"],
    );
    says(&after_good("x,hm,0,Read,1,1,1\n"), &["line 2: time is \"x\""]);
    says(
        &after_good("128166372003061630,hm,0,Read,-512,1,1\n"),
        &["line 2: offset is \"-512\"", "negative"],
    );
    says(
        &after_good("128166372003061630,hm,0,Read,512,-4096,1\n"),
        &["line 2: size is \"-4096\"", "negative"],
    );
    says(
        &after_good("128166372003061630,hm,0,Read,512,0,1\n"),
        &["line 2: ", "byte 512", "size of 0 bytes"],
    );
    let beyond = after_good("128166372003061630,hm,0,Read,9223372036854775807,2,1\n");
    says(&beyond, &["2 bytes at byte 9223372036854775807 ends beyond 2^63"]);
    says(
        &after_good("184467440737095517,hm,0,Read,1,1,1\n"),
        &["time is \"184467440737095517\"", "64 bits of ns"],
    );
    says(
        &after_good("128166372003061630,hm,0,Read,99999999999999999999,2,1\n"),
        &["offset is", "64 bits"],
    );
}

#[test]
fn time_that_goes_back_is_named_with_both_times_and_the_window_that_would_do() {
    let message = after_good("128166372003051629,hm,0,Read,1,1,1\n");
    says(
        &message,
        &["12816637200305162900 ns comes after 12816637200306162900 ns", "--reorder 1ms", "sort"],
    );
}

#[test]
fn late_records_are_put_in_their_place_within_the_window_and_no_further() {
    let line = |ticks: u64, offset| format!("{ticks},hm,0,Write,{offset},1,1\n");
    let trace =
        [line(1000, 0), line(1010, 1), line(1001, 2), line(1020, 3), line(1010, 4)].concat();
    let options = ReadOptions { reorder_ns: 1000, ..ReadOptions::default() };
    let order: Vec<_> =
        read(trace.as_bytes(), &options).unwrap().records.iter().map(|r| r.offset_bytes).collect();
    assert_eq!(order, [0, 2, 1, 4, 3]);
    let too_late = [trace, line(5000, 5), line(1000, 6)].concat();
    says(
        &refusal(too_late.as_bytes(), &options),
        &["line 7: ", "100000 ns comes after", "--reorder"],
    );
}

#[test]
fn a_trace_cut_in_a_line_says_that_it_is_cut() {
    says(
        &after_good("128166372003061630,hm,0,Re"),
        &["line 2: the trace ends in the middle of a record", "4 columns"],
    );
}

#[test]
fn as_many_bad_records_are_skipped_as_allowed_and_the_first_are_kept() {
    let bad = "128166372003061630,hm,0,Read,512,0,1\n";
    let trace = format!("{bad}{GOOD}{bad}{bad}x\n{bad}{bad}{bad}{GOOD}");
    let mut options = ReadOptions { skip_bad: 7, ..ReadOptions::default() };
    let mut reader = open(trace.as_bytes(), &options).unwrap();
    assert_eq!(all(&mut reader).unwrap().len(), 2);
    assert_eq!((reader.skipped().count, reader.skipped().first.len()), (7, 5));
    assert_eq!(reader.skipped().first[0], (Place::Line(1), Fault::NoBytes { offset_bytes: 512 }));
    options.skip_bad = 6;
    says(
        &refusal(trace.as_bytes(), &options),
        &["line 8: ", "after 6 that were skipped, the first at line 1: "],
    );
}

#[test]
fn no_line_is_held_that_is_longer_than_the_limit() {
    let long = "9".repeat(1 << 20);
    says(&after_good(&format!("{long}\n")), &["line 2: the line is longer than 65536 bytes"]);
    let options = ReadOptions { skip_bad: 2, ..ReadOptions::default() };
    let trace = format!("{GOOD}{long}\n{GOOD}{long}");
    assert_eq!(read(trace.as_bytes(), &options).unwrap().records.len(), 2);
}

#[test]
fn nothing_a_directory_and_what_is_no_trace_are_refused() {
    says(&refusal(b"", &ReadOptions::default()), &["trace: ", "empty"]);
    says(&refusal(b"\n\n", &ReadOptions::default()), &["empty"]);
    says(
        &refusal(b"To be, or not to be\n", &ReadOptions::default()),
        &["\"To be, or not to be", "--format", "msr"],
    );
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let error = TraceReader::open(directory, &ReadOptions::default()).err().unwrap();
    says(&error.to_string(), &["is a directory", "give the trace files"]);
    let error =
        TraceReader::open(&directory.join("nothing"), &ReadOptions::default()).err().unwrap();
    says(&error.to_string(), &["plan/nothing: cannot be opened: No such file"]);
}
