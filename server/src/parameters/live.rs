//! The parameters that a running server heeds, as words: read and set in a [`ServerConfig`].

use std::borrow::Cow;

use perdura_store::{ChunkLimits, EvictionPolicy, SmallSets};

use crate::config::ServerConfig;
use crate::number::{parse_i64, parse_memory};
use crate::parameters::{Notify, tls};

/// The sizes up to which values are small. Of hashes, lists and sorted sets only OBJECT ENCODING
/// says so: their layout in memory has a limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encodings {
    /// Fields of a hash, and bytes of the longest field or value.
    pub hash: (u64, u64),
    /// Elements of a list or, where it is negative, a step of its bytes.
    pub list: i32,
    /// Members of a sorted set, and bytes of the longest.
    pub sorted: (u64, u64),
    /// Sets, which have another layout in memory when they are small.
    pub sets: SmallSets,
    /// Chunks of streams.
    pub streams: ChunkLimits,
}

impl Default for Encodings {
    fn default() -> Self {
        Self {
            hash: (512, 64),
            list: -2,
            sorted: (128, 64),
            sets: SmallSets::default(),
            streams: ChunkLimits::default(),
        }
    }
}

/// The names, and the older names of the same parameters.
const OLDER: [(&str, &str); 5] = [
    ("hash-max-ziplist-entries", "hash-max-listpack-entries"),
    ("hash-max-ziplist-value", "hash-max-listpack-value"),
    ("list-max-ziplist-size", "list-max-listpack-size"),
    ("zset-max-ziplist-entries", "zset-max-listpack-entries"),
    ("zset-max-ziplist-value", "zset-max-listpack-value"),
];

/// The names of all parameters of this file.
pub const LIVE: [&str; 44] = [
    "acl-pubsub-default",
    "acllog-max-len",
    "busy-reply-threshold",
    "hash-max-listpack-entries",
    "hash-max-listpack-value",
    "hash-max-ziplist-entries",
    "hash-max-ziplist-value",
    "hll-sparse-max-bytes",
    "latency-monitor-threshold",
    "latency-tracking",
    "latency-tracking-info-percentiles",
    "lfu-decay-time",
    "lfu-log-factor",
    "list-max-listpack-size",
    "list-max-ziplist-size",
    "lua-time-limit",
    "maxclients",
    "maxmemory-policy",
    "maxmemory-samples",
    "notify-keyspace-events",
    "proto-max-bulk-len",
    "repl-timeout",
    "requirepass",
    "script-memory-limit",
    "set-max-intset-entries",
    "set-max-listpack-entries",
    "set-max-listpack-value",
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "stream-node-max-bytes",
    "stream-node-max-entries",
    "tcp-keepalive",
    "timeout",
    "tls-auth-clients",
    "tls-ca-cert-dir",
    "tls-ca-cert-file",
    "tls-cert-file",
    "tls-key-file",
    "tls-protocols",
    "tracking-table-max-keys",
    "zset-max-listpack-entries",
    "zset-max-listpack-value",
    "zset-max-ziplist-entries",
    "zset-max-ziplist-value",
];

fn present(name: &str) -> &str {
    OLDER.iter().find(|(older, _)| *older == name).map_or(name, |(_, present)| present)
}

