//! PERDURA: the commands about the promise, which no other Redis server has.

use perdura_region::{BudgetWish, flush_time, promise};

use super::call::Outcome;
use super::context::Context;
use super::error::CommandError;
use super::options::is;
use crate::number::parse_i64;
use crate::resp::Args;

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

/// PERDURA HELP
pub(super) fn help(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    super::introspect::help(ctx, "perdura");
    Ok(())
}
