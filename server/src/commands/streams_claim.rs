//! XCLAIM and XAUTOCLAIM: a consumer takes over what others have not acknowledged.

use std::ops::ControlFlow;

use perdura_store::{Delivery, Key, StreamId, Tx};

use super::call::{Call, Outcome};
use super::error::{CommandError, text};
use super::options::is;
use super::streams::write_entry_of;
use super::streams_error::StreamError;
use super::streams_groups::{make_consumer, pending_from};
use super::streams_ids::{id, range_start, write_id};
use crate::number::parse_i64;

/// Entries that XAUTOCLAIM looks at for each that it may claim.
const ATTEMPTS_PER_CLAIM: u64 = 10;
/// Highest count that XAUTOCLAIM takes.
const COUNT_MAX: i64 = i64::MAX / 16;

/// The options of XCLAIM.
struct Claim {
    min_idle_ms: i64,
    ids: Vec<StreamId>,
    delivered_ms: Option<i64>,
    deliveries: Option<u64>,
    is_forced: bool,
    only_ids: bool,
    last_id: StreamId,
}

impl Claim {
    fn parse(call: &Call<'_, '_>) -> Result<Self, CommandError> {
        let args = call.args;
        let min_idle = parse_i64(args.get(4)).ok_or(StreamError::MinIdle("XCLAIM"))?;
        let ids: Vec<StreamId> = args.from(5).map_while(|arg| id(arg).ok()).collect();
        let mut at = 5 + ids.len();
        let mut claim = Self {
            min_idle_ms: min_idle.max(0),
            ids,
            delivered_ms: None,
            deliveries: None,
            is_forced: false,
            only_ids: false,
            last_id: StreamId::MIN,
        };
        while at < args.len() {
            let (name, has_value) = (args.get(at), at + 1 < args.len());
            let number = |option: &'static str| {
                parse_i64(args.get(at + 1)).ok_or(StreamError::ClaimOption(option))
            };
            if is(name, "FORCE") {
                claim.is_forced = true;
            } else if is(name, "JUSTID") {
                claim.only_ids = true;
            } else {
                if !has_value {
                    return Err(StreamError::ClaimUnknown(text(name, 128)).into());
                } else if is(name, "IDLE") {
                    claim.delivered_ms = Some((call.now_ms as i64).wrapping_sub(number("IDLE")?));
                } else if is(name, "TIME") {
                    claim.delivered_ms = Some(number("TIME")?);
                } else if is(name, "RETRYCOUNT") {
                    claim.deliveries = u64::try_from(number("RETRYCOUNT")?).ok();
                } else if is(name, "LASTID") {
                    claim.last_id = id(args.get(at + 1))?;
                } else {
                    return Err(StreamError::ClaimUnknown(text(name, 128)).into());
                }
                at += 1;
            }
            at += 1;
        }
        Ok(claim)
    }
}

/// Whether an entry delivered at that time has been with its consumer for long enough.
fn is_idle(now_ms: u64, delivered_ms: u64, min_idle_ms: i64) -> bool {
    min_idle_ms == 0 || (now_ms as i64).wrapping_sub(delivered_ms as i64) >= min_idle_ms
}

/// Makes a consumer, if it is new, and notes that it was seen.
fn see(call: &Call<'_, '_>, tx: &mut Tx<'_>, key: Key<'_>) -> Outcome {
    let (group, consumer) = (call.args.get(2), call.args.get(3));
    if !make_consumer(tx, key, group, consumer, call.now_ms)? {
        tx.consumer_seen(key, group, consumer, call.now_ms, false)?;
    }
    Ok(())
}

