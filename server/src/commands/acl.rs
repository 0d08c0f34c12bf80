//! ACL: users, and what they may do.

use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;

use super::call::Outcome;
use super::context::Context;
use super::error::{CommandError, text};
use super::facts::category;
use super::options::is;
use crate::acl::{self, Selector, Users, is_name};
use crate::config::StartError;
use crate::number::parse_i64;
use crate::resp::{Args, Reply};
use crate::shared::Topic;

/// ACL SETUSER username [rule [rule ...]]
pub(super) fn setuser(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    if !is_name(args.get(2)) {
        return Err(CommandError::Acl(
            "Usernames can't contain spaces or null characters".to_owned(),
        ));
    }
    let rules: Vec<&[u8]> = args.from(3).collect();
    let all_channels = ctx.server.config.acl_all_channels;
    change(ctx, |users| users.with(args.get(2), &rules, all_channels).map_err(shown))?;
    ctx.reply.ok();
    Ok(())
}

fn shown(text: Vec<u8>) -> CommandError {
    CommandError::Acl(String::from_utf8_lossy(&text).into_owned())
}

/// Changes the users for all loops. It counts for this loop's next command, and for every command
/// that is sent after the reply.
fn change(
    ctx: &mut Context<'_, '_, '_>,
    f: impl FnOnce(&Users) -> Result<Users, CommandError>,
) -> Outcome {
    let shared = ctx.server.shared;
    let mut held = shared.users();
    let users = f(&held)?;
    let open = |error: StartError| CommandError::Acl(error.of_change());
    ctx.server.config.check_users(&users).map_err(open)?;
    shared.set_users(&mut held, users);
    kill_clients(ctx, &held);
    drop(held);
    // The loops may have clients that became one of these users meanwhile.
    shared.ring_all();
    ctx.server.take_config();
    // A client that has removed itself still gets the reply.
    if !super::permit::heed_users(ctx.server, ctx.session) {
        ctx.session.closing = true;
    }
    Ok(())
}

/// Kills the clients whose users are gone, and those that listen to what they may not hear any
/// more. Each loop looks for itself, too, for clients that become one of these users meanwhile.
fn kill_clients(ctx: &Context<'_, '_, '_>, users: &Users) {
    let (shared, own) = (ctx.server.shared, ctx.session.card.id);
    shared.kill(|card| card.id != own && card.user(users).is_none());
    let mut lost = BTreeSet::new();
    for topic in Topic::ALL {
        for (name, card) in shared.topics.all(topic) {
            let user = card.user(users);
            if user.is_some_and(|user| !user.may_listen(&name, topic == Topic::Pattern)) {
                lost.insert(card.id);
            }
        }
    }
    if !lost.is_empty() {
        shared.kill(|card| card.id != own && lost.contains(&card.id));
    }
}

/// ACL DELUSER username [username ...]
pub(super) fn deluser(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    if args.from(2).any(|name| name == b"default") {
        return Err(CommandError::Acl("The 'default' user cannot be removed".to_owned()));
    }
    let mut deleted = 0;
    change(ctx, |users| {
        let (left, count) = users.without(args.from(2));
        deleted = count;
        Ok(left)
    })?;
    ctx.reply.len(deleted as u64);
    Ok(())
}

/// ACL GETUSER username
pub(super) fn getuser(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let Some(user) = ctx.server.users.get(args.get(2)).cloned() else {
        ctx.reply.null();
        return Ok(());
    };
    let reply = &mut *ctx.reply;
    reply.map(6);
    reply.bulk(b"flags");
    let flags = user.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.passwords.len());
    user.passwords.iter().for_each(|hash| reply.bulk(hash.as_bytes()));
    let (own, more) = user.selectors.split_at(1);
    own.iter().for_each(|own| describe(reply, own));
    reply.bulk(b"selectors");
    reply.array(more.len());
    for selector in more {
        reply.map(3);
        describe(reply, selector);
    }
    Ok(())
}

fn describe(reply: &mut Reply<'_>, selector: &Selector) {
    reply.bulk(b"commands");
    reply.bulk(selector.describe_commands().as_bytes());
    reply.bulk(b"keys");
    reply.bulk(&selector.describe_keys());
    reply.bulk(b"channels");
    reply.bulk(&selector.describe_channels());
}

/// ACL LIST
pub(super) fn list(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.reply.array(ctx.server.users.iter().len());
    for user in ctx.server.users.iter() {
        ctx.reply.bulk(&[b"user ", &*user.name, b" ", &user.describe()].concat());
    }
    Ok(())
}

/// ACL USERS
pub(super) fn users(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.reply.array(ctx.server.users.iter().len());
    ctx.server.users.iter().for_each(|user| ctx.reply.bulk(&user.name));
    Ok(())
}

/// ACL WHOAMI
pub(super) fn whoami(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.reply.bulk(&ctx.session.user.name);
    Ok(())
}

/// ACL CAT [category]
pub(super) fn cat(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    match args.len() {
        2 => {
            ctx.reply.array(category::NAMES.len());
            category::NAMES.iter().for_each(|name| ctx.reply.bulk(name.as_bytes()));
        }
        3 => {
            let bit = category::find(args.get(2)).ok_or_else(|| {
                CommandError::Acl(format!("Unknown category '{}'", text(args.get(2), 128)))
            })?;
            let index = &ctx.server.index;
            let rows = 0..index.specs().len();
            let names: Vec<&str> = rows
                .filter(|row| index.facts(*row).categories & bit != 0)
                .map(|row| index.specs()[row].name)
                .collect();
            ctx.reply.array(names.len());
            names.iter().for_each(|name| ctx.reply.bulk(name.as_bytes()));
        }
        _ => return Err(CommandError::subcommand(args)),
    }
    Ok(())
}

