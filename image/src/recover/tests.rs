mod loads;

use std::sync::Mutex;

use perdura_media::{DeviceError, SimDevice, WriteQueue};
use zerocopy::IntoBytes;

use super::*;
use crate::append::Appender;
use crate::format::{
    FORMAT_VERSION, FRAME_LZ4, FRAME_MAGIC, FrameHeader, SEAL_BYTES, lengths_bytes, sums_bytes,
};
use crate::fuzzing::repair_checksums;
use crate::load::Target;
use crate::seal::{frame_bytes, seal};
use crate::slots::{SlotContents, write_slot};
use perdura_dirty::geometry::{BLOCK_BYTES, GRAIN_SHIFT_TRAP};
use perdura_dirty::sys::{Mapping, SharedMemory};

/// The parts of an unused region with a log of two segments.
struct Bare {
    geometry: Geometry,
    layout: Layout,
    device: SimDevice,
    map: Mapping,
    ledger: Ledger,
    appender: Appender,
}

fn bare() -> Bare {
    let geometry = Geometry::new(4 * BLOCK_BYTES, GRAIN_SHIFT_TRAP, None, 4).unwrap();
    let (layout, device) = (Layout::of(&geometry), SimDevice::new(0, 1));
    device.grow(layout.segment_at(2)).unwrap();
    let memory = SharedMemory::create("test", geometry.reserved_bytes).unwrap();
    let map = memory.map().unwrap();
    let ledger = Ledger::create(geometry, 7, geometry.reserved_bytes).unwrap();
    ledger.segments().store(2, Relaxed);
    let appender = Appender::new(vec![0], [0, 1].into(), 0, geometry.segment_bytes);
    Bare { geometry, layout, device, map, ledger, appender }
}

fn fill(device: &SimDevice, geometry: &Geometry, ledger: &Ledger, map: &Mapping) {
    let recovered = recover(device, geometry, 7, ledger, Tail::Committed, Planted::None);
    let to = Target { device, ledger, map, loaded: &|_| {}, huge_pages: None };
    recovered.unwrap().1.load_all(&to, 1).unwrap();
}

#[test]
fn the_later_of_two_copies_in_one_frame_counts() {
    let Bare { geometry, layout, device, map, ledger, mut appender } = bare();
    for byte in [1, 2] {
        map.copy_in(5 * 4096, &[byte; 4096]);
        appender.append(&ledger, &map, Extent { grain: 5, len: 1 }, false).unwrap();
    }
    appender.close_frame(&ledger, 0);
    let buffer = ledger.buffer(0);
    seal(&ledger, &buffer, 7, 0);
    // SAFETY: nobody else uses the buffer.
    let bytes = unsafe { buffer.bytes_mut(0, frame_bytes(&buffer) as usize) };
    device.write_at(layout.segment_at(0), bytes).unwrap();
    let slot = SlotContents { needed: &[true, false], last_seq: 1, is_final: true, unix_ms: 0 };
    write_slot(&ledger, &layout, &device, &slot, false).unwrap();

    let found = SharedMemory::create("test", geometry.reserved_bytes).unwrap().map().unwrap();
    let empty = Ledger::create(geometry, 7, 0).unwrap();
    fill(&device, &geometry, &empty, &found);
    assert_eq!(found.octets(5 * 4096, 1)[0].load(Relaxed), 2);
}

/// A device that notes what is read.
struct Read<'d>(&'d SimDevice, Mutex<Vec<(u64, usize)>>);

impl Device for Read<'_> {
    fn capacity_bytes(&self) -> u64 {
        self.0.capacity_bytes()
    }
    fn grow(&self, capacity_bytes: u64) -> Result<(), DeviceError> {
        self.0.grow(capacity_bytes)
    }
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.1.lock().unwrap().push((offset_bytes, buf.len()));
        self.0.read_at(offset_bytes, buf)
    }
    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.0.write_at(offset_bytes, buf)
    }
    fn write_durable_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.0.write_durable_at(offset_bytes, buf)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.0.flush()
    }
    fn queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>, DeviceError> {
        self.0.queue(depth)
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
}

/// A frame as a faulty program might write it. Its checksums are right.
struct Crafted {
    seq: u64,
    flags: u16,
    extents: Vec<Extent>,
    payload: usize,
    /// With `FRAME_LZ4`: the bytes before compression, and the lengths of chunks.
    raw: usize,
    lengths: Vec<u32>,
    /// Bytes behind the frame that it keeps.
    gap: usize,
    incarnation: u32,
}

