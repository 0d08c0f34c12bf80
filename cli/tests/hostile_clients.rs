//! Clients that send what nobody should, or do not read: the server's memory stays bounded, and the
//! others are served.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

#[path = "cli/running.rs"]
mod running;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use running::*;

/// The longest time for one request of a client beside the hostile ones.
const SLOWEST: Duration = Duration::from_secs(2);

/// A server with a directory of its own.
struct Place {
    server: Server,
    _dir: TestDir,
}

fn start(events: &str) -> Place {
    let dir = TestDir::new();
    let settings = ["--memory", "64MiB", "--budget", "4MiB", "--events", events];
    let place = Place { server: Server::start(dir.path(), &settings), _dir: dir };
    // The first requests of a server take memory once.
    let mut client = place.server.client();
    for n in 0..2_000 {
        assert_eq!(client.ask(&["SET", &key(n), &value(n)]), "+OK");
    }
    place
}

impl Place {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.server.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Memory that belongs to the server alone, KiB: not its region's.
    fn rss_kib(&self) -> u64 {
        self.server.status("RssAnon:")
    }
}

/// Runs a test with each event queue.
fn with_each_queue(test: impl Fn(&Place)) {
    for events in ["auto", "epoll"] {
        println!("--events {events}");
        test(&start(events));
    }
}

#[test]
fn an_impossible_length_is_refused_before_memory_is_taken_for_it() {
    let endless = "x".repeat(70 << 10);
    let count = format!("*{}", "1".repeat(70 << 10));
    let refused: [(&str, &str); 11] = [
        ("*1\r\n$1000000000000\r\n", "invalid bulk length"),
        ("*2\r\n$3\r\nGET\r\n$1000000000000\r\n", "invalid bulk length"),
        ("*1\r\n$18446744073709551617\r\n", "invalid bulk length"),
        ("*1\r\n$536870913\r\n", "invalid bulk length"),
        ("*1\r\n$-5\r\n", "invalid bulk length"),
        ("*1000000000\r\n", "invalid multibulk length"),
        ("*1000000000000\r\n", "invalid multibulk length"),
        ("*18446744073709551617\r\n", "invalid multibulk length"),
        ("*2\r\n*1000000000\r\n", "expected '$', got '*'"),
        (&endless, "too big inline request"),
        (&count, "too big mbulk count string"),
    ];
    with_each_queue(|place| {
        let before_kib = place.rss_kib();
        for (sent, why) in refused {
            let mut client = place.connect();
            client.write_all(sent.as_bytes()).unwrap();
            let mut answer = String::new();
            // The rest of what was sent may make the system reset the connection.
            let _ = client.read_to_string(&mut answer);
            let wanted = format!("-ERR Protocol error: {why}\r\n");
            assert_eq!(answer, wanted, "for {:.40}", sent.escape_debug());
        }
        // The largest lengths that are allowed are not taken before the bytes have come.
        let mut clients: Vec<_> = (0..50).map(|_| place.connect()).collect();
        for (n, client) in clients.iter_mut().enumerate() {
            let sent =
                ["*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nxyz", "*1048576\r\n$4\r\nMGET\r\n"];
            client.write_all(sent[n % 2].as_bytes()).unwrap();
        }
        assert_eq!(place.server.client().ask(&["PING"]), "+PONG");
        let grown_kib = place.rss_kib().saturating_sub(before_kib);
        println!("grown by {grown_kib} KiB");
        assert!(grown_kib < 8 << 10, "grown by {grown_kib} KiB");
    });
}

#[test]
fn clients_that_send_one_byte_at_a_time_take_little_and_hold_up_nobody() {
    const CLIENTS: usize = 400;
    with_each_queue(|place| {
        let mut busy = place.server.client();
        let before_kib = place.rss_kib();
        let mut slow: Vec<_> = (0..CLIENTS).map(|_| place.connect()).collect();
        let (request, mut slowest) =
            (b"*3\r\n$3\r\nSET\r\n$4\r\nslow\r\n$6\r\nanswer\r\n", Duration::ZERO);
        for byte in request.chunks(1) {
            slow.iter_mut().for_each(|client| client.write_all(byte).unwrap());
            let began = Instant::now();
            assert_eq!(busy.ask(&["SET", "busy", "1"]), "+OK");
            slowest = slowest.max(began.elapsed());
            if byte == b"$" {
                let each = place.rss_kib().saturating_sub(before_kib) * 1024 / CLIENTS as u64;
                println!("{each} bytes for each client with a part of a request");
                assert!(each <= 4096, "{each} bytes for each");
            }
        }
        let mut answer = [0; 5];
        for client in &mut slow {
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"+OK\r\n");
        }
        println!("the slowest request beside them: {slowest:?}");
        assert!(slowest < SLOWEST, "{slowest:?} for one of the others");
        assert_eq!(busy.ask(&["GET", "slow"]), "answer");
    });
}

#[test]
fn a_million_commands_whose_replies_are_never_read_take_bounded_memory() {
    with_each_queue(|place| {
        let mut busy = place.server.client();
        assert_eq!(busy.ask(&["SET", "k", &"x".repeat(1_000)]), "+OK");
        let before_kib = place.rss_kib();
        let mut deaf = place.connect();
        deaf.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        // The replies would be 1 GB. The server stops to execute, and then to receive.
        let commands = b"GET k\r\n".repeat(10_000);
        let mut sent_bytes = 0;
        'sending: for _ in 0..100 {
            let mut rest = &commands[..];
            while !rest.is_empty() {
                match deaf.write(rest) {
                    Ok(taken) => (sent_bytes, rest) = (sent_bytes + taken, &rest[taken..]),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                        break 'sending;
                    }
                }
            }
            let began = Instant::now();
            assert_eq!(busy.ask(&["SET", "busy", "1"]), "+OK");
            assert!(began.elapsed() < SLOWEST, "{:?} for one of the others", began.elapsed());
        }
        let grown_kib = place.rss_kib().saturating_sub(before_kib);
        println!("{sent_bytes} bytes of commands taken; grown by {grown_kib} KiB");
        assert!(grown_kib < 16 << 10, "grown by {grown_kib} KiB for {sent_bytes} bytes sent");
        // It is paused, not ended, and its memory is given back when it goes.
        assert_eq!(place.server.figure("connected_clients"), 3);
        drop(deaf);
        wait_until("it is gone", || place.server.figure("connected_clients") == 2);
        assert_eq!(busy.ask(&["GET", "busy"]), "1");
    });
}
