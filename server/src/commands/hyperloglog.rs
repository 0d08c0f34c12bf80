//! HyperLogLogs: strings that count different elements, about.

use perdura_store::{EventClass, Expiry, Key, Tx};

use super::call::{Call, Outcome};
use super::context::Context;
use super::error::{CommandError, text};
use super::options::{is, string_at};
use crate::hll::{self, Corrupt, Hll, Registers};
use crate::resp::Args;

impl From<Corrupt> for CommandError {
    fn from(_: Corrupt) -> Self {
        Self::HllCorrupt
    }
}

/// Reads the HyperLogLog at `key`; `None` if there is no such key.
fn hll_at(call: &Call<'_, '_>, tx: &Tx<'_>, key: Key<'_>) -> Result<Option<Hll>, CommandError> {
    let Some(bytes) = string_at(tx, key)? else { return Ok(None) };
    Hll::of(bytes, call.config.hll_sparse_max_bytes).map(Some).ok_or(CommandError::NotHll)
}

/// Writes what differs from the bytes that the key has: of a dense one a few of 12 KiB.
fn write(tx: &mut Tx<'_>, key: Key<'_>, hll: &Hll) -> Outcome {
    let (old, new) = (string_at(tx, key)?.unwrap_or(&[]), hll.bytes());
    if old.len() != new.len() || !hll.is_dense() {
        return Ok(tx.put(key, new, Expiry::Keep)?);
    }
    let changed: Vec<usize> = (0..new.len()).filter(|at| old[*at] != new[*at]).collect();
    // Bytes that lie near each other are written together.
    for near in changed.chunk_by(|at, next| next - at < 64) {
        if let [first, ..] = near {
            let last = near.last().unwrap_or(first);
            tx.patch(key, *first as u64, &new[*first..=*last])?;
        }
    }
    Ok(())
}

/// PFADD key [element [element ...]]
pub(super) fn pfadd(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let key = call.key(1);
    let old = hll_at(call, tx, key)?;
    let mut changed = old.is_none();
    let mut hll = old.unwrap_or_else(|| Hll::new(call.config.hll_sparse_max_bytes));
    for element in call.args.from(2) {
        changed |= hll.add(element)?;
    }
    if changed {
        hll.forget_cached();
        write(tx, key, &hll)?;
        tx.tell(EventClass::STRING, "pfadd", key);
    }
    call.reply.int(i64::from(changed));
    Ok(())
}

/// PFCOUNT key [key ...]
pub(super) fn pfcount(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    if call.args.len() > 2 {
        let mut registers = Registers::new();
        for at in 1..call.args.len() {
            if let Some(hll) = hll_at(call, tx, call.key(at))? {
                registers.merge(&hll)?;
            }
        }
        call.reply.len(registers.count());
        return Ok(());
    }
    let key = call.key(1);
    let Some(mut hll) = hll_at(call, tx, key)? else {
        call.reply.int(0);
        return Ok(());
    };
    let count = match hll.cached() {
        Some(count) => count,
        None => {
            let count = hll.count()?;
            hll.cache(count);
            tx.patch(key, 8, &count.to_le_bytes())?;
            count
        }
    };
    call.reply.len(count);
    Ok(())
}

/// PFMERGE destkey [sourcekey [sourcekey ...]]
pub(super) fn pfmerge(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (mut registers, mut is_dense) = (Registers::new(), false);
    for at in 1..call.args.len() {
        if let Some(hll) = hll_at(call, tx, call.key(at))? {
            is_dense |= hll.is_dense();
            registers.merge(&hll)?;
        }
    }
    let key = call.key(1);
    let mut merged =
        hll_at(call, tx, key)?.unwrap_or_else(|| Hll::new(call.config.hll_sparse_max_bytes));
    if is_dense {
        merged.make_dense()?;
    }
    for (index, value) in registers.raised() {
        merged.raise(index, value)?;
    }
    merged.forget_cached();
    write(tx, key, &merged)?;
    tx.tell(EventClass::STRING, "pfadd", key);
    call.reply.ok();
    Ok(())
}

/// PFSELFTEST
pub(super) fn pfselftest(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    hll::self_test().map_err(CommandError::SelfTest)?;
    ctx.reply.ok();
    Ok(())
}

/// PFDEBUG GETREG | DECODE | ENCODING | TODENSE key
pub(super) fn pfdebug(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (name, key) = (call.args.get(1), call.key(2));
    let Some(mut hll) = hll_at(call, tx, key)? else { return Err(CommandError::NoSpecifiedKey) };
    let names = ["GETREG", "DECODE", "ENCODING", "TODENSE"];
    if !names.iter().any(|known| is(name, known)) {
        return Err(CommandError::PfdebugUnknown(text(name, 128)));
    }
    if call.args.len() != 3 {
        return Err(CommandError::PfdebugArity(text(name, 128)));
    }
    let was_dense = hll.is_dense();
    if is(name, "GETREG") {
        let mut registers = Registers::new();
        registers.merge(&hll)?;
        hll.make_dense()?;
        if !was_dense {
            write(tx, key, &hll)?;
        }
        call.reply.array(registers.all().len());
        registers.all().iter().for_each(|value| call.reply.int(i64::from(*value)));
    } else if is(name, "DECODE") {
        call.reply.bulk(hll.opcodes().ok_or(CommandError::HllNotSparse)?.as_bytes());
    } else if is(name, "ENCODING") {
        call.reply.simple(if was_dense { "dense" } else { "sparse" });
    } else {
        hll.make_dense()?;
        if !was_dense {
            write(tx, key, &hll)?;
        }
        call.reply.int(i64::from(!was_dense));
    }
    Ok(())
}
