//! Counters of one volume, or of all, over all windows; and the worst that was seen.
//!
//! Page writes of a window are a difference of two totals, so only pages are counted one by one.

use super::options::WINDOWS_MAX;
use super::series::{Series, Tumbled};

/// A number a window.
pub type PerWindow = [u64; WINDOWS_MAX];

/// The most pages written in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Most {
    /// Each write counted as a new page.
    pub adversarial: u64,
    /// Different pages.
    pub unique: u64,
}

/// Of one length: windows of the clock, and windows ending at a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worst {
    pub tumbling: Most,
    pub sliding: Most,
}

/// Counters of a set of pages.
#[derive(Clone, Default)]
pub struct Tally {
    pub page_writes: u64,
    /// Different pages in the sliding window that ends now.
    pub unique: PerWindow,
    /// Page writes that are older than the sliding window.
    pub expired: PerWindow,
    tumbling_unique: PerWindow,
    /// Page writes before the window of the clock.
    tumbling_before: PerWindow,
    /// Which window of the clock the two are of.
    tumbling_number: PerWindow,
    sliding_most: [Most; WINDOWS_MAX],
    tumbling_most: [Most; WINDOWS_MAX],
    /// What merging needs, if anybody will merge.
    pub series: Option<Box<Series>>,
}

impl Tally {
    pub fn new(series: Option<Series>) -> Self {
        Self { series: series.map(Box::new), ..Self::default() }
    }

    /// Goes over to these windows of the clock, before anything is counted in them.
    #[inline]
    pub fn turn<const N: usize>(&mut self, numbers: &PerWindow) {
        for (window, number) in numbers.iter().enumerate().take(N) {
            if self.tumbling_number[window] != *number {
                self.close(window, *number);
            }
        }
    }

    /// Ends one window of the clock.
    fn close(&mut self, window: usize, next: u64) {
        let unique = std::mem::take(&mut self.tumbling_unique[window]);
        let before = std::mem::replace(&mut self.tumbling_before[window], self.page_writes);
        let number = std::mem::replace(&mut self.tumbling_number[window], next);
        let written = self.page_writes - before;
        let most = &mut self.tumbling_most[window];
        most.unique = most.unique.max(unique);
        most.adversarial = most.adversarial.max(written);
        if let Some(series) = self.series.as_mut().filter(|_| written > 0) {
            series.push_tumbled(window, Tumbled { number, unique, written });
        }
    }

    /// Counts pages that are new in windows.
    #[inline]
    pub fn enter<const N: usize>(&mut self, sliding: &[u64; N], tumbling: &[u64; N]) {
        for window in 0..N {
            self.unique[window] += sliding[window];
            self.tumbling_unique[window] += tumbling[window];
        }
    }

    /// Whether a sliding window may be worse than all before: it is, if its left edge lies where it should.
    #[inline]
    pub fn may_rise(&self, window: usize) -> bool {
        let most = &self.sliding_most[window];
        self.unique[window] > most.unique
            || self.page_writes - self.expired[window] > most.adversarial
    }

    /// The sliding windows that end now are complete.
    #[inline]
    pub fn settle<const N: usize>(&mut self) {
        for window in 0..N {
            let most = &mut self.sliding_most[window];
            most.unique = most.unique.max(self.unique[window]);
            most.adversarial = most.adversarial.max(self.page_writes - self.expired[window]);
        }
    }

    /// The end: the last windows count, too.
    pub fn worst(&mut self, windows: usize) -> Vec<Worst> {
        (0..windows)
            .map(|window| {
                self.close(window, 0);
                let (tumbling, sliding) = (self.tumbling_most[window], self.sliding_most[window]);
                Worst { tumbling, sliding }
            })
            .collect()
    }
}
