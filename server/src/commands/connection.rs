//! Commands about the connection: greeting, password, database, PING.

use super::call::Outcome;
use super::context::Context;
use super::error::CommandError;
use super::error::text;
use super::options::{database, is};
use crate::REDIS_VERSION;
use crate::number::parse_i64;
use crate::resp::Args;

/// PING [message]
pub(super) fn ping(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    match args.len() {
        // In RESP2 a client that has subscribed expects what looks like a message.
        1 | 2 if ctx.session.subscribed.is_any() && !ctx.session.resp3 => {
            ctx.reply.array(2);
            ctx.reply.bulk(b"pong");
            ctx.reply.bulk(if args.len() == 2 { args.get(1) } else { b"" });
        }
        1 => ctx.reply.simple("PONG"),
        2 => ctx.reply.bulk(args.get(1)),
        _ => return Err(CommandError::Arity("ping")),
    }
    Ok(())
}

/// ECHO message
pub(super) fn echo(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    ctx.reply.bulk(args.get(1));
    Ok(())
}

/// QUIT
pub(super) fn quit(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.session.closing = true;
    ctx.reply.ok();
    Ok(())
}

/// RESET
pub(super) fn reset(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.server.unsubscribe_all(ctx.session);
    super::tracking::end(ctx.server, ctx.session);
    super::monitor::end(ctx.server, ctx.session);
    super::perdura::end_import(ctx.server, ctx.session);
    ctx.session.reset(&ctx.server.users);
    ctx.reply.set_resp3(false);
    ctx.reply.simple("RESET");
    Ok(())
}

/// SELECT index
pub(super) fn select(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    ctx.session.db = database(args.get(1), CommandError::NotInteger)?;
    ctx.reply.ok();
    Ok(())
}

/// AUTH [username] password
pub(super) fn auth(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    match args.len() {
        2 if ctx.server.users.default().no_password => return Err(CommandError::NoPassword),
        2 => authenticate(ctx, args, b"default", args.get(1))?,
        3 => authenticate(ctx, args, args.get(1), args.get(2))?,
        _ => return Err(CommandError::Syntax),
    }
    ctx.reply.ok();
    Ok(())
}

/// Makes the client the user with this name, if the password is right. `args` are those of the
/// command that asks for it.
fn authenticate(
    ctx: &mut Context<'_, '_, '_>,
    args: Args<'_>,
    name: &[u8],
    password: &[u8],
) -> Outcome {
    let users = std::sync::Arc::clone(&ctx.server.users);
    match users.get(name).filter(|user| user.accepts(password)) {
        Some(user) => {
            ctx.session.become_user(user, &users);
            Ok(())
        }
        None => {
            super::permit::note_wrong_password(ctx, args, name);
            Err(CommandError::WrongPass)
        }
    }
}

/// HELLO [protover [AUTH username password] [SETNAME clientname]]
pub(super) fn hello(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let mut resp3 = ctx.session.resp3;
    if args.len() > 1 {
        resp3 = match parse_i64(args.get(1)) {
            Some(2) => false,
            Some(3) => true,
            Some(_) => return Err(CommandError::NoProto),
            None => return Err(CommandError::ProtoNotInteger),
        };
    }
    // The last option of a kind counts.
    let (mut user, mut client) = (None, None);
    let mut at = 2;
    while at < args.len() {
        let left = args.len() - at - 1;
        if is(args.get(at), "AUTH") && left >= 2 {
            user = Some((args.get(at + 1), args.get(at + 2)));
            at += 3;
        } else if is(args.get(at), "SETNAME") && left >= 1 {
            super::client::check_name(args.get(at + 1))?;
            client = Some(args.get(at + 1));
            at += 2;
        } else {
            return Err(CommandError::HelloOption(text(args.get(at), 128)));
        }
    }
    if let Some((name, password)) = user {
        authenticate(ctx, args, name, password)?;
    }
    if !ctx.session.authenticated && ctx.server.needs_password() {
        return Err(CommandError::HelloNoAuth);
    }
    if let Some(name) = client {
        ctx.session.card.about().get_or_insert_default().name = name.to_vec();
    }
    ctx.session.resp3 = resp3;
    ctx.reply.set_resp3(resp3);
    let (id, reply) = (ctx.session.card.id, &mut *ctx.reply);
    reply.map(7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.int(if resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.len(id);
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}
