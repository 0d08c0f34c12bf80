//! Sorted sets: members one by one, from the ends, at random.

use std::collections::BTreeSet;
use std::ops::Range;

use perdura_store::{End, Entry, EventClass, Key, Place, Sorted, Store, Tx};

use super::call::{Call, Outcome, Random};
use super::error::CommandError;
use super::options::{ScanOptions, counted_keys, cursor, is, pop_count, positive};
use crate::number::{format_double, parse_double};
use crate::resp::{Args, Reply};

/// Members with their scores.
pub(super) type Members = Vec<(Vec<u8>, f64)>;

/// Reads an entry's sorted set; `None` if there is no such key.
pub(super) fn sorted_of<'e>(entry: Option<&Entry<'e>>) -> Result<Option<Sorted<'e>>, CommandError> {
    match entry {
        None => Ok(None),
        Some(entry) => entry.sorted().map(Some).ok_or(CommandError::WrongType),
    }
}

/// Writes members; with scores as a flat array in RESP2, as an array of pairs in RESP3.
pub(super) fn reply_members(reply: &mut Reply<'_>, members: &Members, with_scores: bool) {
    let mut list = List::begin(reply, members.len() as u64, with_scores);
    members.iter().for_each(|(name, score)| list.push(name, *score));
}

/// A reply of members whose number is known before them.
pub(super) struct List<'r, 'o> {
    reply: &'r mut Reply<'o>,
    with_scores: bool,
    pairs: bool,
}

impl<'r, 'o> List<'r, 'o> {
    pub fn begin(reply: &'r mut Reply<'o>, len: u64, with_scores: bool) -> Self {
        let pairs = with_scores && reply.resp3();
        reply.array(if with_scores && !pairs { len * 2 } else { len } as usize);
        Self { reply, with_scores, pairs }
    }

    pub fn push(&mut self, name: &[u8], score: f64) {
        if self.pairs {
            self.reply.array(2);
        }
        self.reply.bulk(name);
        if self.with_scores {
            self.reply.double(score);
        }
    }
}

/// The conditions of ZADD.
#[derive(Default)]
struct AddOptions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    ch: bool,
    incr: bool,
}

impl AddOptions {
    /// Whether a member's old score decides what happens.
    fn are_conditions(&self) -> bool {
        self.nx || self.xx || self.gt || self.lt || self.incr
    }

    /// Reads the conditions from argument 2 on, and returns where the first score stands.
    fn parse(&mut self, call: &Call<'_, '_>) -> usize {
        for at in 2..call.args.len() {
            let option = match call.args.get(at) {
                arg if is(arg, "NX") => &mut self.nx,
                arg if is(arg, "XX") => &mut self.xx,
                arg if is(arg, "GT") => &mut self.gt,
                arg if is(arg, "LT") => &mut self.lt,
                arg if is(arg, "CH") => &mut self.ch,
                arg if is(arg, "INCR") => &mut self.incr,
                _ => return at,
            };
            *option = true;
        }
        call.args.len()
    }

    fn check(&self, pairs: usize) -> Outcome {
        if self.nx && self.xx {
            return Err(CommandError::AddNxXx);
        }
        if [self.gt, self.lt, self.nx].iter().filter(|set| **set).count() > 1 {
            return Err(CommandError::AddGtLtNx);
        }
        if self.incr && pairs > 1 { Err(CommandError::AddIncr) } else { Ok(()) }
    }

    /// The score that a member gets; `None` where the conditions leave it as it is.
    fn score(&self, old: Option<f64>, given: f64) -> Result<Option<f64>, CommandError> {
        let Some(old) = old else { return Ok((!self.xx).then_some(given)) };
        if self.nx {
            return Ok(None);
        }
        let score = if self.incr { old + given } else { given };
        if score.is_nan() {
            return Err(CommandError::ScoreNan);
        }
        let refused = (self.lt && score >= old) || (self.gt && score <= old);
        Ok((!refused).then_some(score))
    }
}

/// ZADD of one member, without options, of a large sorted set.
pub(super) fn zadd_in_place(call: &mut Call<'_, '_>, store: &Store, place: Place) -> Option<bool> {
    if call.args.len() != 4 {
        return None;
    }
    let given = parse_double(call.args.get(2))?;
    let (old, new) = change_in_place(call, store, place, |_| Some(given))?;
    call.reply.int(i64::from(old.is_none()));
    Some(old != Some(new))
}

