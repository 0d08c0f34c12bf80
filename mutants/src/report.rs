//! What became of the mutants, counted, and the list of those that no test caught.

use crate::compile::Built;
use crate::hunt::{Fate, Hunted};
use crate::list::Mutant;

/// Prints the survivors, then the numbers.
pub fn print(built: &Built, mutants: &[Mutant], found: &[Hunted]) {
    let mut survivors: Vec<(&str, &Fate)> = found
        .iter()
        .filter(|one| !one.fate.is_caught())
        .map(|one| (one.name.as_str(), &one.fate))
        .collect();
    survivors.sort_by_key(|(name, _)| *name);
    for (name, fate) in &survivors {
        println!("{fate}: {name}");
    }
    let count = |is: fn(&Fate) -> bool| found.iter().filter(|one| is(&one.fate)).count();
    let late = count(|fate| matches!(fate, Fate::Late { .. }));
    let unreached = count(|fate| matches!(fate, Fate::Unreached));
    let cpu: u64 = found.iter().map(|one| one.cpu_ms).sum();
    let (hunted, missed) = (found.len(), survivors.len());
    let share = 100.0 * (hunted - missed) as f64 / hunted.max(1) as f64;
    println!("{} mutants: {} do not compile, ", mutants.len(), built.refused.len());
    println!("  {} lie in constants and have no switch,", built.left_out.len());
    println!(
        "  {hunted} were run: {} caught ({share:.1} %, {late} by a test that did not end),",
        hunted - missed
    );
    println!("  {missed} not ({unreached} of them reached by no test); {} CPU s", cpu / 1000);
}
