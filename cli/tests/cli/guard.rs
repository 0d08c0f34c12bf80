//! `perdura guard`: real processes that die at any moment, and a guard that keeps their memory.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::guarding::*;
use crate::running::*;

/// A server of one directory without any guard: what it finds is in the image.
fn verify_image(dir: &Path, acknowledged: u64) {
    let server = Server::start(dir, &[&SETTINGS[..], &["--no-holder"]].concat());
    assert!(server.banner.contains("loaded after a complete flush"), "{}", server.banner);
    verify(&server, acknowledged);
}

/// Leaves acknowledged data of a server that is killed, in the guard and in the directory `kept`.
fn leave_a_key(guard: &GuardProcess) {
    let mut server = guard.serve("kept");
    assert_eq!(server.client().ask(&["SET", "key", "acknowledged"]), "+OK");
    server.signal("KILL");
    server.wait();
}

#[test]
fn servers_and_their_guard_are_killed_at_any_moment_and_nothing_acknowledged_is_missing() {
    let guard = GuardProcess::start();
    let mut acknowledged = [0; 2];
    for round in 0..3 {
        let mut servers = ["a", "b"].map(|name| guard.serve(name));
        for (server, known) in servers.iter().zip(&mut acknowledged) {
            assert!(server.banner.contains("keeps the memory"), "{}", server.banner);
            let found = if round == 0 { "new" } else { "kept by" };
            assert!(server.banner.contains(found), "{}", server.banner);
            *known = verify(server, *known);
        }
        let writers = [0, 1].map(|at| write_until_cut(servers[at].port, acknowledged[at]));
        std::thread::sleep(std::time::Duration::from_millis(200));
        // The servers go on while their guard is started again.
        let killed = guard.guard();
        signal_process(killed, "KILL");
        wait_until("another guard", || guard.guard() != killed);
        assert_eq!(state(&servers[0]), "steady");
        for server in &mut servers {
            server.signal("KILL");
            let _ = server.wait();
        }
        acknowledged = writers.map(|writer| writer.join().unwrap());
    }
    // Once more, between the servers' end and the next start.
    let killed = guard.guard();
    signal_process(killed, "KILL");
    wait_until("another guard", || guard.guard() != killed);
    for (name, known) in ["a", "b"].into_iter().zip(acknowledged) {
        let server = guard.serve(name);
        assert!(server.banner.contains("kept by"), "{}", server.banner);
        verify(&server, known);
    }
}

#[test]
fn a_guard_finds_memory_in_files_that_everybody_else_has_lost() {
    let memory = TestDir::new();
    let mut guard = GuardProcess::start();
    let mut acknowledged = 0;
    for round in 0..3 {
        let mut server = guard.serve_in_files("a", memory.path());
        assert_eq!(server.banner.contains("kept by"), round > 0, "{}", server.banner);
        acknowledged = verify(&server, acknowledged);
        let writer = write_until_cut(server.port, acknowledged);
        std::thread::sleep(std::time::Duration::from_millis(200));
        // As a reboot does: nobody is left.
        guard.kill_both();
        server.signal("KILL");
        let _ = server.wait();
        acknowledged = writer.join().unwrap();
        wait_until_nobody_has_the_image(&guard.data("a"));
        guard.again_with(&["--memory-dir", memory.path().to_str().unwrap()]);
    }
    let flushed = guard.flush("a");
    let said = String::from_utf8_lossy(&flushed.stdout);
    assert!(flushed.status.success() && said.contains("flushed"), "{said}");
    // Without the memory.
    std::fs::remove_file(guard.data("a").join("memory")).unwrap();
    verify_image(&guard.data("a"), acknowledged);
}

#[test]
fn a_server_whose_guard_is_lost_saves_everything_refuses_writes_and_goes_on_when_it_is_back() {
    let mut guard = GuardProcess::start();
    let mut server = guard.serve("a");
    let mut client = server.client();
    for n in 0..2_000 {
        assert_eq!(client.ask(&["SET", &key(n), &value(n)]), "+OK");
    }
    guard.kill_both();
    wait_until("a refusal", || client.ask(&["SET", "k", "v"]).starts_with("-MISCONF"));
    assert_eq!(state(&server), "low");
    assert_eq!(client.ask(&["GET", &key(1)]), value(1));
    wait_until("everything saved", || server.figure("power_demand_met") == 1);
    guard.again_with(&[]);
    wait_until("the guard's return", || client.ask(&["SET", "k", "v"]) == "+OK");
    // The new guard has the memory.
    server.signal("KILL");
    let _ = server.wait();
    let server = guard.serve("a");
    assert!(server.banner.contains("kept by"), "{}", server.banner);
    assert_eq!(server.client().ask(&["GET", "k"]), "v");
    // Lost again, and then the server dies: everything but that write was saved before.
    drop(server);
    guard.kill_both();
}

