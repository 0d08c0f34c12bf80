//! Strings: reading them, and changing them in place.

use perdura_store::{Entry, EventClass, Expiry, Key, Place, Store, Tx};

use super::call::{Call, Outcome};
use super::error::CommandError;
use super::options::{STRING_MAX_BYTES, string_at, string_of};
use crate::number::{Float, parse_i64};

/// GET key
pub(super) fn get(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    match entry {
        Some(entry) => call.reply.bulk(string_of(entry)?),
        None => call.reply.null(),
    }
    Ok(())
}

/// STRLEN key
pub(super) fn strlen(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let len = entry.map_or(Ok(0), |e| e.string_len().ok_or(CommandError::WrongType))?;
    call.reply.len(len);
    Ok(())
}

/// GETRANGE key start end
pub(super) fn getrange(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let (start, end) = (call.int(2)?, call.int(3)?);
    let value = entry.map_or(Ok(&[][..]), string_of)?;
    call.reply.bulk(slice(value, start, end));
    Ok(())
}

fn slice(value: &[u8], start: i64, end: i64) -> &[u8] {
    let len = value.len() as i64;
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let from_end = |at: i64| if at < 0 { len.saturating_add(at).max(0) } else { at };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    if start > end { &[] } else { &value[start as usize..=end as usize] }
}

/// MGET key [key ...]
pub(super) fn mget(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    call.reply.array(call.args.len() - 1);
    for bytes in call.args.from(1) {
        let entry = tx.get(Key { db: call.db, bytes });
        // A key of another kind reads as absent here, unlike in GET.
        call.reply.bulk_or_null(entry.and_then(|e| e.string()));
    }
    Ok(())
}

/// MSET key value [key value ...]
pub(super) fn mset(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    put_pairs(call, tx, "mset")?;
    call.reply.ok();
    Ok(())
}

/// MSETNX key value [key value ...]
pub(super) fn msetnx(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    if call.args.len().is_multiple_of(2) {
        return Err(CommandError::Arity("msetnx"));
    }
    let taken = call.args.from(1).step_by(2).any(|bytes| tx.has(Key { db: call.db, bytes }));
    if !taken {
        put_pairs(call, tx, "msetnx")?;
    }
    call.reply.int(i64::from(!taken));
    Ok(())
}

fn put_pairs(call: &mut Call<'_, '_>, tx: &mut Tx<'_>, name: &'static str) -> Outcome {
    if call.args.len().is_multiple_of(2) {
        return Err(CommandError::Arity(name));
    }
    for index in (1..call.args.len()).step_by(2) {
        tx.put(call.key(index), call.args.get(index + 1), Expiry::None)?;
        tx.tell(EventClass::STRING, "set", call.key(index));
    }
    Ok(())
}

/// INCR key, where the new number is as long as the old one.
pub(super) fn incr_in_place(call: &mut Call<'_, '_>, store: &Store, place: Place) -> Option<bool> {
    add_in_place(call, store, place, 1)
}

/// DECR key, where the new number is as long as the old one.
pub(super) fn decr_in_place(call: &mut Call<'_, '_>, store: &Store, place: Place) -> Option<bool> {
    add_in_place(call, store, place, -1)
}

/// INCRBY key increment, where the new number is as long as the old one.
pub(super) fn incrby_in_place(
    call: &mut Call<'_, '_>,
    store: &Store,
    place: Place,
) -> Option<bool> {
    add_in_place(call, store, place, call.int(2).ok()?)
}

/// DECRBY key decrement, where the new number is as long as the old one.
pub(super) fn decrby_in_place(
    call: &mut Call<'_, '_>,
    store: &Store,
    place: Place,
) -> Option<bool> {
    add_in_place(call, store, place, call.int(2).ok()?.checked_neg()?)
}

fn add_in_place(call: &mut Call<'_, '_>, store: &Store, place: Place, by: i64) -> Option<bool> {
    if store.is_heard(EventClass::STRING) {
        return None;
    }
    let mut text = itoa::Buffer::new();
    let text = &mut text;
    let key = call.key(1);
    let new = store.replace_at(key, place, Expiry::Keep, move |old| sum(old, by, text))?;
    call.reply.int(new);
    Some(true)
}

