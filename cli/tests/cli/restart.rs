//! A server that is killed can be started again at once, on the same addresses.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::running::*;

/// Kills of the longest test. `PERDURA_TEST_KILLS=1000 cargo test -p perdura-cli --test cli
/// restart` does more.
const KILLS: u64 = 200;
/// Words of the log while the server waits for an address.
const WAITS: &str = "waiting 2s at most";

/// What a service manager does with `Restart=always` and `RestartSec=0`: it starts a program, waits
/// for its end, and starts it again at once, however it ended.
struct Supervisor {
    is_stopping: Arc<AtomicBool>,
    /// The process that runs the program now.
    pid: Arc<AtomicU32>,
    thread: Option<JoinHandle<Vec<ExitStatus>>>,
}

impl Supervisor {
    fn new(mut program: Command) -> Self {
        let (is_stopping, pid) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (stop, now) = (Arc::clone(&is_stopping), Arc::clone(&pid));
        let thread = std::thread::spawn(move || {
            let mut ends = Vec::new();
            while !stop.load(Ordering::Acquire) {
                let mut child = program.spawn().unwrap();
                now.store(child.id(), Ordering::Release);
                ends.push(child.wait().unwrap());
            }
            ends
        });
        Self { is_stopping, pid, thread: Some(thread) }
    }

    /// Ends the program, and returns how each run of it ended.
    fn stop(mut self) -> Vec<ExitStatus> {
        self.end("TERM")
    }

    fn end(&mut self, signal: &str) -> Vec<ExitStatus> {
        self.is_stopping.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return Vec::new() };
        signal_process(self.pid.load(Ordering::Acquire), signal);
        thread.join().unwrap()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.end("KILL");
    }
}

/// A client of a server other than process `not`, and that server's process; `None` while there is
/// no such server.
fn client_of_other_than(not: u32, port: u16) -> Option<(Client, u32)> {
    let mut client = Client::try_connect(port).ok()?;
    client.send(&["INFO", "server"]).ok()?;
    let info = client.reply()?;
    let pid = info.lines().find_map(|line| line.strip_prefix("process_id:"));
    let pid = pid.unwrap_or_else(|| panic!("process_id in {info}")).parse().unwrap();
    (pid != not).then_some((client, pid))
}

/// Kills the server again and again while clients write, and looks after each kill for what was
/// acknowledged before it.
fn kill_under_load(port: u16, kills: u64) {
    let (mut pid, mut from, mut to) = (0, 0, 0);
    for kill in 0..=kills {
        let mut found = None;
        wait_until("another server", || {
            found = client_of_other_than(pid, port);
            found.is_some()
        });
        let (mut client, next) = found.unwrap();
        pid = next;
        for n in from..to {
            let value = value(n);
            assert_eq!(client.ask(&["GET", &key(n)]), value, "key {n} of {to}, kill {kill}");
        }
        if kill < kills {
            let idle: Vec<_> = (0..8).map(|_| Client::connect(port)).collect();
            let writer = write_until_cut(port, to);
            let some = key(to + 50);
            while client.ask(&["EXISTS", &some]) != ":1" {}
            signal_process(pid, "KILL");
            (from, to) = (to, writer.join().unwrap());
            drop(idle);
        }
    }
}

fn kills_wanted() -> u64 {
    let wanted = std::env::var("PERDURA_TEST_KILLS").ok();
    wanted.map_or(KILLS, |kills| kills.parse().expect("PERDURA_TEST_KILLS is a number"))
}

fn restart_always(events: &str, kills: u64) {
    let (data, aside) = (TestDir::new(), TestDir::new());
    let log = aside.path().join("log");
    let port = free_port();
    let mut program = Command::new(PERDURA);
    program
        .args(["serve", "--events", events, "--memory", "256MiB", "--budget", "4MiB"])
        .args(["--listen", &format!("127.0.0.1:{port}"), "--unix-socket"])
        .arg(aside.path().join("socket"))
        .arg("--dir")
        .arg(data.path())
        .stdout(Stdio::null())
        .stderr(File::create(&log).unwrap());
    let supervisor = Supervisor::new(program);
    kill_under_load(port, kills);
    let ends = supervisor.stop();
    wait_until("the holder's end", || holder_of(data.path()).is_none());
    let log = fs::read_to_string(&log).unwrap();
    let failed = ends.iter().filter(|end| end.code().is_some_and(|code| code != 0)).count();
    let waited = log.matches(WAITS).count();
    assert_eq!(
        (failed, waited),
        (0, 0),
        "of {kills} restarts {failed} failed and {waited} waited for an address: {log}"
    );
    let killed = ends.iter().filter(|end| end.signal() == Some(9)).count() as u64;
    assert_eq!((killed, ends.len() as u64), (kills, kills + 1), "{ends:?}");
}

#[test]
fn killed_and_restarted_at_once_again_and_again_no_start_fails_and_no_write_is_lost() {
    restart_always("auto", kills_wanted());
}

#[test]
fn with_epoll_too_a_killed_server_is_restarted_at_once() {
    restart_always("epoll", kills_wanted() / 10);
}

fn serve_on(port: u16, dir: &Path) -> Command {
    let mut program = Command::new(PERDURA);
    program.args(["serve", "--memory", "32MiB", "--listen", &format!("127.0.0.1:{port}")]);
    program.arg("--dir").arg(dir);
    program
}

#[test]
fn an_address_that_its_owner_is_about_to_leave_is_waited_for() {
    let dir = TestDir::new();
    let owner = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = owner.local_addr().unwrap().port();
    let mut program = serve_on(port, dir.path());
    let mut child = program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = said.next().unwrap();
    assert!(first.contains(WAITS) && first.contains(&format!("127.0.0.1:{port}")), "{first}");
    drop(owner);
    let second = said.next().unwrap();
    assert!(second.contains("the address is free"), "{second}");
    // The pipe is read on, so that the server can say goodbye.
    let rest = std::thread::spawn(move || said.count());
    wait_until("an answer", || client_of_other_than(0, port).is_some());
    signal_process(child.id(), "TERM");
    assert!(child.wait().unwrap().success());
    rest.join().unwrap();
}

#[test]
fn an_address_that_stays_taken_is_refused_after_two_seconds_and_nothing_is_made() {
    let dir = TestDir::new();
    let data = dir.path().join("data");
    let owner = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = owner.local_addr().unwrap();
    let began = Instant::now();
    let output = serve_on(address.port(), &data).output().unwrap();
    assert!(began.elapsed() > Duration::from_secs(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    for part in ["waited 2s in vain", &address.to_string(), "end the program that listens there"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(!data.exists());
}
