//! Commit slots: written, and read with the copy of each that is whole.

use std::sync::atomic::Ordering::*;

use perdura_media::{Device, DeviceError};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::cipher::Key;
use crate::error::{ImageError, OpenError};
use crate::format::{
    Layout, SEGMENT_WRITTEN, SLOT_COPIES, SLOT_MAGIC, SLOTS, SlotHeader, SlotSegment, checksum,
};
use perdura_dirty::geometry::Geometry;
use perdura_dirty::sys::AlignedBytes;
use perdura_dirty::{Ledger, SetupError};

/// Allocates aligned memory for I/O.
pub(crate) fn aligned(len: usize) -> Result<AlignedBytes, SetupError> {
    AlignedBytes::zeroed(len).map_err(|source| SetupError::Memory {
        what: "I/O buffer",
        len_bytes: len as u64,
        source,
    })
}

/// The contents of a commit.
pub struct SlotContents<'a> {
    /// Says of each segment whether the committed state needs it.
    pub needed: &'a [bool],
    /// Sequence number of the last frame that the commit covers.
    pub last_seq: u64,
    /// Whether the commit closes the region; it is then written to both slots.
    pub is_final: bool,
    /// A time, milliseconds since 1970, before which every acknowledged write is covered.
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
    // Backups order commits by their time, so a clock that is set back must not order them anew.
    let unix_ms = contents.unix_ms.max(ledger.commit_unix_ms().load(Acquire));
    for _ in 0..if contents.is_final { SLOTS } else { 1 } {
        let commit = ledger.commits().load(Acquire) + 1;
        let turn = ledger.slot_turn().load(Acquire);
        let bytes = slot_bytes(ledger, contents, commit, unix_ms)?;
        for copy in 0..SLOT_COPIES {
            device.write_at(layout.slot_at(turn, copy), bytes.as_slice())?;
            written_bytes += bytes.as_slice().len() as u64;
        }
        if !skip_flush {
            device.flush()?;
        }
        ledger.commits().store(commit, Release);
        ledger.commit_unix_ms().store(unix_ms, Release);
        ledger.slot_turn().store(turn ^ 1, Release);
    }
    ledger.commit_seq().store(contents.last_seq, Release);
    Ok(written_bytes)
}

fn slot_bytes(
    ledger: &Ledger,
    contents: &SlotContents<'_>,
    commit: u64,
    unix_ms: u64,
) -> Result<AlignedBytes, DeviceError> {
    let entries = contents.needed.iter().enumerate().map(|(number, needed)| {
        let entry = ledger.segment(number as u32);
        let mut segment = SlotSegment::default();
        if *needed {
            segment.first_seq = entry.first_seq().load(Acquire).into();
            segment.used_bytes = (entry.used_bytes().load(Acquire) as u32).into();
        }
        if entry.was_written() {
            segment.flags = SEGMENT_WRITTEN.into();
        }
        segment
    });
    let header = SlotHeader {
        commit: commit.into(),
        last_seq: contents.last_seq.into(),
        epoch: ledger.epoch().load(Relaxed).into(),
        region_bytes: ledger.region_bytes().load(Relaxed).into(),
        is_final: u32::from(contents.is_final).into(),
        unix_ms: unix_ms.into(),
        incarnation: (ledger.incarnation().load(Relaxed) as u32).into(),
        ..SlotHeader::new_zeroed()
    };
    let key = ledger.key_words().map(Key::from_words);
    sealed_slot(header, ledger.image_id().load(Relaxed), key.as_ref(), entries)
}

