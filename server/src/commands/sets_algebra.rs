//! Sets: unions, intersections, differences.

use std::collections::HashSet;
use std::ops::Range;

use perdura_store::{EventClass, Expiry, Set, Tx};

use super::call::{Call, Outcome};
use super::error::CommandError;
use super::options::is;
use super::sets::{Names, slices};
use crate::number::parse_i64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

/// SUNION key [key ...]
pub(super) fn sunion(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    reply(call, tx, Operation::Union)
}

/// SUNIONSTORE destination key [key ...]
pub(super) fn sunionstore(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    store(call, tx, Operation::Union)
}

/// SINTER key [key ...]
pub(super) fn sinter(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    reply(call, tx, Operation::Inter)
}

/// SINTERSTORE destination key [key ...]
pub(super) fn sinterstore(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    store(call, tx, Operation::Inter)
}

/// SDIFF key [key ...]
pub(super) fn sdiff(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    reply(call, tx, Operation::Diff)
}

/// SDIFFSTORE destination key [key ...]
pub(super) fn sdiffstore(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    store(call, tx, Operation::Diff)
}

/// SINTERCARD numkeys key [key ...] [LIMIT limit]
pub(super) fn sintercard(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let count = parse_i64(call.args.get(1)).filter(|count| *count > 0);
    let count = count.ok_or(CommandError::NumKeys)? as u64;
    if count > call.args.len() as u64 - 2 {
        return Err(CommandError::NumKeysArgs);
    }
    let end = 2 + count as usize;
    let (mut limit, mut at) = (u64::MAX, end);
    while at < call.args.len() {
        if !is(call.args.get(at), "LIMIT") || at + 1 == call.args.len() {
            return Err(CommandError::Syntax);
        }
        let given = parse_i64(call.args.get(at + 1)).and_then(|limit| u64::try_from(limit).ok());
        limit = match given.ok_or(CommandError::LimitNegative)? {
            0 => u64::MAX,
            limit => limit,
        };
        at += 2;
    }
    let mut met = 0;
    inter(sources(call, tx, 2..end)?, &mut |_| {
        met += 1;
        met < limit
    });
    call.reply.len(met);
    Ok(())
}

fn reply(call: &mut Call<'_, '_>, tx: &Tx<'_>, operation: Operation) -> Outcome {
    let names = combined(operation, sources(call, tx, 1..call.args.len())?);
    call.reply.set(names.len());
    names.iter().for_each(|name| call.reply.bulk(name));
    Ok(())
}

fn store(call: &mut Call<'_, '_>, tx: &mut Tx<'_>, operation: Operation) -> Outcome {
    let names = combined(operation, sources(call, tx, 2..call.args.len())?);
    let (to, was_there) = (call.key(1), tx.was_there(call.key(1)));
    tx.set_put(to, slices(&names), Expiry::None)?;
    let event = match operation {
        Operation::Union => "sunionstore",
        Operation::Inter => "sinterstore",
        Operation::Diff => "sdiffstore",
    };
    tx.tell_stored(EventClass::SET, event, to, was_there);
    call.reply.len(names.len() as u64);
    Ok(())
}

/// The sets at these arguments; `None` for a key that is not there.
fn sources<'t>(
    call: &Call<'_, '_>,
    tx: &'t Tx<'_>,
    keys: Range<usize>,
) -> Result<Vec<Option<Set<'t>>>, CommandError> {
    keys.map(|at| Ok(tx.set(call.key(at))?)).collect()
}

fn combined(operation: Operation, sources: Vec<Option<Set<'_>>>) -> Names {
    let mut names = Names::new();
    match operation {
        Operation::Union => {
            let mut met = HashSet::new();
            for set in sources.into_iter().flatten() {
                set.for_each(&mut |name| {
                    if !met.contains(name) {
                        met.insert(name.to_vec());
                    }
                });
            }
            names.extend(met);
            // A table's order is another one each time. An attempt that goes on from what the one
            // before it has written asks for the same records in the same order.
            names.sort_unstable();
        }
        Operation::Inter => inter(sources, &mut |name| {
            names.push(name.to_vec());
            true
        }),
        Operation::Diff => {
            let [Some(first), others @ ..] = &sources[..] else { return names };
            first.for_each(&mut |name| {
                if !others.iter().flatten().any(|other| other.has(name)) {
                    names.push(name.to_vec());
                }
            });
        }
    }
    names
}

/// Calls `f` with the members that all sets have, until it returns false.
fn inter(sources: Vec<Option<Set<'_>>>, f: &mut dyn FnMut(&[u8]) -> bool) {
    let Some(mut sets) = sources.into_iter().collect::<Option<Vec<_>>>() else { return };
    sets.sort_by_key(Set::len);
    let [first, others @ ..] = &sets[..] else { return };
    let (mut cursor, mut goes_on) = (0, true);
    loop {
        cursor = first.scan(cursor, MEMBERS_AT_A_TIME, &mut |name| {
            if goes_on && others.iter().all(|other| other.has(name)) {
                goes_on = f(name);
            }
        });
        if cursor == 0 || !goes_on {
            return;
        }
    }
}

/// Members that are looked at before an intersection can end early.
const MEMBERS_AT_A_TIME: usize = 64;
