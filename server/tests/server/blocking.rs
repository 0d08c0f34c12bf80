//! Commands that wait for data, on one loop and on several.

use std::io::Write;
use std::time::{Duration, Instant};

use perdura_server::{Durability, ServerConfig};

use crate::check;
use crate::running::{Client, Running, config, start};

fn server(threads: usize) -> Running {
    start(ServerConfig { threads, ..config() })
}

/// Waits until so many clients wait.
fn until_blocked(client: &mut Client, count: usize) {
    let began = Instant::now();
    while !client.call("INFO clients").contains(&format!(" blocked_clients:{count} ")) {
        assert!(began.elapsed() < Duration::from_secs(20), "{count} clients should wait");
        std::thread::yield_now();
    }
}

/// Lets a client wait with this command, behind those that wait already.
fn block(client: &mut Client, line: &str, other: &mut Client, count: usize) {
    assert!(client.write(line));
    until_blocked(other, count);
}

#[test]
fn who_waits_longest_is_served_first_on_any_loop() {
    for threads in [1, 2, 3] {
        let server = server(threads);
        let mut waiting: Vec<_> = (0..5).map(|_| server.client()).collect();
        let mut pusher = server.client();
        for (at, client) in waiting.iter_mut().enumerate() {
            block(client, "BLPOP other list 0", &mut pusher, at + 1);
        }
        for (at, client) in waiting.iter_mut().enumerate() {
            assert_eq!(pusher.call(&format!("RPUSH list {at}")), ":1");
            // Who pushes never sees what a waiting client has got.
            assert_eq!(pusher.call("LLEN list"), ":0");
            assert_eq!(client.reply_text(), format!("*2 $4 list $1 {at}"));
        }
        until_blocked(&mut pusher, 0);
        for (at, client) in waiting.iter_mut().enumerate() {
            block(client, "BRPOP list 0", &mut pusher, at + 1);
        }
        assert_eq!(pusher.call("RPUSH list a b c d e f g"), ":7");
        assert_eq!(pusher.call("LRANGE list 0 -1"), "*2 $1 a $1 b");
        for (client, element) in waiting.iter_mut().zip(["g", "f", "e", "d", "c"]) {
            assert_eq!(client.reply_text(), format!("*2 $4 list $1 {element}"));
            assert!(client.hears_nothing());
        }
    }
}

#[test]
fn a_chain_of_moves_is_served_at_once() {
    for threads in [1, 3] {
        let server = server(threads);
        let mut pusher = server.client();
        let mut waiting: Vec<_> = (0..4).map(|_| server.client()).collect();
        block(&mut waiting[0], "BLMOVE c d LEFT RIGHT 0", &mut pusher, 1);
        block(&mut waiting[1], "BRPOPLPUSH a b 0", &mut pusher, 2);
        block(&mut waiting[2], "BLMOVE b c RIGHT LEFT 0", &mut pusher, 3);
        block(&mut waiting[3], "BLPOP d 0", &mut pusher, 4);
        assert_eq!(pusher.call("LPUSH a x"), ":1");
        assert_eq!(pusher.call("EXISTS a b c d"), ":0");
        for client in &mut waiting[..3] {
            assert_eq!(client.reply_text(), "$1 x");
        }
        assert_eq!(waiting[3].reply_text(), "*2 $1 d $1 x");
        // The target has another kind: the error is the reply, and the element stays.
        check(&mut pusher, &[("SET b string", "+OK")]);
        block(&mut waiting[0], "BLMOVE a b LEFT LEFT 0", &mut pusher, 1);
        check(&mut pusher, &[("RPUSH a 1 2", ":2"), ("LLEN a", ":2")]);
        assert!(waiting[0].reply_text().starts_with("-WRONGTYPE "));
        // A move from a list to itself is served once.
        check(&mut pusher, &[("DEL a", ":1")]);
        block(&mut waiting[0], "BLMOVE a a LEFT RIGHT 0", &mut pusher, 1);
        check(&mut pusher, &[("RPUSH a 1 2", ":2"), ("LRANGE a 0 -1", "*2 $1 2 $1 1")]);
        assert_eq!(waiting[0].reply_text(), "$1 1");
    }
}

