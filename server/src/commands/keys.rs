//! Keys of any kind: existence, names, copies, and walks over all of them.

use perdura_store::{DATABASES, Entry, EventClass, Key, Kind, List, SetForm, Tx};

use super::call::{Call, Outcome};
use super::error::CommandError;
use super::keyspace::Keyspace;
use super::options::{ScanOptions, cursor, database, is, kind_name};
use crate::number::parse_i64;

/// DEL key [key ...], and UNLINK
pub(super) fn del(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let mut deleted = 0;
    for at in call.step_of(1, 1) {
        let key = call.key(at);
        if tx.delete(key)? {
            deleted += 1;
            tx.tell(EventClass::GENERIC, "del", key);
        }
    }
    call.reply.int(call.steps.count(deleted));
    Ok(())
}

/// TOUCH key [key ...]
pub(super) fn touch(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let touched = (1..call.args.len()).filter(|at| tx.note_use(call.key(*at))).count();
    call.reply.len(touched as u64);
    Ok(())
}

/// EXISTS key [key ...], and TOUCH: a key named twice counts twice
pub(super) fn exists(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let found = call.args.from(1).filter(|bytes| tx.has(Key { db: call.db, bytes }));
    call.reply.len(found.count() as u64);
    Ok(())
}

/// TYPE key
pub(super) fn kind(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    call.reply.simple(entry.map_or("none", |entry| kind_name(entry.kind)));
    Ok(())
}

/// RENAME key newkey
pub(super) fn rename(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (from, to) = (call.key(1), call.key(2));
    if !tx.has(from) {
        return Err(CommandError::NoSuchKey);
    }
    if from.bytes != to.bytes {
        move_to(tx, from, to, ("rename_from", "rename_to"))?;
    }
    call.reply.ok();
    Ok(())
}

/// Gives a key another name or database, and tells of both.
fn move_to(
    tx: &mut Tx<'_>,
    from: Key<'_>,
    to: Key<'_>,
    events: (&'static str, &'static str),
) -> Outcome {
    tx.make_way(to)?;
    tx.rename(from, to)?;
    tx.tell(EventClass::GENERIC, events.0, from);
    tx.tell(EventClass::GENERIC, events.1, to);
    Ok(())
}

/// RENAMENX key newkey
pub(super) fn renamenx(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (from, to) = (call.key(1), call.key(2));
    if !tx.has(from) {
        return Err(CommandError::NoSuchKey);
    }
    // This is also the answer if both names are the same.
    let free = !tx.has(to);
    if free {
        move_to(tx, from, to, ("rename_from", "rename_to"))?;
    }
    call.reply.int(i64::from(free));
    Ok(())
}

