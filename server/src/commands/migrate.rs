//! MIGRATE: keys go to another server, and are removed here once that has taken them.
//!
//! The other server is asked by a thread ([`crate::migration`]), while this client's next commands
//! wait and all other clients are served. So a key may be written here while it is under way. Each
//! key is watched from before its payload is made: one that was written since is sent again, with
//! what it has by then, and is removed here only in a transaction that finds it unwritten.

use std::sync::Arc;
use std::time::Duration;

use perdura_rdb::seal_payload;
use perdura_store::{Access, EventClass, Key, Watch};

use super::call::Outcome;
use super::context::Context;
use super::dump::encode;
use super::error::CommandError;
use super::options::is;
use crate::migration::{Cargo, Errand, Failure, Migration};
use crate::number::parse_i64;
use crate::resp::Args;

/// Most migrations of the clients of one loop at a time: each has a thread.
const MIGRATIONS_MAX: usize = 16;
/// How many times a key that is written meanwhile is sent.
const ROUNDS_MAX: u32 = 5;

/// A MIGRATE whose client waits.
#[derive(Debug)]
pub(crate) struct Moving {
    migration: Migration,
    /// The keys that are under way, each watched since before its payload was made.
    watched: Vec<Watch>,
    rounds: u32,
}

impl Moving {
    /// Whether the command can go on.
    pub fn is_ready(&self) -> bool {
        self.migration.is_done()
    }
}

/// MIGRATE host port key|"" destination-db timeout [COPY] [REPLACE] [AUTH password] [AUTH2 username
/// password] [KEYS key [key ...]]
pub(super) fn migrate(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let request = Request::parse(args)?;
    let Some(moving) = ctx.session.moving.take() else {
        let names = request.names(args).map(<[u8]>::to_vec).collect();
        return send(ctx, &request, names, 0);
    };
    if !moving.is_ready() {
        ctx.session.moving = Some(moving);
        return Err(CommandError::Waits);
    }
    let Moving { migration, watched, rounds } = *moving;
    let outcome = migration.take();
    let mut taken = outcome.taken.into_iter();
    let watched = watched.into_iter().filter(|_| taken.next() == Some(true));
    let written = if request.copies { Vec::new() } else { remove(ctx, watched.collect())? };
    match outcome.error {
        Some(Failure::Io { doing, why }) => Err(CommandError::MigrateIo { doing, why }),
        Some(Failure::Refused(words)) => Err(CommandError::MigrateRefused(words)),
        None if written.is_empty() => {
            ctx.reply.ok();
            Ok(())
        }
        None if rounds + 1 == ROUNDS_MAX => Err(CommandError::MigrateWritten),
        None => send(ctx, &request, written, rounds + 1),
    }
}

/// Removes the keys that were not written since they were watched; returns the others.
fn remove(ctx: &Context<'_, '_, '_>, watched: Vec<Watch>) -> Result<Vec<Vec<u8>>, CommandError> {
    let mut written = Vec::new();
    for watch in watched {
        let key = watch.key();
        let removed = ctx.server.store.run(Access::Key(key), |tx| {
            let is_unchanged = tx.is_unchanged(&watch);
            if is_unchanged && tx.delete(key)? {
                tx.tell(EventClass::GENERIC, "del", key);
            }
            Ok(is_unchanged)
        })?;
        if !removed {
            written.push(key.bytes.to_vec());
        }
    }
    Ok(written)
}

