//! What may be dirty follows a battery: its state is in a file that changes while servers run.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::guarding::*;
use crate::running::*;

/// Writes a battery that gives `joules` at a load of 10 W, half of them usable.
fn write(path: &Path, joules: u64) {
    let text =
        format!("nameplate = '{joules}J'\ninstalled = 2020-01-01\nfade_per_year = '0%'\n[watts]\n");
    std::fs::write(path, format!("{text}cpu = 6\nssd = 4.0\n")).unwrap();
}

fn file(dir: &Path) -> PathBuf {
    let path = dir.join("battery.toml");
    write(&path, 40);
    path
}

fn field(server: &Server, name: &str) -> f64 {
    let info = server.client().ask(&["INFO", "perdura"]);
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {info}")).trim().parse().unwrap()
}

#[test]
fn a_servers_budget_follows_its_battery_and_never_exceeds_its_promise() {
    let (dir, data) = (tempfile::tempdir().unwrap(), TestDir::new());
    let battery = file(dir.path());
    let options = ["--memory", "1GiB", "--battery", battery.to_str().unwrap()];
    let server = Server::start(data.path(), &options);
    assert!(server.banner.contains("the warning is 2s"), "{}", server.banner);
    assert_eq!(field(&server, "battery_seconds"), 2.0);
    assert_eq!(field(&server, "battery_load_watts"), 10.0);
    let promised = field(&server, "budget_bytes");
    write(&battery, 4);
    wait_until("a smaller budget", || field(&server, "budget_bytes") < promised / 2.0);
    assert_eq!(field(&server, "warning_seconds"), 0.2);
    assert!(field(&server, "promised_seconds") <= 0.2 + 1e-9);
    write(&battery, 4_000);
    wait_until("the whole budget", || field(&server, "budget_bytes") == promised);
    std::fs::remove_file(&battery).unwrap();
    wait_until("the battery to be lost", || field(&server, "battery_lost") == 1.0);
    wait_until("a smaller budget", || field(&server, "budget_bytes") < promised / 2.0);
    assert_eq!(server.client().ask(&["SET", "k", "v"]), "+OK");
}

#[test]
fn the_servers_of_a_guard_share_what_the_battery_has_also_behind_a_guard_that_was_killed() {
    let mut guard = GuardProcess::start();
    let battery = file(&guard.data(""));
    guard.again_with(&["--battery", battery.to_str().unwrap()]);
    let total = || {
        let mut command = Command::new(PERDURA);
        let asked = command.args(["status", "--json", "--guard"]).arg(&guard.socket).output();
        let status: serde_json::Value = serde_json::from_slice(&asked.unwrap().stdout).unwrap();
        status["battery"]["flush_s"].as_f64().unwrap()
    };
    let server = guard.serve("a");
    assert_eq!(total(), 1.8);
    write(&battery, 20);
    wait_until("half of it", || total() == 0.9);
    std::fs::write(&battery, "").unwrap();
    let killed = guard.guard();
    signal_process(killed, "KILL");
    wait_until("another guard", || guard.guard() != killed);
    wait_until("a tenth of it", || (total() - 0.15).abs() < 0.01);
    write(&battery, 4_000);
    wait_until("all of it", || total() == 1.8);
    assert_eq!(server.client().ask(&["SET", "k", "v"]), "+OK");
}

#[test]
fn a_battery_that_makes_no_sense_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let battery = dir.path().join("battery.toml");
    std::fs::write(&battery, "nameplate = '40J'\n").unwrap();
    let (data, socket) = (dir.path().join("data"), dir.path().join("guard.sock"));
    for words in [
        ["serve", "--dir", data.to_str().unwrap()],
        ["guard", "--socket", socket.to_str().unwrap()],
    ] {
        let output = Command::new(PERDURA).args(words).arg("--battery").arg(&battery).output();
        let output = output.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains("missing field"), "{error}");
        assert!(!data.exists() && !socket.exists());
    }
}
