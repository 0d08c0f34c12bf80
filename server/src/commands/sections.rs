//! The sections of INFO: Redis's fields with this server's values. The sections about the promise
//! are in `figures`.
//!
//! A field about something that this server does not have (replicas, forks, a defragmenter) says
//! 0, which is the truth, because client libraries and monitoring tools ask for it by name.

use std::fmt::{Result, Write};

use perdura_rdb::crc64;
use perdura_store::DATABASES;

use super::context::{Clients, Server};
use super::process;
use crate::REDIS_VERSION;
use crate::acl::Reason;
use crate::shared::Topic;

pub(super) fn server(server: &Server<'_>, _: Clients, out: &mut String) -> Result {
    let uptime_s = server.now_ns.saturating_sub(server.shared.started_ns) / 1_000_000_000;
    let unix_ms = server.unix_ms();
    let supervised = if std::env::var_os("NOTIFY_SOCKET").is_some() { "systemd" } else { "no" };
    write!(
        out,
        "redis_version:{REDIS_VERSION}\r\nredis_git_sha1:00000000\r\nredis_git_dirty:0\r\n\
         redis_build_id:{}\r\nredis_mode:standalone\r\nserver_name:perdura\r\n\
         perdura_version:{}\r\nos:{}\r\n\
         arch_bits:{}\r\nmonotonic_clock:POSIX clock_gettime\r\nmultiplexing_api:{}\r\n\
         atomicvar_api:rust-core\r\ngcc_version:0.0.0\r\nprocess_id:{}\r\n\
         process_supervised:{supervised}\r\nrun_id:{}\r\ntcp_port:{}\r\n\
         server_time_usec:{}\r\nuptime_in_seconds:{uptime_s}\r\nuptime_in_days:{}\r\nhz:10\r\n\
         configured_hz:10\r\nlru_clock:{}\r\nexecutable:{}\r\nconfig_file:{}\r\n\
         io_threads_active:{}\r\n",
        build_id(),
        env!("CARGO_PKG_VERSION"),
        process::system(),
        usize::BITS,
        server.multiplexing,
        std::process::id(),
        run_id(server),
        server.shared.tcp_port,
        unix_ms * 1000,
        uptime_s / 86_400,
        (unix_ms / 1000) & 0xff_ffff,
        process::executable(),
        server.config.config_file.as_deref().map_or(String::new(), |f| f.display().to_string()),
        u8::from(server.shared.loops.len() > 1),
    )
}

/// Sixteen digits that are the same for all servers of one version.
fn build_id() -> String {
    format!("{:016x}", crc64(0, concat!("perdura ", env!("CARGO_PKG_VERSION")).as_bytes()))
}

/// Makes forty digits that no other run of a server on this machine has.
pub(super) fn run_id(server: &Server<'_>) -> String {
    let (started_ms, pid) = (server.shared.started_unix_ms, std::process::id());
    format!("{started_ms:016x}{:016x}{pid:08x}", server.shared.started_ns)
}

pub(super) fn clients(server: &Server<'_>, clients: Clients, out: &mut String) -> Result {
    let Clients { connected, blocked, input_bytes_max, output_bytes_max, .. } = clients;
    let waiters = &server.shared.waiters;
    let (_, with_deadline) = waiters.clients();
    let (keys, keys_on_other) = waiters.keys();
    write!(
        out,
        "connected_clients:{connected}\r\ncluster_connections:0\r\nmaxclients:{}\r\n\
         client_recent_max_input_buffer:{input_bytes_max}\r\n\
         client_recent_max_output_buffer:{output_bytes_max}\r\nblocked_clients:{blocked}\r\n\
         tracking_clients:{}\r\nclients_in_timeout_table:{with_deadline}\r\n\
         total_blocking_keys:{keys}\r\ntotal_blocking_keys_on_nokey:{keys_on_other}\r\n",
        server.config.clients_max,
        server.shared.tracking.clients(),
    )
}

