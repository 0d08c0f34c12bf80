//! Fetching the frames of a restore point, pack by pack, and checking all of them.

use std::collections::HashMap;

use perdura_image::copying::{Part, whole_frame};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::error::BackupError;
use crate::names::PackId;
use crate::object::Seal;
use crate::point::{Piece, Point, Shipped};
use crate::vault::Vault;

/// Times that an object is asked for which the vault says it has not: it may be listed, or found,
/// late.
const ASKED_MAX: u32 = 3;

/// A piece and what comes before it in its segment.
struct Wanted<'p> {
    part: &'p Part,
    piece: &'p Piece,
    /// Offset in the segment where the piece begins.
    start: u32,
    /// Sequence number of the frame before it; 0: there is none.
    after_seq: u64,
}

/// Where the frames go.
pub(crate) trait Sink {
    /// Takes a frame, whose checksums are right, for its place in a segment.
    fn frame(&mut self, segment: u32, at: u32, bytes: &[u8]) -> Result<(), BackupError>;

    /// Says how many bytes of pieces are done, of how many.
    fn progress(&mut self, done: u64, of: u64);
}

/// Fetches the pieces of a point that `is_wanted` names by its segment and its number there.
pub(crate) fn fetch(
    vault: &dyn Vault,
    seal: &Seal,
    point: &Point,
    is_wanted: impl Fn(u32, usize) -> bool,
    sink: &mut dyn Sink,
) -> Result<(), BackupError> {
    let mut by_pack: HashMap<PackId, Vec<Wanted<'_>>> = HashMap::new();
    let mut of = 0;
    for Shipped { part, pieces } in &point.shipped {
        let (mut start, mut after_seq) = (0, 0);
        for (number, piece) in pieces.iter().enumerate() {
            if is_wanted(part.segment, number) {
                of += u64::from(piece.bytes);
                let wanted = Wanted { part, piece, start, after_seq };
                by_pack.entry(piece.pack).or_default().push(wanted);
            }
            (start, after_seq) = (piece.end, piece.last_seq);
        }
    }
    let mut packs: Vec<_> = by_pack.into_iter().collect();
    packs.sort_unstable_by_key(|(id, _)| *id);
    let mut done = 0;
    sink.progress(done, of);
    for (id, wanted) in packs {
        let name = id.name(point.image_id);
        let body = seal.open(&name, get(vault, &name)?)?;
        for wanted in wanted {
            unpack(point, &name, &body, &wanted, sink)?;
            done += u64::from(wanted.piece.bytes);
            sink.progress(done, of);
        }
    }
    Ok(())
}

fn get(vault: &dyn Vault, name: &str) -> Result<Vec<u8>, BackupError> {
    let mut asked = 1;
    loop {
        match vault.get(name) {
            Err(error) if error.is_missing && asked < ASKED_MAX => asked += 1,
            Err(error) if error.is_missing => {
                let why = "a restore point names it, and it is not there: another point may do";
                return Err(BackupError::object(name, why));
            }
            got => return Ok(got?),
        }
    }
}

/// Takes a piece apart. Its frames must be those that the point says, which have numbers in order.
fn unpack(
    point: &Point,
    name: &str,
    body: &[u8],
    wanted: &Wanted<'_>,
    sink: &mut dyn Sink,
) -> Result<(), BackupError> {
    let Wanted { part, piece, start, after_seq } = wanted;
    let wrong = |why: &str| {
        let range = format!("{} to {} of segment {}", start, piece.end, part.segment);
        BackupError::object(name, format!("the piece for bytes {range} {why}"))
    };
    let end = piece.offset as usize + piece.bytes as usize;
    let bytes = body.get(piece.offset as usize..end).ok_or_else(|| wrong("is cut short"))?;
    if xxh3_64(bytes) != piece.sum {
        return Err(wrong("has a wrong checksum"));
    }
    let (mut rest, mut at, mut last_seq) = (bytes, *start, *after_seq);
    let mut chain = Xxh3::new();
    while !rest.is_empty() {
        let frame = whole_frame(rest, &point.geometry, point.image_id, None, at.into());
        let frame = frame.ok_or_else(|| wrong("has a frame that is not whole"))?;
        let follows = if at == 0 { frame.seq == part.first_seq } else { frame.seq > last_seq };
        if !follows || frame.seq > point.commit.last_seq {
            let seq = frame.seq;
            return Err(wrong(&format!("has frame {seq}, which is not of this commit")));
        }
        chain.update(frame.header());
        if frame.total_bytes > piece.end.saturating_sub(at) {
            return Err(wrong("is longer than it should be"));
        }
        sink.frame(part.segment, at, frame.bytes)?;
        rest = &rest[frame.bytes.len()..];
        (at, last_seq) = (at + frame.total_bytes, frame.seq);
    }
    match at == piece.end && last_seq == piece.last_seq && chain.digest() == piece.chain {
        true => Ok(()),
        false => Err(wrong("ends elsewhere than it should")),
    }
}
