//! Consumer groups of streams, and the entries that their consumers have not acknowledged.

use std::ops::ControlFlow;

use perdura_store::{Entry, EventClass, Group, Key, Pending, StreamId, Tx};

use super::call::{Call, Outcome};
use super::context::Context;
use super::error::CommandError;
use super::options::is;
use super::streams::stream_of;
use super::streams_error::StreamError;
use super::streams_ids::{id, id_or_edge, range_end, range_start, write_id};
use crate::resp::Args;

/// Refuses a subcommand with arguments that it does not take.
fn refuse<T>(call: &Call<'_, '_>) -> Result<T, CommandError> {
    Err(CommandError::subcommand(call.args))
}

/// Reads ENTRIESREAD, which may be -1 for an unknown number.
fn entries_read(call: &Call<'_, '_>, at: usize) -> Result<Option<u64>, CommandError> {
    match call.int(at)? {
        -1 => Ok(None),
        read => Ok(Some(u64::try_from(read).map_err(|_| StreamError::EntriesRead)?)),
    }
}

/// XGROUP CREATE key group id | $ [MKSTREAM] [ENTRIESREAD entries-read]
pub(super) fn create(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (mut makes, mut read, mut at) = (false, None, 5);
    while at < call.args.len() {
        let name = call.args.get(at);
        if is(name, "MKSTREAM") {
            makes = true;
        } else if is(name, "ENTRIESREAD") && at + 1 < call.args.len() {
            read = entries_read(call, at + 1)?;
            at += 1;
        } else {
            return refuse(call);
        }
        at += 1;
    }
    let key = call.key(2);
    let last_id = tx.stream(key)?.map(|stream| stream.last_id());
    if last_id.is_none() && !makes {
        return Err(StreamError::NoKey.into());
    }
    if call.args.len() > 8 {
        return refuse(call);
    }
    let from = match call.args.get(4) {
        b"$" => last_id.unwrap_or_default(),
        arg => id(arg)?,
    };
    tx.stream_create(key)?;
    if !tx.group_create(key, call.args.get(3), from, read)? {
        return Err(StreamError::BusyGroup.into());
    }
    tx.tell(EventClass::STREAM, "xgroup-create", key);
    call.reply.ok();
    Ok(())
}

/// Whether the key is a stream that has the group of the arguments; an error if there is no stream.
fn has_group(call: &Call<'_, '_>, tx: &Tx<'_>) -> Result<bool, CommandError> {
    let Some(stream) = tx.stream(call.key(2))? else { return Err(StreamError::NoKey.into()) };
    Ok(stream.group(call.args.get(3)).is_some())
}

fn need_group(call: &Call<'_, '_>, tx: &Tx<'_>) -> Outcome {
    match has_group(call, tx)? {
        true => Ok(()),
        false => Err(StreamError::no_group(call.args.get(2), call.args.get(3)).into()),
    }
}

/// XGROUP SETID key group id | $ [ENTRIESREAD entries-read]
pub(super) fn setid(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (mut read, mut at) = (None, 5);
    while at < call.args.len() {
        if !is(call.args.get(at), "ENTRIESREAD") || at + 1 >= call.args.len() {
            return refuse(call);
        }
        read = entries_read(call, at + 1)?;
        at += 2;
    }
    need_group(call, tx)?;
    if call.args.len() > 7 {
        return refuse(call);
    }
    let key = call.key(2);
    let last_id = match call.args.get(4) {
        b"$" => tx.stream(key)?.map_or(StreamId::MIN, |stream| stream.last_id()),
        arg => id_or_edge(arg, 0)?,
    };
    tx.group_set(key, call.args.get(3), last_id, read)?;
    tx.tell(EventClass::STREAM, "xgroup-setid", key);
    call.reply.ok();
    Ok(())
}

/// XGROUP DESTROY key group
pub(super) fn destroy(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    has_group(call, tx)?;
    let was_there = tx.group_destroy(call.key(2), call.args.get(3))?;
    if was_there {
        tx.tell(EventClass::STREAM, "xgroup-destroy", call.key(2));
    }
    call.reply.int(i64::from(was_there));
    Ok(())
}

/// XGROUP CREATECONSUMER key group consumer
pub(super) fn create_consumer(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    need_group(call, tx)?;
    let (group, consumer) = (call.args.get(3), call.args.get(4));
    let is_new = make_consumer(tx, call.key(2), group, consumer, call.now_ms)?;
    call.reply.int(i64::from(is_new));
    Ok(())
}

/// Makes a consumer, and tells of it; false if it was there.
pub(super) fn make_consumer(
    tx: &mut Tx<'_>,
    key: Key<'_>,
    group: &[u8],
    consumer: &[u8],
    now_ms: u64,
) -> Result<bool, CommandError> {
    let is_new = tx.consumer_create(key, group, consumer, now_ms)?;
    if is_new {
        tx.tell(EventClass::STREAM, "xgroup-createconsumer", key);
    }
    Ok(is_new)
}

