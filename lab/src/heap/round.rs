//! The contestants with one number of threads: started, populated, timed in turn, counted.

use std::collections::BTreeMap;
use std::time::Duration;

use super::churn::{Counted, Timed};
use super::contestant::{Measure, Way, Who};
use super::process::Worker;
use super::protocol::{Answer, Memory, Order, Setup};
use super::result::{MemoryFigures, OfThreads, Rival, Spread, median};
use super::{HeapBenchError, HeapSettings, library};

/// The measures in the order of a round: those that are compared follow each other.
const MEASURES: [Measure; 7] = [
    Measure::Pair(Way::Plain),
    Measure::Pair(Way::Strict),
    Measure::Pair(Way::Published),
    Measure::Pair(Way::Reserved),
    Measure::Pair(Way::Transaction),
    Measure::Tx64,
    Measure::Tx4x64,
];

/// All contestants, and their results so far.
#[derive(Default)]
pub struct Field {
    workers: BTreeMap<Who, Worker>,
    missing: BTreeMap<Who, String>,
    rounds: BTreeMap<(Who, Measure), (Vec<f64>, Vec<f64>)>,
    memory: BTreeMap<Who, [Memory; 2]>,
}

impl Field {
    /// Starts a contestant and allocates its objects; a rival that fails is noted as missing.
    pub fn enter(&mut self, settings: &HeapSettings, setup: Setup) -> Result<(), HeapBenchError> {
        let who = setup.who;
        if let (Some((names, package)), None) = (library::names(who), &setup.library) {
            let looked = format!(
                "{} is not installed; on Debian: apt install {package}",
                names.first().copied().unwrap_or_default()
            );
            self.missing.insert(who, looked);
            return Ok(());
        }
        let entered = Worker::start(&settings.worker, &setup).and_then(|mut worker| {
            timed(who, worker.order(&Order::Populate)?)?;
            timed(who, worker.order(&Order::Warm(settings.warm_pairs))?)?;
            Ok(worker)
        });
        match entered {
            Ok(worker) => {
                self.workers.insert(who, worker);
            }
            Err(error) if who.is_rival() => {
                self.missing.insert(who, format!("cannot be measured: {error}"));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A round of all contestants, in reverse order every second time. Round 0 is not kept:
    /// contestants are cold after the others were populated.
    pub fn round(
        &mut self,
        number: usize,
        time: Duration,
        step: &dyn Fn(),
    ) -> Result<(), HeapBenchError> {
        let mut turns: Vec<(Who, Measure)> = MEASURES
            .iter()
            .flat_map(|measure| Who::ALL.into_iter().map(|who| (who, *measure)))
            .filter(|(who, measure)| who.measures().contains(measure))
            .collect();
        if number % 2 == 1 {
            turns.reverse();
        }
        for (who, measure) in turns {
            step();
            let Some(worker) = self.workers.get_mut(&who) else { continue };
            let order = Order::Round { measure, ns: time.as_nanos() as u64 };
            let threads = timed(who, worker.order(&order)?)?;
            if number > 0 {
                let (wall, cpu) = self.rounds.entry((who, measure)).or_default();
                wall.push(ns_per_operation(&threads, |timed| timed.ns));
                cpu.push(ns_per_operation(&threads, |timed| timed.cpu_ns));
            }
        }
        Ok(())
    }

    /// Asks all contestants for the memory they take.
    pub fn remember_memory(&mut self, is_churned: bool) -> Result<(), HeapBenchError> {
        for (who, worker) in &mut self.workers {
            match worker.order(&Order::Memory)? {
                Answer::Memory(memory) => {
                    self.memory.entry(*who).or_default()[usize::from(is_churned)] = memory;
                }
                other => return Err(out_of_turn(*who, other)),
            }
        }
        Ok(())
    }

    /// Ends the workers and returns the results.
    pub fn finish(self) -> OfThreads {
        let mut found = OfThreads::default();
        for (who, missing) in self.missing {
            let rival = Rival { missing: Some(missing), ..Rival::default() };
            found.rivals.insert(who.name().into(), rival);
        }
        for (who, worker) in &self.workers {
            if who.is_rival() {
                let rival = found.rivals.entry(who.name().into()).or_default();
                rival.allocator = Some(worker.allocator.clone());
            }
        }
        for ((who, measure), (wall, cpu)) in self.rounds {
            let key = format!("{}_ns", who.figure(measure));
            let spread = Spread { cpu_median: Some(median(&cpu)), ..Spread::of(&wall) };
            found.figures_of(who).insert(key.clone(), spread.median);
            found.spread_of(who).insert(key, spread);
        }
        for (who, [populated, churned]) in self.memory {
            let resident_per_asked =
                churned.resident_bytes as f64 / churned.asked_bytes.max(1) as f64;
            let figures = MemoryFigures { populated, churned, resident_per_asked };
            match found.rivals.get_mut(who.name()) {
                Some(rival) => rival.memory = Some(figures),
                None if who != Who::Harness => {
                    found.memory.insert(who.name().into(), figures);
                }
                None => {}
            }
        }
        found
    }
}

impl OfThreads {
    /// Whether a contestant has no figures.
    pub fn is_missing(&self, who: Who) -> bool {
        self.rivals.get(who.name()).is_some_and(|rival| rival.missing.is_some())
    }

    /// The figures of a contestant.
    pub fn figures_of(&mut self, who: Who) -> &mut BTreeMap<String, f64> {
        if who.is_rival() {
            return &mut self.rivals.entry(who.name().into()).or_default().figures;
        }
        &mut self.figures
    }

    fn spread_of(&mut self, who: Who) -> &mut BTreeMap<String, Spread> {
        if who.is_rival() {
            return &mut self.rivals.entry(who.name().into()).or_default().spread;
        }
        &mut self.spread
    }
}

/// Counts the flushes of a contestant's operations, with a worker of its own.
pub fn count(
    settings: &HeapSettings,
    setup: Setup,
    operations: u64,
    figures: &mut BTreeMap<String, f64>,
) -> Result<(), HeapBenchError> {
    let who = setup.who;
    let threads = setup.threads as u64;
    let mut worker = Worker::start(&settings.worker, &setup)?;
    timed(who, worker.order(&Order::Populate)?)?;
    timed(who, worker.order(&Order::Warm(setup.objects as u64))?)?;
    for measure in who.measures() {
        let order = Order::Count { measure: *measure, operations: operations.div_ceil(threads) };
        match worker.order(&order)? {
            Answer::Counted(counted) => enter_counts(who, *measure, &counted, figures),
            other => return Err(out_of_turn(who, other)),
        }
    }
    Ok(())
}

fn enter_counts(
    who: Who,
    measure: Measure,
    counted: &Counted,
    figures: &mut BTreeMap<String, f64>,
) {
    let (name, suffix) = (who.figure(measure), who.suffix());
    let mut enter = |key: String, count: u64| {
        figures.insert(key, count as f64 / counted.operations.max(1) as f64)
    };
    if measure == Measure::Pair(Way::Plain) {
        let freeing = counted.calls.since(counted.allocating);
        for (what, counters) in [("alloc", counted.allocating), ("free", freeing)] {
            enter(format!("lines_flushed_per_{what}{suffix}"), counters.lines);
            enter(format!("fences_per_{what}{suffix}"), counters.fences);
        }
    }
    enter(format!("lines_flushed_per_{name}"), counted.calls.lines);
    enter(format!("fences_per_{name}"), counted.calls.fences);
    enter(format!("lines_deferred_per_{name}"), counted.deferred_lines);
    enter(format!("lines_prepared_per_{name}"), counted.calls.prepared_lines);
    let total = counted.calls.lines + counted.calls.prepared_lines + counted.deferred_lines;
    enter(format!("lines_per_{name}_total"), total);
    figures.insert(format!("lines_flushed_per_{name}_median"), counted.lines_median() as f64);
}

/// The times in an answer.
pub fn timed(who: Who, answer: Answer) -> Result<Vec<Timed>, HeapBenchError> {
    match answer {
        Answer::Timed(threads) => Ok(threads),
        other => Err(out_of_turn(who, other)),
    }
}

fn out_of_turn(who: Who, answer: Answer) -> HeapBenchError {
    HeapBenchError::Answer { who, answer: Box::new(answer) }
}

/// Nanoseconds of a thread for each of its operations, over all threads.
fn ns_per_operation(threads: &[Timed], ns: impl Fn(&Timed) -> u64) -> f64 {
    let ns: u64 = threads.iter().map(ns).sum();
    let operations: u64 = threads.iter().map(|timed| timed.operations).sum();
    ns as f64 / operations.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_time_is_divided_by_its_own_operations() {
        let timed = |operations| Timed { operations, ns: 1000, cpu_ns: 800 };
        let threads = [timed(10), timed(30)];
        assert_eq!(ns_per_operation(&threads, |timed| timed.ns), 50.0);
        assert_eq!(ns_per_operation(&threads, |timed| timed.cpu_ns), 40.0);
    }
}
