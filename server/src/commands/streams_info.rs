//! XINFO: what is known of a stream, its groups and their consumers.

use std::ops::ControlFlow;

use perdura_store::{Consumer, Entry, Group, Stream, StreamId};

use super::call::{Call, Outcome};
use super::context::Context;
use super::error::CommandError;
use super::options::is;
use super::streams::{stream_of, write_entries, write_entry};
use super::streams_error::StreamError;
use super::streams_ids::write_id;
use super::streams_lag::Facts;
use crate::resp::{Args, Reply};

/// Entries that XINFO STREAM FULL shows by default.
const SHOWN: u64 = 10;

fn found<'e>(entry: Option<&Entry<'e>>) -> Result<Stream<'e>, CommandError> {
    stream_of(entry)?.ok_or(CommandError::NoSuchKey)
}

/// XINFO STREAM key [FULL [COUNT count]]
pub(super) fn stream(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let stream = found(entry)?;
    let args = call.args;
    let full = match args.len() {
        3 => None,
        4 if is(args.get(3), "FULL") => Some(SHOWN),
        6 if is(args.get(3), "FULL") && is(args.get(4), "COUNT") => {
            Some(u64::try_from(call.int(5)?).unwrap_or(SHOWN))
        }
        _ => return Err(CommandError::subcommand(args)),
    };
    let reply = &mut *call.reply;
    reply.map(if full.is_some() { 9 } else { 10 });
    let chunks = stream.chunks_len();
    field_len(reply, "length", stream.len());
    field_len(reply, "radix-tree-keys", chunks);
    // A tree without entries has its top.
    field_len(reply, "radix-tree-nodes", chunks + 1);
    field_id(reply, "last-generated-id", stream.last_id());
    field_id(reply, "max-deleted-entry-id", stream.max_deleted());
    field_len(reply, "entries-added", stream.entries_added());
    field_id(reply, "recorded-first-entry-id", stream.first_id());
    if let Some(count) = full {
        let most = if count == 0 { u64::MAX } else { count };
        reply.bulk(b"entries");
        write_entries(reply, &stream, (StreamId::MIN, StreamId::MAX), most, false);
        reply.bulk(b"groups");
        reply.array(stream.groups_len() as usize);
        let facts = Facts::of(&stream);
        stream.groups(&mut |group| write_group(reply, &facts, group, most));
        return Ok(());
    }
    field_len(reply, "groups", stream.groups_len());
    for (name, down) in [("first-entry", false), ("last-entry", true)] {
        reply.bulk(name.as_bytes());
        let mut is_there = false;
        stream.walk(StreamId::MIN, StreamId::MAX, down, &mut |id, fields| {
            write_entry(reply, id, fields);
            is_there = true;
            ControlFlow::Break(())
        });
        if !is_there {
            reply.null();
        }
    }
    Ok(())
}

fn field_len(reply: &mut Reply<'_>, name: &str, value: u64) {
    reply.bulk(name.as_bytes());
    reply.len(value);
}

fn field_id(reply: &mut Reply<'_>, name: &str, id: StreamId) {
    reply.bulk(name.as_bytes());
    write_id(reply, id);
}

fn field_int_or_null(reply: &mut Reply<'_>, name: &str, value: Option<i64>) {
    reply.bulk(name.as_bytes());
    match value {
        Some(value) => reply.int(value),
        None => reply.null(),
    }
}

fn field_name(reply: &mut Reply<'_>, name: &[u8]) {
    reply.bulk(b"name");
    reply.bulk(name);
}

/// What FULL says of a group.
fn write_group(reply: &mut Reply<'_>, facts: &Facts, group: &Group<'_>, most: u64) {
    reply.map(7);
    field_name(reply, group.name());
    field_id(reply, "last-delivered-id", group.last_id());
    write_counts(reply, facts, group);
    field_len(reply, "pel-count", group.pending_len());
    reply.bulk(b"pending");
    let (mark, mut count) = (reply.mark(), 0);
    group.pending_from(StreamId::MIN, &mut |pending| {
        reply.array(4);
        write_id(reply, pending.id);
        reply.bulk(pending.consumer);
        reply.len(pending.delivered_ms);
        reply.len(pending.deliveries);
        count += 1;
        go_on(count, most)
    });
    reply.insert_array(mark, count as usize);
    reply.bulk(b"consumers");
    reply.array(group.consumers_len() as usize);
    group.consumers(&mut |consumer| {
        write_consumer(reply, group, consumer, most);
        ControlFlow::Continue(())
    });
}

fn go_on(count: u64, most: u64) -> ControlFlow<()> {
    if count == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// What FULL says of a consumer.
fn write_consumer(reply: &mut Reply<'_>, group: &Group<'_>, consumer: &Consumer<'_>, most: u64) {
    reply.map(5);
    field_name(reply, consumer.name());
    field_len(reply, "seen-time", consumer.seen_ms());
    reply.bulk(b"active-time");
    reply.int(consumer.active_ms().map_or(-1, |ms| ms as i64));
    field_len(reply, "pel-count", consumer.pending_len());
    reply.bulk(b"pending");
    let (mark, mut count) = (reply.mark(), 0);
    consumer.pending_from(StreamId::MIN, &mut |id| {
        if let Some(pending) = group.pending(id) {
            reply.array(3);
            write_id(reply, id);
            reply.len(pending.delivered_ms);
            reply.len(pending.deliveries);
            count += 1;
        }
        go_on(count, most)
    });
    reply.insert_array(mark, count as usize);
}

fn write_counts(reply: &mut Reply<'_>, facts: &Facts, group: &Group<'_>) {
    field_int_or_null(reply, "entries-read", group.entries_read().map(|read| read as i64));
    field_int_or_null(reply, "lag", facts.lag(group));
}

/// XINFO GROUPS key
pub(super) fn groups(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let stream = found(entry)?;
    let (facts, reply) = (Facts::of(&stream), &mut *call.reply);
    reply.array(stream.groups_len() as usize);
    stream.groups(&mut |group| {
        reply.map(6);
        field_name(reply, group.name());
        field_len(reply, "consumers", group.consumers_len());
        field_len(reply, "pending", group.pending_len());
        field_id(reply, "last-delivered-id", group.last_id());
        write_counts(reply, &facts, group);
    });
    Ok(())
}

/// XINFO CONSUMERS key group
pub(super) fn consumers(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let stream = found(entry)?;
    let (key, name) = (call.args.get(2), call.args.get(3));
    let Some(group) = stream.group(name) else {
        return Err(StreamError::no_group(key, name).into());
    };
    let (reply, now_ms) = (&mut *call.reply, call.now_ms);
    reply.array(group.consumers_len() as usize);
    group.consumers(&mut |consumer| {
        reply.map(4);
        field_name(reply, consumer.name());
        field_len(reply, "pending", consumer.pending_len());
        field_len(reply, "idle", now_ms.saturating_sub(consumer.seen_ms()));
        reply.bulk(b"inactive");
        let since = |ms: u64| now_ms as i64 - ms as i64;
        reply.int(consumer.active_ms().map_or(-1, since));
        ControlFlow::Continue(())
    });
    Ok(())
}

/// XINFO HELP
pub(super) fn help(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    super::introspect::help(ctx, "xinfo");
    Ok(())
}
