//! The library `cjson`: values of Lua as JSON, and back (`decode`).

mod decode;

use mlua::{LightUserData, Table, Value};

use super::bind::{Answer, Arguments, Failure, Function, as_number, type_name};
use super::host::State;
use super::numbers::format_g;
use decode::decode;

/// Depth of nesting that the Rust stack has room for, whatever a script asks for.
const DEPTH_MAX: i64 = 1000;
/// Values between two looks at the time.
const VALUES_PER_LOOK: u32 = 4096;

/// The settings that a script can change; each script begins with these.
#[derive(Debug, Clone)]
pub(crate) struct JsonOptions {
    sparse_convert: bool,
    sparse_ratio: i64,
    sparse_safe: i64,
    encode_max_depth: i64,
    decode_max_depth: i64,
    precision: i64,
    keep_buffer: bool,
    encode_invalid: Invalid,
    decode_invalid: bool,
}

/// What becomes of numbers that JSON does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Invalid {
    Refuse,
    Write,
    Null,
}

impl Default for JsonOptions {
    fn default() -> Self {
        Self {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_max_depth: 1000,
            decode_max_depth: 1000,
            precision: 14,
            keep_buffer: true,
            encode_invalid: Invalid::Refuse,
            decode_invalid: true,
        }
    }
}

/// The functions, by the names under which the prelude finds them.
pub(crate) const FUNCTIONS: [(&str, Function); 9] = [
    ("json_encode", encode),
    ("json_decode", decode),
    ("json_encode_sparse_array", sparse_array),
    ("json_encode_max_depth", |args| number(args, |json| &mut json.encode_max_depth, i64::MAX)),
    ("json_decode_max_depth", |args| number(args, |json| &mut json.decode_max_depth, i64::MAX)),
    ("json_encode_number_precision", |args| number(args, |json| &mut json.precision, 16)),
    ("json_encode_keep_buffer", |args| flag(args, |json| &mut json.keep_buffer)),
    ("json_encode_invalid_numbers", encode_invalid),
    ("json_decode_invalid_numbers", |args| flag(args, |json| &mut json.decode_invalid)),
];

fn check_most(args: &Arguments<'_>, most: usize) -> Result<(), Failure> {
    if args.len() > most { Err(args.wrong(most, "found too many arguments")) } else { Ok(()) }
}

fn number(args: &Arguments<'_>, field: fn(&mut JsonOptions) -> &mut i64, most: i64) -> Answer {
    check_most(args, 1)?;
    let mut options = args.state.json.borrow_mut();
    if !args.is_none(0) {
        let value = args.int(0)?;
        if !(1..=most.min(i64::from(i32::MAX))).contains(&value) {
            let most = most.min(i64::from(i32::MAX));
            return Err(args.wrong(0, format_args!("expected integer between 1 and {most}")));
        }
        *field(&mut options) = value;
    }
    Ok(vec![Value::Integer(*field(&mut options))])
}

fn on_off(args: &Arguments<'_>, index: usize) -> Result<bool, Failure> {
    match args.get(index) {
        Value::Boolean(value) => Ok(*value),
        _ => match &*args.string(index)?.as_bytes() {
            b"on" => Ok(true),
            b"off" => Ok(false),
            other => {
                let given = String::from_utf8_lossy(other).into_owned();
                Err(args.wrong(index, format_args!("invalid option '{given}'")))
            }
        },
    }
}

fn flag(args: &Arguments<'_>, field: fn(&mut JsonOptions) -> &mut bool) -> Answer {
    check_most(args, 1)?;
    let mut options = args.state.json.borrow_mut();
    if !args.is_none(0) {
        *field(&mut options) = on_off(args, 0)?;
    }
    Ok(vec![Value::Boolean(*field(&mut options))])
}

fn encode_invalid(args: &Arguments<'_>) -> Answer {
    check_most(args, 1)?;
    let mut options = args.state.json.borrow_mut();
    match args.get(0) {
        Value::Nil => {}
        Value::String(text) if &*text.as_bytes() == b"null" => {
            options.encode_invalid = Invalid::Null;
        }
        _ => {
            let is_on = on_off(args, 0)?;
            options.encode_invalid = if is_on { Invalid::Write } else { Invalid::Refuse };
        }
    }
    Ok(vec![match options.encode_invalid {
        Invalid::Refuse => Value::Boolean(false),
        Invalid::Write => Value::Boolean(true),
        Invalid::Null => Value::String(args.lua.create_string("null")?),
    }])
}

fn sparse_array(args: &Arguments<'_>) -> Answer {
    check_most(args, 3)?;
    let mut options = args.state.json.borrow_mut();
    if !args.is_none(0) {
        options.sparse_convert = on_off(args, 0)?;
    }
    for index in [1, 2] {
        if args.is_none(index) {
            continue;
        }
        let value = args.int(index)?;
        if !(0..=i64::from(i32::MAX)).contains(&value) {
            let why = format!("expected integer between 0 and {}", i32::MAX);
            return Err(args.wrong(index, why));
        }
        *(if index == 1 { &mut options.sparse_ratio } else { &mut options.sparse_safe }) = value;
    }
    let convert = Value::Boolean(options.sparse_convert);
    Ok(vec![convert, Value::Integer(options.sparse_ratio), Value::Integer(options.sparse_safe)])
}

