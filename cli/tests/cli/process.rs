//! The promises of the fault model, with real processes, real signals, and memory that is really
//! lost.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::running::*;

/// Small budget, so that cleaning and waiting are part of every run.
const SETTINGS: [&str; 6] = ["--memory", "512MiB", "--budget", "2MiB", "--grace", "10s"];

fn load_for(server: &Server, from: u64, ms: u64) -> std::thread::JoinHandle<u64> {
    let writer = write_until_cut(server.port, from);
    std::thread::sleep(Duration::from_millis(ms));
    writer
}

fn dir() -> TestDir {
    TestDir::new()
}

#[test]
fn killed_under_load_and_started_again_nothing_acknowledged_is_missing() {
    let dir = dir();
    let mut acknowledged = 0;
    for round in 0..3 {
        let mut server = Server::start(dir.path(), &SETTINGS);
        if round > 0 {
            assert!(server.banner.contains("kept by the holder"), "{}", server.banner);
        }
        acknowledged = verify(&server, acknowledged);
        let writer = load_for(&server, acknowledged, 400);
        server.signal("KILL");
        let _ = server.wait();
        acknowledged = writer.join().unwrap();
    }
    let server = Server::start(dir.path(), &SETTINGS);
    verify(&server, acknowledged);
    stop(server, dir.path());
}

#[test]
fn memory_in_files_outlives_server_and_holder_and_goes_at_a_stop() {
    let dir = dir();
    let memory = TestDir::new();
    let settings = [&SETTINGS[..], &["--memory-dir", memory.path().to_str().unwrap()]].concat();
    let mut acknowledged = 0;
    for round in 0..3 {
        let mut server = Server::start(dir.path(), &settings);
        let was_kept = server.banner.contains("kept in files");
        assert_eq!(was_kept, round > 0, "{}", server.banner);
        acknowledged = verify(&server, acknowledged);
        let writer = load_for(&server, acknowledged, 400);
        // Not even a holder is left.
        signal_process(holder_of(dir.path()).unwrap(), "KILL");
        server.signal("KILL");
        let _ = server.wait();
        acknowledged = writer.join().unwrap();
        // The server may have asked for another one.
        wait_until("the starter's end", || program_of("start-holders", dir.path()).is_none());
        while let Some(holder) = holder_of(dir.path()) {
            let _ = Command::new("kill").args(["-KILL", &holder.to_string()]).status().unwrap();
        }
    }
    wait_until_nobody_has_the_image(dir.path());
    let flush = Command::new(PERDURA).arg("flush").arg("--dir").arg(dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&flush.stderr);
    assert!(!flush.status.success() && said.contains("its memory is in files"), "{said}");
    let check = Command::new(PERDURA).arg("check").arg(dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&check.stdout);
    assert!(said.contains("image: sound") && said.contains("memory: in files"), "{said}");
    let server = Server::start(dir.path(), &settings);
    verify(&server, acknowledged);
    stop(server, dir.path());
    assert_eq!(std::fs::read_dir(memory.path()).unwrap().count(), 0, "the files are left");
    // The image alone has everything.
    let server = Server::start(dir.path(), &SETTINGS);
    assert!(server.banner.contains("loaded after a complete flush"), "{}", server.banner);
    verify(&server, acknowledged);
    stop(server, dir.path());
}

#[test]
fn a_start_loads_first_what_was_hot() {
    let dir = dir();
    let settings = ["--memory", "256MiB", "--grace", "10s"];
    let server = Server::start(dir.path(), &settings);
    verify(&server, 0);
    let mut client = server.client();
    for n in 0..20_000 {
        assert_eq!(client.ask(&["SET", &key(n), &value(n)]), "+OK");
    }
    stop(server, dir.path());
    let heat = std::fs::read(dir.path().join("heat.perdura")).unwrap();
    assert_eq!(heat.len(), 24 + (256 << 20) / (64 << 10));
    assert!(heat[24..].iter().any(|byte| *byte > 0), "nothing is hot");
    // A damaged file changes nothing but the order.
    std::fs::write(dir.path().join("heat.perdura"), "damaged").unwrap();
    let server = Server::start(dir.path(), &settings);
    verify(&server, 20_000);
    stop(server, dir.path());
}

