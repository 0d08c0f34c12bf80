//! HEXPIRE and its kin: when fields of a hash expire, as in Redis 7.4.

use std::ops::Range;

use perdura_store::{EventClass, FIELD_EXPIRY_MAX_MS, Key, Tx};

use super::call::{Call, Outcome};
use super::error::CommandError;
use super::options::{Time, is};
use crate::number::parse_i64;

/// The answers for a field.
const NO_FIELD: i64 = -2;
const NO_EXPIRY: i64 = -1;
const NOT_ALLOWED: i64 = 0;
const DONE: i64 = 1;
const DELETED: i64 = 2;

/// HEXPIRE key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]
pub(super) fn hexpire(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    expire_fields(call, tx, Time::InSeconds, "hexpire")
}

/// HPEXPIRE key milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]
pub(super) fn hpexpire(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    expire_fields(call, tx, Time::InMs, "hpexpire")
}

/// HEXPIREAT key unix-seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]
pub(super) fn hexpireat(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    expire_fields(call, tx, Time::AtSeconds, "hexpireat")
}

/// HPEXPIREAT key unix-milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]
pub(super) fn hpexpireat(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    expire_fields(call, tx, Time::AtMs, "hpexpireat")
}

/// When a field may get another expiry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    None,
    IfNone,
    IfSome,
    IfLater,
    IfSooner,
}

impl Condition {
    fn parse(arg: &[u8]) -> Self {
        match () {
            () if is(arg, "NX") => Self::IfNone,
            () if is(arg, "XX") => Self::IfSome,
            () if is(arg, "GT") => Self::IfLater,
            () if is(arg, "LT") => Self::IfSooner,
            () => Self::None,
        }
    }

    /// Whether the new time is allowed beside the old; a field without an expiry counts as one that
    /// never expires.
    fn allows(self, old_ms: Option<u64>, new_ms: u64) -> bool {
        match self {
            Self::None => true,
            Self::IfNone => old_ms.is_none(),
            Self::IfSome => old_ms.is_some(),
            Self::IfLater => old_ms.is_some_and(|old| new_ms > old),
            Self::IfSooner => old_ms.is_none_or(|old| new_ms < old),
        }
    }
}

/// Reads the time of argument 2, as milliseconds since 1970.
fn time_ms(
    call: &Call<'_, '_>,
    time: Time,
    now_ms: u64,
    name: &'static str,
) -> Result<u64, CommandError> {
    let value = call.int(2)?;
    let value = u64::try_from(value).map_err(|_| CommandError::FieldExpireNegative)?;
    let ms = match time {
        Time::InSeconds | Time::AtSeconds => value.checked_mul(1000),
        Time::InMs | Time::AtMs => Some(value),
    };
    let at_ms = match time {
        Time::InSeconds | Time::InMs => ms.and_then(|ms| ms.checked_add(now_ms)),
        Time::AtSeconds | Time::AtMs => ms,
    };
    at_ms.filter(|at| *at <= FIELD_EXPIRY_MAX_MS).ok_or(CommandError::ExpireTime(name))
}

/// Reads `FIELDS numfields field [field ...]`, which is all from argument `at` on, and returns the
/// index of the first field.
fn fields_at(
    call: &Call<'_, '_>,
    at: usize,
    not_positive: CommandError,
) -> Result<usize, CommandError> {
    if !is(call.args.get(at), "FIELDS") {
        return Err(CommandError::FieldsMissing);
    }
    let count = parse_i64(call.args.get(at + 1)).filter(|count| *count > 0);
    let count = count.ok_or(not_positive)?;
    let (first, len) = (at + 2, call.args.len());
    match usize::try_from(count) == Ok(len - first) {
        true => Ok(first),
        false => Err(CommandError::FieldsNumber),
    }
}

