//! `perdura-lab access insights`: the questions of PerMA-Bench's eight insights, each answered for
//! this machine in a sentence with figures.
//!
//! `measure` chooses the cells and reads their figures, `rounds` runs them in turn, `strided` reads
//! with gaps, `store` runs Perdura's own index; `figures` keeps and compares the results; `facts`
//! has what the machine says about its memory; `sentences` turns both into words; `price` adds
//! prices. A question that cannot be varied here gets an explanation and the published systems'
//! figures, which are never this machine's.

pub mod facts;
pub mod figures;
mod measure;
pub mod page;
pub mod price;
mod rounds;
pub mod sentences;
pub mod settings;
mod store;
mod strided;
mod sys;
mod waits;

use std::path::Path;

use perdura_media::Bytes;
use serde::{Deserialize, Serialize};

use super::place::Place;
use super::reference::{PublishedInsight, References};
use facts::{Facts, folder_bytes};
use figures::{PlaceFigures, StructureFigure};
use measure::{MeasureError, Measuring, lacks_here};
use perdura_bench::machine::{Machine, disk_available_bytes};
use perdura_bench::target::TargetError;
use price::{Capacity, OwnMemory, Prices};
use sentences::flushes::{
    WITHOUT_FLUSH_BYTES, how_persists, how_without_flush, persists, without_flush,
};
use sentences::order::{how_prefetcher, prefetcher};
use sentences::used::{how_utilization, is_counted, utilization};
pub use settings::{InsightsSettings, UsedSettings};
use store::StoreMeasuring;

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InsightsResult {
    /// Always `insights`.
    pub kind: String,
    /// The machine that measured.
    pub machine: Machine,
    /// Facts about the machine's memory.
    pub facts: Facts,
    /// The settings of the run.
    pub settings: UsedSettings,
    /// Settings that differ from the workloads', and cells whose threads waited for processors.
    pub restrictions: Vec<String>,
    /// The eight insights in the poster's order.
    pub insights: Vec<Insight>,
    /// Prices beside performance.
    pub prices: Prices,
    /// All figures, by memory.
    pub places: Vec<PlaceFigures>,
    /// Figures of Perdura's store.
    pub store: Vec<StructureFigure>,
    /// The published systems.
    pub references: References,
}

/// A question and its answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Insight {
    /// Number of the insight, 1 to 8.
    pub number: u32,
    /// The question.
    pub question: String,
    /// Answers for this machine; empty where the machine cannot vary it.
    pub answers: Vec<Answer>,
    /// Why there is no answer.
    pub unanswered: Option<String>,
    /// The poster's statement about its own systems: published.
    pub published: String,
}

/// An answer for one memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Name of the memory.
    pub place: String,
    /// Origin of the answer's figures.
    pub label: AnswerLabel,
    /// The answer in a sentence.
    pub sentence: String,
    /// How the answer was found.
    pub how: String,
}

/// Origin of an answer's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnswerLabel {
    /// Measured on the machine.
    Measured,
    /// Computed from measured figures and an assumption that the answer names.
    Estimated,
}

impl AnswerLabel {
    /// Name of the origin in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Estimated => "estimated",
        }
    }
}

/// Why there are no insights.
#[derive(Debug, thiserror::Error)]
pub enum InsightsError {
    /// Memory accesses cannot be measured.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// The store cannot be measured.
    #[error("the store: {0}")]
    Store(#[from] TargetError),
}

/// Measures and answers.
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
            range_max: match &place {
                Place::Folder { path, .. } => range_max_in(path, settings.range_max),
                _ => settings.range_max,
            },
            place,
            rounds: settings.rounds,
            threads_max: settings.threads_max,
            peak_threads_max: settings.peak_threads_max,
            operations_max: settings.operations_max,
            cache_bytes: facts.cache_bytes,
            lacks: lacks_here,
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
    // The store is measured first, so that a folder that cannot have its image is refused at once.
    let store = measured_store.figures(&step)?;
    let places: Vec<PlaceFigures> =
        measurings.iter().map(|one| one.figures(&step)).collect::<Result<_, _>>()?;
    let references = References::built_in();
    Ok(InsightsResult {
        kind: "insights".into(),
        settings: UsedSettings::from(settings),
        restrictions: places
            .iter()
            .flat_map(|place| {
                restrictions(place, store_of(&places, place, &store), facts.cache_bytes)
            })
            .collect(),
        insights: insights(&facts, &places, &store, &references),
        prices: Prices::of(&priced(settings, &facts, &machine, &places), &references),
        facts,
        places,
        store,
        references,
        machine,
    })
}

