//! Values: the forms of replies, encodings, expiry, scans.

use std::time::{Duration, Instant};

use crate::check;
use crate::running::{config, start};

/// A limit in elements, and steps of bytes.
#[test]
fn the_encoding_of_a_list_follows_its_setting() {
    let server = start(config());
    let mut client = server.client();
    client.call("RPUSH few a b c d");
    client.call(&format!("RPUSH long {}", "x".repeat(9000)));
    for (size, few, long) in [
        ("3", "quicklist", "quicklist"),
        ("0", "quicklist", "quicklist"),
        ("4", "listpack", "quicklist"),
        ("-2", "listpack", "quicklist"),
        ("-3", "listpack", "listpack"),
        ("-9", "listpack", "listpack"),
    ] {
        client.call(&format!("CONFIG SET list-max-listpack-size {size}"));
        for (key, encoding) in [("few", few), ("long", long)] {
            let told = client.call(&format!("OBJECT ENCODING {key}"));
            assert!(told.ends_with(&format!(" {encoding}")), "{size}: {key} is {told}");
        }
    }
}

#[test]
fn resp3_has_its_own_forms() {
    let server = start(config());
    let mut client = server.client();
    assert!(client.call("HELLO 3").starts_with("%7 $6 server $5 redis"));
    check(
        &mut client,
        &[
            ("GET nothing", "_"),
            ("HSET h a 1", ":1"),
            ("HGETALL h", "%1 $1 a $1 1"),
            ("HKEYS h", "*1 $1 a"),
            ("HRANDFIELD h 1 WITHVALUES", "*1 *2 $1 a $1 1"),
            ("CONFIG GET timeout", "%1 $7 timeout $1 0"),
            ("MULTI", "+OK"),
            ("EXEC", "*0"),
            ("ZADD z 1.5 a 2 b", ":2"),
            ("ZSCORE z a", ",1.5"),
            ("ZADD z XX INCR 1 nothing", "_"),
            ("ZRANGE z 0 0 WITHSCORES", "*1 *2 $1 a ,1.5"),
            ("ZPOPMIN z", "*2 $1 a ,1.5"),
            ("ZPOPMIN z 1", "*1 *2 $1 b ,2"),
            ("HELLO 9", "-NOPROTO unsupported protocol version"),
        ],
    );
    assert!(client.call("INFO server").starts_with('='));
    assert!(client.call("HELLO 2").starts_with("*14"));
    assert_eq!(client.call("GET nothing"), "$-1");
}

#[test]
fn encodings_are_named_as_redis_would() {
    let server = start(config());
    let mut client = server.client();
    let long = "x".repeat(45);
    check(
        &mut client,
        &[
            ("SET s 12", "+OK"),
            ("OBJECT ENCODING s", "$3 int"),
            ("SET s abc", "+OK"),
            ("OBJECT ENCODING s", "$6 embstr"),
            (&format!("SET s {long}"), "+OK"),
            ("OBJECT ENCODING s", "$3 raw"),
            ("HSET h f v", ":1"),
            ("OBJECT ENCODING h", "$8 listpack"),
            (&format!("HSET h f {long}{long}"), ":0"),
            ("OBJECT ENCODING h", "$9 hashtable"),
            ("ZADD z 1 m", ":1"),
            ("OBJECT ENCODING z", "$8 listpack"),
            (&format!("ZADD z 1 {long}{long}"), ":1"),
            ("OBJECT ENCODING z", "$8 skiplist"),
            ("ZREMRANGEBYRANK z 1 1", ":1"),
            ("TYPE z", "+zset"),
        ],
    );
    for n in 0..128 {
        assert_eq!(client.call(&format!("ZADD z 2 {n}")), ":1");
    }
    let larger = [("OBJECT ENCODING z", "$8 skiplist"), ("ZREM z m", ":1")];
    check(&mut client, &larger);
    check(&mut client, &[("OBJECT ENCODING z", "$8 listpack"), ("ZCARD z", ":128")]);
}