/// ZINCRBY of a member of a large sorted set.
pub(super) fn zincrby_in_place(
    call: &mut Call<'_, '_>,
    store: &Store,
    place: Place,
) -> Option<bool> {
    let by = parse_double(call.args.get(2))?;
    let sum = |old: Option<f64>| Some(old.map_or(by, |old| old + by)).filter(|sum| !sum.is_nan());
    let (old, new) = change_in_place(call, store, place, sum)?;
    call.reply.double(new);
    Some(old != Some(new))
}

/// Changes the score of the member that is argument 3. Returns both scores.
fn change_in_place(
    call: &Call<'_, '_>,
    store: &Store,
    place: Place,
    f: impl FnOnce(Option<f64>) -> Option<f64>,
) -> Option<(Option<f64>, f64)> {
    if store.is_heard(EventClass::SORTED) {
        return None;
    }
    store.sorted_change_at(call.key(1), place, call.args.get(3), f)
}

/// ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]
pub(super) fn zadd(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    add(call, tx, AddOptions::default())
}

/// ZINCRBY key increment member
pub(super) fn zincrby(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    add(call, tx, AddOptions { incr: true, ..AddOptions::default() })
}

fn add(call: &mut Call<'_, '_>, tx: &mut Tx<'_>, mut options: AddOptions) -> Outcome {
    let first = options.parse(call);
    let rest = call.args.len() - first;
    if rest == 0 || rest % 2 == 1 {
        return Err(CommandError::Syntax);
    }
    options.check(rest / 2)?;
    // Nothing is added if a score is no number, so all are read first.
    let score = |args: Args<'_>, at| parse_double(args.get(at)).ok_or(CommandError::NotFloat);
    let args = call.args;
    (first + 2..args.len()).step_by(2).try_for_each(|at| score(args, at).map(drop))?;
    let step = call.step_of(first, 2);
    let key = call.key(1);
    let (mut added, mut updated, mut last) = (0, 0, None);
    for at in step.step_by(2) {
        let (given, member) = (score(args, at)?, args.get(at + 1));
        if !options.are_conditions() {
            let old = tx.sorted_add(key, member, given)?;
            added += i64::from(old.is_none());
            updated += i64::from(old.is_some_and(|old| old != given));
            continue;
        }
        let old = tx.sorted(key)?.and_then(|sorted| sorted.score(member));
        last = options.score(old, given)?;
        let Some(score) = last.filter(|score| old != Some(*score)) else { continue };
        tx.sorted_add(key, member, score)?;
        (added, updated) = (added + i64::from(old.is_none()), updated + i64::from(old.is_some()));
    }
    if added + updated > 0 {
        tx.tell(EventClass::SORTED, if options.incr { "zincr" } else { "zadd" }, key);
    }
    match last {
        Some(score) if options.incr => call.reply.double(score),
        None if options.incr => call.reply.null(),
        _ => {
            let counted = if options.ch { added + updated } else { added };
            call.reply.int(call.steps.count(counted));
        }
    }
    Ok(())
}

/// ZREM key member [member ...]
pub(super) fn zrem(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let key = call.key(1);
    let mut removed = 0;
    for at in call.step_of(2, 1) {
        removed += i64::from(tx.sorted_remove(key, call.args.get(at))?.is_some());
    }
    if removed > 0 {
        tx.tell(EventClass::SORTED, "zrem", key);
        tx.tell_if_gone(key);
    }
    call.reply.int(call.steps.count(removed));
    Ok(())
}

/// ZCARD key
pub(super) fn zcard(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    call.reply.len(sorted_of(entry)?.map_or(0, |sorted| sorted.len()));
    Ok(())
}

/// ZSCORE key member
pub(super) fn zscore(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let sorted = sorted_of(entry)?;
    reply_score(call, sorted.as_ref(), 2);
    Ok(())
}

/// ZMSCORE key member [member ...]
pub(super) fn zmscore(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let sorted = sorted_of(entry)?;
    call.reply.array(call.args.len() - 2);
    (2..call.args.len()).for_each(|at| reply_score(call, sorted.as_ref(), at));
    Ok(())
}

fn reply_score(call: &mut Call<'_, '_>, sorted: Option<&Sorted<'_>>, at: usize) {
    match sorted.and_then(|sorted| sorted.score(call.args.get(at))) {
        Some(score) => call.reply.double(score),
        None => call.reply.null(),
    }
}

/// ZRANK key member [WITHSCORE]
pub(super) fn zrank(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    rank(call, entry, false)
}

/// ZREVRANK key member [WITHSCORE]
pub(super) fn zrevrank(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    rank(call, entry, true)
}

