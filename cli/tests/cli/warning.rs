//! `serve --warning SOURCE`: real processes that are warned by a file, as a script of a UPS does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::running::*;

const GRACE: Duration = Duration::from_secs(10);

/// A data directory, and a file whose creation is the warning.
struct Place {
    _dir: TestDir,
    data: PathBuf,
    told: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = TestDir::new();
        let (data, told) = (dir.path().join("data"), dir.path().join("on-battery"));
        Self { _dir: dir, data, told }
    }

    /// A budget far below what is written, so that cleaning and waiting are part of each run.
    fn settings(&self) -> Vec<String> {
        let settings = ["--memory", "512MiB", "--budget", "2MiB", "--grace", "10s"];
        let source = format!("--warning=file:{}", self.told.display());
        settings.map(str::to_owned).into_iter().chain([source]).collect()
    }

    fn start(&self) -> Server {
        let settings = self.settings();
        let words: Vec<&str> = settings.iter().map(String::as_str).collect();
        Server::start(&self.data, &words)
    }

    fn holder_ends(&self) {
        wait_until("the holder's end", || holder_of(&self.data).is_none());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        end_holder(&self.data);
    }
}

/// Writes without end, and returns when thousands of writes are in.
fn load(server: &Server) -> std::thread::JoinHandle<u64> {
    let writer = write_until_cut(server.port, 0);
    wait_until("writes", || server.client().ask(&["EXISTS", &key(5_000)]) == ":1");
    writer
}

#[test]
fn at_the_file_s_creation_the_server_flushes_within_its_warning_and_a_restart_has_the_data() {
    let place = Place::new();
    let mut server = place.start();
    let writer = load(&server);
    let warned = Instant::now();
    std::fs::write(&place.told, "").unwrap();
    assert_eq!(server.wait(), Some(0));
    assert!(warned.elapsed() < GRACE, "ended {:?} after the warning", warned.elapsed());
    let acknowledged = writer.join().unwrap();
    place.holder_ends();

    let error = refused(&place.data, &place.settings());
    assert!(error.contains("on-battery is empty, or says `ending`"), "{error}");

    std::fs::remove_file(&place.told).unwrap();
    let mut server = place.start();
    assert!(server.banner.contains("loaded after a complete flush"), "{}", server.banner);
    verify(&server, acknowledged);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    place.holder_ends();
}

/// A file system of 512 MiB in memory, unmounted when dropped.
struct SmallDisk(TestDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let dir = TestDir::new();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=512m", "perdura-test"]).arg(dir.path());
        mount.status().is_ok_and(|status| status.success()).then(|| Self(dir))
    }

    /// Leaves no byte free.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.path().join("fills")).unwrap();
        let full = std::io::copy(&mut std::io::repeat(1), &mut file).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_disk_that_becomes_full_on_battery_takes_everything_all_the_same() {
    let Some(disk) = SmallDisk::mount() else {
        println!("skipped: cannot mount a small tmpfs");
        return;
    };
    let mut place = Place::new();
    place.data = disk.0.path().join("data");
    let mut settings = place.settings();
    (settings[1], settings[3]) = ("96MiB".into(), "8MiB".into());
    let words: Vec<&str> = settings.iter().map(String::as_str).collect();
    let mut server = Server::start(&place.data, &words);
    let writer = load(&server);
    std::fs::write(&place.told, "on-battery 2s").unwrap();
    wait_until("a demand", || field(&server, "power_demand") == "shorter-flush");
    disk.fill();
    // Some more writes go through what the disk has no new room for.
    std::thread::sleep(Duration::from_millis(300));
    std::fs::write(&place.told, "ending").unwrap();
    assert_eq!(server.wait(), Some(0));
    let acknowledged = writer.join().unwrap();
    place.holder_ends();
    std::fs::remove_file(&place.told).unwrap();
    let mut server = Server::start(&place.data, &words);
    assert!(server.banner.contains("loaded after a complete flush"), "{}", server.banner);
    verify(&server, acknowledged);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    place.holder_ends();
}

