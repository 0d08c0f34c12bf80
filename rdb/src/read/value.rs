//! Values, by the byte in front of them that names their encoding.

use std::collections::HashSet;
use std::io::Read;

use super::packed::{self, Entry};
use super::source::Source;
use super::stream;
use crate::double::parse_double;
use crate::error::RdbError;
use crate::lzf;
use crate::strings::Strings;
use crate::value::Value;

/// Memory that a string takes in a value beside its bytes: its end, and its place among those that
/// are compared to find two alike.
const BYTES_PER_STRING: u64 = 32;

/// Latest time at which a field expires, by Redis: 2^48 - 1 ms since 1970.
const FIELD_EXPIRY_MAX_MS: u64 = (1 << 48) - 1;
const NO_TIME: &str = "a field that expires at a time that is none";

/// Reads values, and bounds the memory of each.
pub(super) struct Values<R> {
    pub source: Source<R>,
    /// Most bytes of memory that a value may take.
    max_bytes: u64,
    /// Bytes that the present value may still take.
    left: u64,
    /// Bytes of the dump, if that is known.
    pub len: Option<u64>,
    /// A packed value that is being taken apart.
    packed: Vec<u8>,
}

/// A length, or the encoding of a string that is not plain.
enum Len {
    Plain(u64),
    Encoded(u8),
}

impl<R: Read> Values<R> {
    pub fn new(reader: R, len: Option<u64>, max_bytes: u64) -> Self {
        let (source, packed) = (Source::new(reader, len.unwrap_or(u64::MAX)), Vec::new());
        Self { source, max_bytes, left: max_bytes, len, packed }
    }

    /// An error about the bytes that were read last.
    pub fn corrupt(&self, what: &'static str) -> RdbError {
        RdbError::Corrupt { what, at: self.source.offset() }
    }