/// The YCSB binding for Redis keeps such an index: a scan begins at a key's hash.
#[test]
fn an_index_of_keys_is_scanned_by_score() {
    let server = start(config());
    let mut client = server.client();
    // The binding takes Java's String.hashCode for a score.
    let hash = |key: &str| {
        key.bytes().fold(0i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()))
    };
    let mut keys: Vec<String> = (0..3_000).map(|n| format!("user{}", n * 7_919)).collect();
    for key in &keys {
        assert_eq!(client.call(&format!("HMSET {key} field0 v")), "+OK");
        assert_eq!(client.call(&format!("ZADD _indices {} {key}", hash(key))), ":1");
    }
    keys.sort_by_key(|key| (hash(key), key.clone()));
    for from in (0..keys.len()).step_by(97) {
        let line = format!("ZRANGEBYSCORE _indices {} inf LIMIT 0 50", hash(&keys[from]));
        let expected: Vec<_> = keys[from..].iter().take(50).collect();
        let shown: String = expected.iter().map(|key| format!(" ${} {key}", key.len())).collect();
        assert_eq!(client.call(&line), format!("*{}{shown}", expected.len()));
    }
    let bytes: u64 = client.call("MEMORY USAGE _indices")[1..].parse().unwrap();
    assert!(bytes > 3_000 * 64 && bytes < 3_000 * 200, "{bytes} bytes");
    check(
        &mut client,
        &[
            ("SCAN 0 TYPE zset COUNT 100000", "*2 $1 0 *1 $8 _indices"),
            ("COPY _indices other", ":1"),
            ("SWAPDB 0 1", "+OK"),
            ("ZCARD other", ":0"),
            ("SELECT 1", "+OK"),
            ("RENAME other _indices", "+OK"),
            ("ZCARD _indices", ":3000"),
            ("FLUSHDB", "+OK"),
            ("ZCARD _indices", ":0"),
        ],
    );
}

/// 7.2 names a list after its bytes, 7.0 does not.
#[test]
fn lists_of_any_size_serve_commands_on_any_key() {
    let server = start(config());
    let mut client = server.client();
    let element = "e".repeat(100);
    // An entry of 103 bytes: with 79 of them a listpack is below 8 KiB, and with 80 above.
    for number in 1..=79 {
        assert_eq!(client.call(&format!("RPUSH list {element}")), format!(":{number}"));
    }
    check(&mut client, &[("OBJECT ENCODING list", "$8 listpack"), ("LPUSH list 1", ":80")]);
    check(&mut client, &[("LPOP list", "$1 1")]);
    for _ in 0..921 {
        client.call(&format!("LPUSH list {element}"));
    }
    let bytes: u64 = client.call("MEMORY USAGE list")[1..].parse().unwrap();
    assert!((103_000..110_000).contains(&bytes), "{bytes} bytes");
    check(
        &mut client,
        &[
            ("OBJECT ENCODING list", "$9 quicklist"),
            ("TYPE list", "+list"),
            ("SCAN 0 TYPE list COUNT 1000", "*2 $1 0 *1 $4 list"),
            ("COPY list copy", ":1"),
            ("EXPIRE list 100", ":1"),
            ("LTRIM list 0 1", "+OK"),
            ("TTL list", ":100"),
            ("LLEN copy", ":1000"),
            ("RENAME copy list", "+OK"),
            ("TTL list", ":-1"),
            ("MOVE list 1", ":1"),
            ("EXISTS list", ":0"),
            ("SELECT 1", "+OK"),
            ("LLEN list", ":1000"),
            ("SWAPDB 0 1", "+OK"),
            ("SELECT 0", "+OK"),
            ("LREM list -1 nothing", ":0"),
            ("MULTI", "+OK"),
            ("RPOP list", "+QUEUED"),
            ("RPUSH list x y", "+QUEUED"),
            ("LRANGE list -2 -1", "+QUEUED"),
            ("LMOVE list other RIGHT LEFT", "+QUEUED"),
        ],
    );
    let popped = format!("*4 $100 {element} :1001 *2 $1 x $1 y $1 y");
    assert_eq!(client.call("EXEC"), popped);
    check(&mut client, &[("LPOS list x RANK -1", ":999"), ("LRANGE other 0 -1", "*1 $1 y")]);
    check(&mut client, &[("UNLINK list", ":1"), ("LPOP list", "$-1"), ("LPOP list 2", "*-1")]);
}

