//! One pass over the records: windows, volumes, all volumes; every page, or a sample of them.
//!
//! A page knows the instant of its last write. Written again, it is new in every window whose left edge lies after that instant:
//! one comparison a window. It leaves a sliding window when the left edge passes its last instant; how many pages have a given
//! instant for their last is a number an instant ([`Live`]), so leaving costs nothing a page. An *instant* is all writes of
//! one volume at one time: volumes are counted by themselves and in all in the same pass, since their pages differ and a sum
//! over volumes at one time is a sum.
//!
//! The table of pages is far larger than a cache, and all of the time would be waiting for it: so records ahead are looked at
//! twice, once to bring the page nearer and once, when it is there, to bring its last instant's count nearer.

use crate::trace::{Op, PAGE_BYTES, Record};

use super::live::Live;
use super::options::{Options, WINDOWS_MAX};
use super::part::{Body, Part, histogram_of};
use super::queue::{Instant, Instants};
use super::sample::Sample;
use super::series::Series;
use super::table::{FIRST_INSTANT, NEVER, PageTable, Place, hash_of};
use super::tally::{PerWindow, Tally};
use super::{Piece, SAMPLED_VOLUMES_MAX, SkewError, VOLUMES_MAX};

/// Records ahead whose page is brought nearer.
const FAR: usize = 24;
/// Records ahead whose page is there, and whose last instant is brought nearer.
const NEAR: usize = 10;
/// Length of the rings in which hashes and places of records ahead are kept.
const RING: usize = 32;
/// Instants by which a left edge may lag behind.
const LAG_INSTANTS: u64 = 4096;
/// Bytes of the queue beside a sample.
const SAMPLED_QUEUE_BYTES: u64 = 4 << 20;
/// Pages ahead within a request: a line holds four.
const AHEAD_PAGES: u64 = 16;

/// One volume.
struct Volume {
    number: u32,
    table: PageTable,
    tally: Tally,
    records: u64,
    write_records: u64,
    span_ns: (u64, u64),
    /// The number of its last instant.
    instant: u64,
    /// Page writes of the instant that is open.
    written: u64,
    /// Pages new in sliding windows at the instant that is open.
    entered: PerWindow,
}

/// What a pass found.
pub struct Finished {
    /// By number.
    pub volumes: Vec<(u32, Part)>,
    /// Of two or more, unless their parts are to be merged.
    pub all: Option<Part>,
}

/// The pass.
pub struct Pass {
    windows_ns: Vec<u64>,
    mergeable: bool,
    origin_ns: u64,
    now_ns: u64,
    /// A volume's number to its place below.
    places: Vec<u32>,
    volumes: Vec<Volume>,
    /// Counters over all volumes, once there are two.
    all: Option<Tally>,
    queue: Instants,
    live: Live,
    /// Counts pages in the place of tables and `live`.
    sample: Option<Sample>,
    /// The time whose instants are open, since the origin.
    open_ns: u64,
    /// Places of volumes with an open instant, in the order of their numbers.
    open: Vec<u32>,
    /// The first instant of that time; and the number that the next will have.
    first_open: u64,
    next: u64,
    /// The first instant in each sliding window, and when it leaves.
    edge: PerWindow,
    due_ns: PerWindow,
    /// The window of the clock, its first instant, and when it ends.
    number: PerWindow,
    start: PerWindow,
    end_ns: PerWindow,
    turn_ns: u64,
    /// What is asked first: is the page's last instant before any left edge?
    edge_max: u64,
    /// The number of an instant at which all left edges catch up, however quiet it is: the queue is to forget.
    catch_up_at: u64,
}

