//! The bars of an approximate analysis hold: counted over many traces and seeds, each figure against the exact one.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use perdura_plan::skew::{
    Analyzer, Figure, Figures, Options, Part, SAMPLED_VOLUMES_MAX, Sampling, Share,
};
use perdura_plan::trace::{Op, Record};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// What shapes a trace.
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

/// Figures of volumes and all.
fn figures(records: &[Record], options: &Options) -> Vec<Figures> {
    let mut analyzer = Analyzer::new(options, 0).unwrap();
    records.chunks(1000).for_each(|batch| analyzer.add(batch).unwrap());
    let analysis = analyzer.finish().unwrap();
    let all = analysis.all().unwrap();
    let parts = analysis.volumes.iter().map(|(_, part)| part).chain([&all]);
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

#[test]
fn bars_hold_in_at_least_93_of_100_cases_of_every_figure() {
    let mut held: BTreeMap<String, (u32, u32, f64)> = BTreeMap::new();
    for kind in [Kind::Uniform, Kind::Zipf, Kind::Mixed, Kind::Bursts] {
        for seed in 0..5 {
            let records = trace(kind, seed, 60_000);
            let exact = figures(&records, &options());
            for sample_seed in 0..20 {
                let mut options = options();
                options.sampling =
                    Some(Sampling { pages_max: 3000, seed: 100 * seed + sample_seed });
                for (exact, sampled) in exact.iter().zip(figures(&records, &options)) {
                    assert_eq!(exact.records, sampled.records);
                    assert_eq!(exact.page_writes, sampled.page_writes);
                    for ((_, exact), (_, sampled)) in exact.worst.iter().zip(&sampled.worst) {
                        let of = |w: &perdura_plan::skew::WorstFigures| {
                            (w.tumbling.adversarial_pages, w.sliding.adversarial_pages)
                        };
                        assert_eq!(of(exact), of(sampled), "adversarial pages are exact");
                    }
                    for ((name, exact), (_, sampled)) in
                        named(exact).into_iter().zip(named(&sampled))
                    {
                        let (low, high) = sampled.bars.unwrap();
                        assert!(low <= sampled.pages && sampled.pages <= high, "{name}");
                        let entry = held.entry(format!("{kind:?} {name}")).or_default();
                        entry.0 += u32::from(sampled.holds(exact.pages));
                        entry.1 += 1;
                        entry.2 += (high - low) as f64 / exact.pages as f64;
                    }
                }
            }
        }
    }
    let mut failed = Vec::new();
    for (name, (held, of, width)) in &held {
        let (share, width) = (f64::from(*held) / f64::from(*of), width / f64::from(*of));
        println!("{name}: {:.1} % of {of}, bars {:.1} % wide", share * 100.0, width * 100.0);
        if share < 0.93 {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
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
    // Each volume once in the order of their numbers, then any: all have the same pages, which are different ones.
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
