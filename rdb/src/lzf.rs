//! LZF, the compression of long strings in dumps.
//!
//! A control byte below 32 is followed by that many literal bytes and one more. Any other is a copy
//! of bytes that came before: its upper three bits are the length less 2 (7: the next byte is
//! added), its lower five and the next byte the distance less 1.

/// Longest run of literal bytes.
const LITERALS_MAX: usize = 32;
/// Longest distance of a copy.
const DISTANCE_MAX: usize = 1 << 13;
/// Longest copy.
const COPY_MAX: usize = 264;
/// Most bytes that one compressed byte can stand for: three bytes are a copy of [`COPY_MAX`].
pub(crate) const RATIO_MAX: u64 = COPY_MAX as u64 / 3;

const HASH_BITS: u32 = 14;

/// Compresses bytes; `None` if they would not become shorter by at least 4.
pub(crate) fn compress(input: &[u8]) -> Option<Vec<u8>> {
    let room = input.len().checked_sub(4)?;
    let mut out = Vec::with_capacity(room);
    // The place behind each last occurrence of three bytes; 0 for none.
    let mut seen = vec![0u32; 1 << HASH_BITS];
    let (mut at, mut literals_from) = (0, 0);
    while at + 2 < input.len() {
        let three = u32::from(input[at]) << 16 | u32::from(input[at + 1]) << 8;
        let three = three | u32::from(input[at + 2]);
        let slot = (three.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize;
        let before = std::mem::replace(&mut seen[slot], at as u32 + 1) as usize;
        let len = match before {
            1.. if at + 1 - before <= DISTANCE_MAX => common(input, before - 1, at),
            _ => 0,
        };
        if len < 3 {
            at += 1;
            continue;
        }
        put_literals(&mut out, &input[literals_from..at]);
        let distance = at - before;
        let high = (distance >> 8) as u8;
        match len - 2 {
            short @ ..7 => out.push((short as u8) << 5 | high),
            long => out.extend([7 << 5 | high, (long - 7) as u8]),
        }
        out.push(distance as u8);
        at += len;
        literals_from = at;
        if out.len() >= room {
            return None;
        }
    }
    put_literals(&mut out, &input[literals_from..]);
    (out.len() <= room).then_some(out)
}

/// The length of what is equal from both places on, as far as a copy can be long.
fn common(input: &[u8], before: usize, at: usize) -> usize {
    let pairs = input[before..].iter().zip(&input[at..]).take(COPY_MAX);
    pairs.take_while(|(a, b)| a == b).count()
}

fn put_literals(out: &mut Vec<u8>, literals: &[u8]) {
    for run in literals.chunks(LITERALS_MAX) {
        out.push(run.len() as u8 - 1);
        out.extend_from_slice(run);
    }
}

/// Puts `len` bytes that LZF has compressed behind `out`. False if the input does not say so many.
pub fn decompress(mut input: &[u8], len: usize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    while let [control, rest @ ..] = input {
        let control = usize::from(*control);
        if control < LITERALS_MAX {
            let Some((run, behind)) = rest.split_at_checked(control + 1) else { return false };
            out.extend_from_slice(run);
            input = behind;
        } else {
            let (copy, behind) = match (control >> 5, rest) {
                (7, [more, low, behind @ ..]) => ((9 + usize::from(*more), low), behind),
                (short @ ..7, [low, behind @ ..]) => ((short + 2, low), behind),
                _ => return false,
            };
            let (copied, distance) = (copy.0, (control & 31) << 8 | usize::from(*copy.1));
            let Some(from) = out.len().checked_sub(distance + 1).filter(|from| *from >= start)
            else {
                return false;
            };
            if out.len() - start + copied > len {
                return false;
            }
            // The copy may run into what it writes.
            for at in from..from + copied {
                out.push(out[at]);
            }
            input = behind;
        }
        if out.len() - start > len {
            return false;
        }
    }
    out.len() - start == len
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turned(bytes: &[u8]) -> Option<usize> {
        let packed = compress(bytes)?;
        let mut out = b"before".to_vec();
        assert!(decompress(&packed, bytes.len(), &mut out));
        assert_eq!(&out[6..], bytes);
        Some(packed.len())
    }

    #[test]
    fn what_repeats_becomes_short_and_comes_back() {
        assert_eq!(turned(b""), None);
        assert_eq!(turned(b"abcdefghijklmnopqrstuvwxyz"), None);
        assert!(turned(&[b'a'; 1000]).is_some_and(|len| len < 30));
        assert!(turned(&b"abcde".repeat(100)).is_some_and(|len| len < 30));
        let far: Vec<u8> = (0..20_000u32).flat_map(|n| (n / 3).to_le_bytes()).collect();
        assert!(turned(&far).is_some());
        for distance in [DISTANCE_MAX - 8, DISTANCE_MAX - 7, DISTANCE_MAX, DISTANCE_MAX + 1] {
            let mut seed = 1u32;
            let mut noise = || {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 24) as u8
            };
            let mut bytes = b"a phrase that comes twice and is long".to_vec();
            bytes.extend((bytes.len()..distance).map(|_| noise()));
            bytes.extend_from_slice(b"a phrase that comes twice and is long");
            turned(&bytes);
        }
    }

    #[test]
    fn what_nobody_compressed_is_refused() {
        let mut out = Vec::new();
        for bad in [&[5, 1][..], &[32, 0], &[0, b'a', 32], &[0, b'a', 0xe0, 1], &[0, b'a', 32, 1]] {
            assert!(!decompress(bad, 4, &mut out), "{bad:?}");
            out.clear();
        }
        // The length is another one.
        assert!(!decompress(&[1, b'a', b'b'], 3, &mut out));
        out.clear();
        assert!(!decompress(&[1, b'a', b'b'], 1, &mut out));
        out.clear();
        assert!(decompress(&[0, b'a', 0xe0, 255, 0], 265, &mut out));
        assert_eq!(out, [b'a'; 265]);
    }
}
