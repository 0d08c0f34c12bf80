//! The state of this moment as JSON, for the page.

use perdura_server::{CommandLook, Spread};
use serde_json::{Value, json};

use crate::devices;
use crate::fields::Fields;
use crate::station::{Moment, Station};
use crate::status::Status;
use crate::tenants::Tenants;

/// Parts of memory whose heat is shown.
pub const HEAT_CELLS: usize = 256;
/// Commands that are shown: those with the most calls of late.
const COMMANDS_MAX: usize = 20;

/// Counters whose rates are shown, by the names of the JSON.
const RATES: [(&str, &str); 11] = [
    ("commands", "total_commands_processed"),
    ("dirtied_bytes", "dirtied_bytes"),
    ("flushed_bytes", "device_bytes"),
    ("cleaned_bytes", "cleaned_bytes"),
    ("drained_bytes", "drained_bytes"),
    ("compacted_bytes", "compacted_bytes"),
    ("stalls", "stalls"),
    ("received_bytes", "total_net_input_bytes"),
    ("sent_bytes", "total_net_output_bytes"),
    ("evicted_keys", "evicted_keys"),
    ("expired_keys", "expired_keys"),
];

/// Numbers that are shown as they are.
const NUMBERS: [&str; 26] = [
    "budget_now_bytes",
    "dirty_bytes_max",
    "observed_rate_bytes_per_s",
    "log_bytes",
    "device_bytes",
    "stalls",
    "stall_ns",
    "stall_ns_max",
    "checkpoints",
    "cut_ns_max",
    "used_memory",
    "used_memory_peak",
    "maxmemory",
    "used_memory_rss",
    "evicted_keys",
    "expired_keys",
    "keyspace_hits",
    "keyspace_misses",
    "connected_clients",
    "maxclients",
    "blocked_clients",
    "rejected_connections",
    "uptime_in_seconds",
    "memory_hit_rate",
    "far_reads",
    "latched",
];

/// The text. Rates are those between the last two ticks of `station`.
pub fn json(moment: &Moment, station: &Station, heat: Vec<u8>, tenants: Option<Tenants>) -> String {
    let fields = Fields::of(&moment.look.info);
    let status = Status::of_fields(&fields);
    let before = station.lately[1].as_ref().or(station.lately[0].as_ref());
    let ticks = station.last.as_ref().zip(station.previous.as_ref());
    let rates = RATES.map(|(name, field)| {
        let rate = ticks.and_then(|(last, previous)| last.rate(field, previous));
        (name.to_owned(), json!(rate))
    });
    let numbers = NUMBERS.map(|name| (name.to_owned(), json!(fields.number(name))));
    let keys =
        fields.numbered("db").into_iter().filter_map(|(_, db)| db.get("keys")?.parse::<u64>().ok());
    let before = station.lately[0].as_ref().or(before);
    let word = |name| fields.get(name).filter(|word| !word.is_empty());
    let is_loading = fields.get("loading") == Some("1");
    let loading = is_loading.then(|| {
        let bytes = |name| fields.number(name);
        json!({ "done": bytes("loading_loaded_bytes"), "wanted": bytes("loading_total_bytes") })
    });
    json!({
        "unix_s": moment.unix_s,
        "version": word("perdura_version"),
        "status": status.as_ref().ok(),
        "status_error": status.as_ref().err().map(ToString::to_string),
        "numbers": numbers.into_iter().collect::<serde_json::Map<_, _>>(),
        "rates_per_s": rates.into_iter().collect::<serde_json::Map<_, _>>(),
        "keys": keys.sum::<u64>(),
        "eviction": word("maxmemory_policy"),
        "power": {
            "state": word("power_state"),
            "told_by": word("power_told_by"),
            "left_s": fields.number("power_left_seconds").filter(|left| *left >= 0.0),
            "source_lost": fields.get("power_source_lost") == Some("1"),
            "demand": word("power_demand"),
            "demand_met": fields.get("power_demand_met") != Some("0"),
            "battery_s": fields.number("battery_seconds"),
            "battery_lost": fields.get("battery_lost") == Some("1"),
        },
        "how": {
            "tracking": word("tracking"),
            "device": word("device"),
            "memory": word("memory_lock"),
            "compression": word("compression"),
        },
        "loading": loading,
        "commands": commands(moment, before),
        "heat": heat,
        "devices": devices::of_fields(&fields),
        "tenants": tenants,
    })
    .to_string()
}

/// The commands of late: how many, and how long they took. Those that were not called of late have
/// the times since the start.
fn commands(moment: &Moment, before: Option<&Moment>) -> Value {
    let time_s = before.map(|before| moment.now_ns.saturating_sub(before.now_ns) as f64 / 1e9);
    let of = |command: &CommandLook| {
        let mut old = before.into_iter().flat_map(|before| &before.look.commands);
        let none = Spread::default();
        let then = old.find(|old| old.name == command.name);
        let lately = command.spread.since(then.map_or(&none, |then| &then.spread));
        let calls = command.calls.saturating_sub(then.map_or(0, |then| then.calls));
        let spread = if lately.count() > 0 { &lately } else { &command.spread };
        let us = |percent| spread.percentile(percent).map(|ns| ns as f64 / 1e3);
        let per_s = time_s.filter(|time_s| *time_s > 0.0).map(|time_s| calls as f64 / time_s);
        let value = json!({
            "name": command.name,
            "calls": command.calls,
            "failed": command.failed,
            "rejected": command.rejected,
            "per_s": per_s,
            "p50_us": us(50.0),
            "p99_us": us(99.0),
            "max_us": us(100.0),
            "lately": lately.count() > 0,
        });
        (calls, command.calls, value)
    };
    let mut all: Vec<_> = moment.look.commands.iter().map(of).collect();
    all.sort_by_key(|(lately, calls, _)| std::cmp::Reverse((*lately, *calls)));
    all.into_iter().take(COMMANDS_MAX).map(|(_, _, value)| value).collect()
}
