//! The messages from the pages to the windows: when pages were written, and when each was written
//! before.

use crate::skew::queue::Instant;

/// How many page writes are gathered before the windows are told.
const FULL: usize = 4096;

/// Page writes, in the order of time.
#[derive(Default)]
pub struct Moves {
    /// The writes of one volume at one time, each a whole instant or the next part of one.
    pub runs: Vec<Instant>,
    /// For the page writes of all runs, one after another, the number of the instant at which the
    /// page was written before.
    pub lasts: Vec<u64>,
}

impl Moves {
    /// How many more page writes it takes.
    #[inline]
    pub fn room(&self) -> usize {
        FULL.saturating_sub(self.runs.len().max(self.lasts.len()))
    }

    /// Adds page writes of an instant, which is new or goes on.
    #[inline]
    pub fn push(&mut self, run: Instant, is_new: bool) {
        match self.runs.last_mut() {
            Some(last) if !is_new && last.volume == run.volume && last.written < u32::MAX / 2 => {
                last.written += run.written;
            }
            _ => self.runs.push(run),
        }
    }

    pub fn clear(&mut self) {
        self.runs.clear();
        self.lasts.clear();
    }
}
