//! Each branch of the sentences about what cannot be varied, and about flushes.

use super::flushes::{
    WITHOUT_FLUSH_BYTES, how_persists, how_without_flush, persists, without_flush,
};
use super::*;
use crate::access::insights::facts::Module;
use crate::access::insights::figures::{BestPersist, PlaceFigures, WithoutFlush};

pub(super) fn facts() -> Facts {
    Facts {
        modules: Told::NotTold("/dmi: no such file".into()),
        memory_limit: Told::NotTold("/powercap: no such folder".into()),
        prefetch_switch: Told::NotTold("/msr: no such file".into()),
        cache_bytes: None,
    }
}

fn with_modules(sizes: &[u64], mega_transfers_per_s: u64) -> Facts {
    let modules = sizes.iter().map(|gib| Module {
        bytes: gib << 30,
        configured_mega_transfers_per_s: mega_transfers_per_s,
    });
    Facts { modules: Told::Known(modules.collect()), ..facts() }
}

#[test]
fn what_cannot_be_varied_says_why() {
    assert!(capacity_here(&facts()).ends_with("does not report its modules (/dmi: no such file)"));
    assert!(capacity_here(&with_modules(&[32], 0)).contains("the machine has 1 module of 32 GiB"));
    let mixed = capacity_here(&with_modules(&[64, 32, 32], 0));
    assert!(mixed.contains("3 modules of 32 GiB and 64 GiB"), "{mixed}");
    assert!(power_here(&facts()).contains("no power limit of its memory (/powercap"));
    let limited = |watts, zones| {
        power_here(&Facts { memory_limit: Told::Known(PowerLimit { watts, zones }), ..facts() })
    };
    assert!(limited(18.0, 1).contains("limit is 18 W, and"));
    assert!(limited(36.0, 2).contains("limit is 36 W, the sum of 2 zones, and"));
    assert!(modules_here().starts_with("not answerable here"));
    assert!(bus_here(&facts()).ends_with("before the system starts"));
    assert!(bus_here(&with_modules(&[32], 0)).starts_with("cannot be varied here: the firmware"));
    assert!(bus_here(&with_modules(&[32], 3200)).contains("the bus runs at 3200 MT/s"));
}

#[test]
fn the_published_systems_speak_in_their_figures_with_all_that_differs_between_them() {
    let references = References::built_in();
    let capacity = published_capacity(&references);
    assert!(
        capacity
            .contains("6 of 128 GB (15 W each, 18 cores) read 37 GiB/s in sequence and write 11.8"),
        "{capacity}"
    );
    assert!(capacity.contains("6 of 256 GB (18 W each, 18 cores)"), "{capacity}");
    assert!(capacity.contains("6 of 512 GB (15 W each, 24 cores)"), "{capacity}");
    assert!(capacity.contains("; so capacity is not the only difference: "), "{capacity}");
    let power = published_power(&references);
    assert!(
        power.contains(
            "18 W a module: 16.9 GiB/s of sequential writes (apache-256, 256 GB a module, 18 cores)"
        ),
        "{power}"
    );
    assert!(power.contains("; so power is not the only difference: "), "{power}");
    let said = references.insight(2).unwrap().details.clone().unwrap();
    assert!(said.contains("40 % higher bandwidth than previously reported"), "{said}");
}

fn versus(ratio: f64, ci95: [f64; 2]) -> Versus {
    Versus { ratio, ci95: Some(ci95) }
}

fn best(is_random: bool, bytes: u64, names: [&str; 2], ratio: f64) -> BestPersist {
    BestPersist {
        is_random,
        write_bytes: bytes,
        best: names[0].into(),
        next: names[1].into(),
        versus: versus(ratio, [ratio * 0.95, ratio * 1.05]),
    }
}

#[test]
fn sizes_with_the_same_best_instruction_are_told_together() {
    let bests = [
        best(false, 64, ["nocache", "cache"], 2.0),
        best(false, 128, ["nocache", "cache"], 1.5),
        best(false, 4096, ["cache", "nocache"], 1.2),
        best(true, 64, ["cacheinv", "cache"], 1.01),
        best(true, 128, ["cache", "cacheinv"], 1.02),
    ];
    assert_eq!(
        persists(&bests),
        "in sequence nocache for 64 B to 128 B (beside the next 1.50 to 2.00 times), cache for 4 \
         KiB (beside the next 1.20 times, 95 % 1.14 to 1.26); at random cache and cacheinv for 64 \
         B to 128 B alike"
    );
    let unsure = BestPersist {
        versus: versus(1.4, [0.8, 2.4]),
        ..best(true, 256, ["cacheinv", "cache"], 1.4)
    };
    let said = persists(&[&bests[3..], &[unsure]].concat());
    assert_eq!(
        said,
        "at random cache and cacheinv for 64 B to 128 B alike, cache and cacheinv for 256 B with \
         no clear winner"
    );
    assert!(persists(&bests[3..]).starts_with("at random"));
    assert!(!persists(&bests[..2]).contains("random"));
    assert_eq!(persists(&[]), "there are no two instructions to choose from");
    let once = BestPersist {
        versus: Versus { ratio: 3.0, ci95: None },
        ..best(true, 64, ["cache", "nocache"], 3.0)
    };
    assert_eq!(persists(&[once]), "at random cache and nocache for 64 B with no clear winner");
}

