//! Clients of several loops at the same time: every history is linearizable, and nobody waits for
//! what is there.
#![allow(clippy::unwrap_used)] // a test's own failure

use perdura_region::Planted;
use perdura_sim::history::{Broken, Shown, Wrong, life};

fn variable<T>(name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
    std::env::var(name).ok().map(|value| parse(&value).unwrap_or_else(|| panic!("{name}={value}")))
}

#[test]
fn every_history_of_clients_of_several_loops_is_linearizable() {
    let mut all = Shown::default();
    let seeds = variable("PERDURA_SEEDS", |value| value.parse().ok()).unwrap_or(4);
    for seed in 0..seeds {
        let shown = life(seed, Planted::None).unwrap_or_else(|why| panic!("{why}"));
        all.commands += shown.commands;
        all.histories += shown.histories;
        all.found += shown.found;
        all.late += shown.late;
        all.executed += shown.executed;
        all.stale += shown.stale;
        all.at_rest += shown.at_rest;
    }
    println!("{all:?}");
    // The rounds must have shown what they are for.
    assert!(all.commands > 2000 * seeds && all.histories > 48 * seeds, "{all:?}");
    assert!(all.found > 50 && all.late > 20 && all.at_rest > 5, "{all:?}");
    assert!(all.executed > 100 && all.stale > 20, "{all:?}");
}

#[test]
fn each_planted_bug_is_caught() {
    for bug in Planted::MEETING {
        let caught = (0..20).find_map(|seed| Some((seed, life(seed, bug).err()?)));
        let Some((seed, why)) = caught else { panic!("{} is not caught", bug.name()) };
        println!("{} is caught with seed {seed}: {why}", bug.name());
        let Broken::Round { what, .. } = &why else { panic!("{why}") };
        let is_expected = match bug {
            Planted::ServeOne => matches!(what, Wrong::Missed { .. }),
            _ => matches!(what, Wrong::NotLinearizable { .. }),
        };
        assert!(is_expected, "{}: {why}", bug.name());
        let again = format!("PERDURA_SEED={seed} PERDURA_PLANT={} cargo test", bug.name());
        assert!(why.to_string().contains(&again), "{why}");
    }
}

#[test]
fn one_seed_from_the_environment() {
    let planted = |name: &str| {
        let all = Planted::MEETING.into_iter().chain([Planted::None]);
        all.into_iter().find(|bug| bug.name() == name)
    };
    if let Some(seed) = variable("PERDURA_SEED", |value| value.parse().ok()) {
        let planted = variable("PERDURA_PLANT", planted).unwrap_or_default();
        println!("{:?}", life(seed, planted).unwrap_or_else(|why| panic!("{why}")));
    }
}
