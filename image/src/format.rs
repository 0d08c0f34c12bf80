//! The image on the SSD, byte for byte. Drawn in `docs/format.md`; little-endian throughout.
//!
//! ```text
//! 0        superblock          4 KiB, second copy at 4 KiB
//! 8 KiB    commit slot 0       header 128 B + 16 B per segment, rounded up to 4 KiB
//! ...      commit slot 1       the same
//! ...      slots 0 and 1       second copies
//! 1 MiB..  segments            each holds frames, one after another, from its start
//! ```
//! A frame: 64 B header, payload, extent table (8 B an extent), a check of 16 B for each 4 KiB of
//! payload; if it is compressed, the stored length of each chunk (4 B); a seal of 32 B.

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use perdura_dirty::geometry::Geometry;

/// Version of this format, in the superblock and in each frame; raised with every change once a
/// release has written it.
///
/// 1: checks of 8 B, no encryption. 2: checks of 16 B, and a seal behind each frame's tables.
pub(crate) const FORMAT_VERSION: u32 = 2;
/// Oldest version that can be read. An image of it is given the new version when it is opened: its
/// frames stay as they are, and later ones have the new version.
pub(crate) const OLDEST_VERSION: u32 = 1;
/// First bytes of a superblock.
pub(crate) const SUPERBLOCK_MAGIC: u64 = 0x3156_4152_5544_5250;
/// First bytes in the superblock's place while an image is being made and holds nothing yet.
pub(crate) const UNFINISHED_MAGIC: u64 = 0x3146_4e55_5544_5250;
/// First bytes of a commit slot.
pub(crate) const SLOT_MAGIC: u64 = 0x3154_4f4c_5344_5250;
/// First bytes of a frame.
pub const FRAME_MAGIC: u32 = 0x4d46_5250;
/// Offset of the second superblock.
pub(crate) const SUPERBLOCK_COPY: u64 = 4096;
/// Offset of the first commit slot.
pub(crate) const SLOTS_AT: u64 = 8192;
/// Number of commit slots, which are used in turn.
pub(crate) const SLOTS: u64 = 2;
/// Number of copies of each commit slot.
pub(crate) const SLOT_COPIES: u64 = 2;
/// Payload bytes under one check: a checksum or, in an encrypted frame, an authentication tag.
pub const CHECK_BYTES: usize = 4096;
/// Bytes of a check.
pub const SUM_BYTES: usize = 16;
/// Bytes of a check in version 1, which was a checksum of 64 bits.
const SUM_BYTES_V1: usize = 8;
/// Bytes of the seal at the end of a frame's tail: salt, then tag. Zeros unless the frame is
/// encrypted.
pub const SEAL_BYTES: usize = SALT_BYTES + 16;
/// Bytes of a seal's salt.
pub(crate) const SALT_BYTES: usize = 16;
/// Bytes of a frame header.
pub const FRAME_HEADER_BYTES: usize = 64;

/// Payload bytes of a chunk, which is compressed by itself, so that reading an extent decodes one
/// chunk and not a frame. LZ4 looks back no further.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;

/// Segment flag: the segment's space has been written at least once.
pub(crate) const SEGMENT_WRITTEN: u32 = 1;

/// Frame flag: everything up to and including this frame is a consistent state (group commit).
pub const FRAME_COMMIT: u16 = 1;
/// Frame flag: the payload is stored in chunks that are compressed where that makes them smaller.
pub const FRAME_LZ4: u16 = 2;
/// Frame flag: the payload is encrypted by AES-256-GCM, after it was compressed.
pub const FRAME_AES: u16 = 4;

