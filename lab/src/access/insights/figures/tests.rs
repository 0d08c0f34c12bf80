//! Which figures are compared, and when the comparison has a verdict.

use super::*;

fn written(bytes: u64, persist: &str, per_s: &[f64]) -> Written {
    Written { is_random: true, write_bytes: bytes, persist: persist.into(), per_s: per_s.into() }
}

fn figures(writes: Vec<Written>) -> PlaceFigures {
    PlaceFigures { place: "DRAM".into(), writes, ..PlaceFigures::default() }
}

#[test]
fn the_fastest_durable_write_is_found_and_none_is_not_durable() {
    let place = figures(vec![
        written(64, "nocache", &[10.0, 11.0, 12.0]),
        written(64, "cache", &[20.0, 22.0, 24.0]),
        written(64, "none", &[90.0, 90.0, 90.0]),
    ]);
    let [best] = &place.best_persists()[..] else { panic!("one size") };
    assert_eq!((best.best.as_str(), best.next.as_str()), ("cache", "nocache"));
    assert!((best.versus.ratio - 2.0).abs() < 1e-9);
    assert_eq!(best.versus.verdict(), Verdict::Faster);
    let [without] = &place.without_flush(&[64])[..] else { panic!("one size") };
    assert!(without.write.as_ref().unwrap().ratio > 3.7 && without.update.is_none());
}

#[test]
fn what_the_rounds_do_not_agree_on_is_not_taken_for_alike() {
    let versus = Versus::of(&[10.0, 30.0, 10.0], &[20.0, 10.0, 12.0]);
    assert_eq!(versus.verdict(), Verdict::Unclear);
    assert_eq!(Versus::of(&[100.0, 101.0], &[99.0, 100.0]).verdict(), Verdict::Alike);
    assert_eq!(Versus::of(&[1.0, 1.01, 1.0], &[2.0, 2.0, 2.01]).verdict(), Verdict::Slower);
    // A single round gives a ratio but no interval.
    let once = Versus::of(&[4.0], &[2.0]);
    assert_eq!(once, Versus { ratio: 2.0, ci95: None });
    assert_eq!(once.verdict(), Verdict::Unclear, "surely nothing");
}

#[test]
fn the_highest_bandwidth_is_that_of_the_best_number_of_threads() {
    let peak = |pattern: &str, threads, gib_per_s: f64| Peak {
        pattern: pattern.into(),
        threads,
        access_bytes: 64,
        cpu_share: 1.0,
        gib_per_s: vec![gib_per_s],
    };
    let peaks = vec![
        peak("random read", 1, 5.0),
        peak("random read", 2, 8.0),
        peak("random read", 4, 7.0),
        peak("sequential write", 4, 6.0),
    ];
    let place = PlaceFigures { peaks, ..figures(Vec::new()) };
    let highest = place.highest();
    assert_eq!(highest.random_read, Some(Highest { gib_per_s: 8.0, threads: 2 }));
    assert_eq!(highest.random_write, None);
    assert_eq!(place.peak().unwrap().0, "random read");
    assert_eq!(figures(Vec::new()).peak(), None);
}

#[test]
fn the_share_that_is_not_memory_is_counted_or_else_estimated() {
    let structure = StructureFigure {
        name: "hash lookup".into(),
        is_real: false,
        threads: 1,
        per_s: vec![1.0],
        gib_per_s: vec![1.0],
        cpu_share: 1.0,
        cpu_ns: 200.0,
        cached_cpu_ns: 50.0,
        counted_share: None,
    };
    assert_eq!(structure.not_memory(), Some(Share::Estimated(0.25)));
    let counted = StructureFigure { counted_share: Some(0.3), ..structure.clone() };
    assert_eq!(counted.not_memory(), Some(Share::Counted(0.3)));
    // The time in the caches must be less than the whole; otherwise something else than memory was
    // slower.
    for cached_cpu_ns in [200.0, 300.0, 0.0] {
        let none = StructureFigure { cached_cpu_ns, ..structure.clone() };
        assert_eq!(none.not_memory(), None, "{cached_cpu_ns}");
    }
}
