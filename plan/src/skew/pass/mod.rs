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

mod edges;
mod run;

use crate::trace::{Op, PAGE_BYTES, Record};

use crate::skew::live::Live;
use crate::skew::options::{Options, WINDOWS_MAX};
use crate::skew::part::{Body, Part, histogram_of};
use crate::skew::queue::Instants;
use crate::skew::sample::Sample;
use crate::skew::series::Series;
use crate::skew::table::{FIRST_INSTANT, GROUP, NEVER, PageTable, Place, hash_of};
use crate::skew::tally::{PerWindow, Tally};
use crate::skew::{PAGES_MAX, Piece, SAMPLED_VOLUMES_MAX, SkewError, VOLUMES_MAX};

/// Instants by which a left edge may lag behind.
const LAG_INSTANTS: u64 = 4096;
/// The place of all volumes, where a volume's is asked for.
const ALL: u32 = u32::MAX;
/// Bytes of the queue beside a sample.
const SAMPLED_QUEUE_BYTES: u64 = 4 << 20;
/// Instants ahead whose count is asked for.
const AHEAD_INSTANTS: u64 = 64;
/// Pages ahead within a request.
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
    /// How often a window of the clock gave way to the next.
    turns: u64,
    /// The next time at which a window of the clock ends, or a left edge that lies where it should does no longer.
    event_ns: u64,
    /// Whether a sliding window may be worse than all before at the instant that is open.
    looked_at: bool,
    /// Volumes of which a sliding window is worse than all before, by window; [`ALL`] for all of them.
    rising: Vec<Vec<u32>>,
    /// Windows that are empty but for the instant that is open: it says when something leaves them.
    empty: bool,
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
            turns: 0,
            event_ns: windows_ns[0],
            looked_at: false,
            rising: vec![Vec::new(); windows_ns.len()],
            empty: true,
            edge_max: FIRST_INSTANT,
            catch_up_at: FIRST_INSTANT + LAG_INSTANTS,
            windows_ns,
        }
    }

    /// Counts records in the order of their times.
    pub fn add(&mut self, records: &[Record]) -> Result<(), SkewError> {
        match self.windows_ns.len() {
            1 => self.run::<1>(records),
            2 => self.run::<2>(records),
            3 => self.run::<3>(records),
            4 => self.run::<4>(records),
            _ => self.run::<WINDOWS_MAX>(records),
        }
    }

    /// Counts part of a record.
    pub fn add_piece(&mut self, piece: &Piece) -> Result<(), SkewError> {
        self.count::<WINDOWS_MAX>(piece, Place::default())
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
            self.go_to(time_ns)?;
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
            let mut all = self.volumes[0].tally.clone();
            all.turn(self.turns, &self.number[..self.windows_ns.len()]);
            self.all = Some(all);
            for rising in self.rising.iter_mut().filter(|rising| rising.contains(&0)) {
                rising.push(ALL);
            }
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

    /// Counts page writes of a volume at the time that is open.
    #[inline]
    fn open_instant(&mut self, at: usize, count: u64) -> Result<(), SkewError> {
        let volume = &mut self.volumes[at];
        if volume.instant < self.first_open {
            volume.instant = self.next;
            self.next += 1;
            self.open.push(at as u32);
            volume.tally.turn(self.turns, &self.number[..self.windows_ns.len()]);
            if self.sample.is_none() {
                self.live.make_room(self.edge[self.windows_ns.len() - 1], volume.instant)?;
                // A new place, which was last looked at a whole ring ago.
                self.live.prefetch(volume.instant + AHEAD_INSTANTS);
            }
        }
        volume.written += count;
        if volume.written > u64::from(u32::MAX) {
            let time_ns = self.origin_ns + self.open_ns;
            return Err(SkewError::Instant { time_ns, max: u64::from(u32::MAX) });
        }
        self.looked_at |= volume.tally.write(count);
        if let Some(all) = &mut self.all {
            self.looked_at |= all.write(count);
        }
        Ok(())
    }

    #[inline]
    fn write<const N: usize>(
        &mut self,
        at: usize,
        pages: std::ops::Range<u64>,
        place: Place,
    ) -> Result<(), SkewError> {
        self.open_instant(at, pages.end - pages.start)?;
        let volume = &mut self.volumes[at];
        let oldest = self.edge[self.windows_ns.len() - 1];
        if let Some(sample) = &mut self.sample {
            sample.write(at as u32, pages, self.open_ns);
            return Ok(());
        }
        let (mut sliding, mut tumbling) = ([0; N], [0; N]);
        let (instant, mut place, mut news, mut moved) = (volume.instant, place, false, 0);
        let mask = self.live.mask();
        let live = self.live.counts();
        for page in pages.clone() {
            if page % GROUP == 0 && page + AHEAD_PAGES < pages.end {
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
        self.looked_at |= volume.tally.enter::<N>(&sliding, &tumbling);
        if volume.tally.series.is_some() {
            volume.entered.iter_mut().zip(&sliding).for_each(|(into, n)| *into += n);
        }
        if let Some(all) = &mut self.all {
            self.looked_at |= all.enter::<N>(&sliding, &tumbling);
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
        self.close()?;
        if self.mergeable {
            // What has not left will, and parts say when.
            self.settle(u64::MAX);
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

const _: () = assert!(NEVER < FIRST_INSTANT);
