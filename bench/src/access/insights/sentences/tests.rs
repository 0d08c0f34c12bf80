//! Each branch of each sentence.

use super::*;
use crate::access::insights::facts::Module;
use crate::access::insights::figures::ReadIn;

fn facts() -> Facts {
    Facts {
        modules: Told::NotTold("/dmi: no such file".into()),
        memory_watts: Told::NotTold("/powercap: no such folder".into()),
        prefetch_switch: Told::NotTold("/msr: no such file".into()),
        cache_bytes: None,
    }
}

fn with_modules(sizes: &[u64], mega_transfers_per_s: u64) -> Facts {
    let modules = sizes.iter().map(|gib| Module { bytes: gib << 30, mega_transfers_per_s });
    Facts { modules: Told::Known(modules.collect()), ..facts() }
}

#[test]
fn what_cannot_be_varied_says_why() {
    assert!(capacity_here(&facts()).ends_with("which modules it has (/dmi: no such file)"));
    assert!(capacity_here(&with_modules(&[32], 0)).contains("it has 1 module of 32 GiB"));
    let mixed = capacity_here(&with_modules(&[64, 32, 32], 0));
    assert!(mixed.contains("3 modules of 32 GiB and 64 GiB"), "{mixed}");
    assert!(power_here(&facts()).contains("no power limit of its memory (/powercap"));
    let limited = Facts { memory_watts: Told::Known(18.0), ..facts() };
    assert!(power_here(&limited).contains("limit is 18 W"));
    assert!(modules_here().starts_with("not answerable here"));
    assert!(bus_here(&facts()).ends_with("before the system starts"));
    assert!(bus_here(&with_modules(&[32], 0)).starts_with("cannot be varied here: the firmware"));
    assert!(bus_here(&with_modules(&[32], 3200)).contains("the bus runs at 3200 MT/s"));
}

#[test]
fn the_published_systems_speak_in_their_figures() {
    let references = References::built_in();
    let capacity = published_capacity(&references);
    assert!(
        capacity.contains("6 of 128 GB read 37 GiB/s in sequence and write 11.8"),
        "{capacity}"
    );
    assert_eq!(capacity.matches(';').count(), 2, "three systems: {capacity}");
    let power = published_power(&references);
    assert!(
        power.contains("18 W a module: 16.9 GiB/s of sequential writes (apache-256)"),
        "{power}"
    );
}

fn structure(name: &str, threads: u64, not_memory: f64, is_real: bool) -> StructureFigure {
    StructureFigure {
        name: name.into(),
        is_real,
        threads,
        per_s: vec![1.0],
        cpu_ns: 100.0,
        cached_cpu_ns: 100.0 * not_memory,
        counted_share: None,
    }
}

#[test]
fn the_share_that_is_not_memory_decides_whether_the_hardware_is_used() {
    let hash = |share| structure("hash lookup", 1, share, false);
    let store = |share| structure("perdura store: lookup", 2, share, true);
    assert_eq!(utilization(&[]), "nothing was measured that uses it");
    assert!(
        utilization(&[hash(0.05), hash(0.08)]).starts_with("yes: of the processor's cycles 5 %")
    );
    assert!(utilization(&[hash(0.05), hash(0.4)]).starts_with("by some, not by all: "));
    assert_eq!(
        utilization(&[hash(0.2), store(0.5)]),
        "no: of the processor's cycles 20 % (hash lookup, 1 thread) to 50 % (perdura store: lookup, 2 threads) are not spent on memory; \
         perdura store: lookup 50 %"
    );
    let updates = [0.3, 0.4].map(|share| structure("perdura store: update", 2, share, true));
    let all = [&[store(0.5)], &updates[..]].concat();
    let said = utilization(&all);
    assert!(
        said.ends_with("; perdura store: lookup 50 %, perdura store: update 30 % to 40 %"),
        "{said}"
    );
    assert!(how_utilization(&[hash(0.2)]).starts_with("estimated"));
    let counted = StructureFigure { counted_share: Some(0.1), ..hash(0.2) };
    assert!(how_utilization(&[counted]).starts_with("counted"));
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
        "in sequence nocache for 64 B to 128 B (1.50 to 2.00 times the next), cache for 4 KiB (1.20 times the next, 95 % 1.14 to 1.26); \
         at random cache and cacheinv for 64 B to 128 B alike"
    );
    let unsure = BestPersist {
        versus: versus(1.4, [0.8, 2.4]),
        ..best(true, 256, ["cacheinv", "cache"], 1.4)
    };
    let said = persists(&[&bests[3..], &[unsure]].concat());
    assert_eq!(
        said,
        "at random cache and cacheinv for 64 B to 128 B alike, cache and cacheinv for 256 B with no clear winner"
    );
    assert!(persists(&bests[3..]).starts_with("at random"));
    assert!(!persists(&bests[..2]).contains("random"));
    assert_eq!(persists(&[]), "no instruction was measured");
    let once = BestPersist {
        versus: Versus { ratio: 3.0, ci95: None },
        ..best(true, 64, ["cache", "nocache"], 3.0)
    };
    assert_eq!(persists(&[once]), "at random cache for 64 B (3.00 times the next, of one round)");
}

