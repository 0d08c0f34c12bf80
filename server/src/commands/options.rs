//! The arguments that several commands share: times, cursors, databases.

use std::ops::Range;

use perdura_store::{DATABASES, Entry, Key, Kind, Tx};

use super::call::Call;
use super::error::CommandError;
use crate::number::parse_i64;

/// Longest string value, bytes (Redis's proto-max-bulk-len).
pub(super) const STRING_MAX_BYTES: u64 = 512 << 20;

/// Whether `arg` spells `name`, which is in upper case, in any case.
pub(super) fn is(arg: &[u8], name: &str) -> bool {
    arg.eq_ignore_ascii_case(name.as_bytes())
}

/// The unit and origin of a time argument: seconds or milliseconds, from now or from 1970.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Time {
    InSeconds,
    InMs,
    AtSeconds,
    AtMs,
}

impl Time {
    /// Reads the option letters of SET and GETEX.
    pub fn option(arg: &[u8]) -> Option<Self> {
        [
            ("EX", Self::InSeconds),
            ("PX", Self::InMs),
            ("EXAT", Self::AtSeconds),
            ("PXAT", Self::AtMs),
        ]
        .into_iter()
        .find_map(|(name, time)| is(arg, name).then_some(time))
    }

    /// The time as milliseconds since 1970; `None` if that is out of range.
    pub fn at_ms(self, value: i64, now_ms: u64) -> Option<i64> {
        let ms = match self {
            Self::InSeconds | Self::AtSeconds => value.checked_mul(1000)?,
            Self::InMs | Self::AtMs => value,
        };
        match self {
            Self::InSeconds | Self::InMs => ms.checked_add(i64::try_from(now_ms).ok()?),
            Self::AtSeconds | Self::AtMs => Some(ms),
        }
    }
}

/// Reads a time that must be positive, as SET, GETEX and SETEX take it.
pub(super) fn expire_ms(
    call: &Call<'_, '_>,
    (time, index): (Time, usize),
    command: &'static str,
) -> Result<u64, CommandError> {
    let value = call.int(index)?;
    let invalid = CommandError::ExpireTime(command);
    if value <= 0 {
        return Err(invalid);
    }
    let at_ms = time.at_ms(value, call.now_ms).ok_or(invalid)?;
    Ok(at_ms as u64)
}

/// Reads a SCAN cursor: an unsigned number as C's `strtoul` reads one, which takes a sign.
pub(super) fn cursor(arg: &[u8]) -> Result<u64, CommandError> {
    let (negative, digits) = match arg {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number);
    let number: u64 = text.and_then(|t| t.parse().ok()).ok_or(CommandError::Cursor)?;
    Ok(if negative { number.wrapping_neg() } else { number })
}

/// The options of SCAN and HSCAN.
pub(super) struct ScanOptions<'a> {
    pub pattern: Option<&'a [u8]>,
    pub count: usize,
    pub kind: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    /// Reads the options from argument `first` on; TYPE is one only where `typed`.
    pub fn parse(call: &Call<'a, '_>, first: usize, typed: bool) -> Result<Self, CommandError> {
        let mut options = Self { pattern: None, count: 10, kind: None };
        let mut at = first;
        while at < call.args.len() {
            let (name, has_value) = (call.args.get(at), at + 1 < call.args.len());
            let value = call.args.get(at + 1);
            if is(name, "COUNT") && has_value {
                let count = call.int(at + 1)?;
                options.count =
                    usize::try_from(count).ok().filter(|n| *n > 0).ok_or(CommandError::Syntax)?;
            } else if is(name, "MATCH") && has_value {
                options.pattern = Some(value).filter(|p| *p != b"*");
            } else if typed && is(name, "TYPE") && has_value {
                options.kind = Some(value);
            } else {
                return Err(CommandError::Syntax);
            }
            at += 2;
        }
        Ok(options)
    }

    pub fn accepts(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| crate::glob::matches(pattern, name))
    }
}

/// Reads an integer of at least `least`.
pub(super) fn positive(arg: &[u8], least: u64) -> Option<u64> {
    parse_i64(arg).and_then(|number| u64::try_from(number).ok()).filter(|n| *n >= least)
}

/// The arguments that are keys, as many as argument `count_at` says; another one follows them.
pub(super) fn counted_keys(
    call: &Call<'_, '_>,
    count_at: usize,
) -> Result<Range<usize>, CommandError> {
    let keys = positive(call.args.get(count_at), 1).ok_or(CommandError::NumKeys)?;
    let first = count_at + 1;
    let end = usize::try_from(keys).unwrap_or(usize::MAX).saturating_add(first);
    if end < call.args.len() { Ok(first..end) } else { Err(CommandError::Syntax) }
}

/// Reads `[COUNT count]` from argument `at` to the end: how many elements are to be popped.
pub(super) fn pop_count(call: &Call<'_, '_>, mut at: usize) -> Result<u64, CommandError> {
    let mut count = None;
    while at < call.args.len() {
        let is_count = count.is_none() && is(call.args.get(at), "COUNT");
        if !is_count || at + 1 >= call.args.len() {
            return Err(CommandError::Syntax);
        }
        count = Some(positive(call.args.get(at + 1), 1).ok_or(CommandError::PopCount)?);
        at += 2;
    }
    Ok(count.unwrap_or(1))
}

/// Reads the number of a database.
pub(super) fn database(arg: &[u8], invalid: CommandError) -> Result<u8, CommandError> {
    let number = parse_i64(arg).ok_or(invalid)?;
    let number = i32::try_from(number)
        .map_err(|_| CommandError::OutOfBounds { min: i32::MIN.into(), max: i32::MAX.into() })?;
    u8::try_from(number).ok().filter(|db| *db < DATABASES).ok_or(CommandError::DbIndex)
}

/// The name of a kind in TYPE's reply.
pub(super) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::String => "string",
        Kind::Hash => "hash",
        Kind::Sorted => "zset",
        Kind::List => "list",
        Kind::Set => "set",
        Kind::Stream => "stream",
    }
}

/// Reads the string at `key`; `None` if there is no such key.
pub(super) fn string_at<'t>(
    tx: &'t Tx<'_>,
    key: Key<'_>,
) -> Result<Option<&'t [u8]>, CommandError> {
    match tx.get(key) {
        None => Ok(None),
        Some(entry) => string_of(&entry).map(Some),
    }
}

/// Reads an entry's string.
pub(super) fn string_of<'e>(entry: &Entry<'e>) -> Result<&'e [u8], CommandError> {
    entry.string().ok_or(CommandError::WrongType)
}
