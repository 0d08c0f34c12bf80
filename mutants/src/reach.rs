//! Runs each test alone, without a mutant, and notes which mutants' places it reaches.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::compile::Built;
use crate::list;
use crate::test::{self, End, Limits, Test, in_threads, locked};

/// The longest that one test may run without a mutant.
const LONGEST: Duration = Duration::from_secs(400);

/// Runs all tests that were not run yet, several at once, and keeps what was found in `path`.
pub fn reach(built: &Built, path: &Path, threads: usize) -> Result<Vec<Test>> {
    let known: Vec<Test> = if path.exists() { list::read(path)? } else { Vec::new() };
    let mut waiting = Vec::new();
    for (program, one) in built.programs.iter().enumerate() {
        for name in test::names(one)? {
            if !known.iter().any(|test| test.program == program && test.name == name) {
                waiting.push((program, name));
            }
        }
    }
    eprintln!("{} tests known, {} to run", known.len(), waiting.len());
    let (found, waiting) = (Mutex::new(known), Mutex::new(waiting.into_iter()));
    let work = |thread: usize| -> Result<()> {
        while let Some((program, name)) = locked(&waiting)?.next() {
            let test = one(built, program, name, thread)?;
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
fn one(built: &Built, program: usize, name: String, thread: usize) -> Result<Test> {
    let record =
        std::env::temp_dir().join(format!("mutants-reached-{}-{thread}", std::process::id()));
    if record.exists() {
        std::fs::remove_file(&record)?;
    }
    let variable = ("MUTANT_REACHED", record.to_str().context("a path that is no text")?);
    let limits = Limits { cpu: LONGEST, wall: LONGEST };
    let done = test::run(&built.programs[program], &[&name], variable, limits)?;
    // A test that reaches no mutant makes no file.
    let bytes = if record.exists() { std::fs::read(&record)? } else { Vec::new() };
    let numbers = bytes.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number));
    let reached: BTreeSet<u32> = numbers.collect();
    let passed = done.end == End::Passed;
    if !passed {
        eprintln!("fails without a mutant: {name}\n{}", done.output);
    }
    let (cpu_ms, wall_ms) = (done.cpu.as_millis() as u64, done.wall.as_millis() as u64);
    Ok(Test { program, name, cpu_ms, wall_ms, reached: reached.into_iter().collect(), passed })
}
