//! A small sorted set: its members one after another in the value of one record.
//!
//! ```text
//! score f64 | name length, as a packed hash has it | name      for each member, by score, then name
//! ```

use super::{BYTES_MAX, len_bytes, push_len, split_len};
use crate::tree::{Edge, order_of};

/// Most members of a packed set.
const MEMBERS_MAX: usize = 128;
/// Bytes of a score.
const SCORE_BYTES: usize = 8;

/// Whether these bytes are members in order, each with a score that is a number, and nothing else.
pub(crate) fn is_whole(packed: &[u8]) -> bool {
    let mut members = iter(packed).peekable();
    let mut read = 0;
    while let Some((score, name)) = members.next() {
        read += bytes_of(name);
        let is_behind =
            |next: &(f64, &[u8])| order_of(score, next.0).then_with(|| name.cmp(next.1)).is_lt();
        if score.is_nan() || !members.peek().is_none_or(is_behind) {
            return false;
        }
    }
    read == packed.len() && !packed.is_empty()
}

/// The scores and names of all members, in order.
pub(crate) fn iter(packed: &[u8]) -> impl Iterator<Item = (f64, &[u8])> {
    let mut rest = packed;
    std::iter::from_fn(move || {
        let (score, body) = rest.split_first_chunk::<SCORE_BYTES>()?;
        let (len, body) = split_len(body)?;
        let (name, body) = body.split_at_checked(len)?;
        rest = body;
        Some((f64::from_le_bytes(*score), name))
    })
}

/// The score of one member.
pub(crate) fn score(packed: &[u8], member: &[u8]) -> Option<f64> {
    iter(packed).find(|(_, name)| *name == member).map(|(score, _)| score)
}

/// The number of members before the edge.
pub(crate) fn members_before(packed: &[u8], edge: &Edge<'_>) -> u64 {
    iter(packed).take_while(|(score, name)| edge.is_behind(*score, || name)).count() as u64
}

/// The set with `member` at `score`, or without the member if `score` is `None`. Returns `None` if
/// the set would be too large to be packed.
pub(crate) fn with(packed: &[u8], member: &[u8], score: Option<f64>) -> Option<Vec<u8>> {
    let mut new = score;
    let mut out = Vec::with_capacity(packed.len() + bytes_of(member));
    let mut members = 0;
    for (old, name) in iter(packed).filter(|(_, name)| *name != member) {
        if let Some(score) = new
            && order_of(score, old).then_with(|| member.cmp(name)).is_lt()
        {
            push(&mut out, score, member)?;
            (new, members) = (None, members + 1);
        }
        push(&mut out, old, name)?;
        members += 1;
    }
    if let Some(score) = new {
        push(&mut out, score, member)?;
        members += 1;
    }
    (members <= MEMBERS_MAX).then_some(out)
}

/// These members, which are in order, as a packed set. Returns `None` if the set would be too large
/// to be packed.
pub(crate) fn pack(members: &[(f64, &[u8])]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    if members.len() > MEMBERS_MAX {
        return None;
    }
    for (score, name) in members {
        push(&mut out, *score, name)?;
    }
    Some(out)
}

fn push(out: &mut Vec<u8>, score: f64, name: &[u8]) -> Option<()> {
    if out.len() + bytes_of(name) > BYTES_MAX {
        return None;
    }
    out.extend_from_slice(&score.to_le_bytes());
    push_len(out, name.len());
    out.extend_from_slice(name);
    Some(())
}

/// Bytes of a member with its score and its length.
fn bytes_of(name: &[u8]) -> usize {
    SCORE_BYTES + len_bytes(name.len()) + name.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_lie_by_score_then_name() {
        let mut packed = Vec::new();
        for (name, score) in [("b", 2.0), ("a", 2.0), ("c", f64::NEG_INFINITY), ("d", -0.0)] {
            packed = with(&packed, name.as_bytes(), Some(score)).unwrap();
        }
        packed = with(&packed, b"b", Some(0.0)).unwrap();
        let names: Vec<&[u8]> = iter(&packed).map(|(_, name)| name).collect();
        assert_eq!(names, [b"c", b"b", b"d", b"a"]);
        assert_eq!(score(&packed, b"d").map(f64::to_bits), Some((-0.0f64).to_bits()));
        let edge = Edge::Score { score: 0.0, after: true };
        assert_eq!(members_before(&packed, &edge), 3);
        let members: Vec<_> = iter(&packed).collect();
        assert_eq!(pack(&members).unwrap(), packed);
        assert_eq!(iter(&with(&packed, b"c", None).unwrap()).count(), 3);
    }

    #[test]
    fn too_many_or_too_large_is_not_packed() {
        let mut packed = Vec::new();
        for member in 0..MEMBERS_MAX as u8 {
            packed = with(&packed, &[member], Some(0.0)).unwrap();
        }
        assert_eq!(with(&packed, b"one more", Some(0.0)), None);
        assert!(with(&packed, &[3], Some(1.0)).is_some());
        assert_eq!(with(&[], &[0; BYTES_MAX], Some(0.0)), None);
    }
}
