//! XREAD and XREADGROUP: reading several streams from an ID on, for oneself or for a group.

use std::ops::ControlFlow;

use perdura_store::{Delivery, Key, Kind, StreamId, Tx};

use super::blocking::Wait;
use super::call::{Call, Outcome};
use super::error::{CommandError, text};
use super::options::is;
use super::streams::{count_of, write_entries, write_entry, write_entry_of};
use super::streams_error::StreamError;
use super::streams_groups::make_consumer;
use super::streams_ids::{id, write_id};
use super::streams_lag::Facts;

/// Where the reading of a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    /// Behind this ID.
    Id(StreamId),
    /// With the entries that the group has not got.
    New,
}

/// The arguments of XREAD or XREADGROUP.
struct Request<'c> {
    is_group: bool,
    /// Names of the group and the consumer.
    group: Option<(&'c [u8], &'c [u8])>,
    count: u64,
    /// How long to wait for entries, milliseconds; 0: it has no end; `None`: not at all.
    block_ms: Option<u64>,
    no_ack: bool,
    /// Index of the first key.
    first: usize,
    streams: usize,
}

impl<'c> Request<'c> {
    fn parse(call: &Call<'c, '_>, is_group: bool) -> Result<Self, CommandError> {
        let (args, len) = (call.args, call.args.len());
        let (group, count, block_ms, no_ack, first, streams) = (None, 0, None, false, 0, 0);
        let mut request = Self { is_group, group, count, block_ms, no_ack, first, streams };
        let mut at = 1;
        while at < len {
            let (name, more) = (args.get(at), len - at - 1);
            if is(name, "BLOCK") && more > 0 {
                if call.in_script {
                    return Err(CommandError::BlockInScript(text(args.get(0), 128)));
                }
                at += 1;
                let ms = call.int(at).map_err(|_| CommandError::TimeoutNotInteger)?;
                let ms = u64::try_from(ms).map_err(|_| CommandError::TimeoutNegative)?;
                if ms > i64::MAX as u64 - call.now_ms {
                    return Err(CommandError::TimeoutRange);
                }
                request.block_ms = Some(ms);
            } else if is(name, "COUNT") && more > 0 {
                at += 1;
                request.count = count_of(call, at)?;
            } else if is(name, "STREAMS") && more > 0 {
                request.first = at + 1;
                if more % 2 != 0 {
                    let (command, symbol) =
                        if is_group { ("xreadgroup", '>') } else { ("xread", '$') };
                    return Err(StreamError::Unbalanced { command, symbol }.into());
                }
                request.streams = more / 2;
                break;
            } else if is(name, "GROUP") && more >= 2 {
                if !is_group {
                    return Err(StreamError::OnlyReadGroup("GROUP").into());
                }
                request.group = Some((args.get(at + 1), args.get(at + 2)));
                at += 2;
            } else if is(name, "NOACK") {
                if !is_group {
                    return Err(StreamError::OnlyReadGroup("NOACK").into());
                }
                request.no_ack = true;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        if request.first == 0 {
            return Err(CommandError::Syntax);
        }
        if is_group && request.group.is_none() {
            return Err(StreamError::MissingGroup.into());
        }
        Ok(request)
    }

    /// Reads where each stream is read from, and checks its group.
    fn froms(&self, call: &Call<'c, '_>, tx: &Tx<'_>) -> Result<Vec<From>, CommandError> {
        let mut froms = Vec::with_capacity(self.streams);
        for number in 0..self.streams {
            let key = call.key(self.first + number);
            let stream = tx.stream(key)?;
            if let Some((group, _)) = self.group
                && stream.and_then(|stream| stream.group(group)).is_none()
            {
                return Err(StreamError::no_group_to_read(key.bytes, group).into());
            }
            let arg = call.args.get(self.first + self.streams + number);
            froms.push(match arg {
                b"$" if self.is_group => return Err(StreamError::DollarInGroup.into()),
                b"$" => From::Id(stream.map_or(StreamId::MIN, |stream| stream.last_id())),
                b">" if !self.is_group => return Err(StreamError::NewInRead.into()),
                b">" => From::New,
                _ => From::Id(id(arg)?),
            });
        }
        Ok(froms)
    }

    /// Answers that there are no entries, or waits for some. When the command is run again, it
    /// reads from the IDs on that were the last ones.
    fn wait(&self, call: &mut Call<'_, '_>, froms: &[From]) -> Outcome {
        let Some(timeout_ms) = self.block_ms else {
            call.reply.null_array();
            return Ok(());
        };
        let first_id = self.first + self.streams;
        let instead = froms.iter().enumerate().filter_map(|(number, from)| match from {
            From::Id(id) if call.args.get(first_id + number) == b"$" => {
                Some((first_id + number, id.to_string().into_bytes()))
            }
            _ => None,
        });
        let instead = instead.collect();
        let (keys, kind, is_group) = (self.first..first_id, Kind::Stream, self.is_group);
        // Who reads for a group is told when the group has gone, and has been seen.
        let (on_other, wrote) = (is_group, is_group);
        call.wait(Wait { keys, kind, on_other, timeout_ms, instead, wrote })
    }

    fn most(&self) -> u64 {
        if self.count == 0 { u64::MAX } else { self.count }
    }
}

/// XREAD [COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]
pub(super) fn xread(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let request = Request::parse(call, false)?;
    let froms = request.froms(call, tx)?;
    let (mark, mut served) = (call.reply.mark(), 0);
    for (number, from) in froms.iter().copied().enumerate() {
        let key = call.key(request.first + number);
        let From::Id(after) = from else { continue };
        let Some(stream) = tx.stream(key)?.filter(|stream| stream.len() > 0) else { continue };
        let Some(first) = after.next().filter(|first| stream.last_valid_id() >= *first) else {
            continue;
        };
        served += 1;
        begin(call, key);
        write_entries(call.reply, &stream, (first, StreamId::MAX), request.most(), false);
    }
    if served == 0 {
        return request.wait(call, &froms);
    }
    end(call, mark, served);
    Ok(())
}

/// Replies with what comes before a stream's entries.
fn begin(call: &mut Call<'_, '_>, key: Key<'_>) {
    if !call.reply.resp3() {
        call.reply.array(2);
    }
    call.reply.bulk(key.bytes);
}

/// Puts the head before the streams' entries.
fn end(call: &mut Call<'_, '_>, mark: usize, served: usize) {
    if call.reply.resp3() {
        call.reply.insert_map(mark, served);
    } else {
        call.reply.insert_array(mark, served);
    }
}

/// XREADGROUP GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...]
/// id [id ...]
pub(super) fn xreadgroup(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let mut request = Request::parse(call, true)?;
    // Where the budget has no room for all, the rest is left for the next call.
    if call.steps.most < request.most() {
        request.count = call.steps.most;
    }
    let froms = request.froms(call, tx)?;
    let Some((group, consumer)) = request.group else { return Err(CommandError::Syntax) };
    let (mark, mut served) = (call.reply.mark(), 0);
    for (number, from) in froms.iter().copied().enumerate() {
        let key = call.key(request.first + number);
        if !make_consumer(tx, key, group, consumer, call.now_ms)? {
            tx.consumer_seen(key, group, consumer, call.now_ms, false)?;
        }
        let Some(stream) = tx.stream(key)? else { continue };
        match from {
            From::Id(after) => {
                served += 1;
                begin(call, key);
                read_history(call, tx, &request, key, after)?;
            }
            From::New => {
                let last_id = stream.group(group).map_or(StreamId::MAX, |group| group.last_id());
                if stream.len() > 0 && stream.last_valid_id() > last_id {
                    served += 1;
                    begin(call, key);
                    read_new(call, tx, &request, key)?;
                }
            }
        }
    }
    if served == 0 {
        return request.wait(call, &froms);
    }
    end(call, mark, served);
    Ok(())
}

/// Replies with entries that the group has not got, and gives them to the consumer.
fn read_new(
    call: &mut Call<'_, '_>,
    tx: &mut Tx<'_>,
    request: &Request<'_>,
    key: Key<'_>,
) -> Outcome {
    let Some((name, consumer)) = request.group else { return Ok(()) };
    let Some(stream) = tx.stream(key)? else { return Ok(()) };
    let Some(group) = stream.group(name) else { return Ok(()) };
    let facts = Facts::of(&stream);
    let (mut last_id, mut entries_read) = (group.last_id(), group.entries_read());
    let Some(first) = last_id.next() else {
        call.reply.array(0);
        return Ok(());
    };
    let (mark, mut deliveries, now_ms) = (call.reply.mark(), Vec::new(), call.now_ms);
    let reply = &mut *call.reply;
    stream.walk(first, StreamId::MAX, false, &mut |id, fields| {
        entries_read = facts.read_with(id, entries_read);
        last_id = id;
        write_entry(reply, id, fields);
        deliveries.push(Delivery { id, delivered_ms: now_ms, deliveries: 1 });
        if deliveries.len() as u64 == request.most() || reply.overflowed() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    call.reply.insert_array(mark, deliveries.len());
    tx.group_set(key, name, last_id, entries_read)?;
    if !request.no_ack && !deliveries.is_empty() {
        tx.pending_assign(key, name, consumer, &deliveries)?;
        tx.consumer_seen(key, name, consumer, now_ms, true)?;
    }
    Ok(())
}

/// Replies with entries that the consumer has got and not acknowledged.
fn read_history(
    call: &mut Call<'_, '_>,
    tx: &mut Tx<'_>,
    request: &Request<'_>,
    key: Key<'_>,
    after: StreamId,
) -> Outcome {
    let Some((name, consumer)) = request.group else { return Ok(()) };
    let Some(stream) = tx.stream(key)? else { return Ok(()) };
    let (mark, mut count, mut deliveries) = (call.reply.mark(), 0, Vec::new());
    let owner = stream.group(name).and_then(|group| Some((group, group.consumer(consumer)?)));
    if let (Some((group, owner)), Some(first)) = (owner, after.next()) {
        let (reply, now_ms) = (&mut *call.reply, call.now_ms);
        owner.pending_from(first, &mut |id| {
            count += 1;
            if write_entry_of(reply, &stream, id) {
                let before = group.pending(id).map_or(0, |pending| pending.deliveries);
                let deliveries_now = before.saturating_add(1);
                deliveries.push(Delivery { id, delivered_ms: now_ms, deliveries: deliveries_now });
            } else {
                reply.array(2);
                write_id(reply, id);
                reply.null_array();
            }
            if count == request.most() || reply.overflowed() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
    }
    call.reply.insert_array(mark, count as usize);
    tx.pending_assign(key, name, consumer, &deliveries)?;
    Ok(())
}