/// Bits of the longest password that ACL GENPASS makes.
const GENPASS_BITS_MAX: i64 = 4096;

/// ACL GENPASS [bits]
pub(super) fn genpass(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let bits = match args.len() {
        2 => 256,
        3 => parse_i64(args.get(2)).ok_or(CommandError::NotInteger)?,
        _ => return Err(CommandError::subcommand(args)),
    };
    if !(1..=GENPASS_BITS_MAX).contains(&bits) {
        return Err(CommandError::Acl(format!(
            "ACL GENPASS argument must be the number of bits for the output password, a positive \
             number up to {GENPASS_BITS_MAX}"
        )));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut random = vec![0; digits.div_ceil(2)];
    let source = std::fs::File::open("/dev/urandom");
    source.and_then(|mut source| source.read_exact(&mut random)).map_err(|error| {
        CommandError::Acl(format!("no random bytes from /dev/urandom: {error}"))
    })?;
    let mut password: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    password.truncate(digits);
    ctx.reply.bulk(password.as_bytes());
    Ok(())
}

/// ACL DRYRUN username command [arg [arg ...]]
pub(super) fn dryrun(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let (name, inner) = (args.get(2), args.skip(3));
    let user = ctx.server.users.get(name).cloned();
    let user =
        user.ok_or_else(|| CommandError::Acl(format!("User '{}' not found", text(name, 128))))?;
    let (row, _) = ctx.server.index.resolve(inner).map_err(|error| match error {
        CommandError::Arity(_) => error,
        _ => CommandError::Acl(format!("Command '{}' not found", text(inner.get(0), 128))),
    })?;
    match user.check(ctx.server.index.facts_row(row), inner) {
        Ok(()) => ctx.reply.ok(),
        Err(denied) => {
            let text = denied.text(&user, ctx.server.index.facts(row), inner, true);
            ctx.reply.bulk(&text);
        }
    }
    Ok(())
}

/// Entries that ACL LOG shows if nobody says how many.
const LOG_SHOWN: i64 = 10;

/// ACL LOG [count | RESET]
pub(super) fn log(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let count = match args.len() {
        2 => LOG_SHOWN,
        3 if is(args.get(2), "RESET") => {
            ctx.server.shared.acl_log().entries.clear();
            ctx.reply.ok();
            return Ok(());
        }
        3 => parse_i64(args.get(2)).ok_or(CommandError::NotInteger)?,
        _ => return Err(CommandError::subcommand(args)),
    };
    let now_ms = ctx.server.unix_ms();
    let log = ctx.server.shared.acl_log();
    let count = usize::try_from(count).unwrap_or(0).min(log.entries.len());
    let reply = &mut *ctx.reply;
    reply.array(count);
    for entry in log.entries.iter().take(count) {
        reply.map(10);
        reply.bulk(b"count");
        reply.len(entry.count);
        for (name, value) in [
            (&b"reason"[..], entry.reason.word().as_bytes()),
            (b"context", entry.origin.word().as_bytes()),
            (b"object", &entry.object),
            (b"username", &entry.username),
        ] {
            reply.bulk(name);
            reply.bulk(value);
        }
        reply.bulk(b"age-seconds");
        reply.double(now_ms.saturating_sub(entry.updated_ms) as f64 / 1000.0);
        reply.bulk(b"client-info");
        reply.bulk(entry.client.as_bytes());
        for (name, value) in [
            ("entry-id", entry.id),
            ("timestamp-created", entry.created_ms),
            ("timestamp-last-updated", entry.updated_ms),
        ] {
            reply.bulk(name.as_bytes());
            reply.len(value);
        }
    }
    Ok(())
}

fn file(ctx: &Context<'_, '_, '_>) -> Result<std::path::PathBuf, CommandError> {
    ctx.server.config.acl_file.clone().ok_or_else(|| {
        CommandError::Acl(
            "This Redis instance is not configured to use an ACL file. You may want to specify \
             users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have \
             a Redis configuration file set) in order to store users in the Redis configuration."
                .to_owned(),
        )
    })
}

/// ACL LOAD
pub(super) fn load(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    let file = file(ctx)?;
    let all_channels = ctx.server.config.acl_all_channels;
    change(ctx, |before| {
        let users = acl::load(&file, all_channels).map_err(CommandError::Acl)?;
        Ok(users.instead_of(before))
    })?;
    ctx.reply.ok();
    Ok(())
}

/// ACL SAVE
pub(super) fn save(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    let file = file(ctx)?;
    // Held, so that of two that save at the same time the later one has the later users.
    let users = ctx.server.shared.users();
    acl::save(&file, &Arc::clone(&users)).map_err(|error| {
        tracing::error!(file = %file.display(), %error, "the users were not saved");
        CommandError::Acl(
            "There was an error trying to save the ACLs. Please check the server logs for more \
             information"
                .to_owned(),
        )
    })?;
    ctx.reply.ok();
    Ok(())
}

/// ACL HELP
pub(super) fn help(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    super::introspect::help(ctx, "acl");
    Ok(())
}
