//! CONFIG: reads and changes settings by their names in Redis.

use std::collections::BTreeMap;

use super::call::Outcome;
use super::context::{Context, Server};
use super::error::CommandError;
use super::error::text;
use super::options::{
    LISTPACK_BYTES_MAX, LISTPACK_HASH_ENTRIES_MAX, LISTPACK_SORTED_ENTRIES_MAX, is,
};
use crate::config::ServerConfig;
use crate::number::{parse_i64, parse_memory};
use crate::resp::Args;

/// CONFIG GET pattern [pattern ...]
pub(super) fn get(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let all = values(ctx.server);
    let mut found: Vec<(&[u8], &String)> = Vec::new();
    for (name, value) in &all {
        let mut fitting =
            args.from(2).filter(|arg| crate::glob::matches_ignoring_case(arg, name.as_bytes()));
        if let Some(arg) = fitting.next() {
            // The reply spells a setting's name as the request did.
            let is_pattern = arg.iter().any(|b| b"[*?".contains(b));
            found.push((if is_pattern { name.as_bytes() } else { arg }, value));
        }
    }
    ctx.reply.map(found.len());
    for (name, value) in found {
        ctx.reply.bulk(name);
        ctx.reply.bulk(value.as_bytes());
    }
    Ok(())
}

fn values(server: &Server<'_>) -> BTreeMap<&'static str, String> {
    let config = &server.config;
    let bind: Vec<String> = config.bind.iter().map(|addr| addr.ip().to_string()).collect();
    let socket = config.unix_socket.as_ref().map(|p| p.display().to_string());
    BTreeMap::from([
        ("aclfile", String::new()),
        ("activedefrag", "no".to_owned()),
        ("appendfsync", if server.holds_replies() { "always" } else { "no" }.to_owned()),
        // The nearest thing to an append-only file: acknowledged writes are on the device.
        ("appendonly", if server.holds_replies() { "yes" } else { "no" }.to_owned()),
        ("bind", bind.join(" ")),
        ("cluster-enabled", "no".to_owned()),
        ("client-output-buffer-limit", format!("normal {} 0 0", config.output_max_bytes)),
        ("compress", server.store.region().compression().name().to_owned()),
        ("databases", perdura_store::DATABASES.to_string()),
        ("daemonize", "no".to_owned()),
        ("durability", config.durability.name().to_owned()),
        // OBJECT ENCODING says "listpack" up to these limits.
        ("hash-max-listpack-entries", LISTPACK_HASH_ENTRIES_MAX.to_string()),
        ("hash-max-listpack-value", LISTPACK_BYTES_MAX.to_string()),
        ("hash-max-ziplist-entries", LISTPACK_HASH_ENTRIES_MAX.to_string()),
        ("hash-max-ziplist-value", LISTPACK_BYTES_MAX.to_string()),
        ("hll-sparse-max-bytes", crate::hll::SPARSE_BYTES_MAX.to_string()),
        ("hz", "10".to_owned()),
        ("io-threads", server.shared.loops.len().to_string()),
        ("latency-monitor-threshold", "0".to_owned()),
        ("latency-tracking", "no".to_owned()),
        ("maxclients", config.clients_max.to_string()),
        ("maxmemory", server.store.region().len_bytes().to_string()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("notify-keyspace-events", String::new()),
        ("port", server.shared.tcp_port.to_string()),
        ("proto-max-bulk-len", config.limits.bulk_max_bytes.to_string()),
        ("protected-mode", "yes".to_owned()),
        ("replicaof", String::new()),
        ("requirepass", config.requirepass.clone().unwrap_or_default()),
        ("save", String::new()),
        ("set-max-intset-entries", perdura_store::INT_SET_MAX.to_string()),
        ("set-max-listpack-entries", perdura_store::PACKED_SET_MAX.to_string()),
        ("set-max-listpack-value", perdura_store::PACKED_NAME_BYTES_MAX.to_string()),
        ("slaveof", String::new()),
        ("slowlog-log-slower-than", config.slowlog_slower_than_us.to_string()),
        ("slowlog-max-len", config.slowlog_len_max.to_string()),
        ("tcp-keepalive", config.tcp_keepalive_s.to_string()),
        ("tcp-backlog", crate::config::BACKLOG.to_string()),
        ("timeout", config.timeout_s.to_string()),
        ("unixsocket", socket.unwrap_or_default()),
        ("zset-max-listpack-entries", LISTPACK_SORTED_ENTRIES_MAX.to_string()),
        ("zset-max-listpack-value", LISTPACK_BYTES_MAX.to_string()),
        ("zset-max-ziplist-entries", LISTPACK_SORTED_ENTRIES_MAX.to_string()),
        ("zset-max-ziplist-value", LISTPACK_BYTES_MAX.to_string()),
    ])
}

/// CONFIG SET parameter value [parameter value ...]: all or none
pub(super) fn set(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    if args.len() % 2 == 1 {
        return Err(CommandError::Syntax);
    }
    let known = values(ctx.server);
    // Held to the end, so that no other loop changes the configuration meanwhile.
    let shared = ctx.server.shared;
    let mut held = shared.config();
    let mut changed = ServerConfig::clone(&held);
    let mut seen: Vec<&[u8]> = Vec::new();
    let mut memory_bytes = None;
    for at in (2..args.len()).step_by(2) {
        let (name, value) = (args.get(at), args.get(at + 1));
        let Some(name) = known.keys().find(|known| is(name, known)) else {
            return Err(CommandError::ConfigUnknown(text(name, 128)));
        };
        let refused = |why: &'static str| CommandError::ConfigSet {
            name: (*name).to_owned(),
            why: why.into(),
        };
        if seen.contains(&name.as_bytes()) {
            return Err(refused("duplicate parameter"));
        }
        seen.push(name.as_bytes());
        let number = |min: i64, max: i64| {
            let number =
                parse_i64(value).ok_or(refused("argument couldn't be parsed into an integer"))?;
            let fits = (min..=max).contains(&number);
            if fits {
                Ok(number)
            } else {
                Err(CommandError::ConfigSet {
                    name: (*name).to_owned(),
                    why: format!("argument must be between {min} and {max} inclusive").into(),
                })
            }
        };
        match *name {
            "maxclients" => {
                let clients = number(1, 1 << 20)? as usize;
                if crate::descriptors::clients_that_fit(clients) < clients {
                    return Err(refused(
                        "the operating system does not give the server so many descriptors",
                    ));
                }
                changed.clients_max = clients;
            }
            "maxmemory" => {
                let bytes =
                    parse_memory(value).ok_or(refused("argument must be a memory value"))?;
                let region = ctx.server.store.region();
                if bytes < region.len_bytes() {
                    return Err(refused("memory only grows"));
                }
                if bytes > region.geometry().reserved_bytes {
                    return Err(refused("more than was reserved when the image was made"));
                }
                memory_bytes = Some(bytes);
            }
            "timeout" => changed.timeout_s = number(0, i64::from(i32::MAX))? as u64,
            "tcp-keepalive" => changed.tcp_keepalive_s = number(0, i64::from(i32::MAX))? as u64,
            "slowlog-log-slower-than" => changed.slowlog_slower_than_us = number(-1, i64::MAX)?,
            "slowlog-max-len" => changed.slowlog_len_max = number(0, i64::MAX)? as usize,
            "proto-max-bulk-len" => {
                changed.limits.bulk_max_bytes = number(1 << 20, 512 << 20)? as usize;
            }
            "requirepass" => {
                let password = std::str::from_utf8(value).map_err(|_| refused("not UTF-8"))?;
                changed.requirepass = Some(password.to_owned()).filter(|p| !p.is_empty());
                if changed.check().is_err() {
                    return Err(refused(
                        "the server listens on an open address and needs a password",
                    ));
                }
            }
            _ => return Err(refused("can't set immutable config")),
        }
    }
    if let Some(bytes) = memory_bytes {
        // This comes last, because it alone may fail, and then nothing has changed.
        ctx.server.store.region().grow(bytes).map_err(|error| {
            tracing::error!(%error, bytes, "the memory was not enlarged");
            CommandError::ConfigSet {
                name: "maxmemory".to_owned(),
                why: "the image could not be enlarged; the server's log says why".into(),
            }
        })?;
    }
    shared.set_config(&mut held, changed);
    drop(held);
    ctx.server.take_config();
    ctx.reply.ok();
    Ok(())
}

/// CONFIG RESETSTAT
pub(super) fn resetstat(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.server.shared.reset_stats();
    ctx.reply.ok();
    Ok(())
}

/// CONFIG REWRITE
pub(super) fn rewrite(_ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    Err(CommandError::NoConfigFile)
}

/// CONFIG HELP
pub(super) fn help(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    super::introspect::help(ctx, "config");
    Ok(())
}
