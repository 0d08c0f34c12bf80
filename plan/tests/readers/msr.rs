use perdura_plan::trace::{Op, ReadOptions, Record};

use crate::support::read;

#[test]
fn windows_times_are_exact_and_volumes_are_named_host_disk() {
    let trace = b"128166372003061629,hm,0,Read,383496192,32768,413\r\n\
                  128166372016382155,hm,1,Write,2822144,65536,3\n\
                  \n\
                  128166372016382155, hm , 0 ,write,18446744,1,-\n\
                  128166372026382245,hm,0,R,9223372036854775807,1,";
    let options = ReadOptions { skip_bad: 2, ..ReadOptions::default() };
    let read = read(trace, &options).unwrap();
    assert_eq!((read.reader, read.volumes), ("msr", vec!["hm_0".to_owned(), "hm_1".to_owned()]));
    assert_eq!(
        read.records,
        [
            Record {
                time_ns: 12_816_637_200_306_162_900,
                offset_bytes: 383_496_192,
                len_bytes: 32_768,
                volume: 0,
                op: Op::Read
            },
            Record {
                time_ns: 12_816_637_201_638_215_500,
                offset_bytes: 2_822_144,
                len_bytes: 65_536,
                volume: 1,
                op: Op::Write
            },
        ]
    );
}

#[test]
fn a_last_line_without_an_end_counts_where_it_is_whole() {
    let read = read(
        b"128166372003061629,hm,0,Read,0,1,413\n128166372003061629,hm,0,Write,4096,2,4",
        &ReadOptions::default(),
    );
    assert_eq!(read.unwrap().records.len(), 2);
}
