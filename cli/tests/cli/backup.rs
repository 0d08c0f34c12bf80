//! A backup taken under load, and all else gone: what was acknowledged before the lag that was
//! shown is there, and nothing that was never written.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::Rng;

use crate::running::*;

const SETTINGS: [&str; 8] =
    ["--memory", "256MiB", "--budget", "8MiB", "--grace", "10s", "--checkpoint", "50ms"];

fn perdura(words: &[&str]) -> Output {
    Command::new(PERDURA).args(words).output().unwrap()
}

fn done(words: &[&str]) -> String {
    let output = perdura(words);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

fn field(server: &Server, name: &str) -> String {
    let info = server.client().ask(&["INFO", "backup"]);
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {info}")).trim().to_owned()
}

/// What a writer has had acknowledged: for each step, when.
type Acknowledged = Vec<Instant>;

/// Writes a value of each type in each step, and notes when the last was acknowledged.
fn write_all_types(port: u16, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<Acknowledged> {
    std::thread::spawn(move || {
        let mut client = Client::connect(port);
        let mut acknowledged = Vec::new();
        for n in 0u64.. {
            let (key, value) = (format!("string:{}", n % 500), n.to_string().repeat(40));
            let step = n.to_string();
            for words in [
                &["SET", &key, &value][..],
                &["HSET", "hash", &key, &step],
                &["ZADD", "sorted", &step, &key],
                &["SADD", "set", &step],
                &["RPUSH", "list", &step],
                &["XADD", "stream", &format!("{}-1", n + 1), "n", &step],
                &["SET", "step", &step],
            ] {
                if stop.load(Ordering::Relaxed) || client.send(words).is_err() {
                    return acknowledged;
                }
                if client.reply().is_none_or(|reply| reply.starts_with('-')) {
                    return acknowledged;
                }
            }
            acknowledged.push(Instant::now());
        }
        acknowledged
    })
}

/// Compares a restored store with what its last step says that it must have.
fn check_all_types(server: &Server) -> u64 {
    let mut client = server.client();
    let last: u64 = match client.ask(&["GET", "step"]).as_str() {
        "(nil)" => return 0,
        step => step.parse().unwrap(),
    };
    let mut strings = HashMap::new();
    for n in 0..=last {
        strings.insert(n % 500, n);
    }
    // The step after the last one may be there in part.
    let is_either = |found: u64, at_least: u64| found == at_least || found == at_least + 1;
    for (number, n) in strings {
        let key = format!("string:{number}");
        let found = client.ask(&["GET", &key]);
        let next = (last + 1) % 500 == number;
        let right =
            found == n.to_string().repeat(40) || next && found == (last + 1).to_string().repeat(40);
        assert!(right, "{key} after step {last}");
        let in_hash: u64 = client.ask(&["HGET", "hash", &key]).parse().unwrap();
        let in_sorted: u64 = client.ask(&["ZSCORE", "sorted", &key]).parse().unwrap();
        for found in [in_hash, in_sorted] {
            assert!(found == n || next && found == last + 1, "{key}: {found} after {last}");
        }
    }
    for command in ["SCARD set", "LLEN list", "XLEN stream"] {
        let words: Vec<&str> = command.split(' ').collect();
        let found: u64 = client.ask(&words)[1..].parse().unwrap();
        assert!(is_either(found, last + 1), "{command}: {found} after step {last}");
    }
    last + 1
}

fn rounds() -> u64 {
    let wanted = std::env::var("PERDURA_TEST_RESTORES").ok();
    wanted.map_or(6, |rounds| rounds.parse().expect("PERDURA_TEST_RESTORES is a number"))
}

/// Kills server and holder at a random instant, deletes the directory, and restores. How often:
/// PERDURA_TEST_RESTORES.
#[test]
fn the_directory_deleted_under_load_a_restore_loses_at_most_the_lag_that_was_shown() {
    for round in 0..rounds() {
        let (data, vault, new) = (TestDir::new(), TestDir::new(), TestDir::new());
        let url = vault.path().to_str().unwrap();
        let ship = ["--ship", url, "--ship-every", "30ms"];
        let mut server = Server::start(data.path(), &[&SETTINGS[..], &ship].concat());
        let stop = Arc::new(AtomicBool::new(false));
        let writer = write_all_types(server.port, Arc::clone(&stop));
        wait_until("a restore point", || field(&server, "backup_lag_seconds") != "-1");
        let ms = rand::rng().random_range(100..700);
        std::thread::sleep(Duration::from_millis(ms));
        let asked = Instant::now();
        let lag: f64 = field(&server, "backup_lag_seconds").parse().unwrap();
        signal_process(holder_of(data.path()).unwrap(), "STOP");
        server.signal("KILL");
        let _ = server.wait();
        end_holder(data.path());
        stop.store(true, Ordering::Relaxed);
        let acknowledged = writer.join().unwrap();
        std::fs::remove_dir_all(data.path()).unwrap();
        let dir = new.path().join("data");
        done(&["restore", url, "--dir", dir.to_str().unwrap()]);
        let restored = Server::start(&dir, &SETTINGS[..4]);
        let found = check_all_types(&restored);
        // The lag is told in milliseconds.
        let safe = asked.checked_sub(Duration::from_secs_f64(lag + 0.002)).unwrap();
        let must = acknowledged.iter().filter(|when| **when < safe).count() as u64;
        assert!(found >= must, "round {round}: {found} steps are there, {must} must be, lag {lag}");
        assert!(found <= acknowledged.len() as u64 + 1, "round {round}: steps were invented");
        // A server would start another holder.
        drop(restored);
        end_holder(&dir);
    }
}

#[test]
fn encrypted_and_beside_a_server_that_writes_a_backup_is_made_listed_verified_and_restored_by_time()
{
    let (data, vault, new) = (TestDir::new(), TestDir::new(), TestDir::new());
    let (url, dir) = (vault.path().to_str().unwrap(), data.path().to_str().unwrap());
    let key_file = new.path().join("key");
    std::fs::write(&key_file, "0123456789abcdef".repeat(4)).unwrap();
    let key = ["--ship-key-file", key_file.to_str().unwrap()];
    let with_key = |words: &[&str]| done(&[words, &key[..]].concat());
    let mut server = Server::start(data.path(), &SETTINGS);
    let mut client = server.client();
    assert_eq!(client.ask(&["SET", "when", "first"]), "+OK");
    wait_until("a checkpoint", || server.figure("checkpoints") > 0);
    std::thread::sleep(Duration::from_millis(200));
    let said = with_key(&["backup", url, "--dir", dir]);
    assert!(said.contains("put the restore point"), "{said}");
    let listed = with_key(&["backup", "list", url]);
    let first = listed.split_whitespace().next().unwrap().to_owned();
    assert_eq!(client.ask(&["SET", "when", "second"]), "+OK");
    std::thread::sleep(Duration::from_millis(200));
    with_key(&["backup", url, "--dir", dir]);
    assert_eq!(with_key(&["backup", "list", url, "--sizes"]).lines().count(), 2);
    with_key(&["backup", "verify", url]);
    let without = perdura(&["backup", "verify", url]);
    let why = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(!without.status.success() && why.contains("it is encrypted"), "{why}");
    for (at, value) in [(&[][..], "second"), (&["--at", &first][..], "first")] {
        let to = new.path().join(value);
        let words = ["restore", url, "--dir", to.to_str().unwrap()];
        with_key(&[&words[..], at].concat());
        let again = perdura(&[&words[..], &key[..]].concat());
        let why = String::from_utf8_lossy(&again.stderr).into_owned();
        assert!(!again.status.success() && why.contains("already"), "{why}");
        let mut restored = Server::start(&to, &[]);
        assert_eq!(restored.client().ask(&["GET", "when"]), value);
        restored.signal("TERM");
        assert_eq!(restored.wait(), Some(0));
    }
    let early = perdura(&["restore", url, "--dir", "/nowhere", "--at", "1999-01-01T00:00:00Z"]);
    let why = String::from_utf8_lossy(&early.stderr).into_owned();
    assert!(!early.status.success() && why.contains("or before; the first is"), "{why}");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_warm_copy_follows_ends_at_a_whole_point_and_is_served() {
    let (data, vault, new) = (TestDir::new(), TestDir::new(), TestDir::new());
    let url = vault.path().to_str().unwrap();
    let ship = ["--ship", url, "--ship-every", "30ms"];
    let (mut program, log) = (Command::new("sh"), new.path().join("log"));
    program.args(["-c", "exec \"$0\" \"$@\" 2>\"$LOG\"", PERDURA]).env("LOG", &log);
    let mut server = Server::start_by(program, data.path(), &[&SETTINGS[..], &ship].concat());
    wait_until("a restore point", || field(&server, "backup_lag_seconds") != "-1");
    let dir = new.path().join("copy");
    let mut copy = Command::new(PERDURA)
        .args(["restore", url, "--follow", "--every", "20ms", "--dir", dir.to_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(copy.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("the warm copy is as of"));
    let mut client = server.client();
    for n in 0..2000 {
        assert_eq!(client.ask(&["SET", &key(n), &value(n)]), "+OK");
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    // Vault and image lie on one device, as server and command say.
    let output = perdura(&["backup", url, "--dir", data.path().to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let warned = format!("the vault {url} lies on the same device as the image ");
    for text in [std::fs::read_to_string(&log).unwrap(), said] {
        assert!(text.contains("WARN") && text.contains(&warned), "{text}");
    }
    let newest = done(&["backup", "list", url]);
    let newest = newest.lines().last().unwrap().split_whitespace().next().unwrap().to_owned();
    while !lines.next().unwrap().unwrap().contains(&newest) {}
    signal_process(copy.id(), "TERM");
    assert!(copy.wait().unwrap().success());
    let mut restored = Server::start(&dir, &[]);
    verify(&restored, 2000);
    restored.signal("TERM");
    assert_eq!(restored.wait(), Some(0));
    // One that was killed in the middle of a point is no image.
    let image = dir.join("image.perdura");
    std::fs::rename(&image, dir.join("image.perdura.unfinished")).unwrap();
    let refused = perdura(&["serve", "--dir", dir.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("in the middle of a restore"), "{why}");
}

#[test]
fn a_vault_that_fails_is_shown_and_tried_again_and_late_writes_are_refused_if_asked() {
    let (data, aside) = (TestDir::new(), TestDir::new());
    let vault = aside.path().join("vault");
    // A file where the directory should be.
    std::fs::write(&vault, "").unwrap();
    let url = vault.to_str().unwrap();
    let ship = ["--ship", url, "--ship-every", "30ms", "--ship-lag-max", "300ms"];
    let refuse = ["--ship-lag-action", "refuse"];
    let mut server = Server::start(data.path(), &[&SETTINGS[..], &ship, &refuse].concat());
    let mut client = server.client();
    wait_until("a refusal", || client.ask(&["SET", "a", "1"]).contains("the backup is further"));
    assert_eq!(field(&server, "backup_state"), "failing");
    assert_eq!(field(&server, "backup_refuses_writes"), "1");
    assert!(field(&server, "backup_error").contains("cannot"));
    std::fs::remove_file(&vault).unwrap();
    wait_until("writes again", || client.ask(&["SET", "a", "1"]) == "+OK");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    for words in [&["--device", "/tmp/x"][..], &["--checkpoint", "off"], &["--durability", "none"]]
    {
        let words = [&["serve", "--dir", url, "--ship", url][..], words].concat();
        let refused = perdura(&words);
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && why.contains("--ship"), "{why}");
    }
}

/// A real S3 server over a folder, where there is one: PERDURA_VERSITYGW, or on the path.
#[test]
fn a_bucket_of_an_s3_server_is_a_vault() {
    let named = std::env::var("PERDURA_VERSITYGW").ok();
    let is_wanted = named.is_some();
    let named = named.unwrap_or_else(|| "versitygw".to_owned());
    let folder = TestDir::new();
    std::fs::create_dir(folder.path().join("bucket")).unwrap();
    let port = free_port();
    let started = Command::new(named)
        .args(["--access", "user", "--secret", "password", "--port"])
        .arg(format!("127.0.0.1:{port}"))
        .arg("posix")
        .arg(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut gateway = match started {
        Ok(gateway) => gateway,
        Err(error) if is_wanted => panic!("PERDURA_VERSITYGW: {error}"),
        Err(_) => {
            eprintln!("skipped: no versitygw; `cargo xtask test-s3` builds it");
            return;
        }
    };
    wait_until("the S3 server", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let (data, new) = (TestDir::new(), TestDir::new());
    let mut server = Server::start(data.path(), &SETTINGS);
    verify_new(&mut server);
    let to = new.path().join("data");
    let environment = [
        ("AWS_ACCESS_KEY_ID", "user".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "password".to_owned()),
        ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
    ];
    round_trip("s3://bucket/some/prefix", data.path(), &to, &environment);
    one_writer_in_a_bucket(folder.path(), data.path(), &environment);
    let mut wrong = environment.clone();
    wrong[1].1 = "other".to_owned();
    let refused = Command::new(PERDURA)
        .args(["backup", "list", "s3://bucket/some/prefix"])
        .envs(wrong)
        .output()
        .unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("status 403"), "{why}");
    let _ = gateway.kill();
    let _ = gateway.wait();
}

/// What is put under a condition in a bucket is put once: of two backups, one is refused.
fn one_writer_in_a_bucket(folder: &Path, data: &Path, environment: &[(&str, String)]) {
    let writers = std::fs::read_dir(folder.join("bucket/some/prefix")).unwrap();
    let writers = writers.map(|image| image.unwrap().path().join("writers")).next().unwrap();
    assert!(!writers.exists() || std::fs::read_dir(&writers).unwrap().next().is_none());
    let back_up = |more: &[&str]| {
        let words = ["backup", "s3://bucket/some/prefix", "--dir", data.to_str().unwrap()];
        let mut command = Command::new(PERDURA);
        command.args(words).args(more);
        command.envs(environment.iter().map(|(name, value)| (*name, value))).output().unwrap()
    };
    // As another machine would have written it.
    std::fs::create_dir_all(&writers).unwrap();
    let record = "perdura writer 1\nowner 0000000000000001\nsince then\nhost elsewhere\n";
    std::fs::write(writers.join("0000000000000001"), record).unwrap();
    let refused = back_up(&[]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("on elsewhere since then"), "{why}");
    let done = back_up(&["--take-over"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Writes some keys, and waits for a checkpoint that has them.
fn verify_new(server: &mut Server) {
    let mut client = server.client();
    for n in 0..500 {
        assert_eq!(client.ask(&["SET", &key(n), &value(n)]), "+OK");
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

/// Backs up to a vault, lists, verifies, restores and serves.
fn round_trip(url: &str, data: &Path, to: &Path, environment: &[(&str, String)]) {
    for words in [
        &["backup", url, "--dir", data.to_str().unwrap(), "--keep", "1h"][..],
        &["backup", "list", url, "--sizes"],
        &["backup", "verify", url],
        &["restore", url, "--dir", to.to_str().unwrap()],
    ] {
        let output = Command::new(PERDURA)
            .args(words)
            .envs(environment.iter().map(|(name, value)| (*name, value)))
            .output()
            .unwrap();
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {why}");
    }
    let mut restored = Server::start(to, &[]);
    verify(&restored, 500);
    restored.signal("TERM");
    assert_eq!(restored.wait(), Some(0));
}

/// The receiving end without `ssh`: what PERDURA_SSH names runs the last word in a shell.
#[test]
fn another_machine_behind_ssh_is_a_vault() {
    let (data, new, tools) = (TestDir::new(), TestDir::new(), TestDir::new());
    let ssh = tools.path().join("ssh");
    let folder = Path::new(PERDURA).parent().unwrap().display();
    // Some shells greet.
    let script = format!(
        "#!/bin/sh\necho Welcome\nPATH={folder}:$PATH\nfor last; do :; done\neval exec \"$last\"\n"
    );
    std::fs::write(&ssh, script).unwrap();
    let mut may_run = std::fs::metadata(&ssh).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut may_run, 0o755);
    std::fs::set_permissions(&ssh, may_run).unwrap();
    let mut server = Server::start(data.path(), &SETTINGS);
    verify_new(&mut server);
    let url = format!("ssh://somebody@somewhere:22{}/it's a vault", tools.path().display());
    let environment = [("PERDURA_SSH", ssh.to_str().unwrap().to_owned())];
    round_trip(&url, data.path(), &new.path().join("data"), &environment);
    assert!(tools.path().join("it's a vault").is_dir());

    let mut ends_at_once = Command::new(PERDURA);
    ends_at_once.args(["backup", "list", "ssh://nobody@nowhere/x"]).env("PERDURA_SSH", "false");
    let said = ends_at_once.output().unwrap();
    let why = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success() && why.contains("false: it ended before"), "{why}");
}

/// Checks that each file is synced before it gets its name, and its folder before the next one.
fn check_syncs(dir: &Path, words: &[&str]) -> usize {
    let log = dir.join("strace");
    let output = Command::new("strace")
        .args(["-f", "-y", "-qq", "-e", "trace=fsync,fdatasync,rename,renameat2", "-o"])
        .arg(&log)
        .arg(PERDURA)
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&log).unwrap();
    let calls: Vec<&str> = text.lines().filter(|line| line.ends_with("= 0")).collect();
    let syncs = |call: &str, path: &str| call.contains("sync(") && call.contains(path);
    let mut renames = 0;
    for (number, call) in calls.iter().enumerate().filter(|(_, call)| call.contains("rename")) {
        let names: Vec<&str> = call.split('"').skip(1).step_by(2).collect();
        let (file, place) = (format!("<{}>", names[0]), Path::new(names[1]));
        let folder = format!("<{}>", place.parent().unwrap().display());
        assert!(calls[..number].iter().any(|call| syncs(call, &file)), "{file}: {text}");
        assert!(syncs(calls[number + 1], &folder), "{folder}: {text}");
        renames += 1;
    }
    renames
}

#[test]
fn what_is_put_in_a_directory_or_restored_is_synced_and_so_is_its_name() {
    if !Path::new("/usr/bin/strace").exists() {
        eprintln!("SKIPPED: no strace");
        return;
    }
    let (data, vault, new) = (TestDir::new(), TestDir::new(), TestDir::new());
    let mut server = Server::start(data.path(), &SETTINGS);
    verify_new(&mut server);
    let url = vault.path().to_str().unwrap();
    let words = ["backup", url, "--dir", data.path().to_str().unwrap()];
    // The writer's record, a pack, and the point.
    assert_eq!(check_syncs(new.path(), &words), 3);
    let to = new.path().join("data");
    let words = ["restore", url, "--dir", to.to_str().unwrap()];
    assert_eq!(check_syncs(new.path(), &words), 1);
}
