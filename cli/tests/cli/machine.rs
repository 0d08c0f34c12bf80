//! Machines that lack or refuse something: rights, space, descriptors, system calls. The server
//! serves all the same, or refuses with the cause, and nothing is lost.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::refusing;
use crate::running::*;

const NOBODY: &str = "65534";

fn serve_by(mut program: Command, dir: &Path, extra: &[&str]) -> Output {
    program.args(["serve", "--listen", &format!("127.0.0.1:{}", free_port()), "--dir"]);
    program.arg(dir).args(extra).output().unwrap()
}

fn refused(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it went on: {said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The program, started by another one that first gives rights or space away; `None`, with a
/// message, if that one is missing.
fn through(words: &[&str]) -> Option<Command> {
    let mut probe = Command::new(words[0]);
    if !probe.args(&words[1..]).arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: `{}` does not work here", words.join(" "));
        return None;
    }
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(PERDURA);
    Some(command)
}

/// The program run by a user without any rights, also if root runs the test.
fn as_nobody() -> Option<Command> {
    if !is_root() {
        return Some(Command::new(PERDURA));
    }
    let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
    through(&["setpriv", &user, &group, "--clear-groups", "--bounding-set=-all", "--no-new-privs"])
}

/// A small file system; unmounted when dropped.
struct Mount(PathBuf);

impl Mount {
    fn tmpfs(at: PathBuf, options: &str) -> Option<Self> {
        fs::create_dir(&at).unwrap();
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(&at)
            .output()
            .unwrap();
        if output.status.success() {
            return Some(Self(at));
        }
        eprintln!("SKIPPED: no tmpfs of our own: {}", String::from_utf8_lossy(&output.stderr));
        None
    }

    /// Takes all the space that is left.
    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("ballast")).unwrap();
        let block = vec![1; 4096];
        while file.write_all(&block).is_ok() {}
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        end_holder(&self.0);
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_named_and_left_alone() {
    let dir = TestDir::new();
    let at = dir.path().join("closed");
    fs::create_dir(&at).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&at, fs::Permissions::from_mode(0o555)).unwrap();
    let Some(program) = as_nobody() else { return };
    let said = serve_by(program, &at, &["--memory", "32MiB"]);
    refused(&said, &["closed", "ermission denied"]);
    let Some(program) = as_nobody() else { return };
    let said = serve_by(program, &at.join("below"), &["--memory", "32MiB"]);
    refused(&said, &["below", "ermission denied"]);
    assert_eq!(fs::read_dir(&at).unwrap().count(), 0, "something was left behind");
}

#[test]
fn a_read_only_file_system_is_said() {
    let dir = TestDir::new();
    let Some(mount) = Mount::tmpfs(dir.path().join("fixed"), "ro,size=1m") else { return };
    let said = serve_by(Command::new(PERDURA), &mount.0, &["--memory", "32MiB"]);
    refused(&said, &["fixed", "Read-only file system"]);
    assert!(holder_of(&mount.0).is_none());
}

#[test]
fn a_user_without_rights_is_served_and_its_memory_is_held() {
    let dir = TestDir::new();
    if is_root() {
        std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
    }
    for round in 0..2 {
        let Some(program) = as_nobody() else { return };
        let mut server =
            Server::start_by(program, dir.path(), &["--memory", "64MiB", "--budget", "2MiB"]);
        assert!(server.banner.contains("a holder process keeps the memory"), "{}", server.banner);
        if is_root() {
            assert_eq!(server.status("Uid:"), 65534);
        }
        if round == 0 {
            fill(&server, 2_000);
            server.signal("KILL");
            let _ = server.wait();
        } else {
            assert!(server.banner.contains("kept by the holder"), "{}", server.banner);
            verify(&server, 2_000);
            stop(server, dir.path());
        }
    }
}

#[test]
fn without_io_uring_it_writes_by_pwrite_and_says_why() {
    let dir = TestDir::new();
    let mut program = Command::new(PERDURA);
    refusing::refuse(&mut program, libc::SYS_io_uring_setup, libc::EPERM);
    let server = Server::start_by(program, dir.path(), &["--memory", "64MiB", "--budget", "2MiB"]);
    assert!(server.banner.contains("pwrite (io_uring refused: EPERM)"), "{}", server.banner);
    fill(&server, 2_000);
    stop(server, dir.path());
    // The rate is proven again, because it was measured with another engine.
    let server = Server::start(dir.path(), &["--memory", "64MiB", "--budget", "2MiB"]);
    verify(&server, 2_000);
    stop(server, dir.path());
    let mut program = Command::new(PERDURA);
    refusing::refuse(&mut program, libc::SYS_io_uring_setup, libc::EPERM);
    refused(
        &serve_by(program, dir.path(), &["--io", "uring"]),
        &["io_uring_setup", "not permitted"],
    );
}

