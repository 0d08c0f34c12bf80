//! A small set: the names of its members one after another in the value of one record.
//!
//! ```text
//! name length u8 | name      for each member, in order of insertion
//! ```

/// Whether these bytes are names and nothing else.
pub(crate) fn is_whole(packed: &[u8]) -> bool {
    let read: usize = iter(packed).map(|name| 1 + name.len()).sum();
    read == packed.len() && !packed.is_empty()
}

/// The names of all members.
pub(crate) fn iter(packed: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = packed;
    std::iter::from_fn(move || {
        let (len, body) = rest.split_first()?;
        let (name, body) = body.split_at_checked(usize::from(*len))?;
        rest = body;
        Some(name)
    })
}

/// Whether the set has a member.
pub(crate) fn has(packed: &[u8], member: &[u8]) -> bool {
    iter(packed).any(|name| name == member)
}

/// Adds a member that the set does not have; its name is short enough.
pub(crate) fn push(packed: &mut Vec<u8>, member: &[u8]) {
    packed.push(member.len() as u8);
    packed.extend_from_slice(member);
}

/// Takes a member out. Returns whether it was there.
pub(crate) fn remove(packed: &mut Vec<u8>, member: &[u8]) -> bool {
    let before = iter(packed).take_while(|name| *name != member);
    let at: usize = before.map(|name| 1 + name.len()).sum();
    if at == packed.len() {
        return false;
    }
    packed.drain(at..=at + member.len());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_lie_in_the_order_of_insertion() {
        let mut packed = Vec::new();
        for name in ["b", "", "a", "cc"] {
            push(&mut packed, name.as_bytes());
        }
        assert!(is_whole(&packed) && has(&packed, b"") && !has(&packed, b"c"));
        assert!(remove(&mut packed, b"") && !remove(&mut packed, b""));
        assert_eq!(iter(&packed).collect::<Vec<_>>(), [&b"b"[..], b"a", b"cc"]);
        assert!(remove(&mut packed, b"cc") && remove(&mut packed, b"b"));
        assert_eq!(packed, [1, b'a']);
        assert!(!is_whole(&packed[..1]) && !is_whole(&[]));
    }
}
