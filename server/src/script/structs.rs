//! The library `struct`: numbers and strings as the bytes of C structures, and back.

use mlua::Value;

use super::bind::{Answer, Arguments, Failure, Function, to_int};
use super::host::Stop;

/// Most bytes of a whole number.
const INT_BYTES_MAX: usize = 32;

/// The functions, by the names under which the prelude finds them.
pub(crate) const FUNCTIONS: [(&str, Function); 3] =
    [("struct_pack", pack), ("struct_unpack", unpack), ("struct_size", size)];

fn failed<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Text(text.into()))
}

/// The items of a format, one by one.
struct Format<'a> {
    bytes: &'a [u8],
    is_little: bool,
    align: usize,
}

impl<'a> Format<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        // A format ends at its first zero, as a C string does.
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Self { bytes: &bytes[..end], is_little: true, align: 1 }
    }

    /// The next letter, with the size that belongs to it.
    fn next(&mut self) -> Result<Option<(u8, usize)>, Failure> {
        let Some((letter, rest)) = self.bytes.split_first() else { return Ok(None) };
        self.bytes = rest;
        let size = match letter {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number(1)?,
            b'i' | b'I' => {
                let size = self.number(4)?;
                if size > INT_BYTES_MAX {
                    return failed(format!(
                        "integral size {size} is larger than limit of {INT_BYTES_MAX}"
                    ));
                }
                size
            }
            _ => 0,
        };
        Ok(Some((*letter, size)))
    }

    fn number(&mut self, default: usize) -> Result<usize, Failure> {
        let digits = self.bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(default);
        }
        let (text, rest) = self.bytes.split_at(digits);
        self.bytes = rest;
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i32>().ok());
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.map_or_else(|| failed("integral size overflow"), Ok)
    }

    /// Bytes to skip so that an item lies where its size wants it.
    fn padding(&self, at: usize, letter: u8, size: usize) -> usize {
        if size == 0 || letter == b'c' {
            return 0;
        }
        let size = size.min(self.align);
        size.wrapping_sub(at & (size.wrapping_sub(1))) & (size.wrapping_sub(1))
    }

    /// Heeds a letter that is no item.
    fn control(&mut self, args: &Arguments<'_>, letter: u8) -> Result<(), Failure> {
        match letter {
            b' ' => {}
            b'>' => self.is_little = false,
            b'<' => self.is_little = true,
            b'!' => {
                let align = self.number(8)?;
                if !align.is_power_of_two() {
                    return failed(format!("alignment {align} is not a power of 2"));
                }
                self.align = align;
            }
            other => {
                let letter = char::from(other);
                return Err(args.wrong(0, format_args!("invalid format option '{letter}'")));
            }
        }
        Ok(())
    }

    fn ordered(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        if !self.is_little {
            bytes.reverse();
        }
        bytes
    }
}

fn pack(args: &Arguments<'_>) -> Answer {
    let format = args.string(0)?;
    let format = format.as_bytes();
    let mut format = Format::new(&format);
    let (mut out, mut arg) = (Vec::new(), 1);
    while let Some((letter, mut size)) = format.next()? {
        out.resize(out.len() + format.padding(out.len(), letter, size), 0);
        match letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = args.number(arg)?;
                arg += 1;
                let value = if number < 0.0 { to_int(number) as u64 } else { to_u64(number) };
                let mut bytes = value.to_le_bytes().to_vec();
                bytes.resize(size, 0);
                out.extend(format.ordered(bytes));
            }
            b'x' => out.push(0),
            b'f' => {
                let bytes = (args.number(arg)? as f32).to_le_bytes().to_vec();
                arg += 1;
                out.extend(format.ordered(bytes));
            }
            b'd' => {
                let bytes = args.number(arg)?.to_le_bytes().to_vec();
                arg += 1;
                out.extend(format.ordered(bytes));
            }
            b'c' | b's' => {
                let text = args.string(arg)?;
                let text = text.as_bytes();
                arg += 1;
                if size == 0 {
                    size = text.len();
                }
                let Some(head) = text.get(..size) else {
                    return Err(args.wrong(arg, "string too short"));
                };
                out.extend_from_slice(head);
                if letter == b's' {
                    out.push(0);
                }
            }
            other => format.control(args, other)?,
        }
        if out.len() > args.state.memory_max.get() {
            args.state.stop(Stop::Memory);
            return failed("not enough memory");
        }
    }
    Ok(vec![Value::String(args.lua.create_string(out)?)])
}

