//! EXPIRE and its kin: when a key expires.

use perdura_store::{Entry, EventClass, Tx};

use super::call::{Call, Outcome};
use super::error::CommandError;
use super::options::{Time, is};

/// EXPIRE key seconds [NX | XX | GT | LT]
pub(super) fn expire(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    expire_key(call, tx, Time::InSeconds, "expire")
}

/// PEXPIRE key milliseconds [NX | XX | GT | LT]
pub(super) fn pexpire(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    expire_key(call, tx, Time::InMs, "pexpire")
}

/// EXPIREAT key unix-seconds [NX | XX | GT | LT]
pub(super) fn expireat(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    expire_key(call, tx, Time::AtSeconds, "expireat")
}

/// PEXPIREAT key unix-milliseconds [NX | XX | GT | LT]
pub(super) fn pexpireat(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    expire_key(call, tx, Time::AtMs, "pexpireat")
}

#[derive(Default)]
struct Conditions {
    if_none: bool,
    if_some: bool,
    if_later: bool,
    if_sooner: bool,
}

impl Conditions {
    fn parse(call: &Call<'_, '_>) -> Result<Self, CommandError> {
        let mut found = Self::default();
        for arg in call.args.from(3) {
            let flag = match () {
                () if is(arg, "NX") => &mut found.if_none,
                () if is(arg, "XX") => &mut found.if_some,
                () if is(arg, "GT") => &mut found.if_later,
                () if is(arg, "LT") => &mut found.if_sooner,
                () => return Err(CommandError::ExpireOption(super::error::text(arg, 128))),
            };
            *flag = true;
        }
        if found.if_none && (found.if_some || found.if_later || found.if_sooner) {
            return Err(CommandError::ExpireNx);
        }
        if found.if_later && found.if_sooner {
            return Err(CommandError::ExpireGtLt);
        }
        Ok(found)
    }

    /// Whether the new time is allowed beside the old; a key without an expiry counts as one that
    /// never expires.
    fn allow(&self, old_ms: Option<u64>, new_ms: i64) -> bool {
        let old_ms = old_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        !(self.if_none && old_ms.is_some()
            || self.if_some && old_ms.is_none()
            || self.if_later && old_ms.is_none_or(|old| new_ms <= old)
            || self.if_sooner && old_ms.is_some_and(|old| new_ms >= old))
    }
}

fn expire_key(call: &mut Call<'_, '_>, tx: &mut Tx<'_>, time: Time, name: &'static str) -> Outcome {
    let conditions = Conditions::parse(call)?;
    let value = call.int(2)?;
    let at_ms = time.at_ms(value, call.now_ms).ok_or(CommandError::ExpireTime(name))?;
    let key = call.key(1);
    let allowed = match tx.look(key) {
        Some(entry) => conditions.allow(entry.expire_at_ms, at_ms),
        None => false,
    };
    if allowed {
        match u64::try_from(at_ms) {
            // A busy machine may begin a millisecond later than it counted from.
            Ok(at_ms) if at_ms > tx.now_ms().min(call.now_ms) => {
                tx.set_expiry(key, Some(at_ms))?;
                tx.tell(EventClass::GENERIC, "expire", key);
            }
            _ => {
                tx.delete(key)?;
                tx.tell(EventClass::GENERIC, "del", key);
            }
        }
    }
    call.reply.int(i64::from(allowed));
    Ok(())
}

/// PERSIST key
pub(super) fn persist(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let key = call.key(1);
    let had = tx.look(key).is_some_and(|entry| entry.expire_at_ms.is_some());
    if had {
        tx.set_expiry(key, None)?;
        tx.tell(EventClass::GENERIC, "persist", key);
    }
    call.reply.int(i64::from(had));
    Ok(())
}

/// TTL key
pub(super) fn ttl(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let now_ms = call.now_ms;
    answer(call, entry, |at_ms| at_ms.saturating_sub(now_ms).saturating_add(500) / 1000)
}

/// PTTL key
pub(super) fn pttl(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let now_ms = call.now_ms;
    answer(call, entry, |at_ms| at_ms.saturating_sub(now_ms))
}

/// EXPIRETIME key
pub(super) fn expiretime(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    answer(call, entry, |at_ms| at_ms.saturating_add(500) / 1000)
}

/// PEXPIRETIME key
pub(super) fn pexpiretime(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    answer(call, entry, |at_ms| at_ms)
}

/// Answers a time to live, or -2 where there is no such key, -1 where it does not expire.
fn answer(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>, f: impl Fn(u64) -> u64) -> Outcome {
    match entry.map(|entry| entry.expire_at_ms) {
        None => call.reply.int(-2),
        Some(None) => call.reply.int(-1),
        Some(Some(at_ms)) => call.reply.len(f(at_ms)),
    }
    Ok(())
}
