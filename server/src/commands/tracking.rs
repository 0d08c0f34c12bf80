//! CLIENT TRACKING: clients that keep copies of values are told when the values change.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::call::Outcome;
use super::context::{Context, Server};
use super::error::{CommandError, text};
use super::facts::{keys_of, shown};
use super::options::is;
use super::spec::flag;
use crate::number::parse_i64;
use crate::resp::{Args, Reply};
use crate::session::{Session, Tracks};
use crate::shared::{Keys, Push, Tracker};

/// The choices of CLIENT TRACKING ON.
#[derive(Default)]
struct Wish {
    redirect: i64,
    broadcast: bool,
    opt_in: bool,
    opt_out: bool,
    no_loop: bool,
    prefixes: Vec<Box<[u8]>>,
}

impl Wish {
    fn parse(server: &Server<'_>, args: Args<'_>) -> Result<Self, CommandError> {
        let mut wish = Self::default();
        let mut at = 3;
        while at < args.len() {
            let has_value = at + 1 < args.len();
            let value = args.get(at + 1);
            match () {
                () if is(args.get(at), "REDIRECT") && has_value => {
                    if wish.redirect != 0 {
                        return Err(refused("A client can only redirect to a single other client"));
                    }
                    wish.redirect = parse_i64(value).ok_or(CommandError::NotInteger)?;
                    if server.shared.card(wish.redirect as u64).is_none() {
                        let why = "The client ID you want redirect to does not exist";
                        return Err(refused(why));
                    }
                    at += 1;
                }
                () if is(args.get(at), "PREFIX") && has_value => {
                    wish.prefixes.push(value.into());
                    at += 1;
                }
                () if is(args.get(at), "BCAST") => wish.broadcast = true,
                () if is(args.get(at), "OPTIN") => wish.opt_in = true,
                () if is(args.get(at), "OPTOUT") => wish.opt_out = true,
                () if is(args.get(at), "NOLOOP") => wish.no_loop = true,
                () => return Err(CommandError::Syntax),
            }
            at += 1;
        }
        Ok(wish)
    }

    /// Refuses what does not go together, or with what the client has chosen before.
    fn check(&self, before: Option<&Tracks>) -> Outcome {
        if !self.broadcast && !self.prefixes.is_empty() {
            return Err(refused("PREFIX option requires BCAST mode to be enabled"));
        }
        if before.is_some_and(|tracks| tracks.tracker.is_broadcast != self.broadcast) {
            return Err(refused(
                "You can't switch BCAST mode on/off before disabling tracking for this client, and \
                 then re-enabling it with a different mode.",
            ));
        }
        if self.broadcast && (self.opt_in || self.opt_out) {
            return Err(refused("OPTIN and OPTOUT are not compatible with BCAST"));
        }
        if self.opt_in && self.opt_out {
            return Err(refused("You can't specify both OPTIN mode and OPTOUT mode"));
        }
        let switches =
            |tracks: &Tracks| self.opt_in && tracks.opt_out || self.opt_out && tracks.opt_in;
        if before.is_some_and(switches) {
            return Err(refused(
                "You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and \
                 then re-enabling it with a different mode.",
            ));
        }
        let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
        for (at, prefix) in self.prefixes.iter().enumerate() {
            let shown = text(prefix, 512);
            let known = before.into_iter().flat_map(|tracks| &tracks.prefixes);
            if let Some(known) = known.into_iter().find(|known| overlap(prefix, known)) {
                return Err(CommandError::Acl(format!(
                    "Prefix '{shown}' overlaps with an existing prefix '{}'. Prefixes for a \
                     single client must not overlap.",
                    text(known, 512)
                )));
            }
            let mut others = self.prefixes[at + 1..].iter();
            if let Some(other) = others.find(|other| overlap(prefix, other)) {
                return Err(CommandError::Acl(format!(
                    "Prefix '{shown}' overlaps with another provided prefix '{}'. Prefixes for a \
                     single client must not overlap.",
                    text(other, 512)
                )));
            }
        }
        Ok(())
    }
}

fn refused(why: &str) -> CommandError {
    CommandError::Acl(why.to_owned())
}

/// CLIENT TRACKING ON | OFF [REDIRECT id] [PREFIX prefix ...] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]
pub(super) fn tracking(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let wish = Wish::parse(ctx.server, args)?;
    if is(args.get(2), "OFF") {
        end(ctx.server, ctx.session);
        ctx.reply.ok();
        return Ok(());
    }
    if !is(args.get(2), "ON") {
        return Err(CommandError::Syntax);
    }
    wish.check(ctx.session.tracks.as_deref())?;
    let redirect = u64::try_from(wish.redirect).ok().filter(|id| *id != 0);
    let redirect = redirect.and_then(|id| ctx.server.shared.card(id));
    let shared = ctx.server.shared;
    let card = Arc::clone(&ctx.session.card);
    let tracks = ctx.session.tracks.get_or_insert_with(|| {
        let listen = || shared.store.listen(Some(shared.tracking.clone()));
        let tracker = shared.tracking.begin(&card, wish.broadcast, listen);
        Box::new(Tracks {
            tracker,
            opt_in: false,
            opt_out: false,
            caching: false,
            prefixes: Vec::new(),
        })
    });
    tracks.tracker.redirect_to(redirect);
    tracks.tracker.skips_own.store(wish.no_loop, Relaxed);
    (tracks.opt_in, tracks.opt_out, tracks.caching) = (wish.opt_in, wish.opt_out, false);
    let mut prefixes = wish.prefixes;
    if wish.broadcast && prefixes.is_empty() && tracks.prefixes.is_empty() {
        prefixes.push(Box::default());
    }
    for prefix in prefixes {
        shared.tracking.add_prefix(&tracks.tracker, &prefix);
        tracks.prefixes.push(prefix);
    }
    ctx.reply.ok();
    Ok(())
}

