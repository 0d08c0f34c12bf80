//! One pass over the records: every page, or a sample of them; then windows, volumes, all volumes.
//!
//! A page knows the instant of its last write. An *instant* is all writes of one volume at one
//! time. What windows need to know of a page write is its instant and that of the page's write
//! before; so there are two stages, with [`Moves`] between them:
//!
//! ```text
//! Pass     records -> tables of pages, or the sample      misses the cache once a record
//! Windows  moves from instant to instant -> counters      misses it once a page write, where writes are far apart
//! ```
//!
//! The table of pages is far larger than a cache, and all of the time would be waiting for it: so
//! records are taken in blocks, and the lines that the next block needs are asked for before this
//! one is counted.

mod apart;
mod edges;
mod moves;
mod windows;

use crate::trace::{Op, PAGE_BYTES, Record};

use crate::skew::options::Options;
use crate::skew::part::{Body, Part, histogram_of};
use crate::skew::queue::Instant;
use crate::skew::sample::{Sample, Whose};
use crate::skew::table::{FIRST_INSTANT, GROUP, NEVER, PageTable, hash_of};
use crate::skew::tally::Tally;
use crate::skew::{
    Others, PAGES_MAX, Piece, SAMPLED_VOLUMES_MAX, SkewError, TIME_MAX_NS, VOLUMES_MAX, sys,
};

use apart::Stage;
use moves::Moves;
use windows::{Found, Windows};

/// Records a block.
const BLOCK: usize = 32;
/// Records ahead that are asked for: they lie in a row, but may come from memory as well.
const AHEAD_RECORDS: usize = 4 * BLOCK;
/// Records a cache line.
const LINE_RECORDS: usize = 64 / size_of::<Record>();
/// Pages ahead within a request.
const AHEAD_PAGES: u64 = 16;
/// A record that is not counted in its block: of a volume that was not seen before, of several
/// pages, or none that can be.
const OTHER: u32 = u32::MAX;

/// One volume.
struct Volume {
    number: u32,
    table: PageTable,
    records: u64,
    write_records: u64,
    span_ns: (u64, u64),
    /// The number of its last instant.
    instant: u64,
}

/// Numbers instants, as [`Windows`] will.
struct Clock {
    /// The time whose instants are open, since the origin.
    open_ns: u64,
    /// Its first instant, and the number that the next will have.
    first_open: u64,
    next: u64,
}

/// An instant's number, and whether it was given now.
struct Numbered {
    number: u64,
    is_new: bool,
}

impl Clock {
    /// The volume's instant at a time.
    #[inline]
    fn open(&mut self, volume: &mut Volume, time_ns: u64) -> Numbered {
        if time_ns != self.open_ns {
            (self.open_ns, self.first_open) = (time_ns, self.next);
        }
        let is_new = volume.instant < self.first_open;
        if is_new {
            volume.instant = self.next;
            self.next += 1;
        }
        Numbered { number: volume.instant, is_new }
    }
}

/// What is known of a record before it is counted.
#[derive(Clone, Copy, Default)]
struct Seat {
    page: u64,
    hash: u64,
    /// The place of its volume, or [`OTHER`].
    volume: u32,
}

/// What a pass found.
pub struct Finished {
    /// By number.
    pub volumes: Vec<(u32, Part)>,
    /// Those that have one part together.
    pub others: Option<Others>,
    /// Of two or more, unless their parts are to be merged.
    pub all: Option<Part>,
}

/// The pass.
pub struct Pass {
    windows_ns: Vec<u64>,
    origin_ns: u64,
    now_ns: u64,
    /// No record is later.
    last_ns: u64,
    /// A volume's number to its place below.
    places: Vec<u32>,
    volumes: Vec<Volume>,
    /// Volumes whose place is that of all others, behind the first [`SAMPLED_VOLUMES_MAX`].
    others: u32,
    /// Counts pages in the place of tables.
    sample: Option<Sample>,
    clock: Clock,
    moves: Moves,
    windows: Stage,
    /// Why the windows ended before the records: it is said again to who goes on.
    ended: Option<SkewError>,
}

impl Pass {
    pub fn new(options: &Options, origin_ns: u64) -> Result<Self, SkewError> {
        let windows_ns = options.windows_ns().to_vec();
        Ok(Self {
            origin_ns,
            now_ns: origin_ns,
            last_ns: origin_ns.saturating_add(TIME_MAX_NS),
            places: Vec::new(),
            volumes: Vec::new(),
            others: 0,
            sample: options.sampling.map(|sampling| Sample::new(sampling, &windows_ns)),
            clock: Clock { open_ns: 0, first_open: FIRST_INSTANT, next: FIRST_INSTANT },
            moves: Moves::default(),
            windows: Stage::new(Windows::new(options, origin_ns), options.apart)?,
            ended: None,
            windows_ns,
        })
    }

