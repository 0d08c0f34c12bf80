//! Fields of hashes that expire: the replies of Redis 7.4, by its documentation.

use std::time::{Duration, Instant};

use crate::check;
use crate::running::{Client, config, start};

/// Asks until the reply is this one.
fn wait_for(client: &mut Client, line: &str, reply: &str) {
    let end = Instant::now() + Duration::from_secs(10);
    while client.call(line) != reply {
        assert!(Instant::now() < end, "{line} never answers {reply}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn each_command_answers_for_each_field() {
    let server = start(config());
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("HSET h a 1 b 2 c 3", ":3"),
            ("HEXPIREAT h 5000000000 FIELDS 2 a nothing", "*2 :1 :-2"),
            ("HEXPIRETIME h FIELDS 3 a b nothing", "*3 :5000000000 :-1 :-2"),
            ("HPEXPIRETIME h FIELDS 1 a", "*1 :5000000000000"),
            ("HPEXPIREAT h 5000000000001 FIELDS 1 b", "*1 :1"),
            ("HEXPIRETIME h FIELDS 1 b", "*1 :5000000001"),
            ("HEXPIRE h 100 fields 1 a", "*1 :1"),
            ("HTTL h FIELDS 1 a", "*1 :100"),
            ("HPERSIST h FIELDS 3 a c nothing", "*3 :1 :-1 :-2"),
            ("HTTL h FIELDS 1 a", "*1 :-1"),
            ("HEXPIRE h 0 FIELDS 1 a", "*1 :2"),
            ("HPEXPIREAT h 1 FIELDS 2 a b", "*2 :-2 :2"),
            ("HGETALL h", "*2 $1 c $1 3"),
            ("HEXPIRE h 0 FIELDS 1 c", "*1 :2"),
            ("EXISTS h", ":0"),
            ("HEXPIRE h 100 FIELDS 2 a b", "*2 :-2 :-2"),
            ("HTTL h FIELDS 1 a", "*1 :-2"),
            ("HPTTL h FIELDS 1 a", "*1 :-2"),
            ("HPERSIST h FIELDS 1 a", "*1 :-2"),
        ],
    );
}

#[test]
fn conditions_compare_with_the_expiry_that_a_field_has() {
    let server = start(config());
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("HSET h a 1 b 2", ":2"),
            ("HEXPIREAT h 5000000000 XX FIELDS 1 a", "*1 :0"),
            ("HEXPIREAT h 5000000000 GT FIELDS 1 a", "*1 :0"),
            ("HEXPIREAT h 1 gt FIELDS 1 a", "*1 :0"),
            ("HEXPIREAT h 5000000000 NX FIELDS 1 a", "*1 :1"),
            ("HEXPIREAT h 5000000001 NX FIELDS 2 a b", "*2 :0 :1"),
            ("HEXPIREAT h 5000000000 GT FIELDS 2 a b", "*2 :0 :0"),
            ("HEXPIREAT h 5000000000 LT FIELDS 2 a b", "*2 :0 :1"),
            ("HEXPIREAT h 5000000002 GT FIELDS 2 a b", "*2 :1 :1"),
            ("HEXPIREAT h 5000000003 XX FIELDS 1 a", "*1 :1"),
            ("HPERSIST h FIELDS 1 b", "*1 :1"),
            ("HEXPIREAT h 5000000000 LT FIELDS 1 b", "*1 :1"),
            ("HEXPIRETIME h FIELDS 2 a b", "*2 :5000000003 :5000000000"),
            ("HEXPIREAT h 1 LT FIELDS 1 b", "*1 :2"),
        ],
    );
}

