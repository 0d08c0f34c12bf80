//! The result for one set of pages: a volume, a range of its pages, or all volumes.
//!
//! Parts of disjoint sets of pages, made with the same windows and the same origin, merge to the part of their union, in any
//! order and any grouping, to the last digit, if they carry their sums by instant ([`Series`]).

mod codec;

use std::collections::BTreeMap;

use super::estimate::Sampled;
use super::options::{Options, Share, window_key};
use super::sample::Known;
use super::series::{Series, Sums};
use super::tally::{Most, Worst};
use super::varint::Wrong;
use super::{Figure, Figures, SkewError, WorstFigures};

/// What is known of windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// The worst of each length.
    Maxima(Vec<Worst>),
    /// What merging needs; the worst follow from it.
    Series(Series),
}

/// The result for one set of pages.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub(super) origin_ns: u64,
    pub(super) windows_ns: Vec<u64>,
    pub(super) records: u64,
    pub(super) write_records: u64,
    pub(super) span_ns: Option<(u64, u64)>,
    pub(super) touched_pages: u64,
    pub(super) page_writes: u64,
    /// How often a page was written, and how many pages so often, ascending.
    pub(super) histogram: Vec<(u64, u64)>,
    pub(super) body: Body,
    /// Estimates in the place of counts.
    pub(super) sampled: Option<Sampled>,
}

