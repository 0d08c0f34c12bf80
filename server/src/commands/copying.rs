//! SYNC, PSYNC and REPLCONF: a client that acts as a replica gets a copy of everything as of one
//! moment. It is no replica, because no changes follow.

use super::call::Outcome;
use super::context::Context;
use super::error::{CommandError, text};
use super::options::is;
use super::sections::run_id;
use crate::copying::Copying;
use crate::export::Parts;
use crate::number::parse_i64;
use crate::resp::Args;

/// SYNC; PSYNC replication-id offset
pub(super) fn sync(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    if ctx.session.is_monitor {
        // As in Redis, where a monitor counts as a replica.
        return Ok(());
    }
    let id = args.get(1);
    if args.len() > 1 {
        if args.len() > 3 && is(args.get(3), "FAILOVER") {
            return Err(CommandError::FailoverOfMaster);
        }
        parse_i64(args.get(2)).ok_or(CommandError::NotInteger)?;
        ctx.server.stats.sync_partial_err.add(u64::from(!id.starts_with(b"?")));
        if id.eq_ignore_ascii_case(run_id(ctx.server).as_bytes()) {
            // A replica that has its copy asks for what has changed since, again and again. Another
            // copy would not end that.
            return Err(CommandError::NoChanges);
        }
    }
    let dir = ctx.server.config.spill_dir.clone().unwrap_or_else(std::env::temp_dir);
    let ordered = ctx.server.shared.exporting.order_copy(dir, ctx.session.copy_parts);
    let dump = ordered.ok_or(CommandError::CopiesBusy)?;
    if args.len() > 1 {
        let head = format!("+FULLRESYNC {} 0\r\n", run_id(ctx.server));
        ctx.reply.raw(head.as_bytes());
    }
    ctx.server.stats.sync_full.add(1);
    ctx.session.copying = Some(Box::new(Copying::new(dump, ctx.server.now_ns)));
    ctx.session.closing = true;
    Ok(())
}

/// REPLCONF option value [option value ...]: of what a replica says of itself, only the parts of
/// the copy that it wants change anything here.
pub(super) fn replconf(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    let mut parts = ctx.session.copy_parts;
    for at in (1..args.len()).step_by(2) {
        let (option, value) = (args.get(at), args.get(at + 1));
        match () {
            () if is(option, "listening-port") => {
                parse_i64(value).ok_or(CommandError::NotInteger)?;
            }
            () if is(option, "rdb-only") => {
                let number = parse_i64(value).ok_or(CommandError::NotInteger)?;
                if !(0..=1).contains(&number) {
                    return Err(CommandError::OutOfBounds { min: 0, max: 1 });
                }
            }
            () if is(option, "rdb-filter-only") => {
                let words = value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
                parts = Parts { keys: false, libraries: false };
                for word in words {
                    if !is(word, "functions") {
                        return Err(CommandError::CopyFilter(text(word, 128)));
                    }
                    parts.libraries = true;
                }
            }
            // Nobody waits for an answer to these.
            () if is(option, "ack") || is(option, "getack") => return Ok(()),
            () if ["ip-address", "capa", "version"].iter().any(|known| is(option, known)) => {}
            () => return Err(CommandError::ReplconfOption(text(option, 128))),
        }
    }
    ctx.session.copy_parts = parts;
    ctx.reply.ok();
    Ok(())
}
