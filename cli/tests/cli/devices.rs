//! Data larger than memory: `serve --device`.

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::running::*;

/// Keys of about 64 MB of data, twice as large as the memory.
const KEYS: u64 = 90_000;

struct Place {
    dir: TestDir,
    devices: Vec<PathBuf>,
}

impl Place {
    fn new() -> Self {
        let dir = TestDir::new();
        let devices = ["a", "b", "c", "d"].map(|name| dir.path().join(name)).to_vec();
        Self { dir, devices }
    }

    /// The options for these devices.
    fn options(&self, devices: &[usize]) -> Vec<String> {
        let path = |index: &usize| self.devices[*index].display().to_string();
        let each = |index| ["--device".to_owned(), path(index)];
        let memory = ["--memory".to_owned(), "32MiB".to_owned()];
        memory.into_iter().chain(devices.iter().flat_map(each)).collect()
    }

    fn start(&self, devices: &[usize]) -> Server {
        self.start_with(devices, &[])
    }

    fn start_with(&self, devices: &[usize], more: &[&str]) -> Server {
        let options = self.options(devices);
        let words: Vec<&str> =
            options.iter().map(String::as_str).chain(more.iter().copied()).collect();
        Server::start(self.dir.path(), &words)
    }

    fn refused(&self, devices: &[usize]) -> String {
        let port = free_port().to_string();
        let mut program = Command::new(PERDURA);
        program.args(["serve", "--port", &port, "--dir"]).arg(self.dir.path());
        let Output { status, stderr, .. } = program.args(self.options(devices)).output().unwrap();
        assert!(!status.success(), "{devices:?} are accepted");
        String::from_utf8(stderr).unwrap()
    }
}

fn keys(server: &Server) -> u64 {
    let reply = server.client().ask(&["DBSIZE"]);
    reply.strip_prefix(':').unwrap().parse().unwrap()
}

/// The line of INFO about a device.
fn device_line(client: &mut Client, number: u32) -> Option<String> {
    let info = client.ask(&["INFO", "devices"]);
    info.lines().find_map(|line| line.strip_prefix(&format!("device{number}:"))).map(str::to_owned)
}

#[test]
fn data_larger_than_memory_survive_kill_9_and_a_flush() {
    let place = Place::new();
    let server =
        place.start_with(&[0, 1, 2], &["--device-watts", "1.91,3.64", "--device-sleep", "1"]);
    let writer = write_until_cut(server.port, 0);
    wait_until("enough data", || keys(&server) >= KEYS || writer.is_finished());
    let line = device_line(&mut server.client(), 1).unwrap();
    let field = |name: &str| {
        let value = line.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("{name} in {line}")).parse::<f64>().unwrap()
    };
    // Busy for a part of the time, so between the two.
    assert!((1.9101..3.64).contains(&field("modelled_watts")), "{line}");
    assert!(field("busy_seconds") > 0.0 && field("written_bytes") > 0.0, "{line}");
    assert!(line.contains(",drives=") && field("share_of_hits") <= 1.0, "{line}");
    // The image lies where the devices do, so no drive of this machine is told to sleep.
    let info = server.client().ask(&["INFO", "devices"]);
    assert!(info.contains("\nmeters:"), "{info}");
    for drive in info.lines().filter(|line| line.contains(",bus=")) {
        assert!(drive.contains(",sleep=left alone: ") && drive.contains(",sleeps=0"), "{drive}");
    }
    server.signal("KILL");
    let acknowledged = writer.join().unwrap();
    assert!(acknowledged >= KEYS, "{acknowledged}");
    drop(server);
    // Another order of the devices is the same store.
    let mut server = place.start(&[2, 0, 1]);
    verify(&server, acknowledged);
    assert!(server.figure("far_reads") > KEYS / 2);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    drop(server);

    let error = place.refused(&[]);
    assert!(error.contains("values of this store lie on devices"), "{error}");
    let error = place.refused(&[0, 1]);
    assert!(error.contains("device 2 of the store is not among those named"), "{error}");
    let server = place.start(&[0, 1, 2]);
    verify(&server, acknowledged);
    let mut client = server.client();
    let value_0 = value(0);
    assert_eq!(client.ask(&["APPEND", &key(0), "x"]), format!(":{}", value_0.len() + 1));
    assert_eq!(client.ask(&["TYPE", &key(1)]), "+string");
    assert_eq!(client.ask(&["RENAME", &key(1), "renamed"]), "+OK");
    assert_eq!(client.ask(&["GET", "renamed"]), value(1));
    assert_eq!(client.ask(&["STRLEN", &key(2)]), format!(":{}", value(2).len()));
    assert_eq!(client.ask(&["EXPIRE", &key(3), "100"]), ":1");
    assert_eq!(client.ask(&["GET", &key(3)]), value(3));
    assert_eq!(client.ask(&["DEL", &key(4)]), ":1");
    assert_eq!(client.ask(&["EXISTS", &key(4), &key(5)]), ":1");
}

