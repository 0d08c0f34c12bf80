//! Keyspace notifications that do not follow from a command at once, or that Redis 7.0 does not
//! have: keys and fields that expire, keys that are evicted, and the classes that are asked for.

use perdura_server::ServerConfig;

use crate::check;
use crate::running::{Client, Running, config, start};

fn server() -> Running {
    start(ServerConfig { threads: 3, ..config() })
}

/// A client that hears which events of keys there are, by the keys.
fn subscriber(server: &Running, letters: &str) -> Client {
    let mut client = server.client();
    assert_eq!(client.call(&format!("CONFIG SET notify-keyspace-events {letters}")), "+OK");
    client.call("PSUBSCRIBE __keyspace@0__:*");
    client
}

/// The next messages, each as the key and the event.
fn heard(client: &mut Client, count: usize) -> Vec<String> {
    let message = |_| {
        let text = client.reply_text();
        let mut words = text.split(' ').skip(6).step_by(2);
        let channel = words.next().unwrap_or_default();
        let key = channel.trim_start_matches("__keyspace@0__:");
        format!("{key} {}", words.next().unwrap_or_default())
    };
    (0..count).map(message).collect()
}

#[test]
fn keys_that_expire_are_told_of_once() {
    let server = server();
    let mut subscriber = subscriber(&server, "KA");
    let mut client = server.client();
    client.call("SET swept 1 PX 1");
    assert_eq!(heard(&mut subscriber, 3), ["swept set", "swept expire", "swept expired"]);
    // Whether the sweep or the command removes the key: it has expired before it is set.
    client.call("SET k 1 PX 1");
    while client.call("EXISTS k") != ":0" {}
    client.call("SET k 2");
    assert_eq!(heard(&mut subscriber, 4), ["k set", "k expire", "k expired", "k set"]);
    assert!(subscriber.hears_nothing());
}

#[test]
fn fields_that_expire_are_told_of_by_their_hash() {
    let server = server();
    let mut subscriber = subscriber(&server, "KA");
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("HSET h a 1 b 2", ":2"),
            ("HEXPIRE h 100 FIELDS 1 a", "*1 :1"),
            ("HPERSIST h FIELDS 1 a", "*1 :1"),
            ("HPERSIST h FIELDS 1 a", "*1 :-1"),
            ("HEXPIRE h 0 FIELDS 1 a", "*1 :2"),
            ("HEXPIRE h 0 FIELDS 1 b", "*1 :2"),
            ("HSET i a 1 b 2", ":2"),
            ("HPEXPIRE i 1 FIELDS 1 a", "*1 :1"),
        ],
    );
    let expected = ["h hset", "h hexpire", "h hpersist", "h hdel", "h hdel", "h del"];
    assert_eq!(heard(&mut subscriber, 6), expected);
    assert_eq!(heard(&mut subscriber, 3), ["i hset", "i hexpire", "i hexpired"]);
    client.call("HPEXPIRE i 1 FIELDS 1 b");
    assert_eq!(heard(&mut subscriber, 3), ["i hexpire", "i hexpired", "i del"]);
    assert!(subscriber.hears_nothing());
}

#[test]
fn evicted_keys_are_told_of() {
    let server = server();
    let mut subscriber = subscriber(&server, "Ke");
    let mut client = server.client();
    client.call("SET k 1");
    client.call("CONFIG SET maxmemory-policy allkeys-random maxmemory 1");
    assert_eq!(heard(&mut subscriber, 1), ["k evicted"]);
}

#[test]
fn changes_of_large_values_are_told_of_and_counted() {
    let server = server();
    let mut client = server.client();
    let members: String = (0..600).map(|n| format!(" {n} member:{n}")).collect();
    for command in ["SADD set", "ZADD sorted", "HSET hash"] {
        client.call(&format!("{command}{members}"));
    }
    let saved = |client: &mut Client| -> u64 {
        let info = client.call("INFO persistence");
        let rest = info.split("rdb_changes_since_last_save:").nth(1).unwrap();
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let before = saved(&mut client);
    check(
        &mut client,
        &[
            ("SADD set new", ":1"),
            ("SADD set new", ":0"),
            ("ZADD sorted 700 new", ":1"),
            ("ZADD sorted 700 new", ":0"),
            ("ZINCRBY sorted 0 new", "$3 700"),
            ("ZADD sorted inf endless", ":1"),
            ("ZINCRBY sorted -inf endless", "-ERR resulting score is not a number (NaN)"),
            ("ZPOPMIN sorted 2", "*4 $8 member:0 $1 0 $8 member:1 $1 1"),
            ("ZPOPMAX sorted", "*2 $7 endless $3 inf"),
            ("SPOP set 0", "*0"),
        ],
    );
    assert!(client.call("SPOP set 3").starts_with("*3 "));
    let changed = saved(&mut client) - before;
    // Those that found everything as it was to be are not among them.
    assert_eq!(changed, 6);
    let mut subscriber = subscriber(&server, "KA");
    for (command, event) in [
        ("SADD set newer", "set sadd"),
        ("SPOP set", "set spop"),
        ("HSET hash newer x", "hash hset"),
        ("HSET hash newest x", "hash hset"),
        ("ZADD sorted 5 newer", "sorted zadd"),
        ("ZINCRBY sorted 5 newer", "sorted zincr"),
        ("ZPOPMIN sorted", "sorted zpopmin"),
        ("ZPOPMAX sorted", "sorted zpopmax"),
    ] {
        client.call(command);
        assert_eq!(heard(&mut subscriber, 1), [event], "{command}");
    }
}

#[test]
fn only_the_classes_that_are_asked_for_are_told_of() {
    let server = server();
    let mut subscriber = subscriber(&server, "Klg");
    let mut client = server.client();
    client.call("SET a 1");
    client.call("RPUSH l 1");
    client.call("LPOP l");
    client.call("CONFIG SET notify-keyspace-events KE");
    client.call("RPUSH l 1");
    client.call("CONFIG SET notify-keyspace-events $");
    client.call("SET a 1");
    client.call("CONFIG SET notify-keyspace-events K$");
    client.call("SET a 1");
    assert_eq!(heard(&mut subscriber, 4), ["l rpush", "l lpop", "l del", "a set"]);
    assert!(subscriber.hears_nothing());
}

#[test]
fn the_events_of_a_key_come_in_the_order_of_its_changes() {
    let server = server();
    let mut subscriber = subscriber(&server, "K$g");
    let mut clients: Vec<_> = (0..4).map(|_| server.client()).collect();
    for _ in 0..200 {
        for (at, client) in clients.iter_mut().enumerate() {
            client.write(if at % 2 == 0 { "SETNX k 1" } else { "DEL k" });
        }
        clients.iter_mut().for_each(|client| drop(client.reply_text()));
    }
    clients[0].call("PUBLISH __keyspace@0__:end end");
    let mut before = "k del".to_owned();
    loop {
        let [event] = &heard(&mut subscriber, 1)[..] else { unreachable!() };
        if event == "end end" {
            break;
        }
        assert_ne!(*event, before, "a key is set and deleted in turn");
        before.clone_from(event);
    }
}
