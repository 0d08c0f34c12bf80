//! Volatile pools of free spans, in runs ordered by position and taken by first fit. The heap's pool
//! has whole blocks, which belong to no lane, and the meta lane's lock guards it. Each lane has a
//! pool of the free spans of its own blocks, guarded by its lock.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::layout::BLOCK_SPANS;

/// Free runs of spans.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Length of each free run, by the run's first span. Neighbouring runs are always joined.
    runs: BTreeMap<u64, u64>,
    /// Spans in all runs.
    free: u64,
    /// Spans that the pool knows of; a region that has grown has more.
    end: u64,
}

impl Pool {
    /// An empty pool of a region that ends at span `end`.
    pub fn up_to(end: u64) -> Self {
        Self { end, ..Self::default() }
    }

    /// The number of free spans.
    pub fn free_spans(&self) -> u64 {
        self.free
    }

    /// Takes in the spans that a region has grown by, which now ends at span `end`.
    pub fn extend(&mut self, end: u64) {
        let from = self.end;
        if from < end {
            self.end = end;
            self.put(from, end - from);
        }
    }

    /// Whether there are so many contiguous free spans.
    pub fn has(&self, spans: u64) -> bool {
        self.runs.values().any(|len| *len >= spans)
    }

    /// Takes `spans` contiguous spans from the lowest run that has as many, and returns the first.
    pub fn take(&mut self, spans: u64) -> Option<u64> {
        let (&start, &len) = self.runs.iter().find(|(_, len)| **len >= spans)?;
        self.runs.remove(&start);
        if len > spans {
            self.runs.insert(start + spans, len - spans);
        }
        self.free -= spans;
        Some(start)
    }

    /// Takes out the whole blocks of the free run that a span lies in.
    pub fn take_blocks(&mut self, span: u64) -> Range<u64> {
        let Some((&start, &len)) = self.runs.range(..=span).next_back() else { return 0..0 };
        let blocks = start.next_multiple_of(BLOCK_SPANS)..(start + len) / BLOCK_SPANS * BLOCK_SPANS;
        if span >= start + len || blocks.is_empty() {
            return 0..0;
        }
        self.runs.remove(&start);
        self.free -= len;
        for rest in [start..blocks.start, blocks.end..start + len] {
            if !rest.is_empty() {
                self.put(rest.start, rest.end - rest.start);
            }
        }
        blocks
    }

    /// Gives a run back.
    pub fn put(&mut self, mut start: u64, mut spans: u64) {
        self.free += spans;
        if let Some((&before, &len)) = self.runs.range(..start).next_back() {
            assert!(before + len <= start, "span {start} was freed twice");
            if before + len == start {
                self.runs.remove(&before);
                (start, spans) = (before, spans + len);
            }
        }
        if let Some((&after, &len)) = self.runs.range(start + 1..).next() {
            assert!(start + spans <= after, "span {after} was freed twice");
            if start + spans == after {
                self.runs.remove(&after);
                spans += len;
            }
        }
        self.runs.insert(start, spans);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_join_and_the_lowest_fit_wins() {
        let mut pool = Pool::default();
        pool.extend(10);
        assert_eq!(pool.take(3), Some(0));
        assert_eq!(pool.take(2), Some(3));
        pool.put(0, 3);
        assert_eq!(pool.take(4), Some(5));
        assert_eq!(pool.take(2), Some(0));
        pool.put(3, 2);
        pool.put(5, 4);
        pool.put(0, 2);
        assert_eq!((pool.take(11), pool.take(10)), (None, Some(0)));
        assert_eq!(pool.free_spans(), 0);
    }

    #[test]
    fn whole_blocks_are_taken_out_of_the_run_that_was_given_back() {
        let mut pool = Pool::default();
        pool.put(3, 4);
        assert_eq!(pool.take_blocks(3), 0..0);
        pool.put(8, 17);
        assert_eq!(pool.take_blocks(5), 0..0);
        pool.put(7, 1);
        assert_eq!((pool.take_blocks(9), pool.free_spans()), (8..24, 6));
        assert_eq!((pool.take(5), pool.take(1)), (Some(3), Some(24)));
        assert_eq!(pool.take_blocks(3), 0..0);
    }
}
