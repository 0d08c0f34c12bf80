//! What the packages install: the settings file is one, and says the real defaults; systemd
//! understands the unit, and is told what its times must be.

use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::running::*;

const SETTINGS: &str = include_str!("../../../packaging/perdura.toml");
const UNIT: &str = include_str!("../../../packaging/perdura.service");
/// Tests have little memory; the file's own size is compared with the help.
const SMALL: [&str; 2] = ["--memory", "64MiB"];

/// The settings that are commented out, with whether they are examples.
fn commented() -> Vec<(&'static str, &'static str, bool)> {
    let mut found = Vec::new();
    for paragraph in SETTINGS.split("\n\n") {
        let is_example = paragraph.contains("# Example");
        for line in paragraph.lines() {
            let setting = line.strip_prefix('#').filter(|rest| !rest.starts_with([' ', '#']));
            if let Some((name, value)) = setting.and_then(|text| text.split_once(" = ")) {
                found.push((name, value, is_example));
            }
        }
    }
    found
}

/// The file with these settings besides those that count in it.
fn with(dir: &Path, settings: impl Iterator<Item = String>) -> String {
    let file = dir.join("perdura.toml");
    let lines: Vec<_> = settings.collect();
    std::fs::write(&file, format!("{SETTINGS}\n{}\n", lines.join("\n"))).unwrap();
    file.to_str().unwrap().to_owned()
}

/// What a server with this settings file says of itself, without what differs from start to start.
fn described(dir: &TestDir, file: &str) -> (String, String) {
    let mut server = Server::start(dir.path(), &[&["--config", file], &SMALL[..]].concat());
    let mut client = server.client();
    let count = client.ask(&["CONFIG", "GET", "*"]);
    let count: usize = count.strip_prefix('*').unwrap().parse().unwrap();
    let parameters: Vec<_> = (0..count).map(|_| client.reply().unwrap()).collect();
    let parameters = parameters.join("\n").replace(&server.port.to_string(), "PORT");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let lines = server.banner.lines().filter(|line| line.contains("  "));
    let differing = ["image ", "memory ", "making "];
    let lines = lines.filter(|line| !differing.iter().any(|start| line.starts_with(start)));
    (lines.collect::<Vec<_>>().join("\n"), parameters)
}

#[test]
fn the_defaults_in_the_settings_file_are_the_real_ones() {
    let (dir, files) = (TestDir::new(), TestDir::new());
    let defaults: Vec<_> = commented().into_iter().filter(|(_, _, example)| !example).collect();
    assert!(defaults.len() > 15, "{defaults:?}");
    let help = Command::new(PERDURA).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for (name, value, _) in &defaults {
        let entry = help.split("\n      --").find(|e| e.split_whitespace().next() == Some(name));
        let entry = entry.unwrap_or_else(|| panic!("--{name} is not in the help"));
        let entry = entry.split_whitespace().collect::<Vec<_>>().join(" ");
        let value = value.trim_matches('"');
        let says_it = entry.contains(&format!("[default: {value}]"))
            || entry.contains(&format!("[default: {value},"));
        assert!(says_it, "{name} = {value}: the help says {entry}");
    }
    let as_shipped = described(&dir, &with(files.path(), std::iter::empty()));
    let memory = |name: &str| name == "memory" || name == "listen";
    let lines = defaults.iter().filter(|(name, ..)| !memory(name));
    let lines = lines.map(|(name, value, _)| format!("{name} = {value}"));
    assert_eq!(described(&dir, &with(files.path(), lines)), as_shipped);
}

/// The examples that a server takes together, with what they name below `place`.
fn examples(place: &Path, of: impl Fn(&str) -> bool) -> Vec<String> {
    let place = place.to_str().unwrap();
    let here = |value: &str| {
        let folders = ["/etc/perdura", "/var/lib/perdura", "/run/perdura", "/srv"];
        let at_place = |text: String, folder: &&str| text.replace(folder, place);
        let value = folders.iter().fold(value.to_owned(), at_place);
        let value = value.replace("100GiB", "64MiB");
        let elsewhere = |text: String, port: &&str| text.replace(port, &free_port().to_string());
        ["6380", "9121"].iter().fold(value, elsewhere)
    };
    let examples = commented().into_iter().filter(|(name, _, is_example)| *is_example && of(name));
    examples.map(|(name, value, _)| format!("{name} = {}", here(value))).collect()
}

/// Makes the files that examples name.
fn fill(place: &Path) {
    let certificates = concat!(env!("CARGO_MANIFEST_DIR"), "/../server/tests/certificates");
    for (file, copy) in [
        ("server.pem", "server.pem"),
        ("server.key", "server.key"),
        ("authority.pem", "ca.pem"),
        ("authority.pem", "authorities/authority.pem"),
    ] {
        let copy = place.join(copy);
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(Path::new(certificates).join(file), copy).unwrap();
    }
    let battery = "nameplate = '60kJ'\ninstalled = 2025-03-01\n[watts]\ncpu = 120\n";
    for (file, text) in [
        ("password", "secret\n"),
        ("http-password", "secret\n"),
        ("users.acl", "user default on nopass ~* &* +@all\n"),
        ("battery.toml", battery),
        ("key", &"01".repeat(32)),
        ("ship-key", &"02".repeat(32)),
    ] {
        std::fs::write(place.join(file), text).unwrap();
    }
    for name in ["perdura-1", "perdura-2"] {
        std::fs::create_dir(place.join(name)).unwrap();
    }
}

