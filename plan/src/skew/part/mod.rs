//! The result of an analysis for one set of pages: a volume, a range of its pages, or all volumes.
//!
//! Parts of disjoint sets of pages that were made with the same windows and the same start merge
//! exactly to the part of their union, in any order and grouping, if they carry their sums by
//! instant ([`Series`]). Where these sums are too many for one machine, a part is cut by time:
//! slices of the same time merge, and are then joined one after another ([`Join`]).

mod codec;
mod join;
mod sweep;

use std::collections::BTreeMap;

use super::estimate::{Kind, Sampled};
use super::options::{Options, Share, window_key};
use super::sample::Known;
use super::series::{OVERFLOW, Series};
use super::tally::Worst;
use super::varint::Wrong;
use super::{Figure, Figures, SkewError, WorstFigures};

pub use join::Join;

/// The windows of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// The worst window of each length.
    Maxima(Vec<Worst>),
    /// The sums that merging needs; the worst windows follow from them.
    Series(Series),
    /// The sums are in slices.
    Cut,
    /// The sums between two times; all else is in the part that was cut.
    Slice(Series),
}

/// The result for one set of pages.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub(super) start_ns: u64,
    pub(super) windows_ns: Vec<u64>,
    pub(super) records: u64,
    pub(super) write_records: u64,
    pub(super) span_ns: Option<(u64, u64)>,
    pub(super) touched_pages: u64,
    pub(super) page_writes: u64,
    /// How often pages were written, and how many pages so often, ascending.
    pub(super) histogram: Vec<(u64, u64)>,
    pub(super) body: Body,
    /// The estimates that stand in the place of counts.
    pub(super) sampled: Option<Sampled>,
}

impl Part {
    /// A part without pages, which a trace without records has.
    pub(super) fn empty(options: &Options, start_ns: u64) -> Self {
        let windows_ns = options.windows_ns().to_vec();
        let body = match options.mergeable {
            true => Body::Series(Series::new(windows_ns.len())),
            false => Body::Maxima(vec![Worst::default(); windows_ns.len()]),
        };
        Self::without_counts(start_ns, windows_ns, body)
    }

    fn without_counts(start_ns: u64, windows_ns: Vec<u64>, body: Body) -> Self {
        Self {
            start_ns,
            windows_ns,
            records: 0,
            write_records: 0,
            span_ns: None,
            touched_pages: 0,
            page_writes: 0,
            histogram: Vec::new(),
            body,
            sampled: None,
        }
    }

    /// Merges parts of disjoint sets of pages. Volumes, or ranges of pages, or parts that were
    /// merged before.
    pub fn merge<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Result<Part, SkewError> {
        let parts: Vec<&Part> = parts.into_iter().collect();
        let Some(first) = parts.first() else { return Err(SkewError::NoParts) };
        parts.iter().try_for_each(|part| first.check_like(part))?;
        let series: Vec<&Series> = parts
            .iter()
            .filter_map(|part| match (&first.body, &part.body) {
                (Body::Series(_), Body::Series(own)) | (Body::Slice(_), Body::Slice(own)) => {
                    Some(own)
                }
                _ => None,
            })
            .collect();
        let merged = || Series::merge(first.windows_ns.len(), &series).map_err(damaged);
        let cut = parts.iter().filter(|part| part.body == Body::Cut).count();
        let body = match first.body {
            Body::Series(_) if series.len() == parts.len() => Body::Series(merged()?),
            Body::Slice(_) if series.len() == parts.len() => Body::Slice(merged()?),
            Body::Cut if cut == parts.len() => Body::Cut,
            _ => return Err(SkewError::NotMergeable),
        };
        Self::sum(&parts, body)
    }

    /// Checks that windows and the start of the trace are the same.
    fn check_like(&self, part: &Part) -> Result<(), SkewError> {
        let unlike = |what, left, right| SkewError::Unlike { what, left, right };
        if part.windows_ns != self.windows_ns {
            let text = |part: &Part| format!("{:?} ns", part.windows_ns);
            return Err(unlike("the list of windows", text(self), text(part)));
        }
        if part.start_ns != self.start_ns {
            let text = |part: &Part| format!("{} ns", part.start_ns);
            return Err(unlike("the start of the trace", text(self), text(part)));
        }
        Ok(())
    }

    /// Everything but the windows, added up. `parts` is not empty, and its parts are alike.
    pub(super) fn sum(parts: &[&Part], body: Body) -> Result<Self, SkewError> {
        // Of parts that were counted nothing comes to so much, but bytes may say anything.
        let total = |of: fn(&Part) -> u64| {
            let mut numbers = parts.iter().map(|part| of(part));
            numbers.try_fold(0, u64::checked_add).ok_or(damaged(OVERFLOW))
        };
        let mut histogram = BTreeMap::new();
        for (count, pages) in parts.iter().flat_map(|part| &part.histogram) {
            let known: &mut u64 = histogram.entry(*count).or_default();
            *known = known.checked_add(*pages).ok_or(damaged(OVERFLOW))?;
        }
        let spans = parts.iter().filter_map(|part| part.span_ns);
        Ok(Self {
            start_ns: parts[0].start_ns,
            windows_ns: parts[0].windows_ns.clone(),
            records: total(|part| part.records)?,
            write_records: total(|part| part.write_records)?,
            span_ns: spans.reduce(|(from, to), (also, until)| (from.min(also), to.max(until))),
            touched_pages: total(|part| part.touched_pages)?,
            page_writes: total(|part| part.page_writes)?,
            histogram: histogram.into_iter().collect(),
            body,
            sampled: None,
        })
    }

