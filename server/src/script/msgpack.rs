//! The library `cmsgpack`: values of Lua as MessagePack, and back.

use mlua::{Table, Value};

use super::bind::{Answer, Arguments, Failure, Function, as_number};
use super::host::Stop;

/// Depth below which tables become nil when they are packed, as in the original.
const PACK_DEPTH_MAX: usize = 16;
/// Depth of nesting that is unpacked.
const UNPACK_DEPTH_MAX: usize = 1000;
/// Values between two looks at the time.
const VALUES_PER_LOOK: u32 = 4096;

/// The functions, by the names under which the prelude finds them.
pub(crate) const FUNCTIONS: [(&str, Function); 4] = [
    ("msgpack_pack", pack),
    ("msgpack_unpack", |args| unpack(args, None, 0)),
    ("msgpack_unpack_one", |args| unpack(args, Some(1), args.int_or(1, 0)?)),
    ("msgpack_unpack_limit", |args| {
        let limit = args.int(1)?;
        unpack(args, Some(limit), args.int_or(2, 0)?)
    }),
];

fn pack(args: &Arguments<'_>) -> Answer {
    if args.len() == 0 {
        let text = "bad argument #0 to 'pack' (MessagePack pack needs input.)";
        return Err(Failure::Text(text.to_owned()));
    }
    let mut packer = Packer { args, out: Vec::new(), values: 0 };
    for value in &args.values {
        packer.value(value, 0)?;
    }
    Ok(vec![Value::String(args.lua.create_string(packer.out)?)])
}

struct Packer<'a> {
    args: &'a Arguments<'a>,
    out: Vec<u8>,
    values: u32,
}

impl Packer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Failure> {
        self.values += 1;
        let state = self.args.state;
        if self.out.len() > state.memory_max.get() {
            state.stop(Stop::Memory);
        }
        let is_due = self.values.is_multiple_of(VALUES_PER_LOOK);
        if state.stopped().is_some() || is_due && state.is_over() {
            return Err(Failure::Text("the script is over".to_owned()));
        }
        match value {
            Value::String(text) => self.bytes(&text.as_bytes()),
            Value::Boolean(value) => self.out.push(if *value { 0xc3 } else { 0xc2 }),
            Value::Table(table) if depth < PACK_DEPTH_MAX => self.table(table, depth)?,
            other => match as_number(other) {
                Some(number) => self.number(number),
                None => self.out.push(0xc0),
            },
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) {
        match bytes.len() {
            len @ 0..32 => self.out.push(0xa0 | len as u8),
            len @ 32..=0xff => self.out.extend_from_slice(&[0xd9, len as u8]),
            len @ 0x100..=0xffff => self.head(0xda, &(len as u16).to_be_bytes()),
            len => self.head(0xdb, &(len as u32).to_be_bytes()),
        }
        self.out.extend_from_slice(bytes);
    }

    fn head(&mut self, marker: u8, bytes: &[u8]) {
        self.out.push(marker);
        self.out.extend_from_slice(bytes);
    }

    fn number(&mut self, number: f64) {
        let whole = number as i64;
        if whole as f64 == number && number != i64::MAX as f64 {
            return self.int(whole);
        }
        let short = number as f32;
        if f64::from(short) == number {
            self.head(0xca, &short.to_be_bytes());
        } else {
            self.head(0xcb, &number.to_be_bytes());
        }
    }

