//! The analysis and a naive count give exactly the same figures, and merged parts give those of the
//! whole. `cli/tests/cli/plan_figures.rs` compares the whole program with published traces.
#![allow(clippy::unwrap_used)]

#[path = "skew/generate.rs"]
mod generate;
#[path = "skew/naive.rs"]
mod naive;

use std::collections::{BTreeMap, BTreeSet};

use generate::{Case, case};
use perdura_plan::skew::{Analysis, Analyzer, Join, Options, Part, Piece, Share, SkewError};
use perdura_plan::trace::{Op, Record};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};

const SHARES: [u64; 5] = [1, 50, 90, 95, 99];

fn options(windows_ns: &[u64]) -> Options {
    let shares = SHARES.map(|share| Share::percent(share as f64).unwrap());
    Options::new(windows_ns.to_vec(), shares.to_vec()).unwrap()
}

fn analyse(records: &[Record], start_ns: u64, options: &Options) -> Analysis {
    let mut analyzer = Analyzer::new(options, start_ns).unwrap();
    for batch in records.chunks(97) {
        analyzer.add(batch).unwrap();
    }
    analyzer.finish().unwrap()
}

fn json_of(part: &Part, options: &Options) -> Value {
    serde_json::to_value(part.figures(options).unwrap()).unwrap()
}

/// The figures of the naive count: for all volumes, and for each.
struct Expected {
    all: Value,
    volumes: Vec<(u32, Value)>,
}

impl Expected {
    fn of(records: &[Record], start_ns: u64, windows_ns: &[u64]) -> Expected {
        let figures = |volume| naive::figures(records, start_ns, volume, windows_ns, &SHARES);
        let all = figures(None);
        let volumes: BTreeSet<u32> = records.iter().map(|record| record.volume).collect();
        // The only volume is all there is.
        let of = |volume| if volumes.len() == 1 { all.clone() } else { figures(Some(volume)) };
        let volumes = volumes.iter().map(|&volume| (volume, of(volume))).collect();
        Expected { all, volumes }
    }

    /// Volumes and all; `whose` names the case in a failure.
    fn check(&self, records: &[Record], start_ns: u64, options: &Options, whose: &str) {
        let analysis = analyse(records, start_ns, options);
        assert_eq!(json_of(&analysis.all().unwrap(), options), self.all, "{whose}");
        let json = |(volume, part): &(u32, Part)| (*volume, json_of(part, options));
        let volumes: Vec<_> = analysis.volumes.iter().map(json).collect();
        assert_eq!(volumes, self.volumes, "{whose}, by volume");
    }
}

fn check_same(records: &[Record], start_ns: u64, options: &Options, whose: &str) {
    let expected = Expected::of(records, start_ns, options.windows_ns());
    expected.check(records, start_ns, options, whose);
}

#[test]
fn generated_traces_are_counted_as_the_plain_way_counts_them() {
    for seed in 0..1500 {
        let Case { records, start_ns, windows_ns } = case(seed, 400);
        let mut options = options(&windows_ns);
        // Two stages one after the other, or each in its thread.
        options.apart = seed % 3 == 0;
        let expected = Expected::of(&records, start_ns, &windows_ns);
        expected.check(&records, start_ns, &options, &format!("seed {seed}"));
        // Parts that can be merged.
        options.mergeable = true;
        expected.check(&records, start_ns, &options, &format!("seed {seed}, mergeable"));
    }
}

#[test]
fn the_plain_way_is_right_where_windows_are_written_out() {
    for seed in 0..60 {
        let Case { records, start_ns, windows_ns } = case(seed, 120);
        let writes = records.iter().filter(|r| r.op == Op::Write);
        let writes: Vec<_> =
            writes.map(|r| (r.time_ns - start_ns, (r.volume, r.offset_bytes / 4096))).collect();
        windows_ns.iter().for_each(|window| naive::check_itself(&writes, *window));
    }
}