impl Part {
    /// A part without pages: what a trace without records has.
    pub(super) fn empty(options: &Options, origin_ns: u64) -> Self {
        let windows_ns = options.windows_ns().to_vec();
        let body = match options.mergeable {
            true => Body::Series(Series::new(windows_ns.len())),
            false => Body::Maxima(vec![Worst::default(); windows_ns.len()]),
        };
        Self {
            origin_ns,
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

    /// Merges parts of disjoint sets of pages. Volumes, or ranges of pages, or parts that were merged before.
    pub fn merge<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Result<Part, SkewError> {
        let parts: Vec<&Part> = parts.into_iter().collect();
        let Some(first) = parts.first() else { return Err(SkewError::NoParts) };
        let mut series = Vec::new();
        for part in &parts {
            let unlike = |what, left, right| SkewError::Unlike { what, left, right };
            if part.windows_ns != first.windows_ns {
                let text = |part: &Part| format!("{:?} ns", part.windows_ns);
                return Err(unlike("the list of windows", text(first), text(part)));
            }
            if part.origin_ns != first.origin_ns {
                let text = |part: &Part| format!("{} ns", part.origin_ns);
                return Err(unlike("the origin of time", text(first), text(part)));
            }
            match &part.body {
                Body::Series(own) => series.push(own),
                Body::Maxima(_) => return Err(SkewError::NotMergeable),
            }
        }
        let merged = Series::merge(first.windows_ns.len(), &series).map_err(damaged)?;
        Ok(Self::sum(&parts, Body::Series(merged)))
    }

    /// The part without what merging needs: small, and with the same figures.
    pub fn settled(self) -> Result<Part, SkewError> {
        let worst = self.worst()?;
        Ok(Self { body: Body::Maxima(worst), ..self })
    }

    /// Everything but the windows, added up. `parts` is not empty, and its parts are alike.
    pub(super) fn sum(parts: &[&Part], body: Body) -> Self {
        let total = |of: fn(&Part) -> u64| parts.iter().map(|part| of(part)).sum();
        let mut histogram = BTreeMap::new();
        for (count, pages) in parts.iter().flat_map(|part| &part.histogram) {
            *histogram.entry(*count).or_insert(0) += pages;
        }
        let spans = parts.iter().filter_map(|part| part.span_ns);
        Self {
            origin_ns: parts[0].origin_ns,
            windows_ns: parts[0].windows_ns.clone(),
            records: total(|part| part.records),
            write_records: total(|part| part.write_records),
            span_ns: spans.reduce(|(from, to), (also, until)| (from.min(also), to.max(until))),
            touched_pages: total(|part| part.touched_pages),
            page_writes: total(|part| part.page_writes),
            histogram: histogram.into_iter().collect(),
            body,
            sampled: None,
        }
    }

    /// Estimates take the place of counts.
    pub(super) fn know(&mut self, known: Known) {
        self.histogram = known.histogram;
        self.sampled = Some(known.sampled);
    }

    /// The figures for these options' shares and windows; a window that was not counted is an error.
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
                for (kind, of) in [&mut of.tumbling, &mut of.sliding].into_iter().enumerate() {
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

    /// Records; a record whose pages lie in several parts is in one of them.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Records that write.
    pub fn write_records(&self) -> u64 {
        self.write_records
    }

    /// Times of the first and the last record.
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        self.span_ns
    }

    /// Page writes: pages of all writes, each as often as it was written.
    pub fn page_writes(&self) -> u64 {
        self.page_writes
    }

    /// How often a page was written, and how many pages so often, ascending; of an approximate part, those of the sample.
    pub fn histogram(&self) -> &[(u64, u64)] {
        &self.histogram
    }

    fn worst(&self) -> Result<Vec<Worst>, SkewError> {
        match &self.body {
            Body::Maxima(worst) => Ok(worst.clone()),
            Body::Series(series) => worst_of(series, &self.windows_ns).map_err(damaged),
        }
    }
}

/// What merged parts hold was checked when it was read; so this is memory gone wrong, said rather than believed.
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

/// How often pages were written: small numbers are most of them.
pub(super) fn histogram_of(counts: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    const SMALL: usize = 4096;
    let (mut small, mut large) = (vec![0u64; SMALL], BTreeMap::new());
    for count in counts {
        match small.get_mut(count as usize) {
            Some(pages) => *pages += 1,
            None => *large.entry(count).or_insert(0) += 1,
        }
    }
    let small = small.into_iter().enumerate().map(|(count, pages)| (count as u64, pages));
    small.filter(|(count, pages)| *count > 0 && *pages > 0).chain(large).collect()
}

/// The worst windows: one pass, in which each sliding window's left edge is a second reader of the same instants.
fn worst_of(series: &Series, windows_ns: &[u64]) -> Result<Vec<Worst>, Wrong> {
    let mut worst = vec![Worst::default(); windows_ns.len()];
    let mut lefts = Vec::new();
    for window in 0..windows_ns.len() {
        let mut left = series.leaves_of(window);
        let head = left.next()?;
        lefts.push((left, head, 0u64, 0u64));
    }
    let (mut right, mut sums, mut total) = (series.cursor(), Sums::new(windows_ns.len()), 0u64);
    while right.next(&mut sums)? {
        total = total.checked_add(sums.written).ok_or(BEYOND)?;
        for (window, length_ns) in windows_ns.iter().enumerate() {
            let (left, head, unique, expired) = &mut lefts[window];
            while let Some(old) =
                head.filter(|old| old.time_ns.saturating_add(*length_ns) <= sums.time_ns)
            {
                *unique = unique.checked_sub(old.leaves).ok_or(BELOW)?;
                *expired += old.written;
                *head = left.next()?;
            }
            *unique = unique.checked_add(sums.enters[window]).ok_or(BEYOND)?;
            let written = total - *expired;
            if *unique > written {
                return Err(ABOVE);
            }
            most(&mut worst[window].sliding, *unique, written);
        }
    }
    for (window, (left, head, unique, _)) in lefts.iter_mut().enumerate() {
        while let Some(old) = head.take() {
            *unique = unique.checked_sub(old.leaves).ok_or(BELOW)?;
            *head = left.next()?;
        }
        if *unique != 0 {
            return Err(ABOVE);
        }
        let (mut windows, mut written) = (series.tumbling_cursor(window), 0u64);
        while let Some(tumbled) = windows.next()? {
            written = written.checked_add(tumbled.written).ok_or(BEYOND)?;
            most(&mut worst[window].tumbling, tumbled.unique, tumbled.written);
        }
        if written != total {
            return Err(Wrong { what: "windows of the clock miss writes", at: 0 });
        }
    }
    Ok(worst)
}

const BEYOND: Wrong = Wrong { what: "sums beyond 2^64", at: 0 };
const BELOW: Wrong = Wrong { what: "more pages leave a window than entered", at: 0 };
const ABOVE: Wrong = Wrong { what: "more pages in a window than were written or left", at: 0 };

fn most(of: &mut Most, unique: u64, written: u64) {
    of.unique = of.unique.max(unique);
    of.adversarial = of.adversarial.max(written);
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