/// Sends the keys that there are; in a later round also that a key is gone.
fn send(
    ctx: &mut Context<'_, '_, '_>,
    request: &Request,
    names: Vec<Vec<u8>>,
    round: u32,
) -> Outcome {
    // The loop's own word is one of the references.
    if Arc::strong_count(&ctx.server.migrations) > MIGRATIONS_MAX {
        return Err(CommandError::MigrateBusy(MIGRATIONS_MAX));
    }
    let (store, db, now_ms) = (ctx.server.store, ctx.session.db, ctx.server.unix_ms());
    let max_bytes = ctx.server.config.output_max_bytes;
    let (mut watched, mut keys, mut bytes) = (Vec::new(), Vec::new(), 0);
    for name in names {
        let key = Key { db, bytes: &name };
        let watch = store.watch(key);
        let found = store.run(Access::Key(key), |tx| {
            let mut payload = Vec::new();
            Ok(encode(tx, key, &mut payload).map(|expire_at_ms| (expire_at_ms, payload)))
        })?;
        let value = found.map(|(expire_at_ms, mut payload)| {
            seal_payload(&mut payload);
            let ttl_ms = expire_at_ms.map_or(0, |at_ms| at_ms.saturating_sub(now_ms).max(1));
            (ttl_ms, payload)
        });
        if value.is_none() && round == 0 {
            continue;
        }
        bytes += value.as_ref().map_or(0, |(_, payload)| payload.len());
        if bytes > max_bytes {
            return Err(CommandError::MigrateTooLarge(max_bytes));
        }
        keys.push(Cargo { key: name, value });
        watched.push(watch);
    }
    if keys.is_empty() {
        ctx.reply.simple("NOKEY");
        return Ok(());
    }
    let errand = Errand {
        host: request.host.clone(),
        port: request.port,
        auth: request.auth.clone(),
        db: request.db,
        timeout: request.timeout,
        // What is there after the first round is this command's own.
        replaces: request.replaces || round > 0,
        keys,
    };
    let (bell, token) = (Arc::clone(&ctx.server.own.bell), Arc::clone(&ctx.server.migrations));
    let migration = Migration::begin(errand, bell, token).map_err(|error| {
        CommandError::MigrateIo { doing: "starting a thread", why: error.to_string() }
    })?;
    ctx.session.moving = Some(Box::new(Moving { migration, watched, rounds: round }));
    Err(CommandError::Waits)
}

/// Where the keys behind KEYS begin, if that option names the keys.
pub(super) fn keys_at(args: Args<'_>) -> Option<usize> {
    let mut words = args.from(6).zip(6..);
    let keys = || words.find_map(|(word, at)| is(word, "KEYS").then_some(at + 1));
    args.get(3).is_empty().then(keys)?
}

/// What the client asks for.
struct Request {
    host: String,
    port: u16,
    db: u64,
    timeout: Duration,
    copies: bool,
    replaces: bool,
    auth: Vec<Vec<u8>>,
    /// Where the keys begin behind KEYS.
    keys_at: Option<usize>,
}

impl Request {
    fn parse(args: Args<'_>) -> Result<Self, CommandError> {
        let (mut copies, mut replaces, mut auth, mut keys_at) = (false, false, Vec::new(), None);
        let mut at = 6;
        while at < args.len() && keys_at.is_none() {
            let (word, behind) = (args.get(at), args.len() - at - 1);
            if is(word, "COPY") {
                copies = true;
            } else if is(word, "REPLACE") {
                replaces = true;
            } else if is(word, "AUTH") && behind >= 1 {
                auth = vec![args.get(at + 1).to_vec()];
                at += 1;
            } else if is(word, "AUTH2") && behind >= 2 {
                auth = vec![args.get(at + 1).to_vec(), args.get(at + 2).to_vec()];
                at += 2;
            } else if is(word, "KEYS") && behind >= 1 {
                if !args.get(3).is_empty() {
                    return Err(CommandError::MigrateKeys);
                }
                keys_at = Some(at + 1);
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        let timeout_ms = parse_i64(args.get(5)).ok_or(CommandError::NotInteger)?;
        let timeout_ms = u64::try_from(timeout_ms).ok().filter(|ms| *ms > 0).unwrap_or(1000);
        let db = parse_i64(args.get(4)).ok_or(CommandError::NotInteger)?;
        let db = u64::try_from(db).map_err(|_| CommandError::DbIndex)?;
        let port = std::str::from_utf8(args.get(2)).ok().and_then(|port| port.parse().ok());
        let why = || "the port is no number from 1 to 65535".to_owned();
        let no_port = || CommandError::MigrateIo { doing: "connecting", why: why() };
        Ok(Self {
            host: String::from_utf8_lossy(args.get(1)).into_owned(),
            port: port.filter(|port| *port > 0).ok_or_else(no_port)?,
            db,
            timeout: Duration::from_millis(timeout_ms),
            copies,
            replaces,
            auth,
            keys_at,
        })
    }

    fn names<'a>(&self, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
        let indices = self.keys_at.map_or(3..4, |first| first..args.len());
        indices.map(move |at| args.get(at))
    }
}