#[test]
fn every_kind_of_value_leaves_memory_and_comes_back() {
    let place = Place::new();
    let server = place.start(&[0]);
    let mut client = server.client();
    for n in 0..200 {
        let (hash, sorted) = (format!("hash:{n}"), format!("sorted:{n}"));
        for field in 0..10 {
            let (field, text) = (format!("f{field}"), format!("{n:020}"));
            client.ask(&["HSET", &hash, &field, &text]);
            client.ask(&["ZADD", &sorted, &format!("{}", n + 7), &field]);
        }
    }
    let writer = write_until_cut(server.port, 0);
    let moved = || server.figure("far_moved_values");
    wait_until("values leave memory", || moved() > 100_000 || writer.is_finished());
    for n in 0..200 {
        let (hash, sorted) = (format!("hash:{n}"), format!("sorted:{n}"));
        assert_eq!(client.ask(&["TYPE", &hash]), "+hash");
        assert_eq!(client.ask(&["HGET", &hash, "f3"]), format!("{n:020}"));
        assert_eq!(client.ask(&["HINCRBY", &hash, "count", "5"]), ":5");
        assert_eq!(client.ask(&["HLEN", &hash]), ":11");
        assert_eq!(client.ask(&["ZSCORE", &sorted, "f9"]), format!("{}", n + 7));
        assert_eq!(client.ask(&["ZADD", &sorted, "1", "new"]), ":1");
        assert_eq!(client.ask(&["ZCARD", &sorted]), ":11");
    }
    server.signal("KILL");
    writer.join().unwrap();
    drop(server);
    let server = place.start(&[0]);
    let mut client = server.client();
    for n in 0..200 {
        assert_eq!(client.ask(&["HGET", &format!("hash:{n}"), "count"]), "5");
        assert_eq!(client.ask(&["ZSCORE", &format!("sorted:{n}"), "new"]), "1");
    }
}

#[test]
fn a_device_comes_and_goes_while_clients_are_served() {
    let place = Place::new();
    let server = place.start(&[0]);
    let writer = write_until_cut(server.port, 0);
    let mut client = server.client();
    let moved = || server.figure("far_moved_values");
    wait_until("values leave memory", || moved() > 30_000 || writer.is_finished());
    let refused = client.ask(&["PERDURA", "DEVICE", "REMOVE", "0"]);
    assert!(refused.contains("the only one"), "{refused}");
    let missing = place.dir.path().join("nowhere").display().to_string();
    let refused = client.ask(&["PERDURA", "DEVICE", "ADD", &missing]);
    assert!(refused.starts_with("-ERR") && refused.contains("nowhere"), "{refused}");
    std::fs::create_dir(&place.devices[1]).unwrap();
    let added = place.devices[1].display().to_string();
    assert_eq!(client.ask(&["PERDURA", "DEVICE", "ADD", &added]), ":1");
    assert_eq!(client.ask(&["PERDURA", "DEVICE", "REMOVE", "0"]), "+OK");
    wait_until("device 0 is empty", || device_line(&mut client, 0).is_none());
    let line = device_line(&mut client, 1).unwrap();
    assert!(line.starts_with("state=online"), "{line}");
    server.signal("KILL");
    let acknowledged = writer.join().unwrap();
    drop(server);
    let server = place.start(&[1]);
    verify(&server, acknowledged);

    // Another server cannot have the device meanwhile.
    let other = Place::new();
    let port = free_port().to_string();
    let mut second = Command::new(PERDURA);
    second.args(["serve", "--port", &port, "--memory", "32MiB", "--dir"]).arg(other.dir.path());
    let Output { status, stderr, .. } = second.args(["--device", &added]).output().unwrap();
    let text = String::from_utf8(stderr).unwrap();
    assert!(!status.success() && text.contains("another server has"), "{text}");
}

