//! INFO: what the server knows about itself, in Redis's sections and one of our own.

use std::fmt::Write;

use perdura_store::DATABASES;

use super::connection::REDIS_VERSION;
use super::context::{Context, Server};
use super::options::is;
use super::spec::Outcome;
use super::table::TABLE;
use crate::resp::Args;

type Section = fn(&Server<'_>, usize, &mut String) -> std::fmt::Result;

/// In the order of the reply; the flag: part of INFO without arguments.
const SECTIONS: [(&str, bool, Section); 9] = [
    ("Server", true, server_section),
    ("Clients", true, clients_section),
    ("Memory", true, memory_section),
    ("Persistence", true, super::figures::persistence_section),
    ("Stats", true, stats_section),
    ("CPU", true, cpu_section),
    ("Commandstats", false, commandstats_section),
    ("Keyspace", true, keyspace_section),
    ("Perdura", true, super::figures::perdura_section),
];

/// INFO [section [section ...]]
pub(super) fn info(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let connected = ctx.peers.connected();
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
            let _ = write(ctx.server, connected, &mut text);
        }
    }
    ctx.reply.verbatim(text.as_bytes());
    Ok(())
}

fn server_section(server: &Server<'_>, _: usize, out: &mut String) -> std::fmt::Result {
    let uptime_s = server.now_ns.saturating_sub(server.started_ns) / 1_000_000_000;
    write!(
        out,
        "redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nserver_name:perdura\r\n\
         perdura_version:{}\r\nos:{} {}\r\narch_bits:{}\r\nmultiplexing_api:{}\r\n\
         process_id:{}\r\ntcp_port:{}\r\nserver_time_usec:{}\r\nuptime_in_seconds:{uptime_s}\r\n\
         uptime_in_days:{}\r\nhz:10\r\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
        usize::BITS,
        server.multiplexing,
        std::process::id(),
        server.tcp_port,
        server.unix_ms() * 1000,
        uptime_s / 86_400,
    )
}

fn clients_section(server: &Server<'_>, connected: usize, out: &mut String) -> std::fmt::Result {
    write!(
        out,
        "connected_clients:{connected}\r\nmaxclients:{}\r\nblocked_clients:0\r\n",
        server.config.clients_max
    )
}

fn memory_section(server: &Server<'_>, _: usize, out: &mut String) -> std::fmt::Result {
    let (used, capacity) = (server.facts.used_bytes, server.facts.capacity_bytes);
    write!(
        out,
        "used_memory:{used}\r\nused_memory_human:{}\r\nused_memory_rss:{}\r\n\
         maxmemory:{capacity}\r\nmaxmemory_human:{}\r\nmaxmemory_policy:noeviction\r\n\
         mem_allocator:perdura-heap\r\n",
        human(used),
        resident_bytes(),
        human(capacity),
    )
}

fn stats_section(server: &Server<'_>, _: usize, out: &mut String) -> std::fmt::Result {
    let s = &server.stats;
    write!(
        out,
        "total_connections_received:{}\r\ntotal_commands_processed:{}\r\n\
         total_net_input_bytes:{}\r\ntotal_net_output_bytes:{}\r\nrejected_connections:{}\r\n\
         expired_keys:{}\r\nevicted_keys:0\r\nkeyspace_hits:{}\r\nkeyspace_misses:{}\r\n\
         client_output_buffer_limit_disconnections:{}\r\ntotal_error_replies:{}\r\n",
        s.connections,
        s.commands,
        s.net_input_bytes,
        s.net_output_bytes,
        s.rejected_connections,
        s.expired_keys,
        s.keyspace_hits,
        s.keyspace_misses,
        s.output_limit_disconnections,
        s.errors,
    )
}

fn cpu_section(_: &Server<'_>, _: usize, out: &mut String) -> std::fmt::Result {
    let (user_s, system_s) = cpu_seconds();
    write!(out, "used_cpu_sys:{system_s:.6}\r\nused_cpu_user:{user_s:.6}\r\n")
}

fn commandstats_section(server: &Server<'_>, _: usize, out: &mut String) -> std::fmt::Result {
    for (spec, s) in TABLE.iter().zip(&server.stats.by_command) {
        if s.calls + s.rejected > 0 {
            let us = s.time_ns / 1000;
            write!(
                out,
                "cmdstat_{}:calls={},usec={us},usec_per_call={:.2},rejected_calls={},failed_calls={}\r\n",
                spec.name,
                s.calls,
                us as f64 / s.calls.max(1) as f64,
                s.rejected,
                s.failed,
            )?;
        }
    }
    Ok(())
}

fn keyspace_section(server: &Server<'_>, _: usize, out: &mut String) -> std::fmt::Result {
    for db in 0..DATABASES {
        let keys = server.facts.keys[usize::from(db)];
        let expires = server.facts.keys_with_expiry[usize::from(db)];
        if keys > 0 {
            // The mean time to live would take a walk over all of them.
            write!(out, "db{db}:keys={keys},expires={expires},avg_ttl=0\r\n")?;
        }
    }
    Ok(())
}

fn human(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, "B");
    for larger in ["K", "M", "G", "T"] {
        if value >= 1024.0 {
            value /= 1024.0;
            unit = larger;
        }
    }
    format!("{value:.2}{unit}")
}

/// Resident memory of the process; 0 where the system does not say.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|p| p.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// User and system time of the process; zeros where the system does not say.
fn cpu_seconds() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in brackets, may contain anything; the fields counted here begin after it.
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks = |at: usize| fields.split(' ').nth(at).and_then(|t| t.parse().ok()).unwrap_or(0.0);
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    (ticks(11) / per_second, ticks(12) / per_second)
}
