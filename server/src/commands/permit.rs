//! Whether a client may run a command: who it is, and what its user may do.
//!
//! A client that may do everything has that noted with the version of the users, so that its next
//! command costs one comparison. After a change of the users each client looks up its own again.

use std::sync::Arc;

use super::call::Outcome;
use super::context::{Context, Server};
use super::error::CommandError;
use super::facts::shown;
use super::options::is;
use super::spec::{Spec, flag};
use crate::acl::{Denied, LogEntry, Origin, Reason, User};
use crate::resp::Args;
use crate::session::Session;
use crate::shared::Card;

/// Checks a command of a client.
#[inline]
pub(super) fn check(
    ctx: &mut Context<'_, '_, '_>,
    row: usize,
    spec: &Spec,
    args: Args<'_>,
) -> Outcome {
    if ctx.session.free_in == ctx.server.users.version {
        return Ok(());
    }
    look(ctx, row, spec, args)
}

#[cold]
fn look(ctx: &mut Context<'_, '_, '_>, row: usize, spec: &Spec, args: Args<'_>) -> Outcome {
    let needs_password = ctx.server.needs_password();
    if !heed_users(ctx.server, ctx.session) {
        // The client is disconnected, and gets no answer.
        ctx.session.killed = true;
        return Err(CommandError::NoAuth);
    }
    if !ctx.session.authenticated && needs_password {
        return if spec.has(flag::NOAUTH) { Ok(()) } else { Err(CommandError::NoAuth) };
    }
    let facts = ctx.server.index.facts(row);
    let uses_keys = facts.has(shown::READ | shown::WRITE | shown::MAY_REPLICATE);
    if ctx.session.is_monitor && uses_keys {
        return Err(CommandError::ReplicaMayNot);
    }
    if ctx.session.user.allows_everything() && !ctx.session.is_monitor {
        ctx.session.free_in = ctx.server.users.version;
        return Ok(());
    }
    let user = Arc::clone(&ctx.session.user);
    let facts = ctx.server.index.facts_row(row);
    if let Err(denied) = user.check(facts, args) {
        let origin = match ctx.session.multi {
            Some(_) => Origin::Multi,
            None => Origin::Toplevel,
        };
        note(ctx, denied, row, args, origin);
        let text = denied.text(&user, ctx.server.index.facts(row), args, false);
        return Err(CommandError::NoPermission(String::from_utf8_lossy(&text).into_owned()));
    }
    check_sort(&user, facts, spec, args)
}

/// Looks up the client's user again, if the users have changed. False if it is gone.
pub(crate) fn heed_users(server: &Server<'_>, session: &mut Session) -> bool {
    if session.users_version == server.users.version {
        return true;
    }
    let name = &session.user.name;
    let Some(user) = server.users.get(name).filter(|user| user.id == session.user.id) else {
        return false;
    };
    session.user = Arc::clone(user);
    session.users_version = server.users.version;
    session.free_in = 0;
    true
}

/// Whether the client may go on listening to everything that it has subscribed to.
pub(crate) fn may_go_on_listening(session: &Session) -> bool {
    use crate::shared::Topic;
    !session.subscribed.is_any()
        || session.user.selectors.iter().any(|selector| selector.all_channels)
        || Topic::ALL.into_iter().all(|topic| {
            let names = session.subscribed.names(topic);
            let is_pattern = topic == Topic::Pattern;
            names.iter().all(|name| session.user.may_listen(name, is_pattern))
        })
}

/// SORT reads keys whose names it finds in values: only who may read every key may let it.
fn check_sort(user: &User, facts: usize, spec: &Spec, args: Args<'_>) -> Outcome {
    if !matches!(spec.name, "sort" | "sort_ro") {
        return Ok(());
    }
    let mut at = 2;
    while at + 1 < args.len() {
        let value = args.get(at + 1);
        let option = match () {
            () if is(args.get(at), "BY") && value.contains(&b'*') => Some("BY"),
            () if is(args.get(at), "GET") && value != b"#" => Some("GET"),
            () => None,
        };
        if let Some(option) = option
            && !user.may_read_all(facts, args)
        {
            return Err(CommandError::SortNeedsAllKeys(option));
        }
        at += match () {
            () if is(args.get(at), "LIMIT") => 3,
            () if ["BY", "GET", "STORE"].iter().any(|word| is(args.get(at), word)) => 2,
            () => 1,
        };
    }
    Ok(())
}