/// A frame with this many pages, from page `seq` on.
fn crafted(seq: u64, pages: usize) -> Crafted {
    let extents = [Extent { grain: seq, len: pages as u64 }];
    let extents = extents.into_iter().filter(|extent| extent.len > 0).collect();
    let (payload, lengths) = (pages * 4096, Vec::new());
    Crafted { seq, flags: 0, extents, payload, raw: 0, lengths, gap: 0, incarnation: 0 }
}

impl Crafted {
    fn bytes(&self) -> Vec<u8> {
        let payload_end = FRAME_HEADER_BYTES + self.payload;
        let sums = sums_bytes(FORMAT_VERSION, self.payload);
        let lengths = if self.flags & FRAME_LZ4 != 0 { lengths_bytes(self.raw) } else { 0 };
        let len = payload_end + self.extents.len() * 8 + sums + lengths + SEAL_BYTES;
        let mut bytes = vec![0; len.next_multiple_of(4096)];
        let header = FrameHeader {
            magic: FRAME_MAGIC.into(),
            version: (FORMAT_VERSION as u16).into(),
            flags: self.flags.into(),
            image_id: 7.into(),
            seq: self.seq.into(),
            epoch: 0.into(),
            raw_bytes: (self.raw as u32).into(),
            payload_bytes: (self.payload as u32).into(),
            extents: (self.extents.len() as u32).into(),
            total_bytes: ((bytes.len() + self.gap) as u32).into(),
            incarnation: self.incarnation.into(),
            tail_checksum: 0.into(),
            checksum: 0.into(),
        };
        bytes[..FRAME_HEADER_BYTES].copy_from_slice(header.as_bytes());
        let table = bytes[payload_end..].chunks_exact_mut(8);
        for (place, extent) in table.zip(&self.extents) {
            let packed = extent.grain << 24 | extent.len;
            place.copy_from_slice(&packed.to_le_bytes());
        }
        let lengths_at = payload_end + self.extents.len() * 8 + sums;
        for (place, len) in bytes[lengths_at..].chunks_exact_mut(4).zip(&self.lengths) {
            place.copy_from_slice(&len.to_le_bytes());
        }
        repair_checksums(&mut bytes);
        bytes
    }
}

/// Writes frames one after another to a segment. Returns where they end.
fn put(bare: &Bare, segment: u32, frames: &[Crafted]) -> u32 {
    let mut at = 0;
    for frame in frames {
        let bytes = frame.bytes();
        let mut place = aligned(bytes.len()).unwrap();
        place.as_mut().copy_from_slice(&bytes);
        let offset = bare.layout.segment_at(segment) + at as u64;
        bare.device.write_at(offset, place.as_slice()).unwrap();
        at += bytes.len() + frame.gap;
    }
    at as u32
}

fn with_table(reader: &mut Reader<'_>, frame: &Frame, bytes: u64) -> Result<(), OpenError> {
    reader.table(frame, bytes, |_| {}).map(drop)
}