/// Longest range for which a folder has room: reads need it twice at a time, and a third is left
/// for others.
fn range_max_in(folder: &Path, range_max: u64) -> u64 {
    const LEAST_BYTES: u64 = 1 << 20;
    let third = disk_available_bytes(folder).map_or(range_max, |bytes| bytes / 3);
    // A multiple of all threads' accesses, as in the settings.
    let room = (third / LEAST_BYTES * LEAST_BYTES).max(LEAST_BYTES);
    range_max.min(room)
}

/// The memories that this machine's prices are for: its DRAM, and the folder's memory.
fn priced(
    settings: &InsightsSettings,
    facts: &Facts,
    machine: &Machine,
    places: &[PlaceFigures],
) -> Vec<OwnMemory> {
    let highest = |at: usize| places.get(at).map(PlaceFigures::highest).unwrap_or_default();
    let dram = OwnMemory {
        name: "DRAM here".into(),
        price_euro: settings.price_euro,
        price_option: "--price",
        capacity: Capacity::installed(facts, machine.memory_bytes),
        highest: highest(0),
    };
    let folder = settings.path.as_ref().map(|path| OwnMemory {
        name: path.display().to_string(),
        price_euro: settings.path_price_euro,
        price_option: "--path-price",
        capacity: Capacity::of_file_system(folder_bytes(path).unwrap_or(0)),
        highest: highest(1),
    });
    std::iter::once(dram).chain(folder).collect()
}

/// Settings that differ from the workloads', and cells whose threads had fewer processors than they
/// needed.
fn restrictions(
    place: &PlaceFigures,
    store: &[StructureFigure],
    cache_bytes: Option<u64>,
) -> Vec<String> {
    /// A range of this many times the cache's size does not fit the cache for the most part.
    const SEVERAL: u64 = 3;
    const ALL_OF_ONE: f64 = 0.9;
    let name = &place.place;
    let mut said: Vec<String> = Vec::new();
    if !place.bounded.is_empty() {
        said.push(format!("{name}: bounded: {}", place.bounded.join("; ")));
    }
    if let Some(cache_bytes) = cache_bytes.filter(|bytes| place.range_bytes < SEVERAL * bytes) {
        said.push(format!(
            "{name}: ranges of {} beside a last-level cache of {}, as the machine reports it: the \
             cache may be part of these figures",
            Bytes(place.range_bytes),
            Bytes(cache_bytes)
        ));
    }
    if !place.lacking.is_empty() {
        said.push(format!("{name}: left out: {}", place.lacking.join("; ")));
    }
    let structures = place.structures.iter().chain(store).map(|one| (one.threads, one.cpu_share));
    let all = place.peaks.iter().map(|peak| (peak.threads, peak.cpu_share)).chain(structures);
    let short: Vec<(u64, f64)> = all.filter(|(_, share)| *share < ALL_OF_ONE).collect();
    let fewest = short.iter().map(|one| one.0).min();
    let worst = short.iter().min_by(|one, other| one.1.total_cmp(&other.1));
    if let (Some(fewest), Some((threads, share))) = (fewest, worst) {
        said.push(format!(
            "{name}: threads waited for processors from {} on; at worst {} had {:.1} processors",
            sentences::threads(fewest),
            sentences::threads(*threads),
            share * *threads as f64
        ));
    }
    said
}

/// The eight insights, from the results.
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
    let answered = |number, answer: &dyn Fn(&PlaceFigures) -> (AnswerLabel, String, String)| {
        let one = |place: &PlaceFigures| {
            let (label, sentence, how) = answer(place);
            Answer { place: place.place.clone(), label, sentence, how }
        };
        asked(number, places.iter().map(one).collect(), String::new(), references)
    };
    let measured = |sentence, how| (AnswerLabel::Measured, sentence, how);
    vec![
        unanswered(1, sentences::capacity_here(facts), sentences::published_capacity(references)),
        unanswered(2, sentences::power_here(facts), sentences::published_power(references)),
        unanswered(3, sentences::modules_here(), String::new()),
        unanswered(4, sentences::bus_here(facts), String::new()),
        answered(5, &|place| {
            let own = store_of(places, place, store);
            let label = match is_counted(own) {
                true => AnswerLabel::Measured,
                false => AnswerLabel::Estimated,
            };
            (label, utilization(own, place), how_utilization(own).into())
        }),
        answered(6, &|place| measured(persists(&place.best_persists()), how_persists(place))),
        answered(7, &|place| {
            let of = place.without_flush(&WITHOUT_FLUSH_BYTES);
            let cache_bytes = facts.cache_bytes;
            let sentence = without_flush(&of, place, cache_bytes);
            measured(sentence, how_without_flush(place, cache_bytes))
        }),
        answered(8, &|place| measured(prefetcher(place, facts), how_prefetcher())),
    ]
}

