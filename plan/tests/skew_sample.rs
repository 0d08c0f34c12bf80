//! The bars of an approximate analysis hold: each figure is compared with the exact one, over many
//! traces and seeds.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::ops::Range;

use perdura_plan::skew::{
    Analyzer, Figure, Figures, Options, Part, SAMPLED_VOLUMES_MAX, Sampling, Share,
};
use perdura_plan::trace::{Op, Record};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The parameters of a generated trace.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Uniform,
    Zipf,
    /// A hot tenth beside writes that are never repeated.
    Mixed,
    /// Bursts, so that one window stands out.
    Bursts,
}

fn trace(kind: Kind, seed: u64, records: usize) -> Vec<Record> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut time_ns, mut fresh) = (0u64, 1u64 << 40);
    let mut one = |at: usize| {
        let quiet = matches!(kind, Kind::Bursts) && at % 10_000 > 3000;
        time_ns += rng.random_range(1..if quiet { 400_000 } else { 40_000 });
        let page = match kind {
            Kind::Uniform | Kind::Bursts => rng.random_range(0..30_000),
            Kind::Zipf => 40_000f64.powf(rng.random()) as u64,
            Kind::Mixed if rng.random_bool(0.8) => rng.random_range(0..3000),
            Kind::Mixed => {
                fresh += 1;
                fresh
            }
        };
        let op = if rng.random_ratio(1, 4) { Op::Read } else { Op::Write };
        let len_bytes = 4096 * rng.random_range(1..3);
        Record { time_ns, offset_bytes: page * 4096, len_bytes, volume: rng.random_range(0..2), op }
    };
    (0..records).map(&mut one).collect()
}

fn options() -> Options {
    let shares = [50.0, 90.0, 95.0, 99.0].map(|share| Share::percent(share).unwrap());
    Options::new(vec![10_000_000, 100_000_000, 700_000_000], shares.to_vec()).unwrap()
}

/// Figures of volumes, and of all where there are several.
fn figures(records: &[Record], options: &Options) -> Vec<Figures> {
    let mut analyzer = Analyzer::new(options, 0).unwrap();
    records.chunks(1000).for_each(|batch| analyzer.add(batch).unwrap());
    let analysis = analyzer.finish().unwrap();
    let all = analysis.all().unwrap();
    let several = (analysis.volumes.len() > 1).then_some(&all);
    let parts = analysis.volumes.iter().map(|(_, part)| part).chain(several);
    parts.map(|part| part.figures(options).unwrap()).collect()
}

fn named(figures: &Figures) -> Vec<(String, Figure)> {
    let mut all =
        vec![("touched".into(), figures.touched_pages), ("written".into(), figures.written_pages)];
    for (window, worst) in &figures.worst {
        all.push((format!("tumbling {window}"), worst.tumbling.unique_pages));
        all.push((format!("sliding {window}"), worst.sliding.unique_pages));
    }
    let skew = figures.skew_pages.iter().map(|(share, figure)| (format!("skew {share}"), *figure));
    all.into_iter().chain(skew).collect()
}

/// How often bars held, by figure: held, of how many, and their widths as shares of the figure.
#[derive(Default)]
struct Held(BTreeMap<String, (u32, u32, f64)>);

impl Held {
    /// Counts a trace by samples of so many pages, of each of these seeds.
    fn count(
        &mut self,
        whose: &str,
        records: &[Record],
        asked: &Options,
        pages_max: u32,
        seeds: Range<u64>,
    ) {
        let exact = figures(records, asked);
        for seed in seeds {
            let mut options = asked.clone();
            options.sampling = Some(Sampling { pages_max, seed });
            for (exact, sampled) in exact.iter().zip(figures(records, &options)) {
                assert_eq!(exact.records, sampled.records);
                assert_eq!(exact.page_writes, sampled.page_writes);
                for ((_, exact), (_, sampled)) in exact.worst.iter().zip(&sampled.worst) {
                    let of = |w: &perdura_plan::skew::WorstFigures| {
                        (w.tumbling.adversarial_pages, w.sliding.adversarial_pages)
                    };
                    assert_eq!(of(exact), of(sampled), "adversarial pages are exact");
                }
                for ((name, exact), (_, sampled)) in named(exact).into_iter().zip(named(&sampled)) {
                    let (low, high) = sampled.bars.unwrap();
                    assert!(low <= sampled.pages && sampled.pages <= high, "{name}");
                    let entry = self.0.entry(format!("{whose} {name}")).or_default();
                    entry.0 += u32::from(sampled.holds(exact.pages));
                    entry.1 += 1;
                    entry.2 += (high - low) as f64 / exact.pages as f64;
                }
            }
        }
    }

    /// That they held in so many of 100 cases of every figure.
    fn check(&self, percent: u32) {
        let mut failed = Vec::new();
        for (name, (held, of, width)) in &self.0 {
            let (share, width) = (f64::from(*held) / f64::from(*of), width / f64::from(*of));
            println!("{name}: {:.1} % of {of}, bars {:.1} % wide", share * 100.0, width * 100.0);
            if share < f64::from(percent) / 100.0 {
                failed.push(name);
            }
        }
        assert!(failed.is_empty(), "{failed:?}");
    }
}

#[test]
fn bars_hold_in_at_least_93_of_100_cases_of_every_figure() {
    let mut held = Held::default();
    for kind in [Kind::Uniform, Kind::Zipf, Kind::Mixed, Kind::Bursts] {
        for seed in 0..5 {
            let records = trace(kind, seed, 60_000);
            let seeds = 100 * seed..100 * seed + 20;
            held.count(&format!("{kind:?}"), &records, &options(), 3000, seeds);
        }
    }
    held.check(93);
}