    /// Counts records in the order of their times.
    pub fn add(&mut self, records: &[Record]) -> Result<(), SkewError> {
        let mut seats = [[Seat::default(); BLOCK]; 2];
        let blocks = records.len().div_ceil(BLOCK);
        let block = |at: usize| &records[at * BLOCK..records.len().min((at + 1) * BLOCK)];
        for at in 0..=blocks {
            if at < blocks {
                (at * BLOCK..(at + 1) * BLOCK)
                    .step_by(LINE_RECORDS)
                    .for_each(|record| sys::prefetch(records, record + AHEAD_RECORDS));
                self.ask_for(block(at), &mut seats[at % 2]);
            }
            if at >= 1 {
                self.add_block(block(at - 1), &seats[(at - 1) % 2])?;
            }
        }
        Ok(())
    }

    #[inline]
    fn ask_for(&self, records: &[Record], seats: &mut [Seat; BLOCK]) {
        for (record, seat) in records.iter().zip(seats) {
            let page = record.offset_bytes / PAGE_BYTES;
            let room = PAGE_BYTES - record.offset_bytes % PAGE_BYTES;
            (seat.page, seat.hash) = (page, hash_of(page));
            seat.volume = self.places.get(record.volume as usize).copied().unwrap_or(OTHER);
            if let Some(volume) = self.volumes.get(seat.volume as usize) {
                volume.table.prefetch(seat.hash);
            }
            if record.len_bytes.wrapping_sub(1) >= room || page >= PAGES_MAX {
                seat.volume = OTHER;
            }
        }
    }

    #[inline]
    fn add_block(&mut self, records: &[Record], seats: &[Seat; BLOCK]) -> Result<(), SkewError> {
        if self.moves.room() < BLOCK {
            self.hand_over()?;
        }
        for (record, seat) in records.iter().zip(seats) {
            let volume = match self.volumes.get_mut(seat.volume as usize) {
                Some(volume)
                    if (self.now_ns..=self.last_ns).contains(&record.time_ns)
                        && self.sample.is_none() =>
                {
                    volume
                }
                _ => {
                    self.add_piece(&whole(record))?;
                    continue;
                }
            };
            self.now_ns = record.time_ns;
            volume.records += 1;
            volume.span_ns.1 = record.time_ns;
            if record.op == Op::Read {
                volume.table.touch(seat.hash, seat.page);
                continue;
            }
            volume.write_records += 1;
            let time_ns = record.time_ns - self.origin_ns;
            let instant = self.clock.open(volume, time_ns);
            self.moves.push(Instant { time_ns, written: 1, volume: seat.volume }, instant.is_new);
            self.moves.lasts.push(volume.table.write(seat.hash, seat.page, instant.number));
        }
        Ok(())
    }

    /// Counts part of a record.
    pub fn add_piece(&mut self, piece: &Piece) -> Result<(), SkewError> {
        piece.check()?;
        let at = match self.places.get(piece.volume as usize) {
            Some(&at) if at != u32::MAX => at as usize,
            _ => self.enter_volume(piece.volume, piece.time_ns)?,
        };
        if piece.time_ns < self.now_ns {
            return Err(SkewError::TimeBack { from_ns: self.now_ns, to_ns: piece.time_ns });
        }
        if piece.time_ns > self.last_ns {
            let Self { origin_ns, .. } = *self;
            return Err(SkewError::Late { time_ns: piece.time_ns, origin_ns });
        }
        self.now_ns = piece.time_ns;
        let (time_ns, writes) = (piece.time_ns - self.origin_ns, piece.op == Op::Write);
        let volume = &mut self.volumes[at];
        let counts = u64::from(piece.counts_as_record);
        volume.records += counts;
        volume.write_records += if writes { counts } else { 0 };
        volume.span_ns.1 = piece.time_ns;
        let pages = piece.first_page..piece.first_page + piece.pages;
        if let Some(sample) = &mut self.sample {
            let whose = Whose { number: piece.volume, place: at as u32 };
            if !writes {
                sample.read(whose, pages);
                return Ok(());
            }
            sample.write(whose, pages, time_ns);
            self.make_room()?;
            self.open_instant(at, time_ns, piece.pages as u32);
            return Ok(());
        }
        if !writes {
            pages.for_each(|page| volume.table.touch(hash_of(page), page));
            return Ok(());
        }
        self.write(at, time_ns, pages)
    }

