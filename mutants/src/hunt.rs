//! Turns one mutant after another on, and runs the tests that reach it until one fails.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};

use crate::compile::{Built, Program};
use crate::list::{self, Mutant};
use crate::test::{self, End, Limits, Test, in_threads, locked};

/// Processor time of the first tests that are run for a mutant, milliseconds.
const FIRST_BATCH_MS: u64 = 100;
/// What a test costs at least, milliseconds.
const START_MS: u64 = 10;

/// What became of a mutant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// One of these tests failed.
    Caught { by: Vec<String> },
    /// One of these tests did not end.
    Late { by: Vec<String> },
    /// All tests that reach it, or as many as fit the time, passed.
    Survived { ran: usize, of: usize },
    /// No test reaches it.
    Unreached,
}

/// One finished hunt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hunted {
    /// The mutant's key.
    pub key: u64,
    pub name: String,
    pub fate: Fate,
    pub cpu_ms: u64,
    /// The bound that was set for the tests, milliseconds.
    pub most_ms: u64,
}

impl Fate {
    /// Whether a test failed, or did not end.
    pub fn is_caught(&self) -> bool {
        matches!(self, Self::Caught { .. } | Self::Late { .. })
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught { by } => write!(f, "caught by {}", by.join(", ")),
            Self::Late { by } => write!(f, "not ended in {}", by.join(", ")),
            Self::Survived { ran, of } => write!(f, "survived {ran} of {of} tests"),
            Self::Unreached => write!(f, "reached by no test"),
        }
    }
}

/// A hunt's mutants and tests.
pub struct Hunt<'h> {
    pub built: &'h Built,
    pub mutants: &'h [Mutant],
    pub tests: &'h [Test],
    /// Tests of other rooms, and of those whose own tests take minutes, are run until their times
    /// add up to this.
    pub most: Duration,
}

