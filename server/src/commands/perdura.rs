//! PERDURA: the commands about the promise, which no other Redis server has.

use perdura_region::{BudgetWish, flush_time, promise};

use super::call::Outcome;
use super::context::{Context, Server};
use super::error::CommandError;
use super::options::is;
use crate::export::Progress;
use crate::number::parse_i64;
use crate::resp::Args;
use crate::session::Session;

/// Most bytes of a dump in one reply.
const EXPORT_READ_BYTES_MAX: u64 = 1 << 20;

/// PERDURA DRILL [NOFILL]: fills the budget and flushes for real. Every client waits until it is
/// done.
pub(super) fn drill(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let fill = match args.len() {
        2 => true,
        3 if is(args.get(2), "NOFILL") => false,
        _ => return Err(CommandError::Syntax),
    };
    ctx.server.check_budget_is_free()?;
    let config = &ctx.server.config;
    let region = ctx.server.store.region();
    let report = region
        .drill(fill, config.flush_threads)
        .map_err(|error| CommandError::Checkpoint(error.to_string()))?;
    let promised_ns = config.terms.map_or(0, |terms| {
        let time = flush_time(region.geometry(), terms.rate_bytes_per_s, report.budget_bytes);
        (time + terms.reserve).as_nanos()
    });
    let text = format!(
        "budget_bytes:{}\r\nused_bytes:{}\r\ndevice_bytes:{}\r\nelapsed_ns:{}\r\n\
         promised_ns:{promised_ns}\r\n",
        report.budget_bytes, report.used_bytes, report.flush.device_bytes, report.elapsed_ns,
    );
    ctx.reply.bulk(text.as_bytes());
    Ok(())
}

/// PERDURA BUDGET [bytes]: reads or changes the budget; a change holds when the reply is sent. A
/// budget that the warning does not cover is refused, and so is any if a guard decides.
pub(super) fn budget(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let region = ctx.server.store.region();
    if args.len() == 2 {
        ctx.reply.len(region.budget_bytes());
        return Ok(());
    }
    let bytes = parse_i64(args.get(2)).and_then(|n| u64::try_from(n).ok());
    let bytes = bytes.ok_or(CommandError::NotInteger)?;
    if ctx.server.config.has_guard {
        return Err(CommandError::GuardDecides);
    }
    ctx.server.check_budget_is_free()?;
    if let Some(terms) = &ctx.server.config.terms {
        promise(region.geometry(), terms, BudgetWish::Bytes(bytes))
            .map_err(|error| CommandError::Budget(error.to_string()))?;
    }
    region.set_budget(bytes).map_err(|error| CommandError::Budget(error.to_string()))?;
    ctx.reply.ok();
    Ok(())
}

/// PERDURA EXPORT BEGIN | STATUS | READ offset count | END: makes a dump of all keys as of one
/// moment, tells how far it is, and gives its bytes.
pub(super) fn export(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let exporting = &ctx.server.shared.exporting;
    let word = args.get(2);
    if is(word, "BEGIN") && args.len() == 3 {
        let dir = ctx.server.config.spill_dir.clone().unwrap_or_else(std::env::temp_dir);
        if !exporting.order(dir) {
            return Err(CommandError::ExportBusy);
        }
        ctx.reply.ok();
    } else if is(word, "STATUS") && args.len() == 3 {
        let text = match exporting.progress() {
            Progress::None => "state:none\r\n".to_owned(),
            Progress::Running { keys, keys_expected } => {
                format!("state:running\r\nkeys:{keys}\r\nkeys_expected:{keys_expected}\r\n")
            }
            Progress::Done { keys, bytes, unix_ms } => {
                format!("state:done\r\nkeys:{keys}\r\nbytes:{bytes}\r\nunix_ms:{unix_ms}\r\n")
            }
            Progress::Failed(why) => format!("state:failed\r\nwhy:{why}\r\n"),
        };
        ctx.reply.bulk(text.as_bytes());
    } else if is(word, "READ") && args.len() == 5 {
        let number = |at| parse_i64(args.get(at)).and_then(|n| u64::try_from(n).ok());
        let (Some(offset), Some(count)) = (number(3), number(4)) else {
            return Err(CommandError::NotInteger);
        };
        let mut bytes = vec![0; count.min(EXPORT_READ_BYTES_MAX) as usize];
        let read = exporting.read(offset, &mut bytes).ok_or(CommandError::NoExport)?;
        let read = read.map_err(|error| CommandError::Export(error.to_string()))?;
        ctx.reply.bulk(&bytes[..read]);
    } else if is(word, "END") && args.len() == 3 {
        if !exporting.drop_done() {
            return Err(CommandError::ExportBusy);
        }
        ctx.reply.ok();
    } else {
        return Err(CommandError::Syntax);
    }
    Ok(())
}

/// PERDURA IMPORT BEGIN | END: nothing expires from BEGIN until END, or until the connection ends,
/// because the client carries out another server's changes late.
pub(super) fn import(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let word = args.get(2);
    if is(word, "BEGIN") {
        if !std::mem::replace(&mut ctx.session.holds_expiry, true) {
            ctx.server.store.hold_expiry();
        }
    } else if is(word, "END") {
        end_import(ctx.server, ctx.session);
    } else {
        return Err(CommandError::Syntax);
    }
    ctx.reply.ok();
    Ok(())
}

/// Lets keys expire again, if the client has held that up.
pub(crate) fn end_import(server: &Server<'_>, session: &mut Session) {
    if std::mem::take(&mut session.holds_expiry) {
        server.store.release_expiry();
    }
}

/// PERDURA HELP
pub(super) fn help(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    super::introspect::help(ctx, "perdura");
    Ok(())
}