/// Identity, sizes and encryption of an image.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Superblock {
    /// [`SUPERBLOCK_MAGIC`].
    pub(crate) magic: U64,
    /// [`FORMAT_VERSION`].
    pub(crate) version: U32,
    /// Log2 of a grain's bytes.
    pub(crate) grain_shift: U32,
    /// Random identity of the image.
    pub(crate) image_id: U64,
    /// Largest size of the region, bytes.
    pub(crate) reserved_bytes: U64,
    /// Bytes of a segment.
    pub(crate) segment_bytes: U64,
    /// Most segments that the log may have.
    pub(crate) segments_max: U32,
    /// How frames are encrypted: [`CIPHER_NONE`] or [`CIPHER_AES`].
    pub(crate) cipher: U32,
    /// The image's key, encrypted by the user's key: nonce, key, tag. Zeros without a cipher.
    pub(crate) wrapped_key: [u8; WRAPPED_KEY_BYTES],
    /// Zeros.
    pub(crate) reserved: U32,
    /// XXH3 of all bytes before this field.
    pub checksum: U64,
}
const _: () = assert!(size_of::<Superblock>() == 120);
/// Bytes of a superblock of version 1, which ends with zeros and the checksum behind the number of
/// segments.
pub(crate) const SUPERBLOCK_BYTES_V1: usize = 56;
/// Frames are not encrypted.
pub(crate) const CIPHER_NONE: u32 = 0;
/// Frames are encrypted by AES-256-GCM.
pub(crate) const CIPHER_AES: u32 = 1;
/// Bytes of an encrypted key: nonce, key, tag.
pub(crate) const WRAPPED_KEY_BYTES: usize = 12 + 32 + 16;

/// Head of a commit slot.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SlotHeader {
    /// [`SLOT_MAGIC`].
    pub(crate) magic: U64,
    /// Identity of the image.
    pub(crate) image_id: U64,
    /// Number of the commit. Of two slots the one with the higher number counts.
    pub commit: U64,
    /// Sequence number of the last frame that the commit covers. A later frame counts only if a
    /// frame with [`FRAME_COMMIT`] follows.
    pub(crate) last_seq: U64,
    /// Number of the epoch that the commit closed.
    pub epoch: U64,
    /// Region size, bytes.
    pub region_bytes: U64,
    /// Segments of the log.
    pub segments: U32,
    /// 1 if an emergency flush or a clean stop made the commit, 0 otherwise.
    pub is_final: U32,
    /// Milliseconds since 1970: all writes that were acknowledged before are covered.
    pub unix_ms: U64,
    /// How often the image has been opened.
    pub incarnation: U32,
    /// Of an encrypted image: the tag of header and table by the image's key. Zeros otherwise.
    pub(crate) seal: [u8; SUM_BYTES],
    /// Zeros.
    pub(crate) reserved: [U32; 7],
    /// XXH3 of the table that follows.
    pub(crate) table_checksum: U64,
    /// XXH3 of all bytes before this field.
    pub checksum: U64,
}
const _: () = assert!(size_of::<SlotHeader>() == 128);

/// The entry of a segment in a commit slot. `used_bytes == 0` means that the commit does not need
/// the segment.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Default)]
#[repr(C)]
pub(crate) struct SlotSegment {
    /// Sequence number of the segment's first frame.
    pub(crate) first_seq: U64,
    /// Bytes of frames in the segment.
    pub used_bytes: U32,
    /// [`SEGMENT_WRITTEN`] or 0, also in entries of segments that are not needed.
    pub(crate) flags: U32,
}
const _: () = assert!(size_of::<SlotSegment>() == 16);

/// Head of a frame.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct FrameHeader {
    /// [`FRAME_MAGIC`].
    pub(crate) magic: U32,
    /// [`FORMAT_VERSION`] of the program that wrote the frame.
    pub(crate) version: U16,
    /// Any of [`FRAME_COMMIT`], [`FRAME_LZ4`], [`FRAME_AES`].
    pub(crate) flags: U16,
    /// Identity of the image.
    pub(crate) image_id: U64,
    /// Sequence number of the frame; numbers are contiguous.
    pub(crate) seq: U64,
    /// Low half of the number of the epoch in which the frame was sealed; for people.
    pub(crate) epoch: U32,
    /// In a compressed frame, bytes of the payload before compression. Otherwise the high half of
    /// the epoch's number.
    pub(crate) raw_bytes: U32,
    /// Bytes of the payload as stored.
    pub(crate) payload_bytes: U32,
    /// Number of extents in the table.
    pub(crate) extents: U32,
    /// Bytes from this frame to the next, a multiple of 4 KiB. A compressed frame may have a gap
    /// behind it that was never written.
    pub(crate) total_bytes: U32,
    /// Incarnation of the image in which the frame was written.
    pub(crate) incarnation: U32,
    /// XXH3 of the tail: extent table, checks of the payload, chunk lengths, seal.
    pub(crate) tail_checksum: U64,
    /// XXH3 of all bytes before this field.
    pub checksum: U64,
}
const _: () = assert!(size_of::<FrameHeader>() == FRAME_HEADER_BYTES);