#[test]
fn a_transaction_is_seen_as_a_whole_and_does_not_wait() {
    for threads in [1, 3] {
        let server = server(threads);
        let (mut waiting, mut pusher) = (server.client(), server.client());
        block(&mut waiting, "BLPOP list 0", &mut pusher, 1);
        check(
            &mut pusher,
            &[
                ("MULTI", "+OK"),
                ("RPUSH list a", "+QUEUED"),
                ("DEL list", "+QUEUED"),
                ("EXEC", "*2 :1 :1"),
                ("MULTI", "+OK"),
                ("SELECT 1", "+QUEUED"),
                ("RPUSH list elsewhere", "+QUEUED"),
                ("SELECT 0", "+QUEUED"),
                ("RPUSH list a", "+QUEUED"),
                ("RPUSH list b", "+QUEUED"),
                ("LPUSH list c", "+QUEUED"),
                ("EXEC", "*6 +OK :1 +OK :1 :2 :3"),
                ("LRANGE list 0 -1", "*2 $1 a $1 b"),
            ],
        );
        assert_eq!(waiting.reply_text(), "*2 $4 list $1 c");
        check(
            &mut pusher,
            &[
                ("MULTI", "+OK"),
                ("BLPOP none 0", "+QUEUED"),
                ("BLMOVE none x LEFT LEFT 0", "+QUEUED"),
                ("BRPOPLPUSH none x 0", "+QUEUED"),
                ("BLMPOP 0 1 none LEFT", "+QUEUED"),
                ("BZPOPMIN none 0", "+QUEUED"),
                ("BZMPOP 0 1 none MIN", "+QUEUED"),
                ("EXEC", "*6 *-1 $-1 $-1 *-1 *-1 *-1"),
            ],
        );
        // A watched list has changed, though it is as before for every other client.
        check(&mut waiting, &[("DEL list", ":1"), ("WATCH list", "+OK"), ("MULTI", "+OK")]);
        let mut third = server.client();
        block(&mut third, "BLPOP list 0", &mut pusher, 1);
        check(&mut pusher, &[("RPUSH list a", ":1")]);
        check(&mut waiting, &[("PING", "+QUEUED"), ("EXEC", "*-1")]);
    }
}

#[test]
fn every_way_to_make_a_key_serves_who_waits_for_it() {
    let server = server(3);
    let (mut list, mut set, mut pusher) = (server.client(), server.client(), server.client());
    for (line, is_set) in [
        ("RENAME l k", false),
        ("RENAMENX l k", false),
        ("COPY l k", false),
        ("COPY far k DB 0 REPLACE", false),
        ("LMOVE l k LEFT LEFT", false),
        ("RPOPLPUSH l k", false),
        ("LPUSH k x", false),
        ("RPUSH k x", false),
        ("ZADD k 1 x", true),
        ("ZINCRBY k 1 x", true),
        ("ZUNIONSTORE k 1 z", true),
        ("ZRANGESTORE k z 0 -1", true),
        ("RENAME z k", true),
        ("GEOADD k 1 1 x", true),
    ] {
        check(&mut pusher, &[("FLUSHALL", "+OK"), ("RPUSH l x", ":1"), ("ZADD z 1 x", ":1")]);
        block(&mut list, "BLPOP k 0", &mut pusher, 1);
        block(&mut set, "BZPOPMIN k 0", &mut pusher, 2);
        if line.starts_with("COPY far") {
            // From another database.
            check(&mut pusher, &[("SELECT 3", "+OK"), ("RPUSH far x", ":1")]);
        }
        let reply = pusher.call(line);
        assert!(!reply.starts_with('-'), "{line}: {reply}");
        pusher.call("SELECT 0");
        let (served, other) = if is_set { (&mut set, &mut list) } else { (&mut list, &mut set) };
        assert!(served.reply_text().starts_with("*"), "{line}");
        until_blocked(&mut pusher, 1);
        let id = |client: &mut Client| client.call("CLIENT ID");
        assert!(other.hears_nothing());
        check(
            &mut pusher,
            &[
                ("FLUSHALL", "+OK"),
                ("RPUSH k x", ":1"),
                ("DEL k", if is_set { ":0" } else { ":1" }),
            ],
        );
        if is_set {
            assert_eq!(other.reply_text(), "*2 $1 k $1 x");
        } else {
            check(&mut pusher, &[("ZADD k 2 y", ":1")]);
            assert_eq!(other.reply_text(), "*3 $1 k $1 y $1 2");
        }
        assert!(id(&mut list).starts_with(':'));
    }
    // MOVE and SWAPDB bring keys from other databases.
    for line in ["MOVE k 0", "SWAPDB 0 3", "SWAPDB 3 0"] {
        block(&mut list, "BLPOP k 0", &mut pusher, 1);
        check(&mut pusher, &[("SELECT 3", "+OK"), ("RPUSH k x", ":1")]);
        pusher.call(line);
        assert_eq!(list.reply_text(), "*2 $1 k $1 x", "{line}");
        check(&mut pusher, &[("SELECT 0", "+OK")]);
    }
}

