//! How much memory is in use: INFO's section about it and the MEMORY commands.
//!
//! `used_memory` counts the memory of the store alone, slot by slot, as `maxmemory` does: so all of
//! it is data, and the overhead and what a server has at its start are 0. The blocks that these
//! slots lie in are in `allocator_active`, the process' own memory is in `used_memory_rss`.

use std::fmt::{Result, Write};
use std::sync::atomic::Ordering::Relaxed;

use super::call::Outcome;
use super::context::{Clients, Context, Server};
use super::process;
use super::sections::zeros;
use crate::resp::{Args, Reply};

/// Memory in use, bytes.
struct Used {
    /// Values and the tables of keys.
    allocated: u64,
    /// The blocks that shards have taken for them.
    active: u64,
    /// The resident memory of the process.
    resident: u64,
}

impl Used {
    fn of(server: &Server<'_>) -> Self {
        let (allocated, capacity) = (server.facts.used_bytes, server.facts.capacity_bytes);
        let active = capacity.saturating_sub(server.store.heap().stats().free_bytes);
        Self { allocated, active: active.max(allocated), resident: process::resident_bytes() }
    }

    /// The names that a ratio has in INFO and in MEMORY STATS, and its two numbers of bytes.
    fn ratios(&self) -> [((&'static str, &'static str), u64, u64); 4] {
        [
            (("allocator_frag", "allocator-fragmentation"), self.active, self.allocated),
            (("allocator_rss", "allocator-rss"), self.resident, self.active),
            (("rss_overhead", "rss-overhead"), self.resident, self.resident),
            (("mem_fragmentation", "fragmentation"), self.resident, self.allocated),
        ]
    }
}

fn ratio(more: u64, less: u64) -> f64 {
    more as f64 / less.max(1) as f64
}

/// Scripts and functions, bytes and counts. A loop has one Lua state for both.
struct Scripts {
    state_bytes: u64,
    code_bytes: u64,
    scripts: usize,
    library_bytes: u64,
    libraries: usize,
    functions: usize,
}

impl Scripts {
    fn of(server: &Server<'_>) -> Self {
        let shared = server.shared;
        let (scripts, code_bytes) = shared.scripts.count();
        let libraries = shared.functions.libraries();
        let states = shared.loops.iter().map(|own| own.running.memory_bytes.load(Relaxed));
        let code = libraries.by_name.values().map(|library| library.code.len() as u64);
        Self {
            state_bytes: states.sum(),
            code_bytes: code_bytes as u64,
            scripts,
            library_bytes: code.sum(),
            libraries: libraries.by_name.len(),
            functions: libraries.functions(),
        }
    }
}

/// The section `# Memory` of INFO.
pub(super) fn section(server: &Server<'_>, clients: Clients, out: &mut String) -> Result {
    let facts = &server.facts;
    let used = Used::of(server);
    for (name, bytes) in [
        ("used_memory", used.allocated),
        ("used_memory_rss", used.resident),
        ("used_memory_peak", facts.used_bytes_max),
        ("total_system_memory", process::machine_bytes()),
        ("maxmemory", server.config.memory_max_bytes.unwrap_or(facts.capacity_bytes)),
    ] {
        write!(out, "{name}:{bytes}\r\n{name}_human:{}\r\n", human(bytes))?;
    }
    write!(
        out,
        "used_memory_peak_perc:{:.2}%\r\nused_memory_overhead:0\r\nused_memory_startup:0\r\n\
         used_memory_dataset:{}\r\nused_memory_dataset_perc:100.00%\r\n\
         allocator_allocated:{}\r\nallocator_active:{}\r\nallocator_resident:{}\r\n\
         maxmemory_policy:{}\r\nmem_clients_normal:{}\r\nmem_allocator:perdura-slots\r\n\
         lazyfree_pending_objects:{}\r\n",
        used.allocated as f64 * 100.0 / facts.used_bytes_max.max(1) as f64,
        used.allocated,
        used.allocated,
        used.active,
        used.resident,
        server.config.eviction.policy.name(),
        clients.memory_bytes,
        facts.detached,
    )?;
    for ((name, _), more, less) in used.ratios() {
        let bytes = more as i64 - less as i64;
        write!(out, "{name}_ratio:{:.2}\r\n{name}_bytes:{bytes}\r\n", ratio(more, less))?;
    }
    scripts_section(&Scripts::of(server), out)?;
    zeros(out, &ZEROS)
}

fn scripts_section(scripts: &Scripts, out: &mut String) -> Result {
    let Scripts { state_bytes, code_bytes, .. } = *scripts;
    write!(
        out,
        "used_memory_lua:{state_bytes}\r\nused_memory_lua_human:{}\r\n\
         used_memory_vm_eval:{state_bytes}\r\nused_memory_vm_functions:0\r\n\
         used_memory_vm_total:{state_bytes}\r\nused_memory_vm_total_human:{}\r\n\
         used_memory_scripts_eval:{code_bytes}\r\nnumber_of_cached_scripts:{}\r\n\
         used_memory_functions:{}\r\nnumber_of_functions:{}\r\nnumber_of_libraries:{}\r\n\
         used_memory_scripts:{code_bytes}\r\nused_memory_scripts_human:{}\r\n",
        human(state_bytes),
        human(state_bytes),
        scripts.scripts,
        scripts.library_bytes,
        scripts.functions,
        scripts.libraries,
        human(code_bytes),
    )
}