/// The checksum of the format: XXH3 with 64 bits, which is fast and does not protect against
/// forgery.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// The check of a block of payload that is not encrypted: XXH3 with 128 bits.
pub fn block_sum(block: &[u8]) -> [u8; SUM_BYTES] {
    xxh3_128(block).to_le_bytes()
}

/// Offsets of slots and segments on the device.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    segment_bytes: u64,
    slot_bytes: u64,
}

impl Layout {
    /// The layout of an image with this geometry.
    pub fn of(geometry: &Geometry) -> Self {
        let table = u64::from(geometry.segments_max) * size_of::<SlotSegment>() as u64;
        Self {
            segment_bytes: geometry.segment_bytes,
            slot_bytes: (size_of::<SlotHeader>() as u64 + table).next_multiple_of(4096),
        }
    }

    /// Offset of a copy of a commit slot. The copies of one slot do not touch.
    pub fn slot_at(&self, slot: u64, copy: u64) -> u64 {
        SLOTS_AT + (copy % SLOT_COPIES * SLOTS + slot % SLOTS) * self.slot_bytes
    }

    /// Bytes of one copy of a commit slot.
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// Most bytes that a final commit writes: both slots, both copies.
    pub fn final_commit_bytes(&self) -> u64 {
        SLOTS * SLOT_COPIES * self.slot_bytes
    }

    /// Offset of a segment. For the number of segments it is the end of the image.
    pub fn segment_at(&self, segment: u32) -> u64 {
        (SLOTS_AT + self.final_commit_bytes()).next_multiple_of(1 << 20)
            + u64::from(segment) * self.segment_bytes
    }
}

/// Bytes that a frame takes on the device, before they are rounded up to 4 KiB.
pub fn frame_body_bytes(payload: usize, extents: usize) -> usize {
    body_bytes_of(FORMAT_VERSION, payload, extents)
}

/// The same of a frame that a program of this version wrote.
pub(crate) fn body_bytes_of(version: u32, payload: usize, extents: usize) -> usize {
    FRAME_HEADER_BYTES + payload + extents * 8 + sums_bytes(version, payload) + seal_bytes(version)
}

/// Bytes of the checks of `payload` bytes in a frame of this version.
pub(crate) fn sums_bytes(version: u32, payload: usize) -> usize {
    payload.div_ceil(CHECK_BYTES) * if version == 1 { SUM_BYTES_V1 } else { SUM_BYTES }
}

/// Bytes of the seal of a frame of this version.
pub(crate) fn seal_bytes(version: u32) -> usize {
    if version == 1 { 0 } else { SEAL_BYTES }
}

/// Payload bytes that still fit a frame of `limit` bytes. The frame has `payload` bytes and will
/// have `extents` extents.
pub fn room_for_payload(limit: usize, payload: usize, extents: usize) -> usize {
    let fixed = FRAME_HEADER_BYTES + extents * 8 + SEAL_BYTES;
    // Each started 4 KiB of payload costs a check.
    let most = limit.saturating_sub(fixed);
    let most = most - (most.div_ceil(CHECK_BYTES + SUM_BYTES) * SUM_BYTES).min(most);
    most.saturating_sub(payload)
}

/// Bytes that a commit writes for a log of `segments` segments: both copies of a slot.
pub fn commit_bytes(segments: u32) -> u64 {
    let slot = size_of::<SlotHeader>() + segments as usize * size_of::<SlotSegment>();
    SLOT_COPIES * slot.next_multiple_of(4096) as u64
}