impl Hunt<'_> {
    /// Hunts the mutants `numbers`, several at once, and keeps the fates in `path`. Survivors are
    /// hunted again first, if there are tests that they have not met.
    pub fn run(&self, numbers: Vec<u32>, path: &Path, threads: usize) -> Result<Vec<Hunted>> {
        let mut known: Vec<Hunted> = if path.exists() { list::read(path)? } else { Vec::new() };
        let is_mutant = |key: u64| self.mutants.iter().any(|mutant| mutant.key == key);
        known.retain(|one| is_mutant(one.key));
        let again: HashSet<u64> =
            known.iter().filter(|one| self.may_end_otherwise(one)).map(|one| one.key).collect();
        known.retain(|one| !again.contains(&one.key));
        let is_known: HashSet<u64> = known.iter().map(|one| one.key).collect();
        let key = |number: &u32| self.mutants[*number as usize].key;
        let mut waiting = numbers;
        waiting.retain(|number| !is_known.contains(&key(number)));
        waiting.sort_by_key(|number| !again.contains(&key(number)));
        eprintln!(
            "{} mutants known, {} to hunt, {} of them again",
            known.len(),
            waiting.len(),
            again.len()
        );
        // The tests that caught mutants of the same function are tried first, and then those that
        // caught most for their time.
        let killers: Mutex<HashMap<String, Vec<usize>>> = Mutex::default();
        let catches = Mutex::new(catches(&known));
        let (found, waiting) = (Mutex::new(known), Mutex::new(waiting.into_iter()));
        let work = || -> Result<()> {
            while let Some(number) = locked(&waiting)?.next() {
                let place = self.place_of(number);
                let first = locked(&killers)?.get(&place).cloned().unwrap_or_default();
                let catches_now = locked(&catches)?.clone();
                let (hunted, by) = self.one(number, &first, &catches_now)?;
                count_catches(&mut *locked(&catches)?, &hunted);
                if let Some(by) = by.filter(|by| !first.contains(by)) {
                    locked(&killers)?.entry(place).or_default().push(by);
                }
                if !matches!(hunted.fate, Fate::Caught { .. }) {
                    eprintln!("{}: {}", hunted.fate, hunted.name);
                }
                let mut found = locked(&found)?;
                found.push(hunted);
                if found.len().is_multiple_of(10) {
                    list::write(path, &*found)?;
                }
            }
            Ok(())
        };
        in_threads(threads, |_| work())?;
        let found = found.into_inner().map_err(|_| anyhow!("a thread panicked"))?;
        list::write(path, &found)?;
        Ok(found)
    }

    /// Whether a survivor has not met all tests that it would meet now.
    fn may_end_otherwise(&self, hunted: &Hunted) -> bool {
        let now = self.tests.iter().filter(|test| is_reached(test, hunted.key)).count();
        match hunted.fate {
            Fate::Caught { .. } | Fate::Late { .. } => false,
            Fate::Survived { ran, of } => of != now || ran < of && hunted.most_ms < self.most_ms(),
            Fate::Unreached => now > 0,
        }
    }

    fn most_ms(&self) -> u64 {
        self.most.as_millis() as u64
    }

    fn program_of(&self, test: &Test) -> Option<&Program> {
        self.built.programs.iter().find(|program| program.name == test.program)
    }

    /// The function of a mutant, in whose other mutants it is like.
    fn place_of(&self, number: u32) -> String {
        let mutant = &self.mutants[number as usize];
        let name = mutant.function.as_ref().map_or("", |function| &function.function_name);
        format!("{}:{name}", mutant.file)
    }

    /// Hunts one mutant; returns also the test that caught it.
    fn one(
        &self,
        number: u32,
        first: &[usize],
        catches: &HashMap<String, u64>,
    ) -> Result<(Hunted, Option<usize>)> {
        let tests = self.tests;
        let mutant = &self.mutants[number as usize];
        let mut order: Vec<usize> =
            (0..tests.len()).filter(|index| is_reached(&tests[*index], mutant.key)).collect();
        // A test beside the code is worth two of the rooms above.
        let room = mutant.file.split('/').next().unwrap_or_default();
        let is_own = |test: &Test| test.program.split(':').next() == Some(room);
        order.sort_by_key(|index| {
            let test = &tests[*index];
            let weight = if is_own(test) { 1 } else { 2 };
            let caught = 1 + catches.get(&test.name).copied().unwrap_or_default();
            (!first.contains(index), (START_MS + test.cpu_ms) * weight / caught)
        });
        let of = order.len();
        let (most_ms, mut sum) = (self.most_ms(), 0);
        order.retain(|index| {
            let test = &tests[*index];
            let is_dear = !is_own(test) || room == "region" || room == "heap";
            sum += if is_dear { test.cpu_ms } else { 0 };
            sum <= most_ms
        });
        let (key, name) = (mutant.key, mutant.name.clone());
        let mut hunted = Hunted { key, name, fate: Fate::Unreached, cpu_ms: 0, most_ms };
        if of == 0 {
            return Ok((hunted, None));
        }
        let (mut ran, mut bound) = (0, FIRST_BATCH_MS);
        while ran < order.len() {
            // More and more tests at once; those of one program in one process.
            let (mut batch, mut cost) = (Vec::new(), 0);
            while ran < order.len() && (batch.is_empty() || cost < bound) {
                cost += tests[order[ran]].cpu_ms + START_MS;
                batch.push(order[ran]);
                ran += 1;
            }
            bound *= 2;
            batch.sort_by_key(|index| &tests[*index].program);
            for group in batch.chunk_by(|a, b| tests[*a].program == tests[*b].program) {
                let (fate, cpu) = self.run_group(number, group)?;
                hunted.cpu_ms += cpu;
                if let Some(fate) = fate {
                    let by = group.iter().find(|at| match &fate {
                        Fate::Caught { by } | Fate::Late { by } => by.contains(&tests[**at].name),
                        _ => false,
                    });
                    hunted.fate = fate;
                    return Ok((hunted, by.copied()));
                }
            }
        }
        hunted.fate = Fate::Survived { ran, of };
        Ok((hunted, None))
    }

    /// Runs tests of one program. Returns the mutant's fate, if they decide it, and the time.
    fn run_group(&self, number: u32, group: &[usize]) -> Result<(Option<Fate>, u64)> {
        let names: Vec<&str> = group.iter().map(|at| self.tests[*at].name.as_str()).collect();
        let cpu: u64 = group.iter().map(|at| self.tests[*at].cpu_ms).sum();
        let wall: u64 = group.iter().map(|at| self.tests[*at].wall_ms).sum();
        let limits = Limits {
            cpu: Duration::from_millis(5_000 + cpu * 10),
            wall: Duration::from_millis(30_000 + wall * 40),
        };
        let program = self.program_of(&self.tests[group[0]]).context("a test of no program")?;
        let done = test::run(program, &names, ("MUTANT", &number.to_string()), limits)?;
        let failed = |name: &&&str| done.output.contains(&format!("test {name} ... FAILED"));
        let owned = |name: &&str| (*name).to_owned();
        let failed: Vec<String> = names.iter().filter(failed).map(owned).collect();
        let all = || names.iter().map(owned).collect();
        let fate = match done.end {
            End::Passed => None,
            // The whole program ended, before it could say which test.
            End::Failed if failed.is_empty() => Some(Fate::Caught { by: all() }),
            End::Failed => Some(Fate::Caught { by: failed }),
            End::Late => Some(Fate::Late { by: all() }),
        };
        Ok((fate, done.cpu.as_millis() as u64))
    }
}

/// Whether a test, which passes without a mutant, reaches the place of one.
fn is_reached(test: &Test, key: u64) -> bool {
    test.passed && test.reached.binary_search(&key).is_ok()
}

/// How many mutants each test has caught.
fn catches(known: &[Hunted]) -> HashMap<String, u64> {
    let mut catches = HashMap::new();
    known.iter().for_each(|one| count_catches(&mut catches, one));
    catches
}

fn count_catches(catches: &mut HashMap<String, u64>, hunted: &Hunted) {
    if let Fate::Caught { by } = &hunted.fate {
        for name in by {
            *catches.entry(name.clone()).or_default() += 1;
        }
    }
}