#[test]
fn keys_end_by_themselves() {
    let server = start(config());
    let mut client = server.client();
    check(&mut client, &[("SET a 1 PX 30", "+OK"), ("SET b 1", "+OK")]);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while client.call("DBSIZE") != ":1" {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    check(&mut client, &[("GET a", "$-1"), ("GET b", "$1 1"), ("TTL a", ":-2")]);
}

#[test]
fn scan_walks_everything_once() {
    let server = start(config());
    let mut client = server.client();
    for n in 0..1000 {
        client.call(&format!("SET key:{n} v"));
        client.call(&format!("HSET hash f{n} v"));
    }
    for (command, expected) in [("SCAN", 1001), ("HSCAN hash", 2000)] {
        let (mut cursor, mut seen) = ("0".to_owned(), std::collections::BTreeSet::new());
        loop {
            let reply = client.call(&format!("{command} {cursor} COUNT 17"));
            let words: Vec<&str> = reply.split(' ').collect();
            cursor = words[2].to_owned();
            let step = if command == "SCAN" { 1 } else { 2 };
            let found: Vec<&&str> = words[4..].iter().skip(1).step_by(2).collect();
            seen.extend(found.iter().step_by(step).map(|w| (**w).to_owned()));
            if cursor == "0" {
                break;
            }
        }
        let expected = if command == "SCAN" { expected } else { expected / 2 };
        assert_eq!(seen.len(), expected, "{command}");
    }
}

/// Each attempt finds what the one before it has written, because it does the same.
#[test]
fn large_sets_are_made_in_few_attempts_if_the_budget_is_small() {
    let server = start(config());
    let mut client = server.client();
    let budget = client.call("PERDURA BUDGET 1703936");
    assert!(!budget.starts_with('-'), "{budget}");
    for from in (0..24_000).step_by(500) {
        let names: String = (from..from + 500).map(|n| format!(" m{n}")).collect();
        assert_eq!(client.call(&format!("SADD s{names}")), ":500");
    }
    let began = Instant::now();
    check(&mut client, &[("SUNIONSTORE u s", ":24000"), ("SDIFFSTORE d u s", ":0")]);
    // A second, where attempts that differ took minutes.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn commands_of_redis_7_2_answer_as_there() {
    let server = start(config());
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("ZADD z 1.5 a 2 b", ":2"),
            ("ZRANK z b WITHSCORE", "*2 :1 $1 2"),
            ("ZREVRANK z b withscore", "*2 :0 $1 2"),
            ("ZRANK z none WITHSCORE", "*-1"),
            ("ZRANK nothing a WITHSCORE", "*-1"),
            ("ZRANK z none", "$-1"),
            ("ZRANK z a SCORE", "-ERR syntax error"),
            ("ZRANK z a WITHSCORE x", "-ERR wrong number of arguments for 'zrank' command"),
            ("WAITAOF 1 0 0", "*2 :1 :0"),
            ("WAITAOF 0 1 100", "*2 :0 :0"),
            ("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1"),
            ("WAITAOF 1 -1 0", "-ERR value is out of range, must be positive"),
            ("WAITAOF 1 0 -1", "-ERR timeout is negative"),
            ("MULTI", "+OK"),
            ("WAITAOF 1 0 0", "-ERR Command not allowed inside a transaction"),
        ],
    );
}

