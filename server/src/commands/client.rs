//! CLIENT: lists the clients that are connected, names, pauses and disconnects them.

use std::collections::BTreeSet;

use super::call::Outcome;
use super::context::{Context, Server};
use super::error::CommandError;
use super::error::text;
use super::options::is;
use crate::acl::Users;
use crate::number::parse_i64;
use crate::resp::Args;
use crate::session::{Peer, ReplyMode};
use crate::shared::Card;

/// CLIENT ID
pub(super) fn id(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.reply.len(ctx.session.card.id);
    Ok(())
}

/// CLIENT GETNAME
pub(super) fn getname(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    let name = ctx.session.card.name();
    ctx.reply.bulk_or_null(Some(name.as_slice()).filter(|n| !n.is_empty()));
    Ok(())
}

/// CLIENT SETNAME name
pub(super) fn setname(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    check_name(args.get(2))?;
    ctx.session.card.about().get_or_insert_default().name = args.get(2).to_vec();
    ctx.reply.ok();
    Ok(())
}

/// CLIENT SETINFO LIB-NAME name | LIB-VER version
pub(super) fn setinfo(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let (option, value) = (args.get(2), args.get(3));
    let lib_name = is(option, "LIB-NAME");
    if !lib_name && !is(option, "LIB-VER") {
        return Err(CommandError::ClientInfoOption(text(option, 128)));
    }
    if !is_plain(value) {
        return Err(CommandError::ClientInfo(if lib_name { "lib-name" } else { "lib-ver" }));
    }
    let mut about = ctx.session.card.about();
    let about = about.get_or_insert_default();
    *(if lib_name { &mut about.lib_name } else { &mut about.lib_ver }) = value.to_vec();
    ctx.reply.ok();
    Ok(())
}

/// Refuses a client's name with a blank in it, because lists separate names by blanks.
pub(super) fn check_name(name: &[u8]) -> Outcome {
    if is_plain(name) { Ok(()) } else { Err(CommandError::ClientName) }
}

fn is_plain(name: &[u8]) -> bool {
    name.iter().all(|b| (b'!'..=b'~').contains(b))
}

/// CLIENT INFO
pub(super) fn info(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    ctx.session.publish(0, ctx.session.request_bytes);
    let line = describe(ctx.server, &ctx.session.card, argument_bytes(args));
    ctx.reply.verbatim(format!("{line}\n").as_bytes());
    Ok(())
}

/// CLIENT LIST [TYPE type] [ID id [id ...]]
pub(super) fn list(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let mut ids: Option<Vec<u64>> = None;
    let mut kind = None;
    if args.len() > 2 {
        if is(args.get(2), "TYPE") && args.len() == 4 {
            kind = Some(ClientKind::parse(args.get(3))?);
        } else if is(args.get(2), "ID") && args.len() > 3 {
            let parsed = args
                .from(3)
                .map(|arg| parse_i64(arg).and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0));
            ids = Some(parsed.collect::<Option<_>>().ok_or(CommandError::ClientId)?);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    ctx.session.publish(0, ctx.session.request_bytes);
    let own = ctx.session.card.id;
    let ids = ids.map(BTreeSet::from_iter);
    let wanted = |card: &Card| {
        // A client that was killed is gone, though its loop may not have heard of it yet.
        !card.is_killed()
            && kind.is_none_or(|kind: ClientKind| kind.has(card))
            && ids.as_ref().is_none_or(|ids| ids.contains(&card.id))
    };
    let mut lines = Vec::new();
    ctx.server.shared.each_client(|card| {
        if wanted(card) {
            let argument_bytes = if card.id == own { argument_bytes(args) } else { 0 };
            lines.push((card.id, describe(ctx.server, card, argument_bytes)));
        }
    });
    lines.sort_unstable();
    let text: String = lines.iter().map(|(_, line)| format!("{line}\n")).collect();
    ctx.reply.verbatim(text.as_bytes());
    Ok(())
}

/// The line of a client.
pub(super) fn describe(server: &Server<'_>, card: &Card, argument_bytes: usize) -> String {
    let name_of = |row: u16| server.index.specs()[usize::from(row)].name;
    card.describe(server.now_ns, argument_bytes, name_of)
}

/// Bytes of the arguments of the command being run, which are the client's own. The arguments of
/// other clients are still counted with their requests.
fn argument_bytes(args: Args<'_>) -> usize {
    args.from(0).map(<[u8]>::len).sum()
}

/// A kind of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientKind {
    Normal,
    /// Those that have subscribed.
    Pubsub,
    /// Clients that get a copy of everything, as a replica does.
    Replica,
    /// Masters of this server, of which there are none.
    Master,
}

impl ClientKind {
    fn parse(kind: &[u8]) -> Result<Self, CommandError> {
        match () {
            () if is(kind, "NORMAL") => Ok(Self::Normal),
            () if is(kind, "PUBSUB") => Ok(Self::Pubsub),
            () if is(kind, "REPLICA") || is(kind, "SLAVE") => Ok(Self::Replica),
            () if is(kind, "MASTER") => Ok(Self::Master),
            () => Err(CommandError::ClientType(text(kind, 128))),
        }
    }

    fn has(self, card: &Card) -> bool {
        match self {
            Self::Normal => !card.is_subscribed() && !card.is_copying(),
            Self::Pubsub => card.is_subscribed(),
            Self::Replica => card.is_copying(),
            Self::Master => false,
        }
    }
}

