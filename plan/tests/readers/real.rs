//! Published traces, where there are any: read as a few lines that know nothing of the readers read them.

use perdura_plan::trace::{Op, ReadOptions, Record, TraceReader};

use crate::support::{all, real_traces};

#[test]
fn msr_traces_are_what_splitting_at_commas_makes_of_them() {
    let Some(place) = real_traces() else { return };
    for name in
        ["msr_wdev_1.csv", "msr_wdev_3.csv", "msr_hm_0_prefix.csv", "msr_hm_1_part_write.csv"]
    {
        let text = std::fs::read_to_string(place.join(name)).unwrap();
        let expected: Vec<Record> = text
            .lines()
            .map(|line| {
                let fields: Vec<_> = line.split(',').collect();
                let number = |field: usize| fields[field].parse::<u64>().unwrap();
                Record {
                    time_ns: number(0) * 100,
                    offset_bytes: number(4),
                    len_bytes: number(5),
                    volume: 0,
                    op: if fields[3] == "Write" { Op::Write } else { Op::Read },
                }
            })
            .collect();
        let mut reader = TraceReader::open(&place.join(name), &ReadOptions::default()).unwrap();
        assert!(all(&mut reader).unwrap() == expected, "{name}");
        assert_eq!((reader.volumes().len(), reader.bytes_read()), (1, text.len() as u64));
        assert_eq!(reader.total_bytes(), Some(text.len() as u64));
    }
}
