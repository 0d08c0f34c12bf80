//! The parameters of Redis that change nothing here, each with the reason.
//!
//! CONFIG GET shows them, CONFIG SET takes the values that Redis takes and remembers them, and a
//! redis.conf may have them. Where somebody could rely on a value that this server does not honour,
//! only the value that it does honour is taken, and the reason is the error.

use crate::number::{parse_i64, parse_memory};

/// A parameter that changes nothing.
#[derive(Debug)]
pub struct Parameter {
    /// The name.
    pub name: &'static str,
    /// An older name; empty if there is none.
    pub alias: &'static str,
    /// The value unless another was set.
    pub value: &'static str,
    /// The values that are taken.
    pub takes: Takes,
    /// Why it changes nothing.
    pub why: &'static str,
}

/// The values that a parameter takes.
#[derive(Debug, Clone, Copy)]
pub enum Takes {
    /// `yes` and `no`.
    Flag,
    /// Integers of this range.
    Number(i64, i64),
    /// A number of bytes, with or without a unit, of this range.
    Memory(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// Anything.
    Text,
    /// Only these values, all of which mean what this server does.
    Only(&'static [&'static str]),
    /// A running server takes none.
    AtStart,
    /// A running server takes none, and a configuration file may have only these, all of which mean
    /// what this server does.
    OnlyAtStart(&'static [&'static str]),
}

impl Parameter {
    /// Checks a value that is to be set while the server runs.
    ///
    /// # Errors
    /// The reason for which the value is not taken.
    pub fn check(&self, value: &str) -> Result<(), String> {
        let taken = match self.takes {
            Takes::Text => true,
            Takes::Flag => {
                let is_flag = ["yes", "no"].iter().any(|word| value.eq_ignore_ascii_case(word));
                return if is_flag { Ok(()) } else { Err("argument must be 'yes' or 'no'".into()) };
            }
            Takes::Number(min, max) => {
                let number = parse_i64(value.as_bytes())
                    .ok_or("argument couldn't be parsed into an integer")?;
                let range = format!("argument must be between {min} and {max} inclusive");
                return if (min..=max).contains(&number) { Ok(()) } else { Err(range) };
            }
            Takes::Memory(min, max) => {
                let bytes = parse_memory(value.as_bytes());
                let bytes = bytes.ok_or("argument must be a memory value")?;
                let range = format!("argument must be between {min} and {max} inclusive");
                return if (min..=max).contains(&bytes) { Ok(()) } else { Err(range) };
            }
            Takes::Word(words) => {
                if words.iter().any(|word| value.eq_ignore_ascii_case(word)) {
                    return Ok(());
                }
                let words = words.join(", ");
                return Err(format!("argument(s) must be one of the following: {words}"));
            }
            Takes::Only(values) => values.iter().any(|one| value.eq_ignore_ascii_case(one)),
            Takes::AtStart | Takes::OnlyAtStart(_) => {
                return Err("can't set immutable config".into());
            }
        };
        if taken { Ok(()) } else { Err(self.why.into()) }
    }

    /// Checks the value that a configuration file has.
    ///
    /// # Errors
    /// The reason for which the value is not taken.
    pub fn check_in_file(&self, value: &str) -> Result<(), String> {
        match self.takes {
            Takes::Only(values) | Takes::OnlyAtStart(values) => {
                let is_ours = values.iter().any(|one| value.eq_ignore_ascii_case(one));
                if is_ours { Ok(()) } else { Err(self.why.into()) }
            }
            _ => Ok(()),
        }
    }
}

/// The parameter with this name or older name, in any case.
pub fn find(name: &str) -> Option<&'static Parameter> {
    PARAMETERS.iter().find(|parameter| {
        let is = |spelled: &str| !spelled.is_empty() && spelled.eq_ignore_ascii_case(name);
        is(parameter.name) || is(parameter.alias)
    })
}

const fn p(name: &'static str, value: &'static str, takes: Takes, why: &'static str) -> Parameter {
    Parameter { name, alias: "", value, takes, why }
}

const fn old(
    name: &'static str,
    alias: &'static str,
    value: &'static str,
    takes: Takes,
    why: &'static str,
) -> Parameter {
    Parameter { name, alias, value, takes, why }
}

const INT: i64 = i32::MAX as i64;
const LONG: i64 = i64::MAX;

use Takes::{AtStart, Flag, Memory, Number, Only, OnlyAtStart, Text, Word};