/// A change that comes late may prolong a key whose time is over by now.
#[test]
fn nothing_expires_while_a_client_imports() {
    let server = start(config());
    let (mut client, mut importer) = (server.client(), server.client());
    assert_eq!(importer.call("PERDURA IMPORT BEGIN"), "+OK");
    assert_eq!(importer.call("PERDURA IMPORT BEGIN"), "+OK");
    check(
        &mut importer,
        &[
            ("SET kept v PXAT 1", "+OK"),
            ("SET gone v PXAT 1", "+OK"),
            ("PEXPIREAT kept 1000", ":1"),
            ("HSET hash f v g w", ":2"),
            ("HPEXPIREAT hash 1000 FIELDS 1 f", "*1 :1"),
            ("HTTL hash FIELDS 1 f", "*1 :0"),
            ("GETEX gone PXAT 2", "$1 v"),
            ("APPEND kept w", ":2"),
            ("PERSIST kept", ":1"),
        ],
    );
    assert_eq!(client.call("EXISTS kept gone"), ":2");
    assert_eq!(client.call("HLEN hash"), ":2");
    // The end of the connection ends the import.
    drop(importer);
    let deadline = Instant::now() + Duration::from_secs(20);
    while client.call("EXISTS gone") != ":0" {
        assert!(Instant::now() < deadline);
    }
    check(&mut client, &[("GET kept", "$2 vw"), ("HGET hash f", "$-1"), ("HGET hash g", "$1 w")]);
    check(&mut client, &[("PERDURA IMPORT BEGIN", "+OK"), ("SET k v PXAT 1", "+OK")]);
    check(&mut client, &[("GET k", "$1 v"), ("PERDURA IMPORT END", "+OK"), ("GET k", "$-1")]);
    check(
        &mut client,
        &[
            ("PERDURA IMPORT END", "+OK"),
            ("PERDURA IMPORT", "-ERR wrong number of arguments for 'perdura|import' command"),
        ],
    );
}

#[test]
fn a_string_that_was_changed_in_part_is_raw_until_it_is_set() {
    let server = start(config());
    let mut client = server.client();
    for (change, reply) in [
        ("APPEND k 2", ":2"),
        ("SETRANGE k 0 3", ":1"),
        ("SETBIT k 0 1", ":0"),
        ("BITFIELD k SET u8 0 50", "*1 :49"),
    ] {
        check(
            &mut client,
            &[
                ("SET k 1", "+OK"),
                ("OBJECT ENCODING k", "$3 int"),
                (change, reply),
                ("OBJECT ENCODING k", "$3 raw"),
                ("COPY k l REPLACE", ":1"),
                ("OBJECT ENCODING l", "$3 raw"),
                ("EXPIRE k 100", ":1"),
                ("OBJECT ENCODING k", "$3 raw"),
                ("SET k 5", "+OK"),
                ("OBJECT ENCODING k", "$3 int"),
            ],
        );
    }
    check(
        &mut client,
        &[
            ("APPEND k 0", ":2"),
            ("OBJECT ENCODING k", "$3 raw"),
            ("INCR k", ":51"),
            ("OBJECT ENCODING k", "$3 int"),
            ("APPEND new 1", ":1"),
            ("OBJECT ENCODING new", "$3 int"),
            ("SETRANGE new2 0 1", ":1"),
            ("OBJECT ENCODING new2", "$3 raw"),
        ],
    );
}

#[test]
fn a_write_that_changes_nothing_is_not_counted() {
    let server = start(config());
    let mut client = server.client();
    let mut changes = || {
        let info = client.call("INFO persistence");
        let rest = info.split("rdb_changes_since_last_save:").nth(1).unwrap();
        rest.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    let mut before = changes();
    let mut other = server.client();
    for (line, counts) in [
        ("SETBIT k 0 0", true),
        ("SETBIT k 0 0", false),
        ("SETBIT k 90 0", true),
        ("BITFIELD k SET u8 0 0", false),
        ("BITFIELD k INCRBY u8 0 0", false),
        ("BITFIELD k INCRBY u8 0 1", true),
        ("DEL none", false),
        ("SREM none a", false),
        ("EXPIRE none 1", false),
        ("SET k 1", true),
        ("SET k 1", true),
    ] {
        other.call(line);
        let now = changes();
        assert_eq!(now, before + u64::from(counts), "{line}");
        before = now;
    }
}