/// The value of a parameter, whose name is in lower case; `None` if it is not one of these.
pub fn get(config: &ServerConfig, name: &str) -> Option<String> {
    let (encodings, eviction) = (&config.encodings, &config.eviction);
    let number = match present(name) {
        "requirepass" => return Some(config.requirepass.clone().unwrap_or_default()),
        "maxmemory-policy" => return Some(eviction.policy.name().to_owned()),
        "acl-pubsub-default" => {
            let all = config.acl_all_channels;
            return Some(if all { "allchannels" } else { "resetchannels" }.to_owned());
        }
        "latency-tracking" => {
            return Some(if config.latency_tracking { "yes" } else { "no" }.to_owned());
        }
        "latency-tracking-info-percentiles" => {
            let all: Vec<String> = config.latency_percentiles.iter().map(f64::to_string).collect();
            return Some(all.join(" "));
        }
        "notify-keyspace-events" => return Some(config.notify.letters()),
        "hll-sparse-max-bytes" => config.hll_sparse_max_bytes,
        "acllog-max-len" => config.acl_log_len_max as u64,
        "latency-monitor-threshold" => config.latency_threshold_ms,
        "tracking-table-max-keys" => config.tracking_keys_max as u64,
        "maxmemory-samples" => u64::from(eviction.samples),
        "lfu-log-factor" => u64::from(eviction.count_log_factor),
        "lfu-decay-time" => u64::from(eviction.count_decay_minutes),
        "hash-max-listpack-entries" => encodings.hash.0,
        "hash-max-listpack-value" => encodings.hash.1,
        "list-max-listpack-size" => return Some(encodings.list.to_string()),
        "zset-max-listpack-entries" => encodings.sorted.0,
        "zset-max-listpack-value" => encodings.sorted.1,
        "set-max-intset-entries" => u64::from(encodings.sets.ints),
        "set-max-listpack-entries" => u64::from(encodings.sets.names),
        "set-max-listpack-value" => u64::from(encodings.sets.name_bytes),
        "stream-node-max-bytes" => encodings.streams.bytes,
        "stream-node-max-entries" => encodings.streams.entries,
        "maxclients" => config.clients_max as u64,
        "busy-reply-threshold" | "lua-time-limit" => config.script_limit_ms,
        "script-memory-limit" => config.script_memory_max as u64,
        "timeout" => config.timeout_s,
        "tcp-keepalive" => config.tcp_keepalive_s,
        "repl-timeout" => config.repl_timeout_s,
        "slowlog-max-len" => config.slowlog_len_max as u64,
        "proto-max-bulk-len" => config.limits.bulk_max_bytes as u64,
        "slowlog-log-slower-than" => return Some(config.slowlog_slower_than_us.to_string()),
        name => return tls::get(&config.tls, name),
    };
    Some(number.to_string())
}

/// Sets a parameter, whose name is in lower case. `None` if it is not one of these.
///
/// # Errors
/// The reason for which the value is refused.
pub fn set(
    config: &mut ServerConfig,
    name: &str,
    value: &[u8],
) -> Option<Result<(), Cow<'static, str>>> {
    get(config, name).is_some().then(|| change(config, present(name), value))
}

