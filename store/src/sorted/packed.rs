//! A small sorted set: its members one after another in one record's value.
//!
//! ```text
//! score f64 | name length u16 | name      for each member, by score, then name
//! ```

use super::node::{Edge, order_of};

/// Most members a packed set has.
pub(super) const MEMBERS_MAX: usize = 128;
/// Most bytes a packed set has.
pub(super) const BYTES_MAX: usize = 2048;
const HEAD: usize = 10;

/// Scores and names, in order.
pub(super) fn iter(packed: &[u8]) -> impl Iterator<Item = (f64, &[u8])> {
    let mut rest = packed;
    std::iter::from_fn(move || {
        let (head, body) = rest.split_first_chunk::<HEAD>()?;
        let [s0, s1, s2, s3, s4, s5, s6, s7, l0, l1] = *head;
        let score = f64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        let (name, body) = body.split_at_checked(usize::from(u16::from_le_bytes([l0, l1])))?;
        rest = body;
        Some((score, name))
    })
}

/// Score of one member.
pub(super) fn score(packed: &[u8], member: &[u8]) -> Option<f64> {
    iter(packed).find(|(_, name)| *name == member).map(|(score, _)| score)
}

/// How many members lie before the edge.
pub(super) fn members_before(packed: &[u8], edge: &Edge<'_>) -> u64 {
    iter(packed).take_while(|(score, name)| edge.is_behind(*score, || name)).count() as u64
}

/// The set with `member` at `score`, or without it if that is `None`. The answer is `None` if it
/// would be too large to be packed.
pub(super) fn with(packed: &[u8], member: &[u8], score: Option<f64>) -> Option<Vec<u8>> {
    let mut new = score;
    let mut out = Vec::with_capacity(packed.len() + HEAD + member.len());
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
    (members <= MEMBERS_MAX && out.len() <= BYTES_MAX).then_some(out)
}

/// Members in order, packed, unless they are too many.
pub(super) fn pack(members: &[(f64, &[u8])]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    if members.len() > MEMBERS_MAX {
        return None;
    }
    for (score, name) in members {
        push(&mut out, *score, name)?;
    }
    (out.len() <= BYTES_MAX).then_some(out)
}

fn push(out: &mut Vec<u8>, score: f64, name: &[u8]) -> Option<()> {
    out.extend_from_slice(&score.to_le_bytes());
    out.extend_from_slice(&u16::try_from(name.len()).ok()?.to_le_bytes());
    out.extend_from_slice(name);
    (out.len() <= BYTES_MAX).then_some(())
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
