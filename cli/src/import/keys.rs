//! Keys of a dump as commands: SET or RESTORE, or for large values steps that each fit into any
//! budget.

use std::io::Read;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use perdura_rdb::{Encoder, Item, KeyItem, RdbError, Reader, Strings, Value, seal_payload};

use super::target::{About, Target};
use super::wire::Reply;

/// Most memory that one value may take while it passes through.
pub const VALUE_BYTES_MAX: u64 = 16 << 30;
/// A value whose payload is longer goes in steps.
const RESTORE_BYTES_MAX: usize = 256 << 10;
/// Bytes of the elements of one step.
const STEP_BYTES: usize = 128 << 10;

/// Counts of the keys that an import took from a dump, and the parts that it left out.
#[derive(Debug, Default)]
pub struct Taken {
    /// Keys that were sent.
    pub keys: u64,
    /// Keys among them whose time was over when they came.
    pub expired: u64,
    /// Keys of other databases than the one asked for.
    pub elsewhere: u64,
    /// Keys without an element, which no server keeps.
    pub empty: u64,
    /// Libraries of functions that were taken.
    pub functions: u64,
    /// The parts of the dump that were left out, each once.
    pub left_out: Vec<String>,
}

impl Taken {
    /// Says how many keys the target has, after an import that did not end.
    pub fn so_far(&self, target: &mut Target) -> String {
        // Where the target is gone, nobody knows of the last ones.
        let word = if target.finish().is_ok() { "" } else { "at most " };
        format!("the import has not ended: {word}{} keys were taken", self.keys)
    }

    fn leave_out(&mut self, what: String) {
        if !self.left_out.contains(&what) {
            self.left_out.push(what);
        }
    }
}

/// Reads a dump to its end, and sends its keys. `seen` is told the bytes read and the keys sent.
///
/// # Errors
/// The dump is damaged or ends early; the target refuses.
pub fn take<R: Read>(
    reader: &mut Reader<R>,
    only: Option<u64>,
    target: &mut Target,
    taken: &mut Taken,
    mut seen: impl FnMut(u64, u64) -> Result<()>,
) -> Result<()> {
    while let Some(item) = reader.next_item().map_err(explained)? {
        match item {
            Item::Key(item) if only.is_some_and(|only| only != item.db) => taken.elsewhere += 1,
            Item::Key(item) => send(&item, target, taken)?,
            Item::Function(text) => load_function(&text, target, taken)?,
            Item::ModuleAux { name } => taken.leave_out(format!("data of the module type {name}")),
            Item::Aux { .. } | Item::Sizes { .. } => {}
        }
        seen(reader.offset(), taken.keys)?;
    }
    target.finish()
}

fn explained(error: RdbError) -> anyhow::Error {
    match error {
        RdbError::Key { ref error, .. } if matches!(**error, RdbError::Module { .. }) => {
            anyhow::Error::from(error_without_source(&error.to_string()))
                .context("delete such keys at the source, or leave them out of the dump")
        }
        other => other.into(),
    }
}

fn error_without_source(text: &str) -> std::io::Error {
    std::io::Error::other(text.to_owned())
}

fn load_function(text: &[u8], target: &mut Target, taken: &mut Taken) -> Result<()> {
    match target.ask_bytes(&[b"FUNCTION", b"LOAD", b"REPLACE", text])? {
        Reply::Error(words) => taken.leave_out(format!("a library of functions ({words})")),
        _ => taken.functions += 1,
    }
    Ok(())
}

fn send(item: &KeyItem, target: &mut Target, taken: &mut Taken) -> Result<()> {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock")?.as_millis();
    if item.expire_at_ms.is_some_and(|at_ms| u128::from(at_ms) <= now_ms) {
        taken.expired += 1;
    }
    if item.value.is_empty() {
        taken.empty += 1;
        return Ok(());
    }
    taken.keys += 1;
    target.select(item.db)?;
    let key = &item.key[..];
    let about = || About::key(key, item.db);
    let is_plain = item.expire_at_ms.or(item.idle_seconds).is_none() && item.frequency.is_none();
    if let Value::String(string) = &item.value
        && is_plain
        && string.len() <= RESTORE_BYTES_MAX
    {
        // It says the same as RESTORE, and neither side has to sum bytes and pack values.
        return target.push(&[b"SET", key, string], about);
    }
    let mut payload = Vec::new();
    Encoder::new(&mut payload, false).value(&item.value);
    let expire_at = item.expire_at_ms.map(|at_ms| at_ms.max(1).to_string());
    let in_steps = !matches!(item.value, Value::String(_) | Value::Stream(_));
    if payload.len() <= RESTORE_BYTES_MAX || !in_steps {
        seal_payload(&mut payload);
        let expire_at = expire_at.as_deref().unwrap_or("0").as_bytes();
        let mut words = vec![&b"RESTORE"[..], key, expire_at, &payload, b"REPLACE", b"ABSTTL"];
        // How a key was used decides whether it goes first where memory is used up.
        let used = match (item.idle_seconds, item.frequency) {
            (_, Some(frequency)) => Some((&b"FREQ"[..], u64::from(frequency))),
            (Some(seconds), None) => Some((&b"IDLETIME"[..], seconds.min(i64::MAX as u64))),
            (None, None) => None,
        };
        let used = used.map(|(word, number)| (word, number.to_string()));
        if let Some((word, number)) = &used {
            words.extend([*word, number.as_bytes()]);
        }
        return target.push(&words, about);
    }
    target.push(&[b"DEL", key], about)?;
    match &item.value {
        Value::List(elements) => steps(target, b"RPUSH", key, elements, 1, about)?,
        Value::Set(members) => steps(target, b"SADD", key, members, 1, about)?,
        Value::Hash(fields) => steps(target, b"HSET", key, fields, 2, about)?,
        Value::ExpiringHash(fields, expiries) => {
            steps(target, b"HSET", key, fields, 2, about)?;
            for ((name, _), at_ms) in fields.pairs().zip(expiries) {
                let Some(at_ms) = at_ms.map(|at_ms| at_ms.to_string()) else { continue };
                let words = [&b"HPEXPIREAT"[..], key, at_ms.as_bytes(), b"FIELDS", b"1", name];
                target.push(&words, about)?;
            }
        }
        Value::Sorted(names, scores) => {
            let mut both = Strings::new();
            for (name, score) in names.iter().zip(scores) {
                both.push(format!("{score:?}").as_bytes());
                both.push(name);
            }
            steps(target, b"ZADD", key, &both, 2, about)?;
        }
        Value::String(_) | Value::Stream(_) => {}
    }
    match expire_at {
        Some(at_ms) => target.push(&[b"PEXPIREAT", key, at_ms.as_bytes()], about),
        None => Ok(()),
    }
}

/// Sends strings in several commands, `width` of them always together.
fn steps(
    target: &mut Target,
    command: &[u8],
    key: &[u8],
    strings: &Strings,
    width: usize,
    about: impl Fn() -> About,
) -> Result<()> {
    let mut words: Vec<&[u8]> = vec![command, key];
    let mut bytes = 0;
    for (at, string) in strings.iter().enumerate() {
        if bytes >= STEP_BYTES && at % width == 0 {
            target.push(&words, &about)?;
            words.truncate(2);
            bytes = 0;
        }
        words.push(string);
        bytes += string.len() + 16;
    }
    if words.len() > 2 {
        target.push(&words, about)?;
    }
    Ok(())
}
