//! The fixed structures of an image: superblock and commit slots, created, read, written.

use std::sync::atomic::Ordering::*;

use perdura_media::{Device, DeviceError};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::{ImageError, OpenError};
use crate::format::{
    FORMAT_VERSION, Layout, SEGMENT_WRITTEN, SLOT_COPIES, SLOT_MAGIC, SLOTS, SLOTS_AT,
    SUPERBLOCK_COPY, SUPERBLOCK_MAGIC, SlotHeader, SlotSegment, Superblock, UNFINISHED_MAGIC,
    checksum,
};
use perdura_dirty::geometry::{
    BLOCK_BYTES, BUFFERS, GRAIN_SHIFT_BARRIER, GRAIN_SHIFT_TRAP, Geometry,
};
use perdura_dirty::sys::AlignedBytes;
use perdura_dirty::{Ledger, SetupError};

/// Bytes of a device that are searched for data if it begins with zeros: slots, and the beginning
/// of the log.
const HEAD_LOOKED_AT_BYTES: u64 = 4 << 20;

/// Allocates aligned memory for I/O.
pub(crate) fn aligned(len: usize) -> Result<AlignedBytes, SetupError> {
    AlignedBytes::zeroed(len).map_err(|source| SetupError::Memory {
        what: "I/O buffer",
        len_bytes: len as u64,
        source,
    })
}

/// Clears the slots and marks the device as one on which an image is being made; durable on return.
/// [`publish`] completes the image after the first commit. If a loss comes in between, creation
/// begins again.
pub fn prepare(device: &dyn Device, geometry: &Geometry) -> Result<(), OpenError> {
    let mut head = aligned(Layout::of(geometry).segment_at(0) as usize)?;
    for at in [0, SUPERBLOCK_COPY as usize] {
        head.as_mut()[at..at + 8].copy_from_slice(&UNFINISHED_MAGIC.to_le_bytes());
    }
    // The mark is written first and alone: from then on the device is not mistaken for an image
    // that lost its head.
    device.write_at(0, &head.as_slice()[..SLOTS_AT as usize])?;
    device.flush()?;
    device.write_at(0, head.as_slice())?;
    device.flush()?;
    Ok(())
}

/// Writes both copies of the superblock; durable on return.
pub fn publish(device: &dyn Device, geometry: &Geometry, image_id: u64) -> Result<(), OpenError> {
    let mut head = aligned(SLOTS_AT as usize)?;
    for at in [0, SUPERBLOCK_COPY as usize] {
        head.as_mut()[at..at + size_of::<Superblock>()]
            .copy_from_slice(superblock(geometry, image_id).as_bytes());
    }
    device.write_at(0, head.as_slice())?;
    device.flush()?;
    Ok(())
}

fn superblock(geometry: &Geometry, image_id: u64) -> Superblock {
    let mut superblock = Superblock {
        magic: SUPERBLOCK_MAGIC.into(),
        version: FORMAT_VERSION.into(),
        grain_shift: geometry.grain_shift.into(),
        image_id: image_id.into(),
        reserved_bytes: geometry.reserved_bytes.into(),
        segment_bytes: geometry.segment_bytes.into(),
        segments_max: geometry.segments_max.into(),
        reserved: 0.into(),
        checksum: 0.into(),
    };
    let covered = size_of::<Superblock>() - 8;
    superblock.checksum = checksum(&superblock.as_bytes()[..covered]).into();
    superblock
}

/// Reads the superblock, which has the image's identity and sizes. `None`: the device is new, or an
/// image was begun on it and never finished.
pub fn read_superblock(device: &dyn Device) -> Result<Option<(Geometry, u64)>, OpenError> {
    let found_bytes = device.capacity_bytes();
    if found_bytes < SLOTS_AT {
        return match found_bytes {
            0 => Ok(None),
            _ => Err(ImageError::Truncated { expected_bytes: SLOTS_AT, found_bytes }.into()),
        };
    }
    let mut head = aligned(SLOTS_AT as usize)?;
    device.read_at(0, head.as_mut())?;
    if head.as_slice().iter().all(|byte| *byte == 0) {
        return refuse_lost_head(device).map(|()| None);
    }
    let copies =
        [0, SUPERBLOCK_COPY as usize].map(|at| (at, parse_superblock(head.as_slice(), at)));
    let superblock = match copies {
        [(_, Ok(superblock)), _] | [_, (_, Ok(superblock))] => superblock,
        [(at, Err(first)), (copy_at, Err(_))] => {
            let magic =
                |at: usize| head.as_slice()[at..].first_chunk().map(|m| u64::from_le_bytes(*m));
            let is_unfinished = [at, copy_at].iter().any(|at| magic(*at) == Some(UNFINISHED_MAGIC));
            return if is_unfinished { Ok(None) } else { Err(first.into()) };
        }
    };
    let geometry = Geometry {
        reserved_bytes: superblock.reserved_bytes.get(),
        grain_shift: superblock.grain_shift.get(),
        segment_bytes: superblock.segment_bytes.get(),
        segments_max: superblock.segments_max.get(),
        buffers: BUFFERS,
    };
    check_geometry(&geometry)?;
    let expected_bytes = Layout::of(&geometry).segment_at(1);
    if found_bytes < expected_bytes {
        return Err(ImageError::Truncated { expected_bytes, found_bytes }.into());
    }
    Ok(Some((geometry, superblock.image_id.get())))
}

