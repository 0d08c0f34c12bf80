//! Publish and subscribe.
//!
//! Nothing is kept: who is not connected misses a message. A message that a transaction publishes
//! is sent once the transaction has happened.

use super::call::Outcome;
use super::context::Context;
use super::error::CommandError;
use crate::resp::{Args, Reply};
use crate::session::Subscribed;
use crate::shared::{Message, Topic};

/// SUBSCRIBE channel [channel ...]
pub(super) fn subscribe(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    join(ctx, args, Topic::Channel)
}

/// PSUBSCRIBE pattern [pattern ...]
pub(super) fn psubscribe(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    join(ctx, args, Topic::Pattern)
}

/// SSUBSCRIBE channel [channel ...]
pub(super) fn ssubscribe(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    join(ctx, args, Topic::Shard)
}

fn join(ctx: &mut Context<'_, '_, '_>, args: Args<'_>, topic: Topic) -> Outcome {
    for name in args.from(1) {
        if ctx.session.subscribed.join(topic, name) {
            ctx.server.shared.topics.join(topic, name, &ctx.session.card);
        }
        let verb = ["subscribe", "psubscribe", "ssubscribe"][topic as usize];
        confirm(ctx, verb, Some(name), topic);
    }
    Ok(())
}

/// UNSUBSCRIBE [channel [channel ...]]
pub(super) fn unsubscribe(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    leave(ctx, args, Topic::Channel)
}

/// PUNSUBSCRIBE [pattern [pattern ...]]
pub(super) fn punsubscribe(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    leave(ctx, args, Topic::Pattern)
}

/// SUNSUBSCRIBE [channel [channel ...]]
pub(super) fn sunsubscribe(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    leave(ctx, args, Topic::Shard)
}

fn leave(ctx: &mut Context<'_, '_, '_>, args: Args<'_>, topic: Topic) -> Outcome {
    let verb = ["unsubscribe", "punsubscribe", "sunsubscribe"][topic as usize];
    let all: Vec<Box<[u8]>>;
    let names: Vec<&[u8]> = if args.len() == 1 {
        all = ctx.session.subscribed.names(topic);
        all.iter().map(|name| &**name).collect()
    } else {
        args.from(1).collect()
    };
    for name in &names {
        if ctx.session.subscribed.leave(topic, name) {
            ctx.server.shared.topics.leave(topic, name, ctx.session.card.id);
        }
        confirm(ctx, verb, Some(name), topic);
    }
    if names.is_empty() {
        confirm(ctx, verb, None, topic);
    }
    Ok(())
}

/// Gives the client the subscriptions back that it had before a transaction that did not happen.
pub(super) fn restore(ctx: &mut Context<'_, '_, '_>, before: &Subscribed) {
    let (topics, card) = (&ctx.server.shared.topics, &ctx.session.card);
    for topic in Topic::ALL {
        let now = &ctx.session.subscribed;
        for name in now.names(topic).iter().filter(|name| !before.has(topic, name)) {
            topics.leave(topic, name, card.id);
        }
        for name in before.names(topic).iter().filter(|name| !now.has(topic, name)) {
            topics.join(topic, name, card);
        }
    }
    ctx.session.subscribed = before.clone();
}

fn confirm(ctx: &mut Context<'_, '_, '_>, verb: &str, name: Option<&[u8]>, topic: Topic) {
    let subscribed = &ctx.session.subscribed;
    let count = match topic {
        Topic::Shard => subscribed.count(Topic::Shard),
        _ => subscribed.count(Topic::Channel) + subscribed.count(Topic::Pattern),
    };
    ctx.reply.push(3);
    ctx.reply.bulk(verb.as_bytes());
    ctx.reply.bulk_or_null(name);
    ctx.reply.len(count as u64);
}

/// PUBLISH channel message
pub(super) fn publish(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    send(ctx, args, Topic::Channel)
}

/// SPUBLISH channel message
pub(super) fn spublish(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    send(ctx, args, Topic::Shard)
}

fn send(ctx: &mut Context<'_, '_, '_>, args: Args<'_>, topic: Topic) -> Outcome {
    let messages = ctx.server.shared.topics.address(topic, args.get(1), args.get(2));
    ctx.reply.len(messages.iter().map(|message| message.to.len() as u64).sum());
    ctx.server.outgoing.extend(messages);
    Ok(())
}

/// PUBSUB CHANNELS [pattern]
pub(super) fn channels(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    list(ctx, args, Topic::Channel)
}

/// PUBSUB SHARDCHANNELS [pattern]
pub(super) fn shardchannels(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    list(ctx, args, Topic::Shard)
}

fn list(ctx: &mut Context<'_, '_, '_>, args: Args<'_>, topic: Topic) -> Outcome {
    if args.len() > 3 {
        return Err(CommandError::subcommand(args));
    }
    let pattern = (args.len() == 3).then(|| args.get(2));
    let names = ctx.server.shared.topics.names(topic, pattern);
    ctx.reply.array(names.len());
    names.iter().for_each(|name| ctx.reply.bulk(name));
    Ok(())
}

/// PUBSUB NUMSUB [channel [channel ...]]
pub(super) fn numsub(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    count(ctx, args, Topic::Channel)
}

/// PUBSUB SHARDNUMSUB [channel [channel ...]]
pub(super) fn shardnumsub(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    count(ctx, args, Topic::Shard)
}

fn count(ctx: &mut Context<'_, '_, '_>, args: Args<'_>, topic: Topic) -> Outcome {
    ctx.reply.array(2 * (args.len() - 2));
    for name in args.from(2) {
        ctx.reply.bulk(name);
        ctx.reply.len(ctx.server.shared.topics.subscribers(topic, name) as u64);
    }
    Ok(())
}

/// PUBSUB NUMPAT
pub(super) fn numpat(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.reply.len(ctx.server.shared.topics.count(Topic::Pattern) as u64);
    Ok(())
}

/// PUBSUB HELP
pub(super) fn help(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    super::introspect::help(ctx, "pubsub");
    Ok(())
}

/// Writes a message as its receiver gets it.
pub(crate) fn write_message(reply: &mut Reply<'_>, message: &Message) {
    match message.topic {
        Topic::Pattern => {
            reply.push(4);
            reply.bulk(b"pmessage");
            reply.bulk(&message.name);
        }
        Topic::Channel => {
            reply.push(3);
            reply.bulk(b"message");
        }
        Topic::Shard => {
            reply.push(3);
            reply.bulk(b"smessage");
        }
    }
    reply.bulk(&message.channel);
    reply.bulk(&message.payload);
}
