//! Hashes: fields and their values.

use perdura_store::{Entry, EventClass, Kind, Place, Store, Tx};

use super::call::{Call, Outcome};
use super::error::CommandError;
use super::options::{ScanOptions, cursor, is};
use super::strings::sum;
use crate::number::{Float, parse_i64};

/// HGET key field
pub(super) fn hget(call: &mut Call<'_, '_>, value: Option<&[u8]>) -> Outcome {
    call.reply.bulk_or_null(value);
    Ok(())
}

/// HEXISTS key field
pub(super) fn hexists(call: &mut Call<'_, '_>, value: Option<&[u8]>) -> Outcome {
    call.reply.int(i64::from(value.is_some()));
    Ok(())
}

/// HSTRLEN key field
pub(super) fn hstrlen(call: &mut Call<'_, '_>, value: Option<&[u8]>) -> Outcome {
    call.reply.len(value.map_or(0, <[u8]>::len) as u64);
    Ok(())
}

/// HLEN key
pub(super) fn hlen(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let len = match entry {
        Some(entry) => entry.hash_len().ok_or(CommandError::WrongType)?,
        None => 0,
    };
    call.reply.len(len);
    Ok(())
}

/// HSET key field value [field value ...]
pub(super) fn hset(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let added = set_pairs(call, tx, "hset")?;
    call.reply.int(added);
    Ok(())
}

/// HSET of one field, where the new value is as long as the old one or the hash is large.
pub(super) fn hset_in_place(call: &mut Call<'_, '_>, store: &Store, place: Place) -> Option<bool> {
    if call.args.len() != 4 || store.is_heard(EventClass::HASH) {
        return None;
    }
    let (field, value) = (call.args.get(2), call.args.get(3));
    let is_new = store.hash_set_at(call.key(1), place, field, value)?;
    call.reply.int(i64::from(is_new));
    Some(true)
}

/// HMSET key field value [field value ...]
pub(super) fn hmset(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    set_pairs(call, tx, "hmset")?;
    call.reply.ok();
    Ok(())
}

fn set_pairs(
    call: &mut Call<'_, '_>,
    tx: &mut Tx<'_>,
    name: &'static str,
) -> Result<i64, CommandError> {
    if call.args.len() % 2 == 1 {
        return Err(CommandError::Arity(name));
    }
    let args = call.args;
    let pairs = call.step_of(2, 2).step_by(2);
    let fields = pairs.map(|index| (args.get(index), args.get(index + 1)));
    let added = tx.hash_set_all(call.key(1), fields)?;
    tx.tell(EventClass::HASH, "hset", call.key(1));
    Ok(call.steps.count(added as i64))
}

/// HSETNX key field value
pub(super) fn hsetnx(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (key, field) = (call.key(1), call.args.get(2));
    let absent = tx.hash_get(key, field)?.is_none();
    if absent {
        tx.hash_set(key, field, call.args.get(3))?;
        tx.tell(EventClass::HASH, "hset", key);
    }
    call.reply.int(i64::from(absent));
    Ok(())
}

/// HMGET key field [field ...]
pub(super) fn hmget(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let key = call.key(1);
    check_hash(call, tx)?;
    call.reply.array(call.args.len() - 2);
    for field in call.args.from(2) {
        call.reply.bulk_or_null(tx.hash_get(key, field)?);
    }
    Ok(())
}

/// HDEL key field [field ...]
pub(super) fn hdel(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let key = call.key(1);
    let mut deleted = 0;
    for at in call.step_of(2, 1) {
        deleted += i64::from(tx.hash_delete(key, call.args.get(at))?);
    }
    if deleted > 0 {
        tx.tell(EventClass::HASH, "hdel", key);
        tx.tell_if_gone(key);
    }
    call.reply.int(call.steps.count(deleted));
    Ok(())
}

/// HKEYS key
pub(super) fn hkeys(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let len = tx.hash_len(call.key(1))?;
    call.reply.array(len as usize);
    tx.hash_for_each(call.key(1), &mut |field, _| call.reply.bulk(field))?;
    Ok(())
}

/// HVALS key
pub(super) fn hvals(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let len = tx.hash_len(call.key(1))?;
    call.reply.array(len as usize);
    tx.hash_for_each(call.key(1), &mut |_, value| call.reply.bulk(value))?;
    Ok(())
}

/// HGETALL key
pub(super) fn hgetall(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let len = tx.hash_len(call.key(1))?;
    call.reply.map(len as usize);
    tx.hash_for_each(call.key(1), &mut |field, value| {
        call.reply.bulk(field);
        call.reply.bulk(value);
    })?;
    Ok(())
}

/// HINCRBY where the new number is as long as the old one.
pub(super) fn hincrby_in_place(
    call: &mut Call<'_, '_>,
    store: &Store,
    place: Place,
) -> Option<bool> {
    if store.is_heard(EventClass::HASH) {
        return None;
    }
    let (field, by) = (call.args.get(2), call.int(3).ok()?);
    let mut text = itoa::Buffer::new();
    let text = &mut text;
    let key = call.key(1);
    let new = store.hash_replace_at(key, place, field, move |old| sum(old, by, text))?;
    call.reply.int(new);
    Some(true)
}

/// HINCRBY key field increment
pub(super) fn hincrby(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let by = call.int(3)?;
    let (key, field) = (call.key(1), call.args.get(2));
    let old = match tx.hash_get(key, field)? {
        Some(text) => parse_i64(text).ok_or(CommandError::HashNotInteger)?,
        None => 0,
    };
    let new = old.checked_add(by).ok_or(CommandError::Overflow)?;
    tx.hash_change(key, field, new.to_string().as_bytes())?;
    tx.tell(EventClass::HASH, "hincrby", key);
    call.reply.int(new);
    Ok(())
}

