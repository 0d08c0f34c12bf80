//! The superblock: an image is made, published, found, given this program's version, and given
//! another key.

use perdura_media::Device;
use zerocopy::{FromBytes, IntoBytes};

use crate::cipher::Key;
use crate::error::{ImageError, OpenError};
use crate::format::{
    CIPHER_AES, CIPHER_NONE, FORMAT_VERSION, Layout, OLDEST_VERSION, SLOTS_AT, SUPERBLOCK_BYTES_V1,
    SUPERBLOCK_COPY, SUPERBLOCK_MAGIC, Superblock, UNFINISHED_MAGIC, WRAPPED_KEY_BYTES, checksum,
};
use crate::slots::aligned;
use perdura_dirty::geometry::{
    BLOCK_BYTES, BUFFERS, GRAIN_SHIFT_BARRIER, GRAIN_SHIFT_TRAP, Geometry,
};

/// Bytes of a device that are searched for data if it begins with zeros: slots, and the beginning
/// of the log.
const HEAD_LOOKED_AT_BYTES: u64 = 4 << 20;

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

/// The superblock of an image, as far as a reader needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Sizes, which never change.
    pub geometry: Geometry,
    /// Random identity of the image.
    pub image_id: u64,
    /// Whether a copy is not as this program would write it: damaged, with another key, or of an
    /// older version of the format. [`renew`] writes both before anything else is written.
    pub is_outdated: bool,
    wrapped_key: Option<[u8; WRAPPED_KEY_BYTES]>,
}

impl Head {
    /// The head of an image of this program's version. `sealed_key` is the image's key, encrypted
    /// by the user's, if frames are encrypted.
    pub fn new(
        geometry: Geometry,
        image_id: u64,
        sealed_key: Option<[u8; WRAPPED_KEY_BYTES]>,
    ) -> Self {
        Self { geometry, image_id, is_outdated: false, wrapped_key: sealed_key }
    }

    /// The image's key, encrypted by the user's, if frames are encrypted.
    pub fn sealed_key(&self) -> Option<[u8; WRAPPED_KEY_BYTES]> {
        self.wrapped_key
    }

    /// The key of the image's frames, of which `key` is the user's; `None`: neither encrypted nor
    /// asked for.
    ///
    /// # Errors
    /// A key is missing, is given in vain, or is not the right one.
    pub fn image_key(&self, key: Option<&Key>) -> Result<Option<Key>, ImageError> {
        match (&self.wrapped_key, key) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err(ImageError::NotEncrypted { offset_bytes: 0 }),
            (Some(_), None) => Err(ImageError::Encrypted { offset_bytes: 0 }),
            (Some(wrapped), Some(key)) => match key.unwrap(wrapped, self.image_id) {
                Some(image_key) => Ok(Some(image_key)),
                None => Err(ImageError::WrongKey),
            },
        }
    }
}

/// Writes both copies of the superblock of a new image; durable on return. `keys` are the user's
/// and the image's, if frames are encrypted.
pub fn publish(
    device: &dyn Device,
    geometry: &Geometry,
    image_id: u64,
    keys: Option<(&Key, &Key)>,
) -> Result<(), OpenError> {
    let wrap = |(key, image_key): (&Key, &Key)| key.wrap(image_key, image_id);
    let wrapped_key = keys.map(wrap).transpose()?;
    write_head(device, &Head { geometry: *geometry, image_id, is_outdated: false, wrapped_key })
}

/// Makes both copies of an outdated superblock what the valid one says, so that nobody ever reads
/// the other: a loss amid [`change_key`] leaves a copy with each key. An image of an older version
/// is given this program's; its frames stay as they are, and programs of the older version refuse
/// it from then on.
pub fn renew(device: &dyn Device, head: &Head) -> Result<(), OpenError> {
    match head.is_outdated {
        true => write_head(device, head),
        false => Ok(()),
    }
}

/// Encrypts the image's key by another key of the user.
///
/// # Errors
/// `old` is not the image's, or the device failed: then the image has one of both, and [`renew`]
/// removes the other.
pub fn change_key(device: &dyn Device, old: &Key, new: &Key) -> Result<(), OpenError> {
    let Some(head) = read_superblock(device)? else {
        return Err(ImageError::NotAnImage { found: 0 }.into());
    };
    match head.image_key(Some(old))? {
        Some(image_key) => {
            let wrapped_key = Some(new.wrap(&image_key, head.image_id)?);
            write_head(device, &Head { wrapped_key, ..head })
        }
        None => Err(ImageError::NotEncrypted { offset_bytes: 0 }.into()),
    }
}

