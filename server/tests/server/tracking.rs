//! Clients that keep copies of values, over several loops: no copy is old without a message on its
//! way.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use perdura_server::{Durability, ServerConfig};

use crate::check;
use crate::running::{Client, Running, config, start};

fn three(durability: Durability) -> (Running, [Client; 3]) {
    let server = start(ServerConfig { threads: 3, durability, ..config() });
    let mut clients = [server.client(), server.client(), server.client()];
    clients.iter_mut().for_each(|client| drop(client.call("HELLO 3")));
    (server, clients)
}

const KEY_A: &str = ">2 $10 invalidate *1 $1 a";

#[test]
fn a_change_by_another_loop_is_told_once() {
    let (_server, [mut reader, mut writer, mut other]) = three(Durability::Warned);
    check(&mut reader, &[("CLIENT TRACKING ON", "+OK"), ("GET a", "_"), ("MGET a b", "*2 _ _")]);
    check(&mut writer, &[("DEL a", ":0"), ("SET a 1", "+OK"), ("SET a 2", "+OK")]);
    assert_eq!(reader.reply_text(), KEY_A);
    check(&mut reader, &[("PING", "+PONG"), ("HGET h f", "_"), ("HGET h f", "_")]);
    check(&mut writer, &[("HSET h f 1", ":1")]);
    assert_eq!(reader.reply_text(), ">2 $10 invalidate *1 $1 h");
    // A command that fails or changes nothing tells nobody.
    check(&mut reader, &[("GET a", "$1 2")]);
    check(&mut writer, &[("SET a 3 NX", "_"), ("GETSET h x", WRONG), ("GETRANGE a 0 0", "$1 2")]);
    check(&mut reader, &[("PING", "+PONG")]);
    // A removal, an expiry and a new name are changes.
    check(&mut writer, &[("EXPIRE a 100", ":1")]);
    assert_eq!(reader.reply_text(), KEY_A);
    for (line, reply) in [("DEL a", ":1"), ("RENAME h a", "+OK"), ("MOVE a 3", ":1")] {
        check(&mut reader, &[("EXISTS a", if line.starts_with('R') { ":0" } else { ":1" })]);
        check(&mut other, &[(line, reply)]);
        assert_eq!(reader.reply_text(), KEY_A, "{line}");
    }
    check(&mut reader, &[("CLIENT TRACKING OFF", "+OK"), ("GET b", "_")]);
    check(&mut writer, &[("SET b 1", "+OK")]);
    check(&mut reader, &[("PING", "+PONG")]);
}

const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn ones_own_change_is_told_behind_the_reply() {
    let (_server, [mut client, _, _]) = three(Durability::Fsync);
    check(&mut client, &[("CLIENT TRACKING ON", "+OK"), ("SET a 1", "+OK"), ("GET a", "$1 1")]);
    check(&mut client, &[("INCR a", ":2")]);
    assert_eq!(client.reply_text(), KEY_A);
    check(&mut client, &[("GET a", "$1 2"), ("MULTI", "+OK"), ("INCR a", "+QUEUED")]);
    check(&mut client, &[("EXEC", "*1 :3")]);
    assert_eq!(client.reply_text(), KEY_A);
    check(&mut client, &[("GET a", "$1 3"), ("FLUSHALL", "+OK")]);
    assert_eq!(client.reply_text(), ">2 $10 invalidate _");
    check(&mut client, &[("CLIENT TRACKING ON NOLOOP", "+OK"), ("GET a", "_"), ("SET a 1", "+OK")]);
    check(&mut client, &[("PING", "+PONG")]);
}

#[test]
fn a_script_is_told_of_the_keys_that_it_has_read() {
    let (_server, [mut reader, mut writer, _]) = three(Durability::Warned);
    check(&mut reader, &[("CLIENT TRACKING ON", "+OK")]);
    for (eval, read) in [
        ("EVAL redis.call('set','w','1') 3 a b w", ""),
        ("EVAL redis.call('get','a') 3 a b w", "a"),
        ("EVAL_RO redis.call('ping') 2 a b", ""),
        ("EVAL_RO redis.call('get','b') 2 a b", "b"),
    ] {
        check(&mut reader, &[(eval, "_")]);
        check(&mut writer, &[("MSET a 1 b 1 w 1", "+OK")]);
        if !read.is_empty() {
            assert_eq!(reader.reply_text(), format!(">2 $10 invalidate *1 $1 {read}"), "{eval}");
        }
        check(&mut reader, &[("PING", "+PONG")]);
    }
}