#[test]
fn only_primaries_take_values_and_their_number_changes_while_clients_are_served() {
    let place = Place::new();
    let server = place.start_with(&[0, 1, 2], &["--device-primaries", "1"]);
    let writer = write_until_cut(server.port, 0);
    let moved = || server.figure("far_moved_values");
    wait_until("values leave memory", || moved() > 20_000 || writer.is_finished());
    let mut client = server.client();
    let roles = |client: &mut Client| {
        [0, 1, 2].map(|number| {
            let line = device_line(client, number).unwrap();
            let is_idle = line.contains("role=idle");
            assert!(is_idle || line.contains("role=primary"), "{line}");
            (is_idle, !line.contains("written_bytes=0,"))
        })
    };
    assert_eq!(roles(&mut client), [(false, true), (true, false), (true, false)]);
    assert_eq!(client.ask(&["PERDURA", "DEVICE", "PRIMARIES"]), "1");
    for (number, why) in [("4", "expected 1 to 3"), ("none", "expected all, auto"), ("0", "from 1")]
    {
        let refused = client.ask(&["PERDURA", "DEVICE", "PRIMARIES", number]);
        assert!(refused.starts_with("-ERR") && refused.contains(why), "{refused}");
    }
    assert_eq!(client.ask(&["PERDURA", "DEVICE", "PRIMARIES", "auto"]), "+OK");
    assert_eq!(client.ask(&["PERDURA", "DEVICE", "PRIMARIES"]), "auto");
    assert!(client.ask(&["INFO", "devices"]).contains("device_primaries_asked:auto"));
    assert_eq!(client.ask(&["PERDURA", "DEVICE", "PRIMARIES", "all"]), "+OK");
    wait_until("all take values", || {
        roles(&mut client) == [(false, true); 3] || writer.is_finished()
    });
    assert_eq!(roles(&mut client), [(false, true); 3]);
    server.signal("KILL");
    let acknowledged = writer.join().unwrap();
    drop(server);
    let server = place.start_with(&[0, 1, 2], &["--device-primaries", "auto"]);
    verify(&server, acknowledged);
    let primaries = server.figure("device_primaries");
    assert!((1..=3).contains(&primaries), "{primaries}");
}

#[test]
fn a_device_that_is_left_out_on_purpose_fails_its_own_values_only() {
    let place = Place::new();
    let mut server = place.start(&[0, 1]);
    let writer = write_until_cut(server.port, 0);
    let moved = || server.figure("far_moved_values");
    wait_until("values leave memory", || moved() > 30_000 || writer.is_finished());
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let acknowledged = writer.join().unwrap();
    drop(server);
    let server = place.start_with(&[0], &["--allow-missing-devices"]);
    let mut client = server.client();
    let (mut whole, mut lost) = (0, None);
    for n in 0..acknowledged {
        let found = client.ask(&["GET", &key(n)]);
        if found == value(n) {
            whole += 1;
        } else {
            let names_it = found.starts_with("-IOERR") && found.contains("device 1");
            assert!(names_it, "key {n}: {found}");
            lost = Some(n);
        }
    }
    let lost = lost.unwrap();
    assert!(whole > acknowledged / 3, "{whole} of {acknowledged}");
    // A write needs nothing of the value.
    assert_eq!(client.ask(&["SET", &key(lost), "new"]), "+OK");
    assert_eq!(client.ask(&["GET", &key(lost)]), "new");
}