fn rank(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>, from_end: bool) -> Outcome {
    let with_score = match call.args.len() {
        3 => false,
        4 if is(call.args.get(3), "WITHSCORE") => true,
        4 => return Err(CommandError::Syntax),
        _ => return Err(CommandError::Arity(if from_end { "zrevrank" } else { "zrank" })),
    };
    let sorted = sorted_of(entry)?;
    let member = call.args.get(2);
    let rank = sorted.as_ref().and_then(|sorted| {
        let rank = sorted.rank(member)?;
        Some(if from_end { sorted.len() - 1 - rank } else { rank })
    });
    match rank {
        Some(rank) if with_score => {
            call.reply.array(2);
            call.reply.len(rank);
            reply_score(call, sorted.as_ref(), 2);
        }
        Some(rank) => call.reply.len(rank),
        None if with_score => call.reply.null_array(),
        None => call.reply.null(),
    }
    Ok(())
}

/// ZPOPMIN key [count]
pub(super) fn zpopmin(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    pop_from(call, tx, false)
}

/// ZPOPMAX key [count]
pub(super) fn zpopmax(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    pop_from(call, tx, true)
}

/// ZPOPMIN of one member of a large sorted set.
pub(super) fn zpopmin_in_place(
    call: &mut Call<'_, '_>,
    store: &Store,
    place: Place,
) -> Option<bool> {
    pop_in_place(call, store, place, End::Front)
}

/// ZPOPMAX of one member of a large sorted set.
pub(super) fn zpopmax_in_place(
    call: &mut Call<'_, '_>,
    store: &Store,
    place: Place,
) -> Option<bool> {
    pop_in_place(call, store, place, End::Back)
}

fn pop_in_place(call: &mut Call<'_, '_>, store: &Store, place: Place, end: End) -> Option<bool> {
    if call.args.len() > 2 || store.is_heard(EventClass::SORTED) {
        return None;
    }
    let (key, reply) = (call.key(1), &mut *call.reply);
    store.sorted_pop_at(key, place, end, |name, score| reply_popped(reply, name, score))?;
    Some(true)
}

fn reply_popped(reply: &mut Reply<'_>, name: &[u8], score: f64) {
    reply.array(2);
    reply.bulk(name);
    reply.double(score);
}

fn pop_from(call: &mut Call<'_, '_>, tx: &mut Tx<'_>, max: bool) -> Outcome {
    if call.args.len() > 3 {
        return Err(CommandError::Syntax);
    }
    let counted = call.args.len() == 3;
    let count = if counted { positive(call.args.get(2), 0) } else { Some(1) };
    let count = count.ok_or(CommandError::NotPositive)?;
    if counted {
        let members = pop(tx, call.key(1), count, max)?;
        reply_members(call.reply, &members, true);
        return Ok(());
    }
    let (key, reply) = (call.key(1), &mut *call.reply);
    let taken = pop_each(tx, key, 1, max, &mut |name, score| reply_popped(reply, name, score))?;
    if taken == 0 {
        call.reply.array(0);
    }
    Ok(())
}

/// ZMPOP numkeys key [key ...] MIN | MAX [COUNT count]
pub(super) fn zmpop(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let pop = ManyPop::parse(call, 1)?;
    if !pop.take_first(call, tx)? {
        call.reply.null_array();
    }
    Ok(())
}

/// What ZMPOP and BZMPOP ask for.
pub(super) struct ManyPop {
    /// The arguments that are keys.
    pub keys: Range<usize>,
    max: bool,
    count: u64,
}

impl ManyPop {
    /// Reads the arguments from the number of keys, which is argument `count_at`, to the end.
    pub fn parse(call: &Call<'_, '_>, count_at: usize) -> Result<Self, CommandError> {
        let keys = counted_keys(call, count_at)?;
        let max = is(call.args.get(keys.end), "MAX");
        if !max && !is(call.args.get(keys.end), "MIN") {
            return Err(CommandError::Syntax);
        }
        let count = pop_count(call, keys.end + 1)?;
        Ok(Self { keys, max, count })
    }

