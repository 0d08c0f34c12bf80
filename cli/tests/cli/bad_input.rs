//! Mistakes of users, and refusals of the machine: each gives a clear error and changes nothing.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::running::*;

/// A server that is to refuse: one that serves is ended after 30 s, for the test to fail.
fn serve(dir: &Path, extra: &[&str]) -> Output {
    let output = Command::new("timeout")
        .args(["--kill-after=10", "30", PERDURA, "serve", "--dir"])
        .arg(dir)
        .args(["--listen", &format!("127.0.0.1:{}", free_port())])
        .args(extra)
        .output()
        .unwrap();
    assert_ne!(output.status.code(), Some(124), "it went on");
    output
}

/// The command must fail with an error that holds these words.
fn refused(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it went on: {said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
    }
}

#[test]
fn values_that_make_no_sense_are_named() {
    let dir = TestDir::new();
    let at = dir.path().join("d");
    for (extra, words) in [
        (&["--memory", "4potatoes"][..], &["--memory", "4potatoes"][..]),
        (&["--budget", "1KiB"], &["1024 bytes", "smallest"]),
        (&["--budget", "0%"], &["--budget 0%", "above 0%"]),
        (&["--memory", "1KiB"], &["--memory 1 KiB", "256 KiB"]),
        (&["--maxmemory", "1kb"], &["memory 1 KiB", "256 KiB"]),
        (&["--reserve-memory", "1MiB"], &["--reserve-memory 1 MiB", "1 GiB"]),
        (&["--listen", "here"], &["--listen here", "127.0.0.1:6379"]),
        (&["--bind", "1.2.3"], &["--bind 1.2.3", "127.0.0.1"]),
        (&["--slowlog-log-slower-than", "-2"], &["--slowlog-log-slower-than", "-2"]),
        (&["--budget", "900%"], &["900%"]),
        (&["--grace", "30"], &["--grace", "30"]),
        (&["--grace", "10ms"], &["leaves nothing"]),
        (&["--joules", "0J", "--watts", "5W"], &["energy", "zero"]),
        (&["--policy", "best"], &["--policy", "segmented"]),
        (&["--compress", "zip"], &["--compress", "lz4"]),
        (&["--durability", "maybe"], &["--durability", "fsync"]),
        (&["--events", "select"], &["--events", "epoll"]),
        (&["--log", "50%"], &["125 %"]),
        (&["--no-such-setting"], &["--no-such-setting"]),
        (&["--listen", "0.0.0.0:0"], &["0.0.0.0"]),
    ] {
        refused(
            &serve(&at, &[extra, &["--memory", "32MiB"][..]].concat()[..extra.len().max(2)]),
            words,
        );
        assert!(holder_of(&at).is_none(), "{extra:?} left a holder behind");
    }
}

#[test]
fn a_budget_that_the_warning_does_not_cover_is_refused_with_what_would_fit() {
    let dir = TestDir::new();
    let said = serve(dir.path(), &["--memory", "2GiB", "--budget", "2GiB", "--grace", "60ms"]);
    refused(&said, &["largest budget"]);
}

#[test]
fn a_mistake_in_the_file_is_told_with_its_line() {
    let dir = TestDir::new();
    let file = dir.path().join("p.toml");
    let given = ["--config", file.to_str().unwrap()];
    let data = dir.path().join("data");
    for (text, code, words) in [
        ("memroy = '1GiB'", 2, &["p.toml:1: memroy = \"1GiB\"", "unknown setting", "--help"][..]),
        ("\nmemory = '1GiB", 2, &["p.toml:2: memory: not TOML"]),
        ("\nthreads = 'x'", 2, &["p.toml:2: threads = \"x\"", "invalid digit"]),
        ("grace = '1s'\njoules = '5J'", 2, &["p.toml:1: grace", "p.toml:2: joules"]),
        ("\nmemory = '4potatoes'", 1, &["p.toml:2: memory = \"4potatoes\": --memory"]),
        ("\n\nio = 'fast'", 1, &["p.toml:3: io = \"fast\": --io fast", "pwrite"]),
        ("grace = '10ms'", 1, &["p.toml:1: grace = \"10ms\"", "leaves nothing"]),
    ] {
        std::fs::write(&file, text).unwrap();
        let said = serve(&data, &given);
        refused(&said, words);
        assert_eq!(said.status.code(), Some(code), "{text}");
        assert!(!data.exists(), "{text}");
    }
    std::fs::write(&file, "memory = '4potatoes'").unwrap();
    let given = ["--config", file.to_str().unwrap(), "--memory", "5potatoes"];
    let said = String::from_utf8(serve(&data, &given).stderr).unwrap();
    assert!(said.contains("--memory 5potatoes") && !said.contains("p.toml"), "{said}");
}

