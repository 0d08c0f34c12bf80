//! `bench insights`: the questions of PerMA-Bench's eight insights, answered for this machine in a sentence with figures each.
//!
//! `measure` runs workload files of the published format in rounds, `store` our own index, `sys` what the format cannot ask for; `figures` keeps what they
//! found and compares it; `facts` is what the machine tells of itself; `sentences` makes words of both; `price` sets prices beside.
//! What cannot be varied here is not answered but explained, with what the published systems say: those figures are never this machine's.

pub mod facts;
pub mod figures;
mod measure;
pub mod price;
pub mod sentences;
mod store;
mod sys;
mod waits;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::place::Place;
use super::reference::{PublishedInsight, References};
use super::result::Label;
use crate::machine::{Machine, memory_available_bytes};
use crate::target::TargetError;
use facts::Facts;
use figures::{PlaceFigures, StructureFigure};
use measure::{MeasureError, Measuring};
use price::Prices;
use sentences::WITHOUT_FLUSH_BYTES;
use store::StoreMeasuring;

/// What to measure, and how long.
#[derive(Debug, Clone)]
pub struct InsightsSettings {
    /// A folder to measure beside DRAM: persistent memory on a DAX file system.
    pub path: Option<PathBuf>,
    /// Folder of the store's image.
    pub dir: PathBuf,
    /// Price of the whole memory.
    pub price_euro: Option<f64>,
    /// How often each cell is measured.
    pub rounds: usize,
    /// No more threads.
    pub threads_max: u64,
    /// No longer ranges.
    pub range_max: u64,
    /// No more operations of a cell.
    pub operations_max: Option<u64>,
    /// Records of the store.
    pub records: u64,
    /// How long the store is measured at a time.
    pub slice: Duration,
}

impl InsightsSettings {
    /// Minutes with up to 32 threads, as the poster has them; with `is_quick` about one, and no more threads than twice the processors.
    pub fn usual(dir: PathBuf, is_quick: bool) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        // Two ranges and the store at a time, and something is left for others.
        let range_max = memory_available_bytes().map_or(1 << 30, |bytes| bytes / 6);
        Self {
            path: None,
            dir,
            price_euro: None,
            rounds: if is_quick { 3 } else { 5 },
            threads_max: if is_quick { (2 * processors).min(32) } else { 32 },
            range_max: range_max.clamp(1 << 20, if is_quick { 1 << 30 } else { 2 << 30 }),
            operations_max: is_quick.then_some(200_000),
            records: if is_quick { 300_000 } else { 2_000_000 },
            slice: Duration::from_millis(if is_quick { 250 } else { 1000 }),
        }
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InsightsResult {
    /// Always `insights`.
    pub kind: String,
    /// Where it ran.
    pub machine: Machine,
    /// What the machine tells of its memory.
    pub facts: Facts,
    /// How often each cell was measured, in turn with the others.
    pub rounds: usize,
    /// No range was longer.
    pub range_max_bytes: u64,
    /// The eight, in the poster's order.
    pub insights: Vec<Insight>,
    /// Prices beside performance.
    pub prices: Prices,
    /// All figures, by memory.
    pub places: Vec<PlaceFigures>,
    /// Our store.
    pub store: Vec<StructureFigure>,
    /// The published systems.
    pub references: References,
}

/// A question, and what is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Insight {
    /// 1 to 8.
    pub number: u32,
    /// The question.
    pub question: String,
    /// Answers for this machine, measured; none where it cannot be varied here.
    pub answers: Vec<Answer>,
    /// Why there is none.
    pub unanswered: Option<String>,
    /// What PerMA-Bench says, of its systems: published.
    pub published: String,
}

/// An answer for one memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Of what.
    pub place: String,
    /// Always measured.
    pub label: Label,
    /// The sentence.
    pub sentence: String,
    /// How it was got.
    pub how: String,
}

