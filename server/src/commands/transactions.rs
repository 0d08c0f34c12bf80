//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! EXEC is one store transaction over every key its commands name (or over every shard, when one of
//! them names none): all of it happens or nothing does, also after a crash. As in Redis, a command
//! that fails on its own (wrong type, not a number) does not undo the others; when the *store*
//! fails (no memory, device latched), everything is rolled back and EXEC says so.
//!
//! The store does the watching, so WATCH also sees writes that leave the value as it was, and the
//! writes of other threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_region::Planted;
use perdura_store::{Access, DATABASES, Key, StoreError, Tx, Unreadable, Watch};

use super::blocking::note_changed;
use super::call::{Call, Outcome};
use super::context::Context;
use super::error::CommandError;
use super::handler::{Command, Handler};
use super::keyspace::{self, Keyspace, Names};
use super::misses;
use super::monitor;
use super::options::database;
use super::permit;
use super::pubsub;
use super::scripts::{self, Relieved};
use super::spec::flag;
use super::steps::Steps;
use super::tracking::note_read;
use crate::acl::Origin;
use crate::resp::Args;
use crate::session::Multi;

/// MULTI
pub(super) fn multi(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    if ctx.session.multi.is_some() {
        return Err(CommandError::MultiNested);
    }
    ctx.session.multi = Some(Box::default());
    ctx.reply.ok();
    Ok(())
}

/// DISCARD
pub(super) fn discard(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.session.multi.take().ok_or(CommandError::DiscardWithoutMulti)?;
    ctx.session.unwatch();
    ctx.reply.ok();
    Ok(())
}

/// UNWATCH
pub(super) fn unwatch(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.session.unwatch();
    ctx.reply.ok();
    Ok(())
}

/// WATCH key [key ...]
pub(super) fn watch(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    if ctx.session.multi.is_some() {
        return Err(CommandError::WatchInMulti);
    }
    let db = ctx.session.db;
    for bytes in args.from(1) {
        // A key that is watched already keeps the state in which it was watched first.
        let watched = ctx.session.watched.entry((db, bytes.into()));
        watched.or_insert_with(|| ctx.server.store.watch(Key { db, bytes }));
    }
    ctx.reply.ok();
    Ok(())
}

/// EXEC, of commands in the rows of `table`.
pub(super) fn exec(ctx: &mut Context<'_, '_, '_>, table: &'static [Command]) -> Outcome {
    let multi = ctx.session.multi.take().ok_or(CommandError::ExecWithoutMulti)?;
    let watched = std::mem::take(&mut ctx.session.watched);
    if multi.failed {
        return Err(CommandError::ExecAbort);
    }
    if multi.queue.iter().any(|queued| table[queued.row].spec.name == "client|unblock") {
        ctx.server.waiters = Some(ctx.server.shared.waiters.lock());
    }
    let db = ctx.session.db;
    let result = Unreadable::catch(|| run_all(ctx, table, &multi, &watched));
    ctx.server.waiters = None;
    let unchanged = result?.map_err(CommandError::ExecStore)?;
    if !unchanged {
        ctx.reply.null_array();
        return Ok(());
    }
    if ctx.server.shared.monitors.is_any() {
        show_all(ctx, table, &multi, db);
    }
    note_all(ctx, table, &multi, db);
    Ok(())
}

/// Counts the commands of an EXEC that has begun in this database, and notes what they have
/// changed.
fn note_all(ctx: &mut Context<'_, '_, '_>, table: &'static [Command], multi: &Multi, mut db: u8) {
    for queued in &multi.queue {
        let (spec, args) = (&table[queued.row].spec, queued.args());
        ctx.server.stats.by_command[queued.row].calls.add(1);
        ctx.server.own.user_bytes.add(spec.user_bytes(args));
        if spec.name == "select" {
            db = database(args.get(1), CommandError::NotInteger).unwrap_or(db);
        }
        note_changed(ctx.server, spec, db, args);
    }
}

