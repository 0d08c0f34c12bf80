//! Fits the model of a published server to its tables again, and prints the errors of the fit.
//!
//! `cargo run --release -p perdura-lab --example fit_published -- SYSTEM [ROUNDS [STEP [PROFILE]]]`
//! begins with the numbers of the built-in profile, or of the file PROFILE. Without rounds (the
//! default) it prints only the errors. Standard output gets the server's tables for its profile and
//! its part of `fits.toml`, standard error the errors by benchmark and the worst cells. The same
//! input gives the same output.

use std::collections::BTreeMap;

use perdura_lab::access::fit::{
    ACCESSES, Search, error_of, errors, fit, search, text, with_server,
};
use perdura_lab::access::reference::published::{PublishedCell, cells};
use perdura_media::System;

const WORST: usize = 40;
const SEED: u64 = 1;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let name = words.first().ok_or("which system? apache-256, for instance")?;
    let rounds = words.get(1).map_or(Ok(0), |word| word.parse())?;
    let first_step = words.get(2).map_or(Ok(0.1), |word| word.parse())?;
    let mut system = System::find(words.get(3).unwrap_or(name))?;
    let cells = cells(name).ok_or("no table of that system")?;
    if rounds > 0 {
        let told = |round, score| eprintln!("{name}: round {round}: {score:.4}");
        let found = search(&system, &cells, Search { rounds, first_step, seed: SEED }, &told);
        let server = found.ok_or("the profile has no server")?;
        system = with_server(&system, server);
    }
    if let Some(server) = &system.server {
        print!("{}", text(server));
    }
    if let Some(fit) = fit(&system, &cells, ACCESSES) {
        let named = BTreeMap::from([(name, fit)]);
        print!("\n# For fits.toml\n{}", toml::to_string(&named)?);
    }
    let all: Vec<&PublishedCell> = cells.iter().collect();
    let errors = errors(&system, &all, ACCESSES);
    for is_held_out in [false, true] {
        let own = all.iter().zip(&errors).filter(|(cell, _)| cell.is_held_out == is_held_out);
        let own: Vec<f64> = own.map(|(_, error)| *error).collect();
        let within = own.iter().filter(|error| error.abs() < 1.25_f64.ln()).count();
        let which = if is_held_out { "held_out" } else { "fitted" };
        eprintln!("{which}: {:?}, {within} within 25 %", error_of(&own));
    }
    let mut by_name: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (cell, error) in all.iter().zip(&errors) {
        by_name.entry(&cell.name).or_default().push(*error);
    }
    for (name, errors) in by_name {
        eprintln!("{name}: {:?}", error_of(&errors));
    }
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|one, other| errors[*other].abs().total_cmp(&errors[*one].abs()));
    for which in order.into_iter().take(WORST) {
        let PublishedCell { name, configs, published, is_held_out } = all[which];
        let own = &configs[0];
        let what = match &own.custom_operations {
            Some(chain) => chain.to_string(),
            None => format!("{} B, {}", own.access_size, own.persist_instruction.name()),
        };
        let beside: Vec<String> =
            configs[1..].iter().map(|config| format!("{} B", config.access_size)).collect();
        eprintln!(
            "{:5.2} of {published} {name} {what}, {} threads, beside {beside:?}, held out \
             {is_held_out}",
            errors[which].exp(),
            own.number_threads,
        );
    }
    Ok(())
}