    /// Takes memory for a string of `len` bytes.
    pub fn charge(&mut self, len: u64) -> Result<(), RdbError> {
        match self.left.checked_sub(len.saturating_add(BYTES_PER_STRING)) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                let (max_bytes, at) = (self.max_bytes, self.source.offset());
                Err(RdbError::TooLarge { max_bytes, at })
            }
        }
    }

    /// Refuses a length that is more than what is left of the dump.
    fn check_left(&self, len: u64) -> Result<(), RdbError> {
        match self.len {
            Some(all) if len > all - self.source.offset() => {
                Err(RdbError::Truncated { at: all, what: "a string" })
            }
            _ => Ok(()),
        }
    }

    /// Begins another value.
    pub fn recharge(&mut self) {
        self.left = self.max_bytes;
    }

    fn any_len(&mut self) -> Result<Len, RdbError> {
        let what = "a length";
        let first = self.source.byte(what)?;
        Ok(Len::Plain(match first >> 6 {
            0 => u64::from(first),
            1 => u64::from(first & 63) << 8 | u64::from(self.source.byte(what)?),
            2 if first == 0x80 => u64::from(u32::from_be_bytes(self.source.array(what)?)),
            2 if first == 0x81 => u64::from_be_bytes(self.source.array(what)?),
            3 => return Ok(Len::Encoded(first & 63)),
            _ => return Err(self.corrupt("a length of an unknown form")),
        }))
    }

    /// Reads a number.
    pub fn len(&mut self) -> Result<u64, RdbError> {
        match self.any_len()? {
            Len::Plain(len) => Ok(len),
            Len::Encoded(_) => Err(self.corrupt("an encoded string in the place of a number")),
        }
    }

    /// Puts a string behind `out`.
    pub fn string(&mut self, out: &mut Vec<u8>) -> Result<(), RdbError> {
        let what = "a string";
        let int = match self.any_len()? {
            Len::Plain(len) => {
                self.check_left(len)?;
                self.charge(len)?;
                return self.source.bytes(len, what, out);
            }
            Len::Encoded(0) => i64::from(i8::from_le_bytes(self.source.array(what)?)),
            Len::Encoded(1) => i64::from(i16::from_le_bytes(self.source.array(what)?)),
            Len::Encoded(2) => i64::from(i32::from_le_bytes(self.source.array(what)?)),
            Len::Encoded(3) => return self.compressed(out),
            Len::Encoded(_) => return Err(self.corrupt("a string of an unknown encoding")),
        };
        self.charge(11)?;
        Entry::Int(int).put(out);
        Ok(())
    }

    fn compressed(&mut self, out: &mut Vec<u8>) -> Result<(), RdbError> {
        let (packed_len, len) = (self.len()?, self.len()?);
        if len / lzf::RATIO_MAX > packed_len || packed_len == 0 {
            return Err(self.corrupt("a compressed string that cannot become so long"));
        }
        self.check_left(packed_len)?;
        self.charge(packed_len)?;
        self.charge(len)?;
        let mut packed = Vec::new();
        self.source.bytes(packed_len, "a compressed string", &mut packed)?;
        out.reserve(len as usize);
        match lzf::decompress(&packed, len as usize, out) {
            true => Ok(()),
            false => Err(self.corrupt("a compressed string that is not one")),
        }
    }

    /// Reads a string of its own.
    pub fn own_string(&mut self) -> Result<Vec<u8>, RdbError> {
        let mut out = Vec::new();
        self.string(&mut out).map(|()| out)
    }

    /// Reads `count` strings.
    fn strings(&mut self, count: u64) -> Result<Strings, RdbError> {
        let mut all = Strings::new();
        for _ in 0..count {
            all.push_with(|out| self.string(out))?;
        }
        Ok(all)
    }

    /// Reads a string and calls `f` with it.
    pub fn with_packed(
        &mut self,
        f: impl FnOnce(&mut Self, &[u8]) -> Result<(), RdbError>,
    ) -> Result<(), RdbError> {
        let mut packed = std::mem::take(&mut self.packed);
        packed.clear();
        let done = self.string(&mut packed).and_then(|()| f(self, &packed));
        // A large one is not kept for the next value.
        self.packed = if packed.capacity() <= 1 << 20 { packed } else { Vec::new() };
        done
    }

    /// Reads a packed string and adds its entries to `all`.
    fn entries(
        &mut self,
        walk: Walk,
        what: &'static str,
        all: &mut Strings,
    ) -> Result<(), RdbError> {
        self.with_packed(|values, packed| {
            let mut error = None;
            let walked = walk(packed, &mut |entry| {
                let len = if let Entry::Bytes(bytes) = entry { bytes.len() as u64 } else { 20 };
                if let Err(too_large) = values.charge(len) {
                    error = Some(too_large);
                    return None;
                }
                all.push_with(|out| {
                    entry.put(out);
                    Ok::<(), ()>(())
                })
                .ok()
            });
            match (walked, error) {
                (Some(()), _) => Ok(()),
                (None, Some(error)) => Err(error),
                (None, None) => Err(values.corrupt(what)),
            }
        })
    }

    /// Reads a value.
    pub fn value(&mut self, kind: u8) -> Result<Value, RdbError> {
        Ok(match kind {
            0 => Value::String(self.own_string()?),
            1 => Value::List(self.counted()?),
            2 => Value::Set(self.distinct_set()?),
            3 => self.sorted(Self::text_score)?,
            4 => {
                let count = self.len()?;
                let pairs = count.checked_mul(2).ok_or_else(|| self.corrupt("a hash's size"))?;
                let fields = self.strings(pairs)?;
                self.hash(fields)?
            }
            5 => self.sorted(Self::binary_score)?,
            6 | 7 => return Err(self.module()),
            9 => self.zipmap()?,
            10 => {
                let mut all = Strings::new();
                self.entries(ziplist, "a list's ziplist", &mut all)?;
                Value::List(all)
            }
            11 => self.int_set()?,
            12 => self.packed_sorted(ziplist)?,
            13 => self.packed_hash(ziplist)?,
            14 => self.quick_list(false)?,
            15 => Value::Stream(Box::new(stream::read(self, 1)?)),
            16 => self.packed_hash(listpack)?,
            17 => self.packed_sorted(listpack)?,
            18 => self.quick_list(true)?,
            19 => Value::Stream(Box::new(stream::read(self, 2)?)),
            20 => {
                let mut all = Strings::new();
                self.entries(listpack, "a set's listpack", &mut all)?;
                self.check_distinct(all.iter(), "a set with a member twice")?;
                Value::Set(all)
            }
            21 => Value::Stream(Box::new(stream::read(self, 3)?)),
            22 | 24 => self.expiring_hash(kind == 24)?,
            23 | 25 => self.packed_expiring_hash(kind == 25)?,
            _ => return Err(RdbError::UnknownType { kind, at: self.source.offset() }),
        })
    }

    fn counted(&mut self) -> Result<Strings, RdbError> {
        let count = self.len()?;
        self.strings(count)
    }

    fn distinct_set(&mut self) -> Result<Strings, RdbError> {
        let members = self.counted()?;
        self.check_distinct(members.iter(), "a set with a member twice")?;
        Ok(members)
    }

    fn hash(&mut self, fields: Strings) -> Result<Value, RdbError> {
        if !fields.len().is_multiple_of(2) {
            return Err(self.corrupt("a hash with a field that has no value"));
        }
        let names = fields.pairs().map(|(name, _)| name);
        self.check_distinct(names, "a hash with a field twice")?;
        Ok(Value::Hash(fields))
    }

    fn check_distinct<'s>(
        &self,
        names: impl ExactSizeIterator<Item = &'s [u8]>,
        what: &'static str,
    ) -> Result<(), RdbError> {
        let mut met = HashSet::with_capacity(names.len());
        for name in names {
            if !met.insert(name) {
                return Err(self.corrupt(what));
            }
        }
        Ok(())
    }

    fn sorted(&mut self, score: fn(&mut Self) -> Result<f64, RdbError>) -> Result<Value, RdbError> {
        let count = self.len()?;
        let (mut names, mut scores) = (Strings::new(), Vec::new());
        for _ in 0..count {
            names.push_with(|out| self.string(out))?;
            let score = score(self)?;
            if score.is_nan() {
                return Err(self.corrupt("a score that is not a number"));
            }
            scores.push(score);
        }
        self.check_distinct(names.iter(), "a sorted set with a member twice")?;
        Ok(Value::Sorted(names, scores))
    }

    fn binary_score(&mut self) -> Result<f64, RdbError> {
        Ok(f64::from_le_bytes(self.source.array("a score")?))
    }

    fn text_score(&mut self) -> Result<f64, RdbError> {
        let mut text = Vec::new();
        match self.source.byte("a score")? {
            253 => return Ok(f64::NAN),
            254 => return Ok(f64::INFINITY),
            255 => return Ok(f64::NEG_INFINITY),
            len => self.source.bytes(u64::from(len), "a score", &mut text)?,
        }
        parse_double(&text).ok_or_else(|| self.corrupt("a score that is not a number"))
    }

    fn packed_sorted(&mut self, walk: Walk) -> Result<Value, RdbError> {
        let mut all = Strings::new();
        self.entries(walk, "the packed members of a sorted set", &mut all)?;
        if !all.len().is_multiple_of(2) {
            return Err(self.corrupt("a sorted set with a member that has no score"));
        }
        let scores: Option<Vec<f64>> = all.pairs().map(|(_, score)| parse_double(score)).collect();
        let scores = scores.ok_or_else(|| self.corrupt("a score that is not a number"))?;
        let names: Strings = all.pairs().map(|(name, _)| name).collect();
        self.check_distinct(names.iter(), "a sorted set with a member twice")?;
        Ok(Value::Sorted(names, scores))
    }

    fn packed_hash(&mut self, walk: Walk) -> Result<Value, RdbError> {
        let mut all = Strings::new();
        self.entries(walk, "the packed fields of a hash", &mut all)?;
        self.hash(all)
    }

    /// Reads a hash of which fields expire, with times from the first one on if `is_relative`.
    fn expiring_hash(&mut self, is_relative: bool) -> Result<Value, RdbError> {
        let what = "when a field expires";
        let first_ms = match is_relative {
            true => u64::from_le_bytes(self.source.array(what)?),
            false => 1,
        };
        let count = self.len()?;
        let (mut fields, mut expiries) = (Strings::new(), Vec::new());
        for _ in 0..count {
            let at_ms = match self.len()? {
                0 => None,
                after => Some(first_ms.saturating_add(after - 1)),
            };
            fields.push_with(|out| self.string(out))?;
            fields.push_with(|out| self.string(out))?;
            expiries.push(at_ms);
        }
        self.expiring(fields, expiries)
    }

    /// Reads a listpack of fields, their values and times; before it, if `has_first`, the first of
    /// these times.
    fn packed_expiring_hash(&mut self, has_first: bool) -> Result<Value, RdbError> {
        if has_first {
            let _: [u8; 8] = self.source.array("when a field expires")?;
        }
        let mut all = Strings::new();
        self.entries(listpack, "the packed fields of a hash", &mut all)?;
        if !all.len().is_multiple_of(3) {
            return Err(self.corrupt("a hash with a field that has no value or time"));
        }
        let (mut fields, mut expiries) = (Strings::new(), Vec::new());
        for at in (0..all.len()).step_by(3) {
            fields.push(all.get(at));
            fields.push(all.get(at + 1));
            let time = std::str::from_utf8(all.get(at + 2)).ok().and_then(|time| time.parse().ok());
            let at_ms: u64 = time.ok_or_else(|| self.corrupt(NO_TIME))?;
            expiries.push((at_ms > 0).then_some(at_ms));
        }
        self.expiring(fields, expiries)
    }

    fn expiring(&self, fields: Strings, expiries: Vec<Option<u64>>) -> Result<Value, RdbError> {
        if expiries.iter().flatten().any(|at_ms| *at_ms > FIELD_EXPIRY_MAX_MS) {
            return Err(self.corrupt(NO_TIME));
        }
        let names = fields.pairs().map(|(name, _)| name);
        self.check_distinct(names, "a hash with a field twice")?;
        Ok(Value::ExpiringHash(fields, expiries))
    }

    fn zipmap(&mut self) -> Result<Value, RdbError> {
        let mut all = Strings::new();
        self.with_packed(|values, packed| {
            // A map is no longer than its fields, which are charged for one by one.
            let mut error = None;
            let walked = packed::zipmap(packed, &mut |field, value| {
                let charged = values.charge(field.len() as u64 + value.len() as u64 + 32);
                if let Err(too_large) = charged {
                    error = Some(too_large);
                    return None;
                }
                all.push(field);
                all.push(value);
                Some(())
            });
            match (walked, error) {
                (Some(()), _) => Ok(()),
                (None, Some(error)) => Err(error),
                (None, None) => Err(values.corrupt("a hash's zipmap")),
            }
        })?;
        self.hash(all)
    }

    fn int_set(&mut self) -> Result<Value, RdbError> {
        let mut all = Strings::new();
        self.with_packed(|values, packed| {
            // Each integer takes at least two of the bytes that were charged for.
            values.charge(packed.len() as u64 / 2 * (20 + BYTES_PER_STRING))?;
            let walked = packed::int_set(packed, &mut |int| {
                all.push_with(|out| {
                    Entry::Int(int).put(out);
                    Ok::<(), ()>(())
                })
                .ok()
            });
            walked.ok_or_else(|| values.corrupt("a set of integers"))
        })?;
        Ok(Value::Set(all))
    }

    /// Reads a list of packed pieces; in the newer form each may be one plain element instead.
    fn quick_list(&mut self, is_new: bool) -> Result<Value, RdbError> {
        let count = self.len()?;
        let mut all = Strings::new();
        for _ in 0..count {
            match if is_new { self.len()? } else { 0 } {
                0 => self.entries(ziplist, "a piece of a list", &mut all)?,
                1 => {
                    all.push_with(|out| self.string(out))?;
                    if all.get(all.len() - 1).is_empty() {
                        return Err(self.corrupt("a long element of a list without a byte"));
                    }
                }
                2 => self.entries(listpack, "a piece of a list", &mut all)?,
                _ => return Err(self.corrupt("a piece of a list of an unknown form")),
            }
        }
        Ok(Value::List(all))
    }

    fn module(&mut self) -> RdbError {
        match self.len() {
            Ok(id) => RdbError::Module { name: module_name(id), at: self.source.offset() },
            Err(error) => error,
        }
    }
}

/// A walk over packed entries, until the callee says that one makes no sense.
type Walk = fn(&[u8], &mut dyn FnMut(Entry<'_>) -> Option<()>) -> Option<()>;

fn listpack(bytes: &[u8], f: &mut dyn FnMut(Entry<'_>) -> Option<()>) -> Option<()> {
    packed::listpack(bytes, &mut |entry| f(entry))
}

fn ziplist(bytes: &[u8], f: &mut dyn FnMut(Entry<'_>) -> Option<()>) -> Option<()> {
    packed::ziplist(bytes, &mut |entry| f(entry))
}

/// The name of a module's type: nine characters of six bits each, above ten bits of a version.
pub(super) fn module_name(id: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).rev().map(|place| LETTERS[(id >> (10 + 6 * place) & 63) as usize] as char).collect()
}