/// HINCRBYFLOAT key field increment
pub(super) fn hincrbyfloat(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let by = Float::parse(call.args.get(3)).ok_or(CommandError::NotFloat)?;
    if !by.value().is_finite() {
        return Err(CommandError::IncrementNotFinite);
    }
    let (key, field) = (call.key(1), call.args.get(2));
    let old = match tx.hash_get(key, field)? {
        Some(text) => Float::parse(text).ok_or(CommandError::HashNotFloat)?,
        None => Float::Decimal(0),
    };
    let text = old.plus(by).ok_or(CommandError::NotFinite)?.text();
    tx.hash_change(key, field, text.as_bytes())?;
    tx.tell(EventClass::HASH, "hincrbyfloat", key);
    call.reply.bulk(text.as_bytes());
    Ok(())
}

/// HSCAN key cursor [MATCH pattern] [COUNT count]
pub(super) fn hscan(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let from = cursor(call.args.get(2))?;
    let key = call.key(1);
    check_hash(call, tx)?;
    let present = tx.has(key);
    let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut next = 0;
    if present {
        let options = ScanOptions::parse(call, 3, false)?;
        next = tx.hash_scan(key, from, options.count, &mut |field, value| {
            if options.accepts(field) {
                found.push((field.to_vec(), value.to_vec()));
            }
        })?;
    }
    call.reply.array(2);
    call.reply.bulk(next.to_string().as_bytes());
    call.reply.array(found.len() * 2);
    for (field, value) in &found {
        call.reply.bulk(field);
        call.reply.bulk(value);
    }
    Ok(())
}

/// HRANDFIELD key [count [WITHVALUES]]
pub(super) fn hrandfield(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let key = call.key(1);
    if call.args.len() == 2 {
        let len = tx.hash_len(key)?;
        if len == 0 {
            call.reply.null();
            return Ok(());
        }
        let at = call.random.below(len);
        let fields = pick(call, tx, &[at], len)?;
        call.reply.bulk_or_null(found(&fields, at).map(|(field, _)| field.as_slice()));
        return Ok(());
    }
    let with_values = call.args.len() > 3;
    let count = call.int(2)?;
    if count == i64::MIN {
        return Err(CommandError::OutOfBounds { min: -i64::MAX, max: i64::MAX });
    }
    if call.args.len() > 4 || (with_values && !is(call.args.get(3), "WITHVALUES")) {
        return Err(CommandError::Syntax);
    }
    let bound = if with_values { i64::MAX / 2 } else { i64::MAX };
    if count < -bound || count > bound || (count < 0 && count.unsigned_abs() > PICKS_MAX) {
        return Err(CommandError::OutOfRange);
    }
    let len = tx.hash_len(key)?;
    let wanted = choose(call, len, count);
    let fields = pick(call, tx, &wanted, len)?;
    let nested = with_values && call.reply.resp3();
    call.reply.array(if with_values && !nested { wanted.len() * 2 } else { wanted.len() });
    // A field asked for many times is copied once, and written until the reply's limit.
    for (field, value) in wanted.iter().filter_map(|at| found(&fields, *at)) {
        if nested {
            call.reply.array(2);
        }
        call.reply.bulk(field);
        if with_values {
            call.reply.bulk(value);
        }
    }
    Ok(())
}

/// More random fields with repetition are refused: the reply would pass the output limit anyway.
const PICKS_MAX: u64 = 1 << 24;

/// Draws positions of fields: distinct ones for a positive count, any for a negative one.
fn choose(call: &Call<'_, '_>, len: u64, count: i64) -> Vec<u64> {
    if len == 0 {
        return Vec::new();
    }
    if count < 0 {
        return (0..count.unsigned_abs()).map(|_| call.random.below(len)).collect();
    }
    // The first `count` steps of a shuffle.
    let mut all: Vec<u64> = (0..len).collect();
    let count = (count as u64).min(len);
    for at in 0..count {
        let other = at + call.random.below(len - at);
        all.swap(at as usize, other as usize);
    }
    all.truncate(count as usize);
    all
}

/// Fields with their values, by their position in a walk over the hash.
type Fields = Vec<Option<(Vec<u8>, Vec<u8>)>>;

/// Takes the fields at these positions of one walk over the hash.
fn pick(
    call: &Call<'_, '_>,
    tx: &Tx<'_>,
    wanted: &[u64],
    len: u64,
) -> Result<Fields, CommandError> {
    let mut needed = vec![false; len as usize];
    for at in wanted {
        needed[*at as usize] = true;
    }
    let mut fields = Fields::with_capacity(len as usize);
    tx.hash_for_each(call.key(1), &mut |field, value| {
        let needed = needed.get(fields.len()).copied().unwrap_or(false);
        fields.push(needed.then(|| (field.to_vec(), value.to_vec())));
    })?;
    Ok(fields)
}

fn found(fields: &Fields, at: u64) -> Option<&(Vec<u8>, Vec<u8>)> {
    fields.get(at as usize)?.as_ref()
}

fn check_hash(call: &Call<'_, '_>, tx: &Tx<'_>) -> Outcome {
    match tx.get(call.key(1)) {
        Some(entry) if entry.kind != Kind::Hash => Err(CommandError::WrongType),
        _ => Ok(()),
    }
}
