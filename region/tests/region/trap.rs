//! Regions that trap stores: the budget proven from outside, cuts, recovery and recency.

use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::*;
use perdura_media::file::{Direct, Engine, FileDevice, OpenMode};
use perdura_media::sim::SimDevice;
use perdura_media::{Device, RealClock};
use perdura_region::{
    Config, OpenError, Origin, Planted, PolicyKind, Region, SetupError, TrackingKind, TrapKind,
};

#[test]
fn what_is_not_on_the_device_is_in_the_ledger_and_fits_the_budget() {
    for kind in modes() {
        let mut device = SimDevice::new(0, 1);
        let mut region = open(&device, config(kind));
        let mut dirty_pages = 0;
        for round in 0..6 {
            std::thread::scope(|scope| {
                scope.spawn(|| storm(&region, round, 3, 3_000));
                for _ in 0..round {
                    region.checkpoint().unwrap();
                }
            });
            assert!(region.used_bytes_max() <= BUDGET_BYTES, "{kind:?}");
            let before = memory(&region);
            let fds = kill(region);
            let copy = Arc::new(device.power_cycle(round));
            let dirty = prove(&fds, copy, config(kind), BUDGET_BYTES)
                .unwrap_or_else(|why| panic!("{kind:?}, round {round}: {why}"));
            dirty_pages += dirty;
            device = device.power_cycle(round + 100);
            let (clock, shared) = (Arc::new(RealClock), Arc::new(device.clone()));
            region = Region::attach(fds.0, fds.1, shared, clock, config(kind)).unwrap();
            assert_eq!(region.origin(), Origin::Attached);
            assert!(memory(&region) == before, "{kind:?}, round {round}: attached memory differs");
        }
        assert!(dirty_pages > 0, "{kind:?}: nothing was ever dirty, nothing was shown");
    }
}

#[test]
fn a_page_opened_before_it_was_entered_is_caught() {
    for kind in modes() {
        let device = SimDevice::new(0, 2);
        let region = open(&device, planted(kind, Planted::OpenBeforeAccounting));
        storm(&region, 2, 2, 1_000);
        let fds = kill(region);
        let copy = Arc::new(device.power_cycle(2));
        let why = prove(&fds, copy, config(kind), BUDGET_BYTES).unwrap_err();
        assert!(why.contains("not in the ledger"), "{kind:?}: {why}");
    }
}

#[test]
fn the_proof_holds_over_a_file() {
    let folder = tempfile::tempdir().unwrap();
    for (index, kind) in modes().into_iter().enumerate() {
        let path = folder.path().join(format!("image-{index}"));
        let at = |path: &std::path::Path, mode| {
            FileDevice::open(path, mode, Engine::Auto, Direct::Auto).unwrap()
        };
        let device = at(&path, OpenMode::Create { capacity_bytes: 1 << 20 });
        let region = open(&device, config(kind));
        std::thread::scope(|scope| {
            scope.spawn(|| storm(&region, 3, 3, 6_000));
            region.checkpoint().unwrap();
        });
        let fds = kill(region);
        drop(device);
        let copy = folder.path().join(format!("copy-{index}"));
        std::fs::copy(&path, &copy).unwrap();
        let device: Arc<dyn Device> = Arc::new(at(&copy, OpenMode::Existing));
        prove(&fds, device, config(kind), BUDGET_BYTES).unwrap();
    }
}

#[test]
fn a_budget_cut_in_half_under_load_is_kept() {
    for kind in modes() {
        let device = SimDevice::new(0, 4);
        let region = open(&device, config(kind));
        std::thread::scope(|scope| {
            let writers = scope.spawn(|| storm(&region, 4, 3, 4_000));
            while region.used_bytes() < BUDGET_BYTES / 4 * 3 && !writers.is_finished() {
                std::thread::yield_now();
            }
            region.set_budget(BUDGET_BYTES / 2).unwrap();
            assert!(region.used_bytes() <= BUDGET_BYTES / 2);
        });
        assert_eq!(region.budget_bytes(), BUDGET_BYTES / 2);
        assert!(region.used_bytes_max() <= BUDGET_BYTES / 2, "{kind:?}");
        let fds = kill(region);
        let copy = Arc::new(device.power_cycle(4));
        prove(&fds, copy, config(kind), BUDGET_BYTES / 2).unwrap();
    }
}