#[test]
fn prefixes_choices_and_another_client_that_is_told() {
    let (server, [mut reader, mut writer, mut ear]) = three(Durability::Warned);
    check(&mut reader, &[("CLIENT TRACKING ON BCAST PREFIX x PREFIX y", "+OK")]);
    check(&mut writer, &[("MSET x1 1 x2 1 z 1 y1 1", "+OK")]);
    assert_eq!(reader.reply_text(), ">2 $10 invalidate *2 $2 x1 $2 x2");
    assert_eq!(reader.reply_text(), ">2 $10 invalidate *1 $2 y1");
    assert!(server.client().call("INFO stats").contains("tracking_total_prefixes:2"));
    check(&mut reader, &[("CLIENT TRACKING OFF", "+OK"), ("CLIENT TRACKING ON OPTIN", "+OK")]);
    check(
        &mut reader,
        &[("GET a", "_"), ("CLIENT CACHING YES", "+OK"), ("GET b", "_"), ("GET c", "_")],
    );
    check(&mut writer, &[("MSET a 1 b 1 c 1", "+OK")]);
    assert_eq!(reader.reply_text(), ">2 $10 invalidate *1 $1 b");
    // An ear in RESP2 hears a message; the reader hears that the ear has gone.
    let id = ear.call("CLIENT ID")[1..].to_owned();
    check(&mut reader, &[("CLIENT TRACKING OFF", "+OK")]);
    check(&mut reader, &[(&format!("CLIENT TRACKING ON REDIRECT {id}"), "+OK"), ("GET a", "$1 1")]);
    ear.call("HELLO 2");
    ear.call("SUBSCRIBE __redis__:invalidate");
    check(&mut writer, &[("SET a 2", "+OK")]);
    assert_eq!(ear.reply_text(), "*3 $7 message $20 __redis__:invalidate *1 $1 a");
    let list = writer.call("CLIENT LIST");
    assert!(list.contains(" flags=t db=0") && list.contains(&format!(" redir={id} ")));
    check(&mut reader, &[("GET a", "$1 2"), ("CLIENT GETREDIR", &format!(":{id}"))]);
    drop(ear);
    while writer.call("CLIENT LIST").contains(&format!("id={id} ")) {}
    check(&mut writer, &[("SET a 3", "+OK")]);
    assert_eq!(reader.reply_text(), format!(">2 $21 tracking-redir-broken :{id}"));
    assert!(reader.call("CLIENT TRACKINGINFO").contains("$15 broken_redirect"));
    check(&mut reader, &[("RESET", "+RESET"), ("CLIENT GETREDIR", ":-1")]);
}

#[test]
fn the_table_is_as_large_as_was_asked_for_and_empty_without_clients() {
    let (server, [mut reader, mut other, _]) = three(Durability::Warned);
    check(&mut reader, &[("CLIENT TRACKING ON", "+OK")]);
    for n in 0..40 {
        check(&mut reader, &[(&format!("GET k{n}"), "_")]);
    }
    check(&mut other, &[("CLIENT TRACKING ON", "+OK"), ("GET k1", "_")]);
    let mut root = server.client();
    let info = root.call("INFO");
    for field in ["tracking_total_keys:40", "tracking_total_items:41", "tracking_clients:2"] {
        assert!(info.contains(field), "{field} in {info}");
    }
    check(&mut root, &[("CONFIG SET tracking-table-max-keys 3", "+OK")]);
    let mut told = std::collections::BTreeSet::new();
    for _ in 0..37 {
        assert!(told.insert(reader.reply_text()), "a key is told twice");
    }
    check(&mut reader, &[("PING", "+PONG")]);
    assert!(root.call("INFO").contains("tracking_total_keys:3"));
    drop((reader, other));
    while !root.call("INFO").contains("tracking_clients:0") {}
    assert!(root.call("INFO").contains("tracking_total_keys:0"));
}

#[test]
fn an_expired_key_is_told() {
    let (_server, [mut reader, mut writer, _]) = three(Durability::Warned);
    check(&mut reader, &[("CLIENT TRACKING ON", "+OK")]);
    check(&mut writer, &[("SET a 1 PX 20", "+OK")]);
    reader.call("GET a");
    assert_eq!(reader.reply_text(), KEY_A);
    check(&mut reader, &[("GET a", "_")]);
}