/// The conditions of CLIENT KILL.
#[derive(Default)]
struct Filter {
    id: Option<u64>,
    addr: Option<String>,
    laddr: Option<String>,
    kind: Option<ClientKind>,
    user: Option<Vec<u8>>,
    skip_me: bool,
}

impl Filter {
    fn parse(args: Args<'_>, users: &Users) -> Result<Self, CommandError> {
        let mut filter = Self { skip_me: true, ..Self::default() };
        let mut at = 2;
        while at < args.len() {
            let (option, value) = (args.get(at), args.get(at + 1));
            if at + 1 == args.len() {
                return Err(CommandError::Syntax);
            } else if is(option, "ID") {
                let id = parse_i64(value).filter(|id| *id > 0).ok_or(CommandError::ClientIdZero)?;
                filter.id = Some(id as u64);
            } else if is(option, "ADDR") {
                filter.addr = Some(text(value, 128));
            } else if is(option, "LADDR") {
                filter.laddr = Some(text(value, 128));
            } else if is(option, "TYPE") {
                filter.kind = Some(ClientKind::parse(value)?);
            } else if is(option, "USER") {
                if users.get(value).is_none() {
                    return Err(CommandError::NoSuchUser(text(value, 128)));
                }
                filter.user = Some(value.to_vec());
            } else if is(option, "SKIPME") && (is(value, "YES") || is(value, "NO")) {
                filter.skip_me = is(value, "YES");
            } else {
                return Err(CommandError::Syntax);
            }
            at += 2;
        }
        Ok(filter)
    }

    fn fits(&self, card: &Card) -> bool {
        let (addr, laddr) = match card.peer {
            Peer::Tcp { addr, local } => (addr.to_string(), local.to_string()),
            Peer::Unix => ("unix:0".to_owned(), "unix:0".to_owned()),
        };
        self.kind.is_none_or(|kind| kind.has(card))
            && self.id.is_none_or(|id| id == card.id)
            && self.user.as_ref().is_none_or(|user| card.is_user(user))
            && self.addr.as_ref().is_none_or(|wanted| *wanted == addr)
            && self.laddr.as_ref().is_none_or(|wanted| *wanted == laddr)
    }
}

/// CLIENT KILL addr | option value [option value ...]
pub(super) fn kill(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let old_form = args.len() == 3;
    let filter = if old_form {
        Filter { addr: Some(text(args.get(2), 128)), ..Filter::default() }
    } else {
        Filter::parse(args, &ctx.server.users)?
    };
    let own = &ctx.session.card;
    let mut killed = ctx.server.shared.kill(|card| card.id != own.id && filter.fits(card));
    if !filter.skip_me && filter.fits(own) {
        // The client kills itself: its reply is still sent.
        ctx.session.closing = true;
        killed += 1;
    }
    match (old_form, killed) {
        (true, 0) => return Err(CommandError::NoSuchClient),
        (true, _) => ctx.reply.ok(),
        (false, _) => ctx.reply.int(killed),
    }
    Ok(())
}

/// CLIENT NO-EVICT ON | OFF (clients are never evicted here; only shown in CLIENT LIST)
pub(super) fn no_evict(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    ctx.session.no_evict = on_off(args.get(2))?;
    ctx.reply.ok();
    Ok(())
}

/// CLIENT NO-TOUCH ON | OFF (idle times are not tracked; only shown in CLIENT LIST)
pub(super) fn no_touch(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    ctx.session.no_touch = on_off(args.get(2))?;
    ctx.reply.ok();
    Ok(())
}

fn on_off(arg: &[u8]) -> Result<bool, CommandError> {
    match () {
        () if is(arg, "ON") => Ok(true),
        () if is(arg, "OFF") => Ok(false),
        () => Err(CommandError::Syntax),
    }
}

/// CLIENT REPLY ON | OFF | SKIP
pub(super) fn reply(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let mode = args.get(2);
    if is(mode, "ON") {
        ctx.session.reply_mode = ReplyMode::On;
        ctx.reply.ok();
    } else if is(mode, "OFF") {
        ctx.session.reply_mode = ReplyMode::Off;
    } else if is(mode, "SKIP") {
        if ctx.session.reply_mode != ReplyMode::Off {
            ctx.session.reply_mode = ReplyMode::SkipNext;
        }
    } else {
        return Err(CommandError::Syntax);
    }
    Ok(())
}

/// CLIENT PAUSE timeout-ms [WRITE | ALL]
pub(super) fn pause(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let writes_only = match args.len() {
        3 => false,
        4 if is(args.get(3), "WRITE") => true,
        4 if is(args.get(3), "ALL") => false,
        4 => return Err(CommandError::PauseMode),
        _ => return Err(CommandError::subcommand(args)),
    };
    let ms = parse_i64(args.get(2)).ok_or(CommandError::TimeoutNotInteger)?;
    let ms = u64::try_from(ms).map_err(|_| CommandError::TimeoutNegative)?;
    let until_ns = ctx.server.now_ns.saturating_add(ms.saturating_mul(1_000_000));
    ctx.server.shared.pause.begin(until_ns, writes_only, ctx.server.now_ns);
    ctx.reply.ok();
    Ok(())
}

/// CLIENT UNPAUSE
pub(super) fn unpause(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.server.shared.pause.end();
    // Clients of other loops wait, too.
    ctx.server.shared.ring_all();
    ctx.reply.ok();
    Ok(())
}

/// CLIENT HELP
pub(super) fn help(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    super::introspect::help(ctx, "client");
    Ok(())
}
