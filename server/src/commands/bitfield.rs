//! BITFIELD: integers of any width at any bit of a string.

use std::collections::BTreeMap;

use perdura_store::{Entry, EventClass, Tx};

use super::bits::bit_offset;
use super::call::{Call, Outcome};
use super::error::CommandError;
use super::options::{is, string_at, string_of};
use crate::number::parse_i64;
use crate::resp::Reply;

/// What happens to a value that does not fit.
#[derive(Clone, Copy)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy)]
enum Action {
    Get,
    Set(i64, Overflow),
    Increment(i64, Overflow),
}

/// One of the command's operations.
struct Operation {
    action: Action,
    is_signed: bool,
    width: u32,
    /// Number of the field's first bit.
    offset: u64,
}

impl Operation {
    /// The least and the greatest value of the field.
    fn bounds(&self) -> (i128, i128) {
        match self.is_signed {
            true => (-(1 << (self.width - 1)), (1 << (self.width - 1)) - 1),
            false => (0, (1 << self.width) - 1),
        }
    }

    /// The value that the field gets and whether it is not the one that was meant; `None`: the
    /// field stays.
    fn fit(&self, wanted: i128, overflow: Overflow) -> Option<i128> {
        let (least, greatest) = self.bounds();
        if (least..=greatest).contains(&wanted) {
            return Some(wanted);
        }
        match overflow {
            Overflow::Fail => None,
            Overflow::Saturate => Some(if wanted > greatest { greatest } else { least }),
            Overflow::Wrap => {
                let low = wanted & ((1 << self.width) - 1);
                Some(if low > greatest { low - (1 << self.width) } else { low })
            }
        }
    }
}

/// Reads all operations; those that only read leave the second part `None`, else it is the last bit
/// that one writes to.
fn parse(call: &Call<'_, '_>) -> Result<(Vec<Operation>, Option<u64>), CommandError> {
    let (mut operations, mut last_written) = (Vec::new(), None);
    let (mut overflow, mut at) = (Overflow::Wrap, 2);
    while at < call.args.len() {
        let (name, behind) = (call.args.get(at), call.args.len() - at - 1);
        if is(name, "OVERFLOW") && behind >= 1 {
            overflow = match call.args.get(at + 1) {
                how if is(how, "WRAP") => Overflow::Wrap,
                how if is(how, "SAT") => Overflow::Saturate,
                how if is(how, "FAIL") => Overflow::Fail,
                _ => return Err(CommandError::BitfieldOverflow),
            };
            at += 2;
            continue;
        }
        let is_get = is(name, "GET") && behind >= 2;
        let is_set = is(name, "SET") && behind >= 3;
        let is_increment = is(name, "INCRBY") && behind >= 3;
        if !is_get && !is_set && !is_increment {
            return Err(CommandError::Syntax);
        }
        let (is_signed, width) = field_type(call.args.get(at + 1))?;
        let offset = field_offset(call.args.get(at + 2), width)?;
        let action = if is_get {
            Action::Get
        } else {
            last_written = last_written.max(Some(offset + u64::from(width) - 1));
            let value = call.int(at + 3)?;
            if is_set { Action::Set(value, overflow) } else { Action::Increment(value, overflow) }
        };
        operations.push(Operation { action, is_signed, width, offset });
        at += if is_get { 3 } else { 4 };
    }
    Ok((operations, last_written))
}

fn field_type(arg: &[u8]) -> Result<(bool, u32), CommandError> {
    let (is_signed, most, digits) = match arg {
        [b'i', digits @ ..] => (true, 64, digits),
        [b'u', digits @ ..] => (false, 63, digits),
        _ => return Err(CommandError::BitfieldType),
    };
    let width = parse_i64(digits).filter(|width| (1..=most).contains(width));
    Ok((is_signed, width.ok_or(CommandError::BitfieldType)? as u32))
}

/// Reads an offset in bits, or behind `#` in fields of this width.
fn field_offset(arg: &[u8], width: u32) -> Result<u64, CommandError> {
    let Some(number) = arg.strip_prefix(b"#") else { return bit_offset(arg) };
    let offset = parse_i64(number).and_then(|number| number.checked_mul(i64::from(width)));
    bit_offset(offset.ok_or(CommandError::BitOffset)?.to_string().as_bytes())
}