#[test]
fn long_traces_with_many_pages_are_counted_as_the_plain_way_counts_them() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
    let mut time_ns = 5;
    let records: Vec<Record> = (0..300_000)
        .map(|_| {
            time_ns += rng.random_range(0..3);
            let place: f64 = rng.random();
            let offset_bytes = (place * place * 60_000.0) as u64 * 4096;
            let op = if rng.random_bool(0.7) { Op::Write } else { Op::Read };
            Record {
                time_ns,
                offset_bytes,
                len_bytes: rng.random_range(1..9000),
                volume: rng.random_range(0..2),
                op,
            }
        })
        .collect();
    let mut options = options(&[100, 3000, 90_000]);
    let expected = Expected::of(&records, 5, options.windows_ns());
    expected.check(&records, 5, &options, "in memory");
    options.queue_bytes = 200_000;
    options.apart = true;
    expected.check(&records, 5, &options, "in a file, in two threads");
}

/// Writes of some pages, one a nanosecond.
fn steady(writes: u64) -> Vec<Record> {
    (0..writes).map(|time_ns| written(time_ns, time_ns * time_ns % 977)).collect()
}

#[test]
fn windows_longer_than_memory_are_counted_from_a_file() {
    for seed in 0..8 {
        // A chunk of the queue is 4096 instants: no shorter trace comes to the file.
        let Case { mut records, start_ns, windows_ns } = case(seed, 400);
        let from_ns = records.last().map_or(start_ns, |record| record.time_ns);
        records.extend(steady(6000 + seed * 1000).into_iter().map(|mut record| {
            record.time_ns += from_ns;
            record
        }));
        let mut windows_ns = windows_ns;
        windows_ns.push(1 << 62);
        windows_ns.truncate(16);
        let expected = Expected::of(&records, start_ns, &windows_ns);
        for (mergeable, apart) in [(false, false), (true, false), (false, true)] {
            let mut options = options(&windows_ns);
            (options.mergeable, options.apart, options.queue_bytes) = (mergeable, apart, 0);
            let whose = format!("seed {seed}, mergeable {mergeable}, apart {apart}");
            expected.check(&records, start_ns, &options, &whose);
            let mut analyzer = Analyzer::new(&options, start_ns).unwrap();
            analyzer.add(&records).unwrap();
            // Another thread says it later.
            assert!(apart || analyzer.spilled_bytes() > 0, "{whose}");
        }
    }
}

#[test]
fn a_queue_forgets_what_has_left_however_quiet_the_trace_has_become() {
    let mut options = options(&[1000]);
    options.queue_bytes = 0;
    let mut analyzer = Analyzer::new(&options, 0).unwrap();
    // In each of the first instants a page is written 300 times: no window that follows seems as
    // bad, so none is looked at.
    let busy = (0..1000).flat_map(|time_ns| [written(time_ns, time_ns); 300]);
    analyzer.add(&busy.collect::<Vec<_>>()).unwrap();
    let quiet = (1000..300_000).map(|time_ns| written(time_ns, time_ns % 10));
    analyzer.add(&quiet.collect::<Vec<_>>()).unwrap();
    // 16 B an instant of the window, and of what its left edge may lag behind, in chunks of 64 KiB;
    // 4 B beside.
    assert!(analyzer.spilled_bytes() <= 5 << 16, "{}", analyzer.spilled_bytes());
    assert!(analyzer.spilled_bytes() > 0);
}

#[test]
fn a_queue_that_cannot_be_written_is_said_and_said_again_at_the_end() {
    for apart in [false, true] {
        let mut options = options(&[1 << 40]);
        (options.queue_bytes, options.apart) = (0, apart);
        options.spill_dir = Some("/nowhere/at/all".into());
        let mut analyzer = Analyzer::new(&options, 0).unwrap();
        let records = steady(200_000);
        let failed = records.chunks(1000).find_map(|batch| analyzer.add(batch).err());
        let is_told = |error: &SkewError| {
            matches!(error, SkewError::Spill { .. })
                && error.to_string().contains("/nowhere/at/all")
        };
        assert!(failed.is_some_and(|error| is_told(&error)), "apart {apart}");
        let again = analyzer.finish().unwrap_err();
        assert!(is_told(&again), "apart {apart}: {again}");
    }
}

