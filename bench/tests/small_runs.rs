//! Every kind of run, at a small size: its results must agree with each other.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

use std::path::Path;
use std::time::Duration;

use perdura_bench::drive::Quota;
use perdura_bench::report::{YcsbResult, page};
use perdura_bench::settings::{BudgetShare, Place, Setup, SideSettings, YcsbSettings};
use perdura_bench::sweep::{SweepSettings, sweep};
use perdura_bench::workload::{Layout, RecordKind, Workload};
use perdura_bench::ycsb::run;
use perdura_media::file::{Direct, Engine};
use perdura_region::{Compression, PolicyKind, TrackingKind, TrapKind};

const RECORDS: u64 = 2000;
const OPERATIONS: u64 = 6000;

fn setup(dir: &Path, tracking: TrackingKind) -> Setup {
    Setup {
        dir: dir.to_owned(),
        memory_bytes: None,
        tracking,
        policy: PolicyKind::default(),
        engine: Engine::Auto,
        direct: Direct::Auto,
        flush_threads: 2,
    }
}

fn settings(letter: &str, place: Place, kind: RecordKind) -> YcsbSettings {
    let budget = |percent| SideSettings {
        budget: BudgetShare::Percent(percent),
        recency: true,
        compression: Compression::Off,
        is_encrypted: false,
        checkpoint_every: Some(Duration::from_millis(200)),
    };
    YcsbSettings {
        workload: Workload::parse(letter).unwrap(),
        distribution: None,
        records: RECORDS,
        quota: Quota::Operations(OPERATIONS),
        layout: Layout::new(kind, 10, 100, false),
        threads: 2,
        pipeline: 1,
        rate: None,
        think: Duration::ZERO,
        scan_max: 20,
        pairs: 10,
        seed: 3,
        load: true,
        place,
        side: budget(20.0),
        compare: Some(budget(100.0)),
        ablate_recency: false,
        runs: 1,
    }
}

fn measure(settings: &YcsbSettings) -> YcsbResult {
    let result = run(settings, &|_, _, _| ()).unwrap();
    assert_eq!(result.failures(), 0, "{:?}", result.side.first_error);
    let (low, high) = result.ratio_ci95.map(|[low, high]| (low, high)).unwrap();
    assert!(low <= result.ratio.unwrap() && result.ratio.unwrap() <= high);
    for side in std::iter::once(&result.side).chain(&result.compare) {
        assert_eq!(side.operations, OPERATIONS);
        assert!(side.dirty_bytes_max.unwrap() <= side.budget_bytes.unwrap());
        let counted: u64 = side.latency_ns.values().map(|times| times.count).sum();
        assert_eq!(counted, side.operations);
        let (without, with) = (side.ssd_bytes_written, side.ssd_bytes_written_with_flush);
        assert!(with.unwrap() >= without.unwrap());
    }
    result
}

#[test]
fn few_records_have_room_for_the_lanes_of_many_threads() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(dir.path(), TrackingKind::Barrier);
    for memory_bytes in [None, Some(64 << 20)] {
        let place = Place::Embedded(Setup { memory_bytes, ..setup.clone() });
        measure(&YcsbSettings { threads: 8, ..settings("a", place, RecordKind::Hash) });
    }
}

#[test]
fn all_workloads_on_the_embedded_store() {
    let dir = tempfile::tempdir().unwrap();
    for letter in ["a", "b", "c", "d", "e", "f"] {
        let kind = if letter == "e" { RecordKind::String } else { RecordKind::Hash };
        let place = Place::Embedded(setup(dir.path(), TrackingKind::Barrier));
        let result = measure(&settings(letter, place, kind));
        assert_eq!(result.side.user_bytes_written == 0, letter == "c", "{letter}");
    }
    // Nothing is left behind.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_array_of_records_announced_and_trapped() {
    let dir = tempfile::tempdir().unwrap();
    for tracking in [TrackingKind::Barrier, TrackingKind::Trap(TrapKind::Auto)] {
        for letter in ["a", "d"] {
            let place = Place::Array(setup(dir.path(), tracking));
            let result = measure(&settings(letter, place, RecordKind::Hash));
            let causes = result.causes.unwrap();
            let traps = tracking != TrackingKind::Barrier;
            assert_eq!(result.side.traps > Some(0), traps);
            assert_eq!(causes.trap_ns.is_some_and(|ns| ns > 0.0), traps);
            assert_eq!(causes.modelled_mmu_throughput_ops_per_s.is_some(), traps);
        }
    }
}

#[test]
fn recency_switched_off_protects_nothing_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut setup = setup(dir.path(), TrackingKind::Trap(TrapKind::Auto));
    // Neither checkpoints nor cleaning protect any page: all data fit, and more than half of the
    // budget is used. Not all of the memory may be dirty, so recency could be of use.
    setup.memory_bytes = Some(8 << 20);
    let mut settings = settings("a", Place::Array(setup), RecordKind::Hash);
    settings.side.checkpoint_every = None;
    settings.side.budget = BudgetShare::Percent(150.0);
    settings.ablate_recency = true;
    // Long enough for epochs to end.
    settings.think = Duration::from_micros(20);
    let result = measure(&settings);
    assert!(result.side.reprotections > Some(0));
    let without = result.without_recency.unwrap();
    assert_eq!(without.reprotections, Some(0), "{without:?}");
    assert!(result.causes.unwrap().without_recency_ratio.is_some());
}

#[test]
fn with_a_rate_latencies_run_from_the_intended_start() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::Embedded(setup(dir.path(), TrackingKind::Barrier));
    let mut settings = settings("c", place, RecordKind::Hash);
    settings.rate = Some(20_000.0);
    // Each operation takes longer than the rate leaves for it, so they fall behind more and more.
    settings.think = Duration::from_micros(150);
    settings.quota = Quota::Operations(OPERATIONS);
    let result = measure(&settings);
    let (latency, service) = (result.side.latency_ns["read"], result.side.service_ns["read"]);
    assert!(latency.p50 > 10 * service.p50, "{latency:?} {service:?}");
    // The same with a time instead of a number of operations.
    settings.quota = Quota::Time(Duration::from_millis(200));
    settings.think = Duration::ZERO;
    let result = run(&settings, &|_, _, _| ()).unwrap();
    assert!(result.side.operations > 1000, "{}", result.side.operations);
    assert!(result.side.operations < 8000, "{}", result.side.operations);
}

#[test]
fn a_sweep_has_its_points_its_causes_and_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::Embedded(setup(dir.path(), TrackingKind::Barrier));
    let settings = SweepSettings {
        base: settings("a", place, RecordKind::Hash),
        workloads: ["a", "d"].into_iter().map(|letter| Workload::parse(letter).unwrap()).collect(),
        budgets: vec![11.0, 100.0],
        larger_records: Some(2 * RECORDS),
    };
    let result = sweep(&settings, &|_, _, _| ()).unwrap();
    assert_eq!(result.failures(), 0);
    assert_eq!((result.points.len(), result.larger.len(), result.causes.len()), (4, 1, 2));
    let page = page(&result);
    for wanted in ["figure 7", "figure 8", "figure 9", "figure 10", "section 6.3"] {
        assert!(page.contains(wanted), "{wanted}");
    }
}
