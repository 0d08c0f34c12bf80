//! Bare memory, small: what a run reports must hang together.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

use perdura_bench::dist::Distribution;
use perdura_lab::memory::{self, MemorySettings};
use perdura_media::file::{Direct, Engine};
use perdura_region::{PolicyKind, TrackingKind, TrapKind};

#[test]
fn bare_memory_beside_its_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let settings = MemorySettings {
        dir: dir.path().to_owned(),
        memory_bytes: 8 << 20,
        stores: 10_000,
        store_bytes: vec![8, 1024, 4096],
        distributions: vec![Distribution::PlainZipfian],
        trackings: vec![TrackingKind::Barrier, TrackingKind::Trap(TrapKind::Auto)],
        policies: vec![PolicyKind::ClockPro, PolicyKind::LeastRecentlyUpdated],
        budgets: vec![5.0, 100.0],
        rounds: 1,
        seed: 5,
        checkpoint_every: None,
        engine: Engine::Auto,
        direct: Direct::Auto,
    };
    let result = memory::run(&settings, &|_, _| ()).unwrap();
    assert_eq!(result.cells.len(), 2 * 2 * 3 * 2);
    for cell in &result.cells {
        assert!(cell.dirty_bytes_max <= cell.budget_bytes, "{cell:?}");
        assert!(cell.perfect_bytes_per_user_byte <= cell.exact_lru_bytes_per_user_byte, "{cell:?}");
        assert_eq!(cell.traps_per_store > 0.0, cell.tracking == "trap", "{cell:?}");
        match cell.budget_percent {
            5.0 if cell.store_bytes == 8 => {
                assert!(cell.over_perfect.is_none_or(|over| over >= 0.99))
            }
            5.0 => assert!(cell.over_perfect.unwrap() >= 0.99, "{cell:?}"),
            _ => assert_eq!(cell.over_perfect, None, "{cell:?}"),
        }
    }
}