/// Refuses a device with zeros in the place of superblocks if there are other data on it. An image
/// always has a commit in its first slot and frames behind the slots.
fn refuse_lost_head(device: &dyn Device) -> Result<(), OpenError> {
    let mut part = aligned(64 << 10)?;
    let end = device.capacity_bytes().min(HEAD_LOOKED_AT_BYTES);
    let mut at = 0;
    while at < end {
        let len = (end - at).min(part.as_slice().len() as u64) as usize;
        device.read_at(at, &mut part.as_mut()[..len])?;
        if let Some(index) = part.as_slice()[..len].iter().position(|byte| *byte != 0) {
            return Err(ImageError::LostHead { found_at: at + index as u64 }.into());
        }
        at += len as u64;
    }
    Ok(())
}

fn check_geometry(geometry: &Geometry) -> Result<(), ImageError> {
    let impossible = |what, value| Err(ImageError::Impossible { what, value, offset_bytes: 0 });
    if !(GRAIN_SHIFT_BARRIER..=GRAIN_SHIFT_TRAP).contains(&geometry.grain_shift) {
        return impossible("grain size", u64::from(geometry.grain_shift));
    }
    if !geometry.segment_bytes.is_power_of_two()
        || !(64 << 10..=64 << 20).contains(&geometry.segment_bytes)
    {
        return impossible("segment size", geometry.segment_bytes);
    }
    if !geometry.reserved_bytes.is_multiple_of(BLOCK_BYTES)
        || geometry.reserved_bytes == 0
        || geometry.reserved_bytes > 1 << 44
    {
        return impossible("reserved size", geometry.reserved_bytes);
    }
    if geometry.segments_max == 0 || geometry.segments_max > 1 << 24 {
        return impossible("segment count", u64::from(geometry.segments_max));
    }
    Ok(())
}

fn parse_superblock(head: &[u8], at: usize) -> Result<Superblock, ImageError> {
    let bytes = &head[at..at + size_of::<Superblock>()];
    let Ok(superblock) = Superblock::read_from_bytes(bytes) else {
        return Err(ImageError::NotAnImage { found: 0 });
    };
    if superblock.magic.get() != SUPERBLOCK_MAGIC {
        return Err(ImageError::NotAnImage { found: superblock.magic.get() });
    }
    let (expected, found) = (superblock.checksum.get(), checksum(&bytes[..bytes.len() - 8]));
    if superblock.version.get() != FORMAT_VERSION {
        return Err(ImageError::Version {
            found: superblock.version.get(),
            supported: FORMAT_VERSION,
        });
    }
    if expected != found {
        return Err(ImageError::Damaged {
            what: "superblock",
            offset_bytes: at as u64,
            expected,
            found,
        });
    }
    Ok(superblock)
}

/// The contents of a commit.
pub struct SlotContents<'a> {
    /// Says of each segment whether the committed state needs it.
    pub needed: &'a [bool],
    /// Sequence number of the last frame that the commit covers.
    pub last_seq: u64,
    /// Whether the commit closes the region; it is then written to both slots.
    pub is_final: bool,
    /// Time of the commit, milliseconds since 1970, for people.
    pub unix_ms: u64,
}