#[test]
fn a_hangup_ends_neither_server_nor_holder() {
    let dir = TestDir::new();
    let mut server = Server::start(dir.path(), &["--memory", "32MiB", "--checkpoint", "off"]);
    fill(&server, 500);
    let holder = holder_of(dir.path()).unwrap();
    server.signal("HUP");
    signal_process(holder, "HUP");
    verify(&server, 500);
    server.signal("KILL");
    server.wait();
    signal_process(holder, "HUP");
    let server = Server::start(dir.path(), &["--memory", "32MiB", "--checkpoint", "off"]);
    assert!(server.banner.contains("memory kept by the holder"), "{}", server.banner);
    verify(&server, 500);
    stop(server, dir.path());
}

#[test]
fn compressed_on_the_ssd_everything_is_there_killed_warned_and_without_compression_again() {
    let dir = dir();
    let packed = [&SETTINGS[..], &["--compress", "lz4", "--checkpoint", "100ms"]].concat();
    let mut acknowledged = 0;
    let mut server = Server::start(dir.path(), &packed);
    for end in ["KILL", "KILL", "TERM"] {
        assert!(server.banner.contains("compression      lz4"), "{}", server.banner);
        acknowledged = verify(&server, acknowledged);
        let writer = load_for(&server, acknowledged, 400);
        let (before, after) = (server.figure("compression_in_bytes"), server.figure("frames"));
        assert!(before > 0 && after > 0, "nothing was compressed");
        server.signal(end);
        assert_eq!(server.wait(), (end == "TERM").then_some(0));
        acknowledged = writer.join().unwrap();
        if end == "TERM" {
            wait_until("the holder's end", || holder_of(dir.path()).is_none());
        }
        server = Server::start(dir.path(), &packed);
    }
    verify(&server, acknowledged);
    let mut client = server.client();
    for key in 0..2_000 {
        let value = format!("{key:>8}").repeat(128);
        assert_eq!(client.ask(&["SET", &format!("shrinks:{key}"), &value]), "+OK");
    }
    wait_until("compressed frames", || server.figure("compressed_frames") > 0);
    let (before, after) =
        (server.figure("compression_in_bytes"), server.figure("compression_out_bytes"));
    assert!(after < before, "{before} bytes became {after}");
    assert!(server.figure("compression_cpu_ns") > 0);
    stop(server, dir.path());
    let server = Server::start(dir.path(), &SETTINGS);
    assert!(server.banner.contains("compression      off"), "{}", server.banner);
    verify(&server, acknowledged);
    let value = format!("{:>8}", 1_999).repeat(128);
    assert_eq!(server.client().ask(&["GET", "shrinks:1999"]), value);
    stop(server, dir.path());
}

#[test]
fn warned_it_stops_in_time_and_the_image_alone_has_everything() {
    let dir = dir();
    let mut server = Server::start(dir.path(), &SETTINGS);
    let writer = load_for(&server, 0, 500);
    let began = Instant::now();
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(10), "later than the grace");
    let acknowledged = writer.join().unwrap();
    wait_until("the holder's end", || holder_of(dir.path()).is_none());
    let server = Server::start(dir.path(), &SETTINGS);
    assert!(server.banner.contains("loaded after a complete flush"), "{}", server.banner);
    verify(&server, acknowledged);
    stop(server, dir.path());
}

