//! A small run of `perdura-lab memory`: its figures must be consistent.

use perdura_bench::dist::Distribution;
use perdura_lab::memory::{self, MemorySettings};
use perdura_media::file::{Direct, Engine};
use perdura_region::{PolicyKind, TrackingKind, TrapKind};

use crate::process::{lab, text};

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

#[test]
fn bare_memory_says_how_far_it_is_from_the_bound() {
    let dir = tempfile::tempdir().unwrap();
    let (json, images) = (dir.path().join("json"), dir.path().join("images"));
    let words =
        ["memory", "--memory", "4MiB", "--stores", "3000", "--rounds", "1", "--sizes", "64,1KiB"];
    let places = ["--dir", images.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let output = lab(&[&words[..], &places, &["--policies", "clock-pro,fifo"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(result["cells"].as_array().unwrap().len(), 2 * 2 * 2 * 2 * 3);
    for (words, expected) in [
        (["--sizes", "100"], "powers of two"),
        (["--memory", "1KiB"], "--memory 1 KiB"),
        (["--policies", "best"], "--policy best"),
        (["--budgets", "x"], "--budgets x"),
    ] {
        let output = lab(&["memory", words[0], words[1]]);
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}
