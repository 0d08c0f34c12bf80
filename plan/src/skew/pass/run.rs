//! The fast way for records of one page, as most are where there are many a second: in blocks, and without what only others need.
//!
//! The table of pages is far larger than a cache, and all of the time would be waiting for it. So a block is gone through three times,
//! other blocks between: its pages' lines are asked for; looked at, when they are there, to ask for their last instants' counts;
//! and counted. Each of the three is a short loop, so that many lines are on their way at once.

use crate::skew::table::{Place, hash_of};
use crate::skew::{SkewError, sys};
use crate::trace::{Op, PAGE_BYTES, Record};

use super::{PAGES_MAX, Pass, whole};

/// Records a block.
const BLOCK: usize = 32;
/// Records ahead that are asked for: they lie in a row, but may come from memory as well.
const AHEAD_RECORDS: usize = 4 * BLOCK;
/// Records a cache line.
const LINE_RECORDS: usize = 64 / size_of::<Record>();
/// A record that is not counted here: of a volume that was not seen before, of several pages, or none that can be.
const OTHER: u32 = u32::MAX;

/// What is known of a record before it is counted.
#[derive(Clone, Copy, Default)]
struct Seat {
    page: u64,
    hash: u64,
    place: Place,
    /// The place of its volume, or [`OTHER`].
    volume: u32,
}

impl Pass {
    pub(super) fn run<const N: usize>(&mut self, records: &[Record]) -> Result<(), SkewError> {
        if self.mergeable || self.sample.is_some() {
            let mut pieces = records.iter().map(whole);
            return pieces.try_for_each(|piece| self.count::<N>(&piece, Place::default()));
        }
        let mut seats = [[Seat::default(); BLOCK]; 3];
        let blocks = records.len().div_ceil(BLOCK);
        let block = |at: usize| &records[at * BLOCK..records.len().min((at + 1) * BLOCK)];
        for at in 0..blocks + 2 {
            if at < blocks {
                (at * BLOCK..(at + 1) * BLOCK)
                    .step_by(LINE_RECORDS)
                    .for_each(|record| sys::prefetch(records, record + AHEAD_RECORDS));
                self.bring_pages(block(at), &mut seats[at % 3]);
            }
            if at >= 1 && at <= blocks {
                self.bring_instants(&mut seats[(at - 1) % 3][..block(at - 1).len()]);
            }
            if at >= 2 {
                self.count_block::<N>(block(at - 2), &seats[(at - 2) % 3])?;
            }
        }
        Ok(())
    }

    #[inline]
    fn bring_pages(&self, records: &[Record], seats: &mut [Seat; BLOCK]) {
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
    fn bring_instants(&self, seats: &mut [Seat]) {
        for seat in seats {
            if let Some(volume) = self.volumes.get(seat.volume as usize) {
                let (place, instant) = volume.table.peek(seat.hash, seat.page);
                seat.place = place;
                self.live.prefetch(instant);
            }
        }
    }

    #[inline]
    fn count_block<const N: usize>(
        &mut self,
        records: &[Record],
        seats: &[Seat; BLOCK],
    ) -> Result<(), SkewError> {
        for (record, seat) in records.iter().zip(seats) {
            let at = seat.volume as usize;
            if at >= self.volumes.len() || record.time_ns < self.now_ns {
                self.count::<N>(&whole(record), Place::default())?;
                continue;
            }
            self.now_ns = record.time_ns;
            let volume = &mut self.volumes[at];
            volume.records += 1;
            volume.span_ns.1 = record.time_ns;
            let place = volume.table.place(seat.page, seat.place);
            if record.op == Op::Write {
                volume.write_records += 1;
                self.write_one::<N>(at, record.time_ns - self.origin_ns, place)?;
            }
        }
        Ok(())
    }

    /// One page of a volume is written.
    #[inline]
    fn write_one<const N: usize>(
        &mut self,
        at: usize,
        time_ns: u64,
        place: Place,
    ) -> Result<(), SkewError> {
        if time_ns != self.open_ns || self.open.is_empty() {
            self.go_to(time_ns)?;
        }
        self.open_instant(at, 1)?;
        let volume = &mut self.volumes[at];
        let last = volume.table.write(place, volume.instant);
        let (mask, oldest) = (self.live.mask(), self.edge[N.min(self.windows_ns.len()) - 1]);
        let live = self.live.counts();
        // Written twice at one time it leaves the instant that it comes to. The place of what is long gone is somebody else's.
        live[(volume.instant & mask) as usize] += 1;
        live[(last & mask) as usize] -= u32::from(last >= oldest);
        if last < self.edge_max {
            let (mut sliding, mut tumbling) = ([0; N], [0; N]);
            for window in 0..N {
                sliding[window] = u64::from(last < self.edge[window]);
                tumbling[window] = u64::from(last < self.start[window]);
            }
            self.looked_at |= volume.tally.enter::<N>(&sliding, &tumbling);
            if let Some(all) = &mut self.all {
                self.looked_at |= all.enter::<N>(&sliding, &tumbling);
            }
        }
        Ok(())
    }
}
