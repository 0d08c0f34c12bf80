//! Sealing: what makes the bytes in a buffer a frame. As they are, or compressed where that saves a
//! page at least.
//!
//! Sealing as they are can be repeated by anybody: table, checksums and header follow from the
//! buffer. Compressing is for who filled it: the bytes to be written then lie beside the buffer,
//! all of them, before one store marks the frame as packed. So a kill at any moment leaves either a
//! frame to be sealed as it is, or one to be written as it lies, and whoever writes it writes what
//! the killed process may still have on its way. Emergency flushes and whoever settles what was
//! left compress nothing: what they may take is reckoned for bytes that do not shrink.

use std::sync::atomic::Ordering::*;

use zerocopy::IntoBytes;

use crate::codec::{Compression, Scratch, compress};
use crate::core::Core;
use crate::format::{
    CHECK_BYTES, FORMAT_VERSION, FRAME_HEADER_BYTES, FRAME_LZ4, FRAME_MAGIC, FrameHeader, checksum,
    frame_body_bytes, lengths_bytes,
};
use perdura_dirty::extent::Extent;
use perdura_dirty::ledger::{FrameBuffer, Ledger, Packed};
use perdura_dirty::planted::Planted;
use perdura_dirty::stats::Counters;

/// Bytes of the frame in this buffer, on the device.
pub(crate) fn frame_bytes(buffer: &FrameBuffer<'_>) -> u64 {
    buffer.packed().map_or_else(|| raw_bytes(buffer), |packed| packed.stored_bytes)
}

/// Bytes from the frame in this buffer to the next, in its segment.
pub(crate) fn kept_bytes(buffer: &FrameBuffer<'_>) -> u64 {
    buffer.packed().map_or_else(|| raw_bytes(buffer), |packed| packed.kept_bytes)
}

fn raw_bytes(buffer: &FrameBuffer<'_>) -> u64 {
    let (payload, extents) = fill(buffer);
    frame_body_bytes(payload, extents).next_multiple_of(4096) as u64
}

fn fill(buffer: &FrameBuffer<'_>) -> (usize, usize) {
    let fill = buffer.fill().load(Acquire);
    ((fill & 0xffff_ffff) as usize, (fill >> 32) as usize)
}

/// Writes table, checksums and header of a closed frame. Repeatable: whatever a killed process did
/// of it is done again with the same result.
pub(crate) fn seal(ledger: &Ledger, buffer: &FrameBuffer<'_>, image_id: u64, epoch: u64) {
    if buffer.packed().is_some() {
        // Complete when it was marked.
        return;
    }
    let (payload, extents) = fill(buffer);
    let total = raw_bytes(buffer) as usize;
    // SAFETY: a closed buffer belongs to the one who writes it: the cleaner (whose lock is held),
    // or the only process left.
    let bytes = unsafe { buffer.bytes_mut(0, total) };
    let (head, tail) = bytes.split_at_mut(FRAME_HEADER_BYTES + payload);
    let (_, payload_bytes) = head.split_at(FRAME_HEADER_BYTES);
    let tail_checksum = write_tail(ledger, buffer, payload_bytes, &[], tail);
    let header = FrameHeader {
        version: (FORMAT_VERSION as u16).into(),
        flags: (buffer.flags().load(Relaxed) as u16).into(),
        raw_bytes: ((epoch >> 32) as u32).into(),
        payload_bytes: (payload as u32).into(),
        extents: (extents as u32).into(),
        total_bytes: (total as u32).into(),
        tail_checksum: tail_checksum.into(),
        ..header_of(ledger, buffer, image_id, epoch)
    };
    write_header(header, head);
    debug_assert!(ledger.geometry().segment_bytes >= total as u64);
}