#[test]
fn the_holder_of_a_killed_server_flushes_at_the_file_s_creation() {
    let place = Place::new();
    let mut server = place.start();
    let writer = load(&server);
    server.signal("KILL");
    let _ = server.wait();
    let acknowledged = writer.join().unwrap();
    std::fs::write(&place.told, "").unwrap();
    place.holder_ends();
    std::fs::remove_file(&place.told).unwrap();
    let server = place.start();
    assert!(server.banner.contains("loaded after a complete flush"), "{}", server.banner);
    verify(&server, acknowledged);
}

/// A field of `INFO perdura`.
fn field(server: &Server, name: &str) -> String {
    let info = server.client().ask(&["INFO", "perdura"]);
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("no {name} in {info}")).trim_end().to_owned()
}

#[test]
fn a_server_lives_through_an_outage_and_has_everything_if_the_power_goes_while_it_is_low() {
    let place = Place::new();
    let mut settings = place.settings();
    settings[3] = "8MiB".into();
    settings.push("--power-settle=100ms".into());
    let words: Vec<&str> = settings.iter().map(String::as_str).collect();
    let mut server = Server::start(&place.data, &words);
    assert_eq!(field(&server, "power_state"), "steady");
    let mut client = server.client();
    for n in 0..3_000 {
        assert_eq!(client.ask(&["SET", &key(n), "before"]), "+OK");
    }
    std::fs::write(&place.told, "on-battery 1s").unwrap();
    wait_until("a demand", || field(&server, "power_demand") == "shorter-flush");
    let refused = client.ask(&["PERDURA", "BUDGET", "1000000"]);
    assert!(refused.starts_with("-ERR the power asks for less"), "{refused}");
    assert_eq!(client.ask(&["SET", "while", "on battery"]), "+OK");
    std::fs::write(&place.told, "low").unwrap();
    wait_until("a refusal", || {
        client.ask(&["SET", "too", "late"]).starts_with("-MISCONF the power")
    });
    assert_eq!(client.ask(&["GET", "while"]), "on battery");
    wait_until("everything saved", || field(&server, "power_demand_met") == "1");
    // The power goes: server and holder end without a flush. A server that runs would start
    // another holder.
    server.signal("STOP");
    end_holder(&place.data);
    server.signal("KILL");
    let _ = server.wait();
    let mut server = Server::start(&place.data, &words);
    let mut client = server.client();
    assert_eq!(field(&server, "power_state"), "low");
    assert_eq!(client.ask(&["EXISTS", &key(0), &key(2_999), "while"]), ":3");
    wait_until("a refusal", || client.ask(&["SET", "a", "b"]).starts_with("-MISCONF"));
    std::fs::write(&place.told, "steady").unwrap();
    wait_until("the power's return", || client.ask(&["SET", "a", "b"]) == "+OK");
    assert_eq!(field(&server, "power_demand"), "promise");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    place.holder_ends();
}

#[test]
fn a_source_that_cannot_be_watched_is_refused_by_name_before_anything_is_made() {
    let place = Place::new();
    for (source, why) in [
        ("smoke:signals", "expected one of file:PATH, nut:UPS@HOST[:PORT], power-supply[:DIR]"),
        ("nut:ups", "expected UPS@HOST"),
        ("aws:ftp://x", "an address such as http://169.254.169.254"),
        ("power-supply:/no/such/directory", "/no/such/directory refuses"),
        ("command:", "a shell command"),
        ("file:/no/such/directory/x", "/no/such/directory"),
        ("file:/", "expected the path of a file"),
    ] {
        let error = refused(&place.data, &[format!("--warning={source}")]);
        assert!(error.contains(&format!("--warning {source}")) && error.contains(why), "{error}");
    }
    assert!(!place.data.exists());
}

fn refused(data: &Path, words: &[String]) -> String {
    let mut command = Command::new(PERDURA);
    command.args(["serve", "--port", &free_port().to_string(), "--dir"]).arg(data).args(words);
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{words:?} was accepted");
    String::from_utf8(output.stderr).unwrap()
}