fn written(time_ns: u64, page: u64) -> Record {
    Record { time_ns, offset_bytes: page * 4096, len_bytes: 1, volume: 0, op: Op::Write }
}

fn worst(records: &[Record], start_ns: u64, window_ns: u64) -> Value {
    let options = options(&[window_ns]);
    let all = analyse(records, start_ns, &options).all().unwrap();
    let worst = json_of(&all, &options)["worst"].clone();
    worst.as_object().unwrap().values().next().unwrap().clone()
}

#[test]
fn a_page_written_a_whole_window_ago_has_left() {
    let at =
        |gap| worst(&[written(0, 1), written(gap, 2)], 0, 10)["sliding"]["unique_pages"].clone();
    assert_eq!((at(9), at(10)), (json!(2), json!(1)));
    // Written again at the instant at which it would leave: it never was missing.
    let again = [written(0, 1), written(0, 2), written(10, 1), written(10, 3)];
    assert_eq!(worst(&again, 0, 10)["sliding"], json!({"adversarial_pages": 2, "unique_pages": 2}));
}

#[test]
fn windows_of_the_clock_are_counted_from_the_first_record_even_if_it_reads() {
    let read = Record { op: Op::Read, ..written(100, 9) };
    let late = [read, written(109, 1), written(111, 2)];
    assert_eq!(worst(&late, 100, 10)["tumbling"]["unique_pages"], json!(1));
    assert_eq!(worst(&late[1..], 109, 10)["tumbling"]["unique_pages"], json!(2));
}

#[test]
fn windows_and_times_up_to_the_last_are_counted() {
    let last_ns = (1 << 63) - 1;
    let windows = [10, 1 << 40, last_ns, 1 << 63];
    // Of traces that begin with all time, or late: absolute times in some formats are beyond 2^63.
    for (from_ns, shift_ns) in
        [(0, 0), (last_ns - 500, 0), (1 << 63, 1 << 63), (u64::MAX - 500, 1 << 63)]
    {
        let late: Vec<Record> = (0..100)
            .map(|at| written(last_ns - 500 + at * 5, at % 30))
            .chain([written(last_ns, 7)])
            .map(|record| Record { time_ns: record.time_ns + shift_ns, ..record })
            .collect();
        check_same(&late, from_ns, &options(&windows), "late");
    }
}

#[test]
fn a_trace_that_only_reads_has_no_writes_in_any_window() {
    let reads: Vec<Record> = (0..50).map(|t| Record { op: Op::Read, ..written(t, t) }).collect();
    check_same(&reads, 0, &options(&[5, 500]), "reads");
    check_same(&[], 0, &options(&[5, 500]), "nothing");
}

/// Cuts each record at page boundaries of its volume into pieces for `ranges` analyses.
fn split(
    records: &[Record],
    boundary: &dyn Fn(u32, u64) -> usize,
    ranges: usize,
) -> Vec<Vec<Piece>> {
    let mut pieces = vec![Vec::new(); ranges];
    for record in records {
        let (first, pages) = record.pages();
        let mut open: Option<(usize, u64)> = None;
        for page in first..=first + pages {
            let at = (page < first + pages).then(|| boundary(record.volume, page));
            if open.map(|(range, _)| range) == at {
                continue;
            }
            if let Some((range, from)) = open {
                let Record { time_ns, volume, op, .. } = *record;
                let counts_as_record = from == first;
                let piece = Piece {
                    time_ns,
                    volume,
                    op,
                    first_page: from,
                    pages: page - from,
                    counts_as_record,
                };
                pieces[range].push(piece);
            }
            open = at.map(|at| (at, page));
        }
    }
    pieces
}