/// Memory for things that this server lacks: replicas, the buffer of an append-only file,
/// a defragmenter, a thread that frees deleted values.
const ZEROS: [&str; 8] = [
    "mem_not_counted_for_evict",
    "mem_replication_backlog",
    "mem_total_replication_buffers",
    "mem_clients_slaves",
    "mem_cluster_links",
    "mem_aof_buffer",
    "active_defrag_running",
    "lazyfreed_objects",
];

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

/// MEMORY DOCTOR
pub(super) fn doctor(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    let f = &ctx.server.facts;
    let mut advice = Vec::new();
    if f.capacity_bytes > 0 && f.used_bytes > f.capacity_bytes / 10 * 9 {
        advice.push("more than 90 % of the region is used: writes will soon be refused");
    }
    if f.region.stalls > 0 {
        advice.push("writers have waited for the cleaner: the budget or the device is too small");
    }
    if ctx.server.shared.latched.get().is_some() || f.failure.is_some() {
        advice.push("the device has failed: nothing written since is durable");
    }
    let text =
        if advice.is_empty() { "No memory problem found.".into() } else { advice.join("\n") };
    ctx.reply.verbatim(text.as_bytes());
    Ok(())
}

/// A value of MEMORY STATS.
enum Value {
    Count(u64),
    Signed(i64),
    Ratio(f64),
}

/// MEMORY STATS
pub(super) fn stats(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    use Value::{Count, Ratio, Signed};
    let clients = ctx.clients();
    let used = Used::of(ctx.server);
    let scripts = Scripts::of(ctx.server);
    let f = &ctx.server.facts;
    let keys: u64 = f.keys.iter().sum();
    let databases: Vec<usize> = (0..f.keys.len()).filter(|db| f.keys[*db] > 0).collect();
    let own = [
        ("capacity.bytes", Count(f.capacity_bytes)),
        ("dirty.bytes", Count(f.dirty_bytes)),
        ("dirty.budget-bytes", Count(f.budget_bytes)),
    ];
    let first = [
        ("peak.allocated", Count(f.used_bytes_max)),
        ("total.allocated", Count(used.allocated)),
        ("startup.allocated", Count(0)),
        ("replication.backlog", Count(0)),
        ("clients.slaves", Count(0)),
        ("clients.normal", Count(clients.memory_bytes as u64)),
        ("cluster.links", Count(0)),
        ("aof.buffer", Count(0)),
        ("lua.caches", Count(scripts.code_bytes)),
        ("functions.caches", Count(scripts.library_bytes)),
    ];
    let peak_percent = used.allocated as f64 * 100.0 / f.used_bytes_max.max(1) as f64;
    let last = [
        ("overhead.total", Count(0)),
        ("keys.count", Count(keys)),
        ("keys.bytes-per-key", Count(used.allocated.checked_div(keys).unwrap_or(0))),
        ("dataset.bytes", Count(used.allocated)),
        ("dataset.percentage", Ratio(100.0)),
        ("peak.percentage", Ratio(peak_percent)),
        ("allocator.allocated", Count(used.allocated)),
        ("allocator.active", Count(used.active)),
        ("allocator.resident", Count(used.resident)),
    ];
    let reply = &mut ctx.reply;
    let put = |reply: &mut Reply<'_>, (name, value): (&str, Value)| {
        reply.bulk(name.as_bytes());
        match value {
            Count(count) => reply.len(count),
            Signed(count) => reply.int(count),
            Ratio(ratio) => reply.double(ratio),
        }
    };
    let ratios = used.ratios();
    reply.map(own.len() + first.len() + databases.len() + last.len() + 2 * ratios.len());
    first.into_iter().for_each(|one| put(reply, one));
    for db in databases {
        reply.bulk(format!("db.{db}").as_bytes());
        reply.map(3);
        for table in ["main", "expires", "slot-to-keys"] {
            put(reply, (&format!("overhead.hashtable.{table}"), Count(0)));
        }
    }
    last.into_iter().for_each(|one| put(reply, one));
    for ((_, name), more, less) in ratios {
        let (ratio_name, bytes_name) = match name {
            "fragmentation" => (name.to_owned(), format!("{name}.bytes")),
            _ => (format!("{name}.ratio"), format!("{name}.bytes")),
        };
        put(reply, (&ratio_name, Ratio(ratio(more, less))));
        put(reply, (&bytes_name, Signed(more as i64 - less as i64)));
    }
    own.into_iter().for_each(|one| put(reply, one));
    Ok(())
}

/// MEMORY PURGE
pub(super) fn purge(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.server.store.free_some(u64::MAX);
    ctx.server.store.heap().reclaim();
    ctx.reply.ok();
    Ok(())
}

/// MEMORY MALLOC-STATS
pub(super) fn malloc_stats(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.reply.verbatim(b"Stats not supported for the current allocator");
    Ok(())
}

/// MEMORY HELP
pub(super) fn help(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    super::introspect::help(ctx, "memory");
    Ok(())
}
