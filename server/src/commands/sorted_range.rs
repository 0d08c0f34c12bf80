//! Sorted sets: ranges by rank, by score, by name.
//!
//! Every range is first turned into ranks, which takes two searches of the tree for a range of any
//! length.

use std::ops::Range;

use perdura_store::{Edge, Entry, EventClass, Expiry, Sorted, Tx};

use super::call::{Call, Outcome};
use super::error::CommandError;
use super::options::is;
use super::sorted::{List, Members, sorted_of};
use super::steps::Step;
use crate::number::parse_bound;

/// The kind of a range's ends: ranks, scores or names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// A range as it was asked for.
enum Span<'a> {
    Rank(i64, i64),
    /// A range of names: each end, and whether it is excluded.
    Score([(f64, bool); 2]),
    Lex([LexEnd<'a>; 2]),
}

#[derive(Clone, Copy)]
enum LexEnd<'a> {
    First,
    Last,
    Name(&'a [u8], bool),
}

impl<'a> Span<'a> {
    fn parse(by: By, call: &Call<'a, '_>, min: usize, max: usize) -> Result<Self, CommandError> {
        let ends = [call.args.get(min), call.args.get(max)];
        match by {
            By::Rank => Ok(Self::Rank(call.int(min)?, call.int(max)?)),
            By::Score => {
                let [min, max] = ends.map(score_end);
                min.zip(max)
                    .map(|(min, max)| Self::Score([min, max]))
                    .ok_or(CommandError::ScoreRange)
            }
            By::Lex => {
                let [min, max] = ends.map(lex_end);
                min.zip(max).map(|(min, max)| Self::Lex([min, max])).ok_or(CommandError::LexRange)
            }
        }
    }

    /// The ranks that the range spans. A range by rank is counted from the other end if `down`.
    fn ranks(&self, sorted: &Sorted<'_>, down: bool) -> Range<u64> {
        match *self {
            Self::Rank(start, end) => {
                let ranks = ranks_between(start, end, sorted.len());
                if !down {
                    return ranks;
                }
                let len = sorted.len();
                len - ranks.end..len - ranks.start
            }
            Self::Score([(min, min_excluded), (max, max_excluded)]) => {
                let start = Edge::Score { score: min, after: min_excluded };
                let end = Edge::Score { score: max, after: !max_excluded };
                if min > max {
                    return 0..0;
                }
                between(sorted, Some(&start), Some(&end))
            }
            Self::Lex([min, max]) => {
                let start = match min {
                    LexEnd::First => None,
                    LexEnd::Last => return 0..0,
                    LexEnd::Name(member, excluded) => {
                        Some(Edge::Member { member, after: excluded })
                    }
                };
                let end = match max {
                    LexEnd::First => return 0..0,
                    LexEnd::Last => None,
                    LexEnd::Name(member, excluded) => {
                        Some(Edge::Member { member, after: !excluded })
                    }
                };
                between(sorted, start.as_ref(), end.as_ref())
            }
        }
    }
}

fn between(sorted: &Sorted<'_>, start: Option<&Edge<'_>>, end: Option<&Edge<'_>>) -> Range<u64> {
    let start = start.map_or(0, |edge| sorted.members_before(edge));
    let end = end.map_or_else(|| sorted.len(), |edge| sorted.members_before(edge));
    start..end.max(start)
}

/// Turns the first and last rank of a range, negative ones counted from the end, into ranks.
fn ranks_between(start: i64, end: i64, len: u64) -> Range<u64> {
    let len = len as i64;
    let from_end = |rank: i64| if rank < 0 { len.saturating_add(rank) } else { rank };
    let (start, end) = (from_end(start).max(0), from_end(end).min(len - 1));
    if start > end { 0..0 } else { start as u64..end as u64 + 1 }
}

fn score_end(arg: &[u8]) -> Option<(f64, bool)> {
    match arg.strip_prefix(b"(") {
        Some(rest) => Some((parse_bound(rest)?, true)),
        None => Some((parse_bound(arg)?, false)),
    }
}

fn lex_end(arg: &[u8]) -> Option<LexEnd<'_>> {
    match arg {
        b"-" => Some(LexEnd::First),
        b"+" => Some(LexEnd::Last),
        [b'[', name @ ..] => Some(LexEnd::Name(name, false)),
        [b'(', name @ ..] => Some(LexEnd::Name(name, true)),
        _ => None,
    }
}

/// ZCOUNT key min max
pub(super) fn zcount(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    count(call, entry, By::Score)
}

/// ZLEXCOUNT key min max
pub(super) fn zlexcount(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    count(call, entry, By::Lex)
}

fn count(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>, by: By) -> Outcome {
    let span = Span::parse(by, call, 2, 3)?;
    let ranks = sorted_of(entry)?.map_or(0..0, |sorted| span.ranks(&sorted, false));
    call.reply.len(ranks.end - ranks.start);
    Ok(())
}

/// A query of the ZRANGE family.
struct Query<'a> {
    span: Span<'a>,
    down: bool,
    offset: i64,
    limit: i64,
    with_scores: bool,
}

