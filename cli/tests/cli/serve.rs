//! The first minutes with `serve`: its messages, the disk space that it needs, Redis' own settings.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::running::*;

fn refused(words: &[&str]) -> String {
    let Output { status, stdout, stderr } =
        Command::new(PERDURA).arg("serve").args(words).output().unwrap();
    assert!(!status.success(), "{words:?} was accepted");
    assert!(stdout.is_empty(), "{}", String::from_utf8_lossy(&stdout));
    String::from_utf8(stderr).unwrap()
}

#[test]
fn in_a_file_the_output_begins_with_what_is_made_and_has_no_escape_codes() {
    let dir = TestDir::new();
    let data = dir.path().join("data");
    let out = dir.path().join("out");
    let file = File::create(&out).unwrap();
    let port = free_port().to_string();
    let mut child = Command::new(PERDURA)
        .args(["serve", "--memory", "16MiB", "--port", &port, "--dir"])
        .arg(&data)
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    let text = || fs::read_to_string(&out).unwrap();
    wait_until("keys counted", || text().contains("keys counted"));
    signal_process(child.id(), "TERM");
    assert!(child.wait().unwrap().success());
    let text = text();
    assert!(!text.contains('\u{1b}'), "{text}");
    let mut lines = text.lines();
    let first = lines.next().unwrap();
    assert!(
        first.starts_with("making an image in ") && first.ends_with("are free there"),
        "{first}"
    );
    assert!(lines.next().unwrap().starts_with("perdura "), "{text}");
    let promise = text.lines().find(|line| line.starts_with("promise ")).unwrap();
    assert!(promise.contains(" of writing, 2s kept back; the warning is 30s"), "{promise}");
}

/// A file system of that size; `None` where mounting is not allowed.
struct Small(TestDir);