/// Whether the client's user may give a command in a script.
pub(super) fn may_call(
    server: &Server<'_>,
    session: &Session,
    row: usize,
    args: Args<'_>,
) -> Result<(), Denied> {
    if session.free_in == server.users.version || session.user.allows_everything() {
        return Ok(());
    }
    session.user.check(server.index.facts_row(row), args)
}

/// Checks a command of a script, and notes in ACL LOG if the client's user may not give it.
pub(super) fn check_in_script(
    server: &Server<'_>,
    session: &Session,
    row: usize,
    args: Args<'_>,
) -> Result<(), String> {
    may_call(server, session, row, args).map_err(|denied| {
        let object = object(server, denied, row, args);
        add(server, &session.card, denied.reason, object, &session.user.name, Origin::Script);
        let text = denied.text(&session.user, server.index.facts(row), args, false);
        format!("NOPERM ACL failure in script: {}", String::from_utf8_lossy(&text))
    })
}

/// Checks a queued command inside EXEC: the user may have changed since it was queued.
pub(super) fn check_queued(
    ctx: &Context<'_, '_, '_>,
    row: usize,
    args: Args<'_>,
) -> Result<(), Denied> {
    may_call(ctx.server, ctx.session, row, args)
}

/// The error about a queued command that is no longer allowed.
pub(super) fn no_longer(denied: Denied) -> CommandError {
    CommandError::NoPermissionLater(match denied.reason {
        Reason::Command | Reason::Auth => "no permission to execute the command or subcommand",
        Reason::Key => "no permission to touch the specified keys",
        Reason::Channel => {
            "no permission to access one of the channels used as argument to the command"
        }
    })
}

/// Checks the command of a client that has waited, which runs now. `None` if its user is gone.
pub(super) fn check_waiter(
    server: &Server<'_>,
    card: &Card,
    row: usize,
    args: Args<'_>,
) -> Option<Option<CommandError>> {
    let user = card.user(&server.users)?;
    if user.allows_everything() {
        return Some(None);
    }
    let denied = user.check(server.index.facts_row(row), args).err();
    Some(denied.map(|denied| {
        add(
            server,
            card,
            denied.reason,
            object(server, denied, row, args),
            &user.name,
            Origin::Toplevel,
        );
        let text = denied.text(user, server.index.facts(row), args, false);
        CommandError::NoPermission(String::from_utf8_lossy(&text).into_owned())
    }))
}

/// What a client may not use.
fn object(server: &Server<'_>, denied: Denied, row: usize, args: Args<'_>) -> Vec<u8> {
    match denied.reason {
        Reason::Command | Reason::Auth => server.index.specs()[row].name.as_bytes().to_vec(),
        Reason::Key | Reason::Channel => args.get(denied.at).to_vec(),
    }
}

/// Notes in ACL LOG that a client may not run a command.
pub(super) fn note(
    ctx: &mut Context<'_, '_, '_>,
    denied: Denied,
    row: usize,
    args: Args<'_>,
    origin: Origin,
) {
    ctx.session.publish(0, ctx.session.request_bytes);
    let (server, session) = (&*ctx.server, &*ctx.session);
    let object = object(server, denied, row, args);
    add(server, &session.card, denied.reason, object, &session.user.name, origin);
}

/// Notes in ACL LOG that a client did not know a user's password.
pub(super) fn note_wrong_password(ctx: &mut Context<'_, '_, '_>, args: Args<'_>, user: &[u8]) {
    let origin = if ctx.session.multi.is_some() { Origin::Multi } else { Origin::Toplevel };
    ctx.session.publish(0, ctx.session.request_bytes);
    add(ctx.server, &ctx.session.card, Reason::Auth, args.get(0).to_vec(), user, origin);
}

fn add(
    server: &Server<'_>,
    card: &Card,
    reason: Reason,
    object: Vec<u8>,
    username: &[u8],
    origin: Origin,
) {
    server.stats.denied[reason as usize].add(1);
    let now_ms = server.unix_ms();
    let entry = LogEntry {
        count: 1,
        reason,
        origin,
        object,
        username: username.to_vec(),
        client: super::client::describe(server, card, 0),
        id: 0,
        created_ms: now_ms,
        updated_ms: now_ms,
    };
    server.shared.acl_log().add(entry, server.config.acl_log_len_max);
}