/// Writes both copies of the slot whose turn it is, and flushes the device. The frames that the
/// commit covers are durable before. The other slot stays valid meanwhile: a loss on the way leaves
/// the older commit or, if either copy is whole, the new one. Damage that comes later must hit both
/// copies to bring the older state back. A final commit goes to both slots. Returns the bytes
/// written.
pub fn write_slot(
    ledger: &Ledger,
    layout: &Layout,
    device: &dyn Device,
    contents: &SlotContents<'_>,
    skip_flush: bool,
) -> Result<u64, DeviceError> {
    let mut written_bytes = 0;
    for _ in 0..if contents.is_final { SLOTS } else { 1 } {
        let commit = ledger.commits().load(Acquire) + 1;
        let turn = ledger.slot_turn().load(Acquire);
        let bytes = slot_bytes(ledger, contents, commit)?;
        for copy in 0..SLOT_COPIES {
            device.write_at(layout.slot_at(turn, copy), bytes.as_slice())?;
            written_bytes += bytes.as_slice().len() as u64;
        }
        if !skip_flush {
            device.flush()?;
        }
        ledger.commits().store(commit, Release);
        ledger.slot_turn().store(turn ^ 1, Release);
    }
    ledger.commit_seq().store(contents.last_seq, Release);
    Ok(written_bytes)
}

fn slot_bytes(
    ledger: &Ledger,
    contents: &SlotContents<'_>,
    commit: u64,
) -> Result<AlignedBytes, DeviceError> {
    let table_bytes = contents.needed.len() * size_of::<SlotSegment>();
    let head_bytes = size_of::<SlotHeader>();
    let mut out =
        AlignedBytes::zeroed(head_bytes + table_bytes).map_err(|source| DeviceError::Io {
            op: "buffer for a commit slot",
            offset_bytes: 0,
            len_bytes: table_bytes as u64,
            source: source.into(),
        })?;
    let (head, table) = out.as_mut().split_at_mut(head_bytes);
    for ((number, needed), place) in
        contents.needed.iter().enumerate().zip(table.chunks_exact_mut(size_of::<SlotSegment>()))
    {
        let entry = ledger.segment(number as u32);
        let mut segment = SlotSegment::default();
        if *needed {
            segment.first_seq = entry.first_seq().load(Acquire).into();
            segment.used_bytes = (entry.used_bytes().load(Acquire) as u32).into();
        }
        if entry.was_written() {
            segment.flags = SEGMENT_WRITTEN.into();
        }
        place.copy_from_slice(segment.as_bytes());
    }
    let mut header = SlotHeader {
        magic: SLOT_MAGIC.into(),
        image_id: ledger.image_id().load(Relaxed).into(),
        commit: commit.into(),
        last_seq: contents.last_seq.into(),
        epoch: ledger.epoch().load(Relaxed).into(),
        region_bytes: ledger.region_bytes().load(Relaxed).into(),
        segments: (contents.needed.len() as u32).into(),
        is_final: u32::from(contents.is_final).into(),
        unix_ms: contents.unix_ms.into(),
        incarnation: (ledger.incarnation().load(Relaxed) as u32).into(),
        reserved: [0.into(); 11],
        table_checksum: checksum(&table[..table_bytes]).into(),
        checksum: 0.into(),
    };
    header.checksum = checksum(&header.as_bytes()[..head_bytes - 8]).into();
    head.copy_from_slice(header.as_bytes());
    Ok(out)
}

/// A commit found on the device.
pub struct Slot {
    /// The slot's header, whose checksum was checked.
    pub header: SlotHeader,
    /// The slot's table: the bytes that the commit needs of each segment.
    pub(crate) segments: Vec<SlotSegment>,
    /// Number of the slot, 0 or 1.
    pub turn: u64,
    /// Offset of the other copy if it differs: damaged since, or never written whole.
    pub flawed_copy_at: Option<u64>,
}

/// Reads the newest valid commit.
pub fn read_slots(
    device: &dyn Device,
    geometry: &Geometry,
    image_id: u64,
) -> Result<Slot, OpenError> {
    let layout = Layout::of(geometry);
    let mut newest: Option<Slot> = None;
    for turn in 0..SLOTS {
        let newer = read_slot(device, geometry, image_id, turn)?.filter(|slot| {
            newest.as_ref().is_none_or(|best| slot.header.commit.get() > best.header.commit.get())
        });
        newest = newer.or(newest);
    }
    newest.ok_or_else(|| {
        ImageError::NoCommit {
            first_offset_bytes: layout.slot_at(0, 0),
            second_offset_bytes: layout.slot_at(1, 0),
        }
        .into()
    })
}

