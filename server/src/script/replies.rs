//! Values of Lua as the reply to the client.

use std::io::Write;

use mlua::{Table, Value};

use super::bind::{as_number, to_int};
use super::host::{State, Stop};
use crate::resp::Reply;

/// Depth of tables in tables above which the reply says so.
const DEPTH_MAX: u32 = 1500;
/// Values between two looks at the time.
const VALUES_PER_LOOK: u32 = 1024;

/// Writes a script's value as its reply. Stops early where the script is over, which the caller
/// finds in the state.
pub(crate) fn write(state: &State, value: &Value, reply: &mut Reply<'_>) -> mlua::Result<()> {
    let mark = reply.mark();
    Writer { state, reply, mark, values: 0 }.value(value, 0)
}

struct Writer<'a, 'o> {
    state: &'a State,
    reply: &'a mut Reply<'o>,
    mark: usize,
    values: u32,
}

impl Writer<'_, '_> {
    /// Whether the script is over, because of the time or because of a reply without end.
    fn is_over(&mut self) -> bool {
        self.values += 1;
        let bytes = self.reply.mark() - self.mark;
        if self.reply.overflowed() || bytes > 2 * self.state.memory_max.get() {
            self.state.stop(Stop::Memory);
        }
        let is_due = self.values.is_multiple_of(VALUES_PER_LOOK);
        self.state.stopped().is_some() || is_due && self.state.is_over()
    }

    fn value(&mut self, value: &Value, depth: u32) -> mlua::Result<()> {
        if self.is_over() {
            return Ok(());
        }
        if depth > DEPTH_MAX {
            self.reply.error(&"ERR reached lua stack limit");
            return Ok(());
        }
        match value {
            Value::String(text) => self.reply.bulk(&text.as_bytes()),
            Value::Boolean(value) if self.state.resp3.get() => self.reply.boolean(*value),
            Value::Boolean(true) => self.reply.int(1),
            Value::Boolean(false) => self.reply.null(),
            Value::Table(table) => self.table(table, depth)?,
            other => match as_number(other) {
                Some(number) => self.reply.int(to_int(number)),
                None => self.reply.null(),
            },
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: u32) -> mlua::Result<()> {
        let names = &self.state.names;
        let field = |name: &mlua::String| table.raw_get::<Value>(name);
        if let Value::String(text) = field(&names.err)? {
            self.error(&text.as_bytes());
            return Ok(());
        }
        if let Value::String(text) = field(&names.ok)? {
            self.line(b'+', &text.as_bytes());
            return Ok(());
        }
        if let Some(number) = as_number(&field(&names.double)?) {
            self.reply.double(number);
            return Ok(());
        }
        if let Value::String(text) = field(&names.big_number)? {
            match self.reply.resp3() {
                true => self.line(b'(', &text.as_bytes()),
                false => self.reply.bulk(&on_one_line(&text.as_bytes())),
            }
            return Ok(());
        }
        if let Value::Table(verbatim) = field(&names.verbatim_string)?
            && let Value::String(format) = verbatim.raw_get("format")?
            && let Value::String(text) = verbatim.raw_get("string")?
        {
            self.verbatim(&format.as_bytes(), &text.as_bytes());
            return Ok(());
        }
        if let Value::Table(map) = field(&names.map)? {
            let mut pairs = Vec::new();
            map.for_each(|key: Value, value: Value| {
                pairs.push((key, value));
                Ok(())
            })?;
            self.reply.map(pairs.len());
            for (key, value) in &pairs {
                self.value(key, depth + 1)?;
                self.value(value, depth + 1)?;
            }
            return Ok(());
        }
        if let Value::Table(set) = field(&names.set)? {
            let mut members = Vec::new();
            set.for_each(|key: Value, _: Value| {
                members.push(key);
                Ok(())
            })?;
            self.reply.set(members.len());
            return members.iter().try_for_each(|member| self.value(member, depth + 1));
        }
        let mut len = 0;
        while !table.raw_get::<Value>(len + 1)?.is_nil() {
            len += 1;
            if len % 4096 == 0 && self.state.is_over() {
                return Ok(());
            }
        }
        self.reply.array(len);
        for at in 1..=len {
            self.value(&table.raw_get::<Value>(at)?, depth + 1)?;
        }
        Ok(())
    }

    fn error(&mut self, text: &[u8]) {
        self.reply.error_bytes(text);
    }

    fn line(&mut self, marker: u8, text: &[u8]) {
        let line = [&[marker], &*on_one_line(text), b"\r\n"].concat();
        // A reply that is full notes that itself.
        let _ = self.reply.write_all(&line);
    }

    fn verbatim(&mut self, format: &[u8], text: &[u8]) {
        if !self.reply.resp3() {
            return self.reply.bulk(text);
        }
        let mut three = [b' '; 3];
        let format = &format[..format.len().min(3)];
        three[..format.len()].copy_from_slice(format);
        let head = format!("={}\r\n", text.len() + 4);
        let _ = self.reply.write_all(&[head.as_bytes(), &three, b":", text, b"\r\n"].concat());
    }
}

fn on_one_line(text: &[u8]) -> Vec<u8> {
    text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
}

/// The text of the error that a table stands for, if it does.
pub(crate) fn error_text(table: &Table) -> mlua::Result<Option<Vec<u8>>> {
    Ok(match table.raw_get::<Value>("err")? {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        _ => None,
    })
}