impl Pass {
    pub fn new(options: &Options, origin_ns: u64) -> Self {
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
            origin_ns,
            now_ns: origin_ns,
            places: Vec::new(),
            volumes: Vec::new(),
            all: None,
            queue: Instants::new(windows_ns.len(), queue_bytes, dir.clone()),
            live: Live::new(queue_bytes, dir),
            sample: options.sampling.map(|sampling| Sample::new(sampling, &windows_ns)),
            open_ns: 0,
            open: Vec::new(),
            first_open: FIRST_INSTANT,
            next: FIRST_INSTANT,
            edge,
            due_ns: [u64::MAX; WINDOWS_MAX],
            number: [0; WINDOWS_MAX],
            start: edge,
            end_ns,
            turn_ns: windows_ns[0],
            edge_max: FIRST_INSTANT,
            catch_up_at: FIRST_INSTANT + LAG_INSTANTS,
            windows_ns,
        }
    }

    /// Counts records in the order of their times.
    pub fn add(&mut self, records: &[Record]) -> Result<(), SkewError> {
        match self.windows_ns.len() {
            1 => self.add_lanes::<1>(records),
            2 => self.add_lanes::<2>(records),
            3 => self.add_lanes::<3>(records),
            4 => self.add_lanes::<4>(records),
            _ => self.add_lanes::<WINDOWS_MAX>(records),
        }
    }

    fn add_lanes<const N: usize>(&mut self, records: &[Record]) -> Result<(), SkewError> {
        if self.sample.is_some() {
            return records
                .iter()
                .try_for_each(|record| self.count::<N>(&whole(record), Place::default()));
        }
        let (mut hashes, mut places) = ([0; RING], [Place::default(); RING]);
        let (mut far, mut near) = (0, 0);
        for (at, record) in records.iter().enumerate() {
            while far < records.len().min(at + FAR) {
                hashes[far % RING] = self.bring_page(&records[far]);
                far += 1;
            }
            while near < records.len().min(at + NEAR) {
                places[near % RING] = self.bring_instant(&records[near], hashes[near % RING]);
                near += 1;
            }
            self.count::<N>(&whole(record), places[at % RING])?;
        }
        Ok(())
    }

    /// Counts part of a record.
    pub fn add_piece(&mut self, piece: &Piece) -> Result<(), SkewError> {
        self.count::<WINDOWS_MAX>(piece, Place::default())
    }

    #[inline]
    fn volume(&self, number: u32) -> Option<&Volume> {
        self.places.get(number as usize).and_then(|place| self.volumes.get(*place as usize))
    }

    /// The first page's hash.
    #[inline]
    fn bring_page(&self, record: &Record) -> u64 {
        let hash = hash_of(record.offset_bytes / PAGE_BYTES);
        if let Some(volume) = self.volume(record.volume) {
            volume.table.prefetch(hash);
        }
        hash
    }

    #[inline]
    fn bring_instant(&self, record: &Record, hash: u64) -> Place {
        let page = record.offset_bytes / PAGE_BYTES;
        let known = self.volume(record.volume).and_then(|volume| volume.table.peek(hash, page));
        let Some((place, instant)) = known else { return Place::default() };
        self.live.prefetch(instant);
        place
    }

    fn count<const N: usize>(&mut self, piece: &Piece, place: Place) -> Result<(), SkewError> {
        piece.check()?;
        let at = match self.places.get(piece.volume as usize) {
            Some(&at) if at != u32::MAX => at as usize,
            _ => self.enter_volume(piece.volume, piece.time_ns)?,
        };
        if piece.time_ns < self.now_ns {
            return Err(SkewError::TimeBack { from_ns: self.now_ns, to_ns: piece.time_ns });
        }
        self.now_ns = piece.time_ns;
        let time_ns = piece.time_ns - self.origin_ns;
        if piece.op == Op::Write && (time_ns != self.open_ns || self.open.is_empty()) {
            self.go_to::<N>(time_ns)?;
        }
        let volume = &mut self.volumes[at];
        volume.records += u64::from(piece.counts_as_record);
        volume.span_ns.1 = piece.time_ns;
        let pages = piece.first_page..piece.first_page + piece.pages;
        match piece.op {
            Op::Read => {
                if let Some(sample) = &mut self.sample {
                    sample.read(at as u32, pages);
                    return Ok(());
                }
                let mut place = place;
                for page in pages {
                    place = volume.table.place(page, place);
                }
                Ok(())
            }
            Op::Write => {
                volume.write_records += u64::from(piece.counts_as_record);
                self.write::<N>(at, pages, place)
            }
        }
    }

    #[cold]
    fn enter_volume(&mut self, number: u32, time_ns: u64) -> Result<usize, SkewError> {
        let max = if self.sample.is_some() { SAMPLED_VOLUMES_MAX } else { VOLUMES_MAX };
        if number >= max {
            return Err(SkewError::Volume { volume: number, max });
        }
        if self.places.len() <= number as usize {
            self.places.resize(number as usize + 1, u32::MAX);
        }
        let at = self.volumes.len();
        self.places[number as usize] = at as u32;
        if at == 1 && !self.mergeable {
            // What one volume had is what all had.
            self.all = Some(self.volumes[0].tally.clone());
        }
        let series = self.mergeable.then(|| Series::new(self.windows_ns.len()));
        self.volumes.push(Volume {
            number,
            table: PageTable::new(),
            tally: Tally::new(series),
            records: 0,
            write_records: 0,
            span_ns: (time_ns, time_ns),
            instant: 0,
            written: 0,
            entered: [0; WINDOWS_MAX],
        });
        Ok(at)
    }

    /// Closes the instants that are open, and goes over to `time_ns`.
    #[inline]
    fn go_to<const N: usize>(&mut self, time_ns: u64) -> Result<(), SkewError> {
        self.close::<N>()?;
        if self.mergeable || self.next >= self.catch_up_at {
            self.catch_up_all(time_ns)?;
        }
        if time_ns >= self.turn_ns {
            self.turn(time_ns);
        }
        if let Some(all) = &mut self.all {
            all.turn::<N>(&self.number);
        }
        (self.open_ns, self.first_open) = (time_ns, self.next);
        Ok(())
    }

    /// Windows of the clock that have ended give way to those of `time_ns`.
    #[cold]
    fn turn(&mut self, time_ns: u64) {
        for (window, length_ns) in self.windows_ns.iter().enumerate() {
            if time_ns >= self.end_ns[window] {
                self.number[window] = time_ns / length_ns;
                self.end_ns[window] = (self.number[window] + 1).saturating_mul(*length_ns);
                self.start[window] = self.next;
            }
        }
        self.turn_ns = self.end_ns.iter().copied().min().unwrap_or(u64::MAX);
        self.note_edges();
    }

    fn note_edges(&mut self) {
        self.edge_max = self.start.iter().chain(&self.edge).copied().max().unwrap_or(0);
    }

    fn catch_up_all(&mut self, time_ns: u64) -> Result<(), SkewError> {
        self.catch_up_at = self.next + LAG_INSTANTS;
        for window in 0..self.windows_ns.len() {
            if self.due_ns[window] <= time_ns {
                self.catch_up(window, time_ns)?;
            }
        }
        Ok(())
    }

    /// One window's left edge goes to where it belongs in a window that ends at `time_ns`. Before the longest one's, all others
    /// do: what it leaves behind is forgotten.
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
            self.queue.forget_before(self.edge[window]);
        }
        self.note_edges();
        Ok(())
    }

    fn move_edge(&mut self, window: usize, time_ns: u64) -> Result<(), SkewError> {
        let end = self.first_unqueued();
        let last = window + 1 == self.windows_ns.len();
        let (queue, volumes) = (&mut self.queue, &mut self.volumes);
        self.due_ns[window] = u64::MAX;
        let mut number = self.edge[window];
        'edge: while number < end {
            let (mut left, mut written) = (0, 0);
            let mut due_ns = None;
            // A sample has its own edges, and the ring no room for instants that nobody counts pages of.
            let mut nobody = [];
            let mask = self.live.mask();
            let counts = match self.sample {
                Some(_) => &mut nobody[..],
                None => self.live.counts(),
            };
            for instant in queue.from(window, number)? {
                let leaves_ns = instant.time_ns.saturating_add(self.windows_ns[window]);
                if leaves_ns > time_ns {
                    due_ns = Some(leaves_ns);
                    break;
                }
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
            if let Some(due_ns) = due_ns {
                self.due_ns[window] = due_ns;
                break 'edge;
            }
        }
        self.edge[window] = number;
        Ok(())
    }

    /// Instants from here on are open.
    fn first_unqueued(&self) -> u64 {
        self.next - self.open.len() as u64
    }

    /// The instants of this time are complete. The sliding windows that end at it are looked at only where they might be the worst:
    /// while a left edge lags behind, its window is longer, so what it has is no less.
    #[inline]
    fn close<const N: usize>(&mut self) -> Result<(), SkewError> {
        if self.open.is_empty() {
            return Ok(());
        }
        let time_ns = self.open_ns;
        for window in 0..N {
            if self.due_ns[window] <= time_ns && self.may_rise(window) {
                self.catch_up(window, time_ns)?;
            }
        }
        for &at in &self.open {
            let volume = &mut self.volumes[at as usize];
            volume.tally.settle::<N>();
            let written = std::mem::take(&mut volume.written);
            if let Some(series) = &mut volume.tally.series {
                series.push_instant(time_ns, written, &volume.entered[..self.windows_ns.len()]);
                volume.entered = [0; WINDOWS_MAX];
            }
            self.queue.push(Instant { time_ns, written: written as u32, volume: at })?;
        }
        self.open.clear();
        if let Some(all) = &mut self.all {
            all.settle::<N>();
        }
        for (due_ns, length_ns) in self.due_ns.iter_mut().zip(&self.windows_ns) {
            if *due_ns == u64::MAX {
                *due_ns = time_ns.saturating_add(*length_ns);
            }
        }
        Ok(())
    }

    #[inline]
    fn may_rise(&self, window: usize) -> bool {
        let mut open = self.open.iter().map(|at| &self.volumes[*at as usize].tally);
        open.any(|tally| tally.may_rise(window))
            || self.all.as_ref().is_some_and(|all| all.may_rise(window))
    }

    #[inline]
    fn write<const N: usize>(
        &mut self,
        at: usize,
        pages: std::ops::Range<u64>,
        place: Place,
    ) -> Result<(), SkewError> {
        let volume = &mut self.volumes[at];
        let oldest = self.edge[self.windows_ns.len() - 1];
        if volume.instant < self.first_open {
            volume.instant = self.next;
            self.next += 1;
            self.open.push(at as u32);
            volume.tally.turn::<N>(&self.number);
            if self.sample.is_none() {
                self.live.make_room(oldest, volume.instant)?;
            }
        }
        let count = pages.end - pages.start;
        volume.written += count;
        if volume.written > u64::from(u32::MAX) {
            let time_ns = self.origin_ns + self.open_ns;
            return Err(SkewError::Instant { time_ns, max: u64::from(u32::MAX) });
        }
        volume.tally.page_writes += count;
        if let Some(all) = &mut self.all {
            all.page_writes += count;
        }
        if let Some(sample) = &mut self.sample {
            sample.write(at as u32, pages, self.open_ns);
            return Ok(());
        }
        let (mut sliding, mut tumbling) = ([0; N], [0; N]);
        let (instant, mut place, mut news, mut moved) = (volume.instant, place, false, 0);
        let mask = self.live.mask();
        let live = self.live.counts();
        for page in pages.clone() {
            if page % 4 == 0 && page + AHEAD_PAGES < pages.end {
                volume.table.prefetch(hash_of(page + AHEAD_PAGES));
            }
            place = volume.table.place(page, place);
            let last = volume.table.write(place, instant);
            if last == instant {
                continue;
            }
            moved += 1;
            if last >= oldest {
                live[(last & mask) as usize] -= 1;
            }
            if last < self.edge_max {
                news = true;
                for window in 0..N {
                    sliding[window] += u64::from(last < self.edge[window]);
                    tumbling[window] += u64::from(last < self.start[window]);
                }
            }
        }
        live[(instant & mask) as usize] += moved;
        if !news {
            return Ok(());
        }
        volume.tally.enter::<N>(&sliding, &tumbling);
        if volume.tally.series.is_some() {
            volume.entered.iter_mut().zip(&sliding).for_each(|(into, n)| *into += n);
        }
        if let Some(all) = &mut self.all {
            all.enter::<N>(&sliding, &tumbling);
        }
        Ok(())
    }

    /// Bytes of tables or sample.
    pub fn page_bytes(&self) -> u64 {
        let tables: u64 = self.volumes.iter().map(|volume| volume.table.bytes()).sum();
        tables + self.sample.as_ref().map_or(0, Sample::bytes)
    }

    /// Bytes in temporary files.
    pub fn spilled_bytes(&self) -> u64 {
        self.queue.spilled_bytes() + self.live.spilled_bytes()
    }

    /// The end: a part a volume, in the order of their numbers, and one of all where they need not be merged for it.
    pub fn finish(mut self) -> Result<Finished, SkewError> {
        self.close::<WINDOWS_MAX>()?;
        if self.mergeable {
            // What has not left will, and parts say when.
            self.catch_up_all(u64::MAX)?;
        }
        let (windows_ns, origin_ns) = (&self.windows_ns, self.origin_ns);
        let volumes = std::mem::take(&mut self.volumes);
        let known =
            self.sample.take().map(|sample| sample.finish(volumes.len(), self.now_ns - origin_ns));
        let mut parts: Vec<(u32, Part)> = volumes
            .into_iter()
            .map(|volume| (volume.number, volume.into_part(windows_ns, origin_ns)))
            .collect();
        let known_of_all = known.map(|(each, of_all)| {
            parts.iter_mut().zip(each).for_each(|((_, part), known)| part.know(known));
            of_all
        });
        parts.sort_unstable_by_key(|(number, _)| *number);
        let all = self.all.as_mut().map(|tally| {
            let worst = tally.worst(windows_ns.len());
            let parts: Vec<&Part> = parts.iter().map(|(_, part)| part).collect();
            let mut all = Part::sum(&parts, Body::Maxima(worst));
            known_of_all.into_iter().for_each(|known| all.know(known));
            all
        });
        Ok(Finished { volumes: parts, all })
    }
}

/// All of a record.
#[inline]
fn whole(record: &Record) -> Piece {
    let Record { time_ns, volume, op, offset_bytes, len_bytes } = *record;
    let (first_page, pages) = match len_bytes {
        0 => (offset_bytes / PAGE_BYTES, 0),
        _ => record.pages(),
    };
    Piece { time_ns, volume, op, first_page, pages, counts_as_record: true }
}

impl Volume {
    fn into_part(mut self, windows_ns: &[u64], origin_ns: u64) -> Part {
        let worst = self.tally.worst(windows_ns.len());
        let body = match self.tally.series {
            Some(series) => Body::Series(series.seal()),
            None => Body::Maxima(worst),
        };
        Part {
            origin_ns,
            windows_ns: windows_ns.to_vec(),
            records: self.records,
            write_records: self.write_records,
            span_ns: Some(self.span_ns),
            touched_pages: self.table.len(),
            page_writes: self.tally.page_writes,
            histogram: histogram_of(self.table.counts()),
            body,
            sampled: None,
        }
    }
}

const _: () = assert!(NEVER < FIRST_INSTANT && NEAR < FAR && FAR < RING && RING.is_power_of_two());