/// COPY source destination [DB index] [REPLACE]
pub(super) fn copy(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (mut db, mut replace, mut at) = (call.db, false, 3);
    while at < call.args.len() {
        if is(call.args.get(at), "REPLACE") {
            replace = true;
        } else if is(call.args.get(at), "DB") && at + 1 < call.args.len() {
            at += 1;
            db = database(call.args.get(at), CommandError::NotInteger)?;
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    let (from, to) = (call.key(1), Key { db, bytes: call.args.get(2) });
    if from.db == to.db && from.bytes == to.bytes {
        return Err(CommandError::SameObject);
    }
    let possible = tx.has(from) && (replace || !tx.has(to));
    if possible {
        tx.make_way(to)?;
        tx.copy(from, to)?;
        tx.tell(EventClass::GENERIC, "copy_to", to);
    }
    call.reply.int(i64::from(possible));
    Ok(())
}

/// MOVE key db
pub(super) fn move_key(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let db = database(call.args.get(2), CommandError::NotInteger)?;
    let (from, to) = (call.key(1), Key { db, bytes: call.args.get(1) });
    if from.db == to.db {
        return Err(CommandError::SameObject);
    }
    let possible = tx.has(from) && !tx.has(to);
    if possible {
        move_to(tx, from, to, ("move_from", "move_to"))?;
    }
    call.reply.int(i64::from(possible));
    Ok(())
}

/// KEYS pattern
pub(super) fn keys(call: &mut Call<'_, '_>, keyspace: &mut Keyspace<'_, '_>) -> Outcome {
    let pattern = call.args.get(1);
    let (mut found, mut cursor) = (Vec::new(), 0);
    loop {
        cursor = keyspace.scan(call.db, cursor, 1024, &mut |name, _| {
            if crate::glob::matches(pattern, name) {
                found.push(name.to_vec());
            }
        });
        if cursor == 0 {
            break;
        }
    }
    // A walk may meet a key twice; KEYS names each once.
    found.sort_unstable();
    found.dedup();
    call.reply.array(found.len());
    for name in &found {
        call.reply.bulk(name);
    }
    Ok(())
}

/// SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]
pub(super) fn scan(call: &mut Call<'_, '_>, keyspace: &mut Keyspace<'_, '_>) -> Outcome {
    let from = cursor(call.args.get(1))?;
    let options = ScanOptions::parse(call, 2, true)?;
    let mut found: Vec<Vec<u8>> = Vec::new();
    let next = keyspace.scan(call.db, from, options.count, &mut |name, entry| {
        let kind = kind_name(entry.kind).as_bytes();
        let kind_fits = options.kind.is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind));
        if kind_fits && options.accepts(name) {
            found.push(name.to_vec());
        }
    });
    call.reply.array(2);
    call.reply.bulk(next.to_string().as_bytes());
    call.reply.array(found.len());
    for name in &found {
        call.reply.bulk(name);
    }
    Ok(())
}

/// RANDOMKEY
pub(super) fn randomkey(call: &mut Call<'_, '_>, keyspace: &mut Keyspace<'_, '_>) -> Outcome {
    let name = keyspace.random(call.db, call.random);
    call.reply.bulk_or_null(name.as_deref());
    Ok(())
}

/// DBSIZE
pub(super) fn dbsize(call: &mut Call<'_, '_>, keyspace: &mut Keyspace<'_, '_>) -> Outcome {
    let len = keyspace.len(call.db);
    call.reply.len(len);
    Ok(())
}

/// FLUSHDB [ASYNC | SYNC]
pub(super) fn flushdb(call: &mut Call<'_, '_>, keyspace: &mut Keyspace<'_, '_>) -> Outcome {
    check_flush(call)?;
    keyspace.flush(Some(call.db))?;
    call.reply.ok();
    Ok(())
}

/// FLUSHALL [ASYNC | SYNC]
pub(super) fn flushall(call: &mut Call<'_, '_>, keyspace: &mut Keyspace<'_, '_>) -> Outcome {
    check_flush(call)?;
    keyspace.flush(None)?;
    call.reply.ok();
    Ok(())
}

/// SWAPDB index index
pub(super) fn swapdb(call: &mut Call<'_, '_>, keyspace: &mut Keyspace<'_, '_>) -> Outcome {
    let number = |at: usize, invalid| {
        let number = parse_i64(call.args.get(at)).and_then(|n| i32::try_from(n).ok());
        number.ok_or(invalid)
    };
    let a = number(1, CommandError::SwapFirst)?;
    let b = number(2, CommandError::SwapSecond)?;
    let inside = |n: i32| u8::try_from(n).ok().filter(|db| *db < DATABASES);
    let (Some(a), Some(b)) = (inside(a), inside(b)) else { return Err(CommandError::DbIndex) };
    if a != b {
        keyspace.swap(a, b)?;
    }
    call.reply.ok();
    Ok(())
}

/// Accepts both ASYNC and SYNC; a database is always emptied before the reply.
fn check_flush(call: &Call<'_, '_>) -> Outcome {
    let word = call.args.get(1);
    match call.args.len() {
        1 => Ok(()),
        2 if is(word, "ASYNC") || is(word, "SYNC") => Ok(()),
        _ => Err(CommandError::Syntax),
    }
}

