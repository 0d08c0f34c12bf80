//! Strings: the SET family and reads that also write.

use perdura_store::{EventClass, Expiry, Key, Place, Store, Tx};

use super::call::{Call, Outcome};
use super::error::CommandError;
use super::options::{Time, expire_ms, is, string_at};

/// The options of SET.
#[derive(Default)]
struct SetOptions {
    if_absent: bool,
    if_present: bool,
    get: bool,
    keep_expiry: bool,
    expire: Option<(Time, usize)>,
}

impl SetOptions {
    fn parse(call: &Call<'_, '_>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut at = 3;
        while at < call.args.len() {
            let arg = call.args.get(at);
            let timeless = !options.keep_expiry && options.expire.is_none();
            if is(arg, "NX") && !options.if_present {
                options.if_absent = true;
            } else if is(arg, "XX") && !options.if_absent {
                options.if_present = true;
            } else if is(arg, "GET") {
                options.get = true;
            } else if is(arg, "KEEPTTL") && options.expire.is_none() {
                options.keep_expiry = true;
            } else if let Some(time) = Time::option(arg)
                && timeless
                && at + 1 < call.args.len()
            {
                at += 1;
                options.expire = Some((time, at));
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }
}

/// SET key value, where the new value is as long as the old one.
pub(super) fn set_in_place(call: &mut Call<'_, '_>, store: &Store, place: Place) -> Option<bool> {
    if call.args.len() > 3 || store.is_heard(EventClass::STRING) {
        return None;
    }
    let value = call.args.get(2);
    store.replace_at(call.key(1), place, Expiry::None, |_| Some((value, ())))?;
    call.reply.ok();
    Some(true)
}

/// SET key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]
pub(super) fn set(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    if call.args.len() == 3 {
        put(tx, call.key(1), call.args.get(2), Expiry::None)?;
        call.reply.ok();
        return Ok(());
    }
    let options = SetOptions::parse(call)?;
    let expiry = match options.expire {
        Some(expire) => Expiry::AtMs(expire_ms(call, expire, "set")?),
        None if options.keep_expiry => Expiry::Keep,
        None => Expiry::None,
    };
    let key = call.key(1);
    if options.get {
        call.reply.bulk_or_null(string_at(tx, key)?);
    }
    let present = tx.has(key);
    if (options.if_absent && present) || (options.if_present && !present) {
        if !options.get {
            call.reply.null();
        }
        return Ok(());
    }
    put(tx, key, call.args.get(2), expiry)?;
    if !options.get {
        call.reply.ok();
    }
    Ok(())
}

/// Sets a key to a string, and tells of it.
fn put(tx: &mut Tx<'_>, key: Key<'_>, value: &[u8], expiry: Expiry) -> Outcome {
    tx.put(key, value, expiry)?;
    tx.tell(EventClass::STRING, "set", key);
    if let Expiry::AtMs(_) = expiry {
        tx.tell(EventClass::GENERIC, "expire", key);
    }
    Ok(())
}

/// SETNX key value
pub(super) fn setnx(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let key = call.key(1);
    let absent = !tx.has(key);
    if absent {
        put(tx, key, call.args.get(2), Expiry::None)?;
    }
    call.reply.int(i64::from(absent));
    Ok(())
}

/// SETEX key seconds value
pub(super) fn setex(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    set_for(call, tx, Time::InSeconds, "setex")
}

/// PSETEX key milliseconds value
pub(super) fn psetex(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    set_for(call, tx, Time::InMs, "psetex")
}

fn set_for(call: &mut Call<'_, '_>, tx: &mut Tx<'_>, time: Time, name: &'static str) -> Outcome {
    let at_ms = expire_ms(call, (time, 2), name)?;
    put(tx, call.key(1), call.args.get(3), Expiry::AtMs(at_ms))?;
    call.reply.ok();
    Ok(())
}

/// GETSET key value
pub(super) fn getset(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let key = call.key(1);
    call.reply.bulk_or_null(string_at(tx, key)?);
    put(tx, key, call.args.get(2), Expiry::None)
}

/// GETDEL key
pub(super) fn getdel(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let key = call.key(1);
    call.reply.bulk_or_null(string_at(tx, key)?);
    if tx.delete(key)? {
        tx.tell(EventClass::GENERIC, "del", key);
    }
    Ok(())
}

/// GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]
pub(super) fn getex(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (mut expire, mut persist, mut at) = (None, false, 2);
    while at < call.args.len() {
        let arg = call.args.get(at);
        let first = expire.is_none() && !persist;
        if is(arg, "PERSIST") && expire.is_none() {
            persist = true;
        } else if let Some(time) = Time::option(arg)
            && first
            && at + 1 < call.args.len()
        {
            at += 1;
            expire = Some((time, at));
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    let key = call.key(1);
    let Some(value) = string_at(tx, key)? else {
        call.reply.null();
        return Ok(());
    };
    let expire_at_ms = expire.map(|expire| expire_ms(call, expire, "getex")).transpose()?;
    call.reply.bulk(value);
    match expire_at_ms {
        Some(at_ms) if at_ms <= tx.now_ms() => {
            tx.delete(key)?;
            tx.tell(EventClass::GENERIC, "del", key);
        }
        Some(at_ms) => {
            tx.set_expiry(key, Some(at_ms))?;
            tx.tell(EventClass::GENERIC, "expire", key);
        }
        // A key without an expiry is not written, so that clients that watch it see no change.
        None if persist && tx.look(key).is_some_and(|entry| entry.expire_at_ms.is_some()) => {
            tx.set_expiry(key, None)?;
            tx.tell(EventClass::GENERIC, "persist", key);
        }
        None => {}
    }
    Ok(())
}