/// The bytes of a slot with these entries; fills in what the header says of itself and of them.
/// `key` is the image's, if it is encrypted.
pub(crate) fn sealed_slot(
    mut header: SlotHeader,
    image_id: u64,
    key: Option<&Key>,
    entries: impl ExactSizeIterator<Item = SlotSegment>,
) -> Result<AlignedBytes, DeviceError> {
    let (head_bytes, segments) = (size_of::<SlotHeader>(), entries.len());
    let table_bytes = segments * size_of::<SlotSegment>();
    let mut out =
        AlignedBytes::zeroed(head_bytes + table_bytes).map_err(|source| DeviceError::Io {
            op: "buffer for a commit slot",
            offset_bytes: 0,
            len_bytes: table_bytes as u64,
            source: source.into(),
        })?;
    let (head, table) = out.as_mut().split_at_mut(head_bytes);
    for (entry, place) in entries.zip(table.chunks_exact_mut(size_of::<SlotSegment>())) {
        place.copy_from_slice(entry.as_bytes());
    }
    header.magic = SLOT_MAGIC.into();
    header.image_id = image_id.into();
    header.segments = (segments as u32).into();
    header.table_checksum = checksum(&table[..table_bytes]).into();
    if let Some(key) = key {
        header.seal = key.commit_seal(&header, &table[..table_bytes]);
    }
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

/// Reads the newest valid commit. `key` is the image's: without it the tags of an encrypted image's
/// commits are not looked at.
pub fn read_slots(
    device: &dyn Device,
    geometry: &Geometry,
    image_id: u64,
    key: Option<&Key>,
) -> Result<Slot, OpenError> {
    let layout = Layout::of(geometry);
    let mut newest: Option<Slot> = None;
    for turn in 0..SLOTS {
        let newer = read_slot(device, geometry, (image_id, key), turn)?.filter(|slot| {
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
    image: (u64, Option<&Key>),
    turn: u64,
) -> Result<Option<Slot>, OpenError> {
    let layout = Layout::of(geometry);
    let mut bytes = aligned(layout.slot_bytes() as usize)?;
    let mut copies = Vec::new();
    for copy in 0..SLOT_COPIES {
        let at = layout.slot_at(turn, copy);
        device.read_at(at, bytes.as_mut())?;
        copies.push((at, parse_slot(bytes.as_slice(), geometry, image, turn, at)?));
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
    (image_id, key): (u64, Option<&Key>),
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
    if key.is_some_and(|key| key.commit_seal(&header, table) != header.seal) {
        return Err(ImageError::Forged { what: "commit slot", offset_bytes: at });
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
    use perdura_dirty::geometry::{BLOCK_BYTES, GRAIN_SHIFT_TRAP};

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
            let slot = read_slots(&device, &geometry, 7, None).unwrap();
            let expected = if counts { (1, 2) } else { (0, 1) };
            assert_eq!((slot.turn, slot.header.commit.get()), expected, "{field}: {value:?}");
            assert_eq!(slot.flawed_copy_at, None);
            // One flipped bit is enough for a copy, and the other copy is noted.
            device.flip_bit(layout.slot_at(slot.turn, 0) + 20, 3);
            let again = read_slots(&device, &geometry, 7, None).unwrap();
            assert_eq!((again.turn, again.header.commit.get()), expected);
            assert_eq!(again.flawed_copy_at, Some(layout.slot_at(slot.turn, 0)));
            device.flip_bit(layout.slot_at(slot.turn, 1) + 128 + 3, 3);
            let older = read_slots(&device, &geometry, 7, None).map(|slot| slot.turn);
            assert_eq!(older.ok(), counts.then_some(0));
        }
    }

    #[test]
    fn a_clock_that_is_set_back_gives_no_commit_an_earlier_time() {
        let geometry = Geometry::new(4 * BLOCK_BYTES, GRAIN_SHIFT_TRAP, None, 4).unwrap();
        let layout = Layout::of(&geometry);
        let ledger = Ledger::create(geometry, 7, geometry.reserved_bytes).unwrap();
        let device = SimDevice::new(0, 1);
        device.grow(layout.segment_at(2)).unwrap();
        for (unix_ms, expected) in [(5_000, 5_000), (2_000, 5_000), (6_000, 6_000)] {
            let contents =
                SlotContents { needed: &[false, false], last_seq: 0, is_final: false, unix_ms };
            write_slot(&ledger, &layout, &device, &contents, false).unwrap();
            let newest = read_slots(&device, &geometry, 7, None).unwrap();
            assert_eq!(newest.header.unix_ms.get(), expected);
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
            assert!(read_slots(&device, &geometry, 7, None).is_ok());
            // The newest commit is in the slot that is not next.
            let turn = ledger.slot_turn().load(Relaxed) ^ 1;
            let mut bytes = aligned(layout.slot_bytes() as usize).unwrap();
            for copy in 0..SLOT_COPIES {
                device.read_at(layout.slot_at(turn, copy), bytes.as_mut()).unwrap();
                bytes.as_mut()[field] = 7;
                repair_checksums(bytes.as_mut());
                device.write_at(layout.slot_at(turn, copy), bytes.as_slice()).unwrap();
            }
            match read_slots(&device, &geometry, 7, None) {
                Err(OpenError::Image(ImageError::Impossible { what, value: 7, .. })) => {
                    assert_eq!(what, name);
                }
                other => panic!("{name}: {:?}", other.map(|slot| slot.turn)),
            }
        }
    }
}