/// Reads the newer of a slot's copies, and notes where the other lies if it differs.
fn read_slot(
    device: &dyn Device,
    geometry: &Geometry,
    image_id: u64,
    turn: u64,
) -> Result<Option<Slot>, OpenError> {
    let layout = Layout::of(geometry);
    let mut bytes = aligned(layout.slot_bytes() as usize)?;
    let mut copies = Vec::new();
    for copy in 0..SLOT_COPIES {
        let at = layout.slot_at(turn, copy);
        device.read_at(at, bytes.as_mut())?;
        copies.push((at, parse_slot(bytes.as_slice(), geometry, image_id, turn, at)?));
    }
    let commit_of = |slot: &Option<Slot>| slot.as_ref().map_or(0, |slot| slot.header.commit.get());
    copies.sort_by_key(|(_, slot)| std::cmp::Reverse(commit_of(slot)));
    let newest = commit_of(&copies[0].1);
    let flawed = copies.iter().find(|(_, slot)| commit_of(slot) != newest).map(|(at, _)| *at);
    Ok(copies.swap_remove(0).1.map(|slot| Slot { flawed_copy_at: flawed, ..slot }))
}

/// Parses the commit in the bytes that lie at offset `at` of the device; `None` if there is no
/// whole one. A value that no program of this version writes is an error, because an older commit
/// must not take the place of this one.
fn parse_slot(
    bytes: &[u8],
    geometry: &Geometry,
    image_id: u64,
    turn: u64,
    at: u64,
) -> Result<Option<Slot>, ImageError> {
    let head_bytes = size_of::<SlotHeader>();
    let Ok(header) = SlotHeader::read_from_bytes(&bytes[..head_bytes]) else { return Ok(None) };
    let segments = header.segments.get();
    let plausible = header.magic.get() == SLOT_MAGIC
        && header.image_id.get() == image_id
        && header.checksum.get() == checksum(&bytes[..head_bytes - 8])
        && segments <= geometry.segments_max
        && header.region_bytes.get() <= geometry.reserved_bytes;
    let table_bytes = segments as usize * size_of::<SlotSegment>();
    let Some(table) = bytes[head_bytes..].get(..table_bytes).filter(|_| plausible) else {
        return Ok(None);
    };
    if checksum(table) != header.table_checksum.get() {
        return Ok(None);
    }
    let impossible = |what, value: u32| {
        Err(ImageError::Impossible { what, value: value.into(), offset_bytes: at })
    };
    if header.is_final.get() > 1 {
        return impossible("the mark of a final commit", header.is_final.get());
    }
    let mut entries = Vec::with_capacity(segments as usize);
    for entry in table.chunks_exact(size_of::<SlotSegment>()) {
        let Ok(entry) = SlotSegment::read_from_bytes(entry) else { return Ok(None) };
        if entry.flags.get() & !SEGMENT_WRITTEN != 0 {
            return impossible("the flags of a segment", entry.flags.get());
        }
        entries.push(entry);
    }
    Ok(Some(Slot { header, segments: entries, turn, flawed_copy_at: None }))
}

#[cfg(test)]
mod tests {
    use perdura_media::SimDevice;

    use super::*;
    use crate::format::commit_bytes;
    use crate::fuzzing::repair_checksums;

    #[test]
    fn a_commit_writes_as_many_bytes_as_a_plan_reckons_with() {
        let segment_bytes = Some(64 << 10);
        let geometry =
            Geometry::new(1024 * BLOCK_BYTES, GRAIN_SHIFT_TRAP, segment_bytes, 4).unwrap();
        let layout = Layout::of(&geometry);
        let ledger = Ledger::create(geometry, 7, geometry.reserved_bytes).unwrap();
        for segments in [1, 2, 248, 249, 1_000] {
            let device = SimDevice::new(0, 1);
            device.grow(layout.segment_at(1)).unwrap();
            let needed = vec![false; segments as usize];
            let contents =
                SlotContents { needed: &needed, last_seq: 0, is_final: false, unix_ms: 1 };
            let written = write_slot(&ledger, &layout, &device, &contents, false).unwrap();
            assert_eq!(written, commit_bytes(segments), "{segments} segments");
        }
    }