fn encode(args: &Arguments<'_>) -> Answer {
    if args.len() != 1 {
        return Err(args.wrong(0, "expected 1 argument"));
    }
    let options = args.state.json.borrow().clone();
    let mut encoder = Encoder { state: args.state, options, out: Vec::new(), values: 0 };
    encoder.value(args.get(0), 0)?;
    Ok(vec![Value::String(args.lua.create_string(encoder.out)?)])
}

struct Encoder<'a> {
    state: &'a State,
    options: JsonOptions,
    out: Vec<u8>,
    values: u32,
}

impl Encoder<'_> {
    fn value(&mut self, value: &Value, depth: i64) -> Result<(), Failure> {
        self.look()?;
        match value {
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::String(text) => self.text(&text.as_bytes()),
            Value::Table(table) => self.table(table, depth + 1)?,
            Value::LightUserData(LightUserData(pointer)) if pointer.is_null() => {
                self.out.extend_from_slice(b"null");
            }
            other => match as_number(other) {
                Some(number) => self.number(number)?,
                None => return Err(cannot(other, "type not supported")),
            },
        }
        Ok(())
    }

    /// Ends an encoding that needs too much memory or time.
    fn look(&mut self) -> Result<(), Failure> {
        self.values += 1;
        if self.out.len() > self.state.memory_max.get() {
            self.state.stop(super::host::Stop::Memory);
        }
        let is_due = self.values.is_multiple_of(VALUES_PER_LOOK);
        if self.state.stopped().is_some() || is_due && self.state.is_over() {
            return Err(Failure::Text("the script is over".to_owned()));
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: i64) -> Result<(), Failure> {
        if depth > self.options.encode_max_depth.min(DEPTH_MAX) {
            let text = format!("Cannot serialise, excessive nesting ({depth})");
            return Err(Failure::Text(text));
        }
        match self.array_len(table)? {
            Some(len @ 1..) => {
                self.out.push(b'[');
                for at in 1..=len {
                    if at > 1 {
                        self.out.push(b',');
                    }
                    self.value(&table.raw_get::<Value>(at)?, depth)?;
                }
                self.out.push(b']');
            }
            _ => self.object(table, depth)?,
        }
        Ok(())
    }

    /// The length of the array that a table is; `None` if it has other keys than an array's.
    fn array_len(&mut self, table: &Table) -> Result<Option<i64>, Failure> {
        let (mut most, mut items) = (0.0f64, 0i64);
        for pair in table.pairs::<Value, Value>() {
            match as_number(&pair?.0) {
                Some(key) if key.floor() == key && key >= 1.0 => {
                    most = most.max(key);
                    items += 1;
                }
                _ => return Ok(None),
            }
        }
        let JsonOptions { sparse_ratio, sparse_safe, sparse_convert, .. } = self.options;
        let is_sparse = sparse_ratio > 0
            && most > items.saturating_mul(sparse_ratio) as f64
            && most > sparse_safe as f64;
        match is_sparse {
            true if !sparse_convert => {
                Err(Failure::Text("Cannot serialise table: excessively sparse array".to_owned()))
            }
            true => Ok(None),
            false => Ok(Some(most as i64)),
        }
    }

    fn object(&mut self, table: &Table, depth: i64) -> Result<(), Failure> {
        self.out.push(b'{');
        let mut is_first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if !std::mem::take(&mut is_first) {
                self.out.push(b',');
            }
            match (&key, as_number(&key)) {
                (_, Some(number)) => {
                    self.out.push(b'"');
                    self.number(number)?;
                    self.out.push(b'"');
                }
                (Value::String(text), _) => self.text(&text.as_bytes()),
                _ => return Err(cannot(&key, "table key must be a number or string")),
            }
            self.out.push(b':');
            self.value(&value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn number(&mut self, number: f64) -> Result<(), Failure> {
        if !number.is_finite() {
            match self.options.encode_invalid {
                Invalid::Refuse => {
                    let text = "Cannot serialise number: must not be NaN or Inf";
                    return Err(Failure::Text(text.to_owned()));
                }
                Invalid::Null => {
                    self.out.extend_from_slice(b"null");
                    return Ok(());
                }
                Invalid::Write if number.is_nan() => {
                    self.out.extend_from_slice(b"nan");
                    return Ok(());
                }
                Invalid::Write => {}
            }
        }
        let text = format_g(number, self.options.precision as usize);
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn text(&mut self, text: &[u8]) {
        self.out.push(b'"');
        for byte in text {
            match byte {
                b'"' => self.out.extend_from_slice(b"\\\""),
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                b'/' => self.out.extend_from_slice(b"\\/"),
                8 => self.out.extend_from_slice(b"\\b"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                12 => self.out.extend_from_slice(b"\\f"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                0..32 | 127 => {
                    self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                }
                byte => self.out.push(*byte),
            }
        }
        self.out.push(b'"');
    }
}

fn cannot(value: &Value, why: &str) -> Failure {
    Failure::Text(format!("Cannot serialise {}: {why}", type_name(value)))
}
