//! SORT and SORT_RO: the elements of a list, a set or a sorted set in another order.
//!
//! Patterns name keys by the elements, so these are known only while the command runs: with a
//! pattern every shard is held, without one only those of the command's own keys
//! ([`names_others`]).

use std::cmp::Ordering;

use perdura_store::{EventClass, Expiry, Key, Kind, Tx};

use super::call::{Call, Outcome};
use super::error::CommandError;
use super::options::is;
use crate::number::parse_double;
use crate::resp::Args;

/// SORT key [BY pattern] [LIMIT offset count] [GET pattern ...] [ASC | DESC] [ALPHA]
/// [STORE destination]
pub(super) fn sort(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    answer(call, tx, true)
}

/// SORT_RO, with all of SORT's options but STORE
pub(super) fn sort_ro(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    answer(call, tx, false)
}

/// Whether a SORT names keys by a pattern. A GET of the element itself names none, and a BY without
/// a star means that nothing is sorted.
pub(super) fn names_others(args: Args<'_>) -> bool {
    let mut at = 2;
    while at < args.len() {
        let pattern = args.from(1).nth(at);
        at += match pattern {
            Some(pattern) if is(args.get(at), "BY") || is(args.get(at), "GET") => {
                if pattern.contains(&b'*') {
                    return true;
                }
                2
            }
            Some(_) if is(args.get(at), "STORE") => 2,
            Some(_) if is(args.get(at), "LIMIT") => 3,
            _ => 1,
        };
    }
    false
}

/// Where SORT's destination is among its arguments: the last STORE counts.
pub(super) fn destination(args: Args<'_>) -> Option<usize> {
    let (mut at, mut found) = (2, None);
    while at < args.len() {
        let behind = args.len() - at - 1;
        at += match args.get(at) {
            word if is(word, "LIMIT") && behind >= 2 => 3,
            word if (is(word, "BY") || is(word, "GET")) && behind >= 1 => 2,
            word if is(word, "STORE") && behind >= 1 => {
                found = Some(at + 1);
                2
            }
            _ => 1,
        };
    }
    found
}

