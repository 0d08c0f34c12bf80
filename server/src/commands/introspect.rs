//! COMMAND: shows the table of commands to clients.

use super::call::Outcome;
use super::context::Context;
use super::error::CommandError;
use super::facts::{Begin, Find, KeyAt, KeySpec, access, category, keys_of, shown};
use super::index::Index;
use super::options::is;
use super::spec::Spec;
use crate::resp::{Args, Reply};

/// COMMAND, COMMAND INFO [name ...]
pub(super) fn info(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    if args.len() <= 2 {
        let index = &ctx.server.index;
        ctx.reply.array(roots(index).count());
        roots(index).for_each(|row| describe(ctx.reply, index, row));
        return Ok(());
    }
    ctx.reply.array(args.len() - 2);
    for name in args.from(2) {
        match find(ctx, name) {
            Some(row) => describe(ctx.reply, &ctx.server.index, row),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

/// The rows of the commands that are no subcommands.
fn roots(index: &Index) -> impl Iterator<Item = usize> {
    let specs = index.specs().iter().enumerate();
    specs.filter(|(_, spec)| !spec.is_sub()).map(|(row, _)| row)
}

/// The rows of a container's subcommands.
fn subs(index: &Index, container: &Spec) -> impl Iterator<Item = usize> {
    let name = container.name;
    let is_sub = move |spec: &Spec| spec.name.split_once('|').is_some_and(|(of, _)| of == name);
    let specs = index.specs().iter().enumerate();
    specs.filter(move |(_, spec)| is_sub(spec)).map(|(row, _)| row)
}

/// Finds a command spelled `name` or `container|sub`.
fn find(ctx: &Context<'_, '_, '_>, name: &[u8]) -> Option<usize> {
    let found = match name.iter().position(|b| *b == b'|') {
        Some(at) => ctx.server.index.find(&name[..at], Some(&name[at + 1..])),
        None => ctx.server.index.find(name, None),
    };
    found.map(|(row, _)| row)
}

fn describe(reply: &mut Reply<'_>, index: &Index, row: usize) {
    let (spec, facts) = (index.specs()[row], index.facts(row));
    reply.array(10);
    reply.bulk(spec.name.as_bytes());
    reply.int(i64::from(spec.arity));
    write_bits(reply, facts.flags, &shown::NAMES, "");
    let (first, last, step) = facts.range;
    [first, last, step].iter().for_each(|position| reply.int(i64::from(*position)));
    write_bits(reply, facts.categories, &category::NAMES, "@");
    reply.array(facts.tips.len());
    facts.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    reply.array(facts.keys.len());
    facts.keys.iter().for_each(|spec| describe_keys(reply, *spec));
    let subs: Vec<usize> = subs(index, spec).collect();
    reply.array(subs.len());
    subs.iter().for_each(|sub| describe(reply, index, *sub));
}

/// Writes the names of the bits that are set.
fn write_bits(reply: &mut Reply<'_>, bits: u32, names: &[&str], before: &str) {
    reply.set(bits.count_ones() as usize);
    for (_, name) in names.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 != 0) {
        reply.simple(&format!("{before}{name}"));
    }
}

/// Writes where some keys of a command are.
fn describe_keys(reply: &mut Reply<'_>, spec: KeySpec) {
    reply.map(3);
    reply.bulk(b"flags");
    write_bits(reply, u32::from(spec.access), &access::NAMES, "");
    reply.bulk(b"begin_search");
    match spec.begin {
        Begin::Index(at) => describe_part(reply, "index", &[("index", Ok(at))]),
        Begin::Keyword(word, from) => {
            describe_part(reply, "keyword", &[("keyword", Err(word)), ("startfrom", Ok(from))]);
        }
        Begin::Unknown => describe_part(reply, "unknown", &[]),
    }
    reply.bulk(b"find_keys");
    match spec.find {
        Find::Range { last, step, limit } => {
            let facts = [("lastkey", Ok(last)), ("keystep", Ok(step)), ("limit", Ok(limit))];
            describe_part(reply, "range", &facts);
        }
        Find::Counted { count_at, first } => {
            let facts = [("keynumidx", Ok(count_at)), ("firstkey", Ok(first)), ("keystep", Ok(1))];
            describe_part(reply, "keynum", &facts);
        }
        Find::Unknown => describe_part(reply, "unknown", &[]),
    }
}

/// Writes one half of where keys are: its kind, and the numbers and words of it.
fn describe_part(reply: &mut Reply<'_>, kind: &str, facts: &[(&str, Result<i32, &str>)]) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(facts.len());
    for (name, value) in facts {
        reply.bulk(name.as_bytes());
        match value {
            Ok(number) => reply.int(i64::from(*number)),
            Err(word) => reply.bulk(word.as_bytes()),
        }
    }
}

/// COMMAND COUNT
pub(super) fn count(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.reply.len(roots(&ctx.server.index).count() as u64);
    Ok(())
}

/// COMMAND LIST [FILTERBY ACLCAT category | PATTERN pattern | MODULE name]
pub(super) fn list(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let (how, what) = (args.get(3), args.get(4));
    let filtered = args.len() == 5 && is(args.get(2), "FILTERBY");
    let index = &ctx.server.index;
    let wanted: Box<dyn Fn(usize) -> bool> = match args.len() {
        2 => Box::new(|_| true),
        _ if filtered && is(how, "PATTERN") => Box::new(|row| {
            crate::glob::matches_ignoring_case(what, index.specs()[row].name.as_bytes())
        }),
        _ if filtered && is(how, "ACLCAT") => {
            let bit = category::find(what).unwrap_or(0);
            Box::new(move |row| index.facts(row).categories & bit != 0)
        }
        _ if filtered && is(how, "MODULE") => Box::new(|_| false),
        _ => return Err(CommandError::Syntax),
    };
    let rows = (0..index.specs().len()).filter(|row| wanted(*row));
    let names: Vec<&str> = rows.map(|row| index.specs()[row].name).collect();
    ctx.reply.array(names.len());
    names.iter().for_each(|name| ctx.reply.bulk(name.as_bytes()));
    Ok(())
}

/// COMMAND DOCS [name ...]
pub(super) fn docs(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let index = &ctx.server.index;
    let rows: Vec<usize> = if args.len() == 2 {
        roots(index).collect()
    } else {
        args.from(2).filter_map(|name| find(ctx, name)).collect()
    };
    ctx.reply.map(rows.len());
    rows.iter().for_each(|row| document(ctx.reply, index, *row));
    Ok(())
}

fn document(reply: &mut Reply<'_>, index: &Index, row: usize) {
    let spec = index.specs()[row];
    reply.bulk(spec.name.as_bytes());
    let subs: Vec<usize> = subs(index, spec).collect();
    reply.map(3 + usize::from(!subs.is_empty()));
    let facts = [("summary", spec.summary), ("since", spec.since), ("group", spec.group.name())];
    for (name, value) in facts {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    if !subs.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(subs.len());
        subs.iter().for_each(|sub| document(reply, index, *sub));
    }
}

/// COMMAND GETKEYS command [argument ...]
pub(super) fn getkeys(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let inner = args.skip(2);
    let keys = keys(ctx, inner)?;
    ctx.reply.array(keys.len());
    keys.iter().for_each(|key| ctx.reply.bulk(inner.get(key.at)));
    Ok(())
}

/// COMMAND GETKEYSANDFLAGS command [argument ...]
pub(super) fn getkeysandflags(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let inner = args.skip(2);
    let keys = keys(ctx, inner)?;
    ctx.reply.array(keys.len());
    for key in keys {
        ctx.reply.array(2);
        ctx.reply.bulk(inner.get(key.at));
        write_bits(ctx.reply, u32::from(key.access), &access::NAMES, "");
    }
    Ok(())
}

/// The keys of a command that is an argument.
fn keys(ctx: &Context<'_, '_, '_>, inner: Args<'_>) -> Result<Vec<KeyAt>, CommandError> {
    let index = &ctx.server.index;
    let (row, _) = index.resolve(inner).map_err(|error| match error {
        CommandError::Arity(_) => CommandError::InvalidArity,
        _ => CommandError::InvalidCommand,
    })?;
    let facts = index.facts(row);
    let is_key = |spec: &KeySpec| spec.access & access::NOT_KEY == 0;
    if !facts.keys.iter().any(is_key) {
        return Err(CommandError::NoKeyArguments);
    }
    let keys = keys_of(facts, inner).unwrap_or_default();
    if keys.is_empty() && !facts.has(shown::NO_MANDATORY_KEYS) {
        return Err(CommandError::InvalidKeys);
    }
    Ok(keys)
}

/// COMMAND HELP
pub(super) fn command_help(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    help(ctx, "command");
    Ok(())
}

/// OBJECT HELP
pub(super) fn object_help(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    help(ctx, "object");
    Ok(())
}

/// Answers HELP of a container, made from the table.
pub(super) fn help(ctx: &mut Context<'_, '_, '_>, container: &str) {
    let Some((_, spec)) = ctx.server.index.find(container.as_bytes(), None) else { return };
    let upper = container.to_ascii_uppercase();
    let mut lines =
        vec![format!("{upper} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for sub in subs(&ctx.server.index, spec) {
        let sub = ctx.server.index.specs()[sub];
        lines.push(sub.short_name().to_ascii_uppercase());
        lines.push(format!("    {}.", sub.summary));
    }
    ctx.reply.array(lines.len());
    lines.iter().for_each(|line| ctx.reply.simple(line));
}