#[test]
fn memory_is_the_same_after_close_and_reopen() {
    for kind in modes() {
        let device = SimDevice::new(0, 5);
        let region = open(&device, config(kind));
        storm(&region, 5, 3, 4_000);
        let last = memory(&region);
        region.close(2).unwrap();
        drop(region);
        let region = open(&device.power_cycle(5), config(kind));
        assert!(matches!(region.origin(), Origin::Recovered { was_final: true, .. }));
        assert!(memory(&region) == last, "{kind:?}");
        assert!(region.stats().dirtied_bytes == 0);
    }
}

/// The whole of what a region grew by is tracked, and nothing else changes.
#[test]
fn what_is_written_where_a_region_grew_is_tracked_and_kept() {
    for kind in modes() {
        let device = SimDevice::new(0, 9);
        let small = Config { region_bytes: REGION_BYTES / 2, ..config(kind) };
        let region = open(&device, small.clone());
        let base = region.trapped().unwrap().as_ptr() as usize;
        store(base, 0, 1);
        region.checkpoint().unwrap();
        region.grow(REGION_BYTES).unwrap();
        let before = region.used_bytes();
        let grown = [REGION_BYTES / 2, REGION_BYTES / 2 + 7 * PAGE, REGION_BYTES - PAGE];
        grown.iter().for_each(|offset| store(base, *offset, offset + 1));
        store(base, 0, 2);
        assert_eq!(region.used_bytes() - before, 4 * PAGE, "{kind:?}");
        region.close(1).unwrap();
        drop(region);
        let region = open(&device.power_cycle(9), small);
        let base = region.trapped().unwrap().as_ptr() as usize;
        assert_eq!(load(base, 0), 2, "{kind:?}");
        grown.iter().for_each(|offset| assert_eq!(load(base, *offset), offset + 1, "{kind:?}"));
    }
}

/// A writer raises 16 counters on 16 pages one after another, and a second writer copies the last
/// counter. In a consistent cut, no counter is ahead of the one before it.
#[test]
fn a_checkpoint_under_load_is_a_consistent_cut() {
    const CHAIN: u64 = 16;
    for kind in modes() {
        for seed in 0..6 {
            let device = SimDevice::new(0, seed);
            let region = open(&device, config(kind));
            let base = region.trapped().unwrap().as_ptr() as usize;
            let place = |chain: u64, link: u64| ((link * 61 + chain * 7 + seed) % 1024) * PAGE;
            let (stop, laps) = (AtomicBool::new(false), AtomicU64::new(0));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for lap in 1.. {
                        (0..CHAIN).for_each(|link| store(base, place(0, link), lap));
                        laps.store(lap, Ordering::Relaxed);
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                });
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let seen = load(base, place(0, CHAIN - 1));
                        std::sync::atomic::fence(Ordering::SeqCst);
                        (0..CHAIN).for_each(|link| store(base, place(1, link), seen));
                    }
                });
                for _ in 0..=seed {
                    let before = laps.load(Ordering::Relaxed);
                    while laps.load(Ordering::Relaxed) < before + 20 {
                        std::thread::yield_now();
                    }
                    region.checkpoint().unwrap();
                }
                stop.store(true, Ordering::Relaxed);
            });
            drop(region);
            let region = open(&device.power_cycle(seed), config(kind));
            let base = region.trapped().unwrap().as_ptr() as usize;
            let read =
                |chain| (0..CHAIN).map(|link| load(base, place(chain, link))).collect::<Vec<_>>();
            let chains = [read(0), read(1)];
            for values in &chains {
                assert!(values.is_sorted_by(|a, b| a >= b), "{kind:?}, seed {seed}: {values:?}");
            }
            assert!(chains[0][0] > 0 && chains[0][0] - chains[0][15] <= 1, "{chains:?}");
            assert!(chains[1][0] <= chains[0][15], "{kind:?}, seed {seed}: {chains:?}");
        }
    }
}