#[test]
fn a_file_system_too_small_is_said_and_nothing_is_left() {
    let dir = TestDir::new();
    let Some(mount) = Mount::tmpfs(dir.path().join("small"), "size=24m") else { return };
    let said = serve_by(Command::new(PERDURA), &mount.0, &["--memory", "32MiB"]);
    refused(&said, &["small", "no room for an image", "24 MiB are free there"]);
    assert!(holder_of(&mount.0).is_none());
    let left: u64 =
        fs::read_dir(&mount.0).unwrap().map(|f| f.unwrap().metadata().unwrap().len()).sum();
    assert!(left < 1 << 20, "{left} bytes were left behind");
}

#[test]
fn a_limit_on_file_sizes_is_an_error_not_a_death() {
    let dir = TestDir::new();
    let Some(program) = through(&["prlimit", "--fsize=8388608"]) else { return };
    let said = serve_by(program, &dir.path().join("d"), &["--memory", "32MiB"]);
    refused(&said, &["image.perdura", "too large"]);
}

#[test]
fn a_disk_that_fills_up_under_load_costs_nothing_that_was_promised() {
    let dir = TestDir::new();
    let Some(mount) = Mount::tmpfs(dir.path().join("disk"), "size=700m") else { return };
    let settings = ["--memory", "128MiB", "--budget", "2MiB", "--durability", "fsync"];
    let mut server = Server::start(&mount.0, &settings);
    let writer = write_until_cut(server.port, 0);
    wait_until("load", || server.figure("group_writes") > 200);
    mount.fill();
    let before = server.figure("group_writes");
    wait_until("load on the full disk", || server.figure("group_writes") > before + 2_000);
    server.signal("KILL");
    let _ = server.wait();
    let acknowledged = writer.join().unwrap();
    let server = Server::start(&mount.0, &settings);
    verify(&server, acknowledged);
    stop(server, &mount.0);
    // More memory would need a larger log.
    let larger = ["--memory", "500MiB", "--budget", "2MiB"];
    refused(&serve_by(Command::new(PERDURA), &mount.0, &larger), &["image.perdura", "space"]);
    // The image alone is opened, and the disk is still full.
    let server = Server::start(&mount.0, &settings);
    assert!(server.banner.contains("loaded after a complete flush"), "{}", server.banner);
    verify(&server, acknowledged);
    stop(server, &mount.0);
}

#[test]
fn a_small_dev_shm_does_not_matter() {
    let dir = TestDir::new();
    let small = "mount -t tmpfs -o size=64k tmpfs /dev/shm && exec \"$@\"";
    let (program, is_small) = match through(&["unshare", "--mount", "sh", "-c", small, "sh"]) {
        Some(program) => (program, true),
        None => (Command::new(PERDURA), false),
    };
    let server = Server::start_by(program, dir.path(), &["--memory", "64MiB", "--budget", "8MiB"]);
    fill(&server, 20_000);
    let proc = PathBuf::from(format!("/proc/{}", server.child.id()));
    let maps = fs::read_to_string(proc.join("maps")).unwrap();
    assert!(maps.contains("/memfd:") && !maps.contains("/dev/shm"), "{maps}");
    for fd in fs::read_dir(proc.join("fd")).unwrap().flatten() {
        let target = fs::read_link(fd.path()).unwrap_or_default();
        assert!(!target.starts_with("/dev/shm"), "{}", target.display());
    }
    if is_small {
        let found = fs::read_to_string(proc.join("mountinfo")).unwrap();
        assert!(found.contains("size=64k"), "{found}");
    }
    verify(&server, 20_000);
    stop(server, dir.path());
}

