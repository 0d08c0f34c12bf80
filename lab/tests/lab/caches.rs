//! A small run of the cache experiment: its figures must be consistent and have the paper's
//! direction.

use perdura_lab::caches::estimate::WriteShare;
use perdura_lab::caches::frames::FrameSource;
use perdura_lab::caches::model::{CacheShape, FlushKind, Owner};
use perdura_lab::caches::page::page;
use perdura_lab::caches::result::{CachesResult, LogKind, Step, StepResult};
use perdura_lab::caches::run::{CachesSettings, run};

/// Settings with a small cache, so that a little work is large beside it.
fn settings(uses_frames: bool) -> CachesSettings {
    CachesSettings {
        operations: vec![4_000, 8_000],
        cache: CacheShape { size_bytes: 128 << 10, ways: 8, line_bytes: 64 },
        bucket_bytes: 2 << 20,
        buckets_bytes: vec![64 << 10, 2 << 20],
        heap_bytes: 64 << 20,
        hot_bytes: 64 << 10,
        kept_bytes: 1 << 20,
        placement_bytes: 4 << 20,
        is_timed: !uses_frames,
        uses_frames,
        ..CachesSettings::default()
    }
}

fn step(result: &CachesResult, step: Step) -> &StepResult {
    result.steps.iter().rfind(|found| found.step == step).unwrap()
}

#[test]
fn each_of_the_papers_steps_costs_fewer_misses_than_the_base() {
    let result = run(&settings(false), &|_, _| ()).unwrap();
    assert_eq!(result.frames, FrameSource::Hidden);
    assert_eq!((result.steps.len(), result.alone.len()), (8, 2));
    let (base, caa) = (step(&result, Step::Base), step(&result, Step::Caa));
    let (nvma, hybrid) = (step(&result, Step::Nvma), step(&result, Step::Hybrid));
    let misses = |step: &StepResult| step.modelled.total().misses;
    assert!(misses(nvma) < misses(caa), "a log of allocations against metadata: {result:?}");
    assert!(misses(hybrid) <= misses(nvma), "{} {}", misses(hybrid), misses(nvma));
    let fewer = hybrid.modelled_misses_fewer_percent.unwrap();
    assert!(fewer >= 12.0, "all steps together: {fewer} % fewer");
    assert!(nvma.lines_flushed_per_operation < base.lines_flushed_per_operation);
    // Without frames there are no figures about placement.
    assert!(base.persistent.is_none() && base.breaks_fewer_percent.is_none());
    // The capacity work alone touches nothing persistent but the heap's initial contents.
    for alone in &result.alone {
        let of = |owner| alone.modelled.of(owner).accesses;
        assert_eq!((of(Owner::Log), of(Owner::PersistentData)), (0, 0));
        assert!(of(Owner::CapacityData) > 0);
    }
    assert!(result.steps.iter().all(|step| step.native.is_some()));
}

#[test]
fn a_hybrid_log_is_the_smallest_and_estimates_follow_the_share_of_writes() {
    let result = run(&settings(false), &|_, _| ()).unwrap();
    let log = |kind| result.logs.iter().find(|log| log.log == kind).unwrap();
    let hybrid = log(LogKind::Hybrid).log_bytes_per_changed_byte;
    for other in [LogKind::Words, LogKind::Objects] {
        let other = log(other).log_bytes_per_changed_byte;
        assert!(hybrid < other, "hybrid {hybrid}, other {other}");
    }
    let times = &step(&result, Step::Hybrid).modelled_times;
    let shorter = |writes| times.iter().find(|time| time.writes == writes).unwrap().shorter_percent;
    assert!(shorter(WriteShare::FullWrites) > shorter(WriteShare::OneThird), "{times:?}");
    let page = page(&result);
    assert!(page.contains("</html>") && !page.contains("NaN"));
}

#[test]
fn with_frames_buckets_break_far_less_than_pages_on_demand() {
    let result = run(&settings(true), &|_, _| ()).unwrap();
    if result.frames == FrameSource::Hidden {
        assert!(result.steps.iter().all(|step| step.persistent.is_none()));
        return;
    }
    let fewer = step(&result, Step::Caa).breaks_fewer_percent.unwrap();
    assert!(fewer >= 89.0, "{fewer} % fewer");
}

#[test]
fn modelled_figures_do_not_change_from_run_to_run() {
    let settings = CachesSettings { is_timed: false, flush: FlushKind::Keeps, ..settings(false) };
    let [a, b] = [0, 1].map(|_| run(&settings, &|_, _| ()).unwrap());
    assert_eq!(a.steps, b.steps);
    assert_eq!(a.alone, b.alone);
}
