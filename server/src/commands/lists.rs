//! Lists: elements in an order of their own, changed at the ends and inside.

use std::ops::{ControlFlow, Range};

use perdura_store::{End, Entry, EventClass, Key, List, Place, Store, Tx};

use super::call::{Call, Outcome};
use super::error::CommandError;
use super::options::{counted_keys, is, pop_count, positive};
use super::steps::Step;

/// LPUSH key element [element ...]
pub(super) fn lpush(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    push(call, tx, End::Front)
}

/// RPUSH key element [element ...]
pub(super) fn rpush(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    push(call, tx, End::Back)
}

/// LPUSH to a large list that has room for the elements where they go.
pub(super) fn lpush_in_place(call: &mut Call<'_, '_>, store: &Store, place: Place) -> Option<bool> {
    push_in_place(call, store, place, End::Front)
}

/// RPUSH to a large list that has room for the elements where they go.
pub(super) fn rpush_in_place(call: &mut Call<'_, '_>, store: &Store, place: Place) -> Option<bool> {
    push_in_place(call, store, place, End::Back)
}

fn push_in_place(call: &mut Call<'_, '_>, store: &Store, place: Place, end: End) -> Option<bool> {
    if store.is_heard(EventClass::LIST) {
        return None;
    }
    let len = store.list_push_at(call.key(1), place, end, call.args.from(2))?;
    call.reply.len(len);
    Some(true)
}

/// LPUSHX key element [element ...]
pub(super) fn lpushx(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    push_to_list(call, tx, End::Front)
}

/// RPUSHX key element [element ...]
pub(super) fn rpushx(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    push_to_list(call, tx, End::Back)
}

fn push(call: &mut Call<'_, '_>, tx: &mut Tx<'_>, end: End) -> Outcome {
    let args = call.args;
    let elements = call.step_of(2, 1).map(|index| args.get(index));
    let len = tx.list_push(call.key(1), end, elements)?;
    tx.tell(EventClass::LIST, pushed(end), call.key(1));
    call.reply.len(len);
    Ok(())
}

fn push_to_list(call: &mut Call<'_, '_>, tx: &mut Tx<'_>, end: End) -> Outcome {
    // A list that has gone between two steps had all elements of the first.
    if call.steps.done == 0 && tx.list(call.key(1))?.is_none() {
        call.reply.len(0);
        return Ok(());
    }
    push(call, tx, end)
}

/// LPOP key [count]
pub(super) fn lpop(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    pop(call, tx, End::Front, "lpop")
}

/// RPOP key [count]
pub(super) fn rpop(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    pop(call, tx, End::Back, "rpop")
}

/// LPOP of one element of a large list.
pub(super) fn lpop_in_place(call: &mut Call<'_, '_>, store: &Store, place: Place) -> Option<bool> {
    pop_in_place(call, store, place, End::Front)
}

/// RPOP of one element of a large list.
pub(super) fn rpop_in_place(call: &mut Call<'_, '_>, store: &Store, place: Place) -> Option<bool> {
    pop_in_place(call, store, place, End::Back)
}

fn pop_in_place(call: &mut Call<'_, '_>, store: &Store, place: Place, end: End) -> Option<bool> {
    if call.args.len() > 2 || store.is_heard(EventClass::LIST) {
        return None;
    }
    let key = call.key(1);
    store.list_pop_at(key, place, end, |element| call.reply.bulk(element))?;
    Some(true)
}

fn pop(call: &mut Call<'_, '_>, tx: &mut Tx<'_>, end: End, name: &'static str) -> Outcome {
    let count = match call.args.len() {
        2 => None,
        3 => Some(positive(call.args.get(2), 0).ok_or(CommandError::NotPositive)?),
        _ => return Err(CommandError::Arity(name)),
    };
    let key = call.key(1);
    let Some(list) = tx.list(key)? else {
        match count {
            None => call.reply.null(),
            Some(_) => call.reply.null_array(),
        }
        return Ok(());
    };
    let taken = match count {
        None => 1,
        Some(count) => {
            let count = count.min(list.len());
            call.reply.array(count as usize);
            count
        }
    };
    reply_end(call, &list, end, taken);
    take(tx, key, end, taken)
}

