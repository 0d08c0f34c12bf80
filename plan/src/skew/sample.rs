//! A sample of the pages in fixed memory, for traces with too many pages.
//!
//! A page is in the sample if a hash of its volume and number is at most a threshold. When the
//! sample is full, the threshold is halved, and the pages above it are removed, as if they had
//! never been in the sample. So every page of the sample was in it from its first access on, and
//! its counts are exact (as in SHARDS, Waldspurger et al., FAST 2015). The written pages of the
//! sample are in a list, ordered by the time of their last write, and the left edge of each sliding
//! window is a place in the list. So no instants are kept, times are exact, and memory depends only
//! on the sample's size.

use super::estimate::{Peak, Sampled};
use super::options::{Sampling, WINDOWS_MAX};
use super::tally::PerWindow;

/// Marks that there is no page.
const NIL: u32 = u32::MAX;
/// The time of the last write of a page that was only read.
const NEVER_NS: u64 = u64::MAX;

/// The volume of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whose {
    /// The number of the volume: pages of different volumes are different.
    pub number: u32,
    /// The place where its pages are counted, perhaps with those of other volumes.
    pub place: u32,
}

/// A page of the sample.
#[derive(Clone, Copy)]
struct SampledPage {
    page: u64,
    last_ns: u64,
    writes: u64,
    whose: Whose,
    older: u32,
    newer: u32,
}

/// The different pages of the sample in each window.
#[derive(Clone)]
struct Uniques {
    sliding: PerWindow,
    tumbling: PerWindow,
    tumbling_number: PerWindow,
    peaks: [[Peak; 2]; WINDOWS_MAX],
}

/// A sample of the pages, in fixed memory.
pub struct Sample {
    seed: u64,
    pages_max: usize,
    threshold: u64,
    pages: Vec<SampledPage>,
    /// The places of pages by hash: open addressing, at most half full.
    index: Vec<u32>,
    oldest: u32,
    newest: u32,
    windows_ns: Vec<u64>,
    /// The oldest page in each sliding window.
    edge: [u32; WINDOWS_MAX],
    volumes: Vec<Uniques>,
    all: Uniques,
    /// The time that is counted, since the start of the trace, nanoseconds.
    open_ns: u64,
    open: Vec<u32>,
}

impl Sample {
    pub fn new(sampling: Sampling, windows_ns: &[u64]) -> Self {
        let pages_max = (sampling.pages_max.clamp(16, 1 << 30)) as usize;
        Self {
            seed: sampling.seed,
            pages_max,
            threshold: u64::MAX,
            pages: Vec::with_capacity(pages_max),
            index: vec![NIL; (2 * pages_max).next_power_of_two()],
            oldest: NIL,
            newest: NIL,
            windows_ns: windows_ns.to_vec(),
            edge: [NIL; WINDOWS_MAX],
            volumes: Vec::new(),
            all: Uniques::new(),
            open_ns: 0,
            open: Vec::new(),
        }
    }

    /// The share of pages that are in the sample.
    pub fn rate(&self) -> f64 {
        (self.threshold as f64 + 1.0) / 2f64.powi(64)
    }

    /// The bytes that the sample takes, which do not grow.
    pub fn bytes(&self) -> u64 {
        (self.pages.capacity() * size_of::<SampledPage>() + self.index.len() * size_of::<u32>())
            as u64
    }

