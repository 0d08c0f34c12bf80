//! Bits of strings: one by one, counted, searched, combined.

use perdura_store::{Entry, EventClass, Expiry, Tx};

use super::call::{Call, Outcome};
use super::error::CommandError;
use super::options::{STRING_MAX_BYTES, is, string_at, string_of};
use crate::number::parse_i64;

/// Reads the number of a bit, which lies in the longest string.
pub(super) fn bit_offset(arg: &[u8]) -> Result<u64, CommandError> {
    let offset = parse_i64(arg).and_then(|offset| u64::try_from(offset).ok());
    offset.filter(|offset| *offset / 8 < STRING_MAX_BYTES).ok_or(CommandError::BitOffset)
}

/// The bit with this number; the first bit of a byte is its highest.
fn bit_of(value: &[u8], offset: u64) -> bool {
    value.get((offset / 8) as usize).is_some_and(|byte| byte >> (7 - offset % 8) & 1 != 0)
}

/// SETBIT key offset value
pub(super) fn setbit(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let offset = bit_offset(call.args.get(2))?;
    let new = match parse_i64(call.args.get(3)) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(CommandError::Bit),
    };
    let (key, at) = (call.key(1), offset / 8);
    let value = string_at(tx, key)?.unwrap_or(&[]);
    let (old, is_there) = (bit_of(value, offset), at < value.len() as u64);
    let byte = value.get(at as usize).copied().unwrap_or(0);
    if old != new || !is_there {
        let mask = 0x80 >> (offset % 8);
        let byte = if new { byte | mask } else { byte & !mask };
        tx.patch(key, at, &[byte])?;
        tx.tell(EventClass::STRING, "setbit", key);
    }
    call.reply.int(i64::from(old));
    Ok(())
}

/// GETBIT key offset
pub(super) fn getbit(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let offset = bit_offset(call.args.get(2))?;
    let value = entry.map_or(Ok(&[][..]), string_of)?;
    call.reply.int(i64::from(bit_of(value, offset)));
    Ok(())
}

/// The bits between two ends, as BITCOUNT and BITPOS take them: bytes or bits, negative ones
/// counted from the end. `None`: there are none.
fn bits_between(
    call: &Call<'_, '_>,
    at: usize,
    len: usize,
) -> Result<Option<std::ops::Range<u64>>, CommandError> {
    let args = call.args;
    let by_bit = match args.len() - at {
        0..=2 => false,
        _ if is(args.get(at + 2), "BIT") => true,
        _ if is(args.get(at + 2), "BYTE") => false,
        _ => return Err(CommandError::Syntax),
    };
    let unit = if by_bit { 1 } else { 8 };
    let len = len as i64 * 8 / unit;
    let start = if args.len() > at { call.int(at)? } else { 0 };
    let end = if args.len() > at + 1 { call.int(at + 1)? } else { len - 1 };
    let from_end = |at: i64| if at < 0 { len.saturating_add(at).max(0) } else { at };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    Ok((start <= end).then(|| (start * unit) as u64..((end + 1) * unit) as u64))
}

/// BITCOUNT key [start end [BYTE | BIT]]
pub(super) fn bitcount(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let Some(entry) = entry else {
        call.reply.int(0);
        return Ok(());
    };
    let value = string_of(entry)?;
    if !matches!(call.args.len(), 2 | 4 | 5) {
        return Err(CommandError::Syntax);
    }
    if call.args.len() > 2 {
        let (start, end) = (call.int(2)?, call.int(3)?);
        // Redis answers so before it looks at the unit.
        if start < 0 && end < 0 && start > end {
            call.reply.int(0);
            return Ok(());
        }
    }
    let count = bits_between(call, 2, value.len())?.map_or(0, |bits| count_ones(value, bits));
    call.reply.len(count);
    Ok(())
}

fn count_ones(value: &[u8], bits: std::ops::Range<u64>) -> u64 {
    let (first, end) = ((bits.start / 8) as usize, bits.end.div_ceil(8) as usize);
    let bytes = &value[first..end];
    let (words, rest) = bytes.as_chunks::<8>();
    let words: u64 =
        words.iter().map(|word| u64::from(u64::from_le_bytes(*word).count_ones())).sum();
    let rest: u64 = rest.iter().map(|byte| u64::from(byte.count_ones())).sum();
    let before = u64::from((bytes[0] & !(0xff >> (bits.start % 8))).count_ones());
    let unused = (end as u64 * 8 - bits.end) as u32;
    let behind = u64::from((bytes[bytes.len() - 1] & !(0xff << unused) as u8).count_ones());
    words + rest - before - behind
}