#[test]
fn two_at_once_the_second_is_told_who_has_it() {
    let dir = TestDir::new();
    let server = Server::start(dir.path(), &["--memory", "32MiB"]);
    let said = serve(dir.path(), &["--memory", "32MiB"]);
    refused(&said, &["in use", &server.child.id().to_string()]);
    assert_eq!(server.client().ask(&["PING"]), "+PONG");
}

#[test]
fn a_directory_in_use_is_found_before_an_image_is_announced() {
    let dir = TestDir::new();
    let server = Server::start(dir.path(), &["--memory", "32MiB"]);
    // Without the image's name the directory looks like a new one, but its holder answers.
    std::fs::remove_file(dir.path().join("image.perdura")).unwrap();
    let said = serve(dir.path(), &["--memory", "32MiB"]);
    refused(&said, &["in use", &server.child.id().to_string()]);
    assert!(said.stdout.is_empty(), "{}", String::from_utf8_lossy(&said.stdout));
}

#[test]
fn a_damaged_image_is_refused_with_the_place() {
    let dir = TestDir::new();
    let mut server = Server::start(dir.path(), &["--memory", "32MiB"]);
    for n in 0..500 {
        server.client().ask(&["SET", &key(n), &value(n)]);
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let image = dir.path().join("image.perdura");
    let good = std::fs::read(&image).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&image).unwrap();

    file.set_len(good.len() as u64 / 50).unwrap();
    refused(&serve(dir.path(), &[]), &["image.perdura", "truncated"]);
    file.set_len(good.len() as u64).unwrap();
    file.write_all_at(&good, 0).unwrap();

    file.write_all_at(b"REDIS0011", 0).unwrap();
    file.write_all_at(b"REDIS0011", 4096).unwrap();
    refused(&serve(dir.path(), &[]), &["image.perdura", "not a Perdura image"]);
    file.write_all_at(&good[..8192], 0).unwrap();

    let version = 8;
    for copy in [0, 4096] {
        file.write_all_at(&[99], copy + version).unwrap();
    }
    refused(&serve(dir.path(), &[]), &["image.perdura", "version 99"]);
    file.write_all_at(&good[..8192], 0).unwrap();

    let server = Server::start(dir.path(), &[]);
    verify(&server, 500);
}

#[test]
fn the_fallbacks_serve_as_well() {
    let dir = TestDir::new();
    let mut server = Server::start(
        dir.path(),
        &["--memory", "32MiB", "--io", "pwrite", "--direct", "off", "--no-holder"],
    );
    assert!(server.banner.contains("pwrite"), "{}", server.banner);
    assert!(server.banner.contains("without a holder"), "{}", server.banner);
    assert!(server.banner.contains("tracking         barrier: "), "{}", server.banner);
    let info = server.client().ask(&["INFO", "perdura"]);
    assert!(info.contains("tracking:barrier: ") && info.contains("device:pwrite"), "{info}");
    for n in 0..100 {
        server.client().ask(&["SET", &key(n), &value(n)]);
    }
    server.signal("INT");
    assert_eq!(server.wait(), Some(0));
    let server = Server::start(dir.path(), &[]);
    verify(&server, 100);
}

#[test]
fn a_reader_that_goes_away_does_not_end_a_command() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(PERDURA)
        .args(["sim", "cut", "--seed", "1", "--cuts", "2"])
        .stdout(writer)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_simulation_is_silent_about_its_machines_unless_it_is_asked() {
    let logged = |level: Option<&str>| {
        let mut command = Command::new(PERDURA);
        command.args(["sim", "cut", "--seed", "1", "--cuts", "40"]).env_remove("PERDURA_LOG");
        level.map(|level| command.env("PERDURA_LOG", level));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(output.stdout.ends_with(b" 0 failures\n"), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(logged(None), "");
    let asked = logged(Some("error"));
    assert!(asked.contains("power is off (simulated)"), "{asked}");
    // What nobody understands is said, and does not silence anything.
    assert!(logged(Some("loud=very")).contains("is ignored"));
}

#[test]
fn a_simulation_that_lasts_for_a_time_says_how_to_repeat_it() {
    let cut = |words: &[&str]| {
        let output = Command::new(PERDURA).args(["sim", "cut"]).args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // The time is over after the first cut.
    let said = cut(&["--seconds", "0"]);
    let (repeat, outcome) = said.split_once('\n').unwrap();
    let words = repeat.strip_prefix("repeat with: perdura sim cut ").unwrap();
    assert!(words.ends_with("--cuts 1"), "{said}");
    assert_eq!(cut(&words.split(' ').collect::<Vec<_>>()), outcome);
    let day: u64 = words.split(' ').nth(1).unwrap().parse().unwrap();
    assert!((20_000..100_000).contains(&day), "{said}");
}
