//! Compressing frames on their way to the device.

use crate::backed::Backed;
use crate::codec::{Compression, Scratch, compress};
use crate::format::{
    CHECK_BYTES, FRAME_HEADER_BYTES, FRAME_LZ4, FrameHeader, SEAL_BYTES, SUM_BYTES,
    frame_body_bytes, lengths_bytes,
};
use crate::seal::{fill, header_of, raw_bytes, write_header, write_tail};
use perdura_dirty::planted::Planted;
use perdura_dirty::{Counters, FrameBuffer, Packed};
use std::sync::atomic::Ordering::*;

/// Compresses frames on their way to the device. The cleaner has one.
#[derive(Debug, Default)]
pub struct Packer {
    scratch: Scratch,
}

impl Packer {
    /// Compresses a closed frame, if that is wanted and saves at least a page. The last frame of a
    /// group commit (most have only one) is left as it is, because somebody waits for it.
    pub fn pack(&mut self, backed: &Backed, buffer: &FrameBuffer<'_>) {
        let is_wanted = backed.log.compression == Compression::Lz4
            // The final flush waits for the cleaner, and the promise's time has no room for
            // compressing.
            && !backed.memory.budget.is_closed()
            && buffer.flags().load(Relaxed) == 0;
        if !is_wanted {
            return;
        }
        let began_ns = backed.memory.clock.thread_cpu_ns();
        let (raw, _) = fill(buffer);
        let stored = self.try_pack(backed, buffer);
        let took_ns = backed.memory.clock.thread_cpu_ns().saturating_sub(began_ns);
        Counters::add(&backed.memory.stats.compression_in_bytes, raw as u64);
        Counters::add(&backed.memory.stats.compression_out_bytes, stored.unwrap_or(raw) as u64);
        Counters::add(&backed.memory.stats.compression_cpu_ns, took_ns);
        Counters::add(&backed.memory.stats.compressed_frames, u64::from(stored.is_some()));
    }

    /// Compresses a closed frame if that saves a page. Returns the bytes of the payload as stored.
    fn try_pack(&mut self, backed: &Backed, buffer: &FrameBuffer<'_>) -> Option<usize> {
        let ledger = &backed.memory.ledger;
        let (raw, extents) = fill(buffer);
        let raw_total = raw_bytes(buffer) as usize;
        let lengths = lengths_bytes(raw);
        // The compressed frame must be a page shorter, headers and tables included.
        let fixed = FRAME_HEADER_BYTES + extents * 8 + lengths + SEAL_BYTES;
        let room = raw_total.checked_sub(4096 + fixed)?;
        let room = room.checked_sub(room.div_ceil(CHECK_BYTES) * SUM_BYTES)?;
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
        let (image_id, epoch) = (ledger.image_id().load(Relaxed), ledger.epoch().load(Relaxed));
        let mut header = FrameHeader {
            flags: FRAME_LZ4.into(),
            raw_bytes: (raw as u32).into(),
            payload_bytes: (stored as u32).into(),
            extents: (extents as u32).into(),
            ..header_of(ledger, buffer, image_id, epoch)
        };
        let payload = &mut head[FRAME_HEADER_BYTES..];
        write_tail(ledger, buffer, &mut header, payload, &self.scratch.lengths, tail);
        // The lock is held until the frame is marked, so that no frame is begun behind it: they
        // would overlap if this one had to be written uncompressed after a kill.
        let mut appender = backed.log.appender.lock();
        let kept_bytes = match backed.memory.planted.is(Planted::GiveBackAlways) {
            true => total as u64,
            false => appender.give_back(ledger, buffer, raw_total as u64, total as u64),
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

    use perdura_dirty::extent::Extent;
    use perdura_dirty::geometry::{BLOCK_BYTES, GRAIN_SHIFT_BARRIER, Geometry};
    use perdura_dirty::policy::PolicyKind;
    use perdura_dirty::sys::SharedMemory;
    use perdura_dirty::{Lanes, Ledger, Memory, MemoryParts, Tracked};
    use perdura_media::{SimClock, SimDevice};
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus as Random;

    use super::*;
    use crate::loads::Loads;
    use crate::log::Log;

    const GRAINS: u64 = 512;

    fn backed() -> Backed {
        let geometry = Geometry::new(2 * BLOCK_BYTES, GRAIN_SHIFT_BARRIER, None, 4).unwrap();
        let bytes = geometry.reserved_bytes;
        let ledger = Ledger::create(geometry, 7, bytes).unwrap();
        ledger.segments().store(60, Relaxed);
        let file = SharedMemory::create("test", bytes).unwrap();
        let (map, clock) = (file.map().unwrap(), Arc::new(SimClock::new(1_000)));
        let (policy, recency, planted) = (PolicyKind::default(), false, Planted::None);
        let parts = MemoryParts { file, map, ledger, clock, policy, recency, planted };
        let memory = Arc::new(Memory::new(parts).unwrap());
        let device = Arc::new(SimDevice::new(0, 1));
        let log = Log::new(device, &memory.ledger, 1 << 20, Compression::Lz4, 300);
        Backed::new(Tracked::new(memory, Lanes::new(1, 2), None), log, Loads::new(None))
    }

    #[test]
    fn a_frame_is_packed_if_that_saves_a_page_of_all_its_bytes_table_included() {
        let mut outcomes = [0, 0];
        for run_grains in [1, 8, GRAINS] {
            // Zeros among bytes that do not shrink.
            for zeros in (0..=64).step_by(4) {
                let backed = backed();
                let (ledger, map) = (&backed.memory.ledger, &backed.memory.map);
                let mut random = Random::seed_from_u64(zeros);
                let mut payload = Vec::new();
                for grain in 0..GRAINS {
                    let mut bytes = [0; 64];
                    if grain >= zeros {
                        random.fill(&mut bytes);
                    }
                    payload.extend(bytes);
                }
                // Runs of grains with one between them.
                let mut appender = backed.log.appender.lock();
                for run in 0..GRAINS / run_grains {
                    let grain = run * (run_grains + 1);
                    let from = (run * run_grains * 64) as usize;
                    map.copy_in(grain * 64, &payload[from..][..run_grains as usize * 64]);
                    let extent = Extent { grain, len: run_grains };
                    let done = appender.append(ledger, map, extent, false).unwrap();
                    assert_eq!(done, run_grains);
                }
                appender.close_frame(ledger, 0);
                assert_eq!(appender.closed.len(), 1, "this test shows nothing");
                let buffer = ledger.buffer(appender.closed[0]);
                drop(appender);
                Packer::default().pack(&backed, &buffer);
                let (mut out, mut scratch) = (vec![0; payload.len()], Scratch::default());
                let stored = compress(&payload, &mut out, &mut scratch).unwrap();
                let extents = (GRAINS / run_grains) as usize;
                let body = frame_body_bytes(stored, extents) + lengths_bytes(payload.len());
                let room = raw_bytes(&buffer) as usize - 4096;
                match buffer.packed() {
                    Some(packed) => {
                        assert_eq!(packed.stored_bytes as usize, body.next_multiple_of(4096));
                        assert!(packed.stored_bytes as usize <= room, "{run_grains}, {zeros}");
                    }
                    // One more checksum is allowed for.
                    None => assert!(body + 8 > room, "{run_grains}, {zeros}"),
                }
                outcomes[usize::from(buffer.packed().is_some())] += 1;
            }
        }
        assert!(outcomes.iter().all(|count| *count > 5), "{outcomes:?}");
    }
}
