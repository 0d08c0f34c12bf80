//! Core files: who has a key leaves none, whatever limit it was started with.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::guarding::GuardProcess;
use crate::running::*;

const SMALL: [&str; 4] = ["--memory", "32MiB", "--budget", "2MiB"];
/// The limit with which nothing is written, neither to a file nor to a program.
const NONE: [&str; 2] = ["1", "1"];

/// The limits of core files of a process, as the system shows them.
fn limits(pid: u32) -> [String; 2] {
    let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
    let mut words = line.split_whitespace().map(str::to_owned);
    std::array::from_fn(|_| words.next().unwrap())
}

/// The program started by somebody who wants cores, in a directory of its own; `None` where the
/// system allows nobody to.
fn with_cores(dir: &Path) -> Option<Command> {
    let words = ["--core=unlimited:unlimited"];
    let is_allowed = |output: Output| output.status.success();
    if !Command::new("prlimit").args(words).arg("true").output().is_ok_and(is_allowed) {
        eprintln!("SKIPPED: prlimit allows no core files here");
        return None;
    }
    let mut program = Command::new("prlimit");
    program.args(words).arg(PERDURA).current_dir(dir);
    Some(program)
}

#[test]
fn a_server_and_its_holder_with_a_key_leave_no_core_file() {
    let (cores, dir) = (TestDir::new(), TestDir::new());
    let key = cores.path().join("key");
    let made = Command::new(PERDURA).args(["key", "generate"]).arg(&key).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let before = std::fs::read_dir(cores.path()).unwrap().count();
    let Some(program) = with_cores(cores.path()) else { return };
    let with_key = [&SMALL[..], &["--key-file", key.to_str().unwrap()]].concat();
    let mut server = Server::start_by(program, dir.path(), &with_key);
    let holder = holder_of(dir.path()).unwrap();
    assert_eq!(limits(server.child.id()), NONE);
    assert_eq!(limits(holder), NONE);
    server.signal("ABRT");
    let status = server.child.wait().unwrap();
    assert_eq!((status.signal(), status.core_dumped()), (Some(libc::SIGABRT), false));
    signal_process(holder, "ABRT");
    wait_until("the holder's end", || holder_of(dir.path()).is_none());
    assert_eq!(std::fs::read_dir(cores.path()).unwrap().count(), before);
}

#[test]
fn who_has_no_key_may_leave_a_core_file_and_a_guard_until_it_keeps_one() {
    let (keys, dir) = (TestDir::new(), TestDir::new());
    let Some(program) = with_cores(keys.path()) else { return };
    let server = Server::start_by(program, dir.path(), &SMALL);
    let wanted = ["unlimited"; 2];
    assert_eq!(limits(server.child.id()), wanted);
    assert_eq!(limits(holder_of(dir.path()).unwrap()), wanted);
    stop(server, dir.path());

    let guard = GuardProcess::start();
    let pid = guard.guard();
    let limit = ["--pid", &pid.to_string(), "--core=unlimited:unlimited"];
    assert!(Command::new("prlimit").args(limit).status().unwrap().success());
    let socket = ["--guard", guard.socket.to_str().unwrap()];
    let plain = Server::start(&guard.data("plain"), &[&SMALL[..], &socket].concat());
    assert_eq!(limits(pid), wanted);
    let variable = ("PERDURA_KEY", "ab".repeat(32));
    let mut program = Command::new(PERDURA);
    program.env(variable.0, variable.1);
    let sealed = Server::start_by(program, &guard.data("sealed"), &[&SMALL[..], &socket].concat());
    assert_eq!([limits(sealed.child.id()), limits(pid)], [NONE, NONE]);
    drop((plain, sealed));
}