/// Figures of the store, whose memory is DRAM, the first of the places.
fn store_of<'a>(
    places: &[PlaceFigures],
    place: &PlaceFigures,
    store: &'a [StructureFigure],
) -> &'a [StructureFigure] {
    if places.first() == Some(place) { store } else { &[] }
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

/// The poster's words, with its figures behind them.
fn said(insight: &PublishedInsight, figures: &str) -> String {
    let parts = [Some(insight.says.as_str()), insight.details.as_deref(), Some(figures)];
    let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_small_run_answers_what_it_can_and_says_why_not_of_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let settings = InsightsSettings {
            path: Some(dir.path().to_owned()),
            price_euro: Some(100.0),
            path_price_euro: Some(200.0),
            rounds: 2,
            threads_max: 2,
            peak_threads_max: 2,
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
        let used = &result.insights[4].answers;
        assert!(!used[1].sentence.contains("perdura store"), "it does not lie there");
        assert!(used[1].sentence.starts_with("unknown: no real structure"), "{used:?}");
        assert!(used[1].place.starts_with(dir.path().to_str().unwrap()), "{used:?}");
        assert!(result.prices.rows.iter().take(2).all(|row| row.euro_per_gb.is_some()));
        assert_eq!(result.settings.rounds, 2);
        let bounded = |said: &String| said.contains("bounded: ") && said.contains("256 KiB");
        assert!(result.restrictions.iter().any(bounded), "{:?}", result.restrictions);
        let page = page::page(&result);
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
    fn an_estimate_is_never_called_measured() {
        let figure = |counted_share| StructureFigure {
            name: "perdura store: lookup".into(),
            is_real: true,
            threads: 1,
            per_s: vec![1.0],
            gib_per_s: Vec::new(),
            cpu_share: 1.0,
            cpu_ns: 100.0,
            cached_cpu_ns: 30.0,
            counted_share,
        };
        let label = |store: &[StructureFigure]| {
            let places = [PlaceFigures { place: "DRAM".into(), ..PlaceFigures::default() }];
            let facts = Facts::of(Path::new("/nowhere"));
            let answer =
                insights(&facts, &places, store, &References::built_in())[4].answers[0].clone();
            (answer.label, answer.sentence.contains("estimated"))
        };
        assert_eq!(label(&[figure(None)]), (AnswerLabel::Estimated, true));
        assert_eq!(label(&[figure(Some(0.2))]), (AnswerLabel::Measured, false));
        assert_eq!(label(&[figure(Some(0.2)), figure(None)]), (AnswerLabel::Estimated, true));
        assert_eq!(AnswerLabel::Estimated.name(), "estimated");
    }

    #[test]
    fn a_folder_with_little_room_has_a_shorter_range() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(range_max_in(dir.path(), 256 << 10), 256 << 10);
        let most = range_max_in(dir.path(), u64::MAX);
        let available = disk_available_bytes(dir.path()).unwrap();
        assert!(most.is_multiple_of(1 << 20) && most <= (available / 2).max(1 << 20), "{most}");
    }

    #[test]
    fn threads_without_a_processor_each_are_told_of() {
        let peak = |threads, cpu_share| figures::Peak {
            pattern: "random read".into(),
            threads,
            access_bytes: 64,
            cpu_share,
            gib_per_s: vec![1.0],
        };
        let place = |peaks| PlaceFigures { place: "DRAM".into(), peaks, ..PlaceFigures::default() };
        assert!(restrictions(&place(vec![peak(1, 1.0), peak(2, 0.95)]), &[], None).is_empty());
        let said =
            restrictions(&place(vec![peak(2, 0.99), peak(4, 0.5), peak(32, 0.0625)]), &[], None);
        assert_eq!(
            said,
            ["DRAM: threads waited for processors from 4 threads on; at worst 32 threads had 2.0 \
                 processors"]
        );
        let small = PlaceFigures { range_bytes: 2 << 20, ..place(Vec::new()) };
        assert!(restrictions(&small, &[], Some(1 << 20))[0].contains("the cache may be part"));
        assert!(restrictions(&small, &[], Some(1 << 19)).is_empty());
    }
}