#[test]
fn arguments_are_refused_as_redis_refuses_them() {
    let server = start(config());
    let mut client = server.client();
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let missing = "-ERR Mandatory argument FIELDS is missing or not at the right position";
    let number = "-ERR The `numfields` parameter must match the number of arguments";
    let above = "-ERR Parameter `numFields` should be greater than 0";
    let positive = "-ERR Number of fields must be a positive integer";
    let integer = "-ERR value is not an integer or out of range";
    check(
        &mut client,
        &[
            ("SET s x", "+OK"),
            ("HSET h a 1", ":1"),
            ("HEXPIRE s x FIELDS 1 a", wrong),
            ("HTTL s x 1 a", wrong),
            ("HPERSIST s x 1 a", wrong),
            ("HEXPIRE h 1 FIELDS 1", "-ERR wrong number of arguments for 'hexpire' command"),
            ("HTTL h FIELDS 1", "-ERR wrong number of arguments for 'httl' command"),
            ("HEXPIRE h x FIELDS 1 a", integer),
            ("HEXPIRE h -1 FIELDS 1 a", "-ERR invalid expire time, must be >= 0"),
            ("HEXPIRE h 70368744178 FIELDS 1 a", "-ERR invalid expire time in 'hexpire' command"),
            (
                "HPEXPIRE h 70368744177663 FIELDS 1 a",
                "-ERR invalid expire time in 'hpexpire' command",
            ),
            ("HPEXPIREAT h 70368744177663 FIELDS 1 a", "*1 :1"),
            (
                "HPEXPIREAT h 70368744177664 FIELDS 1 a",
                "-ERR invalid expire time in 'hpexpireat' command",
            ),
            (
                "HEXPIREAT h 9223372036854775807 FIELDS 1 a",
                "-ERR invalid expire time in 'hexpireat' command",
            ),
            ("HEXPIRE h 1 YY FIELDS 1 a", missing),
            ("HEXPIRE h 1 NX XX FIELDS 1 a", missing),
            ("HEXPIRE h 1 FIELDS 0 a", above),
            ("HEXPIRE h 1 FIELDS x a", above),
            ("HEXPIRE h 1 FIELDS 2 a", number),
            ("HEXPIRE h 1 FIELDS 1 a b", number),
            ("HEXPIRE h 1 NX FIELDS 1", number),
            ("HTTL h FIELD 1 a", missing),
            ("HTTL h FIELDS 0 a", positive),
            ("HPERSIST h FIELDS -1 a", positive),
            ("HPEXPIRETIME h FIELDS 2 a", number),
            ("HPEXPIRETIME h FIELDS 1 a", "*1 :70368744177663"),
        ],
    );
}

#[test]
fn writes_drop_an_expiry_and_increments_and_copies_keep_it() {
    let server = start(config());
    let mut client = server.client();
    let at = |key: &str| format!("HEXPIRETIME {key} FIELDS 2 a b");
    let (there, gone) = ("*2 :5000000000 :5000000000", "*2 :5000000000 :-1");
    check(
        &mut client,
        &[
            ("HSET h a 1 b 2 c 3", ":3"),
            ("HEXPIREAT h 5000000000 FIELDS 2 a b", "*2 :1 :1"),
            ("HINCRBY h a 5", ":6"),
            ("HINCRBYFLOAT h b 0.5", "$3 2.5"),
            (&at("h"), there),
            ("HSETNX h b x", ":0"),
            (&at("h"), there),
            ("HSET h b x", ":0"),
            (&at("h"), gone),
            ("COPY h other", ":1"),
            (&at("other"), gone),
            ("RENAME other {other}2", "+OK"),
            (&at("{other}2"), gone),
            ("MOVE {other}2 1", ":1"),
            ("SWAPDB 0 1", "+OK"),
            (&at("{other}2"), gone),
            ("SWAPDB 0 1", "+OK"),
            ("HDEL h a", ":1"),
            ("HSET h a 1", ":1"),
            ("HTTL h FIELDS 1 a", "*1 :-1"),
            ("MULTI", "+OK"),
            ("HEXPIREAT h 5000000000 FIELDS 1 a", "+QUEUED"),
            ("HGET h a", "+QUEUED"),
            ("HLEN h", "+QUEUED"),
            ("EXEC", "*3 *1 :1 $1 1 :3"),
        ],
    );
}

