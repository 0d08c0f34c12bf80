//! The findings about a trace, in the form in which they become JSON and charts.

use std::path::Path;

use serde::Serialize;

use super::budget::SizingReport;
use super::resolution::Resolution;
use super::verdict::{Grounds, Verdict};
use crate::skew::{Assessment, Figures};
use crate::trace::{Looks, PAGE_BYTES, TraceReader};

/// The findings about one trace.
#[derive(Debug, Clone, Serialize)]
pub struct TraceReport {
    /// The name of the trace: its file's path, or those of its files.
    pub trace: String,
    /// The files that it was read from.
    pub files: Vec<FileReport>,
    /// The time from the first record to the last, nanoseconds.
    pub duration_ns: u64,
    /// The figures of all volumes together.
    #[serde(flatten)]
    pub all: Figures,
    /// The meaning of the figures, with all volumes taken as one.
    pub assessment: Assessment,
    /// The volumes, each with its own figures.
    pub volumes: Vec<VolumeReport>,
    /// Whether a small battery will do: the verdict that the table, the JSON and the page begin
    /// with.
    pub verdict: Verdict,
    /// The times that a recording resolves; `None` for a trace that is not a recording.
    pub resolution: Option<Resolution>,
    /// The effect of budgets, modelled; `None` if it was not asked for or nothing is written.
    pub sizing: Option<SizingReport>,
}

/// One file of a trace.
#[derive(Debug, Clone, Serialize)]
pub struct FileReport {
    /// The path of the file.
    pub file: String,
    /// The format of the file, by its name.
    pub format: &'static str,
    /// How many bad records were passed over.
    pub skipped_bad: u64,
    /// Descriptions of the first bad records.
    pub first_bad: Vec<String>,
    /// Records that are no access: flushes, discards, other steps of an access that counts once.
    pub ignored: u64,
    /// The looks at memory that it was recorded by; `None` where it is not a recording.
    pub looks: Option<Looks>,
}

/// One volume of a trace.
#[derive(Debug, Clone, Serialize)]
pub struct VolumeReport {
    /// The name of the volume.
    pub volume: String,
    /// How many volumes it stands for: more than 1 for those that an approximate analysis met late
    /// and counts together.
    pub volumes: u32,
    /// The figures of the volume.
    #[serde(flatten)]
    pub figures: Figures,
    /// The meaning of the figures.
    pub assessment: Assessment,
}

impl TraceReport {
    /// Adds what follows from the rest: what times the trace resolves, and the verdict.
    pub(super) fn conclude(&mut self) {
        let looks: Vec<Looks> = self.files.iter().filter_map(|file| file.looks).collect();
        let windows: Vec<&str> = self.all.worst.iter().map(|(key, _)| key.as_str()).collect();
        let sizing = self.sizing.as_ref();
        self.resolution = Resolution::of(&looks, &windows, sizing);
        self.verdict = Verdict::of(&Grounds {
            page_writes: self.all.page_writes,
            duration_ns: self.duration_ns,
            windows: &windows,
            assessment: &self.assessment,
            sizing,
        });
    }

    /// The memory that holds all volumes, bytes: their sizes, or what the trace touches of them.
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

/// The bytes of so many pages.
pub(super) fn bytes_of(pages: u64) -> u64 {
    pages.saturating_mul(PAGE_BYTES)
}