#[test]
fn threads_that_fault_on_one_page_pay_once() {
    for kind in modes() {
        let region = open(&SimDevice::new(0, 6), config(kind));
        let base = region.trapped().unwrap().as_ptr() as usize;
        for page in 0..20 {
            let start = Barrier::new(4);
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        store(base, page * PAGE + thread * 8, 1);
                    });
                }
            });
            assert_eq!(region.stats().dirtied_bytes, (page + 1) * PAGE, "{kind:?}");
            assert_eq!(region.used_bytes(), (page + 1) * PAGE, "{kind:?}");
        }
    }
}

#[test]
fn another_grain_size_is_refused() {
    let device = SimDevice::new(0, 7);
    drop(open(&device, config(TrapKind::Auto)));
    let barrier = Config { tracking: TrackingKind::Barrier, ..config(TrapKind::Auto) };
    let opened = Region::open(Arc::new(device), Arc::new(RealClock), barrier.clone());
    assert!(matches!(opened, Err(OpenError::Grain { image_bytes: 4096, mode_bytes: 64 })));
    let region = open(&SimDevice::new(0, 8), barrier);
    assert!(region.trapped().is_none());
    assert!(region.describe_tracking().starts_with("barrier"));
}

#[test]
fn auto_says_what_it_chose_and_why() {
    let region = open(&SimDevice::new(0, 9), config(TrapKind::Auto));
    let told = region.describe_tracking();
    assert!(told.contains("first choice") || told.contains("was refused"), "{told}");
    let region = open(&SimDevice::new(0, 9), config(TrapKind::Mprotect));
    assert_eq!(region.describe_tracking(), "trap by mprotect and SIGSEGV: as configured");
    let without = Config { thread: false, ..config(TrapKind::Auto) };
    let opened = Region::open(Arc::new(SimDevice::new(0, 9)), Arc::new(RealClock), without);
    assert!(matches!(opened, Err(OpenError::Setup(SetupError::Setting { name: "thread", .. }))));
}

/// Writes more isolated pages than the kernel has mappings for: stores go on, because pages are
/// closed in between.
#[test]
fn mprotect_keeps_its_open_pages_below_the_mapping_limit() {
    let region_bytes = 320u64 << 20;
    let device = SimDevice::new(0, 10);
    let config = Config {
        region_bytes,
        reserved_bytes: Some(region_bytes),
        budget_bytes: region_bytes,
        segment_bytes: None,
        ..config(TrapKind::Mprotect)
    };
    let region = open(&device, config);
    let base = region.trapped().unwrap().as_ptr() as usize;
    let pages = region_bytes / PAGE / 2;
    (0..pages).for_each(|page| store(base, page * 2 * PAGE, page + 1));
    assert!((0..pages).all(|page| load(base, page * 2 * PAGE) == page + 1));
    assert_eq!(region.stats().dirtied_bytes, pages * PAGE);
    assert!(region.stats().reprotections > 0);
}

/// Makes skewed stores at a small budget: a policy that sees repeated writes dirties fewer pages.
#[test]
fn recency_spares_pages_that_are_written_again() {
    for kind in modes() {
        let dirtied = |policy| {
            let region = open(&SimDevice::new(0, 11), Config { policy, ..config(kind) });
            storm(&region, 11, 2, 12_000);
            let stats = region.stats();
            eprintln!(
                "{kind:?} {}: {} pages dirtied, {} protected again, {} faults, {} epochs, \
                 last {} us",
                policy.name(),
                stats.dirtied_bytes / PAGE,
                stats.reprotections,
                stats.faults,
                stats.epochs,
                stats.epoch_ns_last / 1000
            );
            stats
        };
        for policy in [PolicyKind::LeastRecentlyUpdated, PolicyKind::ClockPro] {
            let stats = dirtied(policy);
            // Some faults must have been on pages that were dirty already.
            assert!(stats.faults > stats.dirtied_bytes / PAGE, "{kind:?}, {}", policy.name());
        }
    }
}