/// Writes the copies of a superblock one after the other, so that one of them is always whole. The
/// first is read first, so it is written last.
pub(crate) fn write_head(device: &dyn Device, head: &Head) -> Result<(), OpenError> {
    let mut page = aligned(SUPERBLOCK_COPY as usize)?;
    page.as_mut()[..size_of::<Superblock>()].copy_from_slice(superblock(head).as_bytes());
    for at in [SUPERBLOCK_COPY, 0] {
        device.write_at(at, page.as_slice())?;
        device.flush()?;
    }
    Ok(())
}

fn superblock(head: &Head) -> Superblock {
    let Head { geometry, image_id, wrapped_key, .. } = head;
    let mut superblock = Superblock {
        magic: SUPERBLOCK_MAGIC.into(),
        version: FORMAT_VERSION.into(),
        grain_shift: geometry.grain_shift.into(),
        image_id: (*image_id).into(),
        reserved_bytes: geometry.reserved_bytes.into(),
        segment_bytes: geometry.segment_bytes.into(),
        segments_max: geometry.segments_max.into(),
        cipher: if wrapped_key.is_some() { CIPHER_AES } else { CIPHER_NONE }.into(),
        wrapped_key: wrapped_key.unwrap_or([0; WRAPPED_KEY_BYTES]),
        reserved: 0.into(),
        checksum: 0.into(),
    };
    let covered = size_of::<Superblock>() - 8;
    superblock.checksum = checksum(&superblock.as_bytes()[..covered]).into();
    superblock
}