/// Fills what follows `payload`: extents, checksums, lengths of chunks, zeros. Returns the checksum
/// of it.
fn write_tail(
    ledger: &Ledger,
    buffer: &FrameBuffer<'_>,
    payload: &[u8],
    lengths: &[u32],
    tail: &mut [u8],
) -> u64 {
    let (filled, extents) = fill(buffer);
    let (table, rest) = tail.split_at_mut(extents * 8);
    // A kill may have come between a longer table entry and the fill that published its bytes.
    let mut grains_left = filled as u64 >> ledger.geometry().grain_shift;
    for (place, word) in table.chunks_exact_mut(8).zip(buffer.table()) {
        let mut extent = Extent::unpack(word.load(Relaxed));
        extent.len = extent.len.min(grains_left);
        grains_left -= extent.len;
        place.copy_from_slice(&extent.pack().to_le_bytes());
    }
    let sums_bytes = payload.len().div_ceil(CHECK_BYTES) * 8;
    let (sums, rest) = rest.split_at_mut(sums_bytes);
    for (place, block) in sums.chunks_exact_mut(8).zip(payload.chunks(CHECK_BYTES)) {
        place.copy_from_slice(&checksum(block).to_le_bytes());
    }
    let (places, padding) = rest.split_at_mut(lengths.len() * 4);
    for (place, len) in places.chunks_exact_mut(4).zip(lengths) {
        place.copy_from_slice(&len.to_le_bytes());
    }
    padding.fill(0);
    checksum(&tail[..extents * 8 + sums_bytes + lengths.len() * 4])
}

/// What every frame says alike; lengths and checksums are still to be filled in.
fn header_of(ledger: &Ledger, buffer: &FrameBuffer<'_>, image_id: u64, epoch: u64) -> FrameHeader {
    FrameHeader {
        magic: FRAME_MAGIC.into(),
        version: 0.into(),
        flags: 0.into(),
        image_id: image_id.into(),
        seq: buffer.seq().load(Relaxed).into(),
        epoch: (epoch as u32).into(),
        raw_bytes: 0.into(),
        payload_bytes: 0.into(),
        extents: 0.into(),
        total_bytes: 0.into(),
        life: (ledger.life().load(Relaxed) as u32).into(),
        tail_checksum: 0.into(),
        checksum: 0.into(),
    }
}

fn write_header(mut header: FrameHeader, head: &mut [u8]) {
    let covered = size_of::<FrameHeader>() - 8;
    header.checksum = checksum(&header.as_bytes()[..covered]).into();
    head[..FRAME_HEADER_BYTES].copy_from_slice(header.as_bytes());
}

/// The planted bug: other bytes come where those of a frame lie that whoever takes over would have
/// to write again.
pub(crate) fn let_go(buffer: &FrameBuffer<'_>) {
    if let Some(packed) = buffer.packed() {
        // SAFETY: the device has read it, and it is the cleaner's; that it is not durable is the
        // bug.
        unsafe { buffer.packed_mut(0, packed.stored_bytes as usize) }.fill(0);
    }
}

/// Compresses frames on their way to the device. The cleaner has one.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    scratch: Scratch,
}

impl Packer {
    /// Compresses a closed frame, if that is wanted and saves a page at least. A group commit's
    /// last frame, the only one of most, is left as it is: somebody waits for it.
    pub fn pack(&mut self, core: &Core, buffer: &FrameBuffer<'_>) {
        let is_wanted = core.compression == Compression::Lz4
            // The final flush waits for the cleaner, on the warning's time: it is reckoned without
            // compressing.
            && !core.budget.is_closed()
            && buffer.flags().load(Relaxed) == 0;
        if !is_wanted {
            return;
        }
        let began_ns = core.clock.thread_cpu_ns();
        let (raw, _) = fill(buffer);
        let stored = self.try_pack(core, buffer);
        let took_ns = core.clock.thread_cpu_ns().saturating_sub(began_ns);
        Counters::add(&core.stats.compression_in_bytes, raw as u64);
        Counters::add(&core.stats.compression_out_bytes, stored.unwrap_or(raw) as u64);
        Counters::add(&core.stats.compression_cpu_ns, took_ns);
        Counters::add(&core.stats.compressed_frames, u64::from(stored.is_some()));
    }