/// OBJECT ENCODING key: the name Redis 7 would give a value just written, by the same thresholds
pub(super) fn encoding(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let key = call.key(2);
    let (kind, int, len, expires) = match tx.get(key) {
        None => {
            call.reply.null();
            return Ok(());
        }
        Some(entry) => {
            let value = entry.string().unwrap_or(&[]);
            let is_raw = entry.is_patched_string();
            let int = !is_raw && parse_i64(value).is_some();
            let len = if is_raw { usize::MAX } else { value.len() };
            (entry.kind, int, len, entry.has_expiring_fields())
        }
    };
    let name = match kind {
        Kind::String if int => "int",
        Kind::String if len <= 44 => "embstr",
        Kind::String => "raw",
        Kind::Hash => {
            let (entries_max, bytes_max) = call.config.encodings.hash;
            let mut small = tx.hash_len(key)? <= entries_max;
            tx.hash_for_each(key, &mut |field, value| {
                small &= field.len().max(value.len()) as u64 <= bytes_max;
            })?;
            match small {
                true if expires => "listpackex",
                true => "listpack",
                false => "hashtable",
            }
        }
        Kind::List => {
            let list = tx.list(key)?;
            let (len_max, bytes_max) = list_limits(call.config.encodings.list);
            let fits = |list: List<'_>| list.len() <= len_max && list.fits_listpack(bytes_max);
            let small = list.is_none_or(fits);
            if small { "listpack" } else { "quicklist" }
        }
        Kind::Set => match tx.set(key)?.map(|set| set.form()) {
            Some(SetForm::Ints) => "intset",
            Some(SetForm::Packed) => "listpack",
            _ => "hashtable",
        },
        Kind::Stream => "stream",
        Kind::Sorted => {
            let mut small = true;
            if let Some(sorted) = tx.sorted(key)? {
                let (entries_max, bytes_max) = call.config.encodings.sorted;
                small = sorted.len() <= entries_max;
                // Further names do not change the answer.
                let looked_at = 0..entries_max.saturating_add(1);
                sorted.for_each(looked_at, false, &mut |name, _| {
                    small &= name.len() as u64 <= bytes_max;
                });
            }
            if small { "listpack" } else { "skiplist" }
        }
    };
    call.reply.bulk(name.as_bytes());
    Ok(())
}

/// Most elements and bytes of a list that OBJECT ENCODING calls a listpack, by
/// `list-max-listpack-size`: negative numbers are steps of bytes, others are elements.
fn list_limits(size: i32) -> (u64, u64) {
    const BYTES: u64 = 4 << 10;
    match size {
        ..0 => (u64::MAX, BYTES << (size.unsigned_abs() - 1).min(4)),
        _ => (size.max(1) as u64, 2 * BYTES),
    }
}

/// OBJECT REFCOUNT key
pub(super) fn refcount(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    match entry {
        Some(_) => call.reply.int(1),
        None => call.reply.null(),
    }
    Ok(())
}

/// OBJECT FREQ key
pub(super) fn freq(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    match tx.use_count(call.key(2)) {
        Some(_) if !call.config.eviction.policy.counts_uses() => return Err(CommandError::NoLfu),
        Some(count) => call.reply.int(i64::from(count)),
        None => call.reply.null(),
    }
    Ok(())
}

/// OBJECT IDLETIME key: in seconds
pub(super) fn idletime(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    match tx.idle_s(call.key(2)) {
        Some(_) if call.config.eviction.policy.counts_uses() => {
            return Err(CommandError::NoIdleTime);
        }
        Some(idle_s) => call.reply.int(i64::from(idle_s)),
        None => call.reply.null(),
    }
    Ok(())
}

/// MEMORY USAGE key [SAMPLES count]
pub(super) fn memory_usage(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let mut at = 3;
    while at < call.args.len() {
        let is_samples = is(call.args.get(at), "SAMPLES") && at + 1 < call.args.len();
        if !is_samples || call.int(at + 1)? < 0 {
            return Err(CommandError::Syntax);
        }
        at += 2;
    }
    match entry {
        Some(entry) => call.reply.len(entry.memory_bytes()),
        None => call.reply.null(),
    }
    Ok(())
}
