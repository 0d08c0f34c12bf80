//! Two servers with one image and one vault: one of them ships, and both say so.

use std::path::Path;
use std::process::{Command, Output};

use crate::running::*;

const SETTINGS: [&str; 8] =
    ["--memory", "256MiB", "--budget", "8MiB", "--grace", "10s", "--checkpoint", "50ms"];

fn perdura(words: &[&str]) -> Output {
    Command::new(PERDURA).args(words).output().unwrap()
}

fn field(server: &Server, name: &str) -> String {
    let info = server.client().ask(&["INFO", "backup"]);
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {info}")).trim().to_owned()
}

fn start(dir: &Path, url: &str, more: &[&str]) -> Server {
    let ship = ["--ship", url, "--ship-every", "30ms"];
    Server::start(dir, &[&SETTINGS[..], &ship, more].concat())
}

fn wait_for_state(server: &Server, state: &str) {
    wait_until(state, || field(server, "backup_state") == state && has_figures(server, state));
    let is_stopped = if state == "stopped" { "1" } else { "0" };
    assert_eq!(field(server, "backup_stopped"), is_stopped);
}

/// Whether a backup that works has a restore point, or one that does not says why.
fn has_figures(server: &Server, state: &str) -> bool {
    match state {
        "ok" => {
            field(server, "backup_points") != "0" || field(server, "backup_lag_seconds") == "0.000"
        }
        _ => !field(server, "backup_error").is_empty(),
    }
}

fn stop(mut server: Server) {
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn of_two_servers_with_one_image_one_ships_and_a_take_over_stops_the_other() {
    let (data, vault, other) = (TestDir::new(), TestDir::new(), TestDir::new());
    let (url, copy) = (vault.path().to_str().unwrap(), other.path().join("copy"));
    let mut first = start(data.path(), url, &[]);
    assert_eq!(first.client().ask(&["SET", "who", "first"]), "+OK");
    wait_for_state(&first, "ok");
    wait_until("the write", || field(&first, "backup_lag_seconds") == "0.000");
    let restored = perdura(&["restore", url, "--dir", copy.to_str().unwrap()]);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));

    // The copy is served and does not ship.
    let second = start(&copy, url, &[]);
    wait_for_state(&second, "stopped");
    let error = field(&second, "backup_error");
    assert!(
        error.contains("another program, on ") && error.contains("--ship-take-over"),
        "{error}"
    );
    assert_eq!(second.client().ask(&["GET", "who"]), "first");
    assert_eq!(second.client().ask(&["SET", "who", "second"]), "+OK");
    // Nor does a backup by hand, of either directory.
    for dir in [data.path(), &copy] {
        let refused = perdura(&["backup", url, "--dir", dir.to_str().unwrap()]);
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && why.contains("--take-over"), "{why}");
    }
    wait_for_state(&first, "ok");
    stop(second);

    // A server that was killed goes on by itself.
    first.signal("KILL");
    let _ = first.wait();
    let first = start(data.path(), url, &[]);
    wait_for_state(&first, "ok");

    // The one that was before stops by itself, and stays so when it is started again.
    let second = start(&copy, url, &["--ship-take-over"]);
    wait_for_state(&second, "ok");
    assert_eq!(first.client().ask(&["SET", "who", "first again"]), "+OK");
    wait_for_state(&first, "stopped");
    let error = field(&first, "backup_error");
    assert!(error.contains("another program has taken over"), "{error}");
    assert_eq!(first.client().ask(&["GET", "who"]), "first again");
    stop(first);
    let first = start(data.path(), url, &[]);
    wait_for_state(&first, "stopped");
    stop(first);

    // All that came of it can be restored, and is of the one that took over.
    assert_eq!(second.client().ask(&["SET", "who", "second again"]), "+OK");
    stop(second);
    let listed = perdura(&["backup", "list", url]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for line in listed.lines() {
        let at = line.split_whitespace().next().unwrap();
        let verified = perdura(&["backup", "verify", url, "--at", at]);
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    }
    let last = other.path().join("last");
    assert!(perdura(&["restore", url, "--dir", last.to_str().unwrap()]).status.success());
    let server = Server::start(&last, &[]);
    assert_eq!(server.client().ask(&["GET", "who"]), "second again");
    stop(server);
    // Whoever stops gives the vault back.
    let first = start(data.path(), url, &[]);
    wait_for_state(&first, "ok");
    stop(first);
}