struct Options<'a> {
    by: Option<&'a [u8]>,
    is_sorted: bool,
    gets: Vec<&'a [u8]>,
    limit: (i64, i64),
    is_down: bool,
    is_alpha: bool,
    store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(call: &Call<'a, '_>, may_store: bool) -> Result<Self, CommandError> {
        let mut options = Self {
            by: None,
            is_sorted: true,
            gets: Vec::new(),
            limit: (0, -1),
            is_down: false,
            is_alpha: false,
            store: None,
        };
        let mut at = 2;
        while at < call.args.len() {
            let (word, behind) = (call.args.get(at), call.args.len() - at - 1);
            let next = call.args.get(at + 1);
            if is(word, "ASC") {
                options.is_down = false;
            } else if is(word, "DESC") {
                options.is_down = true;
            } else if is(word, "ALPHA") {
                options.is_alpha = true;
            } else if is(word, "LIMIT") && behind >= 2 {
                options.limit = (call.int(at + 1)?, call.int(at + 2)?);
                at += 2;
            } else if may_store && is(word, "STORE") && behind >= 1 {
                options.store = Some(next);
                at += 1;
            } else if is(word, "BY") && behind >= 1 {
                options.by = Some(next);
                // One pattern without a star switches sorting off for good.
                options.is_sorted &= next.contains(&b'*');
                at += 1;
            } else if is(word, "GET") && behind >= 1 {
                options.gets.push(next);
                at += 1;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }

    /// The elements wanted of so many.
    fn range(&self, len: usize) -> std::ops::Range<usize> {
        let inside = |number: i64| usize::try_from(number).unwrap_or(0).min(len);
        let from = inside(self.limit.0);
        let end = match self.limit.1 {
            ..0 => len,
            count => from.saturating_add(inside(count)).min(len),
        };
        from..end
    }
}

fn answer(call: &mut Call<'_, '_>, tx: &mut Tx<'_>, may_store: bool) -> Outcome {
    let mut options = Options::parse(call, may_store)?;
    let key = call.key(1);
    let kind = tx.get(key).map(|entry| entry.kind);
    if !matches!(kind, None | Some(Kind::List | Kind::Set | Kind::Sorted)) {
        return Err(CommandError::WrongType);
    }
    let is_kept = options.store.is_some() || call.in_script;
    if !options.is_sorted && kind == Some(Kind::Set) && is_kept {
        // A set has no order of its own: what is stored, or what a script makes of it, must not
        // depend on chance.
        (options.is_sorted, options.is_alpha, options.by) = (true, true, None);
    }
    let elements = match options.is_sorted {
        true => sorted(&options, tx, call.db, elements(tx, key, false)?)?,
        false => elements(tx, key, options.is_down)?,
    };
    let wanted = &elements[options.range(elements.len())];
    let count = wanted.len() * options.gets.len().max(1);
    let Some(to) = options.store else {
        call.reply.array(count);
        for element in wanted {
            if options.gets.is_empty() {
                call.reply.bulk(element);
            }
            for pattern in &options.gets {
                let value = by_pattern(tx, call.db, pattern, element)?;
                call.reply.bulk_or_null(value.as_deref());
            }
        }
        return Ok(());
    };
    let mut stored = Vec::with_capacity(count);
    for element in wanted {
        if options.gets.is_empty() {
            stored.push(element.clone());
        }
        for pattern in &options.gets {
            stored.push(by_pattern(tx, call.db, pattern, element)?.unwrap_or_default());
        }
    }
    let to = Key { db: call.db, bytes: to };
    let was_there = tx.was_there(to);
    tx.list_put(to, stored.iter().map(Vec::as_slice), Expiry::None)?;
    tx.tell_stored(EventClass::LIST, "sortstore", to, was_there);
    call.reply.len(count as u64);
    Ok(())
}

/// The elements in the order that they have, from the last on if `is_down`.
fn elements(tx: &Tx<'_>, key: Key<'_>, is_down: bool) -> Result<Vec<Vec<u8>>, CommandError> {
    let mut all = Vec::new();
    let Some(entry) = tx.get(key) else { return Ok(all) };
    if let Some(list) = entry.list() {
        list.for_each(0..u64::MAX, is_down, &mut |element| all.push(element.to_vec()));
    } else if let Some(set) = entry.set() {
        set.for_each(&mut |member| all.push(member.to_vec()));
    } else if let Some(sorted) = entry.sorted() {
        sorted.for_each(0..u64::MAX, is_down, &mut |name, _| all.push(name.to_vec()));
    }
    Ok(all)
}

/// Sorts elements by their numbers, or by text.
fn sorted(
    options: &Options<'_>,
    tx: &Tx<'_>,
    db: u8,
    elements: Vec<Vec<u8>>,
) -> Result<Vec<Vec<u8>>, CommandError> {
    let down = |order: Ordering| if options.is_down { order.reverse() } else { order };
    let weight = |element: &Vec<u8>| match options.by {
        Some(pattern) => by_pattern(tx, db, pattern, element),
        None => Ok(Some(element.clone())),
    };
    if options.is_alpha {
        if options.by.is_none() {
            let mut elements = elements;
            elements.sort_unstable_by(|a, b| down(a.cmp(b)));
            return Ok(elements);
        }
        let weighed: Result<Vec<_>, CommandError> =
            elements.into_iter().map(|element| Ok((weight(&element)?, element))).collect();
        let mut weighed = weighed?;
        // An element without a weight comes first; two alike stay as they were.
        weighed.sort_by(|a, b| down(a.0.cmp(&b.0)));
        return Ok(weighed.into_iter().map(|(_, element)| element).collect());
    }
    let mut weighed = Vec::with_capacity(elements.len());
    for element in elements {
        let text = weight(&element)?;
        let score = text.map_or(Some(0.0), |text| score(&text)).ok_or(CommandError::SortScore)?;
        weighed.push((score, element));
    }
    let order = |a: &(f64, Vec<u8>), b: &(f64, Vec<u8>)| {
        let by_score = a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal);
        down(by_score.then_with(|| a.1.cmp(&b.1)))
    };
    weighed.sort_unstable_by(order);
    Ok(weighed.into_iter().map(|(_, element)| element).collect())
}

/// Reads a number as `strtod` does: blanks may stand before it, and no text at all is 0.
fn score(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    match text {
        [] => Some(0.0),
        text => parse_double(text.trim_ascii_start()),
    }
}

/// The value that a pattern names for an element: of a key, or behind `->` of a field of a hash, in
/// whose name the first star stands for the element. `#` is the element itself.
fn by_pattern(
    tx: &Tx<'_>,
    db: u8,
    pattern: &[u8],
    element: &[u8],
) -> Result<Option<Vec<u8>>, CommandError> {
    if pattern == b"#" {
        return Ok(Some(element.to_vec()));
    }
    let Some(star) = pattern.iter().position(|byte| *byte == b'*') else { return Ok(None) };
    let (before, behind) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = behind.windows(2).position(|two| two == b"->");
    let arrow = arrow.filter(|at| at + 2 < behind.len());
    let bytes = [before, element, &behind[..arrow.unwrap_or(behind.len())]].concat();
    let key = Key { db, bytes: &bytes };
    let Some(entry) = tx.get(key) else { return Ok(None) };
    match arrow {
        Some(at) if entry.kind == Kind::Hash => {
            Ok(tx.hash_get(key, &behind[at + 2..])?.map(<[u8]>::to_vec))
        }
        Some(_) => Ok(None),
        None => Ok(entry.string().map(<[u8]>::to_vec)),
    }
}