    /// Pops from the first sorted set that there is; false if there is none.
    pub fn take_first(
        &self,
        call: &mut Call<'_, '_>,
        tx: &mut Tx<'_>,
    ) -> Result<bool, CommandError> {
        for at in self.keys.clone() {
            let members = pop(tx, call.key(at), self.count, self.max)?;
            if !members.is_empty() {
                call.reply.array(2);
                call.reply.bulk(call.args.get(at));
                call.reply.array(members.len());
                for (name, score) in &members {
                    call.reply.array(2);
                    call.reply.bulk(name);
                    call.reply.double(*score);
                }
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Takes out the members of the lowest, or highest, scores.
pub(super) fn pop(
    tx: &mut Tx<'_>,
    key: Key<'_>,
    count: u64,
    max: bool,
) -> Result<Members, CommandError> {
    let mut members = Members::new();
    pop_each(tx, key, count, max, &mut |name, score| members.push((name.to_vec(), score)))?;
    Ok(members)
}

/// Takes out members as [`pop`] does, and calls `f` with each before. Returns how many.
fn pop_each(
    tx: &mut Tx<'_>,
    key: Key<'_>,
    count: u64,
    max: bool,
    f: &mut dyn FnMut(&[u8], f64),
) -> Result<u64, CommandError> {
    let Some(sorted) = tx.sorted(key)? else { return Ok(0) };
    let len = sorted.len();
    let ranks = if max { len.saturating_sub(count)..len } else { 0..count.min(len) };
    sorted.for_each(ranks.clone(), max, f);
    let taken = tx.sorted_remove_ranks(key, ranks)?;
    if taken > 0 {
        tx.tell(EventClass::SORTED, if max { "zpopmax" } else { "zpopmin" }, key);
        tx.tell_if_gone(key);
    }
    Ok(taken)
}

/// ZSCAN key cursor [MATCH pattern] [COUNT count]
pub(super) fn zscan(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let from = cursor(call.args.get(2))?;
    let (mut found, mut next) = (Members::new(), 0);
    if let Some(sorted) = sorted_of(entry)? {
        let options = ScanOptions::parse(call, 3, false)?;
        next = sorted.scan(from, options.count, &mut |name, score| {
            if options.accepts(name) {
                found.push((name.to_vec(), score));
            }
        });
    }
    call.reply.array(2);
    call.reply.bulk(next.to_string().as_bytes());
    call.reply.array(found.len() * 2);
    for (name, score) in &found {
        call.reply.bulk(name);
        // A bulk string in RESP3, too.
        call.reply.bulk(format_double(*score).as_bytes());
    }
    Ok(())
}

/// More random members with repetition are refused: the reply would pass the output limit anyway.
const PICKS_MAX: u64 = 1 << 24;

/// ZRANDMEMBER key [count [WITHSCORES]]
pub(super) fn zrandmember(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    if call.args.len() == 2 {
        match sorted_of(entry)? {
            None => call.reply.null(),
            Some(sorted) => {
                let rank = call.random.below(sorted.len());
                let reply = &mut *call.reply;
                sorted.for_each(rank..rank + 1, false, &mut |name, _| reply.bulk(name));
            }
        }
        return Ok(());
    }
    let with_scores = call.args.len() > 3;
    let count = call.int(2)?;
    if count == i64::MIN {
        return Err(CommandError::OutOfBounds { min: -i64::MAX, max: i64::MAX });
    }
    if call.args.len() > 4 || (with_scores && !is(call.args.get(3), "WITHSCORES")) {
        return Err(CommandError::Syntax);
    }
    let bound = if with_scores { i64::MAX / 2 } else { i64::MAX };
    if count < -bound || count > bound || (count < 0 && count.unsigned_abs() > PICKS_MAX) {
        return Err(CommandError::OutOfRange);
    }
    let Some(sorted) = sorted_of(entry)? else {
        call.reply.array(0);
        return Ok(());
    };
    let ranks = choose(call.random, sorted.len(), count);
    let mut list = List::begin(call.reply, ranks.len() as u64, with_scores);
    for rank in ranks {
        sorted.for_each(rank..rank + 1, false, &mut |name, score| list.push(name, score));
    }
    Ok(())
}

/// Draws ranks: distinct ones for a positive count, any for a negative one.
fn choose(random: &Random, len: u64, count: i64) -> Vec<u64> {
    if count < 0 {
        return (0..count.unsigned_abs()).map(|_| random.below(len)).collect();
    }
    let count = (count as u64).min(len);
    // Few of many: drawn until there are enough.
    if count < len / 3 {
        let mut drawn = BTreeSet::new();
        let fresh = std::iter::repeat_with(|| random.below(len)).filter(|rank| drawn.insert(*rank));
        return fresh.take(count as usize).collect();
    }
    // The first `count` steps of a shuffle.
    let mut all: Vec<u64> = (0..len).collect();
    for at in 0..count {
        let other = at + random.below(len - at);
        all.swap(at as usize, other as usize);
    }
    all.truncate(count as usize);
    all
}
