//! Streams: entries are added, counted, listed, deleted.

use std::ops::ControlFlow;

use perdura_store::{Entry, EventClass, Fields, Stream, StreamId, StreamTrim, TrimTo, Tx};

use super::call::{Call, Outcome};
use super::error::CommandError;
use super::options::is;
use super::streams_error::StreamError;
use super::streams_ids::{GivenId, id, id_to_add, range_end, range_start, write_id};
use crate::resp::Reply;

/// Most entries that a trim takes by default, if only whole chunks go.
const ROUGH_LIMIT_MAX: u64 = 1_000_000;
/// The same without a limit of a chunk's entries.
const ROUGH_LIMIT_DEFAULT: u64 = 10_000;

/// Reads an entry's stream; `None` if there is no such key.
pub(super) fn stream_of<'e>(entry: Option<&Entry<'e>>) -> Result<Option<Stream<'e>>, CommandError> {
    entry.map(|entry| entry.stream().ok_or(CommandError::WrongType)).transpose()
}

/// The options of XADD and XTRIM.
struct AddOrTrim {
    trim: Option<StreamTrim>,
    may_make: bool,
    /// Where the ID is, of XADD.
    id_at: usize,
    /// The ID, unless it is `*`.
    id: Option<GivenId>,
}

fn add_or_trim(call: &Call<'_, '_>, tx: &Tx<'_>, is_add: bool) -> Result<AddOrTrim, CommandError> {
    let (args, len) = (call.args, call.args.len());
    let (mut to, mut is_rough, mut limit, mut may_make) = (None, false, None, true);
    let (mut at, mut given) = (2, None);
    while at < len {
        let (name, more) = (args.get(at), len - 1 - at);
        let is_len = is(name, "MAXLEN");
        if is_add && name == b"*" {
            break;
        } else if (is_len || is(name, "MINID")) && more > 0 {
            if to.is_some() {
                return Err(StreamError::MaxLenAndMinId.into());
            }
            is_rough = more >= 2 && args.get(at + 1) == b"~";
            at += usize::from(is_rough || (more >= 2 && args.get(at + 1) == b"="));
            to = Some(match is_len {
                true => {
                    let most = call.int(at + 1)?;
                    TrimTo::Len(u64::try_from(most).map_err(|_| StreamError::MaxLen)?)
                }
                false => TrimTo::Id(id(args.get(at + 1))?),
            });
            at += 1;
        } else if is(name, "LIMIT") && more > 0 {
            let most = call.int(at + 1)?;
            limit = Some(u64::try_from(most).map_err(|_| StreamError::Limit)?);
            at += 1;
        } else if is_add && is(name, "NOMKSTREAM") {
            may_make = false;
        } else if is_add {
            given = Some(id_to_add(name)?);
            break;
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    if to.is_none() {
        if limit.is_some_and(|limit| limit > 0) {
            return Err(StreamError::LimitWithoutTrim.into());
        }
        if !is_add {
            return Err(StreamError::TrimWithoutStrategy.into());
        }
    }
    if limit.is_some() && !is_rough {
        return Err(StreamError::LimitWithoutRough.into());
    }
    let default = match tx.chunk_limits().entries {
        0 => ROUGH_LIMIT_DEFAULT,
        entries => entries.saturating_mul(100).min(ROUGH_LIMIT_MAX),
    };
    let limit = limit.unwrap_or(if is_rough { default } else { 0 });
    let trim = to.map(|to| StreamTrim { to, is_rough, limit });
    Ok(AddOrTrim { trim, may_make, id_at: at, id: given })
}

/// XADD key [NOMKSTREAM] [MAXLEN | MINID [= | ~] threshold [LIMIT count]] * | id field value
/// [field value ...]
pub(super) fn xadd(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let options = add_or_trim(call, tx, true)?;
    let first = options.id_at + 1;
    if call.args.len() < first + 2 || (call.args.len() - first) % 2 == 1 {
        return Err(CommandError::Arity("xadd"));
    }
    if options.id == Some(GivenId::Whole(StreamId::MIN)) {
        return Err(StreamError::IdZero.into());
    }
    let key = call.key(1);
    let found = tx.stream(key)?.map(|stream| stream.last_id());
    if found.is_none() && !options.may_make {
        call.reply.null();
        return Ok(());
    }
    let last_id = found.unwrap_or_default();
    if last_id == StreamId::MAX {
        return Err(StreamError::Exhausted.into());
    }
    let same_ms = || StreamId { ms: last_id.ms, seq: last_id.seq.saturating_add(1) };
    let id = match options.id {
        Some(GivenId::Whole(id)) => id,
        Some(GivenId::Ms(ms)) if ms == last_id.ms => same_ms(),
        Some(GivenId::Ms(ms)) => StreamId { ms, seq: 0 },
        None if call.now_ms > last_id.ms => StreamId { ms: call.now_ms, seq: 0 },
        None => last_id.next().unwrap_or(StreamId::MAX),
    };
    if id <= last_id {
        return Err(StreamError::IdNotLast.into());
    }
    let pairs: Vec<(&[u8], &[u8])> = (first..call.args.len())
        .step_by(2)
        .map(|at| (call.args.get(at), call.args.get(at + 1)))
        .collect();
    tx.stream_add(key, id, &pairs, tx.chunk_limits())?;
    tx.tell(EventClass::STREAM, "xadd", key);
    if let Some(trim) = options.trim
        && tx.stream_trim(key, trim)? > 0
    {
        tx.tell(EventClass::STREAM, "xtrim", key);
    }
    write_id(call.reply, id);
    Ok(())
}

/// XTRIM key MAXLEN | MINID [= | ~] threshold [LIMIT count]
pub(super) fn xtrim(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let options = add_or_trim(call, tx, false)?;
    let removed = match options.trim {
        Some(trim) => tx.stream_trim(call.key(1), trim)?,
        None => 0,
    };
    if removed > 0 {
        tx.tell(EventClass::STREAM, "xtrim", call.key(1));
    }
    call.reply.len(removed);
    Ok(())
}

/// XDEL key id [id ...]
pub(super) fn xdel(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let key = call.key(1);
    if tx.stream(key)?.is_none() {
        call.reply.int(call.steps.count(0));
        return Ok(());
    }
    let ids = call.args.from(2).map(id).collect::<Result<Vec<_>, _>>()?;
    let step = call.step_of(2, 1);
    let deleted = tx.stream_delete(key, &ids[step.start - 2..step.end - 2])?;
    if deleted > 0 {
        tx.tell(EventClass::STREAM, "xdel", key);
    }
    call.reply.int(call.steps.count(deleted as i64));
    Ok(())
}

/// XLEN key
pub(super) fn xlen(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let len = stream_of(entry)?.map_or(0, |stream| stream.len());
    call.reply.len(len);
    Ok(())
}

/// XSETID key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]
pub(super) fn xsetid(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let last_id = id(call.args.get(2))?;
    let (mut added, mut max_deleted, mut at) = (None, None, 3);
    while at < call.args.len() {
        let (name, has_value) = (call.args.get(at), at + 1 < call.args.len());
        if is(name, "ENTRIESADDED") && has_value {
            let number = call.int(at + 1)?;
            added = Some(u64::try_from(number).map_err(|_| StreamError::EntriesAdded)?);
        } else if is(name, "MAXDELETEDID") && has_value {
            let deleted = id(call.args.get(at + 1))?;
            if last_id < deleted {
                return Err(StreamError::SetBelowGivenDeleted.into());
            }
            max_deleted = Some(deleted).filter(|id| *id != StreamId::MIN);
        } else {
            return Err(CommandError::Syntax);
        }
        at += 2;
    }
    let key = call.key(1);
    let Some(stream) = tx.stream(key)? else { return Err(CommandError::NoSuchKey) };
    if last_id < stream.max_deleted() {
        return Err(StreamError::SetBelowDeleted.into());
    }
    if stream.len() > 0 && last_id < stream.last_valid_id() {
        return Err(StreamError::SetBelowTop.into());
    }
    if added.is_some_and(|added| stream.len() > added) {
        return Err(StreamError::AddedBelowLength.into());
    }
    tx.stream_set(key, last_id, added, max_deleted)?;
    tx.tell(EventClass::STREAM, "xsetid", key);
    call.reply.ok();
    Ok(())
}

/// XRANGE key start end [COUNT count]
pub(super) fn xrange(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    range(call, entry, false)
}

/// XREVRANGE key end start [COUNT count]
pub(super) fn xrevrange(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    range(call, entry, true)
}

fn range(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>, down: bool) -> Outcome {
    let (start_at, end_at) = if down { (3, 2) } else { (2, 3) };
    let from = range_start(call.args.get(start_at))?;
    let to = range_end(call.args.get(end_at))?;
    let (mut count, mut at) = (None, 4);
    while at < call.args.len() {
        if !is(call.args.get(at), "COUNT") || at + 1 >= call.args.len() {
            return Err(CommandError::Syntax);
        }
        count = Some(u64::try_from(call.int(at + 1)?).unwrap_or(0));
        at += 2;
    }
    match (stream_of(entry)?, count) {
        (None, _) => call.reply.array(0),
        (Some(_), Some(0)) => call.reply.null_array(),
        (Some(stream), count) => {
            let most = count.unwrap_or(u64::MAX);
            write_entries(call.reply, &stream, (from, to), most, down);
        }
    }
    Ok(())
}

/// Replies with the array of the entries of some IDs, at most so many. Returns how many.
pub(super) fn write_entries(
    reply: &mut Reply<'_>,
    stream: &Stream<'_>,
    (from, to): (StreamId, StreamId),
    most: u64,
    down: bool,
) -> u64 {
    let (mark, mut count) = (reply.mark(), 0);
    stream.walk(from, to, down, &mut |id, fields| {
        write_entry(reply, id, fields);
        count += 1;
        if count == most || reply.overflowed() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    reply.insert_array(mark, count as usize);
    count
}

/// Replies with an entry. Returns whether its bytes are those of an entry.
pub(super) fn write_entry(reply: &mut Reply<'_>, id: StreamId, fields: &Fields<'_>) {
    reply.array(2);
    write_id(reply, id);
    reply.array(2 * fields.len() as usize);
    fields.for_each(&mut |name, value| {
        reply.bulk(name);
        reply.bulk(value);
    });
}

/// Replies with the entry of an ID. Returns whether there is one; else nothing is written.
pub(super) fn write_entry_of(reply: &mut Reply<'_>, stream: &Stream<'_>, id: StreamId) -> bool {
    let mut is_found = false;
    stream.walk(id, id, false, &mut |id, fields| {
        write_entry(reply, id, fields);
        is_found = true;
        ControlFlow::Break(())
    });
    is_found
}

/// Reads a count that is at least 0; a lower one counts as 0.
pub(super) fn count_of(call: &Call<'_, '_>, at: usize) -> Result<u64, CommandError> {
    Ok(u64::try_from(call.int(at)?).unwrap_or(0))
}