/// A client with copies of values, which it forgets when it is told to.
struct Cache {
    client: Client,
    copies: HashMap<String, String>,
}

impl Cache {
    fn call(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.client.send(&words);
        self.answer()
    }

    /// The next reply, behind what the client is told.
    fn answer(&mut self) -> String {
        loop {
            let reply = self.client.reply_text();
            let Some(push) = reply.strip_prefix(">2 $10 invalidate ") else { return reply };
            match push {
                "_" => self.copies.clear(),
                keys => keys.split(' ').skip(2).step_by(2).for_each(|key| {
                    self.copies.remove(key);
                }),
            }
        }
    }

    /// Reads a key, unless there is a copy.
    fn get(&mut self, key: &str) {
        if !self.copies.contains_key(key) {
            let value = self.call(&format!("GET {key}"));
            self.copies.insert(key.to_owned(), value);
        }
    }
}

#[test]
fn no_copy_is_old_when_all_messages_have_come() {
    const KEYS: u64 = 6;
    for durability in [Durability::Warned, Durability::Fsync] {
        let server = start(ServerConfig { threads: 3, durability, ..config() });
        let is_over = AtomicBool::new(false);
        let mut caches: Vec<Cache> = std::thread::scope(|scope| {
            let caches: Vec<_> = (0..3u64)
                .map(|n| {
                    let (server, is_over) = (&server, &is_over);
                    scope.spawn(move || {
                        let mut cache = Cache { client: server.client(), copies: HashMap::new() };
                        cache.call("HELLO 3");
                        cache.call("CLIENT TRACKING ON");
                        let mut at = n;
                        while !is_over.load(Relaxed) {
                            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(n | 1);
                            cache.get(&format!("k{}", (at >> 33) % KEYS));
                            cache.call("PING");
                        }
                        cache
                    })
                })
                .collect();
            let writers: Vec<_> = (0..3)
                .map(|n| {
                    let server = &server;
                    scope.spawn(move || {
                        let mut client = server.client();
                        for round in 0..400 {
                            let key = (round * 7 + n) % KEYS;
                            match round % 5 {
                                0 => client.call(&format!("DEL k{key}")),
                                1 => client.call(&format!("MSET k{key} {round} k{n} {n}")),
                                _ => client.call(&format!("INCR k{key}")),
                            };
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            is_over.store(true, Relaxed);
            caches.into_iter().map(|cache| cache.join().unwrap()).collect()
        });
        let mut root = server.client();
        root.call("HELLO 3");
        for cache in &mut caches {
            // A message that was left before this is behind one of the replies at the latest.
            cache.call("PING");
            cache.call("PING");
            for (key, copy) in &cache.copies {
                assert_eq!(root.call(&format!("GET {key}")), *copy, "{key}, {durability:?}");
            }
        }
    }
}

/// What a read registers after it has read is lost if a write comes between. So that it does, both
/// are on their way at the same time, on two loops, and nothing else happens afterwards.
#[test]
fn a_read_and_a_write_at_the_same_time_leave_no_old_copy() {
    const KEYS: usize = 64;
    let (_server, [reader, mut writer, _]) = three(Durability::Warned);
    let mut cache = Cache { client: reader, copies: HashMap::new() };
    cache.call("CLIENT TRACKING ON");
    let batch = |command: &str| -> String {
        (0..KEYS).map(|key| format!("{command} k{key}\r\n")).collect()
    };
    let (writes, reads) = (batch("INCR"), batch("GET"));
    for round in 0..1000 {
        if round % 2 == 0 {
            writer.write(writes.trim_end());
            cache.client.write(reads.trim_end());
        } else {
            cache.client.write(reads.trim_end());
            writer.write(writes.trim_end());
        }
        for key in 0..KEYS {
            let copy = cache.answer();
            cache.copies.insert(format!("k{key}"), copy);
        }
        let values: Vec<String> = (0..KEYS).map(|_| writer.reply_text()[1..].to_owned()).collect();
        cache.call("PING");
        cache.call("PING");
        for (key, value) in values.iter().enumerate() {
            if let Some(copy) = cache.copies.get(&format!("k{key}")) {
                assert!(copy.ends_with(&format!(" {value}")), "round {round}: {copy} for {value}");
            }
        }
    }
}
