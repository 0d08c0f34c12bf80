//! Publish and subscribe, on one loop and on several.

use std::io::Write;

use perdura_server::ServerConfig;

use crate::check;
use crate::running::{Client, Running, config, start};

fn server(threads: usize) -> Running {
    start(ServerConfig { threads, ..config() })
}

fn lines(client: &mut Client, replies: &[&str]) {
    for reply in replies {
        assert_eq!(client.reply_text(), *reply);
    }
}

#[test]
fn messages_reach_subscribers_of_all_loops_in_order() {
    for threads in [1, 3] {
        let server = server(threads);
        let mut subscribers: Vec<_> = (0..4).map(|_| server.client()).collect();
        for client in &mut subscribers {
            client.write("SUBSCRIBE news other");
            lines(client, &["*3 $9 subscribe $4 news :1", "*3 $9 subscribe $5 other :2"]);
            assert_eq!(client.call("PSUBSCRIBE n?w*"), "*3 $10 psubscribe $4 n?w* :3");
        }
        let mut publisher = server.client();
        for number in 0..200 {
            assert_eq!(publisher.call(&format!("PUBLISH news {number:03}")), ":8");
        }
        assert_eq!(publisher.call("PUBLISH nothing x"), ":0");
        for client in &mut subscribers {
            for number in 0..200 {
                assert_eq!(client.reply_text(), format!("*3 $7 message $4 news $3 {number:03}"));
                let by_pattern = format!("*4 $8 pmessage $4 n?w* $4 news $3 {number:03}");
                assert_eq!(client.reply_text(), by_pattern);
            }
            assert!(client.hears_nothing());
        }
        check(
            &mut publisher,
            &[
                ("PUBSUB NUMSUB news other none", "*6 $4 news :4 $5 other :4 $4 none :0"),
                ("PUBSUB NUMPAT", ":1"),
                ("PUBSUB CHANNELS o*", "*1 $5 other"),
                ("PUBSUB SHARDCHANNELS", "*0"),
            ],
        );
        assert!(publisher.call("INFO stats").contains("pubsub_channels:2 pubsub_patterns:1 "));
        drop(subscribers);
        while publisher.call("PUBSUB NUMSUB news") != "*2 $4 news :0" {}
        assert_eq!(publisher.call("PUBSUB NUMPAT"), ":0");
    }
}

#[test]
fn a_subscription_is_ended_by_name_as_a_whole_and_by_reset() {
    let server = server(2);
    let (mut client, mut other) = (server.client(), server.client());
    client.write("SUBSCRIBE a b a");
    lines(
        &mut client,
        &["*3 $9 subscribe $1 a :1", "*3 $9 subscribe $1 b :2", "*3 $9 subscribe $1 a :2"],
    );
    client.write("UNSUBSCRIBE a none");
    lines(&mut client, &["*3 $11 unsubscribe $1 a :1", "*3 $11 unsubscribe $4 none :1"]);
    check(&mut other, &[("PUBLISH a x", ":0"), ("PUBLISH b x", ":1")]);
    lines(&mut client, &["*3 $7 message $1 b $1 x"]);
    check(
        &mut client,
        &[
            ("PUNSUBSCRIBE", "*3 $12 punsubscribe $-1 :1"),
            ("UNSUBSCRIBE", "*3 $11 unsubscribe $1 b :0"),
            ("UNSUBSCRIBE", "*3 $11 unsubscribe $-1 :0"),
            ("GET a", "$-1"),
            ("SUBSCRIBE b", "*3 $9 subscribe $1 b :1"),
            ("RESET", "+RESET"),
            ("GET a", "$-1"),
        ],
    );
    check(&mut other, &[("PUBLISH b x", ":0")]);
}

#[test]
fn shard_channels_are_apart_from_channels() {
    let server = server(2);
    let (mut client, mut other) = (server.client(), server.client());
    check(
        &mut client,
        &[
            ("SSUBSCRIBE c", "*3 $10 ssubscribe $1 c :1"),
            ("SUBSCRIBE c", "*3 $9 subscribe $1 c :1"),
        ],
    );
    check(&mut other, &[("SPUBLISH c s", ":1"), ("PUBLISH c m", ":1")]);
    lines(&mut client, &["*3 $8 smessage $1 c $1 s", "*3 $7 message $1 c $1 m"]);
    check(
        &mut other,
        &[("PUBSUB SHARDCHANNELS", "*1 $1 c"), ("PUBSUB SHARDNUMSUB c", "*2 $1 c :1")],
    );
    check(&mut client, &[("SUNSUBSCRIBE", "*3 $12 sunsubscribe $1 c :0")]);
    assert_eq!(other.call("SPUBLISH c s"), ":0");
}

