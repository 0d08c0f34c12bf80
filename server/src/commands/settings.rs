//! CONFIG: reads and changes settings by their names in Redis.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::call::Outcome;
use super::context::{Context, Server};
use super::error::CommandError;
use super::error::text;
use super::options::is;
use crate::config::{ServerConfig, StartError};
use crate::number::parse_memory;
use crate::parameters::{self, inert};
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

/// The parameters by their names, each with its value.
fn values(server: &Server<'_>) -> BTreeMap<&'static str, String> {
    let config = &server.config;
    let bind: Vec<String> = config.bind.iter().map(|addr| addr.ip().to_string()).collect();
    let acl_file = config.acl_file.as_ref().map(|path| path.display().to_string());
    let socket = config.unix_socket.as_ref().map(|p| p.display().to_string());
    let memory_bytes = server.store.region().len_bytes();
    let mut all = BTreeMap::from([
        ("aclfile", acl_file.unwrap_or_default()),
        ("appendfsync", if server.holds_replies() { "always" } else { "no" }.to_owned()),
        // The nearest thing to an append-only file: acknowledged writes are on the device.
        ("appendonly", if server.holds_replies() { "yes" } else { "no" }.to_owned()),
        ("bind", bind.join(" ")),
        ("client-output-buffer-limit", format!("normal {} 0 0", config.output_max_bytes)),
        ("compress", server.store.region().compression().name().to_owned()),
        ("durability", config.durability.name().to_owned()),
        ("io-threads", server.shared.loops.len().to_string()),
        ("maxmemory", config.memory_max_bytes.unwrap_or(memory_bytes).to_string()),
        ("port", server.shared.tcp_port.to_string()),
        ("tls-port", server.shared.tls_port.to_string()),
        ("tcp-backlog", crate::config::BACKLOG.to_string()),
        ("unixsocket", socket.unwrap_or_default()),
        ("unixsocketperm", format!("{:o}", config.unix_socket_mode)),
    ]);
    for name in parameters::LIVE {
        all.insert(name, parameters::get(config, name).unwrap_or_default());
    }
    for parameter in inert::PARAMETERS {
        let value = config.inert.get(parameter.name).map_or(parameter.value, String::as_str);
        for name in [parameter.name, parameter.alias].into_iter().filter(|name| !name.is_empty()) {
            all.insert(name, value.to_owned());
        }
    }
    all
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
    let mut users = shared.users();
    let mut users_after = None;
    let mut changed = ServerConfig::clone(&held);
    let mut seen: Vec<&[u8]> = Vec::new();
    let mut memory = None;
    let mut changes_tls = false;
    for at in (2..args.len()).step_by(2) {
        let (name, value) = (args.get(at), args.get(at + 1));
        let Some(name) = known.keys().copied().find(|known| is(name, known)) else {
            return Err(CommandError::ConfigUnknown(text(name, 128)));
        };
        let refused = |why: Cow<'static, str>| CommandError::ConfigSet { name: name.into(), why };
        if seen.contains(&name.as_bytes()) {
            return Err(refused("duplicate parameter".into()));
        }
        seen.push(name.as_bytes());
        if let Some(outcome) = parameters::set(&mut changed, name, value) {
            outcome.map_err(refused)?;
            changes_tls |= name.starts_with("tls-");
            if name == "requirepass" {
                let after = users.with_password(changed.requirepass.as_deref());
                let open = |error: StartError| refused(error.of_change().into());
                changed.check_users(&after).map_err(open)?;
                users_after = Some(after);
            }
        } else if let Some(parameter) = inert::find(name) {
            let value = std::str::from_utf8(value).map_err(|_| refused("not UTF-8".into()))?;
            parameter.check(value).map_err(|why| refused(why.into()))?;
            tracing::info!(name, value, reason = parameter.why, "CONFIG SET changes nothing");
            changed.inert.insert(parameter.name, value.to_owned());
        } else if name == "maxmemory" {
            let bytes = parse_memory(value);
            let bytes = bytes.ok_or(refused("argument must be a memory value".into()))?;
            memory = Some(MemoryChange::of(bytes, ctx.server).map_err(|why| refused(why.into()))?);
        } else {
            return Err(refused("can't set immutable config".into()));
        }
    }
    if changes_tls && changed.listens_with_tls() {
        // Connections that there are go on as they began; new ones find the new certificate.
        changed.tls.load().map_err(|error| CommandError::ConfigSet {
            name: text(args.get(2), 128),
            why: error.to_string().into(),
        })?;
        changed.check_users(&users).map_err(|error| CommandError::ConfigSet {
            name: "tls-auth-clients".to_owned(),
            why: error.of_change().into(),
        })?;
        changed.tls.remark(ctx.server.unix_ms());
    }
    match memory {
        Some(MemoryChange::UseAtMost(bytes)) => changed.memory_max_bytes = bytes,
        Some(MemoryChange::Grow(bytes)) => {
            // This comes last, because it alone may fail, and then nothing has changed.
            ctx.server.store.region().grow(bytes).map_err(|error| {
                tracing::error!(%error, bytes, "the memory was not enlarged");
                CommandError::ConfigSet {
                    name: "maxmemory".to_owned(),
                    why: "the image could not be enlarged; the server's log says why".into(),
                }
            })?;
            changed.memory_max_bytes = None;
        }
        None => {}
    }
    changed.apply_to(ctx.server.store);
    if changed.notify != held.notify {
        shared.publish_events(changed.notify);
    }
    let memory_max_bytes = changed.memory_max_bytes;
    shared.set_config(&mut held, changed);
    if let Some(after) = users_after {
        shared.set_users(&mut users, after);
    }
    drop((held, users));
    ctx.server.take_config();
    if memory.is_some() {
        shared.memory_limit.look(ctx.server.store, memory_max_bytes);
        ctx.server.limit.room = shared.memory_limit.room();
    }
    ctx.reply.ok();
    Ok(())
}

/// What a new `maxmemory` means.
#[derive(Clone, Copy)]
enum MemoryChange {
    /// Memory is used up to here, or all that there is.
    UseAtMost(Option<u64>),
    /// There is to be so much memory.
    Grow(u64),
}

impl MemoryChange {
    fn of(bytes: u64, server: &Server<'_>) -> Result<Self, &'static str> {
        let region = server.store.region();
        match bytes {
            0 => Ok(Self::UseAtMost(None)),
            _ if bytes == region.len_bytes() => Ok(Self::UseAtMost(None)),
            _ if bytes < region.len_bytes() => Ok(Self::UseAtMost(Some(bytes))),
            _ if bytes > region.geometry().reserved_bytes => {
                Err("more than was reserved when the image was made")
            }
            _ => Ok(Self::Grow(bytes)),
        }
    }
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