impl<'a> Query<'a> {
    /// Reads a query whose key is argument `at`, with the ends behind it. Options say what the
    /// command's name leaves open.
    fn parse(
        call: &Call<'a, '_>,
        at: usize,
        (mut by, mut down): (Option<By>, Option<bool>),
        stores: bool,
    ) -> Result<Self, CommandError> {
        let (mut offset, mut limit, mut with_scores) = (0, -1, false);
        let mut next = at + 3;
        while next < call.args.len() {
            let arg = call.args.get(next);
            if !stores && is(arg, "WITHSCORES") {
                with_scores = true;
            } else if is(arg, "LIMIT") && next + 2 < call.args.len() {
                (offset, limit) = (call.int(next + 1)?, call.int(next + 2)?);
                next += 2;
            } else if down.is_none() && is(arg, "REV") {
                down = Some(true);
            } else if by.is_none() && is(arg, "BYLEX") {
                by = Some(By::Lex);
            } else if by.is_none() && is(arg, "BYSCORE") {
                by = Some(By::Score);
            } else {
                return Err(CommandError::Syntax);
            }
            next += 1;
        }
        let (by, down) = (by.unwrap_or(By::Rank), down.unwrap_or(false));
        if by == By::Rank {
            if limit != -1 {
                return Err(CommandError::LimitByRank);
            }
            // As in Redis, a LIMIT without a count is ignored.
            offset = 0;
        }
        if with_scores && by == By::Lex {
            return Err(CommandError::ScoresByLex);
        }
        // A reversed range names its higher end first; ranks are counted from the other end anyway.
        let is_swapped = down && by != By::Rank;
        let (min, max) = if is_swapped { (at + 2, at + 1) } else { (at + 1, at + 2) };
        let span = Span::parse(by, call, min, max)?;
        Ok(Self { span, down, offset, limit, with_scores })
    }

    /// The ranks that are left by LIMIT, of which the first in the query's direction are skipped.
    fn ranks(&self, sorted: &Sorted<'_>) -> Range<u64> {
        let Range { start, end } = self.span.ranks(sorted, self.down);
        let Ok(offset) = u64::try_from(self.offset) else { return 0..0 };
        let skipped = offset.min(end - start);
        let left = end - start - skipped;
        let taken = u64::try_from(self.limit).map_or(left, |limit| limit.min(left));
        if self.down {
            end - skipped - taken..end - skipped
        } else {
            start + skipped..start + skipped + taken
        }
    }
}

/// ZRANGE key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]
pub(super) fn zrange(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    range(call, entry, (None, None))
}

/// ZREVRANGE key start stop [WITHSCORES]
pub(super) fn zrevrange(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    range(call, entry, (Some(By::Rank), Some(true)))
}

/// ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]
pub(super) fn zrangebyscore(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    range(call, entry, (Some(By::Score), Some(false)))
}

/// ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]
pub(super) fn zrevrangebyscore(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    range(call, entry, (Some(By::Score), Some(true)))
}

/// ZRANGEBYLEX key min max [LIMIT offset count]
pub(super) fn zrangebylex(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    range(call, entry, (Some(By::Lex), Some(false)))
}

/// ZREVRANGEBYLEX key max min [LIMIT offset count]
pub(super) fn zrevrangebylex(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    range(call, entry, (Some(By::Lex), Some(true)))
}

fn range(
    call: &mut Call<'_, '_>,
    entry: Option<&Entry<'_>>,
    known: (Option<By>, Option<bool>),
) -> Outcome {
    let query = Query::parse(call, 1, known, false)?;
    let Some(sorted) = sorted_of(entry)? else {
        call.reply.array(0);
        return Ok(());
    };
    let ranks = query.ranks(&sorted);
    let mut list = List::begin(call.reply, ranks.end - ranks.start, query.with_scores);
    sorted.for_each(ranks, query.down, &mut |name, score| list.push(name, score));
    Ok(())
}

/// ZRANGESTORE dst src min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]
pub(super) fn zrangestore(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let query = Query::parse(call, 2, (None, None), true)?;
    let mut members = Members::new();
    if let Some(sorted) = tx.sorted(call.key(2))? {
        let ranks = query.ranks(&sorted);
        sorted.for_each(ranks, false, &mut |name, score| members.push((name.to_vec(), score)));
    }
    let (to, was_there) = (call.key(1), tx.was_there(call.key(1)));
    tx.sorted_put(to, &members, Expiry::None)?;
    tx.tell_stored(EventClass::SORTED, "zrangestore", to, was_there);
    call.reply.len(members.len() as u64);
    Ok(())
}

/// ZREMRANGEBYRANK key start stop
pub(super) fn zremrangebyrank(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    remove(call, tx, By::Rank)
}

/// ZREMRANGEBYSCORE key min max
pub(super) fn zremrangebyscore(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    remove(call, tx, By::Score)
}

/// ZREMRANGEBYLEX key min max
pub(super) fn zremrangebylex(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    remove(call, tx, By::Lex)
}

fn remove(call: &mut Call<'_, '_>, tx: &mut Tx<'_>, by: By) -> Outcome {
    let span = Span::parse(by, call, 2, 3)?;
    let key = call.key(1);
    // The steps before have made the set shorter: what is left of the range begins as far from the
    // front, and ends as far from the back.
    let done = call.steps.done as i64;
    let span = match span {
        Span::Rank(start, end) => Span::Rank(
            if start < 0 { start + done } else { start },
            if end < 0 { end } else { end - done },
        ),
        span => span,
    };
    let ranks = tx.sorted(key)?.map_or(0..0, |sorted| span.ranks(&sorted, false));
    let end = ranks.end.min(ranks.start.saturating_add(call.steps.most));
    let removed = tx.sorted_remove_ranks(key, ranks.start..end)?;
    if removed > 0 {
        let event = match by {
            By::Rank => "zremrangebyrank",
            By::Score => "zremrangebyscore",
            By::Lex => "zremrangebylex",
        };
        tx.tell(EventClass::SORTED, event, key);
        tx.tell_if_gone(key);
    }
    call.steps.now = Step { done: removed, is_more: end < ranks.end, ..Step::default() };
    call.reply.len(call.steps.done + removed);
    Ok(())
}
