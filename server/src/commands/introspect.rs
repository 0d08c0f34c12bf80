//! COMMAND: shows the table of commands to clients.

use super::call::Outcome;
use super::context::Context;
use super::error::CommandError;
use super::options::is;
use super::spec::{Group, Keys, Spec, flag};
use crate::resp::{Args, Reply};

/// COMMAND, COMMAND INFO [name ...]
pub(super) fn info(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    if args.len() <= 2 {
        let specs = ctx.server.index.specs();
        ctx.reply.array(roots(specs).count());
        roots(specs).for_each(|spec| describe(ctx.reply, specs, spec));
        return Ok(());
    }
    ctx.reply.array(args.len() - 2);
    for name in args.from(2) {
        match find(ctx, name) {
            Some(spec) => describe(ctx.reply, ctx.server.index.specs(), spec),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

fn roots(specs: &[&'static Spec]) -> impl Iterator<Item = &'static Spec> {
    specs.iter().copied().filter(|spec| !spec.is_sub())
}

fn subs(specs: &[&'static Spec], container: &Spec) -> impl Iterator<Item = &'static Spec> {
    let name = container.name;
    specs
        .iter()
        .copied()
        .filter(move |s| s.name.split_once('|').is_some_and(|(head, _)| head == name))
}

/// Finds a command spelled `name` or `container|sub`.
fn find(ctx: &Context<'_, '_, '_>, name: &[u8]) -> Option<&'static Spec> {
    let found = match name.iter().position(|b| *b == b'|') {
        Some(at) => ctx.server.index.find(&name[..at], Some(&name[at + 1..])),
        None => ctx.server.index.find(name, None),
    };
    found.map(|(_, spec)| spec)
}

fn describe(reply: &mut Reply<'_>, specs: &[&'static Spec], spec: &Spec) {
    reply.array(10);
    reply.bulk(spec.name.as_bytes());
    reply.int(i64::from(spec.arity));
    let flags: Vec<&str> =
        flag::SHOWN.iter().filter(|(bit, _)| spec.has(*bit)).map(|(_, name)| *name).collect();
    reply.set(flags.len());
    flags.iter().for_each(|name| reply.simple(name));
    for position in [spec.keys.first, spec.keys.last, spec.keys.step] {
        reply.int(i64::from(position));
    }
    let categories = categories(spec);
    reply.set(categories.len());
    categories.iter().for_each(|name| reply.simple(name));
    reply.array(0);
    key_specs(reply, spec);
    let subs: Vec<&Spec> = subs(specs, spec).collect();
    reply.array(subs.len());
    subs.iter().for_each(|sub| describe(reply, specs, sub));
}

fn categories(spec: &Spec) -> Vec<&'static str> {
    let mut found = Vec::new();
    if spec.has(flag::WRITE) {
        found.push("@write");
    }
    if spec.has(flag::READ) && !matches!(spec.group, Group::Connection) {
        found.push("@read");
    }
    found.extend(spec.group.category());
    if spec.has(flag::ADMIN) {
        found.push("@admin");
        found.push("@dangerous");
    }
    found.push(if spec.has(flag::FAST) { "@fast" } else { "@slow" });
    found
}

/// Writes a command's key specification: one range from a fixed index, which is all that the table
/// knows.
fn key_specs(reply: &mut Reply<'_>, spec: &Spec) {
    let Keys { first, last, step, .. } = spec.keys;
    if first == 0 {
        return reply.array(0);
    }
    reply.array(1);
    reply.map(3);
    reply.bulk(b"flags");
    let access: &[&str] = if spec.has(flag::WRITE) { &["RW", "UPDATE"] } else { &["RO", "ACCESS"] };
    reply.set(access.len());
    access.iter().for_each(|name| reply.simple(name));
    reply.bulk(b"begin_search");
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(b"index");
    reply.bulk(b"spec");
    reply.map(1);
    reply.bulk(b"index");
    reply.int(i64::from(first));
    reply.bulk(b"find_keys");
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(b"range");
    reply.bulk(b"spec");
    reply.map(3);
    reply.bulk(b"lastkey");
    reply.int(i64::from(if last < 0 { last } else { last - first }));
    reply.bulk(b"keystep");
    reply.int(i64::from(step));
    reply.bulk(b"limit");
    reply.int(0);
}

/// COMMAND COUNT
pub(super) fn count(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.reply.len(roots(ctx.server.index.specs()).count() as u64);
    Ok(())
}

/// COMMAND LIST [FILTERBY ACLCAT category | PATTERN pattern | MODULE name]
pub(super) fn list(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let (how, what) = (args.get(3), args.get(4));
    let filtered = args.len() == 5 && is(args.get(2), "FILTERBY");
    let wanted: Box<dyn Fn(&Spec) -> bool> = match args.len() {
        2 => Box::new(|spec| !spec.is_sub()),
        _ if filtered && is(how, "PATTERN") => {
            Box::new(|spec| crate::glob::matches_ignoring_case(what, spec.name.as_bytes()))
        }
        _ if filtered && is(how, "ACLCAT") => {
            Box::new(|spec| categories(spec).iter().any(|c| is(what, &c[1..])))
        }
        _ if filtered && is(how, "MODULE") => Box::new(|_| false),
        _ => return Err(CommandError::Syntax),
    };
    let names: Vec<&str> =
        ctx.server.index.specs().iter().filter(|s| wanted(s)).map(|s| s.name).collect();
    ctx.reply.array(names.len());
    names.iter().for_each(|name| ctx.reply.bulk(name.as_bytes()));
    Ok(())
}

/// COMMAND DOCS [name ...]
pub(super) fn docs(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let specs: Vec<&Spec> = if args.len() == 2 {
        roots(ctx.server.index.specs()).collect()
    } else {
        args.from(2).filter_map(|name| find(ctx, name)).collect()
    };
    ctx.reply.map(specs.len());
    let all = ctx.server.index.specs();
    specs.iter().for_each(|spec| document(ctx.reply, all, spec));
    Ok(())
}

fn document(reply: &mut Reply<'_>, specs: &[&'static Spec], spec: &Spec) {
    reply.bulk(spec.name.as_bytes());
    let subs: Vec<&Spec> = subs(specs, spec).collect();
    reply.map(3 + usize::from(!subs.is_empty()));
    let facts = [("summary", spec.summary), ("since", spec.since), ("group", spec.group.name())];
    for (name, value) in facts {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    if !subs.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(subs.len());
        subs.iter().for_each(|sub| document(reply, specs, sub));
    }
}

/// COMMAND GETKEYS command [argument ...]
pub(super) fn getkeys(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let inner = args.skip(2);
    let (_, spec) = ctx.server.index.resolve(inner).map_err(|error| match error {
        CommandError::Arity(_) => CommandError::InvalidArity,
        _ => CommandError::InvalidCommand,
    })?;
    if spec.keys.counted(inner).is_none() {
        return Err(CommandError::InvalidKeys);
    }
    let indices: Vec<usize> = spec.keys.indices(inner).collect();
    if indices.is_empty() {
        return Err(CommandError::NoKeyArguments);
    }
    ctx.reply.array(indices.len());
    indices.iter().for_each(|at| ctx.reply.bulk(inner.get(*at)));
    Ok(())
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
    for sub in subs(ctx.server.index.specs(), spec) {
        lines.push(sub.short_name().to_ascii_uppercase());
        lines.push(format!("    {}.", sub.summary));
    }
    ctx.reply.array(lines.len());
    lines.iter().for_each(|line| ctx.reply.simple(line));
}
