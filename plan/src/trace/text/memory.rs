//! Traces of a processor's loads and stores. They have no times: the clock counts instructions, at
//! a rate that is an option.
//!
//! Where a trace does not give the size of an access, it counts as one byte at its address, in the
//! page of that address.

use super::super::sink::{Seen, Sink};
use super::super::{Fault, Op};
use super::Parse;
use super::fields::{columns, hexadecimal, known_op, number, shown, whole, words};

/// The bytes of a cache line in Ramulator's traces, which are recorded behind caches.
const LINE_BYTES: u64 = 64;

/// A clock that counts instructions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    instructions: u64,
    per_s: u64,
}

impl Clock {
    pub(crate) fn new(per_s: u64) -> Clock {
        Clock { instructions: 0, per_s: per_s.max(1) }
    }

    #[inline]
    pub(crate) fn advance(&mut self, instructions: u64) {
        self.instructions = self.instructions.saturating_add(instructions);
    }

    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        match self.per_s {
            1_000_000_000 => self.instructions,
            per_s => {
                u64::try_from(u128::from(self.instructions) * 1_000_000_000 / u128::from(per_s))
                    .unwrap_or(u64::MAX)
            }
        }
    }
}

/// `l|s address instructions`: a load or store, and how many instructions it is after the one
/// before it.
pub(crate) struct Ucsd {
    pub(crate) clock: Clock,
    pub(crate) volume: u32,
}

pub(crate) fn looks_ucsd(line: &[u8]) -> bool {
    let (count, [op, address, instructions]) = words::<3>(line);
    count == 3
        && matches!(op, b"l" | b"s")
        && hexadecimal("address", address).is_ok()
        && whole(instructions).is_some()
}

impl Parse for Ucsd {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Seen {
        let (count, [op, address, instructions]) = words::<3>(line);
        if count != 3 {
            return Err(columns("3: l|s address instructions", count, line));
        }
        let op = load_or_store(op)?;
        let address = hexadecimal("address", address)?;
        self.clock.advance(number("instructions", instructions)?);
        sink.access(self.clock.now_ns(), self.volume, op, address, 1)
    }
}

/// `instructions read [written back]`: instructions before it that touch no memory, the line that
/// is read, and the one that leaves the cache for it, if that was written to.
pub(crate) struct Ramulator {
    pub(crate) clock: Clock,
    pub(crate) volume: u32,
}

pub(crate) fn looks_ramulator(line: &[u8]) -> bool {
    let (count, [instructions, read, back]) = words::<3>(line);
    let is_address = |field| address(field).is_ok();
    whole(instructions).is_some()
        && is_address(read)
        && (count == 2 || count == 3 && is_address(back))
}

impl Parse for Ramulator {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Seen {
        let (count, [instructions, read, back]) = words::<3>(line);
        if !(2..=3).contains(&count) {
            return Err(columns(
                "2 or 3: instructions, address read, address written back",
                count,
                line,
            ));
        }
        self.clock.advance(number("instructions", instructions)?);
        let now_ns = self.clock.now_ns();
        self.clock.advance(1);
        let of_line = |field| address(field).map(|address| address & !(LINE_BYTES - 1));
        sink.access(now_ns, self.volume, Op::Read, of_line(read)?, LINE_BYTES)?;
        if count == 3 {
            sink.access(now_ns, self.volume, Op::Write, of_line(back)?, LINE_BYTES)?;
        }
        Ok(())
    }
}

/// Lines of `op address [bytes]`, or with the address first; each is one instruction.
pub(crate) struct LoadStore {
    pub(crate) clock: Clock,
    pub(crate) volume: u32,
}

pub(crate) fn looks_load_store(line: &[u8]) -> bool {
    let (count, [first, second, bytes]) = words::<3>(line);
    let (op, place) = op_first(first, second);
    let is_sized = count == 2 || count == 3 && whole(bytes).is_some() && !matches!(op, b"l" | b"s");
    is_sized && load_or_store(op).is_ok() && address(place).is_ok()
}

