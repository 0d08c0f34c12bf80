//! How many dirty pages have a mark of each epoch. A cleaning round needs these numbers, and they
//! save it from looking at each page.
//!
//! A mark has the epoch in which it is made, and epochs only rise. So the table is in their order,
//! oldest first, and new epochs go to its end. It has at most twice as many entries as there are
//! epochs with dirty pages.

use std::collections::VecDeque;

use perdura_dirty::policy::Mark;

/// Pages with a mark of one epoch: written once since they became dirty, and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Epoch {
    epoch: u32,
    pages: [u32; 2],
}

impl Epoch {
    fn is_empty(&self) -> bool {
        self.pages == [0, 0]
    }
}

/// How many dirty pages have a mark of each epoch.
#[derive(Debug, Default)]
pub(super) struct Ages {
    epochs: VecDeque<Epoch>,
    /// How many of the epochs are without pages; the first is never one of them.
    empty: usize,
}

impl Ages {
    /// Counts a page that became dirty, with a mark of now.
    pub fn add(&mut self, mark: Mark) {
        if self.epochs.back().is_none_or(|last| last.epoch != mark.epoch) {
            self.epochs.push_back(Epoch { epoch: mark.epoch, pages: [0, 0] });
            self.empty += 1;
        }
        if let Some(last) = self.epochs.back_mut() {
            self.empty -= usize::from(last.is_empty());
            last.pages[usize::from(mark.again)] += 1;
        }
    }

    /// Counts a dirty page's new mark, which is of the same epoch or of now.
    pub fn replace(&mut self, before: Mark, after: Mark) {
        if before.epoch == after.epoch {
            let at = self.place_of(before.epoch);
            let pages = &mut self.epochs[at].pages;
            pages[usize::from(before.again)] -= 1;
            pages[usize::from(after.again)] += 1;
        } else {
            // Added first, for an epoch without pages may leave the table.
            self.add(after);
            self.remove(before);
        }
    }

    /// Counts a page off that is clean, or owed to a checkpoint.
    pub fn remove(&mut self, mark: Mark) {
        let at = self.place_of(mark.epoch);
        let epoch = &mut self.epochs[at];
        epoch.pages[usize::from(mark.again)] -= 1;
        if !epoch.is_empty() {
            return;
        }
        self.empty += 1;
        while self.epochs.front().is_some_and(Epoch::is_empty) {
            self.epochs.pop_front();
            self.empty -= 1;
        }
        if self.empty * 2 > self.epochs.len() {
            self.epochs.retain(|epoch| !epoch.is_empty());
            self.empty = 0;
        }
    }

    /// Counts all pages off.
    pub fn clear(&mut self) {
        self.epochs.clear();
        self.empty = 0;
    }

    /// Gives the epochs and how many pages have a mark of each, the oldest first.
    pub fn epochs(&self) -> impl Iterator<Item = (u32, u64)> {
        let pages = |epoch: &Epoch| epoch.pages.iter().map(|pages| u64::from(*pages)).sum();
        self.epochs.iter().map(move |epoch| (epoch.epoch, pages(epoch)))
    }

    /// Marks but for their histories, and how many pages have them, the oldest first.
    pub fn marks(&self) -> impl Iterator<Item = (Mark, u64)> {
        self.epochs.iter().flat_map(|&Epoch { epoch, pages }| {
            let of = |again: bool| {
                (Mark { epoch, again, history: 0 }, u64::from(pages[usize::from(again)]))
            };
            [of(false), of(true)].into_iter().filter(|(_, pages)| *pages > 0)
        })
    }

    /// The place of an epoch; the numbers of epochs may have begun again since the first.
    fn place_of(&self, epoch: u32) -> usize {
        let first = self.epochs.front().map_or(epoch, |first| first.epoch);
        let since = |epoch: u32| epoch.wrapping_sub(first);
        self.epochs.partition_point(|other| since(other.epoch) < since(epoch))
    }
}