    fn hash(&self, whose: Whose, page: u64) -> u64 {
        // The volume is mixed by itself first: beside the page, some of its bits would meet those
        // of other volumes' pages, and such pages be in the sample together or not at all.
        let volume = u64::from(whose.number) ^ self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let volume = (volume ^ volume >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let mut mixed = volume ^ volume >> 32 ^ page;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// Counts a read of pages of a volume.
    pub fn read(&mut self, whose: Whose, pages: std::ops::Range<u64>) {
        for page in pages {
            let hash = self.hash(whose, page);
            if hash <= self.threshold {
                self.place(hash, whose, page);
            }
        }
    }

    /// Counts a write of pages at a time since the start of the trace, which never falls.
    pub fn write(&mut self, whose: Whose, pages: std::ops::Range<u64>, time_ns: u64) {
        for page in pages {
            let hash = self.hash(whose, page);
            if hash > self.threshold {
                continue;
            }
            if time_ns != self.open_ns || self.open.is_empty() {
                self.go_to(time_ns);
            }
            if let Some(at) = self.place(hash, whose, page) {
                self.count(at, time_ns);
            }
        }
    }

    /// The page's place; it is entered if it was not there; none if there was no place and it did
    /// not get one.
    fn place(&mut self, hash: u64, whose: Whose, page: u64) -> Option<u32> {
        if let Some(at) = self.find(hash, whose, page) {
            return Some(at);
        }
        while self.pages.len() == self.pages_max {
            self.halve();
        }
        if hash > self.threshold {
            return None;
        }
        let at = self.pages.len() as u32;
        self.pages.push(SampledPage {
            page,
            last_ns: NEVER_NS,
            writes: 0,
            whose,
            older: NIL,
            newer: NIL,
        });
        self.enter_index(hash, at);
        Some(at)
    }

    fn find(&self, hash: u64, whose: Whose, page: u64) -> Option<u32> {
        let mask = self.index.len() - 1;
        let mut slot = hash as usize & mask;
        while self.index[slot] != NIL {
            let known = &self.pages[self.index[slot] as usize];
            if known.page == page && known.whose == whose {
                return Some(self.index[slot]);
            }
            slot = (slot + 1) & mask;
        }
        None
    }

    fn enter_index(&mut self, hash: u64, at: u32) {
        let mask = self.index.len() - 1;
        let mut slot = hash as usize & mask;
        while self.index[slot] != NIL {
            slot = (slot + 1) & mask;
        }
        self.index[slot] = at;
    }

    /// Counts one write of a page of the sample.
    fn count(&mut self, at: u32, time_ns: u64) {
        let page = &mut self.pages[at as usize];
        page.writes += 1;
        let last_ns = page.last_ns;
        let volume = page.whose.place as usize;
        if self.volumes.len() <= volume {
            self.volumes.resize(volume + 1, Uniques::new());
        }
        self.volumes[volume].turn(&self.windows_ns, time_ns);
        if !self.open.contains(&(volume as u32)) {
            self.open.push(volume as u32);
        }
        if last_ns == time_ns {
            return;
        }
        for (window, length_ns) in self.windows_ns.iter().enumerate() {
            let never = last_ns == NEVER_NS;
            let sliding = u64::from(never || last_ns.saturating_add(*length_ns) <= time_ns);
            let tumbling = u64::from(never || last_ns / length_ns != time_ns / length_ns);
            for uniques in [&mut self.volumes[volume], &mut self.all] {
                uniques.sliding[window] += sliding;
                uniques.tumbling[window] += tumbling;
            }
        }
        if last_ns != NEVER_NS {
            self.unlink(at);
        }
        self.append(at, time_ns);
    }

    fn unlink(&mut self, at: u32) {
        let SampledPage { older, newer, .. } = self.pages[at as usize];
        for edge in &mut self.edge[..self.windows_ns.len()] {
            if *edge == at {
                *edge = newer;
            }
        }
        match older {
            NIL => self.oldest = newer,
            older => self.pages[older as usize].newer = newer,
        }
        match newer {
            NIL => self.newest = older,
            newer => self.pages[newer as usize].older = older,
        }
    }

    fn append(&mut self, at: u32, time_ns: u64) {
        let older = std::mem::replace(&mut self.newest, at);
        let page = &mut self.pages[at as usize];
        (page.last_ns, page.older, page.newer) = (time_ns, older, NIL);
        match older {
            NIL => self.oldest = at,
            older => self.pages[older as usize].newer = at,
        }
        for edge in &mut self.edge[..self.windows_ns.len()] {
            if *edge == NIL {
                *edge = at;
            }
        }
    }

    /// Ends the time before, and lets all windows end at `time_ns`.
    fn go_to(&mut self, time_ns: u64) {
        self.settle();
        self.open_ns = time_ns;
        for window in 0..self.windows_ns.len() {
            let length_ns = self.windows_ns[window];
            while self.edge[window] != NIL {
                let page = &self.pages[self.edge[window] as usize];
                if page.last_ns.saturating_add(length_ns) > time_ns {
                    break;
                }
                self.volumes[page.whose.place as usize].sliding[window] -= 1;
                self.all.sliding[window] -= 1;
                self.edge[window] = page.newer;
            }
        }
        self.all.turn(&self.windows_ns, time_ns);
    }

    fn settle(&mut self) {
        let (rate, windows) = (self.rate(), self.windows_ns.len());
        for volume in self.open.drain(..) {
            self.volumes[volume as usize].settle(windows, rate);
        }
        self.all.settle(windows, rate);
    }

    /// Takes half of the pages out, and out of all counts.
    fn halve(&mut self) {
        self.settle();
        self.threshold /= 2;
        let mut at = 0;
        while at < self.pages.len() {
            let SampledPage { whose, page, .. } = self.pages[at];
            if self.hash(whose, page) <= self.threshold {
                at += 1;
            } else {
                self.remove(at as u32);
            }
        }
        self.index.fill(NIL);
        for at in 0..self.pages.len() {
            let hash = self.hash(self.pages[at].whose, self.pages[at].page);
            self.enter_index(hash, at as u32);
        }
    }

    /// Takes a page out of counts, list and memory; the caller makes the index anew.
    fn remove(&mut self, at: u32) {
        let SampledPage { whose, last_ns, .. } = self.pages[at as usize];
        if last_ns != NEVER_NS {
            for (window, length_ns) in self.windows_ns.iter().enumerate() {
                let inside = last_ns.saturating_add(*length_ns) > self.open_ns;
                let number = last_ns / length_ns;
                for uniques in [&mut self.volumes[whose.place as usize], &mut self.all] {
                    uniques.sliding[window] -= u64::from(inside);
                    uniques.tumbling[window] -=
                        u64::from(uniques.tumbling_number[window] == number);
                }
            }
            self.unlink(at);
        }
        self.pages.swap_remove(at as usize);
        let Some(moved) = self.pages.get(at as usize) else { return };
        // The last page lies here now: what pointed to its old place points here.
        let (was, SampledPage { last_ns, older, newer, .. }) = (self.pages.len() as u32, *moved);
        if last_ns == NEVER_NS {
            return;
        }
        match older {
            NIL => self.oldest = at,
            older => self.pages[older as usize].newer = at,
        }
        match newer {
            NIL => self.newest = at,
            newer => self.pages[newer as usize].older = at,
        }
        for edge in self.edge.iter_mut().filter(|edge| **edge == was) {
            *edge = at;
        }
    }

    /// The end: what is known of each volume, by place, and of all; and how often its pages were
    /// written.
    pub fn finish(mut self, volumes: usize, span_ns: u64) -> (Vec<Known>, Known) {
        self.settle();
        self.volumes.resize(self.volumes.len().max(volumes), Uniques::new());
        let mut touched = vec![0u64; self.volumes.len()];
        // Grouped by volume, so that each one's counts lie side by side.
        self.index = Vec::new();
        self.pages.sort_unstable_by_key(|page| page.whose.place);
        self.pages.iter().for_each(|page| touched[page.whose.place as usize] += 1);
        let rate = self.rate();
        let lengths = self.windows_ns.iter().map(|length| Sampled::lengths_in(span_ns, *length));
        let lengths: Vec<f64> = lengths.collect();
        let known = |uniques: &Uniques, touched, pages: &[SampledPage]| Known {
            sampled: Sampled {
                rate,
                touched,
                worst: uniques.peaks[..lengths.len()].to_vec(),
                lengths: lengths.clone(),
            },
            histogram: super::histogram::histogram_of(pages.iter().map(|page| page.writes)),
        };
        let mut from = 0;
        let each = self.volumes.iter().zip(&touched).map(|(uniques, touched)| {
            let pages = &self.pages[from..from + *touched as usize];
            from += *touched as usize;
            known(uniques, *touched, pages)
        });
        let each = each.collect();
        (each, known(&self.all, self.pages.len() as u64, &self.pages))
    }
}

/// The figures of the sample for a set of pages.
pub struct Known {
    pub sampled: Sampled,
    pub histogram: Vec<(u64, u64)>,
}

impl Uniques {
    fn new() -> Self {
        Self {
            sliding: [0; WINDOWS_MAX],
            tumbling: [0; WINDOWS_MAX],
            tumbling_number: [0; WINDOWS_MAX],
            peaks: [[Peak::default(); 2]; WINDOWS_MAX],
        }
    }

    fn turn(&mut self, windows_ns: &[u64], time_ns: u64) {
        for (window, length_ns) in windows_ns.iter().enumerate() {
            let number = time_ns / length_ns;
            if self.tumbling_number[window] != number {
                self.tumbling_number[window] = number;
                self.tumbling[window] = 0;
            }
        }
    }

    /// Windows of the clock only grow until they end, so what they have now is a lower bound of
    /// what they come to.
    fn settle(&mut self, windows: usize, rate: f64) {
        for window in 0..windows {
            self.peaks[window][0].rise(self.tumbling[window], rate);
            self.peaks[window][1].rise(self.sliding[window], rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_left_a_window_just_now_does_not_leave_it_again_when_half_of_the_pages_go() {
        let mut sample = Sample::new(Sampling { pages_max: 16, seed: 1 }, &[10]);
        let whose = Whose { number: 0, place: 0 };
        sample.write(whose, 0..16, 0);
        // Full: the first 16 have left the window that ends now, and some of them leave the sample.
        sample.write(whose, 16..40, 10);
        assert!(sample.rate() < 1.0);
        let inside =
            |sample: &Sample| sample.pages.iter().filter(|page| page.last_ns == 10).count() as u64;
        assert_eq!(
            (sample.all.sliding[0], sample.volumes[0].sliding[0]),
            (inside(&sample), inside(&sample))
        );
    }
}
