//! What COMMAND INFO says of each command, beside a real Redis.

use std::collections::BTreeSet;

use crate::redis::Redis;
use crate::running::{Client, config, start};

/// A reply without its types.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Text(String),
    List(Vec<Value>),
}

impl Value {
    fn parse(bytes: &mut &[u8]) -> Self {
        let end = bytes.iter().position(|b| *b == b'\n').unwrap();
        let head = String::from_utf8_lossy(&bytes[..end - 1]).into_owned();
        *bytes = &bytes[end + 1..];
        let count = || head[1..].parse::<i64>().unwrap();
        match head.as_bytes()[0] {
            b'*' => Self::List((0..count()).map(|_| Self::parse(bytes)).collect()),
            b'$' => {
                let (text, rest) = bytes.split_at(count() as usize + 2);
                *bytes = rest;
                Self::Text(String::from_utf8_lossy(&text[..text.len() - 2]).into_owned())
            }
            _ => Self::Text(head[1..].to_owned()),
        }
    }

    fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            Self::Text(_) => &[],
        }
    }
}

fn info(client: &mut Client, name: &str) -> Vec<Value> {
    let reply = client.call_bytes(&[b"COMMAND", b"INFO", name.as_bytes()]);
    let all = Value::parse(&mut &reply[..]);
    let Some(one) = all.items().first() else { return Vec::new() };
    let sorted = |value: &Value| {
        let mut items = value.items().to_vec();
        items.sort();
        Value::List(items)
    };
    let mut fields = one.items().to_vec();
    if fields.len() < 10 {
        return Vec::new();
    }
    (fields[2], fields[6]) = (sorted(&fields[2]), sorted(&fields[6]));
    // Redis adds notes for readers to some keys.
    let without_notes = |spec: &Value| {
        let pairs = spec.items().chunks(2);
        let kept = pairs.filter(|pair| pair[0] != Value::Text("notes".to_owned()));
        Value::List(kept.flatten().cloned().collect())
    };
    fields[8] = Value::List(fields[8].items().iter().map(without_notes).collect());
    fields.truncate(9);
    fields
}

/// Fields that differ between Redis 7.0 and 7.2: here they are as in 7.2.
const OTHERWISE: [(&str, &str); 27] = [
    ("acl|deluser", "tips"),
    ("acl|save", "tips"),
    ("acl|setuser", "tips"),
    ("blmove", "flags"),
    ("blpop", "flags"),
    ("brpop", "flags"),
    ("brpoplpush", "flags"),
    ("bzpopmax", "flags"),
    ("bzpopmin", "flags"),
    ("client|setname", "tips"),
    ("config|resetstat", "tips"),
    ("config|rewrite", "tips"),
    ("latency|reset", "tips"),
    ("msetnx", "tips"),
    ("pfcount", "flags"),
    ("eval", "flags"),
    ("evalsha", "flags"),
    ("fcall", "flags"),
    ("publish", "flags"),
    ("randomkey", "flags"),
    ("randomkey", "tips"),
    ("scan", "flags"),
    ("scan", "tips"),
    ("spublish", "flags"),
    ("wait", "flags"),
    ("zrank", "arity"),
    ("zrevrank", "arity"),
];

#[test]
fn commands_are_described_as_by_redis() {
    let Some(redis) = Redis::start() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = start(config());
    let (mut ours, mut theirs) = (server.client(), Client::connect(redis.addr));
    if !theirs.call("INFO server").contains("redis_version:7.0.") {
        println!("skipped: another version of redis-server");
        return;
    }
    let known = crate::every(&mut theirs);
    let fields = ["name", "arity", "flags", "first", "last", "step", "categories", "tips", "keys"];
    let mut differences = BTreeSet::new();
    for name in crate::every(&mut ours).intersection(&known) {
        let (our, their) = (info(&mut ours, name), info(&mut theirs, name));
        assert!(!our.is_empty() && !their.is_empty(), "{name}");
        for (field, (our, their)) in fields.iter().zip(our.iter().zip(&their)) {
            if our != their && !OTHERWISE.contains(&(name.as_str(), *field)) {
                differences.insert(format!("{name} {field}:\n  ours  {our:?}\n  redis {their:?}"));
            }
        }
    }
    let all: Vec<String> = differences.into_iter().collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}