/// Takes so many elements off an end of a list, which has as many, and tells of it.
pub(super) fn take(tx: &mut Tx<'_>, key: Key<'_>, end: End, count: u64) -> Outcome {
    tx.list_cut(key, end, count)?;
    if count > 0 {
        tell_taken(tx, key, end);
    }
    Ok(())
}

fn tell_taken(tx: &mut Tx<'_>, key: Key<'_>, end: End) {
    tx.tell(EventClass::LIST, if end == End::Front { "lpop" } else { "rpop" }, key);
    tx.tell_if_gone(key);
}

/// The name of the event of a push.
fn pushed(end: End) -> &'static str {
    if end == End::Front { "lpush" } else { "rpush" }
}

/// Replies with so many elements, of which the list has as many, from an end of it on.
pub(super) fn reply_end(call: &mut Call<'_, '_>, list: &List<'_>, end: End, count: u64) {
    let reply = &mut *call.reply;
    let mut left = count;
    list.walk_from(end, &mut |element| {
        if left == 0 {
            return ControlFlow::Break(());
        }
        reply.bulk(element);
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
}

/// LLEN key
pub(super) fn llen(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let len = list_of(entry)?.map_or(0, |list| list.len());
    call.reply.len(len);
    Ok(())
}

/// LRANGE key start stop
pub(super) fn lrange(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let (start, stop) = (call.int(2)?, call.int(3)?);
    let list = list_of(entry)?;
    let range = list.and_then(|list| within(start, stop, list.len())).unwrap_or(0..0);
    let reply = &mut *call.reply;
    reply.array((range.end - range.start) as usize);
    if let Some(list) = list {
        list.for_each(range, false, &mut |element| reply.bulk(element));
    }
    Ok(())
}

/// LINDEX key index
pub(super) fn lindex(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let Some(list) = list_of(entry)? else {
        call.reply.null();
        return Ok(());
    };
    let index = place_of(call.int(2)?, || list.len());
    let reply = &mut *call.reply;
    let found = index.and_then(|index| list.get(index, |element| reply.bulk(element)));
    if found.is_none() {
        call.reply.null();
    }
    Ok(())
}

/// LSET key index element
pub(super) fn lset(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let key = call.key(1);
    let Some(list) = tx.list(key)? else { return Err(CommandError::NoSuchKey) };
    let index = place_of(call.int(2)?, || list.len());
    let was_set = match index {
        Some(index) => tx.list_set(key, index, call.args.get(3))?,
        None => false,
    };
    if !was_set {
        return Err(CommandError::IndexOutOfRange);
    }
    tx.tell(EventClass::LIST, "lset", key);
    call.reply.ok();
    Ok(())
}

/// LINSERT key BEFORE | AFTER pivot element
pub(super) fn linsert(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let is_behind = is(call.args.get(2), "AFTER");
    if !is_behind && !is(call.args.get(2), "BEFORE") {
        return Err(CommandError::Syntax);
    }
    let (key, pivot) = (call.key(1), call.args.get(3));
    let Some(list) = tx.list(key)? else {
        call.reply.len(0);
        return Ok(());
    };
    let (len, mut index, mut is_found) = (list.len(), 0, false);
    list.walk(0..u64::MAX, false, &mut |element| {
        if element == pivot {
            is_found = true;
            return ControlFlow::Break(());
        }
        index += 1;
        ControlFlow::Continue(())
    });
    if !is_found {
        call.reply.int(-1);
        return Ok(());
    }
    tx.list_insert(key, index + u64::from(is_behind), call.args.get(4))?;
    tx.tell(EventClass::LIST, "linsert", key);
    call.reply.len(len + 1);
    Ok(())
}

/// LREM key count element
pub(super) fn lrem(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let count = call.int(2)?;
    let asked = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let left = asked - call.steps.done;
    let most = left.min(call.steps.most);
    let done = tx.list_remove(call.key(1), call.args.get(3), most, count < 0)?;
    if done > 0 {
        tx.tell(EventClass::LIST, "lrem", call.key(1));
        tx.tell_if_gone(call.key(1));
    }
    call.steps.now = Step { done, is_more: done == most && most < left, ..Step::default() };
    call.reply.len(call.steps.done + done);
    Ok(())
}

/// LTRIM key start stop
pub(super) fn ltrim(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (start, stop) = (call.int(2)?, call.int(3)?);
    let key = call.key(1);
    if let Some(len) = tx.list(key)?.map(|list| list.len()) {
        match within(start, stop, len) {
            Some(kept) => {
                tx.touch(key);
                tx.list_cut(key, End::Back, len - kept.end)?;
                tx.list_cut(key, End::Front, kept.start)?;
            }
            None => {
                tx.delete(key)?;
            }
        }
        tx.tell(EventClass::LIST, "ltrim", key);
        tx.tell_if_gone(key);
    }
    call.reply.ok();
    Ok(())
}

/// LPOS key element [RANK rank] [COUNT count] [MAXLEN length]
pub(super) fn lpos(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let (mut rank, mut count, mut most_looked_at, mut at) = (1, None, 0, 3);
    while at < call.args.len() {
        let (name, has_value) = (call.args.get(at), at + 1 < call.args.len());
        if is(name, "RANK") && has_value {
            rank = call.int(at + 1)?;
            match rank {
                0 => return Err(CommandError::RankZero),
                i64::MIN => {
                    return Err(CommandError::OutOfBounds { min: -i64::MAX, max: i64::MAX });
                }
                _ => {}
            }
        } else if is(name, "COUNT") && has_value {
            count = positive(call.args.get(at + 1), 0);
            count.ok_or(CommandError::CountNegative)?;
        } else if is(name, "MAXLEN") && has_value {
            let most = positive(call.args.get(at + 1), 0);
            most_looked_at = most.ok_or(CommandError::MaxLenNegative)?;
        } else {
            return Err(CommandError::Syntax);
        }
        at += 2;
    }
    let (element, down, mut to_skip) = (call.args.get(2), rank < 0, rank.unsigned_abs() - 1);
    let mut found = Vec::new();
    if let Some(list) = list_of(entry)? {
        let len = list.len();
        let looked_at = if most_looked_at == 0 { len } else { len.min(most_looked_at) };
        let most = match count {
            None => 1,
            Some(0) => u64::MAX,
            Some(count) => count,
        };
        let range = if down { len - looked_at..len } else { 0..looked_at };
        let mut met = 0;
        list.walk(range, down, &mut |other| {
            if other == element {
                if to_skip == 0 {
                    found.push(if down { len - met - 1 } else { met });
                }
                to_skip = to_skip.saturating_sub(1);
            }
            met += 1;
            if found.len() as u64 == most {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
    }
    match (count, found.first()) {
        (Some(_), _) => {
            call.reply.array(found.len());
            found.iter().for_each(|index| call.reply.len(*index));
        }
        (None, Some(index)) => call.reply.len(*index),
        (None, None) => call.reply.null(),
    }
    Ok(())
}

/// LMOVE source destination LEFT | RIGHT LEFT | RIGHT
pub(super) fn lmove(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (from, to) = (end_of(call.args.get(3))?, end_of(call.args.get(4))?);
    move_between(call, tx, from, to)
}

/// RPOPLPUSH source destination
pub(super) fn rpoplpush(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    move_between(call, tx, End::Back, End::Front)
}

pub(super) fn move_between(
    call: &mut Call<'_, '_>,
    tx: &mut Tx<'_>,
    from: End,
    to: End,
) -> Outcome {
    let (source, target) = (call.key(1), call.key(2));
    let mut element = Vec::new();
    let Some(list) = tx.list(source)? else {
        call.reply.null();
        return Ok(());
    };
    list.walk_from(from, &mut |found| {
        element.extend_from_slice(found);
        ControlFlow::Break(())
    });
    // Of another kind, it is left alone, and so is the source.
    tx.list(target)?;
    if source == target {
        // The only element stays where it is, and so does one that goes back to its end; yet this
        // counts as a write.
        tx.touch(source);
        if from != to && list_len(tx, source)? > 1 {
            tx.list_cut(source, from, 1)?;
            tx.list_push(target, to, [&element[..]].into_iter())?;
        }
    } else {
        tx.list_cut(source, from, 1)?;
        tx.list_push(target, to, [&element[..]].into_iter())?;
    }
    tx.tell(EventClass::LIST, pushed(to), target);
    tell_taken(tx, source, from);
    call.reply.bulk(&element);
    Ok(())
}

fn list_len(tx: &Tx<'_>, key: Key<'_>) -> Result<u64, CommandError> {
    Ok(tx.list(key)?.map_or(0, |list| list.len()))
}

/// LMPOP numkeys key [key ...] LEFT | RIGHT [COUNT count]
pub(super) fn lmpop(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let pop = ManyPop::parse(call, 1)?;
    if !pop.take_first(call, tx)? {
        call.reply.null_array();
    }
    Ok(())
}

/// What LMPOP and BLMPOP ask for.
pub(super) struct ManyPop {
    /// The arguments that are keys.
    pub keys: Range<usize>,
    end: End,
    count: u64,
}

impl ManyPop {
    /// Reads the arguments from the number of keys, which is argument `count_at`, to the end.
    pub fn parse(call: &Call<'_, '_>, count_at: usize) -> Result<Self, CommandError> {
        let keys = counted_keys(call, count_at)?;
        let end = end_of(call.args.get(keys.end))?;
        let count = pop_count(call, keys.end + 1)?;
        Ok(Self { keys, end, count })
    }

    /// Pops from the first list that there is; false if there is none.
    pub fn take_first(
        &self,
        call: &mut Call<'_, '_>,
        tx: &mut Tx<'_>,
    ) -> Result<bool, CommandError> {
        for at in self.keys.clone() {
            let key = call.key(at);
            let Some(list) = tx.list(key)? else { continue };
            let count = self.count.min(list.len());
            call.reply.array(2);
            call.reply.bulk(key.bytes);
            call.reply.array(count as usize);
            reply_end(call, &list, self.end, count);
            take(tx, key, self.end, count)?;
            return Ok(true);
        }
        Ok(false)
    }
}

pub(super) fn end_of(arg: &[u8]) -> Result<End, CommandError> {
    if is(arg, "LEFT") {
        Ok(End::Front)
    } else if is(arg, "RIGHT") {
        Ok(End::Back)
    } else {
        Err(CommandError::Syntax)
    }
}

/// The index that a number means, which counts from the end if it is below 0.
fn place_of(index: i64, len: impl FnOnce() -> u64) -> Option<u64> {
    match u64::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => len().checked_sub(index.unsigned_abs()),
    }
}

/// The indices from `start` to `stop`, both included, that a list of `len` elements has; `None` if
/// there are none.
fn within(start: i64, stop: i64, len: u64) -> Option<Range<u64>> {
    let start = place_of(start, || len).unwrap_or(0);
    let end = place_of(stop, || len)?.saturating_add(1).min(len);
    (start < end).then_some(start..end)
}

fn list_of<'e>(entry: Option<&Entry<'e>>) -> Result<Option<List<'e>>, CommandError> {
    entry.map(|entry| entry.list().ok_or(CommandError::WrongType)).transpose()
}
