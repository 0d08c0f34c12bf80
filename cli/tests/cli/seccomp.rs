//! The filter of system calls of `serve` and of its holder. That it refuses what it should is
//! tested beside its table; that it allows what is needed, by every other test of the program.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::refusing;
use crate::running::*;

const SMALL: [&str; 4] = ["--memory", "32MiB", "--budget", "2MiB"];

/// The values of a line of `/proc/PID/status` for all threads of a process.
fn of_all_threads(pid: u32, name: &str) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let texts =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
    let of = |text: String| {
        Some(text.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned())
    };
    texts.filter_map(of).collect()
}

fn state(server: &Server) -> String {
    let info = server.client().ask(&["INFO", "perdura"]);
    info.lines().find_map(|line| line.strip_prefix("seccomp:")).unwrap().to_owned()
}

/// The process that starts holders for a server.
fn starter_of(dir: &Path) -> Option<u32> {
    program_of("start-holders", dir)
}

#[test]
fn all_threads_of_server_and_holder_have_the_filter_and_a_dead_holder_is_replaced() {
    let dir = TestDir::new();
    let mut server = Server::start(dir.path(), &[&SMALL[..], &["--seccomp", "on"]].concat());
    assert_eq!(state(&server), "on");
    let (holder, starter) = (holder_of(dir.path()).unwrap(), starter_of(dir.path()).unwrap());
    let has_filter = |pid| {
        let (modes, privileges) =
            (of_all_threads(pid, "Seccomp:"), of_all_threads(pid, "NoNewPrivs:"));
        assert!(!modes.is_empty() && modes.iter().all(|mode| mode == "2"), "{modes:?}");
        assert!(privileges.iter().all(|word| word == "1"), "{privileges:?}");
    };
    has_filter(server.child.id());
    wait_until("the holder's filter", || {
        of_all_threads(holder, "Seccomp:").iter().all(|mode| mode == "2")
    });
    has_filter(holder);
    // Twice, because the starter goes on.
    for _ in 0..2 {
        let socket = || {
            let found = std::fs::metadata(dir.path().join("holder.sock"));
            found.map(|m| (m.ctime(), m.ctime_nsec())).ok()
        };
        let before = (socket(), holder_of(dir.path()).unwrap());
        signal_process(before.1, "KILL");
        // It has the memory when it makes its socket.
        wait_until("another holder", || socket().is_some_and(|made| Some(made) != before.0));
        assert_ne!(holder_of(dir.path()), Some(before.1));
    }
    let last = holder_of(dir.path());
    fill(&server, 500);
    server.signal("KILL");
    server.wait();
    wait_until("the starter's end", || starter_of(dir.path()) != Some(starter));
    assert_eq!(holder_of(dir.path()), last, "the holder goes on");
    let server = Server::start(dir.path(), &SMALL);
    assert!(server.banner.contains("memory kept by the holder"), "{}", server.banner);
    verify(&server, 500);
    stop(server, dir.path());
    assert!(holder_of(dir.path()).is_none());
    // It notices that the server is gone, and ends a moment later.
    wait_until("the starter's end", || starter_of(dir.path()).is_none());
}

#[test]
fn a_server_that_starts_programs_has_a_part_of_the_filter() {
    let dir = TestDir::new();
    let warning = "command:echo steady";
    let server = Server::start(dir.path(), &[&SMALL[..], &["--warning", warning]].concat());
    assert_eq!(state(&server), "partly");
    assert!(starter_of(dir.path()).is_none());
    wait_until("the command's answer", || {
        server.client().ask(&["INFO", "perdura"]).contains("power_state:steady")
    });
    stop(server, dir.path());
}

#[test]
fn a_server_without_the_filter_says_so() {
    let dir = TestDir::new();
    let server = Server::start(dir.path(), &[&SMALL[..], &["--seccomp", "off"]].concat());
    assert_eq!(state(&server), "off");
    assert_eq!(of_all_threads(server.child.id(), "Seccomp_filters:")[0], "0");
    assert_eq!(of_all_threads(holder_of(dir.path()).unwrap(), "Seccomp_filters:")[0], "0");
    stop(server, dir.path());
}

#[test]
fn where_the_kernel_takes_no_filter_on_refuses_to_start_and_auto_says_why() {
    let dir = TestDir::new();
    let data = dir.path().join("data");
    let port = free_port().to_string();
    let serve = |wish: &str| {
        let mut program = Command::new(PERDURA);
        refusing::refuse(&mut program, libc::SYS_seccomp, libc::EPERM);
        program.args(["serve", "--port", &port, "--seccomp", wish, "--dir"]).arg(&data).args(SMALL);
        program
    };
    let output = serve("on").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && !data.exists(), "{said}");
    for words in ["--seccomp on", "the kernel refuses seccomp: Operation not permitted"] {
        assert!(said.contains(words), "{words:?} is missing in: {said}");
    }
    let log = dir.path().join("log");
    let mut program = serve("auto");
    let file = std::fs::File::create(&log).unwrap();
    let mut child = program.stdout(Stdio::null()).stderr(file).spawn().unwrap();
    wait_until("an answer", || std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());
    let info = Client::connect(port.parse().unwrap()).ask(&["INFO", "perdura"]);
    assert!(info.contains("\r\nseccomp:off\r\n"), "{info}");
    signal_process(child.id(), "TERM");
    assert!(child.wait().unwrap().success());
    let said = std::fs::read_to_string(&log).unwrap();
    assert_eq!(said.matches("there is no filter of system calls").count(), 1, "{said}");
    assert!(said.contains("Operation not permitted"), "{said}");
}

#[test]
fn a_holder_of_another_program_does_without_the_filter_where_the_kernel_takes_none() {
    let dir = TestDir::new();
    let mut program = Command::new(PERDURA);
    refusing::refuse(&mut program, libc::SYS_seccomp, libc::EPERM);
    program.arg("holder").arg("--dir").arg(dir.path()).stdin(Stdio::null());
    let output = program.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("there is no filter of system calls"), "{said}");
    // It went on to read what it is to hold.
    assert!(said.contains("read from the server"), "{said}");
}

#[test]
fn a_starter_that_is_gone_is_named_when_a_holder_dies() {
    let dir = TestDir::new();
    let (log, port) = (dir.path().join("log"), free_port().to_string());
    let data = dir.path().join("data");
    let mut program = Command::new(PERDURA);
    program.args(["serve", "--port", &port, "--dir"]).arg(&data).args(SMALL);
    program.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let mut child = program.spawn().unwrap();
    wait_until("a starter", || starter_of(&data).is_some());
    wait_until("an answer", || std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());
    signal_process(starter_of(&data).unwrap(), "KILL");
    signal_process(holder_of(&data).unwrap(), "KILL");
    let said = || std::fs::read_to_string(&log).unwrap();
    wait_until("a word of it", || said().contains("start-holders) is gone: restart the server"));
    signal_process(child.id(), "TERM");
    assert!(child.wait().unwrap().success(), "{}", said());
}

#[test]
fn another_word_is_refused() {
    let dir = TestDir::new();
    let mut program = Command::new(PERDURA);
    program.args(["serve", "--port", "0", "--seccomp", "yes", "--dir"]).arg(dir.path());
    let output = program.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("--seccomp yes: expected one of auto, on, off"), "{said}");
}
