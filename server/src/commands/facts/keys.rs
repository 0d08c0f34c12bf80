//! Finds the keys among a command's arguments, and what the command does with each.

use super::access::{ACCESS, DELETE, INCOMPLETE, NOT_KEY, OW, RO, RW, UPDATE, VARIABLE_FLAGS};
use super::{Begin, Facts, Find, KeySpec};
use crate::number::parse_i64;
use crate::resp::Args;

/// A key of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyAt {
    /// Its place among the arguments.
    pub at: usize,
    /// What is done with it, as bits of `access`.
    pub access: u16,
}

/// The keys of a command. None if the arguments make no sense: the command will say so itself.
pub(crate) fn keys_of(facts: &Facts, args: Args<'_>) -> Option<Vec<KeyAt>> {
    let is_variable = facts.keys.iter().any(|spec| spec.access & VARIABLE_FLAGS != 0);
    if !is_variable && let Some(found) = by_specs(facts, args) {
        return Some(found);
    }
    match facts.name {
        "set" => Some(vec![KeyAt { at: 1, access: of_set(args) }]),
        "bitfield" => Some(vec![KeyAt { at: 1, access: of_bitfield(args) }]),
        "sort" => Some(of_sort(args)),
        "sort_ro" => Some(vec![KeyAt { at: 1, access: RO | ACCESS }]),
        "migrate" => Some(of_migrate(args)),
        "georadius" | "georadiusbymember" => Some(of_georadius(args)),
        _ => None,
    }
}

fn by_specs(facts: &Facts, args: Args<'_>) -> Option<Vec<KeyAt>> {
    let mut found = Vec::new();
    let len = args.len() as i32;
    for spec in facts.keys.iter().filter(|spec| spec.access & NOT_KEY == 0) {
        let begin = match spec.begin {
            Begin::Index(at) => at,
            Begin::Keyword(word, from) => match behind(word, from, args) {
                Some(at) => at,
                None => continue,
            },
            Begin::Unknown => return None,
        };
        let (first, last, step) = match spec.find {
            Find::Range { last, step, limit } => {
                let last = match (last, limit) {
                    (0.., _) => begin + last,
                    (_, 0) => len + last,
                    _ => begin + (len - begin) / limit + last,
                };
                (begin, last, step)
            }
            Find::Counted { count_at, first } => {
                let at = usize::try_from(begin + count_at).ok().filter(|at| *at < args.len())?;
                let count = parse_i64(args.get(at)).filter(|count| *count >= 0)?;
                let first = begin + first;
                (first, i32::try_from(count).ok()?.checked_add(first - 1)?, 1)
            }
            Find::Unknown => return None,
        };
        if last >= len || last < first || first >= len {
            return None;
        }
        let indices = (first..=last).step_by(step.max(1) as usize);
        found.extend(indices.map(|at| KeyAt { at: at as usize, access: spec.access }));
        if spec.access & INCOMPLETE != 0 {
            return None;
        }
    }
    Some(found)
}

/// The argument behind a word that is looked for from argument `from` on.
fn behind(word: &str, from: i32, args: Args<'_>) -> Option<i32> {
    let is_word = |at: &usize| args.get(*at).eq_ignore_ascii_case(word.as_bytes());
    let at = if from > 0 {
        (from as usize..args.len()).find(is_word)
    } else {
        let from = args.len().saturating_sub(from.unsigned_abs() as usize);
        (2..=from).rev().find(is_word)
    };
    Some(at? as i32 + 1)
}

fn is(args: Args<'_>, at: usize, word: &str) -> bool {
    args.get(at).eq_ignore_ascii_case(word.as_bytes())
}

fn of_set(args: Args<'_>) -> u16 {
    let gets = (3..args.len()).any(|at| is(args, at, "get"));
    if gets { RW | ACCESS | UPDATE } else { OW | UPDATE }
}

fn of_bitfield(args: Args<'_>) -> u16 {
    let mut at = 2;
    while at < args.len() {
        let left = args.len() - at - 1;
        at += match () {
            () if is(args, at, "get") && left >= 2 => 3,
            () if is(args, at, "overflow") && left >= 1 => 2,
            () => return RW | ACCESS | UPDATE,
        };
    }
    RO | ACCESS
}

/// The key that is sorted, and that behind the last STORE.
fn of_sort(args: Args<'_>) -> Vec<KeyAt> {
    let mut store = None;
    let mut at = 2;
    while at < args.len() {
        if is(args, at, "limit") {
            at += 2;
        } else if is(args, at, "get") || is(args, at, "by") {
            at += 1;
        } else if is(args, at, "store") && at + 1 < args.len() {
            store = Some(KeyAt { at: at + 1, access: OW | UPDATE });
        }
        at += 1;
    }
    [KeyAt { at: 1, access: RO | ACCESS }].into_iter().chain(store).collect()
}

/// The places, and the key behind the last STORE or STOREDIST that has one.
fn of_georadius(args: Args<'_>) -> Vec<KeyAt> {
    let mut store = None;
    let mut at = 5;
    while at + 1 < args.len() {
        if is(args, at, "store") || is(args, at, "storedist") {
            at += 1;
            store = Some(KeyAt { at, access: OW | UPDATE });
        }
        at += 1;
    }
    [KeyAt { at: 1, access: RO | ACCESS }].into_iter().chain(store).collect()
}

/// The key in its place, or those behind KEYS if that is empty.
fn of_migrate(args: Args<'_>) -> Vec<KeyAt> {
    let mut indices = 3..4;
    let mut at = 6;
    while at < args.len() {
        if is(args, at, "keys") {
            indices = if args.get(3).is_empty() { at + 1..args.len() } else { 0..0 };
            break;
        }
        at += match () {
            () if is(args, at, "auth") => 2,
            () if is(args, at, "auth2") => 3,
            () => 1,
        };
    }
    indices.map(|at| KeyAt { at, access: RW | ACCESS | DELETE }).collect()
}

/// First key, last key and step of those keys that form one range, and whether there may be others.
pub(super) const fn plain_range(keys: &[KeySpec]) -> ((i32, i32, i32), bool) {
    if keys.is_empty() {
        return ((0, 0, 0), false);
    }
    if let [KeySpec { begin: Begin::Index(at), find: Find::Range { last, step, .. }, access }] =
        keys
    {
        let last = if *last < 0 { *last } else { *at + *last };
        return ((*at, last, *step), *access & INCOMPLETE != 0);
    }
    let (mut first, mut last, mut is_movable, mut at) = (0, 0, false, 0);
    while at < keys.len() {
        let spec = &keys[at];
        at += 1;
        let (Begin::Index(begin), Find::Range { last: end, step: 1, .. }) = (spec.begin, spec.find)
        else {
            is_movable = true;
            continue;
        };
        if last != 0 && last != begin - 1 {
            is_movable = true;
            continue;
        }
        is_movable |= spec.access & INCOMPLETE != 0;
        if first == 0 || begin < first {
            first = begin;
        }
        last = if end < 0 { end } else { begin + end };
    }
    if first == 0 { ((0, 0, 0), true) } else { ((first, last, 1), is_movable) }
}
