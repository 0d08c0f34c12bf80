//! A search for the numbers that fit best: one number at a time, by steps that become smaller.

use perdura_media::System;
use perdura_media::profile::Server;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::super::reference::published::PublishedCell;
use super::{SEARCH_ACCESSES, errors, knobs, with_server};

/// Settings of a search.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// Rounds; in each of them every number is tried once, up and down.
    pub rounds: usize,
    /// First step, as a share of a number.
    pub first_step: f64,
    /// Seed that gives the order of the numbers.
    pub seed: u64,
}

/// Error (logarithm) from which on a cell counts more.
const FAR: f64 = 0.22;
const FAR_COUNTS: f64 = 0.06;
/// Largest error that a cell may count: a cell that the rule cannot show must not bend the rest.
const FARTHEST: f64 = 1.2;
/// Weight of the peaks of plain patterns, by which systems are compared.
const PEAK_COUNTS: f64 = 4.0;

/// The numbers of a system's server that fit these cells best, starting from its own. `told` is
/// called with each round's number and score.
pub fn search(
    system: &System,
    cells: &[PublishedCell],
    search: Search,
    told: &dyn Fn(usize, f64),
) -> Option<Server> {
    let fitted: Vec<&PublishedCell> = cells.iter().filter(|cell| !cell.is_held_out).collect();
    let weights: Vec<f64> = fitted.iter().map(|cell| weight(cell, &fitted)).collect();
    let score = |server: &Server| {
        let errors = errors(&with_server(system, server.clone()), &fitted, SEARCH_ACCESSES);
        let one = |(error, weight): (&f64, &f64)| {
            let far = if error.abs() > FAR { FAR_COUNTS } else { 0.0 };
            weight * (error.abs().min(FARTHEST) + far)
        };
        errors.iter().zip(&weights).map(one).sum::<f64>() / weights.iter().sum::<f64>()
    };
    let mut best = system.server.clone()?;
    let mut best_score = score(&best);
    let mut knobs = knobs(&best);
    let mut steps = vec![search.first_step; knobs.len()];
    let mut random = Xoshiro256PlusPlus::seed_from_u64(search.seed);
    for round in 0..search.rounds {
        let mut order: Vec<usize> = (0..knobs.len()).collect();
        order.shuffle(&mut random);
        for which in order {
            let step = &mut steps[which];
            let mut is_better = false;
            for factor in [1.0 + *step, 1.0 / (1.0 + *step)] {
                let mut tried = best.clone();
                let Some(value) = (knobs[which].of)(&mut tried) else { continue };
                *value = rounded(*value * factor);
                let found = score(&tried);
                if found < best_score {
                    (best, best_score, is_better) = (tried, found, true);
                    break;
                }
            }
            *step *= if is_better { GROWS } else { SHRINKS };
        }
        told(round, best_score);
    }
    knobs.clear();
    Some(best)
}

const GROWS: f64 = 1.3;
const SHRINKS: f64 = 0.6;

/// The value to four digits, as profiles have it.
fn rounded(value: f64) -> f64 {
    let scale = 10_f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

fn weight(cell: &PublishedCell, all: &[&PublishedCell]) -> f64 {
    let is_plain = cell.name.starts_with("random_") || cell.name.starts_with("sequential_");
    let own = all.iter().filter(|other| other.name == cell.name);
    let highest = own.map(|other| other.published).fold(0.0, f64::max);
    if is_plain && cell.published > 0.95 * highest { PEAK_COUNTS } else { 1.0 }
}