#[test]
fn all_servers_heed_the_power_that_the_guard_sees_and_the_guard_flushes_for_the_dead() {
    let mut guard = GuardProcess::start();
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|name| guard.serve(name));
    let writers = [&a, &b, &c].map(|server| write_until_cut(server.port, 0));
    wait_until("writes", || c.client().ask(&["EXISTS", &key(500)]) == ":1");
    c.signal("KILL");
    let _ = c.wait();
    guard.say("on-battery 5m");
    wait_until("on battery", || state(&a) == "on-battery" && state(&b) == "on-battery");
    guard.say("low");
    wait_until("low", || state(&a) == "low" && state(&b) == "low");
    assert!(a.client().ask(&["SET", "k", "v"]).starts_with("-MISCONF"));
    wait_until("everything saved", || a.figure("power_demand_met") == 1);
    // One server hangs, and is ended at the end of the power.
    b.signal("STOP");
    signal_process(guard.parent.id(), "TERM");
    assert_eq!(a.wait(), Some(0));
    let _ = b.wait();
    assert!(guard.parent.wait().unwrap().success());
    assert!(!guard.socket.exists());
    let acknowledged = writers.map(|writer| writer.join().unwrap());
    for (name, known) in ["a", "b", "c"].into_iter().zip(acknowledged) {
        verify_image(&guard.data(name), known);
    }
}