#[test]
fn parts_of_volumes_and_page_ranges_merge_to_the_whole_in_any_order() {
    for seed in 0..400 {
        let Case { records, start_ns, windows_ns } = case(seed, 200);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut options = options(&windows_ns);
        options.mergeable = true;
        let ranges = rng.random_range(1..7);
        let salt: u64 = rng.random_range(0..1000);
        let boundary = move |volume: u32, page: u64| {
            ((page / 13 + salt + u64::from(volume)) % ranges as u64) as usize
        };
        let mut parts: Vec<Part> = Vec::new();
        for pieces in split(&records, &boundary, ranges) {
            let mut analyzer = Analyzer::new(&options, start_ns).unwrap();
            pieces.iter().for_each(|piece| analyzer.add_piece(piece).unwrap());
            parts.extend(analyzer.finish().unwrap().volumes.into_iter().map(|(_, part)| part));
        }
        parts.shuffle(&mut rng);
        // In any grouping, too; and over bytes.
        while parts.len() > 1 {
            let taken = rng.random_range(1..=parts.len().min(4));
            let some: Vec<Part> = parts.drain(..taken).collect();
            let merged = Part::merge(&some).unwrap();
            parts.push(Part::from_bytes(&merged.to_bytes().unwrap()).unwrap());
        }
        let whole = analyse(&records, start_ns, &options).all().unwrap();
        if let Some(merged) = parts.pop() {
            assert_eq!(merged.to_bytes().unwrap(), whole.to_bytes().unwrap(), "seed {seed}");
            assert_eq!(merged, whole, "seed {seed}");
            let expected = naive::figures(&records, start_ns, None, &windows_ns, &SHARES);
            assert_eq!(json_of(&merged, &options), expected, "seed {seed}");
        }
        options.mergeable = false;
        let direct = analyse(&records, start_ns, &options).all().unwrap();
        assert_eq!(json_of(&direct, &options), json_of(&whole, &options), "seed {seed}");
    }
}

#[test]
fn slices_of_time_merge_and_join_to_the_whole() {
    for seed in 0..400 {
        let Case { records, start_ns, windows_ns } = case(seed, 200);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut options = options(&windows_ns);
        options.mergeable = true;
        let whole = analyse(&records, start_ns, &options);
        let last_ns = records.last().map_or(0, |record| record.time_ns - start_ns);
        let mut bounds: Vec<u64> =
            (0..rng.random_range(0..9)).map(|_| rng.random_range(0..=last_ns + 1)).collect();
        bounds.sort_unstable();
        let carried = |part: &Part| Part::from_bytes(&part.to_bytes().unwrap()).unwrap();
        // Volumes are cut, slices of the same number merged, and what comes out is joined.
        let (mut cut, mut slices) = (Vec::new(), BTreeMap::<u64, Vec<Part>>::new());
        for (_, part) in &whole.volumes {
            let (rest, own) = part.clone().cut(&bounds).unwrap();
            assert!(matches!(rest.figures(&options), Err(SkewError::Cut)));
            cut.push(carried(&rest));
            own.iter().for_each(|(at, slice)| slices.entry(*at).or_default().push(carried(slice)));
        }
        if cut.is_empty() {
            continue;
        }
        let mut join = Join::new(Part::merge(&cut).unwrap()).unwrap();
        let merged: Vec<Part> = slices.values().map(|own| Part::merge(own).unwrap()).collect();
        merged.iter().for_each(|slice| join.push(carried(slice)).unwrap());
        let figures = json_of(&join.finish().unwrap(), &options);
        assert_eq!(figures, json_of(&whole.all().unwrap(), &options), "seed {seed}");
        // With one that is missing, or in a wrong order, nothing wrong comes out.
        if let [first, second, ..] = &merged[..] {
            let mut short = Join::new(Part::merge(&cut).unwrap()).unwrap();
            merged[1..].iter().for_each(|slice| drop(short.push(slice.clone())));
            assert!(short.finish().is_err(), "seed {seed}");
            let mut wrong = Join::new(Part::merge(&cut).unwrap()).unwrap();
            let mut others = [second, first].into_iter().chain(&merged[2..]);
            let accepted = others.all(|slice| wrong.push(slice.clone()).is_ok());
            // Slices without instants, or without windows of the clock, may pass each other.
            if let (true, Ok(part)) = (accepted, wrong.finish()) {
                assert_eq!(json_of(&part, &options), figures, "seed {seed}");
            }
        }
    }
}