/// XCLAIM key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds]
/// [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid]
pub(super) fn xclaim(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (key, group, consumer) = (call.key(1), call.args.get(2), call.args.get(3));
    let found = tx.stream(key)?.and_then(|stream| stream.group(group));
    let Some((last_id, entries_read)) = found.map(|group| (group.last_id(), group.entries_read()))
    else {
        return Err(StreamError::no_key_or_group(key.bytes, group).into());
    };
    let claim = Claim::parse(call)?;
    let now_ms = call.now_ms;
    if claim.last_id > last_id {
        tx.group_set(key, group, claim.last_id, entries_read)?;
    }
    let delivered_ms = claim.delivered_ms.and_then(|ms| u64::try_from(ms).ok());
    let delivered_ms = delivered_ms.filter(|ms| *ms <= now_ms).unwrap_or(now_ms);
    see(call, tx, key)?;
    let (mark, mut count) = (call.reply.mark(), 0);
    for id in &claim.ids {
        let Some(stream) = tx.stream(key)? else { break };
        let pending = stream.group(group).and_then(|group| {
            group.pending(*id).map(|pending| (pending.delivered_ms, pending.deliveries))
        });
        if !stream.has(*id) {
            // It is no longer there, and nobody can have it.
            if pending.is_some() {
                tx.pending_drop(key, group, &[*id])?;
            }
            continue;
        }
        let before = match pending {
            Some((since_ms, _)) if !is_idle(now_ms, since_ms, claim.min_idle_ms) => continue,
            Some((_, deliveries)) => deliveries,
            // As if it had been delivered once.
            None if claim.is_forced => 1,
            None => continue,
        };
        let next = before.saturating_add(u64::from(!claim.only_ids));
        let deliveries = claim.deliveries.unwrap_or(next);
        if claim.only_ids {
            write_id(call.reply, *id);
        } else {
            write_entry_of(call.reply, &stream, *id);
        }
        count += 1;
        tx.pending_assign(key, group, consumer, &[Delivery { id: *id, delivered_ms, deliveries }])?;
    }
    if count > 0 {
        tx.consumer_seen(key, group, consumer, now_ms, true)?;
    }
    call.reply.insert_array(mark, count);
    Ok(())
}

/// XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]
pub(super) fn xautoclaim(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (key, group, consumer) = (call.key(1), call.args.get(2), call.args.get(3));
    let min_idle = parse_i64(call.args.get(4)).ok_or(StreamError::MinIdle("XAUTOCLAIM"))?;
    let from = range_start(call.args.get(5))?;
    let (mut most, mut only_ids, mut at) = (100, false, 6);
    while at < call.args.len() {
        let name = call.args.get(at);
        if is(name, "COUNT") && at + 1 < call.args.len() {
            most = match parse_i64(call.args.get(at + 1)) {
                Some(count @ 1..=COUNT_MAX) => count as u64,
                _ => return Err(StreamError::Count.into()),
            };
            at += 1;
        } else if is(name, "JUSTID") {
            only_ids = true;
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    if tx.stream(key)?.and_then(|stream| stream.group(group)).is_none() {
        return Err(StreamError::no_key_or_group(key.bytes, group).into());
    }
    see(call, tx, key)?;
    let (now_ms, min_idle_ms) = (call.now_ms, min_idle.max(0));
    let (mut claimed, mut gone, mut next) = (Vec::new(), Vec::new(), None);
    let mut attempts = most.saturating_mul(ATTEMPTS_PER_CLAIM);
    let Some(stream) = tx.stream(key)? else { return Ok(()) };
    pending_from(tx, key, group, from, &mut |pending| {
        let found = (claimed.len() + gone.len()) as u64;
        if attempts == 0 || found == most {
            next = Some(pending.id);
            return ControlFlow::Break(());
        }
        attempts -= 1;
        if !stream.has(pending.id) {
            gone.push(pending.id);
        } else if is_idle(now_ms, pending.delivered_ms, min_idle_ms) {
            let deliveries = pending.deliveries.saturating_add(u64::from(!only_ids));
            claimed.push(Delivery { id: pending.id, delivered_ms: now_ms, deliveries });
        }
        ControlFlow::Continue(())
    })?;
    let reply = &mut *call.reply;
    reply.array(3);
    write_id(reply, next.unwrap_or_default());
    reply.array(claimed.len());
    for Delivery { id, .. } in &claimed {
        if only_ids {
            write_id(reply, *id);
        } else {
            write_entry_of(reply, &stream, *id);
        }
    }
    reply.array(gone.len());
    gone.iter().for_each(|id| write_id(reply, *id));
    tx.pending_drop(key, group, &gone)?;
    if !claimed.is_empty() {
        tx.pending_assign(key, group, consumer, &claimed)?;
        tx.consumer_seen(key, group, consumer, now_ms, true)?;
    }
    Ok(())
}
