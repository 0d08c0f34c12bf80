//! Commands about what this server does not have, answered as by a Redis that does not use it:
//! modules, and a master to copy. Clients and their tools give them without a second thought.

use super::call::Outcome;
use super::context::Context;
use super::error::CommandError;
use super::options::is;
use crate::REDIS_VERSION;
use crate::number::parse_i64;
use crate::resp::Args;

/// MODULE LIST: no modules
pub(super) fn module_list(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.reply.array(0);
    Ok(())
}

/// MODULE HELP
pub(super) fn module_help(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    super::introspect::help(ctx, "module");
    Ok(())
}

/// REPLICAOF NO ONE and SLAVEOF NO ONE: the server is a master already
pub(super) fn replicaof(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    if !is(args.get(1), "NO") || !is(args.get(2), "ONE") {
        return Err(CommandError::NoReplication);
    }
    ctx.reply.ok();
    Ok(())
}

/// LOLWUT [VERSION version] [argument ...]: the version, as of a Redis without a drawing
pub(super) fn lolwut(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    if args.len() >= 3 && is(args.get(1), "VERSION") {
        parse_i64(args.get(2)).ok_or(CommandError::NotInteger)?;
    }
    ctx.reply.verbatim(format!("Redis ver. {REDIS_VERSION}\n").as_bytes());
    Ok(())
}
