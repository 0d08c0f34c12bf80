//! The IDs of entries in arguments and in replies.

use perdura_store::StreamId;

use super::error::CommandError;
use super::streams_error::StreamError;
use crate::resp::Reply;

/// An ID of which only the time may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GivenId {
    Whole(StreamId),
    /// `ms-*`
    Ms(u64),
}

/// Reads a number as C's `strtoull` reads one.
fn number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

/// Reads an ID; the number within the millisecond is `missing_seq` if it is not there.
fn parse(arg: &[u8], missing_seq: u64, may_be_open: bool) -> Result<GivenId, CommandError> {
    let invalid = || CommandError::from(StreamError::Id);
    if arg.len() > 127 {
        return Err(invalid());
    }
    let mut halves = arg.splitn(2, |byte| *byte == b'-');
    let ms = halves.next().and_then(number).ok_or_else(invalid)?;
    let seq = match halves.next() {
        None => missing_seq,
        Some(b"*") if may_be_open => return Ok(GivenId::Ms(ms)),
        Some(seq) => number(seq).ok_or_else(invalid)?,
    };
    Ok(GivenId::Whole(StreamId { ms, seq }))
}

/// Reads an ID that is given whole, or without its second half, which is 0 then.
pub(super) fn id(arg: &[u8]) -> Result<StreamId, CommandError> {
    id_or(arg, 0)
}

fn id_or(arg: &[u8], missing_seq: u64) -> Result<StreamId, CommandError> {
    match parse(arg, missing_seq, false)? {
        GivenId::Whole(id) => Ok(id),
        GivenId::Ms(ms) => Ok(StreamId { ms, seq: missing_seq }),
    }
}

/// Reads the ID of an entry to be added.
pub(super) fn id_to_add(arg: &[u8]) -> Result<GivenId, CommandError> {
    parse(arg, 0, true)
}

/// Reads an ID, or `-` and `+` for the lowest and the highest one.
pub(super) fn id_or_edge(arg: &[u8], missing_seq: u64) -> Result<StreamId, CommandError> {
    match arg {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => id_or(arg, missing_seq),
    }
}

/// Reads the lower end of a range of IDs; `(` before it leaves the ID itself out.
pub(super) fn range_start(arg: &[u8]) -> Result<StreamId, CommandError> {
    match arg {
        [b'(', rest @ ..] if !rest.is_empty() => {
            Ok(id_or(rest, 0)?.next().ok_or(StreamError::IntervalStart)?)
        }
        _ => id_or_edge(arg, 0),
    }
}

/// Reads the upper end of a range of IDs.
pub(super) fn range_end(arg: &[u8]) -> Result<StreamId, CommandError> {
    match arg {
        [b'(', rest @ ..] if !rest.is_empty() => {
            Ok(id_or(rest, u64::MAX)?.prev().ok_or(StreamError::IntervalEnd)?)
        }
        _ => id_or_edge(arg, u64::MAX),
    }
}

/// Replies with an ID.
pub(super) fn write_id(reply: &mut Reply<'_>, id: StreamId) {
    reply.bulk(id.to_string().as_bytes());
}
