//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! EXEC is one store transaction over every key its commands name (or over every shard, when one of
//! them names none): all of it happens or nothing does, also after a crash. As in Redis, a command
//! that fails on its own (wrong type, not a number) does not undo the others; when the *store*
//! fails (no memory, device latched), everything is rolled back and EXEC says so.
//!
//! WATCH is the store's: it sees writes that leave the value as it was, and those of other threads.

use std::collections::BTreeMap;

use perdura_store::{Access, DATABASES, Key, StoreError, Watch};

use super::context::Context;
use super::dispatch::{run_in_tx, user_bytes};
use super::error::CommandError;
use super::keyspace;
use super::options::database;
use super::spec::{Handler, Outcome, flag};
use crate::resp::Args;
use crate::session::{Multi, Queued};

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
        // What was watched first counts.
        let watched = ctx.session.watched.entry((db, bytes.into()));
        watched.or_insert_with(|| ctx.server.store.watch(Key { db, bytes }));
    }
    ctx.reply.ok();
    Ok(())
}

/// EXEC
pub(super) fn exec(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    let multi = ctx.session.multi.take().ok_or(CommandError::ExecWithoutMulti)?;
    let watched = std::mem::take(&mut ctx.session.watched);
    if multi.failed {
        return Err(CommandError::ExecAbort);
    }
    if let Some(why) = &ctx.server.latched
        && multi.queue.iter().any(|q| q.spec.has(flag::WRITE))
    {
        return Err(CommandError::Latched(why.clone()));
    }
    let unchanged = run_all(ctx, &multi, &watched).map_err(CommandError::ExecStore)?;
    if !unchanged {
        ctx.reply.null_array();
        return Ok(());
    }
    for queued in &multi.queue {
        if let Some((row, _)) = row_of(ctx, queued) {
            ctx.server.stats.by_command[row].calls += 1;
        }
        ctx.server.user_bytes += user_bytes(queued.spec, queued.args());
    }
    Ok(())
}

fn row_of(ctx: &Context<'_, '_, '_>, queued: &Queued) -> Option<(usize, &'static super::Spec)> {
    ctx.server.index.resolve(queued.args()).ok()
}

/// Runs the queue in one transaction; false when a watched key has changed.
fn run_all(
    ctx: &mut Context<'_, '_, '_>,
    multi: &Multi,
    watched: &BTreeMap<(u8, Box<[u8]>), Watch>,
) -> Result<bool, StoreError> {
    let store = ctx.server.store;
    let mut keys: Vec<Key<'_>> = watched.values().map(Watch::key).collect();
    let named = collect_keys(ctx.session.db, multi, &mut keys);
    let walks = multi.queue.iter().any(|q| matches!(q.spec.handler, Handler::Keyspace(_)));
    let mut names = if walks { keyspace::names(store, &keys) } else { Vec::new() };
    if multi.queue.iter().any(|q| q.spec.name == "swapdb") {
        keyspace::anywhere(&mut names);
    }
    if multi.queue.iter().any(|q| q.spec.has(flag::FACTS)) {
        ctx.server.refresh_facts();
    }
    let access = if walks || !named { Access::Everything } else { Access::Keys(&keys) };

    let (mark, db) = (ctx.reply.mark(), ctx.session.db);
    let result = store.run(access, |tx| {
        ctx.reply.rewind(mark);
        ctx.session.db = db;
        if !watched.values().all(|watch| tx.is_unchanged(watch)) {
            return Ok(false);
        }
        ctx.reply.array(multi.queue.len());
        for queued in &multi.queue {
            let before = ctx.reply.mark();
            match run_in_tx(ctx, queued.spec, queued.args(), tx, &names) {
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
    }
    result
}

/// Adds the keys the queue names, following SELECT; false when a command needs every shard.
fn collect_keys<'q>(mut db: u8, multi: &'q Multi, keys: &mut Vec<Key<'q>>) -> bool {
    let mut named = true;
    for queued in &multi.queue {
        let args = queued.args();
        if queued.spec.name == "select" {
            db = database(args.get(1), CommandError::NotInteger).unwrap_or(db);
        }
        // COPY and MOVE may name a key of any database.
        let elsewhere = queued.spec.has(flag::ALL_SHARDS);
        named &= !elsewhere;
        let dbs = if elsewhere { 0..DATABASES } else { db..db + 1 };
        for at in queued.spec.keys.indices(args) {
            keys.extend(dbs.clone().map(|db| Key { db, bytes: args.get(at) }));
        }
    }
    named
}