#[test]
fn what_a_guard_keeps_is_flushed_on_request_and_what_cannot_be_had_is_refused_by_name() {
    let guard = GuardProcess::start();
    let mut server = guard.serve("a");
    for n in 0..100 {
        assert_eq!(server.client().ask(&["SET", &key(n), &value(n)]), "+OK");
    }
    let said = |output: &Output| {
        let both = [&output.stdout[..], &output.stderr[..]].concat();
        String::from_utf8_lossy(&both).into_owned()
    };
    let refused = guard.flush("a");
    assert!(!refused.status.success() && said(&refused).contains("SIGTERM"), "{}", said(&refused));
    // Another server of the directory, and another guard at the socket.
    let mut second = Command::new(PERDURA);
    second.args(["serve", "--port", &free_port().to_string(), "--guard"]).arg(&guard.socket);
    let second = second.arg("--dir").arg(guard.data("a")).output().unwrap();
    assert!(said(&second).contains("is in use by process"), "{}", said(&second));
    let mut other = Command::new(PERDURA);
    let other = other.args(["guard", "--socket"]).arg(&guard.socket).output().unwrap();
    assert!(said(&other).contains("another guard listens at"), "{}", said(&other));
    let status = |extra: &[&str]| {
        let mut command = Command::new(PERDURA);
        command.args(["status", "--guard"]).arg(&guard.socket).args(extra);
        said(&command.output().unwrap())
    };
    let image = guard.data("a").join("image.perdura");
    let shown = status(&[]);
    assert!(shown.contains("1 regions; the power: steady"), "{shown}");
    assert!(shown.contains(&format!("{}: ", image.display())), "{shown}");
    assert!(shown.contains(&format!("process {}", server.child.id())), "{shown}");
    server.signal("KILL");
    let _ = server.wait();
    wait_until("a dead server", || status(&["--json"]).contains(r#""pid":null"#));
    wait_until("a flush", || said(&guard.flush("a")).contains("flushed"));
    let nothing = guard.flush("a");
    assert!(nothing.status.success() && said(&nothing).contains("nothing to flush"));
    verify_image(&guard.data("a"), 100);
    let mut alone = Command::new(PERDURA);
    alone.args(["serve", "--port", &free_port().to_string(), "--guard"]);
    let alone = alone.arg(guard.data("none")).arg("--dir").arg(guard.data("b")).output().unwrap();
    assert!(said(&alone).contains("no guard listens at"), "{}", said(&alone));
    assert!(!guard.data("b").exists(), "it was made for nothing");
}

#[test]
fn a_guard_in_the_place_of_another_takes_what_was_kept_though_its_sources_refuse() {
    let mut guard = GuardProcess::start();
    leave_a_key(&guard);
    // The guard is gone before it heeds the end of the power, and the file would be refused now.
    let child = guard.guard();
    signal_process(child, "STOP");
    guard.say("ending");
    signal_process(child, "KILL");
    wait_until("the end of the guard", || guard.parent.try_wait().unwrap().is_some());
    let server = Server::start(&guard.data("kept"), &SETTINGS);
    assert_eq!(server.client().ask(&["GET", "key"]), "acknowledged");
}

#[test]
fn an_end_that_a_killed_guard_has_not_heeded_is_told_to_the_next() {
    let mut guard = GuardProcess::start();
    leave_a_key(&guard);
    let child = guard.guard();
    signal_process(child, "STOP");
    signal_process(guard.parent.id(), "TERM");
    // The parent has taken the signal when the stopped guard has it.
    wait_until("the signal", || {
        let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
        u64::from_str_radix(pending.trim(), 16).unwrap() != 0
    });
    signal_process(child, "KILL");
    wait_until("the end of the guard", || guard.parent.try_wait().unwrap().is_some());
    let server = Server::start(&guard.data("kept"), &SETTINGS);
    assert_eq!(server.client().ask(&["GET", "key"]), "acknowledged");
}

#[test]
fn a_stopped_guard_delays_the_end_by_seconds_only() {
    let mut guard = GuardProcess::start();
    leave_a_key(&guard);
    signal_process(guard.guard(), "STOP");
    let began = Instant::now();
    signal_process(guard.parent.id(), "TERM");
    wait_until("the end of the guard", || guard.parent.try_wait().unwrap().is_some());
    // A guard that is silent without a signal has 10 s.
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    let server = Server::start(&guard.data("kept"), &SETTINGS);
    assert_eq!(server.client().ask(&["GET", "key"]), "acknowledged");
}

#[test]
fn a_guard_that_waits_for_its_servers_at_the_end_is_left_alone() {
    let mut guard = GuardProcess::start();
    let socket = guard.socket.to_str().unwrap();
    // A server in which nothing moves is ended after a tenth of its grace.
    let options = ["--memory", "64MiB", "--grace", "50s", "--guard", socket];
    let server = Server::start(&guard.data("kept"), &options);
    assert_eq!(server.client().ask(&["SET", "key", "acknowledged"]), "+OK");
    let child = guard.guard();
    server.signal("STOP");
    signal_process(guard.parent.id(), "TERM");
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(4_500) {
        assert!(Path::new(&format!("/proc/{child}")).exists(), "{:?}", began.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_until("the end of the guard", || guard.parent.try_wait().unwrap().is_some());
    drop(server);
    let server = Server::start(&guard.data("kept"), &["--memory", "64MiB"]);
    assert_eq!(server.client().ask(&["GET", "key"]), "acknowledged");
}

#[test]
fn a_slow_source_delays_no_guard_in_the_place_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let slow = dir.path().join("slow");
    let command = format!("command:test -e {} && exec sleep 60; echo steady", slow.display());
    let guard = GuardProcess::start_with(Some(command));
    let server = guard.serve("a");
    assert_eq!(state(&server), "steady");
    std::fs::write(&slow, "").unwrap();
    let child = guard.guard();
    signal_process(child, "KILL");
    wait_until("another guard", || guard.guard() != child);
    // What is not known is no steady power.
    wait_until("its word", || state(&server) == "on-battery");
    let other = guard.serve("b");
    assert_eq!(other.client().ask(&["SET", "key", "value"]), "+OK");
}

#[test]
fn a_guard_that_cannot_be_started_for_a_while_is_tried_again() {
    let place = tempfile::tempdir().unwrap();
    let [program, away] = ["perdura", "away"].map(|name| place.path().join(name));
    std::fs::copy(PERDURA, &program).unwrap();
    let guard = GuardProcess::start_from(&program, None);
    leave_a_key(&guard);
    let child = guard.guard();
    std::fs::rename(&program, &away).unwrap();
    signal_process(child, "KILL");
    // Reaped: the parent has tried to start another since, or is about to.
    wait_until("the end of the guard", || !Path::new(&format!("/proc/{child}")).exists());
    std::thread::sleep(std::time::Duration::from_millis(50));
    std::fs::rename(&away, &program).unwrap();
    wait_until("another guard", || guard.guard() != child);
    let server = guard.serve("kept");
    assert_eq!(server.client().ask(&["GET", "key"]), "acknowledged");
}

#[test]
fn who_forgets_the_guard_is_told_of_it_and_nothing_is_said_to_be_safe() {
    let guard = GuardProcess::start();
    leave_a_key(&guard);
    let dir = guard.data("kept");
    let (dir, port) = (dir.to_str().unwrap(), free_port().to_string());
    for words in [&["flush", "--dir", dir][..], &["serve", "--dir", dir, "--port", &port]] {
        let refused = Command::new(PERDURA).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains("--guard"), "{words:?}: {said}");
    }
    let server = guard.serve("kept");
    assert_eq!(server.client().ask(&["GET", "key"]), "acknowledged");
}

#[test]
fn a_stopped_server_is_said_to_give_no_answer_and_the_terminal_hears_its_keyboard() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &SETTINGS);
    let address = format!("127.0.0.1:{}", server.port);
    let looks = "import fcntl, os, pty, select, signal, struct, sys, termios, time
program, address, server = sys.argv[1], sys.argv[2], int(sys.argv[3])
pid, terminal = pty.fork()
if pid == 0:
    os.environ['TERM'] = 'xterm'
    os.execv(program, ['perdura', 'top', '--every', '100ms', '--connect', address])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 100, 0, 0))