    fn int(&mut self, int: i64) {
        match int {
            0..=127 => self.out.push(int as u8),
            128..=0xff => self.head(0xcc, &[int as u8]),
            0x100..=0xffff => self.head(0xcd, &(int as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => self.head(0xce, &(int as u32).to_be_bytes()),
            0x1_0000_0000.. => self.head(0xcf, &int.to_be_bytes()),
            -32..=-1 => self.out.push(int as u8),
            -128..=-33 => self.head(0xd0, &[int as u8]),
            -0x8000..=-129 => self.head(0xd1, &(int as i16).to_be_bytes()),
            -0x8000_0000..=-0x8001 => self.head(0xd2, &(int as i32).to_be_bytes()),
            _ => self.head(0xd3, &int.to_be_bytes()),
        }
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<(), Failure> {
        let (mut count, mut most, mut is_array) = (0usize, 0.0f64, true);
        for pair in table.pairs::<Value, Value>() {
            let (key, _) = pair?;
            count += 1;
            match as_number(&key) {
                Some(key) if key > 0.0 && key.floor() == key && key <= f64::from(i32::MAX) => {
                    most = most.max(key);
                }
                _ => is_array = false,
            }
        }
        if is_array && most == count as f64 {
            self.len(count, (0x90, 0xdc, 0xdd));
            for at in 1..=count {
                self.value(&table.raw_get::<Value>(at)?, depth + 1)?;
            }
            return Ok(());
        }
        self.len(count, (0x80, 0xde, 0xdf));
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.value(&key, depth + 1)?;
            self.value(&value, depth + 1)?;
        }
        Ok(())
    }

    fn len(&mut self, len: usize, (fixed, short, long): (u8, u8, u8)) {
        match len {
            0..=15 => self.out.push(fixed | len as u8),
            16..=0xffff => self.head(short, &(len as u16).to_be_bytes()),
            _ => self.head(long, &(len as u32).to_be_bytes()),
        }
    }
}

fn unpack(args: &Arguments<'_>, limit: Option<i64>, offset: i64) -> Answer {
    let bytes = args.string(0)?;
    let bytes = bytes.as_bytes();
    let wrong = |text: String| Err(Failure::Text(text));
    if offset < 0 || limit.is_some_and(|limit| limit < 0) {
        let len = bytes.len();
        return wrong(format!(
            "Invalid request to unpack with offset of {offset} and limit of {len}."
        ));
    }
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    let Some(rest) = bytes.get(from..) else {
        let len = bytes.len();
        return wrong(format!("Start offset {offset} greater than input length {len}."));
    };
    // Neither a limit nor an offset: everything, and no offset is returned.
    let limit = limit.filter(|limit| *limit != 0 || offset != 0);
    let most = limit.map_or(usize::MAX, |limit| limit as usize);
    let mut unpacker = Unpacker { args, rest, values: 0 };
    let mut values = Vec::new();
    while !unpacker.rest.is_empty() && values.len() < most {
        if values.len() >= super::bind::RESULTS_MAX {
            return wrong(
                "too many return values at once; use unpack_one or unpack_limit instead."
                    .to_owned(),
            );
        }
        values.push(unpacker.value(0)?);
    }
    if limit.is_some() {
        let left = unpacker.rest.len();
        let next = if left == 0 { -1 } else { (bytes.len() - left) as i64 };
        values.insert(0, Value::Integer(next));
    }
    Ok(values)
}

struct Unpacker<'a> {
    args: &'a Arguments<'a>,
    rest: &'a [u8],
    values: u32,
}

impl<'a> Unpacker<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Failure> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            return Err(Failure::Text("Missing bytes in input.".to_owned()));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    fn string(&mut self, len: usize) -> Result<Value, Failure> {
        Ok(Value::String(self.args.lua.create_string(self.take(len)?)?))
    }

    fn value(&mut self, depth: usize) -> Result<Value, Failure> {
        self.values += 1;
        if self.values.is_multiple_of(VALUES_PER_LOOK) && self.args.state.is_over() {
            return Err(Failure::Text("the script is over".to_owned()));
        }
        if depth > UNPACK_DEPTH_MAX {
            return Err(Failure::Text("Bad data format in input.".to_owned()));
        }
        let [marker] = self.array()?;
        let number = |value: f64| Ok(Value::Number(value));
        match marker {
            0x00..=0x7f => number(f64::from(marker)),
            0xe0..=0xff => number(f64::from(marker as i8)),
            0xa0..=0xbf => self.string(usize::from(marker & 0x1f)),
            0x90..=0x9f => self.sequence(usize::from(marker & 0xf), depth),
            0x80..=0x8f => self.map(usize::from(marker & 0xf), depth),
            0xc0 => Ok(Value::Nil),
            0xc2 => Ok(Value::Boolean(false)),
            0xc3 => Ok(Value::Boolean(true)),
            0xca => number(f64::from(f32::from_be_bytes(self.array()?))),
            0xcb => number(f64::from_be_bytes(self.array()?)),
            0xcc => number(f64::from(u8::from_be_bytes(self.array()?))),
            0xcd => number(f64::from(u16::from_be_bytes(self.array()?))),
            0xce => number(f64::from(u32::from_be_bytes(self.array()?))),
            0xcf => number(u64::from_be_bytes(self.array()?) as f64),
            0xd0 => number(f64::from(i8::from_be_bytes(self.array()?))),
            0xd1 => number(f64::from(i16::from_be_bytes(self.array()?))),
            0xd2 => number(f64::from(i32::from_be_bytes(self.array()?))),
            0xd3 => number(i64::from_be_bytes(self.array()?) as f64),
            0xd9 => {
                let len = u8::from_be_bytes(self.array()?);
                self.string(usize::from(len))
            }
            0xda => {
                let len = u16::from_be_bytes(self.array()?);
                self.string(usize::from(len))
            }
            0xdb => {
                let len = u32::from_be_bytes(self.array()?);
                self.string(len as usize)
            }
            0xdc => {
                let len = u16::from_be_bytes(self.array()?);
                self.sequence(usize::from(len), depth)
            }
            0xdd => {
                let len = u32::from_be_bytes(self.array()?);
                self.sequence(len as usize, depth)
            }
            0xde => {
                let len = u16::from_be_bytes(self.array()?);
                self.map(usize::from(len), depth)
            }
            0xdf => {
                let len = u32::from_be_bytes(self.array()?);
                self.map(len as usize, depth)
            }
            _ => Err(Failure::Text("Bad data format in input.".to_owned())),
        }
    }

    fn sequence(&mut self, len: usize, depth: usize) -> Result<Value, Failure> {
        let table = self.args.lua.create_table()?;
        for at in 1..=len {
            let value = self.value(depth + 1)?;
            table.raw_set(at, value)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, len: usize, depth: usize) -> Result<Value, Failure> {
        let table = self.args.lua.create_table()?;
        for _ in 0..len {
            let (key, value) = (self.value(depth + 1)?, self.value(depth + 1)?);
            match key {
                Value::Nil => {
                    return Err(Failure::Text("table index is nil".to_owned()));
                }
                Value::Number(number) if number.is_nan() => {
                    return Err(Failure::Text("table index is NaN".to_owned()));
                }
                key => table.raw_set(key, value)?,
            }
        }
        Ok(Value::Table(table))
    }
}
