//! Compares the queues with naive ones that search lists.

use std::collections::BTreeSet;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::*;

/// The oracle, made of two lists and two sets.
struct Naive {
    cap: usize,
    mapped_max: usize,
    mapped: Vec<Unit>,
    inactive: Vec<Unit>,
    dirty: BTreeSet<Unit>,
    stored: BTreeSet<Unit>,
}

impl Naive {
    /// The action that a touch needs, and the unit that is inactive afterwards instead. The touched
    /// unit has arrived on return.
    fn touched(&mut self, unit: Unit, is_store: bool) -> (Touched, Option<Unit>) {
        let was_dirty = self.dirty.contains(&unit);
        let outcome = if self.mapped.contains(&unit) {
            match is_store && !was_dirty {
                true => Touched::Dirtied,
                false => Touched::Present { is_dirty: was_dirty },
            }
        } else if self.inactive.contains(&unit) {
            self.inactive.retain(|other| *other != unit);
            let to_deactivate = self.enter(unit);
            Touched::Reactivated { is_dirty: was_dirty || is_store, to_deactivate }
        } else {
            let victim = (self.mapped.len() + self.inactive.len() == self.cap).then(|| {
                let is_mapped = self.inactive.is_empty();
                let queue = if is_mapped { &mut self.mapped } else { &mut self.inactive };
                let unit = queue.remove(0);
                let parting = match self.dirty.remove(&unit) {
                    true => Parting::Write,
                    false if self.stored.contains(&unit) => Parting::Nothing,
                    false => Parting::GiveUp,
                };
                if parting == Parting::Write {
                    self.stored.insert(unit);
                }
                Victim { unit, is_mapped, parting }
            });
            Touched::Missed { victim, is_stored: self.stored.contains(&unit) }
        };
        if is_store {
            self.dirty.insert(unit);
        }
        let to_deactivate = match outcome {
            Touched::Missed { .. } => self.enter(unit),
            _ => None,
        };
        (outcome, to_deactivate)
    }

    fn enter(&mut self, unit: Unit) -> Option<Unit> {
        self.mapped.push(unit);
        let to_deactivate = (self.mapped.len() > self.mapped_max).then(|| self.mapped.remove(0));
        self.inactive.extend(to_deactivate);
        to_deactivate
    }

    fn forget(&mut self, unit: Unit) {
        self.mapped.retain(|other| *other != unit);
        self.inactive.retain(|other| *other != unit);
        self.dirty.remove(&unit);
        self.stored.remove(&unit);
    }
}

/// Compares the queues and the oracle over a random sequence of touches.
fn agrees(seed: u64, planted: PlantedPaging) -> Result<(), String> {
    let mut random = Random::seed_from_u64(seed);
    let cap = random.random_range(1..12);
    let inactive_max = random.random_range(0..cap);
    let units = random.random_range(1..3 * cap + 2);
    let mut residents = Residents::new(units, cap, inactive_max, planted);
    let mut naive = Naive {
        cap: cap as usize,
        mapped_max: (cap - inactive_max) as usize,
        mapped: vec![],
        inactive: vec![],
        dirty: BTreeSet::new(),
        stored: BTreeSet::new(),
    };
    for step in 0..600 {
        let unit = random.random_range(0..units);
        if random.random_range(0..20) == 0 {
            assert!(residents.forget(unit));
            naive.forget(unit);
            continue;
        }
        let is_store = random.random();
        let touched = residents.touched(unit, is_store);
        let mut to_deactivate = None;
        if let Touched::Missed { victim, .. } = touched {
            assert_eq!(residents.touched(unit, is_store), Touched::Busy, "seed {seed}");
            if let Some(victim) = victim.filter(|victim| victim.parting != Parting::Nothing) {
                assert_eq!(residents.touched(victim.unit, false), Touched::Busy, "seed {seed}");
                residents.left(victim.unit);
            }
            to_deactivate = residents.arrived(unit, is_store);
        }
        let expected = naive.touched(unit, is_store);
        if (touched, to_deactivate) != expected {
            return Err(format!(
                "seed {seed}, step {step}: {touched:?} {to_deactivate:?}, {expected:?}"
            ));
        }
        assert!(residents.resident() <= cap, "seed {seed}");
        let place = residents.place(unit);
        assert_eq!(place == Place::Inactive, naive.inactive.contains(&unit), "seed {seed}");
    }
    Ok(())
}

#[test]
fn it_does_what_a_naive_queue_does() {
    for seed in 0..400 {
        agrees(seed, PlantedPaging::None).unwrap();
    }
}

#[test]
fn each_planted_bug_is_caught() {
    for planted in [PlantedPaging::ForgetDirtyVictim, PlantedPaging::ReactivateAsClean] {
        let caught = (0..400).filter(|seed| agrees(*seed, planted).is_err()).count();
        assert!(caught > 0, "{planted:?} was not caught");
    }
}

#[test]
fn when_all_of_dram_is_moving_others_wait() {
    let mut residents = Residents::new(4, 2, 0, PlantedPaging::None);
    assert!(matches!(residents.touched(0, true), Touched::Missed { victim: None, .. }));
    assert!(matches!(residents.touched(1, true), Touched::Missed { victim: None, .. }));
    assert_eq!(residents.touched(2, false), Touched::Busy);
    assert!(!residents.forget(0));
    residents.arrived(0, true);
    let Touched::Missed { victim: Some(victim), is_stored: false } = residents.touched(2, false)
    else {
        panic!("unit 0 should have gone");
    };
    assert_eq!(victim, Victim { unit: 0, is_mapped: true, parting: Parting::Write });
}