/// BITPOS key bit [start [end [BYTE | BIT]]]
pub(super) fn bitpos(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let bit = match call.int(2)? {
        0 => false,
        1 => true,
        _ => return Err(CommandError::BitArgument),
    };
    let Some(entry) = entry else {
        call.reply.int(if bit { -1 } else { 0 });
        return Ok(());
    };
    let value = string_of(entry)?;
    if call.args.len() > 6 {
        return Err(CommandError::Syntax);
    }
    if call.args.len() > 3 {
        // Redis looks at the unit between the ends.
        call.int(3)?;
    }
    let bits = bits_between(call, 3, value.len())?;
    let found = bits.clone().and_then(|bits| first_of(value, bits, bit));
    // Behind a string's end there are zeros, unless an end was given.
    let is_open = bits.is_some() && !bit && call.args.len() < 5;
    match found {
        Some(at) => call.reply.len(at),
        None if is_open => call.reply.len(value.len() as u64 * 8),
        None => call.reply.int(-1),
    }
    Ok(())
}

/// The first bit in the range that is `bit`.
fn first_of(value: &[u8], bits: std::ops::Range<u64>, bit: bool) -> Option<u64> {
    let skipped = if bit { 0 } else { 0xff };
    let mut at = bits.start;
    while at < bits.end {
        let byte = value[(at / 8) as usize];
        if at.is_multiple_of(8) && byte == skipped {
            let same = value[(at / 8) as usize..].iter().take_while(|byte| **byte == skipped);
            at += same.count() as u64 * 8;
            continue;
        }
        if bit_of(value, at) == bit {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// BITOP AND | OR | XOR | NOT destkey key [key ...]
pub(super) fn bitop(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let how = call.args.get(1);
    let Some(operation) = ["AND", "OR", "XOR", "NOT"].into_iter().find(|name| is(how, name)) else {
        return Err(CommandError::Syntax);
    };
    if operation == "NOT" && call.args.len() != 4 {
        return Err(CommandError::BitOpNot);
    }
    let sources = (3..call.args.len()).map(|at| Ok(string_at(tx, call.key(at))?.unwrap_or(&[])));
    let sources = sources.collect::<Result<Vec<&[u8]>, CommandError>>()?;
    let len = sources.iter().map(|source| source.len()).max().unwrap_or(0);
    let (first, others) = sources.split_first().ok_or(CommandError::Syntax)?;
    let mut value = first.to_vec();
    value.resize(len, 0);
    match operation {
        "AND" => combine(&mut value, others, |a, b| a & b),
        "OR" => combine(&mut value, others, |a, b| a | b),
        "XOR" => combine(&mut value, others, |a, b| a ^ b),
        _ => value.iter_mut().for_each(|byte| *byte = !*byte),
    }
    let to = call.key(2);
    if len > 0 {
        tx.put(to, &value, Expiry::None)?;
        tx.tell(EventClass::STRING, "set", to);
    } else if tx.delete(to)? {
        tx.tell(EventClass::GENERIC, "del", to);
    }
    call.reply.len(len as u64);
    Ok(())
}

/// Combines the bytes of a value with those of others, which end in zeros where they are shorter. A
/// function for each operation, so that the compiler combines many bytes at a time.
fn combine(value: &mut [u8], others: &[&[u8]], each: impl Fn(u8, u8) -> u8) {
    for other in others {
        let (with, behind) = value.split_at_mut(other.len());
        with.iter_mut().zip(*other).for_each(|(byte, other)| *byte = each(*byte, *other));
        behind.iter_mut().for_each(|byte| *byte = each(*byte, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_and_found_as_one_by_one() {
        let value: Vec<u8> = (0..40u32).map(|n| (n * n * 37 % 251) as u8).collect();
        let with_runs = [&[0; 20][..], &value, &[0xff; 20]].concat();
        for start in 0..200 {
            for end in (start + 1..640).step_by(7) {
                let all = || (start..end).filter(|at| bit_of(&with_runs, *at));
                assert_eq!(count_ones(&with_runs, start..end), all().count() as u64);
                assert_eq!(first_of(&with_runs, start..end, true), all().next());
                let zero = (start..end).find(|at| !bit_of(&with_runs, *at));
                assert_eq!(first_of(&with_runs, start..end, false), zero);
            }
        }
        assert_eq!(first_of(&[0xff; 9], 3..72, false), None);
    }
}