fn written(time_ns: u64, page: u64, volume: u32) -> Record {
    Record { time_ns, offset_bytes: page * 4096, len_bytes: 4096, volume, op: Op::Write }
}

#[test]
fn bars_of_the_worst_window_hold_where_each_has_hardly_a_page_of_the_sample() {
    let asked = Options::new(vec![1_000_000], vec![Share::percent(90.0).unwrap()]).unwrap();
    // Each window has 30 pages of its own, written three times.
    let page = |at: u64| at / 90 * 30 + at % 30;
    let records: Vec<Record> = (0..60_000)
        .map(|at| written(at / 90 * 1_000_000 + at % 90 * 10_000, page(at), 0))
        .collect();
    let mut held = Held::default();
    held.count("sparse", &records, &asked, 500, 0..100);
    held.count("hardly any", &records, &asked, 16, 0..100);
    held.check(93);
}

#[test]
fn bars_of_skew_hold_where_cold_pages_end_and_much_hotter_ones_begin() {
    let shares = [79.5, 80.0, 80.1, 80.3, 80.5, 81.0, 82.0];
    let shares = shares.map(|share| Share::percent(share).unwrap()).to_vec();
    let asked = Options::new(vec![1_000_000_000], shares).unwrap();
    let mut held = Held::default();
    for seed in 0..4 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut page = |at: u64| match rng.random_bool(0.8) {
            true => rng.random_range(0..3000),
            false => 1 << 30 | at,
        };
        let records: Vec<Record> = (0..150_000).map(|at| written(at, page(at), 0)).collect();
        held.count("levels", &records, &asked, 3000, 100 * seed..100 * seed + 30);
    }
    held.check(93);
}

#[test]
fn bars_of_all_hold_over_many_volumes_with_the_same_few_pages() {
    let asked = Options::new(vec![1_000_000], vec![Share::percent(90.0).unwrap()]).unwrap();
    let pages = (0..2).flat_map(|page| (0..1 << 16).map(move |volume| (page, volume)));
    let times = (0..).map(|at| at * 1000);
    let records: Vec<Record> =
        times.zip(pages).map(|(time_ns, (page, volume))| written(time_ns, page, volume)).collect();
    let mut held = Held::default();
    for seed in 0..200 {
        let mut sampled = asked.clone();
        sampled.sampling = Some(Sampling { pages_max: 3000, seed });
        let mut analyzer = Analyzer::new(&sampled, 0).unwrap();
        analyzer.add(&records).unwrap();
        let all = analyzer.finish().unwrap().all().unwrap().figures(&sampled).unwrap();
        for (name, figure) in [("touched", all.touched_pages), ("written", all.written_pages)] {
            let entry = held.0.entry(name.to_owned()).or_default();
            entry.0 += u32::from(figure.holds(2 << 16));
            entry.1 += 1;
        }
    }
    held.check(93);
}

#[test]
fn a_sample_that_holds_all_pages_is_exact_and_has_no_bars() {
    for seed in 0..20 {
        let records = trace(Kind::Zipf, seed, 3000);
        let exact = figures(&records, &options());
        let mut options = options();
        options.sampling = Some(Sampling { pages_max: 100_000, seed });
        assert_eq!(figures(&records, &options), exact, "seed {seed}");
    }
}

#[test]
fn volumes_beyond_those_that_have_their_own_counters_are_counted_together() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
    let volumes = SAMPLED_VOLUMES_MAX as u32 + 500;
    let mut time_ns = 0;
    // Each volume once in the order of their numbers, then any: all have the same pages, which are
    // different ones.
    let records: Vec<Record> = (0..3 * volumes)
        .map(|at| {
            time_ns += rng.random_range(0..30_000);
            let volume = if at < volumes { at } else { rng.random_range(0..volumes) };
            let op = if rng.random_ratio(1, 4) { Op::Read } else { Op::Write };
            let offset_bytes = rng.random_range(0..4) * 4096;
            Record { time_ns, offset_bytes, len_bytes: 4096, volume, op }
        })
        .collect();
    let analyse = |options: &Options| {
        let mut analyzer = Analyzer::new(options, 0).unwrap();
        records.chunks(1000).for_each(|batch| analyzer.add(batch).unwrap());
        analyzer.finish().unwrap()
    };
    let (mut exact, mut sampled) = (options(), options());
    exact.mergeable = true;
    sampled.sampling = Some(Sampling::default());
    let (exact, approximate) = (analyse(&exact), analyse(&sampled));
    let late = exact.volumes.iter().filter(|(number, _)| *number as usize >= SAMPLED_VOLUMES_MAX);
    let late = Part::merge(late.map(|(_, part)| part)).unwrap();
    let others = approximate.others.as_ref().unwrap();
    assert_eq!((others.volumes, approximate.volumes.len()), (500, SAMPLED_VOLUMES_MAX));
    let figures = |part: &Part| part.figures(&sampled).unwrap();
    // The sample holds all pages, so nothing is estimated.
    assert_eq!(figures(&others.part), figures(&late));
    assert_eq!(figures(&approximate.all().unwrap()), figures(&exact.all().unwrap()));
    for ((number, exact), (_, own)) in exact.volumes.iter().zip(&approximate.volumes) {
        assert_eq!(figures(own), figures(exact), "volume {number}");
    }
}
