//! Ten thousand idle clients take bounded memory each, and disturb nobody.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

#[path = "cli/running.rs"]
mod running;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use running::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const CLIENTS: usize = 10_000;
/// A release build was measured to take 230 bytes. The rest is room for the allocator.
const BYTES_PER_CLIENT_MAX: u64 = 1024;

#[test]
fn ten_thousand_idle_clients_cost_little_and_disturb_nobody() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = CLIENTS as u64 + 500;
    if limit.maximum.is_some_and(|maximum| maximum < wanted) {
        eprintln!(
            "SKIPPED: {wanted} descriptors are needed, the hard limit is {:?}",
            limit.maximum
        );
        return;
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).unwrap();
    for events in ["auto", "epoll"] {
        connect_all(events);
    }
}

fn connect_all(events: &str) {
    let dir = TestDir::new();
    let settings = ["--memory", "64MiB", "--budget", "4MiB", "--max-clients", "10100"];
    let server = Server::start(dir.path(), &[&settings[..], &["--events", events]].concat());
    let mut busy = server.client();
    for n in 0..1_000 {
        assert_eq!(busy.ask(&["SET", &key(n), &value(n)]), "+OK");
    }
    let before_kb = server.status("RssAnon:");
    let mut idle = Vec::with_capacity(CLIENTS);
    for _ in 0..CLIENTS {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // Each client has sent something once, and the buffers for it must have been given back.
        stream.write_all(b"PING\r\n").unwrap();
        idle.push(stream);
    }
    let mut pong = [0; 7];
    for stream in &mut idle {
        stream.read_exact(&mut pong).unwrap();
        assert_eq!(&pong, b"+PONG\r\n");
    }
    assert!(server.figure("connected_clients") > CLIENTS as u64);
    let grown_bytes = server.status("RssAnon:").saturating_sub(before_kb) * 1024;
    let each = grown_bytes / CLIENTS as u64;
    println!("{each} bytes for each idle client, with --events {events}");
    assert!(each <= BYTES_PER_CLIENT_MAX, "{each} bytes for each idle client");

    let mut slowest = Duration::ZERO;
    for n in 0..2_000 {
        let began = Instant::now();
        assert_eq!(busy.ask(&["SET", &key(n), &value(n)]), "+OK");
        slowest = slowest.max(began.elapsed());
    }
    // A walk over all clients at every command would take minutes here.
    assert!(slowest < Duration::from_secs(2), "{slowest:?} for one of the others");
    drop(idle);
    wait_until("the idle ones are gone", || server.figure("connected_clients") <= 2);
    verify(&server, 1_000);
}
