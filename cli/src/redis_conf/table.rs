//! Every directive of Redis 7.0, and its meaning to this server.

use std::ops::RangeInclusive;

/// The meaning of a directive to this server.
pub enum Meaning {
    /// An option of `serve`, which a function makes from the values.
    Option(fn(&[String]) -> Result<Vec<String>, String>),
    /// The directive changes nothing, whatever its value, for this reason.
    Nothing(&'static str),
    /// The directive changes nothing with one of these values. Any other value is refused, for this
    /// reason.
    Only(&'static [&'static str], &'static str),
}

use Meaning::{Nothing, Only, Option};

/// Directives whose values are never shown.
pub const SECRET: [&str; 5] =
    ["requirepass", "masterauth", "user", "tls-key-file-pass", "tls-client-key-file-pass"];

/// The directives by name.
pub const TABLE: &[(&str, Meaning)] = &[
    ("bind", Option(|values| joined("bind", values))),
    ("port", Option(|values| number("port", values, 0..=65_535))),
    ("requirepass", Option(|values| one("requirepass", values))),
    ("maxmemory", Option(memory)),
    ("io-threads", Option(|values| number("threads", values, 1..=1024))),
    ("maxclients", Option(|values| number("max-clients", values, 0..=i64::MAX))),
    ("timeout", Option(client_timeout)),
    ("tcp-keepalive", Option(|values| number("tcp-keepalive", values, 0..=i64::MAX))),
    ("unixsocket", Option(|values| one("unix-socket", values))),
    ("dir", Option(dir)),
    (
        "slowlog-log-slower-than",
        Option(|values| number("slowlog-log-slower-than", values, -1..=i64::MAX)),
    ),
    ("slowlog-max-len", Option(|values| number("slowlog-max-len", values, 0..=i64::MAX))),
    ("appendonly", Option(durability)),
    ("appendfsync", Option(fsync)),
    (
        "protected-mode",
        Only(&["yes"], "an address that is not loopback always needs a password here"),
    ),
    ("databases", Only(&["16"], "there are always 16 databases")),
    ("proto-max-bulk-len", Only(&["512mb", "536870912"], "the longest value is 512 MiB")),
    (
        "maxmemory-policy",
        Only(
            &["noeviction"],
            "nothing is ever evicted: writes are refused when the memory is full",
        ),
    ),
    ("maxmemory-clients", Only(&["0"], "clients are not evicted")),
    ("latency-monitor-threshold", Only(&["0"], "latency events are not recorded")),
    ("notify-keyspace-events", Only(&[""], "there are no keyspace notifications")),
    ("enable-debug-command", Only(&["no"], "DEBUG is never allowed")),
    ("unixsocketperm", Only(&["0"], "the socket's permissions follow from the umask")),
    ("bind-source-addr", Only(&[""], "there are no outgoing connections")),
    ("socket-mark-id", Only(&["0"], "sockets cannot be marked")),
    ("cluster-enabled", Only(&["no"], "there is no cluster")),
    ("replicaof", Only(&["no one"], "there is no replication")),
    ("slaveof", Only(&["no one"], "there is no replication")),
    ("masterauth", Only(&[""], "there is no replication")),
    ("masteruser", Only(&[""], "there is no replication")),
    ("min-replicas-to-write", Only(&["0"], "there is no replication")),
    ("min-slaves-to-write", Only(&["0"], "there is no replication")),
    ("min-replicas-max-lag", Only(&["10"], "there is no replication")),
    ("min-slaves-max-lag", Only(&["10"], "there is no replication")),
    ("aclfile", Only(&[""], "there are no ACLs: one password is for everybody")),
    ("user", Only(&[], "there are no ACLs: one password is for everybody")),
    ("rename-command", Only(&[], "commands cannot be renamed")),
    ("loadmodule", Only(&[], "there are no modules")),
    ("include", Only(&[], "one file is read: put its lines here")),
    ("tls-port", Only(&["0"], "there is no TLS: put a proxy before the server")),
    ("daemonize", Nothing(FOREGROUND)),
    ("pidfile", Nothing(FOREGROUND)),
    ("supervised", Nothing(FOREGROUND)),
    ("loglevel", Nothing(LOGS)),
    ("logfile", Nothing(LOGS)),
    ("syslog-enabled", Nothing(LOGS)),
    ("syslog-ident", Nothing(LOGS)),
    ("syslog-facility", Nothing(LOGS)),
    ("crash-log-enabled", Nothing(LOGS)),
    ("crash-memcheck-enabled", Nothing(LOGS)),
    ("always-show-logo", Nothing(LOGS)),
    ("set-proc-title", Nothing(LOGS)),
    ("proc-title-template", Nothing(LOGS)),
    ("save", Nothing(NO_DUMP)),
    ("dbfilename", Nothing(NO_DUMP)),
    ("rdbcompression", Nothing(NO_DUMP)),
    ("rdbchecksum", Nothing(NO_DUMP)),
    ("rdb-del-sync-files", Nothing(NO_DUMP)),
    ("rdb-save-incremental-fsync", Nothing(NO_DUMP)),
    ("sanitize-dump-payload", Nothing(NO_DUMP)),
    ("stop-writes-on-bgsave-error", Nothing(NO_DUMP)),
    ("appendfilename", Nothing(NO_FILE)),
    ("appenddirname", Nothing(NO_FILE)),
    ("no-appendfsync-on-rewrite", Nothing(NO_FILE)),
    ("auto-aof-rewrite-percentage", Nothing(NO_FILE)),
    ("auto-aof-rewrite-min-size", Nothing(NO_FILE)),
    ("aof-load-truncated", Nothing(NO_FILE)),
    ("aof-use-rdb-preamble", Nothing(NO_FILE)),
    ("aof-timestamp-enabled", Nothing(NO_FILE)),
    ("aof-rewrite-incremental-fsync", Nothing(NO_FILE)),
    ("aof-disable-auto-gc", Nothing(NO_FILE)),
    ("replica-serve-stale-data", Nothing(ALONE)),
    ("replica-read-only", Nothing(ALONE)),
    ("replica-priority", Nothing(ALONE)),
    ("replica-lazy-flush", Nothing(ALONE)),
    ("replica-ignore-maxmemory", Nothing(ALONE)),
    ("replica-ignore-disk-write-errors", Nothing(ALONE)),
    ("replica-announced", Nothing(ALONE)),
    ("replica-announce-ip", Nothing(ALONE)),
    ("replica-announce-port", Nothing(ALONE)),
    ("slave-serve-stale-data", Nothing(ALONE)),
    ("slave-read-only", Nothing(ALONE)),
    ("slave-priority", Nothing(ALONE)),
    ("slave-lazy-flush", Nothing(ALONE)),
    ("slave-ignore-maxmemory", Nothing(ALONE)),
    ("slave-announce-ip", Nothing(ALONE)),
    ("slave-announce-port", Nothing(ALONE)),
    ("repl-diskless-sync", Nothing(ALONE)),
    ("repl-diskless-sync-delay", Nothing(ALONE)),
    ("repl-diskless-sync-max-replicas", Nothing(ALONE)),
    ("repl-diskless-load", Nothing(ALONE)),
    ("repl-disable-tcp-nodelay", Nothing(ALONE)),
    ("repl-backlog-size", Nothing(ALONE)),
    ("repl-backlog-ttl", Nothing(ALONE)),
    ("repl-timeout", Nothing(ALONE)),
    ("repl-ping-replica-period", Nothing(ALONE)),
    ("repl-ping-slave-period", Nothing(ALONE)),
    ("propagation-error-behavior", Nothing(ALONE)),
    ("cluster-config-file", Nothing(NO_CLUSTER)),
    ("cluster-node-timeout", Nothing(NO_CLUSTER)),
    ("cluster-port", Nothing(NO_CLUSTER)),
    ("cluster-announce-ip", Nothing(NO_CLUSTER)),
    ("cluster-announce-port", Nothing(NO_CLUSTER)),
    ("cluster-announce-tls-port", Nothing(NO_CLUSTER)),
    ("cluster-announce-bus-port", Nothing(NO_CLUSTER)),
    ("cluster-announce-hostname", Nothing(NO_CLUSTER)),
    ("cluster-preferred-endpoint-type", Nothing(NO_CLUSTER)),
    ("cluster-migration-barrier", Nothing(NO_CLUSTER)),
    ("cluster-allow-replica-migration", Nothing(NO_CLUSTER)),
    ("cluster-replica-no-failover", Nothing(NO_CLUSTER)),
    ("cluster-slave-no-failover", Nothing(NO_CLUSTER)),
    ("cluster-replica-validity-factor", Nothing(NO_CLUSTER)),
    ("cluster-slave-validity-factor", Nothing(NO_CLUSTER)),
    ("cluster-require-full-coverage", Nothing(NO_CLUSTER)),
    ("cluster-allow-reads-when-down", Nothing(NO_CLUSTER)),
    ("cluster-allow-pubsubshard-when-down", Nothing(NO_CLUSTER)),
    ("cluster-link-sendbuf-limit", Nothing(NO_CLUSTER)),
    ("hash-max-listpack-entries", Nothing(LAYOUT)),
    ("hash-max-listpack-value", Nothing(LAYOUT)),
    ("hash-max-ziplist-entries", Nothing(LAYOUT)),
    ("hash-max-ziplist-value", Nothing(LAYOUT)),
    ("zset-max-listpack-entries", Nothing(LAYOUT)),
    ("zset-max-listpack-value", Nothing(LAYOUT)),
    ("zset-max-ziplist-entries", Nothing(LAYOUT)),
    ("zset-max-ziplist-value", Nothing(LAYOUT)),
    ("list-max-listpack-size", Nothing(LAYOUT)),
    ("list-max-ziplist-size", Nothing(LAYOUT)),
    ("list-compress-depth", Nothing(LAYOUT)),
    ("set-max-intset-entries", Nothing(LAYOUT)),
    ("hll-sparse-max-bytes", Nothing(LAYOUT)),
    ("stream-node-max-bytes", Nothing(LAYOUT)),
    ("stream-node-max-entries", Nothing(LAYOUT)),
    ("activerehashing", Nothing(LAYOUT)),
    ("jemalloc-bg-thread", Nothing(LAYOUT)),
    ("activedefrag", Nothing(LAYOUT)),
    ("active-defrag-ignore-bytes", Nothing(LAYOUT)),
    ("active-defrag-threshold-lower", Nothing(LAYOUT)),
    ("active-defrag-threshold-upper", Nothing(LAYOUT)),
    ("active-defrag-cycle-min", Nothing(LAYOUT)),
    ("active-defrag-cycle-max", Nothing(LAYOUT)),
    ("active-defrag-max-scan-fields", Nothing(LAYOUT)),
    ("disable-thp", Nothing(LAYOUT)),
    ("lazyfree-lazy-eviction", Nothing(PIECEWISE)),
    ("lazyfree-lazy-expire", Nothing(PIECEWISE)),
    ("lazyfree-lazy-server-del", Nothing(PIECEWISE)),
    ("lazyfree-lazy-user-del", Nothing(PIECEWISE)),
    ("lazyfree-lazy-user-flush", Nothing(PIECEWISE)),
    ("hz", Nothing(PACE)),
    ("dynamic-hz", Nothing(PACE)),
    ("active-expire-effort", Nothing(PACE)),
    ("io-threads-do-reads", Nothing(PACE)),
    ("server_cpulist", Nothing(PACE)),
    ("bio_cpulist", Nothing(PACE)),
    ("aof_rewrite_cpulist", Nothing(PACE)),
    ("bgsave_cpulist", Nothing(PACE)),
    ("tcp-backlog", Nothing(PACE)),
    ("oom-score-adj", Nothing(PACE)),
    ("oom-score-adj-values", Nothing(PACE)),
    ("ignore-warnings", Nothing(PACE)),
    ("maxmemory-samples", Nothing(ABSENT)),
    ("maxmemory-eviction-tenacity", Nothing(ABSENT)),
    ("lfu-log-factor", Nothing(ABSENT)),
    ("lfu-decay-time", Nothing(ABSENT)),
    ("lua-time-limit", Nothing(ABSENT)),
    ("busy-reply-threshold", Nothing(ABSENT)),
    ("acllog-max-len", Nothing(ABSENT)),
    ("acl-pubsub-default", Nothing(ABSENT)),
    ("tracking-table-max-keys", Nothing(ABSENT)),
    ("enable-module-command", Nothing(ABSENT)),
    ("enable-protected-configs", Nothing(ABSENT)),
    ("latency-tracking", Nothing(ABSENT)),
    ("latency-tracking-info-percentiles", Nothing(ABSENT)),
    ("shutdown-timeout", Nothing(STOPS)),
    ("shutdown-on-sigterm", Nothing(STOPS)),
    ("shutdown-on-sigint", Nothing(STOPS)),
    (
        "client-output-buffer-limit",
        Nothing("a client may have 1 GiB of unread replies, then it is disconnected"),
    ),
    ("client-query-buffer-limit", Nothing("a request may be 512 MiB, the buffer grows with it")),
    ("tls-cert-file", Nothing(NO_TLS)),
    ("tls-key-file", Nothing(NO_TLS)),
    ("tls-key-file-pass", Nothing(NO_TLS)),
    ("tls-client-cert-file", Nothing(NO_TLS)),
    ("tls-client-key-file", Nothing(NO_TLS)),
    ("tls-client-key-file-pass", Nothing(NO_TLS)),
    ("tls-dh-params-file", Nothing(NO_TLS)),
    ("tls-ca-cert-file", Nothing(NO_TLS)),
    ("tls-ca-cert-dir", Nothing(NO_TLS)),
    ("tls-auth-clients", Nothing(NO_TLS)),
    ("tls-replication", Nothing(NO_TLS)),
    ("tls-cluster", Nothing(NO_TLS)),
    ("tls-protocols", Nothing(NO_TLS)),
    ("tls-ciphers", Nothing(NO_TLS)),
    ("tls-ciphersuites", Nothing(NO_TLS)),
    ("tls-prefer-server-ciphers", Nothing(NO_TLS)),
    ("tls-session-caching", Nothing(NO_TLS)),
    ("tls-session-cache-size", Nothing(NO_TLS)),
    ("tls-session-cache-timeout", Nothing(NO_TLS)),
];

const FOREGROUND: &str = "it runs in the foreground, under a service manager";
const LOGS: &str = "it logs to standard error; PERDURA_LOG sets the level";
const NO_DUMP: &str = "there is no dump: the image is kept current all the time";
const NO_FILE: &str = "there is no append-only file: the image is the log";
const ALONE: &str = "without replicas and sentinels it changes nothing";
const NO_CLUSTER: &str = "without a cluster it changes nothing";
const LAYOUT: &str = "memory is laid out in this server's own way";
const PIECEWISE: &str = "deletions are done piece by piece, always";
const PACE: &str = "its own pace and processors are used";
const ABSENT: &str = "without eviction, scripts, modules, ACLs or tracking it changes nothing";
const STOPS: &str = "a stop always flushes, within --grace";
const NO_TLS: &str = "without TLS it changes nothing; `tls-port` is refused";

fn one(option: &str, values: &[String]) -> Result<Vec<String>, String> {
    match values {
        [value] => Ok(vec![format!("--{option}={value}")]),
        _ => Err(format!("{} values, expected one", values.len())),
    }
}

fn number(
    option: &str,
    values: &[String],
    allowed: RangeInclusive<i64>,
) -> Result<Vec<String>, String> {
    match values {
        [value] if value.parse().is_ok_and(|number| allowed.contains(&number)) => {
            one(option, values)
        }
        _ => Err(format!("expected a whole number from {} to {}", allowed.start(), allowed.end())),
    }
}

fn joined(option: &str, values: &[String]) -> Result<Vec<String>, String> {
    match values {
        [] => Err("no value".to_owned()),
        _ => Ok(vec![format!("--{option}={}", values.join(" "))]),
    }
}

/// The size of the memory; 0, which is no limit in Redis, is the usual memory here.
fn memory(values: &[String]) -> Result<Vec<String>, String> {
    let [value] = values else { return Err(format!("{} values, expected one", values.len())) };
    match perdura_server::number::parse_memory(value.as_bytes()) {
        Some(0) => Ok(Vec::new()),
        Some(bytes) => Ok(vec![format!("--maxmemory={bytes}")]),
        None => Err("expected a size, such as 512mb or 2gb".to_owned()),
    }
}

fn client_timeout(values: &[String]) -> Result<Vec<String>, String> {
    match values {
        [seconds] if seconds.parse::<u32>().is_ok() => {
            Ok(vec![format!("--client-timeout={seconds}s")])
        }
        _ => Err("expected whole seconds".to_owned()),
    }
}

/// The folder `perdura-data` in Redis's working directory, as without the option.
fn dir(values: &[String]) -> Result<Vec<String>, String> {
    match values {
        [dir] => Ok(vec![format!("--dir={}/perdura-data", dir.trim_end_matches('/'))]),
        _ => Err(format!("{} values, expected one", values.len())),
    }
}

/// Checks the value. `--durability` follows from this directive and from `appendfsync` together.
fn durability(values: &[String]) -> Result<Vec<String>, String> {
    word_of(values, &["yes", "no"])
}

fn fsync(values: &[String]) -> Result<Vec<String>, String> {
    word_of(values, &["always", "everysec", "no"])
}

fn word_of(values: &[String], words: &[&str]) -> Result<Vec<String>, String> {
    match values {
        [value] if words.iter().any(|word| value.eq_ignore_ascii_case(word)) => Ok(Vec::new()),
        _ => Err(format!("expected one of {}", words.join(", "))),
    }
}