/// The sum of a number's text and another number, as text and as number, if there is one.
pub(super) fn sum<'t>(old: &[u8], by: i64, text: &'t mut itoa::Buffer) -> Option<(&'t [u8], i64)> {
    let new = parse_i64(old)?.checked_add(by)?;
    Some((text.format(new).as_bytes(), new))
}

/// INCR key
pub(super) fn incr(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    add(call, tx, 1)
}

/// DECR key
pub(super) fn decr(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    add(call, tx, -1)
}

/// INCRBY key increment
pub(super) fn incrby(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let by = call.int(2)?;
    add(call, tx, by)
}

/// DECRBY key decrement
pub(super) fn decrby(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let by = call.int(2)?.checked_neg().ok_or(CommandError::DecrementOverflow)?;
    add(call, tx, by)
}

fn add(call: &mut Call<'_, '_>, tx: &mut Tx<'_>, by: i64) -> Outcome {
    let key = call.key(1);
    let old = match string_at(tx, key)? {
        Some(text) => parse_i64(text).ok_or(CommandError::NotInteger)?,
        None => 0,
    };
    let new = old.checked_add(by).ok_or(CommandError::Overflow)?;
    tx.put(key, itoa::Buffer::new().format(new).as_bytes(), Expiry::Keep)?;
    tx.tell(EventClass::STRING, "incrby", key);
    call.reply.int(new);
    Ok(())
}

/// INCRBYFLOAT key increment
pub(super) fn incrbyfloat(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let key = call.key(1);
    let old = match string_at(tx, key)? {
        Some(text) => Float::parse(text).ok_or(CommandError::NotFloat)?,
        None => Float::Decimal(0),
    };
    let by = Float::parse(call.args.get(2)).ok_or(CommandError::NotFloat)?;
    let text = old.plus(by).ok_or(CommandError::NotFinite)?.text();
    tx.put(key, text.as_bytes(), Expiry::Keep)?;
    tx.tell(EventClass::STRING, "incrbyfloat", key);
    call.reply.bulk(text.as_bytes());
    Ok(())
}

/// APPEND key value
pub(super) fn append(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (key, tail) = (call.key(1), call.args.get(2));
    let old_len = string_at(tx, key)?.map_or(0, <[u8]>::len) as u64;
    if old_len + tail.len() as u64 > STRING_MAX_BYTES {
        return Err(CommandError::StringTooLong);
    }
    let len = tx.append(key, tail)?;
    tx.tell(EventClass::STRING, "append", key);
    call.reply.len(len);
    Ok(())
}

/// SETRANGE key offset value
pub(super) fn setrange(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (key, bytes) = (call.key(1), call.args.get(3));
    let offset = u64::try_from(call.int(2)?).map_err(|_| CommandError::Offset)?;
    let old_len = string_at(tx, key)?.map_or(0, <[u8]>::len) as u64;
    if bytes.is_empty() {
        call.reply.len(old_len);
        return Ok(());
    }
    if offset.saturating_add(bytes.len() as u64) > STRING_MAX_BYTES {
        return Err(CommandError::StringTooLong);
    }
    let len = tx.patch(key, offset, bytes)?;
    tx.tell(EventClass::STRING, "setrange", key);
    call.reply.len(len);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::slice;

    #[test]
    fn ranges_count_from_both_ends() {
        let value = b"This is a string";
        assert_eq!(slice(value, 0, 3), b"This");
        assert_eq!(slice(value, -3, -1), b"ing");
        assert_eq!(slice(value, 0, -1), value);
        assert_eq!(slice(value, 10, 100), b"string");
        assert_eq!(slice(value, -1, -3), b"");
        assert_eq!(slice(value, i64::MIN, i64::MAX), value);
        assert_eq!(slice(b"", 0, -1), b"");
        assert_eq!(slice(b"abc", -100, -100), b"a");
    }
}
