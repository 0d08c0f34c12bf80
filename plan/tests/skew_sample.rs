//! The bars of an approximate analysis hold: counted over many traces and seeds, each figure against the exact one.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use perdura_plan::skew::{Analyzer, Figure, Figures, Options, Sampling, Share};
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