    fn write(
        &mut self,
        at: usize,
        time_ns: u64,
        pages: std::ops::Range<u64>,
    ) -> Result<(), SkewError> {
        let mut from = pages.start;
        while from < pages.end {
            self.make_room()?;
            let to = pages.end.min(from + self.moves.room() as u64);
            let instant = self.open_instant(at, time_ns, (to - from) as u32);
            let table = &mut self.volumes[at].table;
            for page in from..to {
                if page % GROUP == 0 && page + AHEAD_PAGES < pages.end {
                    table.prefetch(hash_of(page + AHEAD_PAGES));
                }
                self.moves.lasts.push(table.write(hash_of(page), page, instant));
            }
            from = to;
        }
        Ok(())
    }

    /// Some page writes of a volume at a time: the number of their instant.
    fn open_instant(&mut self, at: usize, time_ns: u64, written: u32) -> u64 {
        let instant = self.clock.open(&mut self.volumes[at], time_ns);
        self.moves.push(Instant { time_ns, written, volume: at as u32 }, instant.is_new);
        instant.number
    }

    #[inline]
    fn make_room(&mut self) -> Result<(), SkewError> {
        if self.moves.room() == 0 { self.hand_over() } else { Ok(()) }
    }

    fn hand_over(&mut self) -> Result<(), SkewError> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone());
        }
        let counted = self.windows.count(&mut self.moves);
        self.ended = counted.as_ref().err().cloned();
        counted
    }

    #[cold]
    fn enter_volume(&mut self, number: u32, time_ns: u64) -> Result<usize, SkewError> {
        if number >= VOLUMES_MAX {
            return Err(SkewError::Volume { volume: number, max: VOLUMES_MAX });
        }
        if self.places.len() <= number as usize {
            self.places.resize(number as usize + 1, u32::MAX);
        }
        // The memory beside a sample is fixed: volumes that come late have one place together.
        let is_other = self.sample.is_some() && self.volumes.len() >= SAMPLED_VOLUMES_MAX;
        self.others += u32::from(is_other);
        let at = if is_other { SAMPLED_VOLUMES_MAX } else { self.volumes.len() };
        self.places[number as usize] = at as u32;
        if at < self.volumes.len() {
            return Ok(at);
        }
        self.volumes.push(Volume {
            number,
            table: PageTable::new(),
            records: 0,
            write_records: 0,
            span_ns: (time_ns, time_ns),
            instant: 0,
        });
        Ok(at)
    }

    /// Bytes of tables or sample.
    pub fn page_bytes(&self) -> u64 {
        let tables: u64 = self.volumes.iter().map(|volume| volume.table.bytes()).sum();
        tables + self.sample.as_ref().map_or(0, Sample::bytes)
    }

    /// Bytes in temporary files.
    pub fn spilled_bytes(&self) -> u64 {
        self.windows.spilled_bytes()
    }

    /// The end: a part a volume, in the order of their numbers, and one of all where they need not
    /// be merged for it.
    pub fn finish(mut self) -> Result<Finished, SkewError> {
        self.hand_over()?;
        let (windows_ns, origin_ns) = (&self.windows_ns, self.origin_ns);
        let Found { volumes: tallies, all } = self.windows.finish(self.volumes.len())?;
        let known = self
            .sample
            .take()
            .map(|sample| sample.finish(self.volumes.len(), self.now_ns - origin_ns));
        let mut parts: Vec<(u32, Part)> = std::mem::take(&mut self.volumes)
            .into_iter()
            .zip(tallies)
            .map(|(volume, tally)| (volume.number, volume.into_part(tally, windows_ns, origin_ns)))
            .collect();
        let known_of_all = known.map(|(each, of_all)| {
            parts.iter_mut().zip(each).for_each(|((_, part), known)| part.know(known));
            of_all
        });
        let all = all.map(|mut tally| {
            let worst = tally.worst(windows_ns.len());
            let parts: Vec<&Part> = parts.iter().map(|(_, part)| part).collect();
            let mut all = Part::sum(&parts, Body::Maxima(worst))?;
            known_of_all.into_iter().for_each(|known| all.know(known));
            Ok(all)
        });
        let all = all.transpose()?;
        let others = (self.others > 0).then(|| parts.pop()).flatten();
        let others = others.map(|(_, part)| Others { volumes: self.others, part });
        parts.sort_unstable_by_key(|(number, _)| *number);
        Ok(Finished { volumes: parts, others, all })
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
    fn into_part(self, mut tally: Tally, windows_ns: &[u64], origin_ns: u64) -> Part {
        let worst = tally.worst(windows_ns.len());
        let body = match tally.series {
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
            page_writes: tally.page_writes,
            histogram: histogram_of(self.table.counts()),
            body,
            sampled: None,
        }
    }
}

const _: () = assert!(NEVER < FIRST_INSTANT);