    #[test]
    fn an_image_of_sizes_that_none_can_have_is_refused_with_the_size() {
        let smallest = Geometry {
            reserved_bytes: BLOCK_BYTES,
            grain_shift: GRAIN_SHIFT_BARRIER,
            segment_bytes: 64 << 10,
            segments_max: 1,
            buffers: BUFFERS,
        };
        let largest = Geometry {
            reserved_bytes: 1 << 44,
            grain_shift: GRAIN_SHIFT_TRAP,
            segment_bytes: 64 << 20,
            segments_max: 1 << 24,
            buffers: BUFFERS,
        };
        for geometry in [smallest, largest] {
            assert!(check_geometry(&geometry).is_ok(), "{geometry:?}");
        }
        let reserved = |reserved_bytes| Geometry { reserved_bytes, ..smallest };
        let grains = |grain_shift| Geometry { grain_shift, ..smallest };
        let segments = |segment_bytes| Geometry { segment_bytes, ..smallest };
        let count = |segments_max| Geometry { segments_max, ..smallest };
        for (geometry, name, size) in [
            (reserved(0), "reserved size", 0),
            (reserved(BLOCK_BYTES + 4096), "reserved size", BLOCK_BYTES + 4096),
            (reserved((1 << 44) + BLOCK_BYTES), "reserved size", (1 << 44) + BLOCK_BYTES),
            (grains(5), "grain size", 5),
            (grains(13), "grain size", 13),
            (segments(32 << 10), "segment size", 32 << 10),
            (segments(96 << 10), "segment size", 96 << 10),
            (segments(128 << 20), "segment size", 128 << 20),
            (count(0), "segment count", 0),
            (count((1 << 24) + 1), "segment count", (1 << 24) + 1),
        ] {
            let device = SimDevice::new(64 << 20, 1);
            publish(&device, &geometry, 7).unwrap();
            match read_superblock(&device) {
                Err(OpenError::Image(ImageError::Impossible { what, value, .. })) => {
                    assert_eq!((what, value), (name, size));
                }
                other => panic!("{name} {size}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_device_too_short_for_what_its_head_says_is_no_image_and_an_empty_one_is_new() {
        let geometry = Geometry::new(4 * BLOCK_BYTES, GRAIN_SHIFT_TRAP, None, BUFFERS).unwrap();
        let whole = Layout::of(&geometry).segment_at(1);
        for (bytes, expected) in [(4096, SLOTS_AT), (SLOTS_AT, whole), (whole - 4096, whole)] {
            let device = SimDevice::new(bytes, 1);
            if bytes >= SLOTS_AT {
                publish(&device, &geometry, 7).unwrap();
            }
            match read_superblock(&device) {
                Err(OpenError::Image(ImageError::Truncated { expected_bytes, found_bytes })) => {
                    assert_eq!((expected_bytes, found_bytes), (expected, bytes));
                }
                other => panic!("{bytes}: {other:?}"),
            }
        }
        assert!(read_superblock(&SimDevice::new(0, 1)).unwrap().is_none());
        let device = SimDevice::new(whole, 1);
        assert!(read_superblock(&device).unwrap().is_none());
        // Either copy of the superblock is enough.
        for lost in [SUPERBLOCK_COPY, 0] {
            publish(&device, &geometry, 7).unwrap();
            device.flip_bit(lost + 20, 0);
            assert_eq!(read_superblock(&device).unwrap(), Some((geometry, 7)));
        }
        device.flip_bit(SUPERBLOCK_COPY + 20, 0);
        assert!(read_superblock(&device).is_err());
        prepare(&device, &geometry).unwrap();
        assert!(read_superblock(&device).unwrap().is_none(), "an image is being made");
        let device = SimDevice::new(whole, 1);
        device.flip_bit(whole - 1, 7);
        match read_superblock(&device) {
            Err(OpenError::Image(ImageError::LostHead { found_at })) => {
                assert_eq!(found_at, whole - 1);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_device_of_any_length_is_new_if_all_that_is_looked_at_is_zeros() {
        let part = 64 << 10;
        for bytes in [SLOTS_AT, part, part + 4096, 3 * part - 4096, 4 << 20, (4 << 20) + part] {
            let device = SimDevice::new(bytes, 1);
            assert!(read_superblock(&device).unwrap().is_none(), "{bytes}");
            // Data at the beginning, at the edge of a part that is read, or at the end.
            for found in [SLOTS_AT, 2 * part - 1, 2 * part, bytes - 1] {
                if !(SLOTS_AT..bytes).contains(&found) {
                    continue;
                }
                device.flip_bit(found, 3);
                match read_superblock(&device) {
                    Ok(None) => assert!(found >= 4 << 20, "{found} of {bytes}"),
                    Err(OpenError::Image(ImageError::LostHead { found_at })) => {
                        assert_eq!(found_at, found, "{bytes}");
                    }
                    other => panic!("{found} of {bytes}: {other:?}"),
                }
                device.flip_bit(found, 3);
            }
        }
    }

    #[test]
    fn a_commit_of_another_image_or_larger_than_this_one_is_passed_over() {
        let geometry = Geometry::new(4 * BLOCK_BYTES, GRAIN_SHIFT_TRAP, None, 4).unwrap();
        let layout = Layout::of(&geometry);
        let needed = [false, false];
        let contents = SlotContents { needed: &needed, last_seq: 0, is_final: false, unix_ms: 1 };
        let (most, bytes) = (geometry.segments_max as u8, geometry.reserved_bytes as u32);
        // (bytes of the newest commit, what they become, whether it still counts)
        let cases: [(usize, Vec<u8>, bool); 7] = [
            (24, vec![0], true),
            (0, vec![0], false),
            (8, vec![8], false),
            (40, bytes.to_le_bytes().into(), true),
            (40, (bytes + 1).to_le_bytes().into(), false),
            (48, vec![most], true),
            (48, vec![most + 1], false),
        ];
        for (field, value, counts) in cases {
            let ledger = Ledger::create(geometry, 7, geometry.reserved_bytes).unwrap();
            let device = SimDevice::new(0, 1);
            device.grow(layout.segment_at(2)).unwrap();
            for _ in 0..2 {
                write_slot(&ledger, &layout, &device, &contents, false).unwrap();
            }
            let mut bytes = aligned(layout.slot_bytes() as usize).unwrap();
            for copy in 0..SLOT_COPIES {
                device.read_at(layout.slot_at(1, copy), bytes.as_mut()).unwrap();
                bytes.as_mut()[field..field + value.len()].copy_from_slice(&value);
                repair_checksums(bytes.as_mut());
                device.write_at(layout.slot_at(1, copy), bytes.as_slice()).unwrap();
            }
            let slot = read_slots(&device, &geometry, 7).unwrap();
            let expected = if counts { (1, 2) } else { (0, 1) };
            assert_eq!((slot.turn, slot.header.commit.get()), expected, "{field}: {value:?}");
            assert_eq!(slot.flawed_copy_at, None);
            // One flipped bit is enough for a copy, and the other copy is noted.
            device.flip_bit(layout.slot_at(slot.turn, 0) + 20, 3);
            let again = read_slots(&device, &geometry, 7).unwrap();
            assert_eq!((again.turn, again.header.commit.get()), expected);
            assert_eq!(again.flawed_copy_at, Some(layout.slot_at(slot.turn, 0)));
            device.flip_bit(layout.slot_at(slot.turn, 1) + 128 + 3, 3);
            let older = read_slots(&device, &geometry, 7).map(|slot| slot.turn);
            assert_eq!(older.ok(), counts.then_some(0));
        }
    }

    #[test]
    fn a_commit_that_says_what_nobody_knows_is_an_error_and_no_older_one_takes_its_place() {
        let geometry = Geometry::new(4 * BLOCK_BYTES, GRAIN_SHIFT_TRAP, None, 4).unwrap();
        let layout = Layout::of(&geometry);
        let ledger = Ledger::create(geometry, 7, geometry.reserved_bytes).unwrap();
        let needed = [false, false];
        let contents = SlotContents { needed: &needed, last_seq: 0, is_final: false, unix_ms: 1 };
        for (field, name) in
            [(52, "the mark of a final commit"), (128 + 12, "the flags of a segment")]
        {
            let device = SimDevice::new(0, 1);
            device.grow(layout.segment_at(2)).unwrap();
            for _ in 0..2 {
                write_slot(&ledger, &layout, &device, &contents, false).unwrap();
            }
            assert!(read_slots(&device, &geometry, 7).is_ok());
            // The newest commit is in the slot that is not next.
            let turn = ledger.slot_turn().load(Relaxed) ^ 1;
            let mut bytes = aligned(layout.slot_bytes() as usize).unwrap();
            for copy in 0..SLOT_COPIES {
                device.read_at(layout.slot_at(turn, copy), bytes.as_mut()).unwrap();
                bytes.as_mut()[field] = 7;
                repair_checksums(bytes.as_mut());
                device.write_at(layout.slot_at(turn, copy), bytes.as_slice()).unwrap();
            }
            match read_slots(&device, &geometry, 7) {
                Err(OpenError::Image(ImageError::Impossible { what, value: 7, .. })) => {
                    assert_eq!(what, name);
                }
                other => panic!("{name}: {:?}", other.map(|slot| slot.turn)),
            }
        }
    }
}