/// Bytes of the chunk lengths of a compressed frame whose payload was `raw` bytes.
pub(crate) fn lengths_bytes(raw: usize) -> usize {
    raw.div_ceil(CHUNK_BYTES) * 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use perdura_dirty::geometry::{GRAIN_SHIFT_BARRIER, GRAIN_SHIFT_TRAP, Geometry};

    /// Bytes of the frames that hold isolated grains, filled one after another as the appender
    /// does.
    fn naive_flush_bytes(geometry: &Geometry, dirty_bytes: u64) -> u64 {
        let (grain, limit) = (geometry.grain_bytes() as usize, geometry.frame_limit() as usize);
        let frame = |grains: usize| frame_body_bytes(grains * grain, grains).next_multiple_of(4096);
        let most = (1..).take_while(|grains| frame(*grains) <= limit).count();
        let grains = dirty_bytes as usize / grain;
        (grains / most * frame(most) + frame(grains % most)) as u64
    }

    #[test]
    fn a_flush_is_never_longer_than_was_reckoned_and_little_shorter() {
        for shift in [GRAIN_SHIFT_BARRIER, 8, GRAIN_SHIFT_TRAP] {
            for (segment_bytes, limit) in
                [(64 << 10, 64 << 10), (1 << 20, 1 << 20), (16 << 20, 4 << 20)]
            {
                let geometry = Geometry::new(1 << 30, shift, Some(segment_bytes), 20).unwrap();
                assert_eq!(geometry.frame_limit(), limit);
                for dirty_bytes in [128 << 10, 1 << 20, 5 << 20, 100 << 20] {
                    let naive = naive_flush_bytes(&geometry, dirty_bytes);
                    let reckoned = geometry.flush_bytes(dirty_bytes);
                    let case = format!("2^{shift}, {segment_bytes}, {dirty_bytes}: {reckoned}");
                    assert!(naive <= reckoned, "{case} for {naive}");
                    let rest = naive.div_ceil(limit / 2) * 8192 + 16_384;
                    assert!(reckoned <= naive + rest, "{case} for {naive} and {rest}");
                    let reserve = u64::from(geometry.reserve_segments(dirty_bytes));
                    assert!((reserve - 4) * segment_bytes * 7 / 8 >= naive, "{case}: {reserve}");
                    assert!((reserve - 5) * segment_bytes * 7 / 8 < reckoned, "{case}: {reserve}");
                }
            }
        }
    }

    #[test]
    fn the_room_of_a_frame_is_what_just_fits_it() {
        for limit in [16 << 10, 64 << 10, 1 << 20] {
            for (payload, extents) in [(0, 1), (64, 1), (4096, 17), (12_345, 100), (limit, 3)] {
                let room = room_for_payload(limit, payload, extents);
                let fits = |room: usize| frame_body_bytes(payload + room, extents) <= limit;
                assert!(room == 0 || fits(room), "{limit}, {payload}, {extents}: {room}");
                assert!(!fits(room + 1), "{limit}, {payload}, {extents}: {room}");
            }
        }
    }

    #[test]
    fn no_copy_of_a_slot_lies_in_another_and_segments_come_behind_all() {
        for (bytes, segment_bytes) in [(1 << 18, None), (1 << 34, Some(64 << 10))] {
            let geometry = Geometry::new(bytes, GRAIN_SHIFT_TRAP, segment_bytes, 4).unwrap();
            let layout = Layout::of(&geometry);
            let table = u64::from(geometry.segments_max) * 16;
            assert!(layout.slot_bytes() >= 128 + table);
            assert!(layout.slot_bytes().is_multiple_of(4096));
            assert!(layout.slot_bytes() < 128 + table + 4096);
            let mut places: Vec<u64> = [(0, 0), (0, 1), (1, 0), (1, 1)]
                .map(|(slot, copy)| layout.slot_at(slot, copy))
                .into();
            // A slot and its copy do not touch, so that one flaw does not meet both.
            assert!(layout.slot_at(0, 1) - layout.slot_at(0, 0) == 2 * layout.slot_bytes());
            places.sort_unstable();
            let expected = [0, 1, 2, 3].map(|number| SLOTS_AT + number * layout.slot_bytes());
            assert_eq!(places, expected);
            let end = expected[3] + layout.slot_bytes();
            assert_eq!(end, SLOTS_AT + layout.final_commit_bytes());
            let first = layout.segment_at(0);
            assert_eq!(first, end.next_multiple_of(1 << 20));
            let last = geometry.segments_max - 1;
            let span = layout.segment_at(last) - first;
            assert_eq!(span, u64::from(last) * geometry.segment_bytes);
        }
    }
}
