//! The report on one trace, from its files to a plan: the trace is read, analysed and replayed, and
//! a battery is sized. `perdura plan trace` shows this report.
//!
//! A trace is read once for the analysis, and again for every round of replays, because no records
//! are kept. Each trace has a report of its own, so several reports can be made at once.

mod budget;
mod error;
mod parts;
mod passes;
mod resolution;
mod sizing;
mod trace;
mod verdict;

use std::path::PathBuf;

use crate::skew::{Analyzer, Assessment, Figures, Options, SkewError};
use crate::trace::ReadOptions;

pub use budget::{BudgetRow, ReplacedBudget, SizingReport};
pub use error::ReportError;
pub use passes::Progress;
pub use resolution::Resolution;
pub use sizing::{BudgetWish, SizingQuestion};
pub use trace::{FileReport, TraceReport, VolumeReport};
pub use verdict::Verdict;

use passes::Passes;
use trace::bytes_of;

/// The question about a trace.
#[derive(Debug, Clone)]
pub struct Question {
    /// How the files of the trace are read.
    pub read: ReadOptions,
    /// Which windows and shares are counted.
    pub skew: Options,
    /// The size of each volume, bytes; `None` takes what the trace touches of it.
    pub volume_bytes: Option<u64>,
    /// The question about budgets; `None` replays none.
    pub sizing: Option<SizingQuestion>,
    /// How many threads may be kept busy. With more than one, reading, counting pages and counting
    /// windows have one each.
    pub threads: usize,
}

impl Question {
    /// Reads `paths` as one trace and reports on it. `progress` is told after every batch.
    ///
    /// # Errors
    /// A trace could not be read (with file and place), or cannot be replayed.
    pub fn report(
        &self,
        name: &str,
        paths: &[PathBuf],
        progress: &dyn Fn(Progress),
    ) -> Result<TraceReport, ReportError> {
        if self.sizing.is_some()
            && let Some(error) = paths.iter().find_map(|path| ReportError::once(path))
        {
            return Err(error);
        }
        let passes = Passes { paths, read: &self.read, threads: self.threads, progress };
        let analysis = self.analyse(&passes)?;
        let mut report = self.outline(name, &analysis);
        if let Some(question) = &self.sizing
            && report.all.page_writes > 0
        {
            let written_bytes = bytes_of(report.all.written_pages.pages);
            let (memory_bytes, page_writes) = (report.memory_bytes(), report.all.page_writes);
            let sizing = question.answer(&passes, memory_bytes, written_bytes, page_writes)?;
            report.sizing = Some(sizing);
        }
        report.conclude();
        Ok(report)
    }

    /// The report without what replays add to it.
    fn outline(&self, name: &str, found: &Analysis) -> TraceReport {
        let volumes: Vec<VolumeReport> = found
            .volumes
            .iter()
            .map(|(volume, volumes, figures)| VolumeReport {
                volume: volume.clone(),
                volumes: *volumes,
                assessment: Assessment::of(
                    figures,
                    self.volume_bytes.map(|bytes| bytes.saturating_mul(u64::from(*volumes))),
                ),
                figures: figures.clone(),
            })
            .collect();
        let each = volumes.iter().map(|volume| volume.assessment.volume_pages);
        let all_pages = each.fold(0, u64::saturating_add);
        let given_bytes = self.volume_bytes.map(|_| bytes_of(all_pages));
        let mut assessment = Assessment::of(&found.all, given_bytes);
        let small = volumes.iter().filter(|volume| !volume.assessment.volume_given);
        let small: u32 = small.map(|volume| volume.volumes).sum();
        if self.volume_bytes.is_some() && small > 0 {
            assessment.volume_given = false;
            assessment.finding += &format!(
                " The size given is less than what is touched of {small} volume{}: taken for as \
                 large as that.",
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

    fn analyse(&self, passes: &Passes<'_>) -> Result<Analysis, ReportError> {
        let mut skew = self.skew.clone();
        skew.apart = self.threads > 1;
        let mut analyzer: Option<Analyzer> = None;
        let (mut first_ns, mut last_ns) = (0, 0);
        let trace = passes.read("analysing", &mut |records| {
            let analyzer = match &mut analyzer {
                Some(analyzer) => analyzer,
                none => {
                    first_ns = records[0].time_ns;
                    none.insert(Analyzer::new(&skew, first_ns)?)
                }
            };
            last_ns = records[records.len() - 1].time_ns;
            Ok(analyzer.add(records)?)
        })?;
        let Some(analyzer) = analyzer else { return Err(ReportError::no_records(passes.paths)) };
        let found = analyzer.finish()?;
        let named = found.volumes.iter().map(|(volume, part)| {
            Ok((trace.volumes()[*volume as usize].clone(), 1, part.figures(&self.skew)?))
        });
        let others = found.others.iter().map(|others| {
            let name = format!("{} other volumes", others.volumes);
            Ok((name, others.volumes, others.part.figures(&self.skew)?))
        });
        let volumes = named.chain(others);
        Ok(Analysis {
            all: found.all()?.figures(&self.skew)?,
            volumes: volumes.collect::<Result<_, SkewError>>()?,
            duration_ns: last_ns - first_ns,
            files: trace
                .readers()
                .zip(passes.paths)
                .map(|(reader, path)| FileReport::of(reader, path))
                .collect(),
        })
    }
}

/// The result of one pass over a trace.
struct Analysis {
    all: Figures,
    /// The name of each volume, how many volumes it stands for, and its figures.
    volumes: Vec<(String, u32, Figures)>,
    duration_ns: u64,
    files: Vec<FileReport>,
}
