//! Where the buckets of a table lie.
//!
//! The first two segments, of 8 buckets each, are one object each, whose offset the root's word
//! holds. The other segments come in pieces, each of which is made when its first bucket is needed:
//! the root's word is the offset of a list of the pieces. So a table that has just doubled has not
//! doubled its memory; at most a sixteenth of its memory waits for buckets.
//! ```text
//! list: 8 B offset of each piece, 0: not made; 64 B if there are up to 8 of them, else 512 B
//! piece of segment k: 8 buckets up to segment 7, then eight times as many every third segment
//! ```
//! Pieces have few sizes, because each size is a size class, and each class costs a lane half a
//! run.

use perdura_slots::{Heat, Lane, LaneId, OBJECT_BYTES_MAX, Op, Stop};

use super::{BUCKET_BYTES, FIRST_BUCKETS, ROOT_WORDS, SEGMENTS};

/// The first segment that comes in pieces.
const FIRST_IN_PIECES: usize = 2;
const SHORT_LIST_BYTES: u64 = 64;
const LONG_LIST_BYTES: u64 = 512;

/// The number of buckets in each piece of a segment, as a power of two.
static PIECE_SHIFTS: [u8; SEGMENTS] = {
    let mut shifts = [3; SEGMENTS];
    let mut segment = 8;
    while segment < SEGMENTS {
        shifts[segment] = 3 + (segment - 5) as u8 / 3 * 3;
        segment += 1;
    }
    shifts
};

/// The segment of a bucket, and the bucket's number in the segment.
fn place(bucket: u64) -> (usize, u64) {
    if bucket < FIRST_BUCKETS {
        return (0, bucket);
    }
    let log = 63 - bucket.leading_zeros();
    ((log - 2) as usize, bucket - (1 << log))
}

/// The offset of a bucket. `word` reads a word of the root, `load` any word of the region.
#[inline(always)]
pub(crate) fn bucket_at(word: impl Fn(u64) -> u64, load: impl Fn(u64) -> u64, bucket: u64) -> u64 {
    let (segment, index) = place(bucket);
    let at = word(1 + segment as u64);
    if segment < FIRST_IN_PIECES {
        return at.wrapping_add(index * BUCKET_BYTES);
    }
    let shift = PIECE_SHIFTS[segment];
    let piece = load(at + (index >> shift) * 8);
    // A look ahead without the shard's lock may find any word there.
    piece.wrapping_add((index & ((1 << shift) - 1)) * BUCKET_BYTES)
}

/// Makes the memory of the bucket behind the last, if it has none. Returns false if there is no
/// memory for the bucket.
pub(super) fn make_room(op: &mut Op<'_>, id: LaneId, root: u64, bucket: u64) -> Result<bool, Stop> {
    let (segment, index) = place(bucket);
    let Some(&shift) = PIECE_SHIFTS.get(segment) else { return Ok(false) };
    if index & ((1 << shift) - 1) != 0 {
        return Ok(true);
    }
    let word_at = root + 8 * (1 + segment as u64);
    let list = match index {
        _ if segment < FIRST_IN_PIECES => None,
        0 => match new_list(op, id, segment)? {
            Some(list) => Some(list),
            None => return Ok(false),
        },
        _ => Some(op.lane(id).load(word_at)),
    };
    let Some(piece) = alloc(op, id, BUCKET_BYTES << shift)? else {
        list.filter(|_| index == 0).into_iter().for_each(|list| op.free(list));
        return Ok(false);
    };
    match list {
        None => op.store(id, word_at, piece)?,
        Some(list) => {
            op.store(id, list + (index >> shift) * 8, piece)?;
            op.store(id, word_at, list)?;
        }
    }
    Ok(true)
}

fn new_list(op: &mut Op<'_>, id: LaneId, segment: usize) -> Result<Option<u64>, Stop> {
    let pieces = FIRST_BUCKETS << (segment - 1) >> PIECE_SHIFTS[segment];
    let bytes = if pieces <= 8 { SHORT_LIST_BYTES } else { LONG_LIST_BYTES };
    let Some(list) = alloc(op, id, bytes)? else { return Ok(None) };
    op.fill(id, list, bytes as usize, Some(Heat::COLD))?.fill(0);
    Ok(Some(list))
}

fn alloc(op: &mut Op<'_>, id: LaneId, bytes: u64) -> Result<Option<u64>, Stop> {
    if bytes > OBJECT_BYTES_MAX {
        return Ok(None);
    }
    let taken =
        if bytes == SHORT_LIST_BYTES { op.alloc_lasting_grain(id) } else { op.alloc(id, bytes) };
    match taken {
        Ok(at) => Ok(Some(at)),
        Err(Stop::OutOfMemory { .. }) => Ok(None),
        Err(stop) => Err(stop),
    }
}

/// Calls `f` with all objects that a table's buckets lie in, and with the lists of pieces. A list
/// is read only after `f` had it.
pub(crate) fn for_each<E>(
    lane: &Lane<'_>,
    root: &[u64; ROOT_WORDS],
    mut f: impl FnMut(u64) -> Result<(), E>,
) -> Result<(), E> {
    let Some(last) = root[0].checked_sub(1).map(place) else { return Ok(()) };
    for (segment, &at) in root[1..].iter().enumerate().take(last.0 + 1) {
        f(at)?;
        if segment < FIRST_IN_PIECES {
            continue;
        }
        let end = if segment == last.0 { last.1 + 1 } else { FIRST_BUCKETS << (segment - 1) };
        for piece in 0..end.div_ceil(1 << PIECE_SHIFTS[segment]) {
            f(lane.load(at + piece * 8))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_as_long_as_their_segments_and_pieces_a_sixteenth_of_the_table() {
        for (segment, shift) in PIECE_SHIFTS.iter().enumerate().skip(FIRST_IN_PIECES) {
            let buckets = FIRST_BUCKETS << (segment - 1);
            assert_eq!(place(buckets), (segment, 0));
            assert_eq!(place(2 * buckets - 1), (segment, buckets - 1));
            let pieces = buckets >> shift;
            assert!((2..=64).contains(&pieces) && (pieces >= 16 || buckets <= 64), "{segment}");
        }
    }
}
