//! The windows: how many pages and page writes each has, for each volume and for all, and the most
//! that any window had.
//!
//! A page that is written again is new in every window whose left edge lies after the page's last
//! instant, which takes one comparison for each window. The page leaves a sliding window when the
//! left edge passes that instant. [`Live`] has the number of pages whose last write was at each
//! instant, so no work is done for each page that leaves. Volumes are counted separately and
//! together in the same pass, because the pages of different volumes differ and their numbers at
//! one time can be added.

use crate::skew::live::Live;
use crate::skew::options::{Options, WINDOWS_MAX};
use crate::skew::queue::{Instant, Instants};
use crate::skew::series::Series;
use crate::skew::table::FIRST_INSTANT;
use crate::skew::tally::{PerWindow, Tally};
use crate::skew::{SkewError, sys};

use super::moves::Moves;

/// How many instants a left edge may lag behind.
pub(super) const LAG_INSTANTS: u64 = 4096;
/// The place of all volumes, where a volume's is asked for.
pub(super) const ALL: u32 = u32::MAX;
/// The bytes of the queue beside a sample.
const SAMPLED_QUEUE_BYTES: u64 = 4 << 20;
/// How many instants ahead a count is asked for.
pub(super) const AHEAD_INSTANTS: u64 = 64;
/// How many page writes ahead the count of a last instant is asked for.
const AHEAD_LASTS: usize = 32;

/// The counters of a volume.
pub(super) struct Counted {
    pub tally: Tally,
    /// The number of the volume's last instant.
    instant: u64,
    /// The page writes of the instant that is open.
    pub written: u64,
    /// The pages that are new in each sliding window at the instant that is open.
    pub entered: PerWindow,
}

/// The windows of all volumes.
pub struct Windows {
    pub(super) windows_ns: Vec<u64>,
    pub(super) mergeable: bool,
    /// Whether a sample counts the pages, so that only page writes come here.
    pub(super) sampled: bool,
    pub(super) start_ns: u64,
    pub(super) volumes: Vec<Counted>,
    /// The counters over all volumes, once there are two.
    pub(super) all: Option<Tally>,
    pub(super) queue: Instants,
    pub(super) live: Live,
    /// The time whose instants are open, since the start of the trace, nanoseconds.
    pub(super) open_ns: u64,
    /// The places of volumes with an open instant, in the order of their numbers.
    pub(super) open: Vec<u32>,
    /// The number of the first instant at `open_ns`, and the number that the next will have.
    pub(super) first_open: u64,
    pub(super) next: u64,
    pub(super) edges: Edges,
    /// The times at which the first instant of each sliding window leaves it, nanoseconds.
    pub(super) due_ns: PerWindow,
    /// The number of each window of the clock.
    pub(super) number: PerWindow,
    pub(super) end_ns: PerWindow,
    pub(super) turn_ns: u64,
    /// How often a window of the clock gave way to the next.
    pub(super) turns: u64,
    /// The next time at which a window of the clock ends, or a left edge that lies where it should
    /// does no longer.
    pub(super) event_ns: u64,
    /// Whether a sliding window may be worse than all before at the instant that is open.
    pub(super) looked_at: bool,
    /// Volumes of which a sliding window is worse than all before, by window; [`ALL`] for all of
    /// them.
    pub(super) rising: Vec<Vec<u32>>,
    /// Windows that are empty but for the instant that is open: it says when something leaves them.
    pub(super) empty: bool,
    /// The number of an instant at which all left edges catch up, however quiet it is: the queue is
    /// to forget.
    pub(super) catch_up_at: u64,
}

/// The result of all windows.
pub struct Found {
    /// The counters of each volume, by its place.
    pub volumes: Vec<Tally>,
    /// The counters of two or more volumes together.
    pub all: Option<Tally>,
}

/// The first instant of each window.
pub(super) struct Edges {
    pub sliding: PerWindow,
    pub tumbling: PerWindow,
    /// The last of all, which is asked for first: was a page last written before any left edge?
    pub max: u64,
    /// The place of the longest window.
    longest: usize,
}

/// The pages that are new in windows.
struct News<const N: usize> {
    sliding: [u64; N],
    tumbling: [u64; N],
}

impl Edges {
    /// The first instant of the longest sliding window, before which nothing is known.
    #[inline]
    fn oldest(&self) -> u64 {
        self.sliding[self.longest]
    }