#[test]
fn a_warning_does_not_wait_for_a_write_that_waits_for_budget() {
    let dir = dir();
    let settings = ["--memory", "1GiB", "--budget", "256KiB", "--grace", "10s"];
    let mut server = Server::start(dir.path(), &settings);
    let mut client = server.client();
    assert_eq!(client.ask(&["SET", "small", "1"]), "+OK");
    // This value is a thousand budgets long, so each piece waits until an earlier one is durable.
    let written = server.written_bytes();
    client.send(&["SET", "large", &"x".repeat(256 << 20)]).unwrap();
    // A few budgets are written and most are still to come. A file system in memory counts no
    // bytes, so the time ends the wait there.
    let sent = Instant::now();
    let (enough, long) = (written + (4 << 20), Duration::from_millis(100));
    while server.written_bytes() < enough && sent.elapsed() < long {
        std::thread::sleep(Duration::from_millis(1));
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let server = Server::start(dir.path(), &settings);
    assert_eq!(server.client().ask(&["EXISTS", "small", "large"]), ":1");
    stop(server, dir.path());
}

#[test]
fn warned_then_killed_at_the_promised_second_with_all_memory_wiped() {
    let dir = dir();
    // The warning comes three seconds before the loss.
    let settings = ["--memory", "512MiB", "--budget", "2MiB", "--grace", "3s"];
    let mut server = Server::start(dir.path(), &settings);
    let writer = load_for(&server, 0, 500);
    server.signal("TERM");
    std::thread::sleep(Duration::from_secs(3));
    let _ = server.child.kill();
    let _ = server.wait();
    end_holder(dir.path());
    let acknowledged = writer.join().unwrap();
    let server = Server::start(dir.path(), &SETTINGS);
    verify(&server, acknowledged);
    stop(server, dir.path());
}

#[test]
fn the_holder_flushes_alone_when_the_server_was_killed_before_the_warning() {
    let dir = dir();
    let mut server = Server::start(dir.path(), &SETTINGS);
    let writer = load_for(&server, 0, 500);
    server.signal("KILL");
    let _ = server.wait();
    let acknowledged = writer.join().unwrap();
    signal_process(holder_of(dir.path()).expect("a holder"), "TERM");
    wait_until("the holder's end", || holder_of(dir.path()).is_none());
    let server = Server::start(dir.path(), &SETTINGS);
    assert!(server.banner.contains("loaded after a complete flush"), "{}", server.banner);
    verify(&server, acknowledged);
    stop(server, dir.path());
}

#[test]
fn without_any_warning_it_is_back_at_a_checkpoint_never_a_mixture() {
    let dir = dir();
    let mut server =
        Server::start(dir.path(), &[&SETTINGS[..], &["--checkpoint", "50ms"]].concat());
    let writer = load_for(&server, 0, 600);
    server.signal("KILL");
    let _ = server.wait();
    end_holder(dir.path());
    let acknowledged = writer.join().unwrap();
    let server = Server::start(dir.path(), &SETTINGS);
    let found = present_prefix(&mut server.client(), 0);
    assert!(found > 0 && found <= acknowledged + 16, "{found} of {acknowledged}");
    stop(server, dir.path());
}

#[test]
fn with_fsync_an_unwarned_loss_costs_nothing_acknowledged() {
    let dir = dir();
    let mut server =
        Server::start(dir.path(), &[&SETTINGS[..], &["--durability", "fsync"]].concat());
    let writer = load_for(&server, 0, 500);
    server.signal("KILL");
    let _ = server.wait();
    end_holder(dir.path());
    let acknowledged = writer.join().unwrap();
    assert!(acknowledged > 0);
    let server = Server::start(dir.path(), &SETTINGS);
    verify(&server, acknowledged);
    stop(server, dir.path());
}

#[test]
fn a_killed_holder_is_replaced_and_nothing_is_lost() {
    let dir = dir();
    let mut server = Server::start(dir.path(), &SETTINGS);
    let writer = load_for(&server, 0, 200);
    let first = holder_of(dir.path()).expect("a holder");
    signal_process(first, "KILL");
    wait_until("another holder", || holder_of(dir.path()).is_some_and(|pid| pid != first));
    server.signal("KILL");
    let _ = server.wait();
    let acknowledged = writer.join().unwrap();
    let server = Server::start(dir.path(), &SETTINGS);
    verify(&server, acknowledged);
    stop(server, dir.path());
}

#[test]
fn a_server_flushes_with_success_though_the_holder_that_it_found_is_gone() {
    let dir = dir();
    let mut server = Server::start(dir.path(), &SETTINGS);
    server.signal("KILL");
    let _ = server.wait();
    let mut server = Server::start(dir.path(), &[&SETTINGS[..], &["--no-holder"]].concat());
    assert!(server.banner.contains("kept by the holder"), "{}", server.banner);
    assert_eq!(server.client().ask(&["SET", &key(0), &value(0)]), "+OK");
    end_holder(dir.path());
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn the_budget_holds_while_it_is_cut_in_half_under_load() {
    let dir = dir();
    let mut server = Server::start(dir.path(), &["--memory", "512MiB", "--budget", "8MiB"]);
    let writer = load_for(&server, 0, 300);
    let mut client = server.client();
    assert_eq!(client.ask(&["PERDURA", "BUDGET", "4194304"]), "+OK");
    std::thread::sleep(Duration::from_millis(300));
    let info = client.ask(&["INFO", "perdura"]);
    let field = |name: &str| -> u64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{name} in {info}")).parse().unwrap()
    };
    assert_eq!(field("budget_bytes"), 4 << 20);
    assert!(field("dirty_bytes_max") <= 4 << 20);
    assert!(client.ask(&["PERDURA", "BUDGET", "1"]).starts_with("-ERR"));
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    writer.join().unwrap();
}

#[test]
fn a_drill_on_a_running_server_flushes_a_full_budget_and_loses_nothing() {
    let dir = dir();
    let server = Server::start(dir.path(), &["--memory", "512MiB", "--budget", "8MiB"]);
    let mut client = server.client();
    for n in 0..2_000 {
        assert_eq!(client.ask(&["SET", &key(n), &value(n)]), "+OK");
    }
    let drill = std::process::Command::new(PERDURA)
        .args(["drill", "--connect", &format!("127.0.0.1:{}", server.port)])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&drill.stdout);
    assert!(drill.status.success() && said.contains("PASS"), "{said}");
    verify(&server, 2_000);
    stop(server, dir.path());
}

