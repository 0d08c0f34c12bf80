//! Three servers under load that share a battery of ten seconds, and the end of their time: SIGTERM
//! to the guard, or a notice of a cloud, whose metadata service is on loopback here.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::guarding::*;
use crate::running::*;

const NAMES: [&str; 3] = ["a", "b", "c"];
const GRACE: Duration = Duration::from_secs(10);

/// A metadata service as that of EC2.
struct Metadata {
    port: u16,
    /// Whether there is a notice.
    notice: Arc<AtomicBool>,
}

impl Metadata {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let notice = Arc::new(AtomicBool::new(false));
        let is_there = Arc::clone(&notice);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A client may have gone.
                let _ = answer(stream.unwrap(), is_there.load(Ordering::SeqCst));
            }
        });
        Self { port, notice }
    }
}

fn answer(stream: TcpStream, has_notice: bool) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") && reader.read_line(&mut request)? > 0 {}
    let (status, body) = match (request.starts_with("PUT"), has_notice) {
        (true, _) => ("200 OK", "token"),
        (false, false) => ("404 Not Found", ""),
        (false, true) => ("200 OK", r#"{"action": "terminate", "time": "2026-11-27T08:22:00Z"}"#),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    reader.get_mut().write_all((head + body).as_bytes())
}

/// Lets `end` begin the end of a guard that heeds `source`, under load, and looks for everything
/// that was acknowledged.
fn all_are_safe_within_the_grace(source: Option<String>, end: impl Fn(&GuardProcess)) {
    let mut guard = GuardProcess::start_with(source);
    guard.again_with(&["--grace", "10s"]);
    let mut servers = NAMES.map(|name| guard.serve(name));
    let writers = [0, 1, 2].map(|at| write_until_cut(servers[at].port, 0));
    let has_begun = |server: &Server| server.client().ask(&["EXISTS", &key(500)]) == ":1";
    wait_until("writes", || servers.iter().all(has_begun));
    let mut drill = Command::new(PERDURA);
    let drilled = drill.args(["drill", "--guard"]).arg(&guard.socket).output().unwrap();
    let said = String::from_utf8_lossy(&drilled.stdout);
    assert!(drilled.status.success() && said.ends_with("PASS\n"), "{said}");

    end(&guard);
    let warned = Instant::now();
    for server in &mut servers {
        assert_eq!(server.wait(), Some(0));
    }
    wait_until("the guard's end", || guard.parent.try_wait().unwrap().is_some());
    let took = warned.elapsed();
    assert!(took < GRACE, "{took:?}");
    println!("all is on the SSD {took:?} after the warning");
    for (name, writer) in NAMES.into_iter().zip(writers) {
        let settings = [&SETTINGS[..], &["--no-holder"]].concat();
        let server = Server::start(&guard.data(name), &settings);
        assert!(server.banner.contains("loaded after a complete flush"), "{}", server.banner);
        verify(&server, writer.join().unwrap());
    }
}

#[test]
fn at_sigterm_to_the_guard_three_servers_are_safe_within_the_grace() {
    all_are_safe_within_the_grace(None, |guard| signal_process(guard.parent.id(), "TERM"));
}

#[test]
fn at_a_clouds_notice_three_servers_are_safe_within_the_grace() {
    let metadata = Metadata::start();
    let source = format!("aws:http://127.0.0.1:{}", metadata.port);
    all_are_safe_within_the_grace(Some(source), |_| {
        metadata.notice.store(true, Ordering::SeqCst);
    });
}
