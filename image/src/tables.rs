//! The extents of segments, for compaction: kept in memory as far as there is room, or read back.
//!
//! Compaction looks at all grains that a segment has ever got. The segment's tables are on the
//! device, but a read takes long while the device writes, and whoever waits for the cleaner waits
//! for it. So the cleaner notes the extents of each frame that it hands to the device, in about
//! three bytes an extent. What is kept of a segment counts only if it covers the segment up to its
//! last used byte: other processes and emergency flushes write frames that nobody notes.

use std::sync::atomic::Ordering::*;

use perdura_dirty::extent::Extent;
use perdura_dirty::{FrameBuffer, Ledger};
use perdura_media::Device;

use crate::error::OpenError;
use crate::recover::TableRoom;
use crate::seal::{fill, kept_bytes};

/// Extents are kept in at most one part in so many of the region's bytes. Records of a kilobyte
/// need 1/180, in a log of twice the region.
const REGION_SHARE: u64 = 128;

/// The extents of segments. The cleaner has one.
#[derive(Default)]
pub struct Tables {
    segments: Vec<Kept>,
    /// Bytes of all packed extents.
    len_bytes: u64,
    room: TableRoom,
}

/// The noted extents of a segment.
#[derive(Default)]
struct Kept {
    /// Sequence number of the segment's first frame.
    first_seq: u64,
    /// Bytes of the segment whose frames were noted, from its start.
    covered_bytes: u64,
    packed: Vec<u8>,
}

impl Tables {
    /// Notes the extents of a frame whose length is final. Frames of a segment come in their order.
    pub(crate) fn note(&mut self, ledger: &Ledger, buffer: &FrameBuffer<'_>) {
        let number = buffer.segment().load(Relaxed) as usize;
        let at = buffer.segment_offset().load(Relaxed);
        if self.segments.len() <= number {
            self.segments.resize_with(number + 1, Kept::default);
        }
        if at == 0 {
            self.forget(number as u32);
            self.segments[number].first_seq = buffer.seq().load(Relaxed);
        }
        let kept = &mut self.segments[number];
        if kept.covered_bytes != at {
            return;
        }
        let before = kept.packed.len();
        let (_, extents) = fill(buffer);
        let extents = buffer.table()[..extents].iter();
        pack(extents.map(|word| Extent::unpack(word.load(Relaxed))), &mut kept.packed);
        kept.packed.shrink_to_fit();
        kept.covered_bytes = at + kept_bytes(buffer);
        self.len_bytes += (kept.packed.len() - before) as u64;
        if self.len_bytes > ledger.region_bytes().load(Relaxed) / REGION_SHARE {
            self.forget(number as u32);
        }
    }

    /// Forgets what is kept of a segment.
    pub fn forget(&mut self, segment: u32) {
        if let Some(kept) = self.segments.get_mut(segment as usize) {
            self.len_bytes -= kept.packed.len() as u64;
            *kept = Kept::default();
        }
    }

    /// The extents of all frames in a segment, and the bytes that were read for them.
    ///
    /// # Errors
    /// They are not kept, and a frame that the segment should have is not on the device, or is
    /// damaged.
    pub(crate) fn of(
        &mut self,
        ledger: &Ledger,
        device: &dyn Device,
        segment: u32,
    ) -> Result<(Vec<Extent>, u64), OpenError> {
        match self.kept(ledger, segment) {
            Some(extents) => Ok((extents, 0)),
            None => self.room.read(ledger, device, segment),
        }
    }

    /// The extents of a segment if all of them are kept.
    fn kept(&self, ledger: &Ledger, segment: u32) -> Option<Vec<Extent>> {
        let (kept, entry) = (self.segments.get(segment as usize)?, ledger.segment(segment));
        let is_whole = kept.covered_bytes > 0
            && kept.covered_bytes == entry.used_bytes().load(Acquire)
            && kept.first_seq == entry.first_seq().load(Acquire);
        is_whole.then(|| unpack(&kept.packed))
    }
}

/// Appends extents to `packed`: for each the distance from the end of the one before, forwards or
/// backwards, and the length. Every frame begins at distance 0 from the region's start.
fn pack(extents: impl Iterator<Item = Extent>, packed: &mut Vec<u8>) {
    // No extent is that short, so a zero says that another frame begins.
    put(0, packed);
    let mut end = 0;
    for extent in extents {
        let distance = extent.grain as i64 - end;
        put(extent.len, packed);
        put((distance << 1 ^ distance >> 63) as u64, packed);
        end = (extent.grain + extent.len) as i64;
    }
}

