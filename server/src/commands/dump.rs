//! DUMP and RESTORE: values as payloads in the format of Redis' dumps.

use perdura_rdb::{Encoder, PayloadError, RdbError, Value, open_payload, seal_payload};
use perdura_store::{Entry, EventClass, Expiry, Key, Kind, Tx, TxError, UseHint};

use super::call::{Call, Outcome};
use super::dump_stream;
use super::error::CommandError;
use super::options::is;

/// Most bytes of memory that the value of a payload may take before it is in the store.
const VALUE_BYTES_MAX: u64 = 4 << 30;

/// DUMP key
pub(super) fn dump(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let mut payload = Vec::new();
    match encode(tx, call.key(1), &mut payload) {
        None => call.reply.null(),
        Some(_) => {
            seal_payload(&mut payload);
            call.reply.bulk(&payload);
        }
    }
    Ok(())
}

/// RESTORE key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency], and
/// RESTORE-ASKING
pub(super) fn restore(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let options = Options::parse(call)?;
    let key = call.key(1);
    if !options.replaces && tx.has(key) {
        return Err(CommandError::BusyKey);
    }
    let ttl = u64::try_from(call.int(2)?).map_err(|_| CommandError::RestoreTtl)?;
    let max_bytes = tx.memory_bytes().min(VALUE_BYTES_MAX);
    let value = match open_payload(call.args.get(3), max_bytes) {
        Ok(value) if !value.is_empty() => value,
        Err(PayloadError::Foot) => return Err(CommandError::PayloadFoot),
        Err(PayloadError::Value(RdbError::TooLarge { max_bytes, .. })) => {
            return Err(CommandError::PayloadTooLarge(max_bytes));
        }
        Ok(_) | Err(PayloadError::Value(_)) => return Err(CommandError::PayloadData),
    };
    let expiry = match ttl {
        0 => Expiry::None,
        ms if options.is_absolute => Expiry::AtMs(ms),
        ms => Expiry::AtMs(ms.saturating_add(call.now_ms)),
    };
    if matches!(expiry, Expiry::AtMs(at_ms) if at_ms <= tx.now_ms()) {
        // The value has gone already, and takes with it what it would have replaced.
        if tx.delete(key)? {
            tx.tell(EventClass::GENERIC, "del", key);
        }
    } else {
        tx.make_way(key)?;
        put(tx, key, &value, expiry)?;
        tx.tell(EventClass::GENERIC, "restore", key);
        if let Some(uses) = options.uses {
            tx.set_uses(key, uses);
        }
    }
    call.reply.ok();
    Ok(())
}

/// The options of RESTORE.
struct Options {
    replaces: bool,
    is_absolute: bool,
    uses: Option<UseHint>,
}

impl Options {
    fn parse(call: &Call<'_, '_>) -> Result<Self, CommandError> {
        let mut options = Self { replaces: false, is_absolute: false, uses: None };
        let mut at = 4;
        while at < call.args.len() {
            let (word, has_value) = (call.args.get(at), at + 1 < call.args.len());
            if is(word, "REPLACE") {
                options.replaces = true;
            } else if is(word, "ABSTTL") {
                options.is_absolute = true;
            } else if is(word, "IDLETIME") && has_value && !is_counted(options.uses) {
                at += 1;
                let idle_s = u64::try_from(call.int(at)?);
                let idle_s = idle_s.map_err(|_| CommandError::RestoreIdleTime)?;
                options.uses = Some(UseHint::IdleSeconds(idle_s));
            } else if is(word, "FREQ") && has_value && is_counted(options.uses.or(COUNTED)) {
                at += 1;
                let count = u8::try_from(call.int(at)?).map_err(|_| CommandError::RestoreFreq)?;
                options.uses = Some(UseHint::Count(count));
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }
}

const COUNTED: Option<UseHint> = Some(UseHint::Count(0));

fn is_counted(uses: Option<UseHint>) -> bool {
    matches!(uses, Some(UseHint::Count(_)))
}

/// Writes a key's value as a dump has it, and returns when the key goes away; `None` if there is no
/// such key.
pub(super) fn encode(tx: &Tx<'_>, key: Key<'_>, out: &mut Vec<u8>) -> Option<Option<u64>> {
    let entry = tx.get(key)?;
    encode_entry(&entry, out);
    Some(entry.expire_at_ms)
}

/// Writes a value as a dump has it.
pub(crate) fn encode_entry(entry: &Entry<'_>, out: &mut Vec<u8>) {
    let mut out = Encoder::new(out, true);
    match entry.kind {
        Kind::String => out.string_value(entry.string().unwrap_or_default()),
        Kind::List => {
            if let Some(list) = entry.list() {
                out.list(list.len());
                list.for_each(0..u64::MAX, false, &mut |element| out.string(element));
            }
        }
        Kind::Set => {
            if let Some(set) = entry.set() {
                out.set(set.len());
                set.for_each(&mut |member| out.string(member));
            }
        }
        Kind::Sorted => {
            if let Some(sorted) = entry.sorted() {
                out.sorted(sorted.len());
                // From the last to the first: so Redis finds the place of each at once.
                sorted.for_each(0..u64::MAX, true, &mut |name, score| out.member(name, score));
            }
        }
        Kind::Hash => {
            if entry.has_expiring_fields() && encode_expiring(entry, &mut out) {
                return;
            }
            out.hash(entry.hash_len().unwrap_or(0));
            entry.for_each_field(&mut |field, value| {
                out.string(field);
                out.string(value);
            });
        }
        Kind::Stream => {
            if let Some(stream) = entry.stream() {
                out.stream(&dump_stream::of_store(&stream));
            }
        }
    }
}

/// Writes a hash of which fields expire. Returns false, and writes nothing, if none do.
fn encode_expiring(entry: &Entry<'_>, out: &mut Encoder<'_>) -> bool {
    let mut first_ms = u64::MAX;
    entry.for_each_expiring_field(&mut |field| {
        first_ms = first_ms.min(field.expire_at_ms.unwrap_or(u64::MAX));
    });
    if first_ms == u64::MAX {
        return false;
    }
    out.expiring_hash(entry.hash_len().unwrap_or(0), first_ms);
    entry.for_each_expiring_field(&mut |field| {
        out.expiring_field(field.name, field.value, field.expire_at_ms, first_ms);
    });
    true
}

/// Makes a key a value of a dump, whatever the key held.
pub(super) fn put(tx: &mut Tx<'_>, key: Key<'_>, value: &Value, expiry: Expiry) -> Outcome {
    let done: Result<(), TxError> = match value {
        Value::String(bytes) => tx.put(key, bytes, expiry),
        Value::List(elements) => tx.list_put(key, elements.iter(), expiry),
        Value::Set(members) => tx.set_put(key, members.iter(), expiry),
        Value::Sorted(names, scores) => {
            let members = names.iter().zip(scores.iter().copied());
            tx.sorted_put_all(key, members, expiry)
        }
        Value::Hash(fields) => tx.hash_put(key, fields.pairs(), expiry),
        Value::ExpiringHash(fields, expiries) => {
            let fields = fields.pairs().zip(expiries);
            let fields: Vec<_> = fields
                .map(|((name, value), at_ms)| (name.to_vec(), value.to_vec(), *at_ms))
                .collect();
            tx.hash_put_expiring(key, &fields, expiry)
        }
        Value::Stream(stream) => dump_stream::put(tx, key, stream, expiry),
    };
    Ok(done?)
}
