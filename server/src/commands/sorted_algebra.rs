//! Sorted sets: unions, intersections, differences.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;

use perdura_store::{EventClass, Expiry, Kind, Set, Sorted, Tx};

use super::call::{Call, Outcome};
use super::error::CommandError;
use super::options::is;
use super::sorted::{Members, reply_members};
use crate::number::{parse_double, parse_i64};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Sum => number(a + b),
            Self::Min => {
                if b < a {
                    b
                } else {
                    a
                }
            }
            Self::Max => {
                if b > a {
                    b
                } else {
                    a
                }
            }
        }
    }
}

/// Adds scores; infinities that cancel each other make 0, as in Redis.
fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// Which options a command takes, and where its keys are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// ZUNION and the like.
    Reply,
    /// ZUNIONSTORE and the like: argument 1 is the key the result goes to.
    Store,
    /// Counts members instead of answering them: ZINTERCARD.
    Count,
}

/// One of the sets that the command combines.
struct Source<'t> {
    members: Option<Scored<'t>>,
    weight: f64,
}

/// Members with scores. Those of a set have the score 1.
#[derive(Clone, Copy)]
enum Scored<'t> {
    Sorted(Sorted<'t>),
    Set(Set<'t>),
}

impl Source<'_> {
    fn len(&self) -> u64 {
        match self.members {
            None => 0,
            Some(Scored::Sorted(sorted)) => sorted.len(),
            Some(Scored::Set(set)) => set.len(),
        }
    }

    /// Calls `f` with each member's weighed score.
    fn for_each(&self, f: &mut dyn FnMut(&[u8], f64)) {
        match self.members {
            None => {}
            Some(Scored::Sorted(sorted)) => {
                sorted.for_each(0..u64::MAX, false, &mut |name, score| {
                    f(name, number(self.weight * score));
                });
            }
            Some(Scored::Set(set)) => set.for_each(&mut |name| f(name, self.weight)),
        }
    }

    /// The weighed score of a member, which may be NaN.
    fn score(&self, member: &[u8]) -> Option<f64> {
        match self.members? {
            Scored::Sorted(sorted) => sorted.score(member).map(|score| score * self.weight),
            Scored::Set(set) => set.has(member).then_some(self.weight),
        }
    }
}

/// ZUNION numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]
pub(super) fn zunion(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    combine(call, tx, Operation::Union, Form::Reply, "zunion")
}

/// ZUNIONSTORE destination numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM | MIN | MAX]
pub(super) fn zunionstore(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    combine(call, tx, Operation::Union, Form::Store, "zunionstore")
}

/// ZINTER numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]
pub(super) fn zinter(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    combine(call, tx, Operation::Inter, Form::Reply, "zinter")
}

/// ZINTERSTORE destination numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM | MIN | MAX]
pub(super) fn zinterstore(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    combine(call, tx, Operation::Inter, Form::Store, "zinterstore")
}

/// ZINTERCARD numkeys key [key ...] [LIMIT limit]
pub(super) fn zintercard(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    combine(call, tx, Operation::Inter, Form::Count, "zintercard")
}

/// ZDIFF numkeys key [key ...] [WITHSCORES]
pub(super) fn zdiff(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    combine(call, tx, Operation::Diff, Form::Reply, "zdiff")
}

/// ZDIFFSTORE destination numkeys key [key ...]
pub(super) fn zdiffstore(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    combine(call, tx, Operation::Diff, Form::Store, "zdiffstore")
}

fn combine(
    call: &mut Call<'_, '_>,
    tx: &mut Tx<'_>,
    operation: Operation,
    form: Form,
    name: &'static str,
) -> Outcome {
    let keys = keys_of(call, form, name)?;
    let sources = keys.clone().map(|at| {
        let key = call.key(at);
        let is_set = tx.look(key).is_some_and(|entry| entry.kind == Kind::Set);
        let members = match is_set {
            true => tx.set(key)?.map(Scored::Set),
            false => tx.sorted(key)?.map(Scored::Sorted),
        };
        Ok::<_, CommandError>(Source { members, weight: 1.0 })
    });
    let mut sources = sources.collect::<Result<Vec<_>, _>>()?;
    let options = Options::parse(call, keys, operation, form, &mut sources)?;
    if operation != Operation::Diff {
        // The smallest set comes first, which is also the order in which Redis adds up scores.
        sources.sort_by_key(Source::len);
    }
    let members = match operation {
        Operation::Union => union(&sources, options.aggregate),
        Operation::Inter => inter(&sources, options.aggregate, options.limit),
        Operation::Diff => diff(&sources),
    };
    match form {
        Form::Count => call.reply.len(members.len() as u64),
        Form::Reply => {
            let mut members = members;
            // Scores are never NaN; 0 and -0 are the same.
            let order = |a: f64, b: f64| a.partial_cmp(&b).unwrap_or(Ordering::Equal);
            members.sort_by(|a, b| order(a.1, b.1).then_with(|| a.0.cmp(&b.0)));
            reply_members(call.reply, &members, options.with_scores);
        }
        Form::Store => {
            let (to, was_there) = (call.key(1), tx.was_there(call.key(1)));
            tx.sorted_put(to, &members, Expiry::None)?;
            tx.tell_stored(EventClass::SORTED, name, to, was_there);
            call.reply.len(members.len() as u64);
        }
    }
    Ok(())
}