/// Ends a client's tracking.
pub(crate) fn end(server: &Server<'_>, session: &mut Session) {
    if let Some(tracks) = session.tracks.take() {
        server.shared.tracking.end(&tracks.tracker, || server.store.listen(None));
    }
}

/// CLIENT CACHING YES | NO
pub(super) fn caching(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let Some(tracks) = ctx.session.tracks.as_mut() else {
        return Err(refused(
            "CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
             OPTOUT mode enabled",
        ));
    };
    let is_right = match () {
        () if is(args.get(2), "YES") => tracks.opt_in,
        () if is(args.get(2), "NO") => tracks.opt_out,
        () => return Err(CommandError::Syntax),
    };
    if !is_right {
        let mode = if is(args.get(2), "YES") { ("YES", "OPTIN") } else { ("NO", "OPTOUT") };
        return Err(CommandError::Acl(format!(
            "CLIENT CACHING {} is only valid when tracking is enabled in {} mode.",
            mode.0, mode.1
        )));
    }
    tracks.caching = true;
    ctx.reply.ok();
    Ok(())
}

/// CLIENT GETREDIR
pub(super) fn getredir(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.reply.int(redirect_of(ctx.session));
    Ok(())
}

/// The client that gets the messages: 0 if it is this one, -1 without tracking.
pub(crate) fn redirect_of(session: &Session) -> i64 {
    let redirect = |tracker: &Tracker| tracker.redirect().map_or(0, |card| card.id as i64);
    session.tracks.as_ref().map_or(-1, |tracks| redirect(&tracks.tracker))
}

/// CLIENT TRACKINGINFO
pub(super) fn trackinginfo(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    let mut flags = vec![if ctx.session.tracks.is_some() { "on" } else { "off" }];
    let mut prefixes: &[Box<[u8]>] = &[];
    if let Some(tracks) = &ctx.session.tracks {
        prefixes = &tracks.prefixes;
        let tracker = &tracks.tracker;
        let told = [
            (tracker.is_broadcast, "bcast"),
            (tracks.opt_in, "optin"),
            (tracks.opt_in && tracks.caching, "caching-yes"),
            (tracks.opt_out, "optout"),
            (tracks.opt_out && tracks.caching, "caching-no"),
            (tracker.skips_own.load(Relaxed), "noloop"),
            (tracker.is_broken.load(Relaxed), "broken_redirect"),
        ];
        flags.extend(told.into_iter().filter(|(is_so, _)| *is_so).map(|(_, flag)| flag));
    }
    let reply = &mut *ctx.reply;
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.int(redirect_of(ctx.session));
    reply.bulk(b"prefixes");
    reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| reply.bulk(prefix));
    Ok(())
}

/// Registers a client that tracks for the keys that a command reads next, if the command only
/// reads. `row` is the command's row in the table.
pub(super) fn note_read(server: &Server<'_>, session: &Session, row: usize, args: Args<'_>) {
    let Some(tracks) = session.tracks.as_deref() else { return };
    if tracks.tracker.is_broadcast || (tracks.opt_in && !tracks.caching) {
        return;
    }
    let facts = server.index.facts(row);
    if (tracks.opt_out && tracks.caching) || !facts.has(shown::READ) || facts.has(shown::PUBSUB) {
        return;
    }
    // A script's reads are noted one by one, as it makes them.
    if server.index.specs()[row].has(flag::SCRIPT) {
        return;
    }
    for key in keys_of(facts, args).unwrap_or_default() {
        server.shared.tracking.remember(&tracks.tracker, args.get(key.at));
    }
}

/// Ends what CLIENT CACHING has said about one command, when that has been carried out.
pub(super) fn end_caching(session: &mut Session, name: &str) {
    if let Some(tracks) = session.tracks.as_deref_mut()
        && session.multi.is_none()
        && !name.starts_with("client|")
    {
        tracks.caching = false;
    }
}

/// Writes what a client is told besides its replies. `hears_messages`: whether it has subscribed to
/// anything.
pub(crate) fn write_push(reply: &mut Reply<'_>, push: &Push, hears_messages: bool) {
    match push {
        Push::Changed { keys, .. } if reply.resp3() => {
            reply.push(2);
            reply.bulk(b"invalidate");
            write_keys(reply, keys);
        }
        Push::Changed { keys, is_redirected: true, .. } if hears_messages => {
            reply.array(3);
            reply.bulk(b"message");
            reply.bulk(b"__redis__:invalidate");
            write_keys(reply, keys);
        }
        Push::Broken { redirect, .. } if reply.resp3() => {
            reply.push(2);
            reply.bulk(b"tracking-redir-broken");
            reply.len(*redirect);
        }
        // In RESP2 there is no way to tell it.
        Push::Changed { .. } | Push::Broken { .. } => {}
        Push::Line { line, .. } => reply.raw(line),
    }
}

fn write_keys(reply: &mut Reply<'_>, keys: &Keys) {
    match keys {
        None => reply.null(),
        Some(keys) => {
            reply.array(keys.len());
            keys.iter().for_each(|key| reply.bulk(key));
        }
    }
}
