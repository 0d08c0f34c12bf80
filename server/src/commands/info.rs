//! INFO: the sections, and which of them are asked for.

use super::call::Outcome;
use super::context::{Clients, Context, Server};
use super::options::is;
use super::{devices, figures, latency, memory, sections};
use crate::resp::Args;

type Section = fn(&Server<'_>, Clients, &mut String) -> std::fmt::Result;

/// The sections in the order of the reply; the flag says whether INFO without arguments has them.
const SECTIONS: [(&str, bool, Section); 16] = [
    ("Server", true, sections::server),
    ("Clients", true, sections::clients),
    ("Memory", true, memory::section),
    ("Persistence", true, figures::persistence_section),
    ("Stats", true, sections::stats),
    ("Replication", true, sections::replication),
    ("CPU", true, sections::cpu),
    ("Modules", true, sections::modules),
    ("Commandstats", false, sections::commandstats),
    ("Errorstats", true, latency::errorstats),
    ("Latencystats", false, latency::latencystats),
    ("Cluster", true, sections::cluster),
    ("Keyspace", true, sections::keyspace),
    ("Perdura", true, figures::perdura_section),
    ("Devices", true, devices::devices_section),
    ("Backup", true, figures::backup_section),
];

/// INFO [section [section ...]]
pub(super) fn info(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let clients = ctx.clients();
    let asked = |name: &str| args.from(1).any(|arg| is(arg, name));
    let all = asked("all") || asked("everything");
    let default = args.len() == 1 || asked("default");
    let mut text = String::new();
    for (name, in_default, write) in SECTIONS {
        if all || (default && in_default) || asked(name) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            text.push_str(&format!("# {name}\r\n"));
            // Writing to a string does not fail.
            let _ = write(ctx.server, clients, &mut text);
        }
    }
    ctx.reply.verbatim(text.as_bytes());
    Ok(())
}

/// The sections that tell of the whole server, for who looks from outside its loops.
pub(crate) fn info_for_look(server: &Server<'_>) -> String {
    let clients = super::context::clients(server.shared, None);
    let mut text = String::new();
    for (name, in_default, write) in SECTIONS {
        if in_default && !NOT_LOOKED_AT.contains(&name) {
            // Writing to a string does not fail.
            let _ = write(server, clients, &mut text);
        }
    }
    text
}

/// Sections whose figures have forms of their own in a look, or are about what is not here.
const NOT_LOOKED_AT: [&str; 3] = ["Errorstats", "Modules", "Replication"];
