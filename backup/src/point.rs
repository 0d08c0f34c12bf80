//! A restore point: a commit of an image, and where in the vault its frames are.
//!
//! The body of its object is a block of LZ4 behind its length (u32). In it, little-endian:
//!
//! ```text
//!   0  magic "PRDPOINT"      8  version u32 = 1       12  log2 of the grain's bytes u32
//!  16  image id u64         24  reserved bytes u64    32  segment bytes u64
//!  40  most segments u32    44  segments u32          48  commit number u64
//!  56  last sequence u64    64  epoch u64             72  region bytes u64
//!  80  ms since 1970 u64    88  incarnation u32       92  packs u32
//!  96  parts u32           100  pieces u32
//! 104  the image's key, encrypted by the user's, 60 B; zeros: frames are not encrypted
//! 164  packs:   ms u64 | random u64 | body bytes u32
//!      parts:   segment u32 | used bytes u32 | first sequence u64 | pieces u32
//!      pieces, part by part: pack u32 | offset u32 | bytes u32 | end in the segment u32
//!               | last sequence u64 | XXH3-64 of the bytes u64 | XXH3-64 of the headers u64
//! ```

use std::collections::HashMap;

use perdura_image::copying::{BUFFERS, Commit, Geometry, Part, check_sizes};
use perdura_image::superblock::Head;
use perdura_image::{Key, OpenError};

use crate::error::BackupError;
use crate::names::{self, PackId};
use crate::object::Seal;
use crate::vault::Vault;

const MAGIC: &[u8; 8] = b"PRDPOINT";
const VERSION: u32 = 1;
const SEALED_KEY_BYTES: usize = 60;

/// Frames of a segment, one after another, in a pack. Gaps between frames are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) pack: PackId,
    /// Offset in the pack's body.
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
    /// Offset in the segment where the frames end. They begin where the piece before ends.
    pub(crate) end: u32,
    /// Sequence number of the last frame.
    pub(crate) last_seq: u64,
    /// XXH3-64 of the bytes.
    pub(crate) sum: u64,
    /// XXH3-64 of the frames' headers, one after another.
    pub(crate) chain: u64,
}

/// A part of a commit, and its pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shipped {
    pub(crate) part: Part,
    pub(crate) pieces: Vec<Piece>,
}

/// A restore point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) geometry: Geometry,
    pub(crate) image_id: u64,
    /// The image's key, encrypted by the user's.
    pub(crate) sealed_key: Option<[u8; SEALED_KEY_BYTES]>,
    /// The commit; its parts are in `shipped`.
    pub(crate) commit: Commit,
    pub(crate) shipped: Vec<Shipped>,
    /// Bytes of the body of each pack that has pieces.
    pub(crate) packs: HashMap<PackId, u32>,
}

impl Point {
    /// The superblock of the image.
    pub(crate) fn head(&self) -> Head {
        Head::new(self.geometry, self.image_id, self.sealed_key)
    }

    /// The key of the image's frames and commits, of which `key` is the user's.
    pub(crate) fn image_key(&self, key: Option<&Key>) -> Result<Option<Key>, BackupError> {
        Ok(self.head().image_key(key).map_err(OpenError::from)?)
    }

