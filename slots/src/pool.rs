//! The volatile pool of free spans: runs by position, first fit. The meta lane guards it.

use std::collections::BTreeMap;

/// Free runs: first span and length; neighbours are always joined.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    runs: BTreeMap<u64, u64>,
    free: u64,
    /// Spans known so far; a region that grew has more.
    end: u64,
}

impl Pool {
    /// A pool that knows nothing beyond `end` yet.
    pub fn up_to(end: u64) -> Self {
        Self { end, ..Self::default() }
    }

    /// Spans that are free.
    pub fn free_spans(&self) -> u64 {
        self.free
    }

    /// Takes in what a region has grown by.
    pub fn extend(&mut self, end: u64) -> std::ops::Range<u64> {
        let grown = self.end..end.max(self.end);
        if !grown.is_empty() {
            self.end = end;
            self.put(grown.start, grown.end - grown.start);
        }
        grown
    }

    /// Takes `spans` contiguous spans from the lowest run that has them.
    pub fn take(&mut self, spans: u64) -> Option<u64> {
        let (&start, &len) = self.runs.iter().find(|(_, len)| **len >= spans)?;
        self.runs.remove(&start);
        if len > spans {
            self.runs.insert(start + spans, len - spans);
        }
        self.free -= spans;
        Some(start)
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
}