#[test]
fn a_table_is_read_together_with_the_header_behind_it_and_nothing_else_is() {
    let bare = bare();
    let (segment_bytes, begin) = (bare.geometry.segment_bytes, bare.layout.segment_at(1));
    // The last but one ends a page before the end of the segment, and of the device.
    let frames = [
        crafted(1, 1),
        Crafted {
            flags: FRAME_LZ4,
            raw: 4 * 4096,
            lengths: vec![4096],
            payload: 4096,
            gap: 8192,
            ..crafted(2, 4)
        },
        crafted(5, 40),
        crafted(6, 207),
        crafted(8, 0),
    ];
    let used = put(&bare, 1, &frames);
    assert_eq!(u64::from(used), segment_bytes);
    let device = Read(&bare.device, Mutex::default());
    let mut expected = vec![(begin, 4096)];
    let mut at = begin;
    for (number, frame) in frames.iter().enumerate() {
        let len = frame.bytes().len();
        let from = (FRAME_HEADER_BYTES + frame.payload) / 4096 * 4096;
        let is_last = number + 1 == frames.len();
        let next = if is_last || frame.gap > 0 { 0 } else { 4096 };
        expected.push((at + from as u64, len - from + next));
        at += (len + frame.gap) as u64;
        if frame.gap > 0 {
            expected.push((at, 4096));
        }
    }
    let mut reader = Reader::new(&device, &bare.geometry, 7, None).unwrap();
    let mut seqs = Vec::new();
    let read = reader.named_frames(1, 1, used, |reader, frame| {
        seqs.push(frame.seq());
        assert_eq!((frame.segment, frame.first_seq), (1, 1));
        with_table(reader, &frame, bare.geometry.reserved_bytes * 100)
    });
    read.unwrap();
    assert_eq!(seqs, [1, 2, 5, 6, 8]);
    assert_eq!(*device.1.lock().unwrap(), expected);
    // Behind the last frame that is named nothing is read, though there is another.
    device.1.lock().unwrap().clear();
    let read = Reader::new(&device, &bare.geometry, 7, None).unwrap().named_frames(
        1,
        1,
        2 * 4096,
        |reader, frame| with_table(reader, &frame, bare.geometry.reserved_bytes),
    );
    read.unwrap();
    assert_eq!(*device.1.lock().unwrap(), [(begin, 4096), (begin + 4096, 4096)]);
    // A commit that names more than a segment holds: the frame behind it is missed.
    let read = reader.named_frames(1, 1, used + 4096, |reader, frame| {
        with_table(reader, &frame, bare.geometry.reserved_bytes * 100)
    });
    match read {
        Err(OpenError::Image(ImageError::LostFrame { offset_bytes, expected_seq, .. })) => {
            assert_eq!((offset_bytes, expected_seq), (begin + segment_bytes, 9));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_header_is_one_only_if_the_frame_fits_its_segment_and_its_lengths_follow_from_each_other() {
    let segment_bytes = 1 << 20;
    let packed = Crafted {
        flags: FRAME_LZ4,
        raw: 4 * 4096,
        lengths: vec![4096],
        payload: 4096,
        ..crafted(1, 4)
    };
    let plain = crafted(1, 1).bytes();
    let set = |at: usize, bytes: &[u8]| {
        let mut frame = plain.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        repair_checksums(&mut frame);
        frame
    };
    let gap = |gap| Crafted { gap, ..crafted(1, 1) }.bytes();
    let packed_gap = |gap| Crafted { gap, lengths: vec![4096], extents: Vec::new(), ..packed };
    let end = segment_bytes - 8192;
    let mut unsealed = plain.clone();
    unsealed[16] ^= 1;
    for (what, bytes, at, is_header) in [
        ("at the beginning", plain.clone(), 0, true),
        ("at the end", plain.clone(), end, true),
        ("beyond the end", plain.clone(), end + 4096, false),
        ("a group commit", set(6, &[FRAME_COMMIT as u8]), 0, true),
        ("of a high epoch", set(28, &[0xff; 4]), 0, true),
        ("an unknown flag", set(6, &[8]), 0, false),
        ("an encrypted one", set(6, &[4]), 0, true),
        ("another magic", set(0, &[0]), 0, false),
        ("another version", set(4, &[FORMAT_VERSION as u8 + 1]), 0, false),
        ("another image", set(8, &[8]), 0, false),
        ("a flipped bit", unsealed, 0, false),
        ("with a gap, though not compressed", gap(4096), 0, false),
        ("compressed", packed_gap(0).bytes(), 0, true),
        ("with the longest gap", packed_gap(3 * 4096).bytes(), 0, true),
        ("longer than before", packed_gap(4 * 4096).bytes(), 0, false),
        ("with half a page", packed_gap(2048).bytes(), 0, false),
        ("shorter than written", set(40, &[0, 0x10]), 0, false),
    ] {
        let head = &bytes[..FRAME_HEADER_BYTES];
        let header = parse_header(head, 7, segment_bytes, at);
        assert_eq!(header.is_some(), is_header, "{what}");
    }
    // Before compression it would have filled a segment, or more.
    let fills = segment_bytes as usize - 8192;
    for (raw, is_header) in [(fills, true), (fills + 4096, false)] {
        let chunks = raw.div_ceil(16 * 4096);
        let frame =
            Crafted { raw, lengths: vec![10; chunks], payload: 10 * chunks, ..packed_gap(0) };
        let head = &frame.bytes()[..FRAME_HEADER_BYTES];
        assert_eq!(parse_header(head, 7, segment_bytes, 0).is_some(), is_header);
    }
}

#[test]
fn a_frame_that_is_not_where_and_when_the_commit_says_is_missed_there() {
    let bare = bare();
    let device: &dyn Device = &bare.device;
    // (numbers of the frames, the first named, pages named, the frame missed)
    for (seqs, first, pages, missed) in [
        ([3, 4, 5], 3, 6, None),
        ([3, 7, 8], 3, 6, None),
        ([3, 4, 2], 3, 4, None),
        ([3, 4, 5], 2, 6, Some((0, 2, 3))),
        ([3, 4, 5], 4, 6, Some((0, 4, 3))),
        ([3, 3, 5], 3, 6, Some((2, 4, 3))),
        ([3, 4, 2], 3, 6, Some((4, 5, 2))),
        ([3, 4, 5], 3, 5, Some((4, 5, 5))),
        ([3, 4, 5], 3, 7, Some((6, 6, 0))),
    ] {
        put(&bare, 0, &seqs.map(|seq| crafted(seq, 1)));
        let mut reader = Reader::new(device, &bare.geometry, 7, None).unwrap();
        let read = reader.named_frames(0, first, pages * 4096, |_, _| Ok(()));
        let found = match read {
            Ok(()) => None,
            Err(OpenError::Image(ImageError::LostFrame {
                segment,
                offset_bytes,
                expected_seq,
                found_seq,
            })) => {
                assert_eq!(segment, 0);
                let page = (offset_bytes - bare.layout.segment_at(0)) / 4096;
                Some((page, expected_seq, found_seq))
            }
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(found, missed, "{seqs:?}, {first}, {pages}");
    }
}

#[test]
fn a_table_that_does_not_fit_its_region_or_its_payload_is_refused_though_its_sum_is_right() {
    let bare = bare();
    let device: &dyn Device = &bare.device;
    let region_bytes = 16 * 4096;
    let plain = |extents: &[(u64, u64)]| Crafted {
        extents: extents.iter().map(|(grain, len)| Extent { grain: *grain, len: *len }).collect(),
        ..crafted(1, 3)
    };
    let packed = |extents: &[(u64, u64)], raw, lengths: &[u32]| Crafted {
        flags: FRAME_LZ4,
        raw,
        lengths: lengths.into(),
        payload: 5000,
        ..plain(extents)
    };
    let (page, chunk) = (4096, 16 * 4096);
    for (frame, refused) in [
        (plain(&[(13, 3)]), None),
        (plain(&[(0, 1), (15, 1)]), None),
        (plain(&[(14, 3)]), Some(("extent", 14 << 24 | 3))),
        (plain(&[(16, 1)]), Some(("extent", 16 << 24 | 1))),
        (plain(&[(0, 1), (5, 0)]), Some(("extent", 5 << 24))),
        (plain(&[(0, 2), (4, 2)]), Some(("extent length", 2))),
        (packed(&[(0, 3)], 3 * page, &[5000]), None),
        (packed(&[(0, 16), (0, 1)], 17 * page, &[4000, 1000]), None),
        (packed(&[(0, 2)], 3 * page, &[5000]), Some(("length before compression", 12_288))),
        (packed(&[(0, 3)], 3 * page + 8, &[5000]), Some(("length before compression", 12_296))),
        (packed(&[(0, 4)], 3 * page, &[5000]), Some(("extent length", 4))),
        (packed(&[(0, 3)], 3 * page, &[4999]), Some(("chunk lengths", 5000))),
        (packed(&[(0, 3)], 3 * page, &[5001]), Some(("chunk lengths", 5000))),
        (packed(&[(0, 16)], chunk, &[0]), Some(("chunk lengths", 5000))),
        (packed(&[(0, 16), (0, 1)], 17 * page, &[903, 4097]), Some(("chunk lengths", 5000))),
    ] {
        let used = put(&bare, 0, &[frame]);
        let mut reader = Reader::new(device, &bare.geometry, 7, None).unwrap();
        let read = reader
            .named_frames(0, 1, used, |reader, frame| with_table(reader, &frame, region_bytes));
        match (read, refused) {
            (Ok(()), None) => {}
            (Err(OpenError::Image(ImageError::Impossible { what, value, .. })), Some(why)) => {
                assert_eq!((what, value), why);
            }
            (other, why) => panic!("{why:?}: {other:?}"),
        }
    }
}

#[test]
fn what_follows_a_commit_counts_up_to_the_last_group_commit_before_the_first_gap() {
    let first = |seq, commit: bool| Crafted {
        flags: if commit { FRAME_COMMIT } else { 0 },
        incarnation: 2,
        ..crafted(seq, 1)
    };
    // The commit covers frames 1 and 2 and needs the first. Behind it: number, and whether it
    // is a group commit, of frames in the same segment and in another one; how many of these
    // count; the highest number.
    type Numbers = &'static [(u64, bool)];
    let cases: [(Numbers, Numbers, [u64; 2], u64); 9] = [
        (&[], &[], [0, 0], 2),
        (&[(3, true)], &[], [1, 0], 3),
        (&[(3, false)], &[(4, true), (5, false)], [1, 1], 5),
        (&[(3, true), (5, true)], &[(4, false)], [2, 1], 5),
        (&[(3, true), (5, true)], &[(2, false)], [1, 0], 5),
        (&[(4, true)], &[], [0, 0], 4),
        // A segment that is not needed begins with a frame that the commit covers.
        (&[(3, true)], &[(2, false), (4, true), (5, true)], [1, 2], 5),
        // The second number is not greater, so the frame was left by an earlier filling.
        (&[(4, true), (4, true), (5, true)], &[(3, false)], [1, 1], 4),
        (&[(4, true), (2, true), (5, true)], &[(3, false)], [1, 1], 4),
    ];
    for (behind, other, counted, seq_max) in cases {
        let bare = bare();
        bare.ledger.incarnation().store(2, Relaxed);
        let frames = |list: &[(u64, bool)]| {
            list.iter().map(|(seq, commit)| first(*seq, *commit)).collect::<Vec<_>>()
        };
        let named = put(&bare, 0, &[first(1, false)]);
        let mut all = vec![first(1, false)];
        all.extend(frames(behind));
        // A frame of an earlier life ends what counts in a segment.
        all.push(Crafted { incarnation: 1, ..first(6, true) });
        put(&bare, 0, &all);
        put(&bare, 1, &frames(other));
        let entry = bare.ledger.segment(0);
        entry.first_seq().store(1, Relaxed);
        entry.used_bytes().store(named.into(), Relaxed);
        let needed = &[true, false];
        let slot = SlotContents { needed, last_seq: 2, is_final: false, unix_ms: 0 };
        write_slot(&bare.ledger, &bare.layout, &bare.device, &slot, false).unwrap();
        let empty = Ledger::create(bare.geometry, 7, 0).unwrap();
        let (device, rule) = (&bare.device, Tail::Committed);
        let recovered = recover(device, &bare.geometry, 7, &empty, rule, Planted::None);
        let (recovered, loading) = recovered.unwrap();
        let (case, counting) = (format!("{behind:?}, {other:?}"), counted[0] + counted[1]);
        assert_eq!((recovered.tail_frames, recovered.seq_max), (counting, seq_max), "{case}");
        let used = [0, 1].map(|number| empty.segment(number).used_bytes().load(Relaxed));
        let older = other.iter().filter(|(seq, _)| *seq <= 2 && counted[1] > 0).count() as u64;
        assert_eq!(used, [(1 + counted[0]) * 8192, (older + counted[1]) * 8192], "{case}");
        let first_seq = if counted[1] > 0 { other[0].0 } else { 0 };
        assert_eq!(empty.segment(1).first_seq().load(Relaxed), first_seq, "{case}");
        let segments = if counted[1] > 0 { 2 } else { 1 };
        assert_eq!(recovered.segments_used, segments, "{case}");
        let states = [0, 1].map(|number| empty.segment(number).state());
        assert_eq!(states[0], SegmentState::Used);
        assert_eq!(states[1] == SegmentState::Used, segments == 2, "{case}");
        assert_eq!(empty.segment(0).first_seq().load(Relaxed), 1);
        assert_eq!(loading.progress(), (0, (1 + counting) * 4096), "{case}");
    }
}

#[test]
fn a_device_that_is_shorter_than_its_commit_says_is_refused_with_both_sizes() {
    let bare = bare();
    let needed = &[false; 4];
    let slot = SlotContents { needed, last_seq: 0, is_final: true, unix_ms: 0 };
    write_slot(&bare.ledger, &bare.layout, &bare.device, &slot, false).unwrap();
    let expected = bare.layout.segment_at(4);
    for segments in [2, 3, 4, 5] {
        bare.device.grow(bare.layout.segment_at(segments)).unwrap();
        let empty = Ledger::create(bare.geometry, 7, 0).unwrap();
        let (device, rule) = (&bare.device, Tail::Committed);
        match recover(device, &bare.geometry, 7, &empty, rule, Planted::None) {
            Ok((recovered, loading)) => {
                assert!(segments >= 4 && loading.is_complete());
                assert_eq!((recovered.tail_frames, recovered.segments_used), (0, 0));
            }
            Err(OpenError::Image(ImageError::Truncated { expected_bytes, found_bytes })) => {
                let found = bare.layout.segment_at(segments);
                assert!(segments < 4 && (expected_bytes, found_bytes) == (expected, found));
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}
