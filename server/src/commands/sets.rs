//! Sets: members one by one, and at random.

use perdura_store::{Entry, EventClass, Expiry, Key, Place, Set, Store, Tx};

use super::call::{Call, Outcome};
use super::error::CommandError;
use super::options::{ScanOptions, cursor};
use super::steps::Step;
use crate::number::parse_i64;

/// Names of members.
pub(super) type Names = Vec<Vec<u8>>;

/// Reads an entry's set; `None` if there is no such key.
pub(super) fn set_of<'e>(entry: Option<&Entry<'e>>) -> Result<Option<Set<'e>>, CommandError> {
    match entry {
        None => Ok(None),
        Some(entry) => entry.set().map(Some).ok_or(CommandError::WrongType),
    }
}

/// The members in a form in which they are given to a transaction.
pub(super) fn slices(names: &Names) -> impl Iterator<Item = &[u8]> + Clone {
    names.iter().map(Vec::as_slice)
}

/// SADD of one member of a large set, or of members that the set has already.
pub(super) fn sadd_in_place(call: &mut Call<'_, '_>, store: &Store, place: Place) -> Option<bool> {
    if call.args.len() == 3
        && !store.is_heard(EventClass::SET)
        && let Some(is_new) = store.set_add_at(call.key(1), place, call.args.get(2))
    {
        call.reply.int(i64::from(is_new));
        return Some(is_new);
    }
    let mut members = call.args.from(2);
    store.read_at(call.key(1), place, |entry| {
        let set = entry.as_ref().and_then(Entry::set)?;
        members.all(|member| set.has(member)).then_some(())
    })?;
    call.reply.int(0);
    Some(false)
}

/// SADD key member [member ...]
pub(super) fn sadd(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let args = call.args;
    let members = call.step_of(2, 1).map(|at| args.get(at));
    let added = tx.set_add_all(call.key(1), members)?;
    if added > 0 {
        tx.tell(EventClass::SET, "sadd", call.key(1));
    }
    call.reply.int(call.steps.count(added as i64));
    Ok(())
}

/// SREM key member [member ...]
pub(super) fn srem(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let args = call.args;
    let members = call.step_of(2, 1).map(|at| args.get(at));
    let removed = tx.set_remove_all(call.key(1), members)?;
    if removed > 0 {
        tell_taken(tx, "srem", call.key(1));
    }
    call.reply.int(call.steps.count(removed as i64));
    Ok(())
}

/// Tells that members of a set were taken out.
fn tell_taken(tx: &mut Tx<'_>, name: &'static str, key: Key<'_>) {
    tx.tell(EventClass::SET, name, key);
    tx.tell_if_gone(key);
}

/// SMOVE source destination member
pub(super) fn smove(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (from, to, member) = (call.key(1), call.key(2), call.args.get(3));
    // Without a source, Redis does not look at the destination.
    let has = match tx.set(from)? {
        None => {
            call.reply.int(0);
            return Ok(());
        }
        Some(set) => set.has(member),
    };
    tx.set(to)?;
    if has && from != to {
        tx.set_remove_all(from, std::iter::once(member))?;
        tell_taken(tx, "srem", from);
        if tx.set_add_all(to, std::iter::once(member))? > 0 {
            tx.tell(EventClass::SET, "sadd", to);
        }
    }
    call.reply.int(i64::from(has));
    Ok(())
}

/// SISMEMBER key member
pub(super) fn sismember(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let has = set_of(entry)?.is_some_and(|set| set.has(call.args.get(2)));
    call.reply.int(i64::from(has));
    Ok(())
}

/// SMISMEMBER key member [member ...]
pub(super) fn smismember(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let set = set_of(entry)?;
    call.reply.array(call.args.len() - 2);
    for member in call.args.from(2) {
        call.reply.int(i64::from(set.is_some_and(|set| set.has(member))));
    }
    Ok(())
}

/// SCARD key
pub(super) fn scard(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    call.reply.len(set_of(entry)?.map_or(0, |set| set.len()));
    Ok(())
}

/// SMEMBERS key
pub(super) fn smembers(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let set = set_of(entry)?;
    call.reply.set(set.map_or(0, |set| set.len()) as usize);
    if let Some(set) = set {
        set.for_each(&mut |name| call.reply.bulk(name));
    }
    Ok(())
}

/// SPOP of one member of a large set.
pub(super) fn spop_in_place(call: &mut Call<'_, '_>, store: &Store, place: Place) -> Option<bool> {
    if call.args.len() > 2 || store.is_heard(EventClass::SET) {
        return None;
    }
    let (key, random) = (call.key(1), call.random);
    let draw = &mut |below| random.below(below);
    store.set_pop_at(key, place, draw, |member| call.reply.bulk(member))?;
    Some(true)
}