def wait_for(word):
    seen, until = b'', time.time() + 30
    while word not in seen:
        assert time.time() < until, (word, seen[-300:])
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 65536)
wait_for(b'DIRTY')
os.kill(server, signal.SIGSTOP)
wait_for(b'OLD')
os.write(terminal, b'q')
began = time.time()
assert os.waitpid(pid, 0)[1] == 0
assert time.time() - began < 2, time.time() - began
";
    let pid = server.child.id().to_string();
    match Command::new("python3").args(["-c", looks, PERDURA, &address, &pid]).output() {
        Ok(top) => assert!(top.status.success(), "{}", String::from_utf8_lossy(&top.stderr)),
        Err(_) => eprintln!("SKIPPED: perdura top in a terminal needs python3"),
    }
    server.signal("STOP");
    let began = Instant::now();
    let status = Command::new(PERDURA).args(["status", "--connect", &address]).output().unwrap();
    let said = String::from_utf8_lossy(&status.stderr);
    assert!(status.status.code() == Some(2) && said.contains("no answer"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(20));
    server.signal("CONT");
}

#[test]
fn options_that_would_do_nothing_and_places_that_are_taken_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "data").unwrap();
    let (path, socket) = (file.to_str().unwrap(), dir.path().join("sock"));
    let greedy = dir.path().join("greedy");
    std::fs::write(&greedy, "[[tenant]]\nreservation = '3s'").unwrap();
    let greedy = greedy.to_str().unwrap();
    let socket = socket.to_str().unwrap();
    for (words, why) in [
        (&["--socket", socket, "--tenants", path][..], "expected --grace or --battery"),
        (&["--socket", socket, "--watts", "5"], "expected --grace or --battery"),
        (&["--socket", path], "this is no socket, so it stays"),
        (
            &["--socket", socket, "--grace", "2s", "--tenants", greedy],
            "a reservation of 3s is longer than the battery lasts, 2s",
        ),
        (&["--socket", socket, "--threads", "0"], "--threads 0: expected 1 to 64"),
        (&["--socket", socket, "--warning", "nut:mon:secret@sim@localhost"], "no password"),
    ] {
        let refused = Command::new(PERDURA).arg("guard").args(words).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(why), "{said}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"data");
}

/// Nobody else of the machine's users reads what a guard makes.
#[test]
fn all_that_a_guard_makes_is_its_owners_only() {
    let guard = GuardProcess::start();
    for pid in [guard.parent.id(), guard.guard()] {
        wait_until("the mask for new files", || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            status.lines().any(|line| line == "Umask:\t0077")
        });
    }
}
