//! WATCH, MULTI, EXEC, and commands on whole databases.

use crate::check;
use crate::running::{config, start};

#[test]
fn watch_sees_the_changes_of_others() {
    let server = start(config());
    let (mut a, mut b) = (server.client(), server.client());
    let changes = [
        "SET k 2",
        "DEL k",
        "EXPIRE k 100",
        "APPEND k x",
        "RENAME k other",
        "HSET h f 2",
        "HDEL h f",
        "SET absent 1",
        // To write the same value again is a change as well, and so is a write that was taken back.
        "SET k 1",
        "HSET h f 1",
        "APPEND k",
        "PERSIST expiring",
        "MULTI;INCR k;DECR k;EXEC",
        "HDEL h f;HSET h f 1",
        "SET absent 1;DEL absent;SET absent 1",
        "FLUSHALL;SET k 1",
        "FLUSHDB",
        "RENAME other k",
        "COPY other k REPLACE",
        "MOVE k 3",
        "GETDEL k",
        "SETRANGE k 0 1",
        "GETEX k EX 100",
        "PEXPIRE k 1",
        "EXPIREAT k 1",
        "HSET big f0 v",
        "HDEL big f1",
        "ZADD z 2 a",
        "ZREM z a",
        "ZPOPMIN z",
        "ZADD huge 7 m7.5",
        "ZADD huge 5 m7",
        "ZREM huge m7",
        "ZREMRANGEBYSCORE huge 3 5",
        "ZUNIONSTORE absent 1 z",
        "ZRANGESTORE z huge 0 3",
    ];
    // These commands write nothing.
    let spared = [
        "SET k 2 NX",
        "SETNX k 2",
        "DEL absent",
        "EXPIRE absent 100",
        "PERSIST k",
        "HDEL h nothing",
        "HSETNX h f 2",
        "SETRANGE k 0",
        "RENAME k k",
        "COPY k other",
        "MSETNX k 1 new 2",
        "EXPIRE k 100 XX",
        "GETEX k",
        "GETEX k PERSIST",
        "SET unwatched 1",
        "HDEL big nothing",
        "ZADD z 1 a",
        "ZADD z XX 1 b",
        "ZADD z NX 2 a",
        "ZADD huge 7 m7",
        "ZREM huge nothing",
        "ZADD huge GT 3 m7",
        "ZREMRANGEBYSCORE huge 1000 2000",
        "ZUNIONSTORE other 1 z",
        "SELECT 3;SET k 5",
        "SELECT 3;FLUSHDB",
    ];
    let fields: String = (0..200).map(|n| format!(" f{n} v")).collect();
    let members: String = (0..200).map(|n| format!(" {n} m{n}")).collect();
    for change in changes.into_iter().chain(spared) {
        check(
            &mut a,
            &[
                ("FLUSHALL", "+OK"),
                ("SET k 1", "+OK"),
                ("HSET h f 1 g 1", ":2"),
                (&format!("HSET big{fields}"), ":200"),
                ("SET other 1", "+OK"),
                ("SET expiring 1 EX 100", "+OK"),
                ("ZADD z 1 a", ":1"),
                (&format!("ZADD huge{members}"), ":200"),
                ("WATCH k h absent big expiring z huge", "+OK"),
            ],
        );
        for line in change.split(';') {
            let mut words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            // An empty word cannot stand in a line.
            if matches!((words[0], words.len()), (b"APPEND", 2) | (b"SETRANGE", 3)) {
                words.push(b"");
            }
            let reply = String::from_utf8(b.call_bytes(&words)).unwrap();
            assert!(!reply.starts_with('-'), "{line}: {reply}");
        }
        b.call("SELECT 0");
        let reply = if changes.contains(&change) { "*-1" } else { "*1 +OK" };
        // The key must have expired before EXEC, however fast the test is.
        while change.starts_with("PEXPIRE") && a.call("EXISTS k") == ":1" {}
        check(&mut a, &[("MULTI", "+OK"), ("SET k 3", "+QUEUED")]);
        assert_eq!(a.call("EXEC"), reply, "{change}");
        // EXEC has forgotten the watched keys, so a second one succeeds.
        check(&mut a, &[("MULTI", "+OK"), ("SET k 3", "+QUEUED"), ("EXEC", "*1 +OK")]);
    }
    check(
        &mut a,
        &[
            ("WATCH k h", "+OK"),
            ("MULTI", "+OK"),
            ("INCR k", "+QUEUED"),
            ("EXEC", "*1 :4"),
            ("WATCH k", "+OK"),
            ("INCR k", ":5"),
            ("UNWATCH", "+OK"),
            ("MULTI", "+OK"),
            ("WATCH k", "-ERR WATCH inside MULTI is not allowed"),
            ("INCR k", "+QUEUED"),
            ("EXEC", "*1 :6"),
        ],
    );
}