/// SPOP key [count]
pub(super) fn spop(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    if call.args.len() > 3 {
        return Err(CommandError::Syntax);
    }
    let key = call.key(1);
    if call.args.len() == 2 {
        let popped = pop(call, tx, key, 1)?;
        call.reply.bulk_or_null(popped.first().map(Vec::as_slice));
        return Ok(());
    }
    let count = parse_i64(call.args.get(2)).and_then(|count| u64::try_from(count).ok());
    let left = count.ok_or(CommandError::NotPositive)?.saturating_sub(call.steps.done);
    let most = left.min(call.steps.most);
    let taken = pop(call, tx, key, most)?;
    let done = taken.len() as u64;
    call.reply.set(call.steps.taken.len() + taken.len());
    call.steps.taken.iter().chain(&taken).for_each(|name| call.reply.bulk(name));
    call.steps.now = Step { done, taken, is_more: done == most && most < left, ..Step::default() };
    Ok(())
}

/// A set of which less than one in so many members stays is written anew, instead of what goes
/// being taken out.
const REST_RATIO: u64 = 5;

/// Takes members out, each choice with the same chance.
fn pop(
    call: &Call<'_, '_>,
    tx: &mut Tx<'_>,
    key: Key<'_>,
    count: u64,
) -> Result<Names, CommandError> {
    let mut popped = Names::new();
    let Some(set) = tx.set(key)? else { return Ok(popped) };
    let len = set.len();
    let rest_len = len.saturating_sub(count);
    if count > 0 && rest_len > 0 && rest_len * REST_RATIO < count {
        let (mut rest, mut gone) = (Names::new(), Names::new());
        set.pick_distinct(rest_len, &mut |below| call.random.below(below), &mut |name| {
            rest.push(name.to_vec());
        });
        rest.sort_unstable();
        set.for_each(&mut |name| {
            if rest.binary_search_by(|kept| kept.as_slice().cmp(name)).is_err() {
                gone.push(name.to_vec());
            }
        });
        tx.set_put(key, slices(&rest), Expiry::Keep)?;
        tell_taken(tx, "spop", key);
        return Ok(gone);
    }
    let draw = &mut |below| call.random.below(below);
    set.pick_distinct(count, draw, &mut |name| popped.push(name.to_vec()));
    if popped.len() as u64 == len {
        tx.delete(key)?;
    } else {
        tx.set_remove_all(key, slices(&popped))?;
    }
    if !popped.is_empty() {
        tell_taken(tx, "spop", key);
    }
    Ok(popped)
}

/// More random members with repetition are refused: the reply would pass the output limit anyway.
const PICKS_MAX: u64 = 1 << 24;

/// SRANDMEMBER key [count]
pub(super) fn srandmember(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let (random, reply) = (call.random, &mut *call.reply);
    let mut draw = |below| random.below(below);
    if call.args.len() == 2 {
        match set_of(entry)? {
            None => reply.null(),
            Some(set) => set.pick(&mut draw, &mut |name| reply.bulk(name)),
        }
        return Ok(());
    }
    if call.args.len() > 3 {
        return Err(CommandError::Syntax);
    }
    let count = parse_i64(call.args.get(2)).ok_or(CommandError::NotInteger)?;
    if count == i64::MIN {
        return Err(CommandError::OutOfBounds { min: -i64::MAX, max: i64::MAX });
    }
    if count < 0 && count.unsigned_abs() > PICKS_MAX {
        return Err(CommandError::OutOfRange);
    }
    let Some(set) = set_of(entry)? else {
        reply.array(0);
        return Ok(());
    };
    if count < 0 {
        reply.array(count.unsigned_abs() as usize);
        (0..count.unsigned_abs()).for_each(|_| set.pick(&mut draw, &mut |name| reply.bulk(name)));
        return Ok(());
    }
    reply.array(set.len().min(count as u64) as usize);
    set.pick_distinct(count as u64, &mut draw, &mut |name| reply.bulk(name));
    Ok(())
}

/// SSCAN key cursor [MATCH pattern] [COUNT count]
pub(super) fn sscan(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let from = cursor(call.args.get(2))?;
    let (mut found, mut next) = (Names::new(), 0);
    if let Some(set) = set_of(entry)? {
        let options = ScanOptions::parse(call, 3, false)?;
        next = set.scan(from, options.count, &mut |name| {
            if options.accepts(name) {
                found.push(name.to_vec());
            }
        });
    }
    call.reply.array(2);
    call.reply.bulk(next.to_string().as_bytes());
    call.reply.array(found.len());
    found.iter().for_each(|name| call.reply.bulk(name));
    Ok(())
}