#[test]
fn a_dump_has_when_fields_expire_and_restores_them() {
    let server = start(config());
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("HSET h a 1 b 2 c 3", ":3"),
            ("HPEXPIREAT h 5000000000000 FIELDS 1 a", "*1 :1"),
            ("HPEXPIREAT h 5000000000009 FIELDS 1 c", "*1 :1"),
        ],
    );
    let dump = client.call_bytes(&[b"DUMP", b"h"]);
    let body_at = dump.windows(2).position(|pair| pair == b"\r\n").unwrap() + 2;
    let payload = &dump[body_at..dump.len() - 2];
    assert_eq!(payload[0], 24);
    client.send(&[b"RESTORE", b"copy", b"0", payload]);
    assert_eq!(client.reply_text(), "+OK");
    let times = "*3 :5000000000000 :-1 :5000000000009";
    check(&mut client, &[("HPEXPIRETIME copy FIELDS 3 a b c", times), ("HGET copy b", "$1 2")]);
    // Nothing expires any more: it is the hash that every Redis reads.
    client.call("HPERSIST copy FIELDS 2 a c");
    let plain = client.call_bytes(&[b"DUMP", b"copy"]);
    assert_eq!(plain[plain.windows(2).position(|pair| pair == b"\r\n").unwrap() + 2], 4);
}

#[test]
fn encodings_say_that_fields_expire() {
    let server = start(config());
    let mut client = server.client();
    let long = "x".repeat(65);
    check(
        &mut client,
        &[
            ("HSET h a 1", ":1"),
            ("OBJECT ENCODING h", "$8 listpack"),
            ("HEXPIRE h 100 FIELDS 1 a", "*1 :1"),
            ("OBJECT ENCODING h", "$10 listpackex"),
            ("HPERSIST h FIELDS 1 a", "*1 :1"),
            ("OBJECT ENCODING h", "$10 listpackex"),
            (&format!("HSET h b {long}"), ":1"),
            ("OBJECT ENCODING h", "$9 hashtable"),
        ],
    );
}

#[test]
fn expired_fields_are_shown_by_no_command_and_swept() {
    let server = start(config());
    let mut client = server.client();
    let (kept, gone) = ("*2 $4 kept $1 1", ":1");
    check(
        &mut client,
        &[
            ("HSET h kept 1 soon 2 later 3", ":3"),
            ("HSET all a 1 b 2", ":2"),
            ("HPEXPIRE h 60 FIELDS 1 soon", "*1 :1"),
            ("HPEXPIRE all 60 FIELDS 2 a b", "*2 :1 :1"),
            ("HEXPIRE h 500 FIELDS 1 later", "*1 :1"),
        ],
    );
    wait_for(&mut client, "HLEN h", ":2");
    check(
        &mut client,
        &[
            ("HDEL h later", gone),
            ("HGETALL h", kept),
            ("HKEYS h", "*1 $4 kept"),
            ("HVALS h", "*1 $1 1"),
            ("HEXISTS h soon", ":0"),
            ("HGET h soon", "$-1"),
            ("HSTRLEN h soon", ":0"),
            ("HMGET h soon kept", "*2 $-1 $1 1"),
            ("HRANDFIELD h", "$4 kept"),
            ("HRANDFIELD h 5 WITHVALUES", kept),
            ("HSCAN h 0", "*2 $1 0 *2 $4 kept $1 1"),
            ("HDEL h soon", ":0"),
            ("HTTL h FIELDS 1 soon", "*1 :-2"),
            ("HINCRBY h soon 4", ":4"),
            ("HTTL h FIELDS 1 soon", "*1 :-1"),
            ("EXISTS all", ":0"),
            ("TYPE all", "+none"),
            ("HLEN all", ":0"),
            ("HGETALL all", "*0"),
            ("SCAN 0 MATCH all", "*2 $1 0 *0"),
            ("HSET h last 1", ":1"),
            ("HPEXPIRE h 1 FIELDS 1 last", "*1 :1"),
        ],
    );
    // The sweep takes what nobody asks for.
    wait_for(&mut client, "DBSIZE", ":1");
    let end = Instant::now() + Duration::from_secs(10);
    while !client.call("INFO stats").contains("expired_subkeys:1") {
        assert!(Instant::now() < end, "the sweep leaves a field");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(client.call("HLEN h"), ":2");
}
