//! Finds the worst windows in one pass over instants that come one span of time after another.
//!
//! The left edge of each sliding window is a second reader of the same instants. So earlier spans
//! are kept as long as the longest window reaches into them.

use std::borrow::Cow;
use std::collections::VecDeque;

use crate::skew::series::{LeavesCursor, Mark, OVERFLOW, Old, Series, Sums};
use crate::skew::tally::{Most, Worst};
use crate::skew::varint::Wrong;

/// The worst windows of instants that are all there.
pub fn worst_of(series: &Series, windows_ns: &[u64]) -> Result<Vec<Worst>, Wrong> {
    let mut sweep = Sweep::new(windows_ns);
    sweep.push(Cow::Borrowed(series))?;
    sweep.finish()
}

/// A pass over the instants of a part.
pub struct Sweep<'a> {
    windows_ns: Vec<u64>,
    worst: Vec<Worst>,
    /// The spans that some left edge has not left, and the number of the first.
    spans: VecDeque<Cow<'a, Series>>,
    first: usize,
    lefts: Vec<Left>,
    /// The page writes so far.
    total: u64,
    last_ns: Option<u64>,
    clocks: Vec<Clock>,
}

/// A sliding window.
#[derive(Clone, Default)]
struct Left {
    /// The span that its left edge is in, and the place in it.
    span: usize,
    mark: Mark,
    /// The instant that leaves next; `None` where all that came has left.
    head: Option<Old>,
    unique: u64,
    expired: u64,
}

/// The windows of the clock of one length.
#[derive(Clone, Default)]
struct Clock {
    last: Option<u64>,
    written: u64,
}

/// A left edge on its way.
struct Edge<'s, 'a> {
    window: usize,
    spans: &'s VecDeque<Cow<'a, Series>>,
    first: usize,
    span: usize,
    cursor: LeavesCursor<'s>,
    head: Option<Old>,
}

impl<'s, 'a> Edge<'s, 'a> {
    fn new(
        window: usize,
        left: &Left,
        spans: &'s VecDeque<Cow<'a, Series>>,
        first: usize,
    ) -> Result<Self, Wrong> {
        let cursor = spans[left.span - first].leaves_of(window, left.mark);
        let mut edge = Self { window, spans, first, span: left.span, cursor, head: left.head };
        if edge.head.is_none() {
            edge.go_on()?;
        }
        Ok(edge)
    }

    fn go_on(&mut self) -> Result<(), Wrong> {
        loop {
            self.head = self.cursor.next()?;
            if self.head.is_some() || self.span + 1 == self.first + self.spans.len() {
                return Ok(());
            }
            self.span += 1;
            self.cursor =
                self.spans[self.span - self.first].leaves_of(self.window, Mark::default());
        }
    }
}

impl<'a> Sweep<'a> {
    pub fn new(windows_ns: &[u64]) -> Self {
        Self {
            windows_ns: windows_ns.to_vec(),
            worst: vec![Worst::default(); windows_ns.len()],
            spans: VecDeque::new(),
            first: 0,
            lefts: vec![Left::default(); windows_ns.len()],
            total: 0,
            last_ns: None,
            clocks: vec![Clock::default(); windows_ns.len()],
        }
    }

    /// Takes the next span.
    pub fn push(&mut self, span: Cow<'a, Series>) -> Result<(), Wrong> {
        self.spans.push_back(span);
        self.slide()?;
        self.tumble()?;
        let reached = self.lefts.iter().map(|left| left.span).min().unwrap_or(self.first);
        self.spans.drain(..reached - self.first);
        self.first = reached;
        Ok(())
    }

    fn slide(&mut self) -> Result<(), Wrong> {
        let Self { windows_ns, worst, spans, first, lefts, total, last_ns, .. } = self;
        let mut edges = Vec::new();
        for (window, left) in lefts.iter().enumerate() {
            edges.push(Edge::new(window, left, spans, *first)?);
        }
        let (mut right, mut sums) = (spans[spans.len() - 1].cursor(), Sums::new(windows_ns.len()));
        while right.next(&mut sums)? {
            if last_ns.replace(sums.time_ns).is_some_and(|last_ns| last_ns >= sums.time_ns) {
                return Err(Wrong { what: "spans of time in a wrong order", at: 0 });
            }
            *total = total.checked_add(sums.written).ok_or(OVERFLOW)?;
            for (window, length_ns) in windows_ns.iter().enumerate() {
                let (edge, left) = (&mut edges[window], &mut lefts[window]);
                while let Some(old) =
                    edge.head.filter(|old| old.time_ns.saturating_add(*length_ns) <= sums.time_ns)
                {
                    left.unique = left.unique.checked_sub(old.leaves).ok_or(BELOW)?;
                    left.expired += old.written;
                    edge.go_on()?;
                }
                left.unique = left.unique.checked_add(sums.enters[window]).ok_or(OVERFLOW)?;
                let written = *total - left.expired;
                if left.unique > written {
                    return Err(ABOVE);
                }
                most(&mut worst[window].sliding, left.unique, written);
            }
        }
        for (left, edge) in lefts.iter_mut().zip(edges) {
            (left.span, left.mark, left.head) = (edge.span, edge.cursor.mark(), edge.head);
        }
        Ok(())
    }

    fn tumble(&mut self) -> Result<(), Wrong> {
        let Some(newest) = self.spans.back() else { return Ok(()) };
        for (window, clock) in self.clocks.iter_mut().enumerate() {
            let mut windows = newest.tumbling_cursor(window);
            while let Some(tumbled) = windows.next()? {
                if clock.last.replace(tumbled.number).is_some_and(|last| last >= tumbled.number) {
                    return Err(Wrong { what: "windows of the clock in a wrong order", at: 0 });
                }
                clock.written = clock.written.checked_add(tumbled.written).ok_or(OVERFLOW)?;
                most(&mut self.worst[window].tumbling, tumbled.unique, tumbled.written);
            }
        }
        Ok(())
    }

    /// The page writes of all spans.
    pub fn written(&self) -> u64 {
        self.total
    }

    /// The worst windows, after the last span.
    pub fn finish(self) -> Result<Vec<Worst>, Wrong> {
        if self.spans.is_empty() {
            return Ok(self.worst);
        }
        for (window, left) in self.lefts.iter().enumerate() {
            let mut edge = Edge::new(window, left, &self.spans, self.first)?;
            let mut unique = left.unique;
            while let Some(old) = edge.head {
                unique = unique.checked_sub(old.leaves).ok_or(BELOW)?;
                edge.go_on()?;
            }
            if unique != 0 {
                return Err(ABOVE);
            }
            if self.clocks[window].written != self.total {
                return Err(Wrong { what: "windows of the clock miss writes", at: 0 });
            }
        }
        Ok(self.worst)
    }
}

const BELOW: Wrong = Wrong { what: "more pages leave a window than entered", at: 0 };
const ABOVE: Wrong = Wrong { what: "more pages in a window than were written or left", at: 0 };

fn most(of: &mut Most, unique: u64, written: u64) {
    of.unique = of.unique.max(unique);
    of.adversarial = of.adversarial.max(written);
}