/// The sentence for a cache that holds little of what is written.
fn judged(of: &[WithoutFlush]) -> String {
    let place = PlaceFigures { random_written_bytes_min: 128 << 20, ..PlaceFigures::default() };
    without_flush(of, &place, Some(32 << 20))
}

#[test]
fn bare_writes_and_updates_without_flushes_are_judged_apart() {
    let near = |ratio: f64| Some(versus(ratio, [ratio * 0.99, ratio * 1.01]));
    let said = |ratios: [f64; 3]| {
        let of: Vec<_> = WITHOUT_FLUSH_BYTES
            .iter()
            .zip(ratios)
            .map(|(bytes, ratio)| WithoutFlush {
                write_bytes: *bytes,
                write: near(2.0),
                update: near(ratio),
            })
            .collect();
        judged(&of)
    };
    let updates = |ratios| {
        let said = said(ratios);
        let (bare, updates) = said.split_once(". ").unwrap();
        assert!(
            bare.starts_with(
                "bare writes, beside the fastest flush: it helps at each size: 64 B helps \
                 (2.00 times, 95 % 1.98 to 2.02)"
            ),
            "{bare}"
        );
        updates
            .strip_prefix("records read and changed, beside the fastest flush: ")
            .unwrap()
            .to_owned()
    };
    assert!(updates([2.0, 1.5, 1.2]).starts_with("it helps at each size: "));
    assert!(updates([0.5, 0.6, 0.7]).starts_with("it hurts at each size: "));
    assert!(updates([1.0, 1.0, 1.0]).starts_with("it makes no difference at any size: "));
    assert!(updates([1.0, 1.0, 0.5]).starts_with("it hurts some sizes and helps none: "));
    assert_eq!(
        updates([1.5, 1.0, 0.5]),
        "it depends on the size: 64 B helps (1.50 times, 95 % 1.48 to 1.52); 128 B no difference \
         (1.00 times, 95 % 0.99 to 1.01); 256 B (for 200 B, rounded up) hurts (0.50 times, 95 % \
         0.49 to 0.51)"
    );
}

#[test]
fn a_size_that_cannot_be_told_makes_nothing_depend_on_the_size() {
    let unsure = || Some(versus(1.4, [0.8, 2.4]));
    let of = |write_bytes, update| WithoutFlush { write_bytes, write: None, update };
    let said = judged(&[of(64, unsure()), of(128, unsure())]);
    assert!(
        said.contains(
            ": the rounds do not show whether it helps: 64 B unclear (1.40 times, 95 % 0.80 \
             to 2.40)"
        ),
        "{said}"
    );
    for (ratio, word) in [(1.5, "helps"), (0.5, "hurts"), (1.0, "makes no difference")] {
        let clear = Some(versus(ratio, [ratio * 0.99, ratio * 1.01]));
        let said = judged(&[of(64, unsure()), of(128, clear)]);
        assert!(said.contains(&format!(": it {word} ")), "{said}");
        assert!(said.contains("with a clear result: 64 B unclear"), "{said}");
        assert!(!said.contains("bare writes"), "{said}");
    }
    // A single round proves nothing, however large the ratio.
    let said = judged(&[of(64, Some(Versus { ratio: 9.0, ci95: None }))]);
    assert!(said.ends_with("64 B unclear (9.00 times, of one round)"), "{said}");
    assert_eq!(judged(&[of(64, None)]), "nothing was measured both with a flush and without");
}

#[test]
fn what_flushes_figures_cannot_tell_is_said() {
    let place = PlaceFigures {
        random_written_bytes_min: 128 << 20,
        lacking: vec!["persist_instruction: cache: this processor has no clwb".into()],
        ..PlaceFigures::default()
    };
    let bare =
        WithoutFlush { write_bytes: 64, write: Some(versus(9.0, [8.0, 10.0])), update: None };
    let said = without_flush(&[bare], &place, Some(480 << 20));
    assert!(said.starts_with("bare writes, which the cache may still hold when"), "{said}");
    let how = how_without_flush(&place, Some(480 << 20));
    assert!(how.contains("no read waits for the flush before it"), "{how}");
    assert!(how.contains("writes 128 MiB at least, beside a last-level cache of 480 MiB"), "{how}");
    assert!(
        how.ends_with("Left out: persist_instruction: cache: this processor has no clwb"),
        "{how}"
    );
    assert!(how_persists(&place).contains("no clwb"));
    assert!(how_without_flush(&place, None).contains("does not report its last-level cache"));
    let whole = PlaceFigures { lacking: Vec::new(), ..place };
    assert_eq!(how_persists(&whole), "one thread, cells in turn, ratios by rounds");
}
