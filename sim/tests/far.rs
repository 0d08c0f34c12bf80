//! Losses of a store whose values lie on several devices.
#![allow(clippy::unwrap_used)] // a test's own failure

use perdura_region::Planted;
use perdura_sim::far::{Shown, life};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

#[test]
fn no_loss_at_any_durable_call_of_any_device_loses_a_value() {
    let mut all = Shown::default();
    for seed in 0..number("PERDURA_SEEDS").unwrap_or(4) {
        let shown = life(seed, 200, Planted::None).unwrap_or_else(|why| panic!("{why}"));
        all.copies += shown.copies;
        all.moved += shown.moved;
        all.moved_on += shown.moved_on;
        all.emptied += shown.emptied;
        all.span_bytes += shown.span_bytes;
        all.activations += shown.activations;
        all.failed += shown.failed;
        all.kept += shown.kept;
    }
    println!("{all:?}");
    // The lives must have shown what they are for.
    assert!(all.span_bytes > 1 << 20, "{all:?}");
    assert!(all.activations > 5 && all.failed > 2 && all.kept > 10, "{all:?}");
    assert!(
        all.copies > 400 && all.moved > 100 && all.moved_on > 10 && all.emptied > 10,
        "{all:?}"
    );
}

#[test]
fn each_planted_bug_is_caught() {
    for bug in Planted::FAR {
        let caught = (0..12).find_map(|seed| life(seed, 200, bug).err());
        println!("{}: {caught:?}", bug.name());
        assert!(caught.is_some(), "{} is not caught", bug.name());
    }
}

#[test]
fn replay_one_life_from_the_environment() {
    if let Some(seed) = number("PERDURA_SEED") {
        life(seed, 200, Planted::None).unwrap_or_else(|why| panic!("{why}"));
    }
}