/// A number that is not negative as C casts it to an unsigned word on x86-64.
fn to_u64(number: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if number < HALF { number as u64 } else { (to_int(number - HALF) as u64) ^ (1 << 63) }
}

fn unpack(args: &Arguments<'_>) -> Answer {
    let (format, data) = (args.string(0)?, args.string(1)?);
    let (format, data) = (format.as_bytes(), data.as_bytes());
    let at = args.int_or(2, 1)?;
    if at <= 0 {
        return Err(args.wrong(2, "offset must be 1 or greater"));
    }
    let mut at = usize::try_from(at - 1).unwrap_or(usize::MAX);
    let short = || args.wrong(1, "data string too short");
    let mut format = Format::new(&format);
    let mut values: Vec<Value> = Vec::new();
    while let Some((letter, mut size)) = format.next()? {
        at = at.saturating_add(format.padding(at, letter, size));
        let item = at.checked_add(size).and_then(|end| data.get(at..end)).ok_or_else(short)?;
        if values.len() + 2 >= super::bind::RESULTS_MAX {
            return failed("too many results");
        }
        match letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let bytes = format.ordered(item.to_vec());
                values.push(Value::Number(whole(&bytes, letter.is_ascii_lowercase())));
            }
            b'x' => {}
            b'f' => {
                let mut bytes = [0; 4];
                bytes.copy_from_slice(&format.ordered(item.to_vec()));
                values.push(Value::Number(f64::from(f32::from_le_bytes(bytes))));
            }
            b'd' => {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&format.ordered(item.to_vec()));
                values.push(Value::Number(f64::from_le_bytes(bytes)));
            }
            b'c' => {
                if size == 0 {
                    let Some(Value::Number(len)) = values.pop() else {
                        return failed("format 'c0' needs a previous size");
                    };
                    size = usize::try_from(to_int(len)).unwrap_or(usize::MAX);
                }
                let end = at.checked_add(size).ok_or_else(short)?;
                let text = data.get(at..end).ok_or_else(short)?;
                values.push(Value::String(args.lua.create_string(text)?));
            }
            b's' => {
                let rest = &data[at..];
                let Some(len) = rest.iter().position(|byte| *byte == 0) else {
                    return failed("unfinished string in data");
                };
                values.push(Value::String(args.lua.create_string(&rest[..len])?));
                size = len + 1;
            }
            other => format.control(args, other)?,
        }
        at += size;
    }
    values.push(Value::Integer(at as i64 + 1));
    Ok(values)
}

/// The whole number in bytes, the lowest first; beyond 8 bytes the higher ones are dropped.
fn whole(bytes: &[u8], is_signed: bool) -> f64 {
    let low = bytes.iter().take(8).rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    if !is_signed {
        return low as f64;
    }
    let bits = (bytes.len().min(8) * 8) as u32;
    if bits == 0 {
        return 0.0;
    }
    (((low << (64 - bits)) as i64) >> (64 - bits)) as f64
}

fn size(args: &Arguments<'_>) -> Answer {
    let format = args.string(0)?;
    let format = format.as_bytes();
    let mut format = Format::new(&format);
    let mut at = 0usize;
    while let Some((letter, size)) = format.next()? {
        at = at.saturating_add(format.padding(at, letter, size));
        match letter {
            b's' => return Err(args.wrong(0, "option 's' has no fixed size")),
            b'c' if size == 0 => return Err(args.wrong(0, "option 'c0' has no fixed size")),
            letter if !letter.is_ascii_alphanumeric() => format.control(args, letter)?,
            _ => {}
        }
        at = at.saturating_add(size);
    }
    Ok(vec![Value::Integer(at as i64)])
}