impl Parse for LoadStore {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Seen {
        let (count, [first, second, bytes]) = words::<3>(line);
        if !(2..=3).contains(&count) {
            return Err(columns("2 or 3: read|write (or load|store), address, bytes", count, line));
        }
        let (op, place) = op_first(first, second);
        let op = load_or_store(op)?;
        let address = address(place)?;
        let len_bytes = if count == 3 { number("size", bytes)? } else { 1 };
        let now_ns = self.clock.now_ns();
        self.clock.advance(1);
        sink.access(now_ns, self.volume, op, address, len_bytes)
    }
}

/// `I|L|S|M address,size`: an instruction, a load, a store, or both by one instruction. Valgrind's
/// own lines start with `==`.
pub(crate) struct Lackey {
    pub(crate) clock: Clock,
    pub(crate) volume: u32,
}

pub(crate) fn looks_lackey(line: &[u8]) -> bool {
    lackey(line).is_ok() || line.starts_with(b"==")
}

/// The letter, the address and the size of a line that lackey prints.
#[inline]
fn lackey(line: &[u8]) -> Result<(u8, u64, u64), Box<Fault>> {
    let (count, [kind, place]) = words::<2>(line);
    if count != 2 {
        return Err(columns("2: I|L|S|M address,size", count, line));
    }
    let &[kind @ (b'I' | b'L' | b'S' | b'M')] = kind else {
        let value = shown(kind);
        return Err(Box::new(Fault::Value { column: "op", value, expected: "I, L, S or M" }));
    };
    let Some(comma) = memchr::memchr(b',', place) else {
        let value = shown(place);
        return Err(Box::new(Fault::Value { column: "address", value, expected: "address,size" }));
    };
    Ok((kind, hexadecimal("address", &place[..comma])?, number("size", &place[comma + 1..])?))
}

impl Parse for Lackey {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Seen {
        if line.starts_with(b"==") {
            sink.ignored += 1;
            return Ok(());
        }
        let (kind, address, len_bytes) = lackey(line)?;
        if kind == b'I' {
            self.clock.advance(1);
            sink.ignored += 1;
            return Ok(());
        }
        let now_ns = self.clock.now_ns();
        if kind != b'S' {
            sink.access(now_ns, self.volume, Op::Read, address, len_bytes)?;
        }
        if kind != b'L' {
            sink.access(now_ns, self.volume, Op::Write, address, len_bytes)?;
        }
        Ok(())
    }
}

#[inline]
fn op_first<'a>(first: &'a [u8], second: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    match second.first() {
        Some(byte) if byte.is_ascii_digit() => (first, second),
        _ => (second, first),
    }
}

/// Hexadecimal behind 0x, decimal without: letters in a number without 0x are refused rather than
/// guessed at.
#[inline]
fn address(field: &[u8]) -> Result<u64, Box<Fault>> {
    match field {
        [b'0', b'x' | b'X', ..] => hexadecimal("address", field),
        _ => whole(field).ok_or_else(|| odd_address(field)),
    }
}

#[cold]
fn odd_address(field: &[u8]) -> Box<Fault> {
    let expected = "a decimal number, or a hexadecimal one with 0x before it";
    match number("address", field) {
        Err(fault) if matches!(*fault, Fault::Value { .. }) => {
            Box::new(Fault::Value { column: "address", value: shown(field), expected })
        }
        Err(fault) => fault,
        Ok(_) => Box::new(Fault::Value { column: "address", value: shown(field), expected }),
    }
}

#[inline]
fn load_or_store(field: &[u8]) -> Result<Op, Box<Fault>> {
    match field {
        b"l" | b"L" => Ok(Op::Read),
        b"s" | b"S" => Ok(Op::Write),
        _ => known_op(field).or_else(|| spelled(field)).ok_or_else(|| odd_op(field)),
    }
}

fn spelled(field: &[u8]) -> Option<Op> {
    let is = |word: &str| field.eq_ignore_ascii_case(word.as_bytes());
    match field {
        _ if is("load") || is("ld") => Some(Op::Read),
        _ if is("store") || is("st") => Some(Op::Write),
        _ => None,
    }
}

#[cold]
fn odd_op(field: &[u8]) -> Box<Fault> {
    Box::new(Fault::Value {
        column: "op",
        value: shown(field),
        expected: "a load or a store (l, s, R, W, load, store)",
    })
}
