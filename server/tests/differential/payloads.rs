//! Payloads of DUMP: the real server's restore here, ours restore there, and all are the same
//! value.

use perdura_rdb::{Encoder, Strings, Value, seal_payload};
use rand::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::redis::Redis;
use crate::running::{Client, config, start};
use crate::sorted;

/// A small payload of any type.
pub fn payload(random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let strings = |words: &[&str]| words.iter().collect::<Strings>();
    let value = match random.random_range(0..6) {
        0 => Value::String(b"a value".to_vec()),
        1 => Value::String(b"12".to_vec()),
        2 => Value::List(strings(&["1", "2", "abc", "40000"])),
        3 => Value::Set(strings(&["1", "-3", "40000"])),
        4 => Value::Sorted(strings(&["1", "a", "40000"]), vec![1.0, -2.5, 3e20]),
        _ => Value::Hash(strings(&["f", "1", "g", "abc"])),
    };
    let mut payload = Vec::new();
    Encoder::new(&mut payload, true).value(&value);
    seal_payload(&mut payload);
    payload
}

/// A payload with a changed byte, or a value that makes no sense with a right checksum.
pub fn bad_payload(random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut payload = payload(random);
    if random.random_bool(0.5) {
        let at = random.random_range(0..payload.len());
        payload[at] ^= 0x10;
        return payload;
    }
    let bad: [&[u8]; 8] = [
        &[1, 0x80, 0, 0, 0, 0],
        &[2, 2, 1, b'a', 1, b'a'],
        &[4, 1, 1, b'a'],
        &[0, 60, b'a'],
        &[10, 3, 1, 2, 3],
        &[11, 8, 2, 0, 0, 0, 9, 0, 0, 0],
        &[99, 1, b'a'],
        &[0, 0xc3, 2, 0x40, 200, 0, b'a'],
    ];
    payload = bad[random.random_range(0..bad.len())].to_vec();
    seal_payload(&mut payload);
    payload
}

/// The body of a reply with one bulk string.
fn body(reply: &[u8]) -> Vec<u8> {
    assert_eq!(reply.first(), Some(&b'$'), "{}", String::from_utf8_lossy(reply));
    let head = reply.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    reply[head..reply.len() - 2].to_vec()
}

/// The whole value at a key; where it has no order, sorted.
fn read(client: &mut Client, key: &str, kind: &str) -> Vec<u8> {
    if kind == "stream" {
        let mut all = Vec::new();
        for command in ["xrange KEY - +", "xinfo groups KEY", "xpending KEY readers", "xlen KEY"] {
            let command = command.replace("KEY", key);
            let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
            all.extend(client.call_bytes(&words));
        }
        return all;
    }
    let (command, width) = match kind {
        "list" => (format!("lrange {key} 0 -1"), 0),
        "ints" | "set" => (format!("smembers {key}"), 1),
        "sorted" => (format!("zrange {key} 0 -1 withscores"), 0),
        "hash" => (format!("hgetall {key}"), 2),
        _ => (format!("get {key}"), 0),
    };
    let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
    let reply = client.call_bytes(&words);
    assert_ne!(reply.first(), Some(&b'-'), "{command}");
    if width == 0 { reply } else { sorted(&reply, width) }
}

#[test]
fn payloads_go_to_a_real_server_and_come_from_it() {
    let Some(redis) = Redis::start() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = start(config());
    let (mut ours, mut theirs) = (server.client(), Client::connect(redis.addr));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let names = ["string", "int", "list", "ints", "set", "sorted", "hash", "stream"];
    for (round, size) in [1u32, 3, 30, 600, 3_000].into_iter().enumerate() {
        theirs.call(&format!("config set list-max-listpack-size {}", [1, 4, 128, -2, -5][round]));
        theirs.call("FLUSHALL");
        for n in 0..size {
            let long = random.random_range(0..20) == 0;
            let word = if long { "w".repeat(100 + n as usize) } else { String::new() };
            let score = f64::from(random.random_range(-999_999..999_999)) / 128.0;
            for command in [
                format!("append string part{n}-{word}"),
                format!("incrby int {}", n * 100_003),
                format!("rpush list {n} {word} element{n}"),
                format!("sadd ints {}", n * n * 3),
                format!("sadd set {n} member{n}{word}"),
                format!("zadd sorted {score} member{n}{word}"),
                format!("hset hash field{n}{word} {n} {n} value{word}"),
                format!("xadd stream {}-1 field {n} other {word}x", n + 1),
                format!("xadd stream {}-{} name{} {n}", n + 1, n + 2, n % 3),
            ] {
                let reply = theirs.call(&command);
                assert!(!reply.starts_with('-'), "{command}: {reply}");
            }
        }
        // Entries that are gone, groups, and entries that consumers have not acknowledged.
        theirs.call("xdel stream 1-1 2-3");
        theirs.call("xgroup create stream readers 0");
        theirs.call("xgroup create stream late $");
        theirs.call("xreadgroup group readers one count 20 streams stream >");
        theirs.call("xreadgroup group readers two count 3 streams stream >");
        theirs.call("xack stream readers 1-2 2-1");
        theirs.call("xgroup createconsumer stream late idle");
        theirs.call("zadd sorted inf most -inf least 0.1 tenth");
        for name in names {
            let from_them = body(&theirs.call_bytes(&[b"dump", name.as_bytes()]));
            let key = format!("from-{name}");
            let restored =
                ours.call_bytes(&[b"restore", key.as_bytes(), b"0", &from_them, b"replace"]);
            assert_eq!(restored, b"+OK\r\n", "{name}");
            let from_us = body(&ours.call_bytes(&[b"dump", key.as_bytes()]));
            let restored =
                theirs.call_bytes(&[b"restore", key.as_bytes(), b"0", &from_us, b"replace"]);
            assert_eq!(restored, b"+OK\r\n", "{name}");
            assert_eq!(read(&mut theirs, &key, name), read(&mut theirs, name, name), "{name}");
            assert_eq!(read(&mut ours, &key, name), read(&mut theirs, name, name), "{name}");
        }
    }
}