    /// Returns the bytes of the payload as stored.
    fn try_pack(&mut self, core: &Core, buffer: &FrameBuffer<'_>) -> Option<usize> {
        let ledger = &core.ledger;
        let (raw, extents) = fill(buffer);
        let raw_total = raw_bytes(buffer) as usize;
        let lengths = lengths_bytes(raw);
        // A page less than before, headers and all.
        let room = raw_total.checked_sub(4096 + FRAME_HEADER_BYTES + extents * 8 + lengths)?;
        let room = room.checked_sub(room.div_ceil(CHECK_BYTES) * 8)?;
        // SAFETY: as in `seal`.
        let payload = unsafe { buffer.bytes_mut(FRAME_HEADER_BYTES as u64, raw) };
        // SAFETY: as in `seal`; it lies beside the buffer, and nobody looks at it before the frame
        // is marked.
        let bytes = unsafe { buffer.packed_mut(0, raw_total) };
        let place = &mut bytes[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + room];
        let stored = compress(payload, place, &mut self.scratch)?;
        let total = (frame_body_bytes(stored, extents) + lengths).next_multiple_of(4096);
        assert!(total < raw_total, "a frame of {raw_total} bytes grew to {total}");
        let (head, tail) = bytes[..total].split_at_mut(FRAME_HEADER_BYTES + stored);
        let (_, payload) = head.split_at(FRAME_HEADER_BYTES);
        let tail_checksum = write_tail(ledger, buffer, payload, &self.scratch.lengths, tail);
        let (image_id, epoch) = (ledger.image_id().load(Relaxed), ledger.epoch().load(Relaxed));
        let mut header = FrameHeader {
            version: (FORMAT_VERSION as u16).into(),
            flags: FRAME_LZ4.into(),
            raw_bytes: (raw as u32).into(),
            payload_bytes: (stored as u32).into(),
            extents: (extents as u32).into(),
            tail_checksum: tail_checksum.into(),
            ..header_of(ledger, buffer, image_id, epoch)
        };
        // No frame is begun behind this one until it is marked: they would overlap if it had to be
        // written as it was.
        let mut appender = core.appender.lock();
        let kept_bytes = match core.planted {
            Planted::GiveBackAlways => total as u64,
            _ => appender.give_back(ledger, buffer, raw_total as u64, total as u64),
        };
        header.total_bytes = (kept_bytes as u32).into();
        write_header(header, head);
        buffer.set_packed(Some(Packed { stored_bytes: total as u64, kept_bytes }));
        drop(appender);
        Some(stored)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_media::{SimClock, SimDevice};

    use super::*;
    use crate::Config;
    use crate::LaneId;
    use crate::Region;
    use crate::clean::Pump;
    use crate::testing::write;
    use perdura_dirty::geometry::BLOCK_BYTES;
    use perdura_dirty::ledger::SegmentState;

    const BLOCKS: u64 = 32;

    fn config(compression: Compression) -> Config {
        Config {
            segment_bytes: Some(64 << 10),
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            compression,
            ..Config::new(BLOCKS * BLOCK_BYTES, BLOCKS * BLOCK_BYTES)
        }
    }

    fn open(device: &SimDevice, compression: Compression) -> Region {
        let clock = Arc::new(SimClock::new(1_000));
        Region::open(Arc::new(device.clone()), clock, config(compression)).unwrap()
    }

    fn fill_all(region: &Region) {
        for block in 0..BLOCKS {
            write(region, block * BLOCK_BYTES, &[block as u8 + 1; BLOCK_BYTES as usize]);
        }
    }

    fn is_filled(region: &Region) -> bool {
        let lane = region.lock(LaneId(0));
        (0..BLOCKS).all(|block| {
            let bytes = lane.bytes(block * BLOCK_BYTES, BLOCK_BYTES as usize);
            bytes.iter().all(|byte| *byte == block as u8 + 1)
        })
    }

    fn used_segments(region: &Region) -> usize {
        let ledger = &region.core().ledger;
        let segments = ledger.segments().load(Relaxed) as u32;
        (0..segments).filter(|number| ledger.segment(*number).state() == SegmentState::Used).count()
    }

    #[test]
    fn segments_that_compressed_frames_leave_room_in_are_gone_on_with() {
        let used = |compression| {
            let device = SimDevice::new(0, 1);
            let region = open(&device, compression);
            fill_all(&region);
            region.checkpoint().unwrap();
            let used = used_segments(&region);
            // Whose segments are moved and freed while they are gone on with.
            for round in 0..40u64 {
                for block in (0..BLOCKS).filter(|block| block % 5 == round % 5) {
                    write(&region, block * BLOCK_BYTES, &[block as u8 + 1; 40_000]);
                }
                region.checkpoint().unwrap();
            }
            region.close(1).unwrap();
            drop(region);
            assert!(is_filled(&open(&device, compression)));
            used
        };
        let (plain, packed) = (used(Compression::Off), used(Compression::Lz4));
        assert!(packed * 3 < plain * 2, "{packed} segments, {plain} without compression");
    }

    #[test]
    fn nothing_more_is_compressed_once_the_final_flush_waits() {
        let device = SimDevice::new(0, 1);
        let region = open(&device, Compression::Lz4);
        let core = region.core();
        fill_all(&region);
        for is_closed in [false, true] {
            if is_closed {
                region.refuse_writers();
            }
            let before = region.stats();
            let run = Extent { grain: 0, len: 512 };
            core.appender.lock().append(&core.ledger, &core.map, run, false).unwrap();
            core.appender.lock().close_frame(&core.ledger, 0);
            core.cleaner.lock().pump(core, Pump::Durable).unwrap();
            let after = region.stats();
            assert_eq!(after.compressed_frames > before.compressed_frames, !is_closed);
            assert_eq!(after.compression_in_bytes > before.compression_in_bytes, !is_closed);
        }
    }

    #[test]
    fn a_kill_before_the_mark_leaves_a_frame_that_is_written_as_it_was() {
        for is_marked in [false, true] {
            let device = SimDevice::new(0, 1);
            let region = open(&device, Compression::Lz4);
            let core = region.core();
            fill_all(&region);
            core.cleaner.lock().clean(core, 200_000).unwrap();
            core.cleaner.lock().pump(core, Pump::Durable).unwrap();
            // One more frame, closed, and compressed but for the last store.
            let run = Extent { grain: 0, len: 512 };
            core.appender.lock().append(&core.ledger, &core.map, run, false).unwrap();
            core.appender.lock().close_frame(&core.ledger, 0);
            let number = *core.appender.lock().closed.back().unwrap();
            let buffer = core.ledger.buffer(number);
            let raw = raw_bytes(&buffer);
            Packer::default().pack(core, &buffer);
            let packed = buffer.packed().unwrap();
            assert!(packed.stored_bytes < raw && packed.kept_bytes == packed.stored_bytes);
            let segment = core.ledger.segment(buffer.segment().load(Relaxed) as u32);
            let used = segment.used_bytes().load(Relaxed);
            assert_eq!(used, buffer.segment_offset().load(Relaxed) + packed.kept_bytes);
            if !is_marked {
                buffer.set_packed(None);
            }
            let (memory, ledger) = region.fds();
            let [memory, ledger] = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
            drop(region);
            let clock = Arc::new(SimClock::new(1_000));
            let config = config(Compression::Lz4);
            let region =
                Region::attach(memory, ledger, Arc::new(device.clone()), clock, config).unwrap();
            assert!(is_filled(&region));
            region.close(1).unwrap();
            drop(region);
            assert!(is_filled(&open(&device, Compression::Lz4)), "marked: {is_marked}");
        }
    }

    #[test]
    fn a_frame_with_another_behind_it_keeps_its_place() {
        let device = SimDevice::new(0, 1);
        let region = open(&device, Compression::Lz4);
        let core = region.core();
        fill_all(&region);
        region.checkpoint().unwrap();
        let mut numbers = Vec::new();
        for grain in [0, 1024] {
            let mut appender = core.appender.lock();
            let run = Extent { grain, len: 256 };
            appender.append(&core.ledger, &core.map, run, false).unwrap();
            appender.close_frame(&core.ledger, 0);
            numbers.push(*appender.closed.back().unwrap());
        }
        let [first, second] = [numbers[0], numbers[1]].map(|number| core.ledger.buffer(number));
        assert_eq!(first.segment().load(Relaxed), second.segment().load(Relaxed));
        let raw = raw_bytes(&first);
        Packer::default().pack(core, &first);
        let packed = first.packed().unwrap();
        assert!(packed.stored_bytes < raw);
        assert_eq!(packed.kept_bytes, raw, "the second lies behind");
        core.cleaner.lock().pump(core, Pump::Durable).unwrap();
        region.checkpoint().unwrap();
        region.close(1).unwrap();
        drop(region);
        assert!(is_filled(&open(&device, Compression::Lz4)));
    }
}