fn expire_fields(
    call: &mut Call<'_, '_>,
    tx: &mut Tx<'_>,
    time: Time,
    name: &'static str,
) -> Outcome {
    let key = call.key(1);
    check_hash(tx, key)?;
    let at_ms = time_ms(call, time, call.now_ms, name)?;
    let condition = Condition::parse(call.args.get(3));
    let fields_from = if condition == Condition::None { 3 } else { 4 };
    let first = fields_at(call, fields_from, CommandError::FieldsNotAboveZero)?;
    let (mut deletes, mut changes) = (false, false);
    for at in begin_step(call, first) {
        let field = call.args.get(at);
        let answer = match tx.hash_expiry(key, field)? {
            None => NO_FIELD,
            Some(old_ms) if !condition.allows(old_ms, at_ms) => NOT_ALLOWED,
            // A busy machine may begin a millisecond later than it counted from.
            Some(_) if at_ms <= tx.now_ms().min(call.now_ms) => {
                tx.hash_delete(key, field)?;
                DELETED
            }
            Some(_) => {
                tx.hash_set_expiry(key, field, Some(at_ms))?;
                DONE
            }
        };
        (deletes, changes) = (deletes | (answer == DELETED), changes | (answer == DONE));
        call.reply.int(answer);
    }
    if deletes {
        tx.tell(EventClass::HASH, "hdel", key);
        tx.tell_if_gone(key);
    } else if changes {
        tx.tell(EventClass::HASH, "hexpire", key);
    }
    Ok(())
}

/// The fields, from argument `first` on, that this step takes, each of which is answered. The first
/// step says in the reply how many answers there are.
fn begin_step(call: &mut Call<'_, '_>, first: usize) -> Range<usize> {
    if call.steps.done == 0 {
        call.reply.array(call.args.len() - first);
    }
    call.steps.now.is_answered = true;
    call.step_of(first, 1)
}

/// HPERSIST key FIELDS numfields field [field ...]
pub(super) fn hpersist(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let key = call.key(1);
    check_hash(tx, key)?;
    let first = fields_at(call, 2, CommandError::FieldsNotPositive)?;
    let mut changes = false;
    for at in begin_step(call, first) {
        let field = call.args.get(at);
        let answer = match tx.hash_expiry(key, field)? {
            None => NO_FIELD,
            Some(None) => NO_EXPIRY,
            Some(Some(_)) => {
                tx.hash_set_expiry(key, field, None)?;
                DONE
            }
        };
        changes |= answer == DONE;
        call.reply.int(answer);
    }
    if changes {
        tx.tell(EventClass::HASH, "hpersist", key);
    }
    Ok(())
}

/// HTTL key FIELDS numfields field [field ...]
pub(super) fn httl(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    answer_times(call, tx, |at_ms, now_ms| at_ms.saturating_sub(now_ms).div_ceil(1000))
}

/// HPTTL key FIELDS numfields field [field ...]
pub(super) fn hpttl(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    answer_times(call, tx, |at_ms, now_ms| at_ms.saturating_sub(now_ms))
}

/// HEXPIRETIME key FIELDS numfields field [field ...]
pub(super) fn hexpiretime(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    answer_times(call, tx, |at_ms, _| at_ms.div_ceil(1000))
}

/// HPEXPIRETIME key FIELDS numfields field [field ...]
pub(super) fn hpexpiretime(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    answer_times(call, tx, |at_ms, _| at_ms)
}

/// Answers what `time` makes of each field's expiry and of now, behind which an expiry is unless
/// expiry is held up.
fn answer_times(call: &mut Call<'_, '_>, tx: &Tx<'_>, time: impl Fn(u64, u64) -> u64) -> Outcome {
    let key = call.key(1);
    check_hash(tx, key)?;
    let first = fields_at(call, 2, CommandError::FieldsNotPositive)?;
    let now_ms = call.now_ms;
    call.reply.array(call.args.len() - first);
    for field in call.args.from(first) {
        match tx.hash_expiry(key, field)? {
            None => call.reply.int(NO_FIELD),
            Some(None) => call.reply.int(NO_EXPIRY),
            Some(Some(at_ms)) => call.reply.len(time(at_ms, now_ms)),
        }
    }
    Ok(())
}

/// Refuses a key that is no hash, before anything is said of the arguments.
fn check_hash(tx: &Tx<'_>, key: Key<'_>) -> Outcome {
    Ok(tx.hash_len(key).map(drop)?)
}