#[test]
fn a_server_takes_the_examples_of_the_settings_file() {
    let (dir, files) = (TestDir::new(), TestDir::new());
    fill(files.path());
    let is_apart = |name: &str| name == "guard" || name.starts_with("key-") || is_backup(name);
    let others = examples(files.path(), |name| !is_apart(name));
    assert!(others.len() > 16, "{others:?}");
    let port = |name: &str| -> u16 {
        let line = others.iter().find(|line| line.starts_with(&format!("{name} = "))).unwrap();
        line.trim_end_matches('"').rsplit([' ', ':']).next().unwrap().parse().unwrap()
    };
    let file = with(files.path(), others.iter().cloned());
    let server = Server::start(dir.path(), &[&["--config", &file], &SMALL[..]].concat());
    assert_eq!(server.client().ask(&["PING"]), "+PONG");
    assert!(files.path().join("perdura.sock").exists());
    for name in ["tls-port", "http"] {
        TcpStream::connect(("127.0.0.1", port(name))).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    drop(server);

    // Nobody listens there.
    let file = with(files.path(), examples(files.path(), |name| name == "guard").into_iter());
    let words = ["serve", "--config", &file, "--listen", "127.0.0.1:0", "--dir"];
    let refused = Command::new(PERDURA).args(words).arg(dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("guard.sock"), "{said}");
}

fn is_backup(name: &str) -> bool {
    name == "ship" || name.starts_with("ship-")
}

/// Keys and backups do not go with devices, nor a key of a file with one of a command.
#[test]
fn a_server_takes_the_examples_of_encryption_and_backup() {
    let (dir, files) = (TestDir::new(), TestDir::new());
    fill(files.path());
    let lines = examples(files.path(), |name| name == "key-file" || is_backup(name));
    assert_eq!(lines.len(), 7, "{lines:?}");
    let file = with(files.path(), lines.into_iter());
    let mut server = Server::start(dir.path(), &[&["--config", &file], &SMALL[..]].concat());
    assert_eq!(server.client().ask(&["SET", "k", "v"]), "+OK");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    assert!(std::fs::read_dir(files.path().join("backup")).unwrap().count() > 0);

    // The command prints the key that the file has.
    let file = with(files.path(), examples(files.path(), |name| name == "key-command").into_iter());
    let mut program = Command::new(PERDURA);
    program.env("CREDENTIALS_DIRECTORY", files.path());
    let options = [&["--config", &file], &SMALL[..]].concat();
    let server = Server::start_by(program, dir.path(), &options);
    assert_eq!(server.client().ask(&["GET", "k"]), "v");
}

#[test]
fn systemd_understands_the_unit() {
    let dir = TestDir::new();
    let unit = dir.path().join("perdura.service");
    // The package's program is not on this machine.
    std::fs::write(&unit, UNIT.replace("/usr/bin/perdura ", &format!("{PERDURA} "))).unwrap();
    let mut analyze = Command::new("systemd-analyze");
    let Ok(found) = analyze.args(["verify", "--man=no"]).arg(&unit).output() else {
        eprintln!("SKIPPED: systemd is missing");
        return;
    };
    let said = String::from_utf8_lossy(&found.stderr);
    let of_unit: Vec<_> = said.lines().filter(|line| line.contains("perdura")).collect();
    assert!(of_unit.is_empty(), "{said}");
}

/// The next message to the service manager that has this word.
fn told(manager: &UnixDatagram, word: &str) -> String {
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    loop {
        let mut bytes = [0; 4096];
        let length = manager.recv(&mut bytes).unwrap();
        let message = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if message.contains(word) {
            return message;
        }
    }
}

#[test]
fn a_stop_may_take_as_long_as_the_unit_says_or_longer_for_a_longer_warning() {
    let dir = TestDir::new();
    let manager = UnixDatagram::bind(dir.path().join("notify")).unwrap();
    let seconds = |grace: u64| 2 * grace + 30;
    for grace in [30, 100] {
        let mut program = Command::new(PERDURA);
        program.env("NOTIFY_SOCKET", dir.path().join("notify"));
        let options = ["--grace", &format!("{grace}s"), "--budget", "8MiB"];
        let data = dir.path().join("data");
        let mut server = Server::start_by(program, &data, &[&options[..], &SMALL[..]].concat());
        told(&manager, "READY=1");
        server.signal("TERM");
        let wanted = format!("EXTEND_TIMEOUT_USEC={}", seconds(grace) * 1_000_000);
        assert!(told(&manager, "STOPPING=1").lines().any(|line| line == wanted), "{wanted}");
        assert_eq!(server.wait(), Some(0));
    }
    let grace = commented().into_iter().find(|(name, ..)| *name == "grace").unwrap().1;
    assert_eq!(grace, "\"30s\"");
    let limit = format!("\nTimeoutStopSec={}s\n", seconds(30));
    assert!(UNIT.contains(&limit), "the unit lacks {limit}");
}

#[test]
fn a_server_that_cannot_start_beneath_systemd_is_no_busy_loop() {
    let dir = TestDir::new();
    let began = Instant::now();
    let mut program = Command::new(PERDURA);
    program.env("NOTIFY_SOCKET", dir.path().join("nobody"));
    let words = ["serve", "--listen", "nowhere", "--dir"];
    let failed = program.args(words).arg(dir.path()).output().unwrap();
    assert!(!failed.status.success() && began.elapsed() > Duration::from_millis(900));
}
