//! Reports from parts that were counted elsewhere, by other processes or on other machines.

use super::{Analysis, FileReport, Question, TraceReport};
use crate::skew::{Options, Part, SkewError};
use crate::trace::ReadOptions;

impl TraceReport {
    /// The report of a trace whose volumes' parts, and that of all, are there. Budgets are not
    /// asked for: they need the records.
    ///
    /// # Errors
    /// Parts of other windows than `skew` asks for.
    pub fn of_parts(
        name: &str,
        files: Vec<FileReport>,
        volumes: &[(String, Part)],
        all: &Part,
        skew: &Options,
        volume_bytes: Option<u64>,
    ) -> Result<Self, SkewError> {
        let figures = volumes.iter().map(|(name, part)| Ok((name.clone(), 1, part.figures(skew)?)));
        let found = Analysis {
            all: all.figures(skew)?,
            volumes: figures.collect::<Result<_, SkewError>>()?,
            duration_ns: all.span_ns().map_or(0, |(first_ns, last_ns)| last_ns - first_ns),
            files,
        };
        let (read, skew) = (ReadOptions::default(), skew.clone());
        let question = Question { read, skew, volume_bytes, sizing: None, threads: 1 };
        let mut report = question.outline(name, &found);
        report.conclude();
        Ok(report)
    }
}