    /// Bytes of the pieces.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces().map(|piece| u64::from(piece.bytes)).sum()
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.shipped.iter().flat_map(|shipped| &shipped.pieces)
    }

    /// The body of the point's object.
    pub(crate) fn body(&self) -> Vec<u8> {
        let mut packs: Vec<_> = self.pieces().map(|piece| piece.pack).collect();
        packs.sort_unstable();
        packs.dedup();
        let number_of: HashMap<_, _> = packs.iter().copied().zip(0u32..).collect();
        let mut out = Vec::new();
        let commit = &self.commit;
        out.extend_from_slice(MAGIC);
        let word = |out: &mut Vec<u8>, word: u64| out.extend_from_slice(&word.to_le_bytes());
        let half = |out: &mut Vec<u8>, half: u32| out.extend_from_slice(&half.to_le_bytes());
        half(&mut out, VERSION);
        half(&mut out, self.geometry.grain_shift);
        word(&mut out, self.image_id);
        word(&mut out, self.geometry.reserved_bytes);
        word(&mut out, self.geometry.segment_bytes);
        half(&mut out, self.geometry.segments_max);
        half(&mut out, commit.segments);
        word(&mut out, commit.number);
        word(&mut out, commit.last_seq);
        word(&mut out, commit.epoch);
        word(&mut out, commit.region_bytes);
        word(&mut out, commit.unix_ms);
        half(&mut out, commit.incarnation);
        half(&mut out, packs.len() as u32);
        half(&mut out, self.shipped.len() as u32);
        half(&mut out, self.pieces().count() as u32);
        out.extend_from_slice(&self.sealed_key.unwrap_or([0; SEALED_KEY_BYTES]));
        for pack in &packs {
            word(&mut out, pack.unix_ms);
            word(&mut out, pack.random);
            half(&mut out, self.packs.get(pack).copied().unwrap_or(0));
        }
        for Shipped { part, pieces } in &self.shipped {
            half(&mut out, part.segment);
            half(&mut out, part.used_bytes);
            word(&mut out, part.first_seq);
            half(&mut out, pieces.len() as u32);
        }
        for piece in self.pieces() {
            half(&mut out, number_of[&piece.pack]);
            half(&mut out, piece.offset);
            half(&mut out, piece.bytes);
            half(&mut out, piece.end);
            word(&mut out, piece.last_seq);
            word(&mut out, piece.sum);
            word(&mut out, piece.chain);
        }
        lz4_flex::compress_prepend_size(&out)
    }

    /// Reads the body of a point's object; an error says what is impossible.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, String> {
        let size = body.first_chunk().map(|size| u32::from_le_bytes(*size) as usize);
        // LZ4 makes no more than 255 bytes of one.
        if size.is_none_or(|size| size > body.len().saturating_mul(255)) {
            return Err("its length is impossible".into());
        }
        let bytes = lz4_flex::decompress_size_prepended(body);
        let bytes = bytes.map_err(|error| format!("it cannot be decompressed: {error}"))?;
        let mut fields = Fields(&bytes);
        let point = Self::read(&mut fields)?;
        match fields.0 {
            [] => point.check().map(|()| point),
            rest => Err(format!("{} bytes too many", rest.len())),
        }
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, String> {
        if fields.take(8)? != MAGIC {
            return Err("it is no restore point: it begins with other bytes".into());
        }
        let version = fields.half()?;
        if version != VERSION {
            return Err(format!("it has version {version}, this program reads {VERSION}"));
        }
        let (grain_shift, image_id) = (fields.half()?, fields.word()?);
        let (reserved_bytes, segment_bytes) = (fields.word()?, fields.word()?);
        let segments_max = fields.half()?;
        // The number of frame buffers is not a matter of the image.
        let buffers = BUFFERS;
        let geometry =
            Geometry { reserved_bytes, grain_shift, segment_bytes, segments_max, buffers };
        let segments = fields.half()?;
        let mut commit = Commit {
            segments,
            number: fields.word()?,
            last_seq: fields.word()?,
            epoch: fields.word()?,
            region_bytes: fields.word()?,
            unix_ms: fields.word()?,
            incarnation: fields.half()?,
            parts: Vec::new(),
        };
        let (packs, parts, pieces) = (fields.half()?, fields.half()?, fields.half()?);
        let key: [u8; SEALED_KEY_BYTES] =
            *fields.take(SEALED_KEY_BYTES)?.first_chunk().ok_or("it is cut short")?;
        // A nonce, a key and a tag of zeros are none.
        let sealed_key = (key != [0; SEALED_KEY_BYTES]).then_some(key);
        let mut ids = Vec::new();
        for _ in 0..packs {
            let id = PackId { unix_ms: fields.word()?, random: fields.word()? };
            ids.push((id, fields.half()?));
        }
        let mut counts = Vec::new();
        for _ in 0..parts {
            let (segment, used_bytes) = (fields.half()?, fields.half()?);
            commit.parts.push(Part { segment, used_bytes, first_seq: fields.word()? });
            counts.push(fields.half()?);
        }
        let mut shipped: Vec<Shipped> = Vec::new();
        for (part, count) in commit.parts.iter().zip(counts) {
            let mut pieces = Vec::new();
            for _ in 0..count {
                let number = fields.half()?;
                let id = ids.get(number as usize).ok_or("a piece is in no pack")?;
                pieces.push(Piece {
                    pack: id.0,
                    offset: fields.half()?,
                    bytes: fields.half()?,
                    end: fields.half()?,
                    last_seq: fields.word()?,
                    sum: fields.word()?,
                    chain: fields.word()?,
                });
            }
            shipped.push(Shipped { part: *part, pieces });
        }
        let packs = ids.into_iter().collect();
        let point = Self { geometry, image_id, sealed_key, commit, shipped, packs };
        match point.pieces().count() == pieces as usize {
            true => Ok(point),
            false => Err("the number of pieces is wrong".into()),
        }
    }

    /// Whether the point is one that can be restored, given its pieces.
    fn check(&self) -> Result<(), String> {
        check_sizes(&self.geometry).map_err(|error| error.to_string())?;
        if self.commit.segments > self.geometry.segments_max
            || self.commit.region_bytes > self.geometry.reserved_bytes
        {
            return Err("the commit is larger than its image".into());
        }
        let mut next = 0;
        for Shipped { part, pieces } in &self.shipped {
            let segment = part.segment;
            if segment < next || segment >= self.commit.segments {
                return Err(format!("segment {segment} is out of order"));
            }
            next = segment + 1;
            if u64::from(part.used_bytes) > self.geometry.segment_bytes {
                return Err(format!("segment {segment} is too long"));
            }
            let mut end = 0;
            for piece in pieces {
                let room = self.packs.get(&piece.pack).copied().unwrap_or(0);
                let is_inside =
                    piece.offset.checked_add(piece.bytes).is_some_and(|end| end <= room);
                if piece.end <= end || piece.bytes == 0 || !is_inside {
                    return Err(format!("a piece of segment {segment} is impossible"));
                }
                end = piece.end;
            }
            if end != part.used_bytes {
                return Err(format!("segment {segment} is not complete"));
            }
        }
        Ok(())
    }
}

/// The fields that are still to be read.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn take(&mut self, bytes: usize) -> Result<&'b [u8], String> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or("it is cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn word(&mut self) -> Result<u64, String> {
        let taken = self.take(8)?.first_chunk().ok_or("it is cut short")?;
        Ok(u64::from_le_bytes(*taken))
    }

    fn half(&mut self) -> Result<u32, String> {
        let taken = self.take(4)?.first_chunk().ok_or("it is cut short")?;
        Ok(u32::from_le_bytes(*taken))
    }
}

/// Gets a point and checks it.
pub(crate) fn get(vault: &dyn Vault, seal: &Seal, name: &str) -> Result<Point, BackupError> {
    let body = seal.open(name, vault.get(name)?)?;
    let point = Point::parse(&body).map_err(|why| BackupError::object(name, why))?;
    let (unix_ms, commit) = (point.commit.unix_ms, point.commit.number);
    let folder = names::points_folder(point.image_id);
    match names::of_point(name) == Some((unix_ms, commit)) && name.starts_with(&folder) {
        true => Ok(point),
        false => Err(BackupError::object(name, "it is the point of another name")),
    }
}