impl Small {
    fn new(size: &str) -> Option<Self> {
        let dir = TestDir::new();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(dir.path());
        let mounted = mount.stderr(Stdio::null()).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(dir))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        end_holder(&self.0.path().join("data"));
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_small_disk_gets_a_small_image_that_keeps_its_promise_and_opens_again_when_it_is_full() {
    let Some(small) = Small::new("200m") else {
        println!("skipped: mounting is not allowed here");
        return;
    };
    let data = small.0.path().join("data");
    let settings = ["--memory", "64MiB", "--no-holder"];
    let mut server = Server::start(&data, &settings);
    assert!(server.banner.contains("that is a small disk: the log has "), "{}", server.banner);
    assert!(server.banner.contains("no more room for the log"), "{}", server.banner);
    let mut client = server.client();
    for n in 0..2_000 {
        assert_eq!(client.ask(&["SET", &key(n), &"v".repeat(10_000)]), "+OK");
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    // This takes all the space that was left.
    let full = fs::write(small.0.path().join("filler"), vec![1; 300 << 20]);
    assert!(full.is_err());
    let mut server = Server::start(&data, &["--no-holder"]);
    assert_eq!(server.client().ask(&["DBSIZE"]), ":2000");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_disk_that_is_too_small_is_named_with_what_is_free_and_nothing_is_made() {
    let Some(small) = Small::new("64m") else {
        println!("skipped: mounting is not allowed here");
        return;
    };
    let data = small.0.path().join("data");
    let error = refused(&["--dir", data.to_str().unwrap(), "--memory", "1GiB", "--port", "0"]);
    assert!(error.contains("nothing to listen on"), "{error}");
    let port = free_port().to_string();
    let error = refused(&["--dir", data.to_str().unwrap(), "--memory", "1GiB", "--port", &port]);
    for part in ["no room for an image of 1 GiB of memory", "64 MiB are free there", "--memory"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    assert!(!data.exists());
}

#[test]
fn an_open_address_needs_a_password_and_the_error_names_the_options() {
    let dir = TestDir::new();
    let data = dir.path().to_str().unwrap();
    for words in [["--listen", "0.0.0.0:0"], ["--bind", "*"], ["--listen", "0.0.0.0"]] {
        let error = refused(&[&["--dir", data], &words[..]].concat());
        assert!(error.contains("--password-file FILE"), "{error}");
        let error = refused(&[&["--dir", data, "--requirepass", "x"], &words[..]].concat());
        for part in ["--tls-listen", "--allow-plaintext"] {
            assert!(error.contains(part), "{part} in {error}");
        }
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Nobody else of the machine's users reads the data or joins the server.
#[test]
fn all_that_a_server_makes_is_its_owners_only() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TestDir::new();
    let (data, socket) = (dir.path().join("data"), dir.path().join("socket"));
    let mut program = Command::new("sh");
    program.args(["-c", "umask 000; exec \"$@\"", "sh", PERDURA]);
    let server = Server::start_by(program, &data, &["--unix-socket", socket.to_str().unwrap()]);
    assert_eq!(server.client().ask(&["SET", "a", "b"]), "+OK");
    let mut seen = 0;
    let mut places = vec![data, socket];
    while let Some(place) = places.pop() {
        let metadata = fs::symlink_metadata(&place).unwrap();
        let mode = metadata.permissions().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", place.display());
        seen += 1;
        if metadata.is_dir() {
            places.extend(fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    assert!(seen >= 4, "{seen}");
}

#[test]
fn what_others_can_change_is_warned_of() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let dir = TestDir::new();
    let (data, conf, log) =
        (dir.path().join("data"), dir.path().join("p.toml"), dir.path().join("log"));
    fs::create_dir(&data).unwrap();
    fs::write(&conf, "memory = '32MiB'\nno-holder = true").unwrap();
    let mode = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode));
    let said = |data_mode, conf_mode, last: &str| {
        mode(&data, data_mode).unwrap();
        mode(&conf, conf_mode).unwrap();
        let mut program = Command::new("sh");
        program.args(["-c", "log=$1; shift; exec \"$@\" 2>\"$log\"", "sh"]).arg(&log).arg(PERDURA);
        let mut server = Server::start_by(program, &data, &["--config", conf.to_str().unwrap()]);
        let info = server.client().ask(&["INFO", "server"]);
        let line = format!("config_file:{}\r\n", conf.canonicalize().unwrap().display());
        assert!(info.contains(&line), "{line} in {info}");
        server.signal("TERM");
        assert_eq!(server.wait(), Some(0));
        let log = fs::read_to_string(&log).unwrap();
        assert!(log.contains(last), "{last} in {log}");
        log
    };
    let log = said(0o700, 0o644, "");
    assert!(!log.contains("has mode") && !log.contains("belongs to"), "{log}");
    said(0o777, 0o644, "data has mode 777: `chmod 700` it, for other users can replace");
    said(0o700, 0o620, "p.toml has mode 620: `chmod go-w` it, for other users can change");
    if rustix::process::geteuid().is_root() {
        chown(&data, Some(65_534), None).unwrap();
        said(0o700, 0o600, "data belongs to user 65534: `chown 0` it, for that user can replace");
        // Whoever cleans up is root.
        chown(&data, Some(0), None).unwrap();
    }
}

#[test]
fn the_redis_conf_of_debian_starts_a_server_and_redis_words_on_the_command_line_win() {
    let dir = TestDir::new();
    let data = dir.path().join("data");
    let debian = Path::new("/etc/redis/redis.conf");
    let text = match fs::read_to_string(debian) {
        Ok(text) => text,
        Err(_) => "bind 127.0.0.1 -::1\nport 6379\ndaemonize yes\n".to_owned(),
    };
    let conf = dir.path().join("redis.conf");
    fs::write(&conf, format!("{text}\nrequirepass geheim\nmaxmemory 32mb\n")).unwrap();
    let mut program = Command::new(PERDURA);
    program.args(["serve", conf.to_str().unwrap()]);
    let port = free_port();
    let out = dir.path().join("out");
    let file = File::create(&out).unwrap();
    let mut child = program
        .args(["--port", &port.to_string(), "--dir", data.to_str().unwrap()])
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    let text = || fs::read_to_string(&out).unwrap();
    wait_until("the banner", || {
        text().contains("keys counted") || child.try_wait().unwrap().is_some()
    });
    let mut client = Client::connect(port);
    assert!(client.ask(&["PING"]).starts_with("-NOAUTH"), "{}", text());
    assert_eq!(client.ask(&["AUTH", "geheim"]), "+OK");
    let info = client.ask(&["INFO"]);
    let lines = [format!("maxmemory:{}", 32 << 20), format!("config_file:{}", conf.display())];
    for line in lines {
        assert!(info.contains(&line), "{line} in {info}");
    }
    signal_process(child.id(), "TERM");
    assert!(child.wait().unwrap().success());
    let text = text();
    assert!(text.contains("daemonize") && !text.contains("geheim"), "{text}");
}

#[test]
fn what_a_redis_conf_asks_in_vain_is_refused_before_anything_is_made() {
    let dir = TestDir::new();
    let conf = dir.path().join("redis.conf");
    fs::write(&conf, "port 0\nprotected-mode no\ntls-ciphers RC4\nnonsense 1\n").unwrap();
    let error = refused(&[conf.to_str().unwrap()]);
    for part in ["line 2: protected-mode no: ", "line 3: tls-ciphers RC4: ", "line 4: "] {
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[test]
fn the_help_has_experts_settings_last() {
    let output = Command::new(PERDURA).args(["serve", "--help"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let places: Vec<_> = ["Clients:", "The same in Redis' words:", "Data:", "Promise:"]
        .into_iter()
        .chain(["Experts' settings:"])
        .map(|heading| text.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{heading}")))
        .collect();
    assert!(places.is_sorted(), "{text}");
    let experts = &text[*places.last().unwrap()..];
    assert!(experts.contains("--policy") && !text[..places[4]].contains("--policy"));
    assert_eq!(experts.matches(":\n\n").count(), 0, "{experts}");
}