/// Why there are no insights.
#[derive(Debug, thiserror::Error)]
pub enum InsightsError {
    /// Memory accesses.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// The store.
    #[error("the store: {0}")]
    Store(#[from] TargetError),
}

/// Measures, and answers.
///
/// # Errors
/// Memory, threads, or the store cannot be had.
pub fn run(
    settings: &InsightsSettings,
    told: &dyn Fn(&str, u64, u64),
) -> Result<InsightsResult, InsightsError> {
    let machine = Machine::here();
    let facts = Facts::of(Path::new("/"));
    let folder =
        settings.path.as_ref().map(|path| Place::Folder { path: path.clone(), dax_only: false });
    let measurings: Vec<Measuring> = std::iter::once(Place::Dram)
        .chain(folder)
        .map(|place| Measuring {
            place,
            rounds: settings.rounds,
            threads_max: settings.threads_max,
            range_max: settings.range_max,
            operations_max: settings.operations_max,
        })
        .collect();
    let measured_store = StoreMeasuring {
        dir: &settings.dir,
        records: settings.records,
        rounds: settings.rounds,
        slice: settings.slice,
        threads: (0..).map(|power| 1 << power).take_while(|n| *n <= settings.threads_max).collect(),
        seed: 1,
    };
    let steps = measurings.iter().map(Measuring::steps).sum::<Result<u64, _>>()?;
    let steps = steps + measured_store.steps();
    let done = std::cell::Cell::new(0);
    let step = |what: &str| {
        done.set(done.get() + 1);
        told(what, done.get(), steps);
    };
    // The store first: a folder that cannot have its image is told at once.
    let store = measured_store.figures(&step)?;
    let places: Vec<PlaceFigures> =
        measurings.iter().map(|one| one.figures(&step)).collect::<Result<_, _>>()?;
    let references = References::built_in();
    let highest = places.first().map(PlaceFigures::highest).unwrap_or_default();
    Ok(InsightsResult {
        kind: "insights".into(),
        facts: facts.clone(),
        rounds: settings.rounds,
        range_max_bytes: settings.range_max,
        insights: insights(&facts, &places, &store, &references),
        prices: Prices::of(settings.price_euro, machine.memory_bytes, highest, &references),
        places,
        store,
        references,
        machine,
    })
}

/// The eight, from what was found.
pub fn insights(
    facts: &Facts,
    places: &[PlaceFigures],
    store: &[StructureFigure],
    references: &References,
) -> Vec<Insight> {
    let unanswered = |number, why: String, figures: String| Insight {
        unanswered: Some(why),
        ..asked(number, Vec::new(), figures, references)
    };
    let answered = |number, answer: &dyn Fn(&PlaceFigures) -> (String, String)| {
        let one = |place: &PlaceFigures| {
            let (sentence, how) = answer(place);
            Answer { place: place.place.clone(), label: Label::Measured, sentence, how }
        };
        asked(number, places.iter().map(one).collect(), String::new(), references)
    };
    let rounds = |how: &str| format!("{how}, cells in turn, ratios by rounds");
    let is_store_there = |place: &PlaceFigures| places.first() == Some(place);
    vec![
        unanswered(1, sentences::capacity_here(facts), sentences::published_capacity(references)),
        unanswered(2, sentences::power_here(facts), sentences::published_power(references)),
        unanswered(3, sentences::modules_here(), String::new()),
        unanswered(4, sentences::bus_here(facts), String::new()),
        answered(5, &|place| {
            // The store's memory is DRAM, the first of the places.
            let own = if is_store_there(place) { store } else { &[] };
            let all: Vec<StructureFigure> = place.structures.iter().chain(own).cloned().collect();
            (sentences::utilization(&all), sentences::how_utilization(&all).into())
        }),
        answered(6, &|place| (sentences::persists(&place.best_persists()), rounds("one thread"))),
        answered(7, &|place| {
            let of = place.without_flush(&WITHOUT_FLUSH_BYTES);
            (sentences::without_flush(&of), rounds("one thread, at random places"))
        }),
        answered(8, &|place| (sentences::prefetcher(place), sentences::how_prefetcher(facts))),
    ]
}

const QUESTIONS: [&str; 8] = [
    "Does capacity per module matter?",
    "Does the power budget matter?",
    "Do modules scale linearly?",
    "Does the speed of the memory bus matter?",
    "Is the hardware used to the full?",
    "Which persist instruction for which access?",
    "Does it help to leave flushes out, as with eADR?",
    "Does the prefetcher help or hurt?",
];

fn asked(number: u32, answers: Vec<Answer>, figures: String, references: &References) -> Insight {
    let published = references.insight(number).map(|insight| said(insight, &figures));
    Insight {
        number,
        question: QUESTIONS[number as usize - 1].into(),
        answers,
        unanswered: None,
        published: published.unwrap_or_default(),
    }
}

/// The poster's words, and figures with them.
fn said(insight: &PublishedInsight, figures: &str) -> String {
    let parts = [Some(insight.says.as_str()), insight.details.as_deref(), Some(figures)];
    let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_answers_what_it_can_and_says_why_not_of_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let settings = InsightsSettings {
            path: Some(dir.path().to_owned()),
            price_euro: Some(100.0),
            rounds: 2,
            threads_max: 2,
            range_max: 256 << 10,
            operations_max: Some(2000),
            records: 1000,
            slice: Duration::from_millis(10),
            ..InsightsSettings::usual(dir.path().to_owned(), true)
        };
        let last = std::cell::Cell::new((0, 0));
        let result = run(&settings, &|_, done, of| last.set((done, of))).unwrap();
        assert_eq!(last.get().0, last.get().1, "all steps were told of");
        assert_eq!(
            result.insights.iter().map(|one| one.number).collect::<Vec<_>>(),
            [1, 2, 3, 4, 5, 6, 7, 8]
        );
        for insight in &result.insights {
            let is_varied = insight.number > 4;
            assert_eq!(insight.unanswered.is_none(), is_varied, "{insight:?}");
            assert_eq!(insight.answers.len(), if is_varied { 2 } else { 0 }, "{insight:?}");
            assert!(!insight.published.is_empty(), "{insight:?}");
        }
        assert!(result.insights[4].answers[0].sentence.contains("perdura store"));
        assert!(!result.insights[4].answers[1].sentence.contains("perdura store"));
        assert!(result.prices.rows[0].euro_per_gb_per_s.random_write.is_some());
        let page = crate::report::insights_page(&result);
        assert!(QUESTIONS.iter().all(|question| page.contains(question)));
        assert!(page.contains("not answerable here") && page.contains("Published"));
        assert!(!page.contains("<script src") && !page.contains("NaN") && !page.contains("inf,"));
        let text = serde_json::to_string(&result).unwrap();
        assert_eq!(
            serde_json::from_str::<InsightsResult>(&text).unwrap().insights,
            result.insights
        );
        assert!(text.contains("\"label\":\"published\""));
    }

    #[test]
    fn the_usual_settings_fit_the_machine() {
        for is_quick in [false, true] {
            let usual = InsightsSettings::usual("d".into(), is_quick);
            assert!((2..=32).contains(&usual.threads_max) && usual.rounds >= 3);
            assert!(usual.range_max <= 2 << 30);
        }
    }
}
