//! One pass over the records: over every page or over a sample of pages, and then over windows and
//! volumes.
//!
//! An *instant* is all writes of one volume at one time. A page knows the instant of its last
//! write. Of each page write, the windows need its instant and the instant of the page's write
//! before. So there are two stages, with [`Moves`] between them:
//!
//! ```text
//! Pass     records -> tables of pages, or the sample      misses the cache once a record
//! Windows  moves from instant to instant -> counters      misses it once a page write
//! ```
//!
//! The table of pages is far larger than a cache, and nearly all time would be spent on cache
//! misses. So records are taken in blocks, and the lines that the next block needs are prefetched
//! before this block is counted.

mod apart;
mod edges;
mod moves;
mod windows;

use crate::trace::{Op, PAGE_BYTES, Record};

use crate::skew::histogram::histogram_of;
use crate::skew::options::Options;
use crate::skew::part::{Body, Part};
use crate::skew::piece::{PAGES_MAX, Piece, SAMPLED_VOLUMES_MAX, TIME_MAX_NS, VOLUMES_MAX};
use crate::skew::queue::Instant;
use crate::skew::sample::{Sample, Whose};
use crate::skew::table::{FIRST_INSTANT, GROUP, NEVER, PageTable, hash_of};
use crate::skew::tally::Tally;
use crate::skew::{SkewError, sys};

use apart::Stage;
use moves::Moves;
use windows::{Found, Windows};

/// How many records are counted as one block.
const BLOCK: usize = 32;
/// Records ahead that are asked for: they lie in a row, but may come from memory as well.
const AHEAD_RECORDS: usize = 4 * BLOCK;
/// How many records a cache line has.
const LINE_RECORDS: usize = 64 / size_of::<Record>();
/// How many pages ahead are asked for within a request.
const AHEAD_PAGES: u64 = 16;
/// A record that is not counted in its block: of a volume that was not seen before, of several
/// pages, or none that can be.
const OTHER: u32 = u32::MAX;

/// Volumes that have one part together.
#[derive(Clone, Debug)]
pub struct Others {
    /// How many volumes they are.
    pub volumes: u32,
    /// The part that they have.
    pub part: Part,
}

/// A volume of the trace.
struct Volume {
    number: u32,
    table: PageTable,
    records: u64,
    write_records: u64,
    span_ns: (u64, u64),
    /// The number of the volume's last instant.
    instant: u64,
}

/// Numbers instants as [`Windows`] will.
struct Clock {
    /// The time whose instants are open, since the start of the trace, nanoseconds.
    open_ns: u64,
    /// The number of the first instant at `open_ns`, and the number that the next will have.
    first_open: u64,
    next: u64,
}

/// The number of an instant, and whether it was given now.
struct Numbered {
    number: u64,
    is_new: bool,
}

impl Clock {
    /// The instant of a volume at a time.
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

/// The page of a record, its hash, and its volume's place, which are looked up before the record is
/// counted.
#[derive(Clone, Copy, Default)]
struct Seat {
    page: u64,
    hash: u64,
    /// The place of its volume, or [`OTHER`].
    volume: u32,
}

/// The result of a pass.
pub struct Finished {
    /// The part of each volume, by the volume's number.
    pub volumes: Vec<(u32, Part)>,
    /// The volumes that have one part together.
    pub others: Option<Others>,
    /// The part of two or more volumes together, unless parts are to be merged.
    pub all: Option<Part>,
}

/// A pass over the records of a trace.
pub struct Pass {
    windows_ns: Vec<u64>,
    start_ns: u64,
    now_ns: u64,
    /// The time that no record may be later than, nanoseconds.
    last_ns: u64,
    /// The place below of each volume, by its number.
    places: Vec<u32>,
    volumes: Vec<Volume>,
    /// How many volumes have the place of all others, behind the first [`SAMPLED_VOLUMES_MAX`].
    others: u32,
    /// The sample that counts pages in the place of tables.
    sample: Option<Sample>,
    clock: Clock,
    moves: Moves,
    windows: Stage,
    /// Why the windows ended before the records; it is given again at each further call.
    ended: Option<SkewError>,
}

impl Pass {
    pub fn new(options: &Options, start_ns: u64) -> Result<Self, SkewError> {
        let windows_ns = options.windows_ns().to_vec();
        Ok(Self {
            start_ns,
            now_ns: start_ns,
            last_ns: start_ns.saturating_add(TIME_MAX_NS),
            places: Vec::new(),
            volumes: Vec::new(),
            others: 0,
            sample: options.sampling.map(|sampling| Sample::new(sampling, &windows_ns)),
            clock: Clock { open_ns: 0, first_open: FIRST_INSTANT, next: FIRST_INSTANT },
            moves: Moves::default(),
            windows: Stage::new(Windows::new(options, start_ns), options.apart)?,
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
            let time_ns = record.time_ns - self.start_ns;
            let instant = self.clock.open(volume, time_ns);
            self.moves.push(Instant { time_ns, written: 1, volume: seat.volume }, instant.is_new);
            self.moves.lasts.push(volume.table.write(seat.hash, seat.page, instant.number));
        }
        Ok(())
    }

    /// Counts a piece of a record.
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
            let Self { start_ns, .. } = *self;
            return Err(SkewError::Late { time_ns: piece.time_ns, start_ns });
        }
        self.now_ns = piece.time_ns;
        let (time_ns, writes) = (piece.time_ns - self.start_ns, piece.op == Op::Write);
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

    /// The number of the instant to which page writes of a volume at a time belong.
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

    /// The bytes of tables or sample.
    pub fn page_bytes(&self) -> u64 {
        let tables: u64 = self.volumes.iter().map(|volume| volume.table.bytes()).sum();
        tables + self.sample.as_ref().map_or(0, Sample::bytes)
    }

    /// The bytes in temporary files.
    pub fn spilled_bytes(&self) -> u64 {
        self.windows.spilled_bytes()
    }

    /// The end: a part a volume, in the order of their numbers, and one of all where they need not
    /// be merged for it.
    pub fn finish(mut self) -> Result<Finished, SkewError> {
        self.hand_over()?;
        let (windows_ns, start_ns) = (&self.windows_ns, self.start_ns);
        let Found { volumes: tallies, all } = self.windows.finish(self.volumes.len())?;
        let known = self
            .sample
            .take()
            .map(|sample| sample.finish(self.volumes.len(), self.now_ns - start_ns));
        let mut parts: Vec<(u32, Part)> = std::mem::take(&mut self.volumes)
            .into_iter()
            .zip(tallies)
            .map(|(volume, tally)| (volume.number, volume.into_part(tally, windows_ns, start_ns)))
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

/// The piece that is all of a record.
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
    fn into_part(self, mut tally: Tally, windows_ns: &[u64], start_ns: u64) -> Part {
        let worst = tally.worst(windows_ns.len());
        let body = match tally.series {
            Some(series) => Body::Series(series.seal()),
            None => Body::Maxima(worst),
        };
        Part {
            start_ns,
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