/// XGROUP DELCONSUMER key group consumer
pub(super) fn delete_consumer(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    need_group(call, tx)?;
    let (key, group, consumer) = (call.key(2), call.args.get(3), call.args.get(4));
    let (most, mut ids) = (call.steps.most, Vec::new());
    let found = tx.stream(key)?.and_then(|stream| stream.group(group)?.consumer(consumer));
    let is_more = found.is_some_and(|consumer| consumer.pending_len() > most);
    if let Some(consumer) = found.filter(|_| is_more) {
        consumer.pending_from(StreamId::MIN, &mut |id| {
            ids.push(id);
            match (ids.len() as u64) < most {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
    }
    // Steps before the last one only take entries away.
    let pending = match is_more {
        true => tx.pending_drop(key, group, &ids)?,
        false => {
            let pending = tx.consumer_delete(key, group, consumer)?;
            if pending.is_some() {
                tx.tell(EventClass::STREAM, "xgroup-delconsumer", key);
            }
            pending.unwrap_or(0)
        }
    };
    call.steps.now.is_more = is_more;
    call.reply.int(call.steps.count(pending as i64));
    Ok(())
}

/// XGROUP HELP
pub(super) fn help(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    super::introspect::help(ctx, "xgroup");
    Ok(())
}

/// XACK key group id [id ...]
pub(super) fn xack(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (key, group) = (call.key(1), call.args.get(2));
    if tx.stream(key)?.and_then(|stream| stream.group(group)).is_none() {
        call.reply.int(call.steps.count(0));
        return Ok(());
    }
    let ids = call.args.from(3).map(id).collect::<Result<Vec<_>, _>>()?;
    let step = call.step_of(3, 1);
    let acknowledged = tx.pending_drop(key, group, &ids[step.start - 3..step.end - 3])?;
    call.reply.int(call.steps.count(acknowledged as i64));
    Ok(())
}

/// The part of the pending entries that XPENDING lists.
struct Listed<'c> {
    min_idle_ms: u64,
    from: StreamId,
    to: StreamId,
    count: u64,
    consumer: Option<&'c [u8]>,
}

impl<'c> Listed<'c> {
    fn parse(call: &Call<'c, '_>) -> Result<Option<Self>, CommandError> {
        let len = call.args.len();
        if len == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&len) {
            return Err(CommandError::Syntax);
        }
        let (mut at, mut min_idle_ms) = (3, 0);
        if is(call.args.get(3), "IDLE") {
            min_idle_ms = u64::try_from(call.int(4)?).unwrap_or(0);
            if len < 8 {
                return Err(CommandError::Syntax);
            }
            at = 5;
        }
        let count = u64::try_from(call.int(at + 2)?).unwrap_or(0);
        let from = range_start(call.args.get(at))?;
        let to = range_end(call.args.get(at + 1))?;
        let consumer = (at + 3 < len).then(|| call.args.get(at + 3));
        Ok(Some(Self { min_idle_ms, from, to, count, consumer }))
    }
}

/// XPENDING key group [[IDLE min-idle-time] start end count [consumer]]
pub(super) fn xpending(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let listed = Listed::parse(call)?;
    let (key, name) = (call.args.get(1), call.args.get(2));
    let group = stream_of(entry)?.and_then(|stream| stream.group(name));
    let Some(group) = group else { return Err(StreamError::no_key_or_group(key, name).into()) };
    match listed {
        None => summarize(call, &group),
        Some(listed) => list(call, &group, &listed),
    }
    Ok(())
}

fn summarize(call: &mut Call<'_, '_>, group: &Group<'_>) {
    let reply = &mut *call.reply;
    reply.array(4);
    reply.len(group.pending_len());
    let Some((lowest, highest)) = group.pending_ends() else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    write_id(reply, lowest);
    write_id(reply, highest);
    let (mark, mut count) = (reply.mark(), 0);
    group.consumers(&mut |consumer| {
        if consumer.pending_len() > 0 {
            reply.array(2);
            reply.bulk(consumer.name());
            reply.bulk(consumer.pending_len().to_string().as_bytes());
            count += 1;
        }
        ControlFlow::Continue(())
    });
    reply.insert_array(mark, count);
}

fn list(call: &mut Call<'_, '_>, group: &Group<'_>, listed: &Listed<'_>) {
    let (reply, now_ms) = (&mut *call.reply, call.now_ms);
    let (mark, mut count) = (reply.mark(), 0);
    let mut each = |pending: &Pending<'_>| {
        if pending.id > listed.to || count == listed.count || reply.overflowed() {
            return ControlFlow::Break(());
        }
        // A time of delivery that is to come has lasted for less than nothing.
        let idle_ms = now_ms as i64 - pending.delivered_ms as i64;
        if listed.min_idle_ms > 0 && idle_ms < listed.min_idle_ms as i64 {
            return ControlFlow::Continue(());
        }
        count += 1;
        reply.array(4);
        write_id(reply, pending.id);
        reply.bulk(pending.consumer);
        reply.int(idle_ms.max(0));
        reply.len(pending.deliveries);
        ControlFlow::Continue(())
    };
    match listed.consumer {
        None => group.pending_from(listed.from, &mut each),
        Some(name) => {
            if let Some(consumer) = group.consumer(name) {
                consumer.pending_from(listed.from, &mut |id| match group.pending(id) {
                    Some(pending) => each(&pending),
                    None => ControlFlow::Continue(()),
                });
            }
        }
    }
    call.reply.insert_array(mark, count as usize);
}

/// The pending entries of a group from an ID on, copied, until `f` says that there are enough.
pub(super) fn pending_from(
    tx: &Tx<'_>,
    key: Key<'_>,
    group: &[u8],
    from: StreamId,
    f: &mut dyn FnMut(&Pending<'_>) -> ControlFlow<()>,
) -> Outcome {
    if let Some(group) = tx.stream(key)?.and_then(|stream| stream.group(group)) {
        group.pending_from(from, f);
    }
    Ok(())
}
