//! The edges of windows: of tumbling windows, and the left edges of sliding windows.
//!
//! A left edge may lag behind. The window is then too long, and its counts are no less than the
//! true ones. So edges are moved, and sliding windows compared, only where a window seems worse
//! than all before it. A window whose left edge is right only grows until its first instant leaves.
//! So its worst count is noted once, at that time, and not at every instant.

use crate::skew::options::WINDOWS_MAX;
use crate::skew::queue::Instant;
use crate::skew::{SkewError, sys};

use super::windows::{AHEAD_INSTANTS, ALL, Edges, LAG_INSTANTS, Windows};

impl Windows {
    /// Closes the instants that are open, and goes over to `time_ns`.
    #[inline]
    pub(super) fn go_to(&mut self, time_ns: u64) -> Result<(), SkewError> {
        self.close()?;
        if time_ns >= self.event_ns {
            self.pass_event(time_ns);
        }
        if self.mergeable || self.next >= self.catch_up_at {
            self.catch_up_all(time_ns)?;
        }
        (self.open_ns, self.first_open) = (time_ns, self.next);
        Ok(())
    }

    #[cold]
    fn pass_event(&mut self, time_ns: u64) {
        self.settle(time_ns);
        if time_ns >= self.turn_ns {
            self.turn(time_ns);
        }
        self.note_event(time_ns);
    }

    /// Sliding windows whose left edge no longer lies where it should in a window that ends at
    /// `time_ns` were complete before.
    pub(super) fn settle(&mut self, time_ns: u64) {
        for (window, rising) in self.rising.iter_mut().enumerate() {
            if self.due_ns[window] > time_ns {
                continue;
            }
            for at in rising.drain(..) {
                match (at, &mut self.all) {
                    (ALL, Some(all)) => all.settle(window),
                    _ => self.volumes[at as usize].tally.settle(window),
                }
            }
        }
    }

    fn note_event(&mut self, time_ns: u64) {
        let due_ns = self.due_ns.iter().copied().filter(|due_ns| *due_ns > time_ns).min();
        self.event_ns = self.turn_ns.min(due_ns.unwrap_or(u64::MAX));
    }

    /// Lets windows of the clock that have ended give way to those of `time_ns`.
    fn turn(&mut self, time_ns: u64) {
        for (window, length_ns) in self.windows_ns.iter().enumerate() {
            if time_ns >= self.end_ns[window] {
                self.number[window] = time_ns / length_ns;
                self.end_ns[window] = (self.number[window] + 1).saturating_mul(*length_ns);
                self.edges.tumbling[window] = self.next;
            }
        }
        self.turn_ns = self.end_ns.iter().copied().min().unwrap_or(u64::MAX);
        self.turns += 1;
        if let Some(all) = &mut self.all {
            all.turn(self.turns, &self.number[..self.windows_ns.len()]);
        }
        self.note_edges();
    }

    fn note_edges(&mut self) {
        let Edges { sliding, tumbling, max, .. } = &mut self.edges;
        *max = tumbling.iter().chain(&*sliding).copied().max().unwrap_or(0);
    }

    pub(super) fn catch_up_all(&mut self, time_ns: u64) -> Result<(), SkewError> {
        self.catch_up_at = self.next + LAG_INSTANTS;
        for window in 0..self.windows_ns.len() {
            if self.due_ns[window] <= time_ns {
                self.catch_up(window, time_ns)?;
            }
        }
        Ok(())
    }

    /// Moves one window's left edge to its place in a window that ends at `time_ns`. The edges of
    /// all other windows move before that of the longest, which forgets the instants behind it.
    #[cold]
    fn catch_up(&mut self, window: usize, time_ns: u64) -> Result<(), SkewError> {
        let last = window + 1 == self.windows_ns.len();
        for shorter in 0..if last { window } else { 0 } {
            if self.due_ns[shorter] <= time_ns {
                self.move_edge(shorter, time_ns)?;
            }
        }
        self.move_edge(window, time_ns)?;
        if last {
            self.queue.forget_before(self.edges.sliding[window]);
        }
        self.note_edges();
        Ok(())
    }