fn unpack(mut packed: &[u8]) -> Vec<Extent> {
    let (mut extents, mut end) = (Vec::with_capacity(packed.len() / 3), 0);
    while !packed.is_empty() {
        let len = take(&mut packed);
        if len == 0 {
            end = 0;
            continue;
        }
        let folded = take(&mut packed);
        let grain = (end + ((folded >> 1) as i64 ^ -((folded & 1) as i64))) as u64;
        extents.push(Extent { grain, len });
        end = (grain + len) as i64;
    }
    extents
}

/// Appends a number, seven bits a byte, the lowest first; the highest bit of a byte says that more
/// follow.
fn put(mut number: u64, packed: &mut Vec<u8>) {
    while number >= 0x80 {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

fn take(packed: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    while let [byte, rest @ ..] = *packed {
        *packed = rest;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use perdura_dirty::geometry::{BLOCK_BYTES, GRAIN_SHIFT_BARRIER, Geometry};
    use perdura_dirty::sys::SharedMemory;
    use perdura_media::{Device, SimDevice};
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus as Random;

    use super::*;
    use crate::append::{Appender, free_buffer};
    use crate::format::Layout;
    use crate::seal::{frame_bytes, seal};

    #[test]
    fn extents_come_back_in_their_order() {
        let mut random = Random::seed_from_u64(1);
        let mut packed = Vec::new();
        let frames: Vec<Vec<Extent>> = (0..50)
            .map(|_| {
                let most = 1 << random.random_range(1..40);
                let extent = |random: &mut Random| Extent {
                    grain: random.random_range(0..most),
                    len: random.random_range(1..=Extent::LEN_MAX.min(most)),
                };
                (0..random.random_range(0..40)).map(|_| extent(&mut random)).collect()
            })
            .collect();
        frames.iter().for_each(|frame| pack(frame.iter().copied(), &mut packed));
        assert_eq!(unpack(&packed), frames.concat());
    }

    #[test]
    fn what_is_kept_is_what_the_device_holds_and_half_of_a_segment_does_not_count() {
        let region_bytes = 64 * BLOCK_BYTES;
        let geometry = Geometry::new(region_bytes, GRAIN_SHIFT_BARRIER, Some(1 << 20), 2).unwrap();
        let (layout, device) = (Layout::of(&geometry), SimDevice::new(0, 1));
        device.grow(layout.segment_at(8)).unwrap();
        let map = SharedMemory::create("test", region_bytes).unwrap().map().unwrap();
        let ledger = Ledger::create(geometry, 7, region_bytes).unwrap();
        ledger.segments().store(8, Relaxed);
        let free: Vec<u32> = (0..8).collect();
        let mut appender = Appender::new(vec![0], free.into(), 0, 100 << 10);
        let (mut tables, mut random) = (Tables::default(), Random::seed_from_u64(2));
        for _ in 0..128 {
            for _ in 0..40 {
                let grain = random.random_range(0..region_bytes / 64 - 20);
                let run = Extent { grain, len: random.random_range(1..20) };
                appender.put(&ledger, &map, run).unwrap();
            }
            appender.close_frame(&ledger, 0);
            let number = appender.closed.pop_front().unwrap();
            let buffer = ledger.buffer(number);
            seal(&ledger, &buffer, 7, 0);
            tables.note(&ledger, &buffer);
            let at = layout.segment_at(buffer.segment().load(Relaxed) as u32)
                + buffer.segment_offset().load(Relaxed);
            // SAFETY: nobody else uses the buffer.
            let bytes = unsafe { buffer.bytes_mut(0, frame_bytes(&buffer) as usize) };
            device.write_at(at, bytes).unwrap();
            free_buffer(&ledger, number);
            appender.free_buffers.push(number);
        }
        let last = appender.current_segment().unwrap();
        assert!(last > 1, "too few segments were filled");
        for segment in 0..last {
            let on_device = TableRoom::default().read(&ledger, &device, segment).unwrap().0;
            assert_eq!(tables.of(&ledger, &device, segment).unwrap(), (on_device, 0));
        }
        // Another process has added a frame, or has filled the segment anew.
        let entry = ledger.segment(0);
        entry.used_bytes().fetch_add(4096, Relaxed);
        assert!(tables.kept(&ledger, 0).is_none());
        entry.used_bytes().fetch_sub(4096, Relaxed);
        entry.first_seq().fetch_add(1, Relaxed);
        assert!(tables.kept(&ledger, 0).is_none());
        assert!(tables.kept(&ledger, 1).is_some());
        tables.forget(1);
        assert!(tables.kept(&ledger, 1).is_none());
        (0..last).for_each(|segment| tables.forget(segment));
        tables.forget(last);
        assert_eq!(tables.len_bytes, 0);
    }
}