#[test]
fn damaged_parts_are_refused_and_never_believed() {
    for seed in 0..40 {
        let Case { records, start_ns, windows_ns } = case(seed, 60);
        let mut options = options(&windows_ns);
        options.mergeable = seed % 2 == 0;
        let whole = analyse(&records, start_ns, &options).all().unwrap();
        let whole = match whole.clone().cut(&[windows_ns[0]]) {
            Ok((_, mut slices)) if seed % 4 == 0 && !slices.is_empty() => slices.remove(0).1,
            _ => whole,
        };
        let bytes = whole.to_bytes().unwrap();
        assert_eq!(Part::from_bytes(&bytes).unwrap(), whole);
        for at in 0..bytes.len() {
            assert!(Part::from_bytes(&bytes[..at]).is_err(), "seed {seed}, cut at {at}");
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(Part::from_bytes(&flipped).is_err(), "seed {seed}, flipped at {at}");
            // A forger knows the checksum: what is accepted must at least give figures.
            let end = flipped.len() - 8;
            let sum = xxhash_rust::xxh3::xxh3_64(&flipped[..end]);
            flipped[end..].copy_from_slice(&sum.to_le_bytes());
            if let Ok(part) = Part::from_bytes(&flipped) {
                let _ = part.figures(&options);
                Part::merge([&part, &part]).ok();
            }
        }
    }
}

#[test]
fn what_cannot_be_counted_is_said_with_its_place() {
    let options = options(&[10]);
    let refused = |records: &[Record]| {
        let mut analyzer = Analyzer::new(&options, 50).unwrap();
        analyzer.add(records).unwrap_err().to_string()
    };
    let back = refused(&[written(60, 1), written(59, 1)]);
    assert!(back.contains("from 60 ns to 59 ns"), "{back}");
    assert!(refused(&[written(49, 1)]).contains("from 50 ns to 49 ns"));
    let none = refused(&[Record { len_bytes: 0, ..written(60, 7) }]);
    assert!(none.contains("page 7, 0 pages"), "{none}");
    let wide = refused(&[Record { len_bytes: 1 << 60, ..written(60, 7) }]);
    assert!(wide.contains("page 7, 281474976710656 pages"), "{wide}");
    let many = refused(&[Record { volume: u32::MAX, ..written(60, 7) }]);
    assert!(many.contains("4294967295"), "{many}");
    // Of a volume that is known, and of one that is not.
    for before in [Some(written(60, 1)), None] {
        let late: Vec<Record> = before.into_iter().chain([written(50 + (1 << 63), 1)]).collect();
        assert!(refused(&late).contains("9223372036854775858 ns is 2^63 ns or more after 50 ns"));
    }
    let beyond = Record { offset_bytes: u64::MAX - 5, len_bytes: 5, ..written(60, 7) };
    assert!(refused(&[beyond]).contains("below page 2^51"));
}

#[test]
fn parts_of_different_analyses_do_not_merge() {
    let part = |windows: &[u64], start_ns, mergeable| {
        let mut options = options(windows);
        options.mergeable = mergeable;
        analyse(&[written(100, 1)], start_ns, &options).all().unwrap()
    };
    let one = part(&[10], 0, true);
    assert!(Part::merge([&one, &part(&[11], 0, true)]).is_err());
    assert!(Part::merge([&one, &part(&[10], 1, true)]).is_err());
    assert!(matches!(Part::merge([&one, &part(&[10], 0, false)]), Err(SkewError::NotMergeable)));
    assert!(matches!(Part::merge([]), Err(SkewError::NoParts)));
    assert!(one.figures(&options(&[11])).is_err());
}
