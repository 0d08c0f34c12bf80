//! Compares Perdura's figures with its rivals' and with the wanted bounds.

use super::result::{Bound, Compared, OfThreads, Spread, Wanted, median};
use perdura_bench::pairs::Ratio;

/// A comparison with rivals, given by name and figure; the fastest rival counts.
struct Comparison {
    name: &'static str,
    own: &'static str,
    rivals: &'static [(&'static str, &'static str)],
    wanted: Option<Wanted>,
}

const PAIR: &str = "persistent_pair_ns";
const CAPACITY: &str = "capacity_pair_ns";

const COMPARISONS: [Comparison; 8] = [
    // Not alike: libpmemobj makes the object's address durable, Perdura keeps it in DRAM.
    Comparison {
        name: "libpmemobj_pair_by_persistent",
        own: PAIR,
        rivals: &[("libpmemobj", PAIR)],
        wanted: None,
    },
    // Alike: neither keeps the object's address.
    Comparison {
        name: "libpmemobj_unpublished_pair_by_persistent",
        own: PAIR,
        rivals: &[("libpmemobj", "persistent_pair_unpublished_ns")],
        wanted: Some(Wanted::AtLeast(8.0)),
    },
    // Alike: a free is durable on return.
    Comparison {
        name: "libpmemobj_unpublished_pair_by_strict",
        own: "persistent_pair_strict_ns",
        rivals: &[("libpmemobj", "persistent_pair_unpublished_ns")],
        wanted: None,
    },
    // Alike: the object's address is made durable with the object.
    Comparison {
        name: "libpmemobj_pair_by_published",
        own: "persistent_pair_published_ns",
        rivals: &[("libpmemobj", PAIR)],
        wanted: Some(Wanted::AtLeast(8.0)),
    },
    Comparison {
        name: "persistent_pair_by_mimalloc",
        own: PAIR,
        rivals: &[("mimalloc", CAPACITY)],
        wanted: Some(Wanted::AtMost(1.3)),
    },
    Comparison {
        name: "capacity_pair_by_fastest",
        own: CAPACITY,
        rivals: &[("jemalloc", CAPACITY), ("mimalloc", CAPACITY)],
        wanted: Some(Wanted::AtMost(1.1)),
    },
    Comparison {
        name: "libpmemobj_tx64_by_perdura",
        own: "tx64_ns",
        rivals: &[("libpmemobj", "tx64_ns")],
        wanted: Some(Wanted::AtLeast(3.0)),
    },
    Comparison {
        name: "libpmemobj_tx4x64_by_perdura",
        own: "tx4x64_ns",
        rivals: &[("libpmemobj", "tx4x64_ns")],
        wanted: Some(Wanted::AtLeast(3.0)),
    },
];

/// Bounds on single figures.
const BOUNDS: [(&str, Wanted); 4] = [
    ("lines_flushed_per_alloc", Wanted::AtMost(2.0)),
    // Lines that a commit itself writes back; deferred lines and lines that prepare a log are
    // counted apart.
    ("lines_flushed_per_tx64", Wanted::AtMost(2.0)),
    ("fences_per_tx64", Wanted::AtMost(2.0)),
    ("recovery_objects_per_s_per_thread", Wanted::AtLeast(2e6)),
];

/// Adds every ratio of which both sides were measured, and every bound.
pub fn compare(found: &mut OfThreads) {
    let bounds = BOUNDS.iter().filter_map(|(key, wanted)| {
        let figure = *found.figures.get(*key)?;
        let bound = Bound { found: figure, wanted: *wanted, is_met: wanted.is_met_by(figure) };
        Some(((*key).to_owned(), bound))
    });
    found.bounds = bounds.collect();
    let ratios = COMPARISONS.iter().filter_map(|comparison| {
        let own = found.spread.get(comparison.own)?;
        let spread = |(name, key): &(&'static str, &'static str)| {
            Some((*name, key.trim_end_matches("_ns"), found.rivals.get(*name)?.spread.get(*key)?))
        };
        let rivals = comparison.rivals.iter().filter_map(spread);
        let fastest = rivals.min_by(|a, b| a.2.median.total_cmp(&b.2.median))?;
        Some((comparison.name.to_owned(), ratio(comparison, own, fastest)))
    });
    found.ratios = ratios.collect();
}

fn ratio(
    comparison: &Comparison,
    own: &Spread,
    (name, key, rival): (&str, &str, &Spread),
) -> Compared {
    let wanted = comparison.wanted;
    let own_name = comparison.own.trim_end_matches("_ns");
    let (above, below, about) = match wanted {
        Some(Wanted::AtMost(_)) => (own, rival, format!("perdura's {own_name} / {name}'s {key}")),
        _ => (rival, own, format!("{name}'s {key} / perdura's {own_name}")),
    };
    let of_medians = above.median / below.median;
    let pairs: Vec<f64> = above.rounds.iter().zip(&below.rounds).map(|(a, b)| a / b).collect();
    Compared {
        about,
        of_medians,
        of_cpu_medians: above.cpu_median.zip(below.cpu_median).map(|(a, b)| a / b),
        median_of_pairs: median(&pairs),
        of_pairs: Ratio::of(&above.rounds, &below.rounds),
        wanted,
        is_met: wanted.map(|wanted| wanted.is_met_by(of_medians)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::result::Rival;

    fn rival(key: &str, rounds: &[f64]) -> Rival {
        let spread = [(key.to_owned(), Spread::of(rounds))].into();
        Rival { spread, ..Rival::default() }
    }

    #[test]
    fn the_fastest_rival_counts_and_ratios_have_their_side() {
        let mut found = OfThreads::default();
        found.spread.insert(PAIR.into(), Spread::of(&[10.0, 20.0, 30.0]));
        found.spread.insert(CAPACITY.into(), Spread::of(&[10.0, 10.0, 10.0]));
        found.rivals.insert("jemalloc".into(), rival(CAPACITY, &[8.0, 8.0, 8.0]));
        found.rivals.insert("mimalloc".into(), rival(CAPACITY, &[10.0, 10.0, 10.0]));
        found.rivals.insert("libpmemobj".into(), rival(PAIR, &[100.0, 200.0, 300.0]));
        found.figures.insert("fences_per_tx64".into(), 2.5);
        compare(&mut found);
        assert!(!found.bounds["fences_per_tx64"].is_met);
        assert_eq!(found.bounds.len(), 1);
        let of = |name: &str| found.ratios[name].of_medians;
        assert_eq!(of("capacity_pair_by_fastest"), 1.25);
        assert_eq!(found.ratios["capacity_pair_by_fastest"].is_met, Some(false));
        assert_eq!(of("libpmemobj_pair_by_persistent"), 10.0);
        assert_eq!(found.ratios["libpmemobj_pair_by_persistent"].is_met, None, "unlike");
        assert_eq!(of("persistent_pair_by_mimalloc"), 2.0);
        assert_eq!(found.ratios.len(), 3, "{:?}", found.ratios);
    }
}