#[test]
fn fewer_descriptors_than_clients_asked_for_is_said_and_the_rest_are_told() {
    let dir = TestDir::new();
    let Some(program) = through(&["prlimit", "--nofile=100:100"]) else { return };
    let server = Server::start_by(program, dir.path(), &["--memory", "32MiB"]);
    // 64 descriptors are kept for the server itself.
    assert_eq!(server.client().ask(&["CONFIG", "GET", "maxclients"]), "*2");
    assert_eq!(server.figure("maxclients"), 36);
    let mut clients: Vec<Client> = vec![server.client()];
    wait_until("the others are gone", || {
        clients[0].ask(&["INFO", "clients"]).contains("connected_clients:1\r")
    });
    clients.extend((1..36).map(|_| server.client()));
    for client in &mut clients {
        assert_eq!(client.ask(&["PING"]), "+PONG");
    }
    assert_eq!(server.client().reply().unwrap(), "-ERR max number of clients reached");
    let refused = clients[0].ask(&["CONFIG", "SET", "maxclients", "5000"]);
    assert!(refused.contains("descriptors"), "{refused}");
}

#[test]
fn out_of_descriptors_it_waits_without_spinning_and_goes_on() {
    let dir = TestDir::new();
    let server = Server::start(dir.path(), &["--memory", "32MiB"]);
    let mut first = server.client();
    assert_eq!(first.ask(&["SET", "a", "1"]), "+OK");
    let below = |limit: usize| {
        let open = fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().flatten();
        open.filter(|fd| fd.file_name().to_str().unwrap().parse::<usize>().unwrap() < limit).count()
    };
    let limit = below(usize::MAX) + 10;
    let pid = server.child.id().to_string();
    let limited = Command::new("prlimit")
        .args(["--pid", &pid, &format!("--nofile={limit}:{limit}")])
        .status();
    if !limited.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: prlimit does not work here");
        return;
    }
    // The system accepts these connections for the server, which has no descriptors for them.
    let mut waiting: Vec<Client> = (0..30).map(|_| server.client()).collect();
    for client in &mut waiting {
        client.send(&["GET", "a"]).unwrap();
    }
    assert_eq!(waiting[0].reply().unwrap(), "1");
    wait_until("the last descriptor", || below(limit) == limit);
    let cpu = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields = stat.rsplit_once(") ").unwrap().1;
        let ticks = |at: usize| fields.split(' ').nth(at).unwrap().parse::<u64>().unwrap();
        Duration::from_millis((ticks(11) + ticks(12)) * 10)
    };
    let (began, before) = (Instant::now(), cpu());
    while began.elapsed() < Duration::from_secs(2) {
        assert_eq!(first.ask(&["GET", "a"]), "1");
        // This is not for synchronisation: in these two seconds a server that spins would use two
        // seconds of processor time.
        std::thread::sleep(Duration::from_millis(20));
    }
    let burnt = cpu() - before;
    assert!(burnt < Duration::from_millis(800), "{burnt:?} of CPU time in 2 s of nearly nothing");
    // The served clients end one after the other, so the waiting ones are accepted, and all thirty
    // get their answer.
    while !waiting.is_empty() {
        let mut client = waiting.remove(0);
        if waiting.len() < 29 {
            assert_eq!(client.reply().unwrap(), "1", "{} are waiting", waiting.len());
        }
    }
    assert_eq!(first.ask(&["PING"]), "+PONG");
}

/// A cgroup of version 1 with a limit of memory; removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    fn of(limit_bytes: u64) -> Option<Self> {
        let text = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = text.lines().find_map(|line| line.split_once(":memory:"))?.1;
        let name = format!("perdura-test-{}", std::process::id());
        let dir = Path::new("/sys/fs/cgroup/memory").join(own.trim_start_matches('/')).join(name);
        let limit = dir.join("memory.limit_in_bytes");
        let made = fs::create_dir(&dir).and_then(|()| fs::write(limit, limit_bytes.to_string()));
        made.is_ok().then_some(Self(dir))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_memory_that_its_cgroup_cannot_hold_is_refused_before_anything_is_made() {
    let Some(cgroup) = Cgroup::of(200 << 20) else {
        eprintln!("SKIPPED: no memory cgroup of version 1 can be made here");
        return;
    };
    let dir = TestDir::new();
    let inside = || {
        let mut command = Command::new("sh");
        let enter = format!("echo $$ >{}/cgroup.procs; exec \"$0\" \"$@\"", cgroup.0.display());
        command.args(["-c", &enter, PERDURA]);
        command
    };
    let at = dir.path().join("data");
    let said = serve_by(inside(), &at, &["--memory", "256MiB", "--no-holder"]);
    refused(&said, &["memory.limit_in_bytes", "allows this process and its holder 200 MiB"]);
    assert!(!at.exists(), "something was left behind");
    let options = ["--memory", "100MiB", "--no-holder"];
    stop(Server::start_by(inside(), &at, &options), &at);
}
