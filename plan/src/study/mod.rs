//! One trace from its files to a plan: read, analysed, replayed, sized. What `perdura plan trace`
//! shows is made here.
//!
//! A trace is read once for the analysis and again for every round of replays: nothing of it is
//! kept. Each of many traces is a study of its own, so that they can be made at once.

mod error;
mod parts;
mod passes;
mod report;
mod resolution;
mod sizing;
mod verdict;

use std::path::PathBuf;

use crate::skew::{Analyzer, Figures, Options, SkewError};
use crate::trace::{PAGE_BYTES, ReadOptions};

pub use error::StudyError;
pub use report::{FileReport, SizingReport, TraceReport, VolumeReport};
pub use resolution::Resolution;
pub use sizing::{BudgetRow, BudgetWish, ReplacedBudget, SizingQuestion};
pub use verdict::{Verdict, verdict};

use passes::Passes;

/// What is asked of a trace.
#[derive(Debug, Clone)]
pub struct Question {
    /// How its files are read.
    pub read: ReadOptions,
    /// What is counted.
    pub skew: Options,
    /// Size of each volume; `None`: what is touched of it.
    pub volume_bytes: Option<u64>,
    /// What budgets cost; `None`: not asked.
    pub sizing: Option<SizingQuestion>,
    /// Threads the study may keep busy. With more than one, reading, counting pages and counting
    /// windows have one each.
    pub threads: usize,
}

/// How far a study is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// What it does.
    pub step: &'static str,
    /// Bytes read of the files as they lie.
    pub done_bytes: u64,
    /// Of so many, where that is known.
    pub total_bytes: Option<u64>,
    /// Records so far, in this pass.
    pub records: u64,
}

impl Question {
    /// Makes the study of `paths` as one trace. `progress` is told every batch.
    ///
    /// # Errors
    /// What could not be read, with file and place; what cannot be replayed.
    pub fn study(
        &self,
        name: &str,
        paths: &[PathBuf],
        progress: &dyn Fn(Progress),
    ) -> Result<TraceReport, StudyError> {
        if self.sizing.is_some()
            && let Some(error) = paths.iter().find_map(|path| StudyError::once(path))
        {
            return Err(error);
        }
        let passes = Passes { paths, read: &self.read, threads: self.threads, progress };
        let analysis = self.analyse(&passes)?;
        let mut report = report::of(self, name, &analysis);
        if let Some(question) = &self.sizing
            && report.all.page_writes > 0
        {
            let written_bytes = bytes_of(report.all.written_pages.pages);
            let (memory_bytes, page_writes) = (report.memory_bytes(), report.all.page_writes);
            let sizing = question.answer(&passes, memory_bytes, written_bytes, page_writes)?;
            report.sizing = Some(sizing);
        }
        report.resolution = Resolution::of(&report);
        report.verdict = verdict(&report);
        Ok(report)
    }

    fn analyse(&self, passes: &Passes<'_>) -> Result<Analysis, StudyError> {
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
        let Some(analyzer) = analyzer else { return Err(StudyError::no_records(passes.paths)) };
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

/// What one pass over a trace found.
struct Analysis {
    all: Figures,
    /// Name, how many it stands for, figures.
    volumes: Vec<(String, u32, Figures)>,
    duration_ns: u64,
    files: Vec<FileReport>,
}

/// Pages as bytes.
fn bytes_of(pages: u64) -> u64 {
    pages.saturating_mul(PAGE_BYTES)
}