    fn move_edge(&mut self, window: usize, time_ns: u64) -> Result<(), SkewError> {
        let end = self.first_unqueued();
        let last = window + 1 == self.windows_ns.len();
        let (queue, volumes) = (&mut self.queue, &mut self.volumes);
        self.due_ns[window] = u64::MAX;
        let mut number = self.edges.sliding[window];
        while number < end {
            // A sample has its own edges, and the ring no room for instants that nobody counts
            // pages of.
            let mut nobody = [];
            let mask = self.live.mask();
            let counts = if self.sampled { &mut nobody[..] } else { self.live.counts() };
            let instants = queue.from(window, number)?;
            let length_ns = self.windows_ns[window];
            let leaves_ns = |instant: &Instant| instant.time_ns.saturating_add(length_ns);
            let leaving = first_run(instants, |instant| leaves_ns(instant) <= time_ns);
            let (mut left, mut written) = (0, 0);
            for (at, instant) in instants[..leaving].iter().enumerate() {
                // In a row, but long out of any cache.
                sys::prefetch(instants, at + AHEAD_INSTANTS as usize);
                sys::prefetch(counts, ((number + AHEAD_INSTANTS) & mask) as usize);
                let live = counts.get_mut((number & mask) as usize);
                let pages = live.as_ref().map_or(0, |live| u64::from(**live));
                if let Some(live) = live.filter(|_| last) {
                    *live = 0;
                }
                let tally = &mut volumes[instant.volume as usize].tally;
                tally.unique[window] -= pages;
                tally.expired[window] += u64::from(instant.written);
                if let Some(series) = &mut tally.series {
                    series.push_leaves(window, pages);
                }
                (left, written) = (left + pages, written + u64::from(instant.written));
                number += 1;
            }
            if let Some(all) = &mut self.all {
                all.unique[window] -= left;
                all.expired[window] += written;
            }
            if let Some(stays) = instants.get(leaving) {
                self.due_ns[window] = leaves_ns(stays);
                break;
            }
        }
        self.empty |= self.due_ns[window] == u64::MAX;
        self.edges.sliding[window] = number;
        Ok(())
    }

    /// The number of the first instant that is open.
    fn first_unqueued(&self) -> u64 {
        self.next - self.open.len() as u64
    }

    /// The instants of this time are complete. The sliding windows that end at it are looked at
    /// only where they might be the worst: while a left edge lags behind, its window is longer, so
    /// what it has is no less.
    #[inline]
    pub(super) fn close(&mut self) -> Result<(), SkewError> {
        if self.open.is_empty() {
            return Ok(());
        }
        let time_ns = self.open_ns;
        if self.looked_at {
            self.look(time_ns)?;
        }
        for &at in &self.open {
            let volume = &mut self.volumes[at as usize];
            let written = std::mem::take(&mut volume.written);
            if let Some(series) = &mut volume.tally.series {
                series.push_instant(time_ns, written, &volume.entered[..self.windows_ns.len()]);
                volume.entered = [0; WINDOWS_MAX];
            }
            self.queue.push(Instant { time_ns, written: written as u32, volume: at })?;
        }
        self.open.clear();
        if self.empty {
            self.fill(time_ns);
        }
        Ok(())
    }

    /// Notes that the instant of `time_ns` is the first in windows that were empty.
    #[cold]
    fn fill(&mut self, time_ns: u64) {
        for (due_ns, length_ns) in self.due_ns.iter_mut().zip(&self.windows_ns) {
            if *due_ns == u64::MAX {
                *due_ns = time_ns.saturating_add(*length_ns);
            }
        }
        self.empty = false;
        self.note_event(time_ns);
    }

    /// Some window seems worse than all before: it is, if it still does with its left edge where it
    /// should be.
    #[cold]
    fn look(&mut self, time_ns: u64) -> Result<(), SkewError> {
        self.looked_at = false;
        let windows = self.windows_ns.len();
        for window in 0..windows {
            if self.due_ns[window] <= time_ns && self.may_rise(window) {
                self.catch_up(window, time_ns)?;
            }
        }
        let volumes = &mut self.volumes;
        for &at in self.open.iter().chain(&[ALL]) {
            let tally = match (at, &mut self.all) {
                (ALL, None) => continue,
                (ALL, Some(all)) => all,
                _ => &mut volumes[at as usize].tally,
            };
            for window in (0..windows).filter(|window| self.due_ns[*window] > time_ns) {
                if tally.may_rise(window) {
                    tally.rise(window);
                    self.rising[window].push(at);
                }
            }
            tally.note_writes(windows);
        }
        self.note_event(time_ns);
        Ok(())
    }

    fn may_rise(&self, window: usize) -> bool {
        let mut open = self.open.iter().map(|at| &self.volumes[*at as usize].tally);
        open.any(|tally| tally.may_rise(window))
            || self.all.as_ref().is_some_and(|all| all.may_rise(window))
    }
}

/// How many of the first have `property`, which none has behind one that has it not; few, mostly.
fn first_run(instants: &[Instant], property: impl Fn(&Instant) -> bool) -> usize {
    let mut reach = 1;
    while instants.get(reach - 1).is_some_and(&property) {
        reach *= 2;
    }
    let known = reach / 2;
    known + instants[known..reach.min(instants.len())].partition_point(property)
}