    /// Pages come to an instant from their last ones; in which windows they are new, if in any.
    #[inline]
    fn pass<const N: usize>(
        &self,
        live: &mut [u32],
        mask: u64,
        instant: u64,
        lasts: &[u64],
    ) -> Option<News<N>> {
        let oldest = self.oldest();
        let (mut news, mut any) = (News { sliding: [0; N], tumbling: [0; N] }, false);
        // Written twice at one time a page leaves the instant that it comes to. The place of what
        // is long gone is somebody else's.
        live[(instant & mask) as usize] += lasts.len() as u32;
        for last in lasts {
            live[(last & mask) as usize] -= u32::from(*last >= oldest);
            if *last < self.max {
                any = true;
                for window in 0..N {
                    news.sliding[window] += u64::from(*last < self.sliding[window]);
                    news.tumbling[window] += u64::from(*last < self.tumbling[window]);
                }
            }
        }
        any.then_some(news)
    }
}

/// How far the fast way went.
#[derive(Default)]
struct Calm {
    runs: usize,
    writes: usize,
}

impl Windows {
    pub fn new(options: &Options, start_ns: u64) -> Self {
        let windows_ns = options.windows_ns().to_vec();
        let dir = options.spill_dir.clone().unwrap_or_else(std::env::temp_dir);
        // What a sample leaves of its memory.
        let queue_bytes = match options.sampling {
            Some(_) => options.queue_bytes.min(SAMPLED_QUEUE_BYTES),
            None => options.queue_bytes,
        };
        let mut end_ns = [u64::MAX; WINDOWS_MAX];
        end_ns[..windows_ns.len()].copy_from_slice(&windows_ns);
        // Lanes beyond the windows have edges before all instants, which nothing crosses.
        let mut edge = [0; WINDOWS_MAX];
        edge[..windows_ns.len()].fill(FIRST_INSTANT);
        Self {
            mergeable: options.mergeable,
            start_ns,
            volumes: Vec::new(),
            all: None,
            queue: Instants::new(windows_ns.len(), queue_bytes, dir.clone()),
            live: Live::new(queue_bytes, dir),
            sampled: options.sampling.is_some(),
            open_ns: 0,
            open: Vec::new(),
            first_open: FIRST_INSTANT,
            next: FIRST_INSTANT,
            edges: Edges {
                longest: windows_ns.len() - 1,
                max: FIRST_INSTANT,
                sliding: edge,
                tumbling: edge,
            },
            due_ns: [u64::MAX; WINDOWS_MAX],
            number: [0; WINDOWS_MAX],
            end_ns,
            turn_ns: windows_ns[0],
            turns: 0,
            event_ns: windows_ns[0],
            looked_at: false,
            rising: vec![Vec::new(); windows_ns.len()],
            empty: true,
            catch_up_at: FIRST_INSTANT + LAG_INSTANTS,
            windows_ns,
        }
    }

    /// Counts page writes.
    pub fn count(&mut self, moves: &Moves) -> Result<(), SkewError> {
        match self.windows_ns.len() {
            1 => self.count_in::<1>(moves),
            2 => self.count_in::<2>(moves),
            3 => self.count_in::<3>(moves),
            4 => self.count_in::<4>(moves),
            _ => self.count_in::<WINDOWS_MAX>(moves),
        }
    }

    fn count_in<const N: usize>(&mut self, moves: &Moves) -> Result<(), SkewError> {
        let (mut at, mut done) = (0, 0);
        while let Some(run) = moves.runs.get(at) {
            if run.time_ns != self.open_ns || self.open.is_empty() {
                self.close()?;
                let calm = self.count_calm::<N>(&moves.runs[at..], &moves.lasts[done..])?;
                if calm.runs > 0 {
                    (at, done) = (at + calm.runs, done + calm.writes);
                    continue;
                }
                self.go_to(run.time_ns)?;
            }
            self.open_instant(run)?;
            if !self.sampled {
                let end = done + run.written as usize;
                self.move_pages::<N>(run.volume as usize, &moves.lasts[done..end]);
                done = end;
            }
            at += 1;
        }
        Ok(())
    }