#[test]
fn a_subscriber_may_do_little_in_resp2_and_anything_in_resp3() {
    let server = server(1);
    let (mut client, mut other) = (server.client(), server.client());
    check(
        &mut client,
        &[
            ("SUBSCRIBE c", "*3 $9 subscribe $1 c :1"),
            (
                "GET a",
                "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
             RESET are allowed in this context",
            ),
            ("PING", "*2 $4 pong $0"),
            ("PING hey", "*2 $4 pong $3 hey"),
            ("RESET", "+RESET"),
            ("PING", "+PONG"),
        ],
    );
    client.write("HELLO 3");
    assert!(client.reply_text().contains("proto"));
    client.write("SUBSCRIBE c");
    assert_eq!(client.reply_text(), ">3 $9 subscribe $1 c :1");
    check(&mut client, &[("SET a 1", "+OK"), ("PING", "+PONG")]);
    assert_eq!(other.call("PUBLISH c m"), ":1");
    lines(&mut client, &[">3 $7 message $1 c $1 m"]);
    let list = other.call("CLIENT LIST TYPE pubsub");
    assert!(list.contains("sub=1 psub=0 ssub=0") && list.contains("flags=P "), "{list}");
}

/// The reply of each SUBSCRIBE and UNSUBSCRIBE stands among those of EXEC, as in Redis.
#[test]
fn a_transaction_subscribes_when_it_happens_and_not_otherwise() {
    let server = server(2);
    let (mut client, mut other) = (server.client(), server.client());
    check(
        &mut client,
        &[
            ("WATCH k", "+OK"),
            ("MULTI", "+OK"),
            ("SUBSCRIBE c", "+QUEUED"),
            ("DISCARD", "+OK"),
            ("WATCH k", "+OK"),
            ("MULTI", "+OK"),
            ("SUBSCRIBE c", "+QUEUED"),
        ],
    );
    check(&mut other, &[("SET k 1", "+OK")]);
    check(&mut client, &[("EXEC", "*-1"), ("GET k", "$1 1")]);
    check(&mut other, &[("PUBLISH c lost", ":0"), ("PUBSUB CHANNELS", "*0")]);
    check(
        &mut client,
        &[
            ("MULTI", "+OK"),
            ("INCR k", "+QUEUED"),
            ("SUBSCRIBE c", "+QUEUED"),
            ("EXEC", "*2 :2 *3 $9 subscribe $1 c :1"),
        ],
    );
    check(&mut other, &[("PUBLISH c kept", ":1")]);
    lines(&mut client, &["*3 $7 message $1 c $4 kept"]);
}

#[test]
fn a_transaction_publishes_when_it_happens_and_not_otherwise() {
    let server = server(2);
    let (mut client, mut other) = (server.client(), server.client());
    check(&mut client, &[("SUBSCRIBE c", "*3 $9 subscribe $1 c :1")]);
    check(
        &mut other,
        &[
            ("WATCH k", "+OK"),
            ("SET k 1", "+OK"),
            ("MULTI", "+OK"),
            ("PUBLISH c lost", "+QUEUED"),
            ("EXEC", "*-1"),
            ("MULTI", "+OK"),
            ("PUBLISH c kept", "+QUEUED"),
            ("INCR k", "+QUEUED"),
            ("EXEC", "*2 :1 :2"),
        ],
    );
    lines(&mut client, &["*3 $7 message $1 c $4 kept"]);
    assert!(client.hears_nothing());
}

#[test]
fn a_subscriber_that_never_reads_is_disconnected_and_the_others_get_everything() {
    let server = server(2);
    let (mut idle, mut reader, mut publisher) = (server.client(), server.client(), server.client());
    for client in [&mut idle, &mut reader] {
        check(client, &[("SUBSCRIBE c", "*3 $9 subscribe $1 c :1")]);
    }
    let payload = "x".repeat(1 << 20);
    let mut sent = 0;
    // The sockets' buffers take some megabytes before the server's own limit counts.
    while publisher.call("PUBSUB NUMSUB c") != "*2 $1 c :1" {
        sent += 1;
        assert!(sent < 200, "the idle client is still there");
        let count = publisher.call(&format!("PUBLISH c {payload}"));
        assert!([":1", ":2"].contains(&count.as_str()), "{count}");
        assert!(reader.reply_text().ends_with(&payload));
    }
    idle.stream.write_all(b"PING\r\n").ok();
    assert!(publisher.call("INFO stats").contains("client_output_buffer_limit_disconnections:1 "));
}

#[test]
fn who_wants_no_replies_gets_messages_and_confirmations() {
    let server = server(2);
    let mut client = server.client();
    client.write("CLIENT REPLY OFF");
    client.write("SET a 1");
    client.write("SUBSCRIBE news");
    lines(&mut client, &["*3 $9 subscribe $4 news :1"]);
    assert_eq!(server.client().call("PUBLISH news x"), ":1");
    client.write("SUBSCRIBE");
    client.write("UNSUBSCRIBE news");
    lines(&mut client, &["*3 $7 message $4 news $1 x", "*3 $11 unsubscribe $4 news :0"]);
    client.write("MULTI");
    client.write("SUBSCRIBE news");
    client.write("DISCARD");
    assert!(client.hears_nothing());
}
