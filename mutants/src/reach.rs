//! Runs each test alone, without a mutant, and notes which mutants' places it reaches.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::compile::{Built, Program};
use crate::list::{self, Mutant};
use crate::test::{self, End, Limits, Test, in_threads, locked};

/// The longest that one test may run without a mutant.
const LONGEST: Duration = Duration::from_secs(400);

/// Runs all tests that were not run yet, or that reached a function that is no more as it was,
/// several at once, and keeps what was found in `path`.
pub fn reach(built: &Built, mutants: &[Mutant], path: &Path, threads: usize) -> Result<Vec<Test>> {
    let mut known: Vec<Test> = if path.exists() { list::read(path)? } else { Vec::new() };
    let keys: HashSet<u64> = mutants.iter().map(|mutant| mutant.key).collect();
    // A test that failed, as one may beside other work, is tried again.
    known.retain(|test| test.passed && test.reached.iter().all(|key| keys.contains(key)));
    let (mut waiting, mut all) = (Vec::new(), HashSet::new());
    for program in &built.programs {
        for name in test::names(program)? {
            all.insert((program.name.clone(), name.clone()));
            if !known.iter().any(|test| test.program == program.name && test.name == name) {
                waiting.push((program, name));
            }
        }
    }
    known.retain(|test| all.contains(&(test.program.clone(), test.name.clone())));
    eprintln!("{} tests known, {} to run", known.len(), waiting.len());
    let (found, waiting) = (Mutex::new(known), Mutex::new(waiting.into_iter()));
    let work = |thread: usize| -> Result<()> {
        while let Some((program, name)) = locked(&waiting)?.next() {
            let test = one(program, mutants, name, thread)?;
            let mut found = locked(&found)?;
            found.push(test);
            if found.len().is_multiple_of(20) {
                list::write(path, &*found)?;
                eprintln!("{} tests", found.len());
            }
        }
        Ok(())
    };
    in_threads(threads, work)?;
    let found = found.into_inner().map_err(|_| anyhow!("a thread panicked"))?;
    list::write(path, &found)?;
    Ok(found)
}

/// Runs one test.
fn one(program: &Program, mutants: &[Mutant], name: String, thread: usize) -> Result<Test> {
    let record =
        std::env::temp_dir().join(format!("mutants-reached-{}-{thread}", std::process::id()));
    if record.exists() {
        std::fs::remove_file(&record)?;
    }
    let variable = ("MUTANT_REACHED", record.to_str().context("a path that is no text")?);
    let limits = Limits { cpu: LONGEST, wall: LONGEST };
    let done = test::run(program, &[&name], variable, limits)?;
    // A test that reaches no mutant makes no file.
    let bytes = if record.exists() { std::fs::read(&record)? } else { Vec::new() };
    let numbers = bytes.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number));
    let reached: BTreeSet<u64> = numbers.map(|number| mutants[number as usize].key).collect();
    let passed = done.end == End::Passed;
    if !passed {
        eprintln!("fails without a mutant: {name}\n{}", done.output);
    }
    let (cpu_ms, wall_ms) = (done.cpu.as_millis() as u64, done.wall.as_millis() as u64);
    let (program, reached) = (program.name.clone(), reached.into_iter().collect());
    Ok(Test { program, name, cpu_ms, wall_ms, reached, passed })
}
