//! The directives of Redis that stand for options of `serve`, and those that are no parameters of
//! a running server. The server itself knows all others (`perdura_server::parameters`).

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
    ("unixsocketperm", Option(socket_mode)),
    ("tls-port", Option(|values| number("tls-port", values, 0..=65_535))),
    ("tls-cert-file", Option(|values| one("tls-cert-file", values))),
    ("tls-key-file", Option(|values| one("tls-key-file", values))),
    ("tls-ca-cert-file", Option(|values| one("tls-ca-cert-file", values))),
    ("tls-ca-cert-dir", Option(|values| one("tls-ca-cert-dir", values))),
    ("tls-auth-clients", Option(|values| one("tls-auth-clients", values))),
    ("tls-protocols", Option(|values| joined("tls-protocols", values))),
    ("dir", Option(dir)),
    (
        "slowlog-log-slower-than",
        Option(|values| number("slowlog-log-slower-than", values, -1..=i64::MAX)),
    ),
    ("slowlog-max-len", Option(|values| number("slowlog-max-len", values, 0..=i64::MAX))),
    ("aclfile", Option(acl_file)),
    ("user", Option(user)),
    ("appendonly", Option(durability)),
    ("appendfsync", Option(fsync)),
    ("rename-command", Only(&[], "commands cannot be renamed")),
    ("loadmodule", Only(&[], "there are no modules")),
    ("include", Only(&[], "one file is read: put its lines here")),
    ("tcp-backlog", Nothing(PACE)),
    ("lua-time-limit", Option(|values| number("busy-reply-threshold", values, 0..=i64::MAX))),
    ("busy-reply-threshold", Option(|values| number("busy-reply-threshold", values, 0..=i64::MAX))),
    (
        "client-output-buffer-limit",
        Nothing("a client may have 1 GiB of unread replies, then it is disconnected"),
    ),
];

const PACE: &str = "its own pace and processors are used";

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

/// The permissions of the Unix socket; 0, which is the umask's in Redis, is the usual ones here.
fn socket_mode(values: &[String]) -> Result<Vec<String>, String> {
    match values {
        [value] if value.trim_start_matches('0').is_empty() => Ok(Vec::new()),
        _ => one("unix-socket-mode", values),
    }
}

/// The folder `perdura-data` in Redis's working directory, as without the option.
fn dir(values: &[String]) -> Result<Vec<String>, String> {
    match values {
        [dir] => Ok(vec![format!("--dir={}/perdura-data", dir.trim_end_matches('/'))]),
        _ => Err(format!("{} values, expected one", values.len())),
    }
}

/// The file with users; an empty name is none.
fn acl_file(values: &[String]) -> Result<Vec<String>, String> {
    match values {
        [name] if name.is_empty() => Ok(Vec::new()),
        _ => one("aclfile", values),
    }
}

/// A user with its rules, which become words again where they are read.
fn user(values: &[String]) -> Result<Vec<String>, String> {
    let is_word = |value: &&String| value.starts_with('(') || !value.contains(char::is_whitespace);
    match values {
        [] => Err("no name".to_owned()),
        _ if !values.iter().all(|value| is_word(&value)) => {
            Err("a rule has a blank in it: give a password as #HASH instead".to_owned())
        }
        _ => joined("user", values),
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