    /// Puts estimates in the place of counts.
    pub(super) fn know(&mut self, known: Known) {
        self.histogram = known.histogram;
        self.sampled = Some(known.sampled);
    }

    /// The figures for these options' shares and windows; a window that was not counted is an
    /// error.
    pub fn figures(&self, options: &Options) -> Result<Figures, SkewError> {
        let worst = self.worst()?;
        let mut figures = Vec::new();
        for window_ns in options.windows_ns() {
            let Some(at) = self.windows_ns.iter().position(|known| known == window_ns) else {
                let text = |windows: &[u64]| format!("{windows:?} ns");
                let (left, right) = (text(options.windows_ns()), text(&self.windows_ns));
                return Err(SkewError::Unlike { what: "the list of windows", left, right });
            };
            let mut of = WorstFigures::exact(&worst[at]);
            if let Some(sampled) = &self.sampled {
                for (kind, of) in
                    [(Kind::Tumbling, &mut of.tumbling), (Kind::Sliding, &mut of.sliding)]
                {
                    of.unique_pages = sampled.worst(at, kind, of.adversarial_pages);
                }
            }
            figures.push((window_key(*window_ns), of));
        }
        let skew = options.shares_percent().iter().map(|share| (share.key(), self.skew(*share)));
        let [touched_pages, written_pages] = match &self.sampled {
            Some(sampled) => {
                [sampled.touched, self.written_pages()].map(|pages| sampled.pages(pages))
            }
            None => [self.touched_pages, self.written_pages()].map(Figure::exact),
        };
        Ok(Figures {
            records: self.records,
            touched_pages,
            written_pages,
            page_writes: self.page_writes,
            worst: figures,
            skew_pages: skew.collect(),
        })
    }

    /// The fewest hottest pages that receive at least this share of the page writes.
    pub fn skew(&self, share: Share) -> Figure {
        match &self.sampled {
            Some(sampled) if sampled.rate < 1.0 => {
                sampled.skew(share, self.page_writes, &self.histogram)
            }
            _ => Figure::exact(hottest(&self.histogram, share.of(self.page_writes))),
        }
    }

    fn written_pages(&self) -> u64 {
        self.histogram.iter().map(|(_, pages)| pages).sum()
    }

    /// The records; a record whose pages lie in several parts is in one of them.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The records that write.
    pub fn write_records(&self) -> u64 {
        self.write_records
    }

    /// The times of the first and the last record, nanoseconds.
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        self.span_ns
    }

    /// The pages of all writes, each as often as it was written.
    pub fn page_writes(&self) -> u64 {
        self.page_writes
    }

    /// How often a page was written, and how many pages so often, ascending; of an approximate
    /// part, those of the sample.
    pub fn histogram(&self) -> &[(u64, u64)] {
        &self.histogram
    }

    fn worst(&self) -> Result<Vec<Worst>, SkewError> {
        match &self.body {
            Body::Maxima(worst) => Ok(worst.clone()),
            Body::Series(series) => sweep::worst_of(series, &self.windows_ns).map_err(damaged),
            Body::Cut | Body::Slice(_) => Err(SkewError::Cut),
        }
    }
}

/// The error of merged parts that are wrong: they were checked when they were read, so memory has
/// changed since.
fn damaged(wrong: Wrong) -> SkewError {
    SkewError::Damaged { what: wrong.what, at: wrong.at as u64, len_bytes: 0 }
}

/// The fewest pages, hottest first, whose counts are at least `writes`.
fn hottest(histogram: &[(u64, u64)], writes: u64) -> u64 {
    let (mut left, mut taken) = (writes, 0);
    for (count, pages) in histogram.iter().rev() {
        if u128::from(*count) * u128::from(*pages) >= u128::from(left) {
            return taken + left.div_ceil(*count);
        }
        left -= count * pages;
        taken += pages;
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_pages_are_counted_page_by_page() {
        // Counts 5, 3, 3, 1, 1, 1.
        let histogram = [(1, 3), (3, 2), (5, 1)];
        let naive = |writes: u64| {
            let mut left = writes as i64;
            [5, 3, 3, 1, 1, 1]
                .iter()
                .take_while(|c| {
                    let more = left > 0;
                    left -= **c;
                    more
                })
                .count() as u64
        };
        for writes in 0..=14 {
            assert_eq!(hottest(&histogram, writes), naive(writes), "{writes}");
        }
        assert_eq!(hottest(&[], 0), 0);
        assert_eq!(hottest(&[(u64::MAX, 1)], u64::MAX), 1);
    }
}
