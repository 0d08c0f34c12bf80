//! Commands about the server as a whole: saving, stopping, time, slow commands.

use super::call::Outcome;
use super::context::Context;
use super::error::CommandError;
use super::error::text;
use super::options::is;
use crate::number::parse_i64;
use crate::resp::Args;
use crate::saving::Busy;
use crate::shared::Shared;

/// TIME
pub(super) fn time(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    // The clock has milliseconds; the microseconds of the turn are added.
    let us = ctx.server.turn.1 * 1000 + (ctx.server.now_ns - ctx.server.turn.0) / 1000;
    ctx.reply.array(2);
    ctx.reply.bulk((us / 1_000_000).to_string().as_bytes());
    ctx.reply.bulk((us % 1_000_000).to_string().as_bytes());
    Ok(())
}

/// LASTSAVE
pub(super) fn lastsave(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.reply.len(ctx.server.shared.saving.report().saved_unix_s);
    Ok(())
}

/// SAVE: a checkpoint, before the reply; the other clients of the loop wait meanwhile
pub(super) fn save(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    let Shared { store, clock, saving, .. } = ctx.server.shared;
    let saved = saving.save(store, *clock, ctx.server.shared.changes());
    saved.map_err(|Busy| CommandError::SaveInProgress)?.map_err(CommandError::Checkpoint)?;
    ctx.reply.ok();
    Ok(())
}

/// BGSAVE [SCHEDULE]: a checkpoint beside the clients' commands
pub(super) fn bgsave(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    if args.len() > 2 || (args.len() == 2 && !is(args.get(1), "SCHEDULE")) {
        return Err(CommandError::Syntax);
    }
    let ordered = ctx.server.shared.saving.order(ctx.server.clock, ctx.server.shared.changes());
    ordered.map_err(|Busy| CommandError::SaveInProgress)?;
    ctx.reply.simple("Background saving started");
    Ok(())
}

/// SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE] [ABORT]: every stop flushes
pub(super) fn shutdown(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let (mut save, mut nosave, mut abort) = (false, false, false);
    for arg in args.from(1) {
        match () {
            () if is(arg, "SAVE") => save = true,
            () if is(arg, "NOSAVE") => nosave = true,
            () if is(arg, "ABORT") => abort = true,
            () if is(arg, "NOW") || is(arg, "FORCE") => {}
            () => return Err(CommandError::Syntax),
        }
    }
    if (save && nosave) || (abort && args.len() > 2) {
        return Err(CommandError::Syntax);
    }
    if abort {
        return Err(CommandError::NoShutdown);
    }
    if nosave {
        return Err(CommandError::ShutdownNoSave);
    }
    // As in Redis there is no reply: the connection ends.
    ctx.server.shared.end();
    Ok(())
}

/// WAIT numreplicas timeout: there are no replicas, so it does not wait
pub(super) fn wait(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    parse_i64(args.get(1)).ok_or(CommandError::NotInteger)?;
    let timeout = parse_i64(args.get(2)).ok_or(CommandError::TimeoutNotInteger)?;
    if timeout < 0 {
        return Err(CommandError::TimeoutNegative);
    }
    ctx.reply.int(0);
    Ok(())
}

/// WAITAOF numlocal numreplicas timeout: makes all writes before durable, and waits for no replica.
/// With `durability = fsync` they are when this is answered; otherwise a checkpoint is made now,
/// and the other clients of the loop wait meanwhile.
pub(super) fn waitaof(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let local = parse_i64(args.get(1)).ok_or(CommandError::NotInteger)?;
    let replicas = parse_i64(args.get(2)).ok_or(CommandError::NotInteger)?;
    let timeout = parse_i64(args.get(3)).ok_or(CommandError::TimeoutNotInteger)?;
    if !(0..=1).contains(&local) {
        return Err(CommandError::OutOfBounds { min: 0, max: 1 });
    }
    if replicas < 0 {
        return Err(CommandError::NotPositive);
    }
    if timeout < 0 {
        return Err(CommandError::TimeoutNegative);
    }
    let is_durable = ctx.server.holds_replies();
    if local == 1 && !is_durable {
        let saved = ctx.server.store.region().checkpoint();
        saved.map_err(|error| CommandError::Checkpoint(error.to_string()))?;
    }
    ctx.reply.array(2);
    ctx.reply.int(i64::from(is_durable || local == 1));
    ctx.reply.int(0);
    Ok(())
}

/// DEBUG SLEEP seconds, where allowed
pub(super) fn debug_sleep(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    if !ctx.server.config.debug_enabled {
        return Err(CommandError::DebugDisabled);
    }
    let seconds = text(args.get(2), 32).parse::<f64>().ok().filter(|s| (0.0..=3600.0).contains(s));
    let seconds = seconds.ok_or(CommandError::NotFloat)?;
    ctx.server.clock.sleep_ns((seconds * 1e9) as u64);
    ctx.reply.ok();
    Ok(())
}

/// ROLE: a master without replicas
pub(super) fn role(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.reply.array(3);
    ctx.reply.bulk(b"master");
    ctx.reply.int(0);
    ctx.reply.array(0);
    Ok(())
}

/// SLOWLOG GET [count]
pub(super) fn slowlog_get(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let slowlog = ctx.server.shared.slowlog();
    let entries = &slowlog.entries;
    let count = match args.len() {
        2 => 10,
        3 => match parse_i64(args.get(2)) {
            Some(-1) => entries.len(),
            Some(count @ 0..) => count as usize,
            _ => return Err(CommandError::SlowlogCount),
        },
        _ => return Err(CommandError::subcommand(args)),
    };
    let count = count.min(entries.len());
    ctx.reply.array(count);
    for entry in entries.iter().take(count) {
        ctx.reply.array(6);
        ctx.reply.len(entry.id);
        ctx.reply.len(entry.unix_s);
        ctx.reply.len(entry.time_us);
        ctx.reply.array(entry.args.len());
        entry.args.iter().for_each(|arg| ctx.reply.bulk(arg));
        ctx.reply.bulk(entry.client.as_bytes());
        ctx.reply.bulk(&entry.client_name);
    }
    Ok(())
}

/// SLOWLOG LEN
pub(super) fn slowlog_len(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.reply.len(ctx.server.shared.slowlog().entries.len() as u64);
    Ok(())
}

/// SLOWLOG RESET
pub(super) fn slowlog_reset(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.server.shared.slowlog().entries.clear();
    ctx.reply.ok();
    Ok(())
}

/// SLOWLOG HELP
pub(super) fn slowlog_help(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    super::introspect::help(ctx, "slowlog");
    Ok(())
}