pub(super) fn stats(server: &Server<'_>, _: Clients, out: &mut String) -> Result {
    let (s, lately) = (server.shared.stats(), server.shared.lately());
    let topics = &server.shared.topics;
    write!(
        out,
        "total_connections_received:{}\r\ntotal_commands_processed:{}\r\n\
         instantaneous_ops_per_sec:{}\r\ntotal_net_input_bytes:{}\r\n\
         total_net_output_bytes:{}\r\ninstantaneous_input_kbps:{:.2}\r\n\
         instantaneous_output_kbps:{:.2}\r\nrejected_connections:{}\r\nexpired_keys:{}\r\n\
         expired_subkeys:{}\r\nevicted_keys:{}\r\n\
         keyspace_hits:{}\r\nkeyspace_misses:{}\r\n\
         client_output_buffer_limit_disconnections:{}\r\ntotal_error_replies:{}\r\n\
         total_reads_processed:{}\r\ntotal_writes_processed:{}\r\n\
         sync_full:{}\r\nsync_partial_err:{}\r\n\
         pubsub_channels:{}\r\npubsub_patterns:{}\r\npubsubshard_channels:{}\r\n\
         expire_cycle_cpu_milliseconds:{}\r\ndump_payload_sanitizations:{}\r\n\
         eventloop_cycles:{}\r\neventloop_duration_sum:{}\r\neventloop_duration_cmd_sum:{}\r\n\
         instantaneous_eventloop_cycles_per_sec:{}\r\n\
         instantaneous_eventloop_duration_usec:{}\r\n",
        s.connections.get(),
        s.commands.get(),
        lately.commands,
        s.net_input_bytes.get(),
        s.net_output_bytes.get(),
        lately.input_bytes as f64 / 1024.0,
        lately.output_bytes as f64 / 1024.0,
        s.rejected_connections.get(),
        s.expired_keys.get(),
        server.store.expired_fields(),
        server.store.evicted_keys(),
        s.keyspace_hits.get(),
        s.keyspace_misses.get(),
        s.output_limit_disconnections.get(),
        s.errors.get(),
        s.reads.get(),
        s.writes.get(),
        s.sync_full.get(),
        s.sync_partial_err.get(),
        topics.count(Topic::Channel),
        topics.count(Topic::Pattern),
        topics.count(Topic::Shard),
        s.expiry_ns.get() / 1_000_000,
        // Every payload that RESTORE takes is checked.
        server.index.find(b"restore", None).map_or(0, |(row, _)| s.by_command[row].calls.get()),
        s.turns.get(),
        s.busy_ns.get() / 1000,
        s.by_command.iter().map(|command| command.time_ns.get()).sum::<u64>() / 1000,
        lately.turns,
        lately.busy_ns / 1000 / lately.turns.max(1),
    )?;
    for reason in [Reason::Auth, Reason::Command, Reason::Key, Reason::Channel] {
        let name = if reason == Reason::Command { "cmd" } else { reason.word() };
        let count = s.denied[reason as usize].get();
        write!(out, "acl_access_denied_{name}:{count}\r\n")?;
    }
    let (keys, items, prefixes) = server.shared.tracking.sizes();
    write!(
        out,
        "tracking_total_keys:{keys}\r\ntracking_total_items:{items}\r\n\
         tracking_total_prefixes:{prefixes}\r\n"
    )?;
    out.push_str("expired_stale_perc:0.00\r\ninstantaneous_input_repl_kbps:0.00\r\n");
    out.push_str("instantaneous_output_repl_kbps:0.00\r\n");
    zeros(out, &STATS_ZEROS)
}

/// Counters of things that this server never does: replicate, fork, move values to gather free
/// memory, hand sockets to threads for reading and writing, leave expired keys for later.
const STATS_ZEROS: [&str; 22] = [
    "expired_time_cap_reached_count",
    "active_defrag_hits",
    "active_defrag_misses",
    "active_defrag_key_hits",
    "active_defrag_key_misses",
    "total_active_defrag_time",
    "current_active_defrag_time",
    "io_threaded_reads_processed",
    "io_threaded_writes_processed",
    "reply_buffer_shrinks",
    "reply_buffer_expands",
    "total_net_repl_input_bytes",
    "total_net_repl_output_bytes",
    "sync_partial_ok",
    "evicted_clients",
    "total_eviction_exceeded_time",
    "current_eviction_exceeded_time",
    "latest_fork_usec",
    "total_forks",
    "migrate_cached_sockets",
    "slave_expires_tracked_keys",
    "unexpected_error_replies",
];

pub(super) fn replication(server: &Server<'_>, _: Clients, out: &mut String) -> Result {
    let (id, none) = (run_id(server), "0".repeat(40));
    write!(
        out,
        "role:master\r\nconnected_slaves:0\r\nmaster_failover_state:no-failover\r\n\
         master_replid:{id}\r\nmaster_replid2:{none}\r\nmaster_repl_offset:0\r\n\
         second_repl_offset:-1\r\nrepl_backlog_active:0\r\nrepl_backlog_size:0\r\n\
         repl_backlog_first_byte_offset:0\r\nrepl_backlog_histlen:0\r\n",
    )
}

pub(super) fn cpu(_: &Server<'_>, _: Clients, out: &mut String) -> Result {
    let (all, one) = (process::process_cpu(), process::thread_cpu());
    for (name, seconds) in [
        ("sys", all.system_s),
        ("user", all.user_s),
        ("sys_children", all.children_system_s),
        ("user_children", all.children_user_s),
        ("sys_main_thread", one.system_s),
        ("user_main_thread", one.user_s),
    ] {
        write!(out, "used_cpu_{name}:{seconds:.6}\r\n")?;
    }
    Ok(())
}

/// Writes nothing: there are no modules, and the section is its heading.
pub(super) fn modules(_: &Server<'_>, _: Clients, _: &mut String) -> Result {
    Ok(())
}

pub(super) fn commandstats(server: &Server<'_>, _: Clients, out: &mut String) -> Result {
    for (spec, s) in server.index.specs().iter().zip(&server.shared.stats().by_command) {
        let (calls, rejected) = (s.calls.get(), s.rejected.get());
        if calls + rejected > 0 {
            let us = s.time_ns.get() / 1000;
            write!(
                out,
                "cmdstat_{}:calls={},usec={us},usec_per_call={:.2},rejected_calls={},\
                 failed_calls={}\r\n",
                spec.name,
                calls,
                us as f64 / calls.max(1) as f64,
                rejected,
                s.failed.get(),
            )?;
        }
    }
    Ok(())
}

pub(super) fn cluster(_: &Server<'_>, _: Clients, out: &mut String) -> Result {
    zeros(out, &["cluster_enabled"])
}

pub(super) fn keyspace(server: &Server<'_>, _: Clients, out: &mut String) -> Result {
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

pub(super) fn zeros(out: &mut String, names: &[&str]) -> Result {
    names.iter().try_for_each(|name| write!(out, "{name}:0\r\n"))
}
