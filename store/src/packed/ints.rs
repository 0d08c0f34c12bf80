//! A small set of integers only: its members in order, all of the same width.
//!
//! ```text
//! bytes of each member u8: 2, 4 or 8 | member, signed      for each member, from the lowest up
//! ```
//! The width is that of the widest member there ever was.

/// Bytes of the width.
const HEAD: usize = 1;

/// Whether these bytes are members in order, and nothing else.
pub(crate) fn is_whole(packed: &[u8]) -> bool {
    let is_even = matches!(packed, [2 | 4 | 8, rest @ ..]
        if !rest.is_empty() && rest.len().is_multiple_of(usize::from(packed[0])));
    is_even && iter(packed).zip(iter(packed).skip(1)).all(|(member, next)| member < next)
}

fn width(packed: &[u8]) -> usize {
    packed.first().map_or(2, |width| usize::from(*width))
}

/// The number of members.
pub(crate) fn len(packed: &[u8]) -> usize {
    packed.len().saturating_sub(HEAD) / width(packed)
}

/// All members, in order.
pub(crate) fn iter(packed: &[u8]) -> impl Iterator<Item = i64> {
    (0..len(packed)).map(|index| at(packed, index))
}

/// The member at a position from 0 on.
pub(crate) fn at(packed: &[u8], index: usize) -> i64 {
    let width = width(packed);
    let bytes = &packed[HEAD + index * width..][..width];
    let sign = if bytes[width - 1] & 0x80 == 0 { 0 } else { 0xff };
    let mut wide = [sign; 8];
    wide[..width].copy_from_slice(bytes);
    i64::from_le_bytes(wide)
}

/// The position of a member, or the one that it would have.
pub(crate) fn search(packed: &[u8], member: i64) -> Result<usize, usize> {
    let (mut low, mut high) = (0, len(packed));
    while low < high {
        let middle = (low + high) / 2;
        match at(packed, middle).cmp(&member) {
            std::cmp::Ordering::Equal => return Ok(middle),
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    Err(low)
}

/// Enters a member that the set does not have, at its position.
pub(crate) fn insert(packed: &mut Vec<u8>, index: usize, member: i64) {
    let needed = width_of(member);
    if packed.is_empty() {
        packed.push(needed as u8);
    } else if needed > width(packed) {
        let members: Vec<i64> = iter(packed).collect();
        packed.clear();
        packed.push(needed as u8);
        members.iter().for_each(|member| packed.extend(&member.to_le_bytes()[..needed]));
    }
    let (width, bytes) = (width(packed), member.to_le_bytes());
    let at = HEAD + index * width;
    packed.splice(at..at, bytes[..width].iter().copied());
}

/// Takes out the member at a position.
pub(crate) fn remove(packed: &mut Vec<u8>, index: usize) {
    let width = width(packed);
    packed.drain(HEAD + index * width..HEAD + (index + 1) * width);
}

fn width_of(member: i64) -> usize {
    match member {
        -0x8000..=0x7fff => 2,
        -0x8000_0000..=0x7fff_ffff => 4,
        _ => 8,
    }
}

/// The integer that a member's name spells, if it spells one in the only way: a member is read back
/// by its name.
pub(crate) fn parse(name: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match name {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut size = 0u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // Nineteen digits are less than 2^64.
        size = size * 10 + u64::from(digit - b'0');
    }
    if is_negative { 0i64.checked_sub_unsigned(size) } else { i64::try_from(size).ok() }
}

/// Calls `f` with the name of an integer.
pub(crate) fn with_name<R>(member: i64, f: impl FnOnce(&[u8]) -> R) -> R {
    f(itoa::Buffer::new().format(member).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDGES: [i64; 12] = [
        i64::MIN,
        -0x8000_0001,
        -0x8000_0000,
        -0x8001,
        -0x8000,
        -1,
        0,
        0x7fff,
        0x8000,
        0x7fff_ffff,
        0x8000_0000,
        i64::MAX,
    ];

    #[test]
    fn members_lie_in_order_and_widen_once() {
        let mut packed = Vec::new();
        for member in [5, 0x7fff, -1, 0x8000, 3, i64::MIN, 70_000] {
            let index = search(&packed, member).unwrap_err();
            insert(&mut packed, index, member);
            assert!(is_whole(&packed) && search(&packed, member) == Ok(index));
        }
        assert_eq!(packed[0], 8);
        let members: Vec<i64> = iter(&packed).collect();
        assert_eq!(members, [i64::MIN, -1, 3, 5, 0x7fff, 0x8000, 70_000]);
        remove(&mut packed, 0);
        assert_eq!((packed[0], len(&packed), at(&packed, 0)), (8, 6, -1));
    }

    #[test]
    fn each_width_holds_its_edges() {
        for member in EDGES {
            let mut packed = Vec::new();
            insert(&mut packed, 0, member);
            assert_eq!(at(&packed, 0), member);
        }
        let widths = EDGES.map(width_of);
        assert_eq!(widths, [8, 8, 4, 4, 2, 2, 2, 2, 4, 4, 8, 8]);
    }

    #[test]
    fn a_name_spells_an_integer_in_one_way_only() {
        for member in EDGES {
            assert_eq!(with_name(member, parse), Some(member));
        }
        let others = ["", "-", "-0", "+1", "01", " 1", "1 ", "1.0", "9223372036854775808", "1e3"];
        for name in others.iter().chain(&["-9223372036854775809", "99999999999999999999"]) {
            assert_eq!(parse(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn what_is_out_of_order_or_cut_short_is_not_whole() {
        for packed in [&[][..], &[2], &[2, 1], &[3, 1, 2, 3], &[2, 1, 0, 1, 0], &[2, 2, 0, 1, 0]] {
            assert!(!is_whole(packed), "{packed:?}");
        }
        assert!(is_whole(&[2, 255, 255, 1, 0]));
    }
}
