//! The limits of a trace that was recorded by looks: it says nothing about times shorter than the
//! time between two looks.
//!
//! A write is known from the look that found it, up to an interval late, and all writes to a page
//! between two looks are one write. So the edges of a window are wrong by up to an interval, and in
//! a replay all writes of an interval arrive at one instant. Memory that was gone again at the time
//! of the look is not in the trace.

use std::time::Duration;

use perdura_media::{Bytes, format_duration};
use serde::Serialize;

use super::budget::{BudgetRow, SizingReport};
use crate::trace::Looks;

/// The fewest intervals of a window that can be trusted: with ten, an edge that is wrong by an
/// interval changes the window by a tenth.
const FEW: u64 = 10;

/// The times that a recording resolves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Resolution {
    /// Time between looks, as it was meant to be: the longest of all files. Nanoseconds.
    pub every_ns: u64,
    /// The longest time between two looks of any file, nanoseconds: below it nothing is known.
    pub interval_ns: u64,
    /// The windows that are shorter than a few intervals, by their keys.
    pub short_windows: Vec<String>,
    /// Budgets that the SSD writes in less than a few intervals: how often writes wait for these is
    /// not known.
    pub short_budgets_bytes: Vec<u64>,
    /// Notes in words: the first describes the recording, the others warn.
    pub notes: Vec<String>,
}

impl Resolution {
    /// The resolution of recordings with these looks: which windows, by their keys, and which
    /// budgets are too short. `None` if no file is a recording.
    pub(super) fn of(
        looks: &[Looks],
        windows: &[&str],
        sizing: Option<&SizingReport>,
    ) -> Option<Self> {
        let every_ns = looks.iter().map(|looks| looks.every_ns).max()?;
        let interval_ns = looks.iter().copied().map(Looks::interval_ns).max()?;
        let few_ns = interval_ns.saturating_mul(FEW);
        let is_short = |key: &&&str| window_ns(key).is_some_and(|window_ns| window_ns < few_ns);
        let short_windows = windows.iter().filter(is_short).map(|key| (*key).to_owned()).collect();
        let budgets = |sizing: &SizingReport| -> Vec<u64> {
            let chosen_bytes = sizing.chosen.budget_bytes;
            let is_shown = |row: &&BudgetRow| row.is_asked || row.budget_bytes == chosen_bytes;
            let rows = sizing.budgets.iter().filter(is_shown);
            let rate = sizing.server.flush_bytes_per_s;
            let is_short = |bytes: &u64| drain_ns(*bytes, rate) < few_ns;
            rows.map(|row| row.budget_bytes).filter(is_short).collect()
        };
        let short_budgets_bytes = sizing.map(budgets).unwrap_or_default();
        let mut found =
            Self { every_ns, interval_ns, short_windows, short_budgets_bytes, notes: Vec::new() };
        found.notes = found.in_words(sizing);
        Some(found)
    }

    fn in_words(&self, sizing: Option<&SizingReport>) -> Vec<String> {
        let shown = |ns| format_duration(Duration::from_nanos(ns));
        let mut made = format!("a recording by looks {} apart", shown(self.every_ns));
        if self.interval_ns > self.every_ns {
            made += &format!(" ({} at most)", shown(self.interval_ns));
        }
        made += ": a page's writes between two looks count once, at the later, and what is \
            unmapped or given back before the next look is not seen; so page writes are a lower \
            bound, and a shorter --every sees more";
        let mut notes = vec![made];
        if !self.short_windows.is_empty() {
            let windows = self.short_windows.iter().filter_map(|key| window_ns(key)).map(shown);
            notes.push(format!(
                "windows of {} are shorter than {FEW} times that: which pages are written in them \
                 is known too roughly; record again with a shorter --every, or ask for longer \
                 --windows",
                windows.collect::<Vec<_>>().join(", ")
            ));
        }
        let short =
            |sizing: &&SizingReport| self.short_budgets_bytes.contains(&sizing.chosen.budget_bytes);
        if let Some(sizing) = sizing.filter(short) {
            let rate = sizing.server.flush_bytes_per_s;
            let chosen_ns = drain_ns(sizing.chosen.budget_bytes, rate);
            notes.push(format!(
                "the SSD writes the budget of {} in {}, less than {FEW} times that: how often and \
                 how long writes wait is not known from this recording; record again with --every \
                 {} or less",
                Bytes(sizing.chosen.budget_bytes),
                shown(chosen_ns),
                at_most(chosen_ns / FEW)
            ));
        }
        notes
    }
}

/// The time in which the SSD writes so many bytes, nanoseconds.
fn drain_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// The length of a window by its key, nanoseconds; the key is in seconds.
pub(super) fn window_ns(key: &str) -> Option<u64> {
    let seconds: f64 = key.parse().ok()?;
    let window = Duration::try_from_secs_f64(seconds).ok()?;
    u64::try_from(window.as_nanos()).ok()
}

/// A time as it is given on a command line, rounded down to one digit, and a millisecond at least:
/// looks are not for nothing.
fn at_most(ns: u64) -> String {
    let us = (ns / 1_000).max(1_000);
    let unit = 10_u64.pow(us.ilog10());
    format_duration(Duration::from_micros(us / unit * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_record_with_are_round_and_never_longer() {
        let cases = [(1, "1ms"), (3_999_999, "3ms"), (47_000_000, "40ms"), (1_900_000_000, "1s")];
        for (ns, shown) in cases {
            assert_eq!(at_most(ns), shown);
        }
    }

    #[test]
    fn a_window_is_known_by_its_key() {
        assert_eq!((window_ns("60"), window_ns("0.5")), (Some(60_000_000_000), Some(500_000_000)));
        assert_eq!(window_ns("x"), None);
        assert_eq!(drain_ns(1 << 30, 1 << 30), 1_000_000_000);
        assert_eq!(drain_ns(u64::MAX, 0), u64::MAX);
    }
}
