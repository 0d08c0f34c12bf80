//! The verdict whether a small battery is enough, in one sentence, with the figures that it rests
//! on.
//!
//! Where budgets were replayed, the replay decides: the smallest budget that meets the targets is
//! small, or large, or larger than the warning allows, or does not exist. Where nothing was
//! replayed, the pattern of the writes decides, as in the Viyojit paper (section 3): a small
//! battery is enough if there are few writes, or if few pages receive them.

use std::time::Duration;

use perdura_media::{Bytes, format_duration};
use serde::Serialize;

use super::budget::{BudgetRow, SizingReport};
use super::resolution::window_ns;
use crate::skew::Assessment;

/// A budget of more than this share of the memory is not small.
const SMALL: f64 = 0.5;

/// Whether a small battery will do.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Whether it will.
    pub small_battery_will_do: bool,
    /// The verdict in one sentence, which names the budget where there is one.
    pub sentence: String,
    /// The reasons for the verdict and its limits, in further sentences.
    pub because: String,
}

/// The facts from which a verdict follows.
pub(super) struct Grounds<'g> {
    pub(super) page_writes: u64,
    pub(super) duration_ns: u64,
    /// The keys of the windows, which are seconds.
    pub(super) windows: &'g [&'g str],
    pub(super) assessment: &'g Assessment,
    /// The replays; `None` if no budget was replayed.
    pub(super) sizing: Option<&'g SizingReport>,
}

impl Verdict {
    pub(super) fn of(grounds: &Grounds<'_>) -> Self {
        let assessment = grounds.assessment;
        let (small_battery_will_do, sentence) = match grounds.sizing {
            _ if grounds.page_writes == 0 => {
                (true, "A small battery will do: nothing is written.".to_owned())
            }
            Some(sizing) => by_replay(sizing),
            None => by_pattern(assessment),
        };
        let mut because = vec![assessment.finding.clone()];
        if let Some(sizing) = grounds.sizing {
            because.extend(of_replay(sizing, assessment.few_pages, small_battery_will_do));
        }
        because.extend(limits(grounds));
        Self { small_battery_will_do, sentence, because: because.join(" ") }
    }
}

fn by_replay(sizing: &SizingReport) -> (bool, String) {
    let budget = |row: &BudgetRow| {
        let percent = 100.0 * row.share_of_memory;
        format!("a budget of {} ({percent:.2} % of the memory)", Bytes(row.budget_bytes))
    };
    let target = sizing.target();
    match &sizing.smallest {
        None => {
            let why = format!("the SSD is too slow, and with no budget {target}");
            (false, format!("No battery will do (modelled): {why}."))
        }
        Some(row) if sizing.is_limited() => {
            let allowed = Bytes(sizing.chosen.budget_bytes);
            let why = format!("it allows {allowed}, and it takes {} until {target}", budget(row));
            (false, format!("The warning or battery given will not do (modelled): {why}."))
        }
        Some(row) if row.share_of_memory > SMALL => {
            let why = format!("it takes {} until {target}", budget(row));
            (false, format!("A small battery will not do (modelled): {why}."))
        }
        Some(row) => {
            let why = format!("with {}, {target}", budget(row));
            (true, format!("A small battery will do (modelled): {why}."))
        }
    }
}

fn by_pattern(assessment: &Assessment) -> (bool, String) {
    let will_do = assessment.few_pages;
    let answer = if will_do { "will do" } else { "will not do" };
    let why = match assessment.class {
        // Of a class that would do, but with most of the volume written in one interval.
        Some(class) if class.is_for_small() && !will_do => {
            "most of the volume's pages are written in its worst interval"
        }
        Some(class) => class.advice(),
        None => "how skewed the writes are was not asked for",
    };
    (will_do, format!("A small battery {answer}, by the pattern of the writes alone: {why}."))
}

/// The sentences about the replay: why it decides otherwise than the pattern, and the cost of the
/// budget.
fn of_replay(sizing: &SizingReport, few_pages: bool, will_do: bool) -> Vec<String> {
    let mut said = Vec::new();
    if will_do && !few_pages {
        said.push(
            "So a small budget rests on the SSD, which takes these writes as they come: writers \
             wait as soon as they come faster."
                .to_owned(),
        );
    }
    let chosen = &sizing.chosen;
    if sizing.is_limited() {
        said.push(format!(
            "But the warning or battery given allows {} only: {:.3} % of the page writes wait \
             then, and writers {:.3} % of the time (modelled).",
            Bytes(chosen.budget_bytes),
            100.0 * chosen.stalls_per_write,
            100.0 * chosen.stalled_share,
        ));
    }
    said.push(format!(
        "With a budget of {}, {:.2} bytes go to the SSD for each byte of the page writes \
         (modelled).",
        Bytes(chosen.budget_bytes),
        chosen.device_bytes_per_user_byte
    ));
    said
}

/// Sentences about the limits of the verdict.
fn limits(grounds: &Grounds<'_>) -> Vec<String> {
    let mut said = Vec::new();
    if grounds.page_writes == 0 {
        return said;
    }
    if !grounds.assessment.volume_given {
        let note = "Shares are of what the trace touches; the volumes' real size, if given, makes \
                    them smaller.";
        said.push(note.to_owned());
    }
    // A window that is longer than the trace may write more, at its worst, than all of it.
    let windows = grounds.windows.iter().filter_map(|key| window_ns(key));
    let longer: Vec<String> = windows
        .filter(|window_ns| *window_ns > grounds.duration_ns)
        .map(|window_ns| format_duration(Duration::from_nanos(window_ns)))
        .collect();
    if !longer.is_empty() {
        said.push(format!(
            "The trace lasts {} only: what is written in {} may be more than it shows.",
            format_duration(Duration::from_nanos(grounds.duration_ns)),
            longer.join(" or ")
        ));
    }
    said
}