    /// The fast way, as far as it goes: as long as each instant is one run, and no window begins,
    /// ends or seems worse than all before.
    fn count_calm<const N: usize>(
        &mut self,
        runs: &[Instant],
        lasts: &[u64],
    ) -> Result<Calm, SkewError> {
        let mut calm = Calm::default();
        if self.mergeable || self.sampled || self.empty {
            return Ok(calm);
        }
        let mask = self.live.mask();
        let next_max = self.catch_up_at.min(self.edges.oldest() + mask + 1);
        let live = self.live.counts();
        for pair in runs.windows(2) {
            let (run, number) = (&pair[0], self.next);
            if pair[1].time_ns == run.time_ns || run.time_ns >= self.event_ns || number >= next_max
            {
                break;
            }
            let Some(volume) = self.volumes.get_mut(run.volume as usize) else { break };
            volume.tally.turn(self.turns, &self.number[..self.windows_ns.len()]);
            sys::prefetch(live, ((number + AHEAD_INSTANTS) & mask) as usize);
            let written = run.written as usize;
            let ahead = calm.writes + AHEAD_LASTS;
            for last in lasts.get(ahead..ahead + written).unwrap_or_default() {
                sys::prefetch(live, (last & mask) as usize);
            }
            let lasts = &lasts[calm.writes..calm.writes + written];
            let news = self.edges.pass::<N>(live, mask, number, lasts);
            let mut looked_at = volume.tally.write(u64::from(run.written));
            if let Some(News { sliding, tumbling }) = &news {
                looked_at |= volume.tally.enter::<N>(sliding, tumbling);
            }
            if let Some(all) = &mut self.all {
                looked_at |= all.write(u64::from(run.written));
                if let Some(News { sliding, tumbling }) = &news {
                    looked_at |= all.enter::<N>(sliding, tumbling);
                }
            }
            self.next += 1;
            calm.runs += 1;
            calm.writes += written;
            if looked_at {
                self.queue.extend(&runs[..calm.runs - 1])?;
                // It is open, for windows to be looked at when it is closed.
                (self.open_ns, self.first_open) = (run.time_ns, number);
                self.open.push(run.volume);
                (volume.written, volume.instant) = (u64::from(run.written), number);
                self.looked_at = true;
                return Ok(calm);
            }
        }
        self.queue.extend(&runs[..calm.runs])?;
        Ok(calm)
    }

    /// Opens an instant for page writes of a volume at the time that is open.
    #[inline]
    fn open_instant(&mut self, run: &Instant) -> Result<(), SkewError> {
        let (at, count) = (run.volume as usize, u64::from(run.written));
        if at >= self.volumes.len() {
            self.enter_volumes(at + 1);
        }
        let volume = &mut self.volumes[at];
        if volume.instant < self.first_open {
            volume.instant = self.next;
            self.next += 1;
            self.open.push(run.volume);
            volume.tally.turn(self.turns, &self.number[..self.windows_ns.len()]);
            if !self.sampled {
                self.live.make_room(self.edges.oldest(), volume.instant)?;
                // A new place, which was last looked at a whole ring ago.
                self.live.prefetch(volume.instant + AHEAD_INSTANTS);
            }
        }
        volume.written += count;
        if volume.written > u64::from(u32::MAX) {
            let time_ns = self.start_ns + self.open_ns;
            return Err(SkewError::Instant { time_ns, max: u64::from(u32::MAX) });
        }
        self.looked_at |= volume.tally.write(count);
        if let Some(all) = &mut self.all {
            self.looked_at |= all.write(count);
        }
        Ok(())
    }

    /// Moves pages to the open instant of their volume, each from its last one.
    #[inline]
    fn move_pages<const N: usize>(&mut self, at: usize, lasts: &[u64]) {
        let (volume, mask) = (&mut self.volumes[at], self.live.mask());
        let news = self.edges.pass::<N>(self.live.counts(), mask, volume.instant, lasts);
        let Some(News { sliding, tumbling }) = news else { return };
        self.looked_at |= volume.tally.enter::<N>(&sliding, &tumbling);
        if volume.tally.series.is_some() {
            volume.entered.iter_mut().zip(&sliding).for_each(|(into, n)| *into += n);
        }
        if let Some(all) = &mut self.all {
            self.looked_at |= all.enter::<N>(&sliding, &tumbling);
        }
    }

    /// Makes places for so many volumes.
    #[cold]
    fn enter_volumes(&mut self, volumes: usize) {
        while self.volumes.len() < volumes {
            if self.volumes.len() == 1 && !self.mergeable {
                // What one volume had is what all had.
                let mut all = self.volumes[0].tally.clone();
                all.turn(self.turns, &self.number[..self.windows_ns.len()]);
                self.all = Some(all);
                for rising in self.rising.iter_mut().filter(|rising| rising.contains(&0)) {
                    rising.push(ALL);
                }
            }
            let series = self.mergeable.then(|| Series::new(self.windows_ns.len()));
            self.volumes.push(Counted {
                tally: Tally::new(series),
                instant: 0,
                written: 0,
                entered: [0; WINDOWS_MAX],
            });
        }
    }

    /// The bytes in temporary files.
    pub fn spilled_bytes(&self) -> u64 {
        self.queue.spilled_bytes() + self.live.spilled_bytes()
    }

    /// Ends the windows of so many volumes.
    pub fn finish(mut self, volumes: usize) -> Result<Found, SkewError> {
        self.enter_volumes(volumes);
        self.close()?;
        if self.mergeable {
            // What has not left will, and parts say when.
            self.settle(u64::MAX);
            self.catch_up_all(u64::MAX)?;
        }
        let volumes = self.volumes.into_iter().map(|volume| volume.tally).collect();
        Ok(Found { volumes, all: self.all })
    }
}
