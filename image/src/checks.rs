//! The checks of a frame's payload, by which a reader knows that a block is what was written:
//! checksums, or the tags of an encrypted frame. Checking an encrypted block decrypts it.

use crate::cipher::{FrameKey, Key};
use crate::error::ImageError;
use crate::format::{
    CHECK_BYTES, FRAME_AES, FRAME_HEADER_BYTES, SALT_BYTES, SEAL_BYTES, SUM_BYTES, checksum,
};
use crate::frame::{Frame, FrameTail, tail_bytes, tail_of};
use xxhash_rust::xxh3::xxh3_128;

/// The checks of one frame, a check for each 4 KiB of payload as stored.
pub(crate) enum Checks {
    /// Of a frame of version 1.
    Sums64(Box<[u64]>),
    Sums128(Box<[u128]>),
    Tags {
        tags: Box<[[u8; SUM_BYTES]]>,
        salt: [u8; SALT_BYTES],
    },
}

/// A block that is not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Its checksum is another; of long ones the lower half.
    Sum { expected: u64, found: u64 },
    /// It does not have its tag.
    Tag,
}

impl Checks {
    /// No checks, for a frame of which only the sizes matter.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self::Sums128(Box::default())
    }

    /// The checks in a frame's tail.
    pub(crate) fn of(frame: &Frame, tail: &FrameTail<'_>) -> Self {
        let (wide, _) = tail.sums.as_chunks::<SUM_BYTES>();
        match tail.seal.first_chunk() {
            None => {
                let (narrow, _) = tail.sums.as_chunks::<8>();
                Self::Sums64(narrow.iter().map(|sum| u64::from_le_bytes(*sum)).collect())
            }
            Some(salt) if frame.is_encrypted() => Self::Tags { tags: wide.into(), salt: *salt },
            Some(_) => Self::Sums128(wide.iter().map(|sum| u128::from_le_bytes(*sum)).collect()),
        }
    }

    /// Makes ready to check blocks of the frame. `key` is the image's.
    ///
    /// # Panics
    /// The frame is encrypted and there is no key: [`check_seal`] has refused it.
    pub(crate) fn checker(&self, frame: &Frame, key: Option<&Key>) -> Checker<'_> {
        let key = match self {
            Self::Tags { salt, .. } => {
                let key = key.map(|key| FrameKey::of(key, &frame.header, *salt));
                assert!(key.is_some(), "an encrypted frame, and no key");
                key
            }
            _ => None,
        };
        Checker { checks: self, payload_bytes: frame.payload(), key }
    }
}

/// Checks blocks of one frame.
pub(crate) struct Checker<'c> {
    checks: &'c Checks,
    payload_bytes: usize,
    key: Option<FrameKey>,
}

impl Checker<'_> {
    /// Checks the block of this number, with which `bytes` begin, and decrypts it in place if its
    /// frame is encrypted.
    pub(crate) fn check(&self, number: usize, bytes: &mut [u8]) -> Result<(), Wrong> {
        let len = CHECK_BYTES.min(self.payload_bytes - number * CHECK_BYTES);
        let block = &mut bytes[..len];
        let (expected, found) = match (self.checks, &self.key) {
            (Checks::Sums64(sums), _) => (sums[number].into(), checksum(block).into()),
            (Checks::Sums128(sums), _) => (sums[number], xxh3_128(block)),
            (Checks::Tags { tags, .. }, Some(key)) => {
                let is_right = key.open_block(number, block, &tags[number]);
                return if is_right { Ok(()) } else { Err(Wrong::Tag) };
            }
            (Checks::Tags { .. }, None) => return Err(Wrong::Tag),
        };
        match expected == found {
            true => Ok(()),
            false => Err(Wrong::Sum { expected: expected as u64, found: found as u64 }),
        }
    }
}

/// Whether all checks of a frame are right, given all its bytes that were written. Without its key
/// only the tables of an encrypted frame are checked.
pub(crate) fn is_whole(frame: &Frame, bytes: &[u8], key: Option<&Key>) -> bool {
    let (payload, rest) = bytes[FRAME_HEADER_BYTES..].split_at(frame.payload());
    let tail = tail_bytes(frame, rest);
    if checksum(tail) != frame.header.tail_checksum.get() {
        return false;
    }
    if frame.is_encrypted() && key.is_none() {
        return true;
    }
    if check_seal(frame, tail, key, 0).is_err() {
        return false;
    }
    let checks = Checks::of(frame, &tail_of(frame, tail));
    let checker = checks.checker(frame, key);
    // To check an encrypted block is to decrypt it, and the bytes are to stay as they are.
    let mut copy = [0; CHECK_BYTES];
    payload.chunks(CHECK_BYTES).enumerate().all(|(number, block)| {
        copy[..block.len()].copy_from_slice(block);
        checker.check(number, &mut copy).is_ok()
    })
}

/// Refuses the tail of a frame that is encrypted though there is no key, that is not encrypted
/// though the image is, or whose seal is not of this header and these tables.
pub(crate) fn check_seal(
    frame: &Frame,
    tail: &[u8],
    key: Option<&Key>,
    offset_bytes: u64,
) -> Result<(), ImageError> {
    let is_encrypted = frame.header.flags.get() & FRAME_AES != 0;
    match key {
        None if !is_encrypted => Ok(()),
        Some(key) if is_encrypted => {
            let sealed = tail.split_last_chunk::<SEAL_BYTES>();
            let opens = |(tables, seal): (&[u8], &[u8; SEAL_BYTES])| {
                FrameKey::open(key, &frame.header, tables, seal)
            };
            match sealed.and_then(opens) {
                Some(_) => Ok(()),
                None => Err(ImageError::Forged { what: "frame table", offset_bytes }),
            }
        }
        None => Err(ImageError::Encrypted { offset_bytes }),
        Some(_) => Err(ImageError::NotEncrypted { offset_bytes }),
    }
}
