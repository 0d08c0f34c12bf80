//! A table of commands that only parse and answer, to measure the cost of a server without a store.
//! Only `examples/null` uses it.

use super::call::Outcome;
use super::context::Context;
use super::handler::{Command, Handler};
use super::spec::{Group, KeyOption, Keys, Spec, flag};
use crate::resp::Args;

const KEY: Keys = Keys { first: 1, last: 1, step: 1, count_at: 0, option: KeyOption::None };

/// GET and SET.
pub(super) static TABLE: &[Command] = &[
    spec("get", 2, flag::READ, Handler::Control(get)),
    spec("set", 3, flag::WRITE, Handler::Control(set)),
];

const fn spec(name: &'static str, arity: i32, flags: u32, handler: Handler) -> Command {
    let (group, since, summary) = (Group::String, "", "");
    Command::new(Spec { name, arity, flags, keys: KEY, group, since, summary }, handler)
}

fn get(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    let len = ctx.server.config.null_value_bytes.unwrap_or(0).min(VALUE.len());
    ctx.reply.bulk(&VALUE[..len]);
    Ok(())
}

fn set(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.reply.ok();
    Ok(())
}

static VALUE: [u8; 4096] = [b'x'; 4096];