#[test]
fn a_transaction_that_is_tried_again_does_not_take_its_own_write_for_anothers() {
    let server = start(config());
    let mut client = server.client();
    assert_eq!(client.call("SET k 1"), "+OK");
    // Large values are written beside the shard's lock and the attempt is begun again.
    let value = vec![b'v'; 6 << 20];
    check(&mut client, &[("WATCH k absent", "+OK"), ("MULTI", "+OK")]);
    for key in [&b"k"[..], b"absent", b"k"] {
        assert_eq!(client.call_bytes(&[b"SET", key, &value]), b"+QUEUED\r\n");
    }
    check(&mut client, &[("EXEC", "*3 +OK +OK +OK"), ("STRLEN k", ":6291456")]);
}

#[test]
fn a_transaction_works_across_databases_and_walks() {
    let server = start(config());
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("SET a 1", "+OK"),
            ("SET b 2", "+OK"),
            ("MULTI", "+OK"),
            ("SELECT 3", "+QUEUED"),
            ("SET c 3", "+QUEUED"),
            ("SELECT 0", "+QUEUED"),
            ("MOVE a 3", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
            ("SELECT 3", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
            ("INCR a", "+QUEUED"),
            ("HGET a f", "+QUEUED"),
            ("FLUSHDB", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
            ("SAVE", "-ERR Command not allowed inside a transaction"),
            ("DISCARD", "+OK"),
            ("MULTI", "+OK"),
            ("SELECT 3", "+QUEUED"),
            ("SET c 3", "+QUEUED"),
            ("SELECT 0", "+QUEUED"),
            ("MOVE a 3", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
            ("SELECT 3", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
            ("INCR a", "+QUEUED"),
            ("HGET a f", "+QUEUED"),
            ("FLUSHDB", "+QUEUED"),
            ("RANDOMKEY", "+QUEUED"),
            ("INFO keyspace", "+QUEUED"),
        ],
    );
    let reply = client.call("EXEC");
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let begin = format!("*12 +OK +OK +OK :1 :1 +OK :2 :2 {wrong} +OK $-1 $");
    assert!(reply.starts_with(&begin), "{reply}");
    // The connection stays in the database the transaction selected.
    check(&mut client, &[("EXISTS a c", ":0"), ("SELECT 0", "+OK"), ("GET b", "$1 2")]);
}

#[test]
fn databases_are_exchanged_as_a_whole() {
    let server = start(config());
    let (mut client, mut watcher) = (server.client(), server.client());
    check(
        &mut client,
        &[
            ("MSET both 0 only0 0 swapdb x", "+OK"),
            ("EXPIREAT only0 4102444800", ":1"),
            ("SELECT 1", "+OK"),
            ("MSET both 1 only1 1", "+OK"),
            ("HSET hash f v", ":1"),
        ],
    );
    check(&mut watcher, &[("WATCH both neither", "+OK")]);
    check(
        &mut client,
        &[
            ("SWAPDB 0 1", "+OK"),
            ("MGET both only0 only1 swapdb", "*4 $1 0 $1 0 $-1 $1 x"),
            ("EXPIRETIME only0", ":4102444800"),
            ("DBSIZE", ":3"),
            ("SELECT 0", "+OK"),
            ("MGET both only0 only1", "*3 $1 1 $-1 $1 1"),
            ("HGETALL hash", "*2 $1 f $1 v"),
            ("SWAPDB 0 0", "+OK"),
            // Inside EXEC the exchange is seen by the commands behind it.
            ("MULTI", "+OK"),
            ("SET new 1", "+QUEUED"),
            ("SWAPDB 1 0", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
            ("SELECT 1", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
            ("EXISTS new hash", "+QUEUED"),
            ("EXEC", "*6 +OK +OK :3 +OK :4 :2"),
        ],
    );
    check(&mut watcher, &[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "*-1")]);
    check(&mut watcher, &[("WATCH neither", "+OK")]);
    check(&mut client, &[("SWAPDB 0 1", "+OK")]);
    check(&mut watcher, &[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "*1 +PONG")]);
    // The new records stand beside the old ones until all is done: more than half the memory cannot
    // be exchanged, and is left as it was.
    let value = "v".repeat(1 << 20);
    for n in 0..40 {
        assert_eq!(client.call(&format!("SET large:{n} {value}")), "+OK");
    }
    let before = client.call("DBSIZE");
    let refused = client.call("SWAPDB 0 1");
    assert!(refused.starts_with("-OOM "), "{refused}");
    assert_eq!(client.call("DBSIZE"), before);
    assert_eq!(client.call("STRLEN large:7"), ":1048576");
}