fn change(config: &mut ServerConfig, name: &str, value: &[u8]) -> Result<(), Cow<'static, str>> {
    const INT_MAX: i64 = i32::MAX as i64;
    let number = |min: i64, max: i64| {
        let number = parse_i64(value).ok_or("argument couldn't be parsed into an integer")?;
        let range = || format!("argument must be between {min} and {max} inclusive");
        if (min..=max).contains(&number) { Ok(number as u64) } else { Err(Cow::from(range())) }
    };
    let bytes = |min: i64, max: i64| match parse_memory(value).map(i64::try_from) {
        Some(Ok(bytes)) if (min..=max).contains(&bytes) => Ok(bytes as u64),
        Some(_) => Err(format!("argument must be between {min} and {max} inclusive").into()),
        None => Err(Cow::from("argument must be a memory value")),
    };
    // Whether the value is the second of two words.
    let word = |words: &[&str; 2]| {
        let at = words.iter().position(|word| value.eq_ignore_ascii_case(word.as_bytes()));
        let known =
            || Cow::from(format!("argument(s) must be one of the following: {}", words.join(", ")));
        at.map(|at| at == 1).ok_or_else(known)
    };
    let (encodings, eviction) = (&mut config.encodings, &mut config.eviction);
    match name {
        "maxmemory-policy" => {
            let named = EvictionPolicy::ALL
                .into_iter()
                .find(|policy| policy.name().as_bytes().eq_ignore_ascii_case(value));
            eviction.policy = named.ok_or_else(|| {
                let names = EvictionPolicy::ALL.map(EvictionPolicy::name).join(", ");
                format!("argument(s) must be one of the following: {names}")
            })?;
        }
        "maxmemory-samples" => eviction.samples = number(1, 64)? as u8,
        "lfu-log-factor" => eviction.count_log_factor = number(0, INT_MAX)? as u32,
        "lfu-decay-time" => eviction.count_decay_minutes = number(0, INT_MAX)? as u32,
        "hash-max-listpack-entries" => encodings.hash.0 = bytes(0, i64::MAX)?,
        "hash-max-listpack-value" => encodings.hash.1 = bytes(0, i64::MAX)?,
        "list-max-listpack-size" => {
            encodings.list = number(i64::from(i32::MIN), INT_MAX)? as i64 as i32;
        }
        "zset-max-listpack-entries" => encodings.sorted.0 = bytes(0, i64::MAX)?,
        "zset-max-listpack-value" => encodings.sorted.1 = bytes(0, i64::MAX)?,
        "set-max-intset-entries" => {
            encodings.sets.ints = bytes(0, i64::from(SmallSets::MOST.ints))? as u16;
        }
        "set-max-listpack-entries" => {
            encodings.sets.names = bytes(0, i64::from(SmallSets::MOST.names))? as u16;
        }
        "set-max-listpack-value" => {
            encodings.sets.name_bytes = bytes(0, i64::from(SmallSets::MOST.name_bytes))? as u8;
        }
        "stream-node-max-bytes" => encodings.streams.bytes = bytes(0, i64::MAX)?,
        "stream-node-max-entries" => encodings.streams.entries = number(0, i64::MAX)?,
        "maxclients" => {
            let clients = number(1, 1 << 20)? as usize;
            if crate::descriptors::clients_that_fit(clients) < clients {
                let why = "the operating system does not give the server so many descriptors";
                return Err(why.into());
            }
            config.clients_max = clients;
        }
        "timeout" => config.timeout_s = number(0, INT_MAX)?,
        "tcp-keepalive" => config.tcp_keepalive_s = number(0, INT_MAX)?,
        "repl-timeout" => config.repl_timeout_s = number(1, INT_MAX)?,
        "slowlog-log-slower-than" => {
            config.slowlog_slower_than_us = number(-1, i64::MAX)? as i64;
        }
        "slowlog-max-len" => config.slowlog_len_max = number(0, i64::MAX)? as usize,
        "busy-reply-threshold" | "lua-time-limit" => {
            config.script_limit_ms = number(0, i64::MAX)?;
        }
        "script-memory-limit" => config.script_memory_max = bytes(1 << 20, 16 << 30)? as usize,
        "proto-max-bulk-len" => {
            config.limits.bulk_max_bytes = bytes(1 << 20, 512 << 20)? as usize;
        }
        "requirepass" => {
            let password = std::str::from_utf8(value).map_err(|_| "not UTF-8")?;
            config.requirepass = Some(password.to_owned()).filter(|p| !p.is_empty());
        }
        "notify-keyspace-events" => {
            let why = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
            config.notify = Notify::parse(value).ok_or(why)?;
        }
        "acl-pubsub-default" => config.acl_all_channels = word(&["resetchannels", "allchannels"])?,
        "latency-tracking" => {
            let why = "argument must be 'yes' or 'no'";
            config.latency_tracking = word(&["no", "yes"]).map_err(|_| why)?;
        }
        "latency-tracking-info-percentiles" => {
            let words = value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let percent = |word: &[u8]| {
                let percent = std::str::from_utf8(word).ok()?.parse().ok()?;
                (0.0..=100.0).contains(&percent).then_some(percent)
            };
            let all: Option<Vec<f64>> = words.map(percent).collect();
            config.latency_percentiles = all.ok_or(
                "latency-tracking-info-percentiles argument(s) should be between 0.0 and 100.0",
            )?;
        }
        "hll-sparse-max-bytes" => config.hll_sparse_max_bytes = bytes(0, i64::MAX)?,
        "acllog-max-len" => config.acl_log_len_max = number(0, i64::MAX)? as usize,
        "latency-monitor-threshold" => config.latency_threshold_ms = number(0, i64::MAX)?,
        "tracking-table-max-keys" => config.tracking_keys_max = number(0, i64::MAX)? as usize,
        name => return tls::set(&mut config.tls, name, value),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_that_is_set_reads_as_it_was_set() {
        let mut config = ServerConfig::default();
        for (name, value) in [
            ("maxmemory-policy", "volatile-lfu"),
            ("maxmemory-samples", "9"),
            ("lfu-log-factor", "3"),
            ("lfu-decay-time", "0"),
            ("hash-max-ziplist-entries", "7"),
            ("hash-max-listpack-value", "8"),
            ("zset-max-listpack-entries", "9"),
            ("zset-max-ziplist-value", "10"),
            ("list-max-ziplist-size", "-5"),
            ("list-max-listpack-size", "6"),
            ("set-max-intset-entries", "11"),
            ("set-max-listpack-entries", "12"),
            ("set-max-listpack-value", "13"),
            ("stream-node-max-bytes", "18"),
            ("stream-node-max-entries", "19"),
            ("maxclients", "14"),
            ("timeout", "15"),
            ("tcp-keepalive", "16"),
            ("repl-timeout", "17"),
            ("slowlog-log-slower-than", "-1"),
            ("slowlog-max-len", "17"),
            ("busy-reply-threshold", "17"),
            ("lua-time-limit", "18"),
            ("script-memory-limit", "2000000"),
            ("proto-max-bulk-len", "2000000"),
            ("requirepass", "secret"),
            ("hll-sparse-max-bytes", "21"),
            ("notify-keyspace-events", "xKE"),
            ("acl-pubsub-default", "allchannels"),
            ("acllog-max-len", "18"),
            ("latency-monitor-threshold", "19"),
            ("latency-tracking", "no"),
            ("latency-tracking-info-percentiles", "50 99.99"),
            ("tracking-table-max-keys", "20"),
            ("tls-auth-clients", "optional"),
            ("tls-ca-cert-dir", "/etc/authorities"),
            ("tls-ca-cert-file", "authority.pem"),
            ("tls-cert-file", "cert.pem"),
            ("tls-key-file", "key.pem"),
            ("tls-protocols", "TLSv1.3"),
        ] {
            assert_ne!(get(&config, name).unwrap(), value, "{name} has the value already");
            set(&mut config, name, value.as_bytes()).unwrap().unwrap();
            assert_eq!(get(&config, name).unwrap(), value, "{name}");
        }
        set(&mut config, "proto-max-bulk-len", b"2mb").unwrap().unwrap();
        assert_eq!(get(&config, "proto-max-bulk-len").unwrap(), "2097152");
    }

    #[test]
    fn a_wrong_value_is_refused_and_changes_nothing() {
        let mut config = ServerConfig::default();
        for (name, value) in [
            ("maxmemory-policy", "all"),
            ("maxmemory-samples", "0"),
            ("maxmemory-samples", "65"),
            ("lfu-log-factor", "-1"),
            ("maxclients", "0"),
            ("proto-max-bulk-len", "1gb"),
            ("hash-max-listpack-value", "x"),
            ("timeout", "1s"),
            ("acl-pubsub-default", "channels"),
            ("latency-tracking", "maybe"),
            ("tls-auth-clients", "perhaps"),
            ("notify-keyspace-events", "KEq"),
            ("latency-tracking-info-percentiles", "50 101"),
        ] {
            let before = get(&config, name);
            assert!(set(&mut config, name, value.as_bytes()).unwrap().is_err(), "{name} {value}");
            assert_eq!(get(&config, name), before, "{name} {value}");
        }
        assert!(set(&mut config, "no-such-parameter", b"1").is_none());
        assert!(LIVE.iter().all(|name| get(&config, name).is_some()));
    }
}