#[test]
fn writes_without_flushes_help_hurt_or_do_not_matter() {
    let one = |bytes, update: f64| WithoutFlush {
        write_bytes: bytes,
        write: Some(versus(2.0, [1.9, 2.1])),
        update: Some(versus(update, [update * 0.99, update * 1.01])),
    };
    let said = |updates: [f64; 3]| {
        let of: Vec<_> = WITHOUT_FLUSH_BYTES
            .iter()
            .zip(updates)
            .map(|(bytes, update)| one(*bytes, update))
            .collect();
        without_flush(&of)
    };
    assert!(said([2.0, 1.5, 1.2]).starts_with("yes, at each size"));
    assert!(said([0.5, 0.6, 0.7]).starts_with("no, it hurts at each size"));
    assert!(said([1.0, 1.0, 1.0]).starts_with("no difference at any size"));
    assert_eq!(
        said([1.5, 1.0, 0.5]),
        "it depends on the size, beside the fastest flush: 64 B helps (records read and changed 1.50 times, bare writes 2.00 times); \
         128 B no difference (records read and changed 1.00 times, bare writes 2.00 times); \
         256 B (for 200 B, rounded up) hurts (records read and changed 0.50 times, bare writes 2.00 times)"
    );
    let unsure = || WithoutFlush { update: Some(versus(1.4, [0.8, 2.4])), ..one(64, 1.0) };
    assert!(without_flush(&[unsure()]).starts_with("cannot be told, the rounds differ too much"));
    let said = without_flush(&[unsure(), one(128, 1.5)]);
    assert!(
        said.starts_with("it depends on the size") && said.contains("64 B cannot be told"),
        "{said}"
    );
    let bare = WithoutFlush { update: None, ..one(64, 1.0) };
    assert!(without_flush(&[bare]).contains("64 B helps (bare writes 2.00 times)"));
    let nothing = WithoutFlush { write_bytes: 64, write: None, update: None };
    assert_eq!(without_flush(&[nothing]), "nothing was measured without a flush");
}

fn place(reads: &[(Order, u64, f64)]) -> PlaceFigures {
    let read = |(order, read_bytes, per_s): &(Order, u64, f64)| ReadIn {
        order: *order,
        read_bytes: *read_bytes,
        per_s: vec![*per_s, per_s * 1.001],
    };
    PlaceFigures {
        place: "DRAM".into(),
        instructions: "sse2".into(),
        peaks: Vec::new(),
        writes: Vec::new(),
        updates: Vec::new(),
        reads: reads.iter().map(read).collect(),
        structures: Vec::new(),
    }
}

#[test]
fn the_prefetcher_helps_hurts_or_does_not_show() {
    use Order::*;
    let two = |ascending: f64, large: f64| {
        prefetcher(&place(&[
            (Ascending, 64, ascending),
            (Random, 64, 10.0),
            (Ascending, 4096, large),
            (Random, 4096, 10.0),
        ]))
    };
    assert_eq!(
        two(30.0, 10.0),
        "it helps: reads in ascending order beside random ones: 64 B 3.00 times, 4 KiB 1.00 times"
    );
    assert!(two(5.0, 10.0).starts_with("it hurts"));
    assert!(two(30.0, 5.0).starts_with("it helps some sizes and hurts others"));
    assert!(two(10.0, 10.0).starts_with("it does not show"));
    let mut unsure = place(&[(Ascending, 64, 10.0), (EveryFourth, 64, 10.0), (Random, 64, 10.0)]);
    for read in &mut unsure.reads[..2] {
        read.per_s = vec![5.0, 30.0];
    }
    let said = prefetcher(&unsure);
    assert!(said.starts_with("cannot be told, the rounds"), "{said}");
    assert!(said.ends_with("(whether gaps are foreseen cannot be told)"), "{said}");
    assert_eq!(prefetcher(&place(&[])), "no reads were measured in two orders");
    let strided = |per_s| {
        prefetcher(&place(&[
            (Ascending, 64, 30.0),
            (Random, 64, 10.0),
            (Descending, 64, 20.0),
            (EveryFourth, 64, per_s),
        ]))
    };
    let said = strided(20.0);
    assert!(
        said.ends_with(
            "; descending: 64 B 2.00 times; every fourth: 64 B 2.00 times (gaps are foreseen)"
        ),
        "{said}"
    );
    assert!(strided(10.0).ends_with("(gaps are not foreseen)"));
    assert!(strided(5.0).ends_with("(what is fetched for gaps is in the way)"));
}

#[test]
fn what_the_order_of_reads_cannot_tell_is_said() {
    assert!(how_prefetcher(&facts()).contains("cannot be switched off here (MSR 0x1a4; /msr"));
    let open = Facts { prefetch_switch: Told::Known("it can be written".into()), ..facts() };
    assert!(how_prefetcher(&open).contains("which this program does not do"));
}
