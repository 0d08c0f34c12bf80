//! The results of one thread: latencies by kind of operation, errors, bytes. The threads' results
//! are added up.
//!
//! With a target rate a latency runs from the *intended* start: an operation that waits because the
//! one before it was slow has waited, whatever the cause (coordinated omission). The time from the
//! actual start is kept as the service time. Without a rate the two are the same.
//!
//! With a pipeline a latency runs from the instant at which the batch's first operation was written
//! into the buffer until the operation's own reply was read, so it includes the wait for the batch;
//! the batch's whole time is kept separately. Target rates then apply to batches: all operations of
//! a batch are due at once.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::workload::OpKind;

/// Longest time that is recorded: an hour. Longer times count as an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// Times of one kind of operation.
#[derive(Debug, Clone)]
pub struct Times(Option<Histogram<u64>>);

impl Times {
    /// An empty set of times.
    pub fn new() -> Self {
        // The library refuses only impossible bounds, and these are possible.
        Self(Histogram::new_with_max(LONGEST_NS, DIGITS).ok())
    }

    /// Adds a time.
    pub fn add_ns(&mut self, ns: u64) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(ns);
        }
    }

    /// Adds all times of another set.
    pub fn merge(&mut self, other: &Self) {
        if let (Some(histogram), Some(other)) = (&mut self.0, &other.0) {
            // The library refuses only other bounds, and these are the same.
            let _ = histogram.add(other);
        }
    }

    /// A summary; `None` if there are no times.
    pub fn summary(&self) -> Option<Summary> {
        let histogram = self.0.as_ref().filter(|histogram| !histogram.is_empty())?;
        Some(Summary {
            count: histogram.len(),
            mean: histogram.mean(),
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p99_9: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        })
    }
}

impl Default for Times {
    fn default() -> Self {
        Self::new()
    }
}

/// A summary of times in nanoseconds; percentiles have three digits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of times.
    pub count: u64,
    /// Mean, nanoseconds.
    pub mean: f64,
    /// Median, nanoseconds.
    pub p50: u64,
    /// 99th percentile, nanoseconds.
    pub p99: u64,
    /// 99.9th percentile, nanoseconds.
    pub p99_9: u64,
    /// Longest time, nanoseconds.
    pub max: u64,
}

/// The results of one thread, or the sum of several.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Latencies by kind of operation, from the intended start.
    pub latency: BTreeMap<OpKind, Times>,
    /// Latencies by kind of operation, from the actual start; filled only with a target rate.
    pub service: BTreeMap<OpKind, Times>,
    /// Times of whole batches; filled only with a pipeline.
    pub batch: Times,
    /// Operations that ended, well or not.
    pub operations: u64,
    /// Operations that were refused.
    pub errors: u64,
    /// Operations that did not find their record.
    pub missing: u64,
    /// The first error.
    pub first_error: Option<String>,
    /// Bytes that the user wrote: keys, names of fields, values.
    pub user_bytes: u64,
}

impl Tally {
    /// Adds another thread's results.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in
            [(&mut self.latency, &other.latency), (&mut self.service, &other.service)]
        {
            for (kind, times) in theirs {
                mine.entry(*kind).or_default().merge(times);
            }
        }
        self.batch.merge(&other.batch);
        self.operations += other.operations;
        self.errors += other.errors;
        self.missing += other.missing;
        self.user_bytes += other.user_bytes;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
    }
}

/// Summaries by the kind's name.
pub fn summaries(times: &BTreeMap<OpKind, Times>) -> BTreeMap<String, Summary> {
    let summary =
        |(kind, times): (&OpKind, &Times)| Some((kind.name().to_owned(), times.summary()?));
    times.iter().filter_map(summary).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up() {
        let mut a = Tally { operations: 1, errors: 1, ..Tally::default() };
        a.latency.entry(OpKind::Read).or_default().add_ns(1000);
        let mut b = Tally { operations: 2, first_error: Some("no".into()), ..Tally::default() };
        b.latency.entry(OpKind::Read).or_default().add_ns(3000);
        b.latency.entry(OpKind::Scan).or_default().add_ns(5);
        a.merge(&b);
        assert_eq!((a.operations, a.errors, a.first_error.as_deref()), (3, 1, Some("no")));
        let read = a.latency[&OpKind::Read].summary().unwrap();
        assert_eq!(read.count, 2);
        assert!((read.mean - 2000.0).abs() < 3.0, "{read:?}");
        assert_eq!(summaries(&a.latency).keys().collect::<Vec<_>>(), ["read", "scan"]);
    }

    #[test]
    fn what_took_longer_than_an_hour_counts_as_an_hour() {
        let mut times = Times::new();
        times.add_ns(u64::MAX);
        assert!(times.summary().unwrap().max >= LONGEST_NS);
        assert_eq!(Times::new().summary(), None);
    }
}
