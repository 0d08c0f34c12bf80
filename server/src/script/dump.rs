//! Libraries as bytes: the format of FUNCTION DUMP, which is that of Redis' RDB files. The store
//! keeps them so, too.

use perdura_rdb::{crc64, decompress};

/// Mark of a library in the bytes.
const OPCODE_LIBRARY: u8 = 245;
/// Mark of a library in a format that Redis 7.0 gave up before its release.
const OPCODE_LIBRARY_OLD: u8 = 246;
/// The version of the format that Redis 7.2 writes.
const RDB_VERSION: u16 = 11;
/// Bytes behind the libraries: the version, and a checksum.
const TAIL_BYTES: usize = 10;

/// Why bytes are no libraries; the texts are Redis' own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DumpError {
    #[error("DUMP payload version or checksum are wrong")]
    Checksum,
    #[error("Pre-GA function format not supported")]
    Old,
    #[error("given type is not a function")]
    NoFunction,
    #[error("Failed loading library payload")]
    Library,
}

/// Writes the codes of libraries.
pub(crate) fn dump<'c>(codes: impl Iterator<Item = &'c [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for code in codes {
        out.push(OPCODE_LIBRARY);
        match code.len() {
            len @ 0..64 => out.push(len as u8),
            len @ 64..0x4000 => out.extend_from_slice(&(0x4000 | len as u16).to_be_bytes()),
            len => {
                out.push(0x80);
                out.extend_from_slice(&(len as u32).to_be_bytes());
            }
        }
        out.extend_from_slice(code);
    }
    out.extend_from_slice(&RDB_VERSION.to_le_bytes());
    let checksum = crc64(0, &out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

/// Reads the codes of libraries.
///
/// # Errors
/// The bytes are no libraries, are damaged, or are of a later version.
pub(crate) fn restore(bytes: &[u8]) -> Result<Vec<Vec<u8>>, DumpError> {
    let body_len = bytes.len().checked_sub(TAIL_BYTES).ok_or(DumpError::Checksum)?;
    let (mut body, tail) = bytes.split_at(body_len);
    let mut checksum = [0; 8];
    checksum.copy_from_slice(&tail[2..]);
    let checksum = u64::from_le_bytes(checksum);
    let version = u16::from_le_bytes([tail[0], tail[1]]);
    if version > RDB_VERSION || checksum != 0 && checksum != crc64(0, &bytes[..body_len + 2]) {
        return Err(DumpError::Checksum);
    }
    let mut codes = Vec::new();
    while let Some((opcode, rest)) = body.split_first() {
        match *opcode {
            OPCODE_LIBRARY => {}
            OPCODE_LIBRARY_OLD => return Err(DumpError::Old),
            _ => return Err(DumpError::NoFunction),
        }
        body = rest;
        codes.push(string(&mut body).ok_or(DumpError::Library)?);
    }
    Ok(codes)
}

fn take<'b>(bytes: &mut &'b [u8], len: usize) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

/// Takes a length; `Err` has the number of a special encoding.
fn length(bytes: &mut &[u8]) -> Option<Result<usize, u8>> {
    let first = take(bytes, 1)?[0];
    let big = |bytes: &[u8]| bytes.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    Some(Ok(match first {
        0..0x40 => usize::from(first),
        0x40..0x80 => usize::from(first & 0x3f) << 8 | usize::from(take(bytes, 1)?[0]),
        0x80 => usize::try_from(big(take(bytes, 4)?)).ok()?,
        0x81 => usize::try_from(big(take(bytes, 8)?)).ok()?,
        0xc0.. => return Some(Err(first & 0x3f)),
        _ => return None,
    }))
}

/// Takes a string, which may be packed.
fn string(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let int = |bytes: &mut &[u8], len: usize| {
        let taken = take(bytes, len)?;
        let mut all = [if taken[len - 1] & 0x80 != 0 { 0xff } else { 0 }; 8];
        all[..len].copy_from_slice(taken);
        Some(i64::from_le_bytes(all).to_string().into_bytes())
    };
    match length(bytes)? {
        Ok(len) => take(bytes, len).map(<[u8]>::to_vec),
        Err(0) => int(bytes, 1),
        Err(1) => int(bytes, 2),
        Err(2) => int(bytes, 4),
        Err(3) => {
            let (packed, len) = (length(bytes)?.ok()?, length(bytes)?.ok()?);
            let (packed, mut out) = (take(bytes, packed)?, Vec::new());
            decompress(packed, len, &mut out).then_some(out)
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_come_back() {
        let long = vec![b'x'; 20_000];
        let codes: [&[u8]; 3] = [b"#!lua name=a\n", &long[..100], &long];
        let bytes = dump(codes.into_iter());
        assert_eq!(restore(&bytes), Ok(codes.map(<[u8]>::to_vec).to_vec()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(restore(&damaged).is_err(), "byte {at}");
        }
        assert_eq!(restore(b"short"), Err(DumpError::Checksum));
    }

    #[test]
    fn packed_strings_are_unpacked() {
        // "aaaaaaaaaa": one literal, then nine bytes from one byte back.
        let packed = |len: u8| string(&mut &[0xc3, 5, len, 0, b'a', 7 << 5, 0, 0][..]);
        assert_eq!((packed(10), packed(9)), (Some(b"aaaaaaaaaa".to_vec()), None));
        assert_eq!(string(&mut &[0xc3, 3, 9, 7 << 5, 0, 0][..]), None);
        let long = [0xc3, 3, 0x80, 0xff, 0xff, 0xff, 0xff, 7 << 5, 0, 0];
        assert_eq!(string(&mut &long[..]), None, "no memory is taken for a length that cannot be");
    }
}