#[test]
fn waits_end_in_time_with_the_null_of_the_protocol() {
    let server = server(2);
    let (mut two, mut three, mut other) = (server.client(), server.client(), server.client());
    three.call("HELLO 3");
    for line in [
        "BLPOP a b 0.05",
        "BRPOP a 0.05",
        "BLMOVE a b LEFT RIGHT 0.05",
        "BRPOPLPUSH a b 0.05",
        "BLMPOP 0.05 2 a b LEFT",
        "BZPOPMIN a 0.05",
        "BZPOPMAX a 0.05",
        "BZMPOP 0.05 1 a MAX COUNT 2",
    ] {
        let began = Instant::now();
        assert!(two.write(line) && three.write(line));
        assert_eq!(two.reply_text(), "*-1", "{line}");
        assert!(began.elapsed() >= Duration::from_millis(50), "{line}: {:?}", began.elapsed());
        assert_eq!(three.reply_text(), "_", "{line}");
        assert!(began.elapsed() < Duration::from_millis(150), "{line}: {:?}", began.elapsed());
    }
    let info = other.call("INFO clients");
    assert!(info.contains(" blocked_clients:0 "), "{info}");
    assert!(info.contains(" clients_in_timeout_table:0 total_blocking_keys:0 "), "{info}");
    block(&mut two, "BLPOP a b a 100", &mut other, 1);
    let info = other.call("INFO clients");
    assert!(info.contains(" clients_in_timeout_table:1 total_blocking_keys:2 "), "{info}");
    assert!(other.call("CLIENT LIST").contains(" flags=b "));
    check(
        &mut other,
        &[
            ("BLPOP a x", "-ERR timeout is not a float or out of range"),
            ("BLPOP a -1", "-ERR timeout is negative"),
            ("BLPOP a 1e300", "-ERR timeout is out of range"),
            ("BLMOVE a b UP LEFT x", "-ERR syntax error"),
            ("SET s x", "+OK"),
            ("BLPOP s 0", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ],
    );
}

#[test]
fn a_wait_is_ended_by_unblock_kill_and_disconnection() {
    for threads in [1, 3] {
        let server = server(threads);
        let (mut waiting, mut other) = (server.client(), server.client());
        let id = waiting.call("CLIENT ID")[1..].to_owned();
        check(&mut other, &[(&format!("CLIENT UNBLOCK {id}"), ":0"), ("CLIENT UNBLOCK 0", ":0")]);
        block(&mut waiting, "BLPOP k 0", &mut other, 1);
        check(&mut other, &[(&format!("CLIENT UNBLOCK {id} TIMEOUT"), ":1")]);
        assert_eq!(waiting.reply_text(), "*-1");
        block(&mut waiting, "BLMOVE k l LEFT LEFT 50", &mut other, 1);
        check(&mut other, &[(&format!("CLIENT UNBLOCK {id} ERROR"), ":1")]);
        assert_eq!(waiting.reply_text(), "-UNBLOCKED client unblocked via CLIENT UNBLOCK");
        block(&mut waiting, "BLPOP k 0", &mut other, 1);
        let unblock = format!("CLIENT UNBLOCK {id}");
        check(
            &mut other,
            &[
                ("MULTI", "+OK"),
                (&unblock, "+QUEUED"),
                ("RPUSH k a", "+QUEUED"),
                (&unblock, "+QUEUED"),
                ("EXEC", "*3 :1 :1 :0"),
                ("LPOP k", "$1 a"),
            ],
        );
        assert_eq!(waiting.reply_text(), "*-1");
        block(&mut waiting, "BLPOP k 50", &mut other, 1);
        check(&mut other, &[(&format!("CLIENT KILL ID {id}"), ":1")]);
        until_blocked(&mut other, 0);
        let mut gone = server.client();
        block(&mut gone, "BLPOP k 50", &mut other, 1);
        drop(gone);
        until_blocked(&mut other, 0);
        check(&mut other, &[("RPUSH k x", ":1"), ("LLEN k", ":1")]);
    }
}

#[test]
fn commands_behind_a_waiting_one_wait_too() {
    for threads in [1, 2] {
        let server = server(threads);
        let (mut waiting, mut other) = (server.client(), server.client());
        check(&mut other, &[("RPUSH full x", ":1")]);
        let lines = "PING\r\nBLPOP full 0\r\nBLPOP k 0\r\nPING two\r\nBLPOP k 0\r\nECHO e";
        block(&mut waiting, lines, &mut other, 1);
        assert_eq!(waiting.reply_text(), "+PONG");
        assert_eq!(waiting.reply_text(), "*2 $4 full $1 x");
        assert!(waiting.hears_nothing());
        assert!(waiting.write("PING three"));
        check(&mut other, &[("RPUSH k a b", ":2")]);
        assert_eq!(waiting.reply_text(), "*2 $1 k $1 a");
        assert_eq!(waiting.reply_text(), "$3 two");
        assert_eq!(waiting.reply_text(), "*2 $1 k $1 b");
        assert_eq!(waiting.reply_text(), "$1 e");
        assert_eq!(waiting.reply_text(), "$5 three");
        // CLIENT REPLY counts when the command is given.
        block(&mut waiting, "CLIENT REPLY SKIP\r\nBLPOP k 0\r\nPING four", &mut other, 1);
        check(&mut other, &[("RPUSH k a", ":1"), ("EXISTS k", ":0")]);
        assert_eq!(waiting.reply_text(), "$4 four");
    }
}

#[test]
fn each_element_is_popped_once_by_many_clients_of_many_loops() {
    for durability in [Durability::Warned, Durability::Fsync] {
        let server = start(ServerConfig { threads: 3, durability, ..config() });
        let (poppers, pushers, each) = (6, 3, 300);
        let mut popped: Vec<String> = std::thread::scope(|scope| {
            for pusher in 0..pushers {
                let mut client = server.client();
                scope.spawn(move || {
                    for number in 0..each {
                        let key = number % 2;
                        client.call(&format!("RPUSH queue{key} {pusher}-{number}"));
                    }
                });
            }
            let poppers: Vec<_> = (0..poppers)
                .map(|_| {
                    let mut client = server.client();
                    scope.spawn(move || {
                        let mut got = Vec::new();
                        for _ in 0..pushers * each / poppers {
                            let reply = client.call("BLPOP queue0 queue1 20");
                            got.push(reply.rsplit(' ').next().unwrap().to_owned());
                        }
                        got
                    })
                })
                .collect();
            poppers.into_iter().flat_map(|popper| popper.join().unwrap()).collect()
        });
        popped.sort_unstable();
        let mut pushed: Vec<_> =
            (0..pushers).flat_map(|p| (0..each).map(move |n| format!("{p}-{n}"))).collect();
        pushed.sort_unstable();
        assert_eq!(popped, pushed);
        until_blocked(&mut server.client(), 0);
    }
}

#[test]
fn input_behind_a_wait_is_bounded() {
    let server = server(1);
    let (waiting, mut other) = (server.client(), server.client());
    let mut stream = std::net::TcpStream::connect(server.addr).unwrap();
    stream.write_all(b"BLPOP k 0\r\n").unwrap();
    until_blocked(&mut other, 1);
    stream.set_nonblocking(true).unwrap();
    let (line, mut sent, began) = (b"PING\r\n".repeat(10_000), 0, Instant::now());
    // The system's own buffers take some megabytes.
    while began.elapsed() < Duration::from_millis(300) {
        sent += stream.write(&line).unwrap_or(0);
    }
    assert!(sent < 64 << 20, "{sent}");
    let list = other.call("CLIENT LIST");
    let qbuf = list.split(" flags=b ").nth(1).unwrap().split(" qbuf=").nth(1).unwrap();
    let qbuf: usize = qbuf.split(' ').next().unwrap().parse().unwrap();
    assert!(((1 << 20)..(4 << 20)).contains(&qbuf), "{qbuf}");
    drop(waiting);
}