/// Runs the queue in one transaction; false when a watched key has changed.
fn run_all(
    ctx: &mut Context<'_, '_, '_>,
    table: &'static [Command],
    multi: &Multi,
    watched: &BTreeMap<(u8, Box<[u8]>), Watch>,
) -> Result<bool, StoreError> {
    let mut keys: Vec<Key<'_>> = watched.values().map(Watch::key).collect();
    let named = collect_keys(table, ctx.session.db, multi, &mut keys);
    let any = |flags| multi.queue.iter().any(|queued| table[queued.row].spec.has(flags));
    let walks = any(flag::WALKS);
    let swaps = multi.queue.iter().any(|queued| table[queued.row].spec.name == "swapdb");
    if any(flag::FACTS) {
        ctx.server.refresh_facts();
    }
    let mut holds_all = walks || !named;
    ctx.server.scripts.count_transaction();
    let mark = ctx.reply.mark();
    loop {
        ctx.reply.rewind(mark);
        let unchanged = attempt(ctx, table, multi, watched, (&keys, holds_all, walks, swaps));
        match scripts::relieve(ctx) {
            // A script has used a key that it had not named.
            Relieved::NeedsAll => holds_all = true,
            Relieved::Again => {}
            Relieved::Over(why) => return Err(StoreError::Aborted(why)),
            Relieved::No => return unchanged,
        }
    }
}

