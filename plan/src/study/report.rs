//! What a study found, as it is written to JSON and drawn.

use std::path::Path;
use std::time::Duration;

use perdura_media::{Bytes, format_duration};
use serde::Serialize;

use super::resolution::window_ns;
use super::sizing::{BudgetRow, ReplacedBudget};
use super::{Analysis, Question, Resolution, Verdict, bytes_of};
use crate::power::{Cells, Comparison, Server};
use crate::skew::{Assessment, Figures};
use crate::trace::{Looks, TraceReader};

/// The study of one trace.
#[derive(Debug, Clone, Serialize)]
pub struct TraceReport {
    /// Its name: the file's, or those of the files.
    pub trace: String,
    /// The files it was read from.
    pub files: Vec<FileReport>,
    /// From the first record to the last, nanoseconds.
    pub duration_ns: u64,
    /// Figures of all volumes together.
    #[serde(flatten)]
    pub all: Figures,
    /// What they mean, all volumes taken for one.
    pub assessment: Assessment,
    /// Each volume.
    pub volumes: Vec<VolumeReport>,
    /// Whether a small battery will do.
    pub verdict: Verdict,
    /// What times it resolves, if it was recorded by looks; none if not.
    pub resolution: Option<Resolution>,
    /// What budgets cost, modelled; none if not asked, or if nothing is written.
    pub sizing: Option<SizingReport>,
}

/// One file of a trace.
#[derive(Debug, Clone, Serialize)]
pub struct FileReport {
    /// Its path.
    pub file: String,
    /// Its format.
    pub format: &'static str,
    /// Bad records passed over.
    pub skipped_bad: u64,
    /// What was wrong with the first of them.
    pub first_bad: Vec<String>,
    /// Records that are no access: flushes, discards, other steps of an access that counts once.
    pub ignored: u64,
    /// What looks it was recorded by; none if it is no such recording.
    pub looks: Option<Looks>,
}

/// One volume.
#[derive(Debug, Clone, Serialize)]
pub struct VolumeReport {
    /// Its name.
    pub volume: String,
    /// How many volumes it stands for: more than 1 for those that an approximate analysis met late
    /// and counts together.
    pub volumes: u32,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// What they mean.
    pub assessment: Assessment,
}

/// What budgets cost on this trace, modelled.
#[derive(Debug, Clone, Serialize)]
pub struct SizingReport {
    /// `modelled`, always.
    pub label: &'static str,
    /// Memory that holds all that is touched.
    pub memory_bytes: u64,
    /// Victim policy.
    pub policy: &'static str,
    /// Time between checkpoints, nanoseconds.
    pub checkpoint_ns: Option<u64>,
    /// Most page writes that may have to wait, as a share of all, 0 to 1.
    pub stalls_max: f64,
    /// Most of the time that writers may wait, as a share of it, 0 to 1.
    pub stalled_max: f64,
    /// Each budget replayed, smallest first.
    pub budgets: Vec<BudgetRow>,
    /// Budgets asked for that the memory cannot have, and what was replayed for them.
    pub replaced: Vec<ReplacedBudget>,
    /// The smallest of those replayed in which, as in all larger ones up to what the trace writes,
    /// no more writes wait, and no longer, than may; none if no budget does.
    pub smallest: Option<BudgetRow>,
    /// Most that the warning or battery given allows.
    pub budget_max_bytes: Option<u64>,
    /// What was taken: the smallest, unless the warning allows less.
    pub chosen: BudgetRow,
    /// The machine.
    pub server: Server,
    /// Its battery's cells.
    pub cells: Cells,
    /// All memory against the chosen budget.
    pub power: Comparison,
}

impl SizingReport {
    /// The target in words.
    pub fn target(&self) -> String {
        // Back from a share: without the digits that the way there has left.
        let percent = |share: f64| (share * 1e8).round() / 1e6;
        let (writes, time) = (percent(self.stalls_max), percent(self.stalled_max));
        format!(
            "at most {writes} % of the page writes wait, and writers at most {time} % of the time"
        )
    }

    /// The smallest budget that keeps to the target is more than the warning or battery allows.
    pub fn is_limited(&self) -> bool {
        let wanted_bytes = self.smallest.as_ref().map(|smallest| smallest.budget_bytes);
        wanted_bytes.zip(self.budget_max_bytes).is_some_and(|(wanted, most)| wanted > most)
    }

    /// How the budget was chosen, in words.
    pub fn choice(&self) -> String {
        let target = self.target();
        match &self.smallest {
            Some(smallest) if self.is_limited() => format!(
                "what the warning or battery allows; it takes {} until {target}",
                Bytes(smallest.budget_bytes)
            ),
            Some(_) => {
                format!("the smallest from which on, in it and in all larger ones tried, {target}")
            }
            None => format!("the SSD is too slow: there is no budget with which {target}"),
        }
    }
}

impl TraceReport {
    /// Windows that the trace is shorter than: at their worst they may write more than all of it.
    pub(super) fn windows_longer(&self) -> Vec<String> {
        let windows = self.all.worst.iter().filter_map(|(key, _)| window_ns(key));
        let longer = windows.filter(|window_ns| *window_ns > self.duration_ns);
        longer.map(|window_ns| format_duration(Duration::from_nanos(window_ns))).collect()
    }

    /// Memory that holds all volumes: their sizes, or what is touched of them.
    pub fn memory_bytes(&self) -> u64 {
        bytes_of(self.assessment.volume_pages)
    }
}

impl FileReport {
    pub(super) fn of(reader: &TraceReader, path: &Path) -> Self {
        let skipped = reader.skipped();
        Self {
            file: path.display().to_string(),
            format: reader.format().name(),
            skipped_bad: skipped.count,
            first_bad: skipped
                .first
                .iter()
                .map(|(place, fault)| format!("{place}: {fault}"))
                .collect(),
            ignored: reader.ignored(),
            looks: reader.looks(),
        }
    }
}

/// The report without what replays add to it.
pub(super) fn of(question: &Question, name: &str, found: &Analysis) -> TraceReport {
    let volumes: Vec<VolumeReport> = found
        .volumes
        .iter()
        .map(|(volume, volumes, figures)| VolumeReport {
            volume: volume.clone(),
            volumes: *volumes,
            assessment: Assessment::of(
                figures,
                question.volume_bytes.map(|bytes| bytes.saturating_mul(u64::from(*volumes))),
            ),
            figures: figures.clone(),
        })
        .collect();
    let each = volumes.iter().map(|volume| volume.assessment.volume_pages);
    let all_pages = each.fold(0, u64::saturating_add);
    let given_bytes = question.volume_bytes.map(|_| bytes_of(all_pages));
    let mut assessment = Assessment::of(&found.all, given_bytes);
    let small = volumes.iter().filter(|volume| !volume.assessment.volume_given);
    let small: u32 = small.map(|volume| volume.volumes).sum();
    if question.volume_bytes.is_some() && small > 0 {
        assessment.volume_given = false;
        assessment.advice += &format!(
            " The size given is less than what is touched of {small} volume{}: taken for as large as that.",
            if small == 1 { "" } else { "s" }
        );
    }
    TraceReport {
        trace: name.to_owned(),
        files: found.files.clone(),
        duration_ns: found.duration_ns,
        all: found.all.clone(),
        assessment,
        volumes,
        verdict: Verdict::default(),
        resolution: None,
        sizing: None,
    }
}
