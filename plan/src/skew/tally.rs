//! The counters of one volume, or of all volumes, over all windows, and the worst counts so far.
//!
//! The page writes of a window are the difference of two totals, so only different pages are
//! counted one by one.

use super::options::WINDOWS_MAX;
use super::series::{Series, Tumbled};

/// A number for each window.
pub type PerWindow = [u64; WINDOWS_MAX];

/// The most pages that are written in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Most {
    /// The page writes, each counted as one to a new page.
    pub adversarial: u64,
    /// The different pages.
    pub unique: u64,
}

/// The worst windows of one length: of the clock, and ending at a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worst {
    pub tumbling: Most,
    pub sliding: Most,
}

/// The counters of a set of pages.
#[derive(Clone, Default)]
pub struct Tally {
    pub page_writes: u64,
    /// The different pages in each sliding window that ends now.
    pub unique: PerWindow,
    /// The page writes that are older than each sliding window.
    pub expired: PerWindow,
    tumbling_unique: PerWindow,
    /// The page writes before each window of the clock.
    tumbling_before: PerWindow,
    /// The number of the window of the clock that the two fields before count in.
    tumbling_number: PerWindow,
    /// The value of `turns` when the windows of the clock were last looked at.
    turns: u64,
    sliding_most: [Most; WINDOWS_MAX],
    /// The sliding windows that are now worse than all before, a bit each: what they are is noted
    /// when they cease to be complete.
    rising: u32,
    /// Different pages above which a sliding window is looked at: those of its worst, none while it
    /// rises.
    unique_max: PerWindow,
    /// Page writes in all above which a sliding window is looked at; it may be too low, never too
    /// high.
    writes_max: u64,
    tumbling_most: [Most; WINDOWS_MAX],
    /// The sums that merging needs, if parts are to be merged.
    pub series: Option<Box<Series>>,
}

impl Tally {
    pub fn new(series: Option<Series>) -> Self {
        Self { series: series.map(Box::new), ..Self::default() }
    }

    /// Goes over to these windows of the clock, before anything is counted in them; `turns` is new
    /// when one of them is.
    #[inline]
    pub fn turn(&mut self, turns: u64, numbers: &[u64]) {
        if self.turns != turns {
            self.turn_to(turns, numbers);
        }
    }

    fn turn_to(&mut self, turns: u64, numbers: &[u64]) {
        self.turns = turns;
        for (window, number) in numbers.iter().enumerate() {
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

    /// Counts pages that are new in windows; whether a sliding one is to be looked at.
    #[inline]
    pub fn enter<const N: usize>(&mut self, sliding: &[u64; N], tumbling: &[u64; N]) -> bool {
        let mut looked_at = false;
        for window in 0..N {
            self.unique[window] += sliding[window];
            self.tumbling_unique[window] += tumbling[window];
            looked_at |= self.unique[window] > self.unique_max[window];
        }
        looked_at
    }

    /// Counts page writes; returns whether a sliding window has to be looked at.
    #[inline]
    pub fn write(&mut self, count: u64) -> bool {
        self.page_writes += count;
        self.page_writes > self.writes_max
    }

    /// Whether a sliding window may be worse than all before: it is, if its left edge lies where it
    /// should.
    pub fn may_rise(&self, window: usize) -> bool {
        let most = &self.sliding_most[window];
        self.rising & 1 << window == 0
            && (self.unique[window] > most.unique
                || self.page_writes - self.expired[window] > most.adversarial)
    }

    /// This sliding window is worse than all before; as long as its left edge stays where it is it
    /// can only become more so.
    pub fn rise(&mut self, window: usize) {
        self.rising |= 1 << window;
        self.unique_max[window] = u64::MAX;
    }

    /// The sliding window that ended at the last instant was complete, the next will not be.
    pub fn settle(&mut self, window: usize) {
        let most = &mut self.sliding_most[window];
        most.unique = most.unique.max(self.unique[window]);
        most.adversarial = most.adversarial.max(self.page_writes - self.expired[window]);
        self.rising &= !(1 << window);
        self.unique_max[window] = most.unique;
        self.writes_max = self.writes_max.min(self.expired[window] + most.adversarial);
    }

    /// Left edges have moved, or windows rise: what page writes need not be looked at?
    pub fn note_writes(&mut self, windows: usize) {
        let calm = (0..windows).filter(|window| self.rising & 1 << window == 0);
        let max = calm.map(|w| self.expired[w] + self.sliding_most[w].adversarial).min();
        self.writes_max = max.unwrap_or(u64::MAX);
    }

    fn settle_risen(&mut self, window: usize) {
        if self.rising & 1 << window != 0 {
            self.settle(window);
        }
    }

    /// The worst windows at the end; the last windows count, too.
    pub fn worst(&mut self, windows: usize) -> Vec<Worst> {
        (0..windows)
            .map(|window| {
                self.close(window, 0);
                self.settle_risen(window);
                let (tumbling, sliding) = (self.tumbling_most[window], self.sliding_most[window]);
                Worst { tumbling, sliding }
            })
            .collect()
    }
}