/// Tries the queue in one transaction, with the shards of `keys` or all of them held; false when a
/// watched key has changed.
fn attempt(
    ctx: &mut Context<'_, '_, '_>,
    table: &'static [Command],
    multi: &Multi,
    watched: &BTreeMap<(u8, Box<[u8]>), Watch>,
    (keys, holds_all, walks, swaps): (&[Key<'_>], bool, bool, bool),
) -> Result<bool, StoreError> {
    let store = ctx.server.store;
    let access = if holds_all { Access::Everything } else { Access::Keys(keys) };
    ctx.server.scripts.begin_transaction(holds_all);

    let (mark, db, drawn) = (ctx.reply.mark(), ctx.session.db, ctx.server.random.mark());
    let (user, authenticated) = (Arc::clone(&ctx.session.user), ctx.session.authenticated);
    let listens = multi.queue.iter().any(|queued| table[queued.row].spec.has(flag::PUBSUB));
    let subscribed = listens.then(|| ctx.session.subscribed.clone());
    let mut denied_rows = Vec::new();
    let grows = multi.queue.iter().any(|queued| table[queued.row].spec.has(flag::DENYOOM));
    let result = store.run(access, |tx| {
        if !grows {
            tx.allow_reserve();
        }
        ctx.reply.rewind(mark);
        ctx.server.outgoing.clear();
        ctx.server.random.rewind(drawn);
        ctx.server.scripts.begin_attempt();
        ctx.session.db = db;
        if let Some(before) = &subscribed {
            pubsub::restore(ctx, before);
        }
        denied_rows.clear();
        if !Arc::ptr_eq(&ctx.session.user, &user) {
            ctx.session.user = Arc::clone(&user);
            (ctx.session.authenticated, ctx.session.free_in) = (authenticated, 0);
        }
        let is_unwatched = store.region().planted().is(Planted::IgnoreWatch);
        if !is_unwatched && !watched.values().all(|watch| tx.is_unchanged(watch)) {
            return Ok(false);
        }
        let mut names = if walks { keyspace::names(tx, keys) } else { Vec::new() };
        if swaps {
            keyspace::anywhere(&mut names);
        }
        ctx.reply.array(multi.queue.len());
        for (at, queued) in multi.queue.iter().enumerate() {
            if let Err(denied) = permit::check_queued(ctx, queued.row, queued.args()) {
                denied_rows.push((at, denied));
                ctx.reply.error(&permit::no_longer(denied));
                continue;
            }
            note_read(ctx.server, ctx.session, queued.row, queued.args());
            let before = ctx.reply.mark();
            match run_in_tx(ctx, &table[queued.row], queued.args(), tx, &names, false) {
                Ok(()) => {}
                Err(CommandError::Tx(error)) => return Err(error),
                Err(error) => {
                    ctx.reply.rewind(before);
                    ctx.reply.error(&error);
                }
            }
        }
        Ok(true)
    });
    if result.is_err() {
        ctx.session.db = db;
        if let Some(before) = &subscribed {
            pubsub::restore(ctx, before);
        }
    }
    for (at, denied) in denied_rows {
        let queued = &multi.queue[at];
        permit::note(ctx, denied, queued.row, queued.args(), Origin::Multi);
    }
    result
}

/// Shows what a transaction has done to those who watch, with the databases that it has selected.
fn show_all(ctx: &Context<'_, '_, '_>, table: &'static [Command], multi: &Multi, mut db: u8) {
    for queued in &multi.queue {
        if table[queued.row].spec.name == "select" {
            db = database(queued.args().get(1), CommandError::NotInteger).unwrap_or(db);
        }
        monitor::show(ctx.server, ctx.session, db, queued.row, queued.args());
    }
}

/// Adds the keys the queue names, following SELECT; false when a command needs every shard.
fn collect_keys<'q>(
    table: &'static [Command],
    mut db: u8,
    multi: &'q Multi,
    keys: &mut Vec<Key<'q>>,
) -> bool {
    let mut named = true;
    for queued in &multi.queue {
        let (spec, args) = (&table[queued.row].spec, queued.args());
        if spec.name == "select" {
            db = database(args.get(1), CommandError::NotInteger).unwrap_or(db);
        }
        // COPY and MOVE may name a key of any database.
        let elsewhere = spec.needs_all_shards(args);
        named &= !elsewhere;
        let dbs = if elsewhere { 0..DATABASES } else { db..db + 1 };
        for at in spec.keys.indices(args) {
            keys.extend(dbs.clone().map(|db| Key { db, bytes: args.get(at) }));
        }
    }
    named
}

/// Runs a command inside a transaction: one that EXEC carries out, or a script.
pub(super) fn run_in_tx(
    ctx: &mut Context<'_, '_, '_>,
    command: &'static Command,
    args: Args<'_>,
    tx: &mut Tx<'_>,
    names: &Names,
    in_script: bool,
) -> Outcome {
    let (db, now_ms) = (ctx.session.db, ctx.server.unix_ms());
    let spec = &command.spec;
    if let Handler::Control(handler) = command.handler {
        if spec.name == "ssubscribe" {
            return Err(CommandError::SubscribedShard);
        }
        return handler(ctx, args);
    }
    let key = Key { db, bytes: args.get(spec.keys.first.max(0) as usize) };
    if matches!(command.handler, Handler::Read(_) | Handler::Field(_)) || command.data().is_some() {
        misses::tell(ctx.server, args, db, tx);
    }
    let (random, config) = (&ctx.server.random, &*ctx.server.config);
    let (reply, steps) = (&mut *ctx.reply, &mut Steps::whole());
    let mut call = Call { args, db, now_ms, in_script, reply, random, config, steps, wait: None };
    match command.handler {
        Handler::Read(handler) if spec.has(flag::NOVALUE) => {
            handler(&mut call, tx.look(key).as_ref())
        }
        Handler::Read(handler) => handler(&mut call, tx.get(key).as_ref()),
        Handler::Field(handler) => handler(&mut call, tx.hash_get(key, args.get(2))?),
        Handler::Data(handler) | Handler::InPlace(_, handler) => handler(&mut call, tx),
        Handler::Keyspace(handler) => handler(&mut call, &mut Keyspace::Tx { tx, names }),
        Handler::Script(scripted) => scripts::run_inside(ctx, scripted, args, tx),
        Handler::Control(_) | Handler::Exec | Handler::Container => {
            Err(CommandError::Arity(spec.name))
        }
    }
}
