//! A small hash: its fields one after another in the value of one record.
//!
//! ```text
//! field length u16 | value length u16 | field | value      for each field, in order of insertion
//! ```

pub(crate) mod ints;
pub(crate) mod members;
pub(crate) mod names;
pub(crate) mod small;

/// Most fields of a packed hash.
const FIELDS_MAX: usize = 128;
/// Most bytes of a packed hash.
const BYTES_MAX: usize = 2048;
/// Bytes of both lengths.
const HEAD: usize = 4;

/// Whether these bytes are fields and nothing else.
pub(crate) fn is_whole(packed: &[u8]) -> bool {
    let read: usize = iter(packed).map(|(name, value)| HEAD + name.len() + value.len()).sum();
    read == packed.len() && !packed.is_empty()
}

/// The names and values of all fields.
pub(crate) fn iter(packed: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = packed;
    std::iter::from_fn(move || {
        let ([f0, f1, v0, v1], body) = rest.split_first_chunk::<HEAD>()?;
        let field_len = usize::from(u16::from_le_bytes([*f0, *f1]));
        let value_len = usize::from(u16::from_le_bytes([*v0, *v1]));
        let (field, body) = body.split_at_checked(field_len)?;
        let (value, body) = body.split_at_checked(value_len)?;
        rest = body;
        Some((field, value))
    })
}

/// The value of one field.
pub(crate) fn get<'p>(packed: &'p [u8], field: &[u8]) -> Option<&'p [u8]> {
    iter(packed).find(|(name, _)| *name == field).map(|(_, value)| value)
}

/// The hash with `field` set to `value`, or without the field if `value` is `None`. Returns `None`
/// if the hash would be too large to be packed.
pub(crate) fn with(packed: &[u8], field: &[u8], value: Option<&[u8]>) -> Option<Vec<u8>> {
    let mut out =
        Vec::with_capacity(packed.len() + field.len() + HEAD + value.map_or(0, <[u8]>::len));
    let (mut fields, mut placed) = (0, false);
    for (name, old) in iter(packed) {
        let new = if name == field { value } else { Some(old) };
        placed |= name == field;
        if let Some(new) = new {
            push(&mut out, name, new)?;
            fields += 1;
        }
    }
    if let (false, Some(value)) = (placed, value) {
        push(&mut out, field, value)?;
        fields += 1;
    }
    (fields <= FIELDS_MAX && out.len() <= BYTES_MAX).then_some(out)
}

fn push(out: &mut Vec<u8>, field: &[u8], value: &[u8]) -> Option<()> {
    out.extend_from_slice(&u16::try_from(field.len()).ok()?.to_le_bytes());
    out.extend_from_slice(&u16::try_from(value.len()).ok()?.to_le_bytes());
    out.extend_from_slice(field);
    out.extend_from_slice(value);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_set_replaced_removed_in_place() {
        let one = with(&[], b"a", Some(b"1")).unwrap();
        let two = with(&one, b"", Some(b"22")).unwrap();
        let two = with(&two, b"a", Some(b"")).unwrap();
        assert_eq!(iter(&two).collect::<Vec<_>>(), [(&b"a"[..], &b""[..]), (b"", b"22")]);
        assert_eq!(get(&two, b""), Some(&b"22"[..]));
        let rest = with(&two, b"a", None).unwrap();
        assert_eq!(iter(&rest).count(), 1);
    }

    #[test]
    fn too_many_or_too_large_is_not_packed() {
        let mut packed = Vec::new();
        for field in 0..FIELDS_MAX as u8 {
            packed = with(&packed, &[field], Some(b"")).unwrap();
        }
        assert_eq!(with(&packed, b"one more", Some(b"")), None);
        assert_eq!(with(&[], b"x", Some(&[0; BYTES_MAX])), None);
    }
}