/// Where the keys stand among the arguments.
fn keys_of(
    call: &Call<'_, '_>,
    form: Form,
    name: &'static str,
) -> Result<Range<usize>, CommandError> {
    let count_at = if form == Form::Store { 2 } else { 1 };
    let count = call.int(count_at)?;
    let count = u64::try_from(count).ok().filter(|count| *count > 0);
    let count = count.ok_or(CommandError::InputKeys(name))?;
    let first = count_at + 1;
    if count > (call.args.len() - first) as u64 {
        return Err(CommandError::Syntax);
    }
    Ok(first..first + count as usize)
}

struct Options {
    aggregate: Aggregate,
    with_scores: bool,
    /// The most members to count; 0: all.
    limit: u64,
}

impl Options {
    fn parse(
        call: &Call<'_, '_>,
        keys: Range<usize>,
        operation: Operation,
        form: Form,
        sources: &mut [Source<'_>],
    ) -> Result<Self, CommandError> {
        let mut options = Self { aggregate: Aggregate::Sum, with_scores: false, limit: 0 };
        let weighs = operation != Operation::Diff && form != Form::Count;
        let mut at = keys.end;
        while at < call.args.len() {
            let (arg, left) = (call.args.get(at), call.args.len() - at);
            at += 1;
            if weighs && left > sources.len() && is(arg, "WEIGHTS") {
                for source in sources.iter_mut() {
                    source.weight = parse_double(call.args.get(at)).ok_or(CommandError::Weight)?;
                    at += 1;
                }
            } else if weighs && left >= 2 && is(arg, "AGGREGATE") {
                options.aggregate = match call.args.get(at) {
                    how if is(how, "SUM") => Aggregate::Sum,
                    how if is(how, "MIN") => Aggregate::Min,
                    how if is(how, "MAX") => Aggregate::Max,
                    _ => return Err(CommandError::Syntax),
                };
                at += 1;
            } else if form == Form::Reply && is(arg, "WITHSCORES") {
                options.with_scores = true;
            } else if form == Form::Count && left >= 2 && is(arg, "LIMIT") {
                let limit = parse_i64(call.args.get(at)).and_then(|n| u64::try_from(n).ok());
                options.limit = limit.ok_or(CommandError::LimitNegative)?;
                at += 1;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(options)
    }
}

fn union(sources: &[Source<'_>], aggregate: Aggregate) -> Members {
    let mut scores: HashMap<Vec<u8>, f64> = HashMap::new();
    for source in sources {
        source.for_each(&mut |name, score| match scores.get_mut(name) {
            Some(sum) => *sum = aggregate.of(*sum, score),
            None => drop(scores.insert(name.to_vec(), score)),
        });
    }
    scores.into_iter().collect()
}

fn inter(sources: &[Source<'_>], aggregate: Aggregate, limit: u64) -> Members {
    let mut members = Members::new();
    let [first, others @ ..] = sources else { return members };
    first.for_each(&mut |name, score| {
        if limit > 0 && members.len() as u64 >= limit {
            return;
        }
        let sum = others
            .iter()
            .try_fold(score, |sum, other| other.score(name).map(|score| aggregate.of(sum, score)));
        members.extend(sum.map(|sum| (name.to_vec(), sum)));
    });
    members
}

fn diff(sources: &[Source<'_>]) -> Members {
    let mut members = Members::new();
    let [first, others @ ..] = sources else { return members };
    first.for_each(&mut |name, score| {
        if others.iter().all(|other| other.score(name).is_none()) {
            members.push((name.to_vec(), score));
        }
    });
    members
}