/// The parameters, in groups of one reason.
#[rustfmt::skip]
pub static PARAMETERS: &[Parameter] = &[
    p("daemonize", "no", AtStart, FOREGROUND),
    p("pidfile", "", AtStart, FOREGROUND),
    p("supervised", "no", AtStart, FOREGROUND),

    p("loglevel", "notice", Word(&["debug", "verbose", "notice", "warning", "nothing"]), LOGS),
    p("logfile", "", AtStart, LOGS),
    p("syslog-enabled", "no", AtStart, LOGS),
    p("syslog-ident", "redis", AtStart, LOGS),
    p("syslog-facility", "local0", AtStart, LOGS),
    p("crash-log-enabled", "yes", Flag, LOGS),
    p("crash-memcheck-enabled", "yes", Flag, LOGS),
    p("always-show-logo", "no", AtStart, LOGS),
    p("set-proc-title", "yes", AtStart, LOGS),
    p("proc-title-template", "{title} {listen-addr} {server-mode}", Text, LOGS),

    p("save", "", Text, NO_DUMP),
    p("dbfilename", "dump.rdb", AtStart, NO_DUMP),
    p("rdbcompression", "yes", Flag, NO_DUMP),
    p("rdbchecksum", "yes", AtStart, NO_DUMP),
    p("rdb-del-sync-files", "no", Flag, NO_DUMP),
    p("rdb-save-incremental-fsync", "yes", Flag, NO_DUMP),
    p("rdb-key-save-delay", "0", Number(i32::MIN as i64, INT), NO_DUMP),
    p("key-load-delay", "0", Number(i32::MIN as i64, INT), NO_DUMP),
    p("sanitize-dump-payload", "no", Word(&["no", "yes", "clients"]), SANE),
    p("stop-writes-on-bgsave-error", "yes", Flag, NO_DUMP),

    p("appendfilename", "appendonly.aof", AtStart, NO_FILE),
    p("appenddirname", "appendonlydir", AtStart, NO_FILE),
    p("no-appendfsync-on-rewrite", "no", Flag, NO_FILE),
    p("auto-aof-rewrite-percentage", "100", Number(0, INT), NO_FILE),
    p("auto-aof-rewrite-min-size", "67108864", Memory(0, LONG as u64), NO_FILE),
    p("aof-load-truncated", "yes", Flag, NO_FILE),
    p("aof-use-rdb-preamble", "yes", Flag, NO_FILE),
    p("aof-timestamp-enabled", "no", Flag, NO_FILE),
    p("aof-rewrite-incremental-fsync", "yes", Flag, NO_FILE),
    p("aof-disable-auto-gc", "no", Flag, NO_FILE),

    p("replicaof", "", OnlyAtStart(&["", "no one"]), NO_REPLICAS),
    p("slaveof", "", OnlyAtStart(&["", "no one"]), NO_REPLICAS),
    p("masterauth", "", Only(&[""]), NO_REPLICAS),
    p("masteruser", "", Only(&[""]), NO_REPLICAS),
    old("min-replicas-to-write", "min-slaves-to-write", "0", Only(&["0"]), NO_REPLICAS),
    old("min-replicas-max-lag", "min-slaves-max-lag", "10", Number(0, INT), ALONE),
    old("replica-serve-stale-data", "slave-serve-stale-data", "yes", Flag, ALONE),
    old("replica-read-only", "slave-read-only", "yes", Flag, ALONE),
    old("replica-priority", "slave-priority", "100", Number(0, INT), ALONE),
    old("replica-lazy-flush", "slave-lazy-flush", "no", Flag, ALONE),
    old("replica-ignore-maxmemory", "slave-ignore-maxmemory", "yes", Flag, ALONE),
    p("replica-ignore-disk-write-errors", "no", Flag, ALONE),
    p("replica-announced", "yes", Flag, ALONE),
    old("replica-announce-ip", "slave-announce-ip", "", Text, ALONE),
    old("replica-announce-port", "slave-announce-port", "0", Number(0, 65_535), ALONE),
    p("repl-diskless-sync", "yes", Flag, ALONE),
    p("repl-diskless-sync-delay", "5", Number(0, INT), ALONE),
    p("repl-diskless-sync-max-replicas", "0", Number(0, INT), ALONE),
    p("repl-diskless-load", "disabled", Word(&["disabled", "on-empty-db", "swapdb"]), ALONE),
    p("repl-disable-tcp-nodelay", "no", Flag, ALONE),
    p("repl-backlog-size", "1048576", Memory(1, LONG as u64), ALONE),
    p("repl-backlog-ttl", "3600", Number(0, LONG), ALONE),
    old("repl-ping-replica-period", "repl-ping-slave-period", "10", Number(1, INT), ALONE),
    p("propagation-error-behavior", "ignore", Word(&["ignore", "panic", "panic-on-replicas"]),
        ALONE),

    p("cluster-enabled", "no", OnlyAtStart(&["no"]), "there is no cluster"),
    p("cluster-config-file", "nodes.conf", AtStart, NO_CLUSTER),
    p("cluster-node-timeout", "15000", Number(0, LONG), NO_CLUSTER),
    p("cluster-port", "0", AtStart, NO_CLUSTER),
    p("cluster-announce-ip", "", Text, NO_CLUSTER),
    p("cluster-announce-port", "0", Number(0, 65_535), NO_CLUSTER),
    p("cluster-announce-tls-port", "0", Number(0, 65_535), NO_CLUSTER),
    p("cluster-announce-bus-port", "0", Number(0, 65_535), NO_CLUSTER),
    p("cluster-announce-hostname", "", Text, NO_CLUSTER),
    p("cluster-announce-human-nodename", "", Text, NO_CLUSTER),
    p("cluster-preferred-endpoint-type", "ip", Word(&["ip", "hostname", "unknown-endpoint"]),
        NO_CLUSTER),
    p("cluster-migration-barrier", "1", Number(0, INT), NO_CLUSTER),
    p("cluster-allow-replica-migration", "yes", Flag, NO_CLUSTER),
    old("cluster-replica-no-failover", "cluster-slave-no-failover", "no", Flag, NO_CLUSTER),
    old("cluster-replica-validity-factor", "cluster-slave-validity-factor", "10", Number(0, INT),
        NO_CLUSTER),
    p("cluster-require-full-coverage", "yes", Flag, NO_CLUSTER),
    p("cluster-allow-reads-when-down", "no", Flag, NO_CLUSTER),
    p("cluster-allow-pubsubshard-when-down", "yes", Flag, NO_CLUSTER),
    p("cluster-link-sendbuf-limit", "0", Memory(0, u64::MAX), NO_CLUSTER),

    p("list-compress-depth", "0", Number(0, INT), LAYOUT),
    p("activerehashing", "yes", Flag, LAYOUT),
    p("jemalloc-bg-thread", "yes", Flag, LAYOUT),
    p("activedefrag", "no", Flag, LAYOUT),
    p("active-defrag-ignore-bytes", "104857600", Memory(1, LONG as u64), LAYOUT),
    p("active-defrag-threshold-lower", "10", Number(0, 1000), LAYOUT),
    p("active-defrag-threshold-upper", "100", Number(0, 1000), LAYOUT),
    p("active-defrag-cycle-min", "1", Number(1, 99), LAYOUT),
    p("active-defrag-cycle-max", "25", Number(1, 99), LAYOUT),
    p("active-defrag-max-scan-fields", "1000", Number(1, LONG), LAYOUT),
    p("disable-thp", "yes", AtStart, LAYOUT),

    p("lazyfree-lazy-eviction", "no", Flag, PIECEWISE),
    p("lazyfree-lazy-expire", "no", Flag, PIECEWISE),
    p("lazyfree-lazy-server-del", "no", Flag, PIECEWISE),
    p("lazyfree-lazy-user-del", "no", Flag, PIECEWISE),
    p("lazyfree-lazy-user-flush", "no", Flag, PIECEWISE),

    p("hz", "10", Number(0, INT), PACE),
    p("dynamic-hz", "yes", Flag, PACE),
    p("active-expire-effort", "1", Number(1, 10), PACE),
    p("maxmemory-eviction-tenacity", "10", Number(0, 100), PACE),
    p("io-threads-do-reads", "no", AtStart, PACE),
    p("server_cpulist", "", AtStart, PACE),
    p("bio_cpulist", "", AtStart, PACE),
    p("aof_rewrite_cpulist", "", AtStart, PACE),
    p("bgsave_cpulist", "", AtStart, PACE),
    p("oom-score-adj", "no", Word(&["no", "yes", "relative", "absolute"]), PACE),
    p("oom-score-adj-values", "0 200 800", Text, PACE),
    p("ignore-warnings", "", Text, PACE),
    p("watchdog-period", "0", Number(0, INT), PACE),
    p("locale-collate", "", Text, BYTES),

    p("shutdown-timeout", "10", Number(0, INT), STOPS),
    p("shutdown-on-sigterm", "default", Text, STOPS),
    p("shutdown-on-sigint", "default", Text, STOPS),

    p("protected-mode", "yes", Only(&["yes"]),
        "an address that is not loopback always needs a password, and TLS or `--allow-plaintext`"),
    p("databases", "16", OnlyAtStart(&["16"]), "there are always 16 databases"),
    p("maxmemory-clients", "0", Only(&["0"]), "clients are not evicted"),
    p("client-query-buffer-limit", "1073741824", Memory(1 << 20, LONG as u64),
        "a request may be 512 MiB, the buffer grows with it"),
    p("enable-debug-command", "no", OnlyAtStart(&["no"]), NEVER),
    p("enable-module-command", "no", OnlyAtStart(&["no"]), NEVER),
    p("enable-protected-configs", "no", AtStart, NEVER),
    p("bind-source-addr", "", Only(&[""]), "outgoing connections have the system's address"),
    p("socket-mark-id", "0", OnlyAtStart(&["0"]), "sockets cannot be marked"),
    p("tls-key-file-pass", "", Only(&[""]), NO_PASS_PHRASE),
    p("tls-client-cert-file", "", Text, NO_TLS_OUT),
    p("tls-client-key-file", "", Text, NO_TLS_OUT),
    p("tls-client-key-file-pass", "", Text, NO_TLS_OUT),
    p("tls-replication", "no", Flag, NO_TLS_OUT),
    p("tls-cluster", "no", Flag, NO_TLS_OUT),
    p("tls-dh-params-file", "", Text, CIPHERS),
    p("tls-ciphers", "", Only(&[""]), CIPHERS),
    p("tls-ciphersuites", "", Only(&[""]), CIPHERS),
    p("tls-prefer-server-ciphers", "no", Flag, CIPHERS),
    p("tls-session-caching", "yes", Flag, WHOLE_HANDSHAKES),
    p("tls-session-cache-size", "20480", Number(0, INT), WHOLE_HANDSHAKES),
    p("tls-session-cache-timeout", "300", Number(0, INT), WHOLE_HANDSHAKES),
];

