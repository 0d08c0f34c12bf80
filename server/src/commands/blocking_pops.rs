//! The pops from lists and sorted sets that wait for an element.

use std::ops::{ControlFlow, Range};

use perdura_store::{End, Kind, Tx};

use super::blocking::Wait;
use super::call::{Call, Outcome};
use super::lists::{self, end_of, move_between};
use super::sorted;

/// BLPOP key [key ...] timeout
pub(super) fn blpop(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    pop(call, tx, End::Front)
}

/// BRPOP key [key ...] timeout
pub(super) fn brpop(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    pop(call, tx, End::Back)
}

fn pop(call: &mut Call<'_, '_>, tx: &mut Tx<'_>, end: End) -> Outcome {
    let keys = 1..call.args.len() - 1;
    let timeout_ms = call.timeout_ms(keys.end)?;
    for at in keys.clone() {
        let key = call.key(at);
        let Some(list) = tx.list(key)? else { continue };
        call.reply.array(2);
        call.reply.bulk(key.bytes);
        list.walk_from(end, &mut |element| {
            call.reply.bulk(element);
            ControlFlow::Break(())
        });
        return lists::take(tx, key, end, 1);
    }
    wait_for(call, keys, Kind::List, timeout_ms)
}

/// BLMPOP timeout numkeys key [key ...] LEFT | RIGHT [COUNT count]
pub(super) fn blmpop(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let pop = lists::ManyPop::parse(call, 2)?;
    let timeout_ms = call.timeout_ms(1)?;
    if pop.take_first(call, tx)? {
        return Ok(());
    }
    wait_for(call, pop.keys, Kind::List, timeout_ms)
}

/// BLMOVE source destination LEFT | RIGHT LEFT | RIGHT timeout
pub(super) fn blmove(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (from, to) = (end_of(call.args.get(3))?, end_of(call.args.get(4))?);
    move_or_wait(call, tx, from, to, 5)
}

/// BRPOPLPUSH source destination timeout
pub(super) fn brpoplpush(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    move_or_wait(call, tx, End::Back, End::Front, 3)
}

fn move_or_wait(
    call: &mut Call<'_, '_>,
    tx: &mut Tx<'_>,
    from: End,
    to: End,
    timeout_at: usize,
) -> Outcome {
    let timeout_ms = call.timeout_ms(timeout_at)?;
    let is_there = tx.list(call.key(1))?.is_some();
    // Of a source that does not exist, this answers null, which stands inside EXEC.
    move_between(call, tx, from, to)?;
    if !is_there {
        call.wait = Some(Wait {
            keys: 1..2,
            kind: Kind::List,
            on_other: false,
            timeout_ms,
            instead: Vec::new(),
            wrote: false,
        });
    }
    Ok(())
}

/// BZPOPMIN key [key ...] timeout
pub(super) fn bzpopmin(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    pop_member(call, tx, false)
}

/// BZPOPMAX key [key ...] timeout
pub(super) fn bzpopmax(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    pop_member(call, tx, true)
}

fn pop_member(call: &mut Call<'_, '_>, tx: &mut Tx<'_>, max: bool) -> Outcome {
    let keys = 1..call.args.len() - 1;
    let timeout_ms = call.timeout_ms(keys.end)?;
    for at in keys.clone() {
        if let Some((name, score)) = sorted::pop(tx, call.key(at), 1, max)?.first() {
            call.reply.array(3);
            call.reply.bulk(call.args.get(at));
            call.reply.bulk(name);
            call.reply.double(*score);
            return Ok(());
        }
    }
    wait_for(call, keys, Kind::Sorted, timeout_ms)
}

/// BZMPOP timeout numkeys key [key ...] MIN | MAX [COUNT count]
pub(super) fn bzmpop(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let pop = sorted::ManyPop::parse(call, 2)?;
    let timeout_ms = call.timeout_ms(1)?;
    if pop.take_first(call, tx)? {
        return Ok(());
    }
    wait_for(call, pop.keys, Kind::Sorted, timeout_ms)
}

fn wait_for(call: &mut Call<'_, '_>, keys: Range<usize>, kind: Kind, timeout_ms: u64) -> Outcome {
    call.wait(Wait { keys, kind, on_other: false, timeout_ms, instead: Vec::new(), wrote: false })
}