/// Reads the superblock, which has the image's identity and sizes. `None`: the device is new, or an
/// image was begun on it and never finished.
pub fn read_superblock(device: &dyn Device) -> Result<Option<Head>, OpenError> {
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
    let wrapped_key = match superblock.cipher.get() {
        CIPHER_NONE => None,
        CIPHER_AES => Some(superblock.wrapped_key),
        other => {
            let (what, value) = ("cipher", u64::from(other));
            return Err(ImageError::Impossible { what, value, offset_bytes: 0 }.into());
        }
    };
    let [first, second] =
        [0, SUPERBLOCK_COPY as usize].map(|at| &head.as_slice()[at..at + size_of::<Superblock>()]);
    let is_outdated = superblock.version.get() != FORMAT_VERSION || first != second;
    Ok(Some(Head { geometry, image_id: superblock.image_id.get(), is_outdated, wrapped_key }))
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

pub(crate) fn check_geometry(geometry: &Geometry) -> Result<(), ImageError> {
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
    let Ok(mut superblock) = Superblock::read_from_bytes(bytes) else {
        return Err(ImageError::NotAnImage { found: 0 });
    };
    if superblock.magic.get() != SUPERBLOCK_MAGIC {
        return Err(ImageError::NotAnImage { found: superblock.magic.get() });
    }
    let version = superblock.version.get();
    if !(OLDEST_VERSION..=FORMAT_VERSION).contains(&version) {
        return Err(ImageError::Version { found: version, supported: FORMAT_VERSION });
    }
    let len = if version == 1 { SUPERBLOCK_BYTES_V1 } else { bytes.len() };
    let (covered, sum) = bytes[..len].split_at(len - 8);
    let expected = sum.first_chunk().map_or(0, |sum| u64::from_le_bytes(*sum));
    let found = checksum(covered);
    if expected != found {
        return Err(ImageError::Damaged {
            what: "superblock",
            offset_bytes: at as u64,
            expected,
            found,
        });
    }
    if version == 1 {
        superblock.cipher = CIPHER_NONE.into();
    }
    Ok(superblock)
}

#[cfg(test)]
mod tests {
    use perdura_media::SimDevice;

    use super::*;

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
            publish(&device, &geometry, 7, None).unwrap();
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
                publish(&device, &geometry, 7, None).unwrap();
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
            publish(&device, &geometry, 7, None).unwrap();
            device.flip_bit(lost + 20, 0);
            let found = read_superblock(&device).unwrap().unwrap();
            assert_eq!((found.geometry, found.image_id, found.is_outdated), (geometry, 7, true));
            renew(&device, &found).unwrap();
            let renewed = read_superblock(&device).unwrap().unwrap();
            assert_eq!(renewed, Head { is_outdated: false, ..found });
        }
        device.flip_bit(20, 0);
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
    fn the_key_of_an_image_can_be_changed_and_another_key_is_refused() {
        let geometry = Geometry::new(4 * BLOCK_BYTES, GRAIN_SHIFT_TRAP, None, BUFFERS).unwrap();
        let device = SimDevice::new(Layout::of(&geometry).segment_at(1), 1);
        let [first, second] = [1, 2].map(|byte| Key::new([byte; 32]));
        let image_key = Key::random().unwrap();
        publish(&device, &geometry, 7, Some((&first, &image_key))).unwrap();
        let found = |key| read_superblock(&device).unwrap().unwrap().image_key(key);
        assert!(found(Some(&first)).unwrap() == Some(image_key.clone()));
        assert!(matches!(found(None), Err(ImageError::Encrypted { .. })));
        assert!(matches!(found(Some(&second)), Err(ImageError::WrongKey)));
        let refused = change_key(&device, &second, &first).unwrap_err();
        assert!(matches!(refused, OpenError::Image(ImageError::WrongKey)), "{refused}");
        assert!(found(Some(&first)).is_ok());
        change_key(&device, &first, &second).unwrap();
        assert!(found(Some(&second)).unwrap() == Some(image_key));
        assert!(matches!(found(Some(&first)), Err(ImageError::WrongKey)));
        publish(&device, &geometry, 7, None).unwrap();
        assert!(matches!(found(Some(&first)), Err(ImageError::NotEncrypted { .. })));
        assert!(found(None).unwrap().is_none());
    }

    #[test]
    fn a_loss_at_any_step_of_a_change_of_keys_leaves_one_key_and_then_two_equal_copies() {
        let geometry = Geometry::new(4 * BLOCK_BYTES, GRAIN_SHIFT_TRAP, None, BUFFERS).unwrap();
        let keys = [1, 2].map(|byte| Key::new([byte; 32]));
        let image_key = Key::random().unwrap();
        let (mut apart, mut with_key) = (0, [0, 0]);
        for (cut, seed) in (0..6).flat_map(|cut| (0..8).map(move |seed| (cut, seed))) {
            let device = SimDevice::new(Layout::of(&geometry).segment_at(1), seed);
            publish(&device, &geometry, 7, Some((&keys[0], &image_key))).unwrap();
            device.cut_after(device.ops() + cut);
            let is_acknowledged = change_key(&device, &keys[0], &keys[1]).is_ok();
            assert_eq!(is_acknowledged, cut >= 4, "the steps are counted");
            let head = read_superblock(&device.power_cycle(seed)).unwrap().unwrap();
            let opens = |head: &Head| keys.each_ref().map(|key| head.image_key(Some(key)).is_ok());
            let before = opens(&head);
            assert!(before[0] != before[1], "cut {cut}, seed {seed}: {before:?}");
            assert!(before[1] || !is_acknowledged, "cut {cut}, seed {seed}");
            apart += u32::from(head.is_outdated);
            with_key[usize::from(before[1])] += 1;
            // Whenever the power is lost while the copies are made equal, the key stays.
            for cut in 0..=4 {
                let device = device.power_cycle(seed);
                device.cut_after(cut);
                assert!(renew(&device, &head).is_ok() || cut < 4, "cut {cut}, seed {seed}");
                let device = device.power_cycle(seed + cut);
                let after = read_superblock(&device).unwrap().unwrap();
                assert_eq!(opens(&after), before, "cut {cut}, seed {seed}");
                renew(&device, &after).unwrap();
                for lost in [0, SUPERBLOCK_COPY] {
                    device.flip_bit(lost + 20, 0);
                    let other = read_superblock(&device).unwrap().unwrap();
                    assert_eq!(opens(&other), before, "the other copy, cut {cut}, seed {seed}");
                    device.flip_bit(lost + 20, 0);
                }
            }
        }
        assert!(apart > 5 && with_key.iter().all(|times| *times > 5), "{apart}, {with_key:?}");
    }
}