const FOREGROUND: &str = "it runs in the foreground, under a service manager";
const LOGS: &str = "it logs to standard error; PERDURA_LOG sets the level";
const NO_DUMP: &str = "there is no dump: the image is kept current all the time";
const NO_FILE: &str = "there is no append-only file: the image is the log";
const NO_REPLICAS: &str = "there is no replication";
const ALONE: &str = "without replicas and sentinels it changes nothing";
const NO_CLUSTER: &str = "without a cluster it changes nothing";
const LAYOUT: &str = "memory is laid out in this server's own way";
const PIECEWISE: &str = "deletions are done piece by piece, always";
const PACE: &str = "its own pace and processors are used";
const BYTES: &str = "texts are compared byte by byte";
const SANE: &str = "payloads are always checked as a whole";
const STOPS: &str = "a stop always flushes, within --grace";
const NO_PASS_PHRASE: &str =
    "the key must have no pass phrase: only its owner should read the file";
const NO_TLS_OUT: &str = "the server connects to nobody with TLS";
const CIPHERS: &str = "the cipher suites are fixed: AES-GCM and ChaCha20-Poly1305, with ECDHE";
const WHOLE_HANDSHAKES: &str = "each connection makes a whole handshake";
const NEVER: &str = "DEBUG and modules are never allowed";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_takes_its_own_value_and_has_one_line() {
        for (at, parameter) in PARAMETERS.iter().enumerate() {
            let name = parameter.name;
            if !matches!(parameter.takes, AtStart | OnlyAtStart(_)) {
                assert_eq!(parameter.check(parameter.value), Ok(()), "{name}");
            }
            assert_eq!(parameter.check_in_file(parameter.value), Ok(()), "{name}");
            let found = find(&name.to_ascii_uppercase()).unwrap();
            assert!(std::ptr::eq(found, &PARAMETERS[at]), "{name} stands twice");
        }
        assert!(find("").is_none() && find("no-such-parameter").is_none());
        assert_eq!(find("slave-priority").map(|found| found.name), Some("replica-priority"));
    }

    #[test]
    fn values_that_redis_refuses_and_values_that_are_not_honoured_are_refused() {
        let why = |name, value| find(name).unwrap().check(value).unwrap_err();
        assert_eq!(why("hz", "fast"), "argument couldn't be parsed into an integer");
        assert_eq!(
            why("active-expire-effort", "11"),
            "argument must be between 1 and 10 inclusive"
        );
        assert_eq!(why("dynamic-hz", "1"), "argument must be 'yes' or 'no'");
        assert_eq!(why("repl-backlog-size", "much"), "argument must be a memory value");
        assert!(why("loglevel", "loud").contains("verbose, notice"));
        assert_eq!(why("daemonize", "yes"), "can't set immutable config");
        assert_eq!(why("min-slaves-to-write", "1"), NO_REPLICAS);
        assert_eq!(find("repl-backlog-size").unwrap().check("100mb"), Ok(()));
    }
}