/// A string with the bytes that operations have changed so far.
struct Bits<'v> {
    value: &'v [u8],
    changed: BTreeMap<u64, u8>,
}

impl Bits<'_> {
    fn byte(&self, at: u64) -> u8 {
        let old = || self.value.get(at as usize).copied().unwrap_or(0);
        self.changed.get(&at).copied().unwrap_or_else(old)
    }

    /// The bytes of a field as one number, its last bit lowest, and the bits behind the field.
    fn window(&self, operation: &Operation) -> (u64, u64, u128, u32) {
        let (offset, width) = (operation.offset, u64::from(operation.width));
        let (first, last) = (offset / 8, (offset + width - 1) / 8);
        let window = (first..=last).fold(0, |sum, at| sum << 8 | u128::from(self.byte(at)));
        (first, last, window, ((last + 1) * 8 - offset - width) as u32)
    }

    fn get(&self, operation: &Operation) -> i128 {
        let (.., window, behind) = self.window(operation);
        let raw = (window >> behind & ((1 << operation.width) - 1)) as i128;
        let (_, greatest) = operation.bounds();
        if raw > greatest { raw - (1 << operation.width) } else { raw }
    }

    fn set(&mut self, operation: &Operation, value: i128) {
        let (first, last, window, behind) = self.window(operation);
        let mask: u128 = (1 << operation.width) - 1;
        let window = window & !(mask << behind) | (value as u128 & mask) << behind;
        for at in first..=last {
            let byte = (window >> ((last - at) * 8)) as u8;
            if byte != self.byte(at) {
                self.changed.insert(at, byte);
            }
        }
    }

    /// Carries out an operation and answers it.
    fn run(&mut self, operation: &Operation, reply: &mut Reply<'_>) {
        let old = self.get(operation);
        let (wanted, overflow) = match operation.action {
            Action::Get => return reply.int(old as i64),
            // A negative number for an unsigned field is taken as one of 64 bits.
            Action::Set(value, overflow) if !operation.is_signed => {
                (i128::from(value as u64), overflow)
            }
            Action::Set(value, overflow) => (i128::from(value), overflow),
            Action::Increment(by, overflow) => (old + i128::from(by), overflow),
        };
        let Some(new) = operation.fit(wanted, overflow) else { return reply.null() };
        self.set(operation, new);
        reply.int(if matches!(operation.action, Action::Set(..)) { old } else { new } as i64);
    }
}

/// BITFIELD key [GET type offset | [OVERFLOW WRAP | SAT | FAIL] SET type offset value | INCRBY type
/// offset increment] ...
pub(super) fn bitfield(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (operations, last_written) = parse(call)?;
    let key = call.key(1);
    let value = string_at(tx, key)?.unwrap_or(&[]);
    let len = value.len() as u64;
    let mut bits = Bits { value, changed: BTreeMap::new() };
    call.reply.array(operations.len());
    operations.iter().for_each(|operation| bits.run(operation, call.reply));
    let Some(last) = last_written.map(|bit| bit / 8) else { return Ok(()) };
    if last >= len {
        // A string grows as far as operations reach, also if all they write is zeros.
        let byte = bits.byte(last);
        bits.changed.insert(last, byte);
    }
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    for (at, byte) in bits.changed {
        match runs.last_mut() {
            Some((from, bytes)) if *from + bytes.len() as u64 == at => bytes.push(byte),
            _ => runs.push((at, vec![byte])),
        }
    }
    // The last comes first, so that the string grows once.
    for (at, bytes) in runs.iter().rev() {
        tx.patch(key, *at, bytes)?;
    }
    if !runs.is_empty() {
        tx.tell(EventClass::STRING, "setbit", key);
    }
    Ok(())
}

/// BITFIELD_RO key [GET type offset [GET type offset ...]]
pub(super) fn bitfield_ro(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let (operations, last_written) = parse(call)?;
    if last_written.is_some() {
        return Err(CommandError::BitfieldReadOnly);
    }
    let value = entry.map_or(Ok(&[][..]), string_of)?;
    let mut bits = Bits { value, changed: BTreeMap::new() };
    call.reply.array(operations.len());
    operations.iter().for_each(|operation| bits.run(operation, call.reply));
    Ok(())
}
