//! Replies of commands as values of Lua.

use mlua::{Lua, Table, Value};

use super::names::Names;

/// A reply as a value, and whether it is an error.
pub(crate) fn to_lua(lua: &Lua, names: &Names, reply: &[u8]) -> mlua::Result<(Value, bool)> {
    let mut rest = reply;
    let value = value(lua, names, &mut rest)?;
    Ok((value, reply.first() == Some(&b'-')))
}

/// Takes a line off the reply, without its end.
fn line<'r>(rest: &mut &'r [u8]) -> &'r [u8] {
    let end = rest.iter().position(|byte| *byte == b'\r').unwrap_or(rest.len());
    let line = &rest[..end];
    *rest = rest.get(end + 2..).unwrap_or_default();
    line
}

/// Takes bytes and the end of their line off the reply.
fn bulk<'r>(rest: &mut &'r [u8], len: usize) -> &'r [u8] {
    let bytes = rest.get(..len).unwrap_or_default();
    *rest = rest.get(len + 2..).unwrap_or_default();
    bytes
}

fn number(text: &[u8]) -> i64 {
    crate::number::parse_i64(text).unwrap_or_default()
}

/// A table with one field.
fn with(lua: &Lua, name: &mlua::String, value: Value) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

fn text(lua: &Lua, text: &[u8]) -> mlua::Result<Value> {
    Ok(Value::String(lua.create_string(text)?))
}

fn value(lua: &Lua, names: &Names, rest: &mut &[u8]) -> mlua::Result<Value> {
    let head = line(rest);
    let Some((marker, head)) = head.split_first() else { return Ok(Value::Nil) };
    match marker {
        b'$' => match number(head) {
            len @ 0.. => text(lua, bulk(rest, len as usize)),
            _ => Ok(Value::Boolean(false)),
        },
        b':' => Ok(Value::Integer(number(head))),
        b'+' => with(lua, &names.ok, text(lua, head)?),
        b'-' => {
            let table = error(lua, head)?;
            table.raw_set(&names.ignore, true)?;
            Ok(Value::Table(table))
        }
        b'*' | b'>' => match number(head) {
            len @ 0.. => {
                let table = lua.create_table_with_capacity(len.min(1 << 16) as usize, 0)?;
                for at in 1..=len {
                    table.raw_set(at, value(lua, names, rest)?)?;
                }
                Ok(Value::Table(table))
            }
            _ => Ok(Value::Boolean(false)),
        },
        b'%' => {
            let map = lua.create_table()?;
            for _ in 0..number(head) {
                let key = value(lua, names, rest)?;
                map.raw_set(key, value(lua, names, rest)?)?;
            }
            with(lua, &names.map, Value::Table(map))
        }
        b'~' => {
            let set = lua.create_table()?;
            for _ in 0..number(head) {
                set.raw_set(value(lua, names, rest)?, true)?;
            }
            with(lua, &names.set, Value::Table(set))
        }
        b',' => with(lua, &names.double, Value::Number(double(head))),
        b'#' => Ok(Value::Boolean(head == b"t")),
        b'(' => with(lua, &names.big_number, text(lua, head)?),
        b'=' => {
            let bytes = bulk(rest, number(head).max(0) as usize);
            let (format, bytes) = bytes.split_at_checked(4).unwrap_or((b"txt:", bytes));
            let table = lua.create_table()?;
            table.raw_set("string", text(lua, bytes)?)?;
            table.raw_set("format", text(lua, &format[..3])?)?;
            with(lua, &names.verbatim_string, Value::Table(table))
        }
        // Null.
        _ => Ok(Value::Nil),
    }
}

fn double(text: &[u8]) -> f64 {
    match text {
        b"inf" => f64::INFINITY,
        b"-inf" => f64::NEG_INFINITY,
        _ => super::numbers::parse_prefix(text).map_or(f64::NAN, |(value, _)| value),
    }
}

/// The table that stands for an error, whose text begins with its code.
pub(crate) fn error(lua: &Lua, text: &[u8]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 2)?;
    table.raw_set("err", lua.create_string(text)?)?;
    Ok(table)
}

/// The table that stands for an error as a script gives it: one with a code in front begins with
/// `-`, other texts get the code `ERR`.
pub(crate) fn coded_error(lua: &Lua, given: &[u8]) -> mlua::Result<Table> {
    let trimmed = |text: &[u8]| {
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let from = text.iter().position(|byte| !is_end(byte)).unwrap_or(text.len());
        let to = text.iter().rposition(|byte| !is_end(byte)).map_or(from, |at| at + 1);
        text[from..to].to_vec()
    };
    let (code, message) = match given.strip_prefix(b"-") {
        Some(coded) => match coded.iter().position(|byte| *byte == b' ') {
            Some(blank) => (&coded[..blank], &coded[blank + 1..]),
            None => (&b"ERR"[..], coded),
        },
        None => (&b"ERR"[..], given),
    };
    error(lua, &[code, b" ", &trimmed(message)].concat())
}