#[test]
fn a_holder_whose_server_does_not_come_back_flushes_and_goes_and_nothing_is_missing() {
    let dir = dir();
    let settings = [&SETTINGS[..], &["--holder-wait", "300ms"]].concat();
    let mut server = Server::start(dir.path(), &settings);
    let writer = load_for(&server, 0, 300);
    server.signal("KILL");
    let _ = server.wait();
    let acknowledged = writer.join().unwrap();
    wait_until("the holder's end", || holder_of(dir.path()).is_none());
    let server = Server::start(dir.path(), &settings);
    assert!(server.banner.contains("loaded after a complete flush"), "{}", server.banner);
    verify(&server, acknowledged);
    stop(server, dir.path());
}

#[test]
fn a_holder_whose_directory_was_removed_lets_the_memory_go() {
    let dir = dir();
    let data = dir.path().join("data");
    let mut server = Server::start(&data, &SETTINGS);
    let holder = holder_of(&data).unwrap();
    server.signal("KILL");
    let _ = server.wait();
    std::fs::remove_dir_all(&data).unwrap();
    wait_until("the holder's end", || !Path::new("/proc").join(holder.to_string()).exists());
}

#[test]
fn status_says_that_a_running_store_keeps_its_promise_and_who_holds_its_memory() {
    let dir = dir();
    let server = Server::start(dir.path(), &SETTINGS);
    let address = format!("127.0.0.1:{}", server.port);
    let status = |words: &[&str]| {
        Command::new(PERDURA).args(["status", "--connect", &address]).args(words).output().unwrap()
    };
    let shown = status(&[]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert_eq!(shown.status.code(), Some(0), "{text}");
    for wanted in ["the promise holds", "proven rate", "keeps the memory if the server dies"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let found: serde_json::Value = serde_json::from_slice(&status(&["--json"]).stdout).unwrap();
    assert_eq!((&found["holds"], &found["holder"]), (&true.into(), &true.into()), "{found}");
    assert!(found["promised_s"].as_f64() <= found["warning_s"].as_f64(), "{found}");
    stop(server, dir.path());
    let gone = status(&[]);
    assert_eq!(gone.status.code(), Some(2), "{}", String::from_utf8_lossy(&gone.stderr));
}
