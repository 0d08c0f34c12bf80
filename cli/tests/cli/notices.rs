//! Three servers under load that share a battery of ten seconds, and the end of their time: SIGTERM
//! to the guard, a notice of a cloud, whose metadata service is on loopback here, or a shutdown by
//! a systemd-logind that is alone on a bus of its own.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use perdura_warning::{Left, State, Warnings};

use crate::guarding::*;
use crate::running::*;

const NAMES: [&str; 3] = ["a", "b", "c"];
const GRACE: Duration = Duration::from_secs(10);

/// A metadata service as that of EC2.
struct Metadata {
    port: u16,
    /// Whether there is a notice.
    notice: Arc<AtomicBool>,
}

impl Metadata {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let notice = Arc::new(AtomicBool::new(false));
        let is_there = Arc::clone(&notice);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A client may have gone.
                let _ = answer(stream.unwrap(), is_there.load(Ordering::SeqCst));
            }
        });
        Self { port, notice }
    }
}

fn answer(stream: TcpStream, has_notice: bool) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") && reader.read_line(&mut request)? > 0 {}
    let (status, body) = match (request.starts_with("PUT"), has_notice) {
        (true, _) => ("200 OK", "token"),
        (false, false) => ("404 Not Found", ""),
        (false, true) => ("200 OK", r#"{"action": "terminate", "time": "2026-11-27T08:22:00Z"}"#),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    reader.get_mut().write_all((head + body).as_bytes())
}

/// Lets `end` begin the end of a guard that heeds `source`, under load, and looks for everything
/// that was acknowledged.
fn all_are_safe_within_the_grace(source: Option<String>, end: impl Fn(&GuardProcess)) {
    let mut guard = GuardProcess::start_with(source);
    guard.again_with(&["--grace", "10s"]);
    let mut servers = NAMES.map(|name| guard.serve(name));
    let writers = [0, 1, 2].map(|at| write_until_cut(servers[at].port, 0));
    let has_begun = |server: &Server| server.client().ask(&["EXISTS", &key(500)]) == ":1";
    wait_until("writes", || servers.iter().all(has_begun));
    let mut drill = Command::new(PERDURA);
    let drilled = drill.args(["drill", "--guard"]).arg(&guard.socket).output().unwrap();
    let said = String::from_utf8_lossy(&drilled.stdout);
    assert!(drilled.status.success() && said.ends_with("PASS\n"), "{said}");

    end(&guard);
    let warned = Instant::now();
    for server in &mut servers {
        assert_eq!(server.wait(), Some(0));
    }
    wait_until("the guard's end", || guard.parent.try_wait().unwrap().is_some());
    let took = warned.elapsed();
    assert!(took < GRACE, "{took:?}");
    println!("all is on the SSD {took:?} after the warning");
    for (name, writer) in NAMES.into_iter().zip(writers) {
        let settings = [&SETTINGS[..], &["--no-holder"]].concat();
        let server = Server::start(&guard.data(name), &settings);
        assert!(server.banner.contains("loaded after a complete flush"), "{}", server.banner);
        verify(&server, writer.join().unwrap());
    }
}

#[test]
fn at_sigterm_to_the_guard_three_servers_are_safe_within_the_grace() {
    all_are_safe_within_the_grace(None, |guard| signal_process(guard.parent.id(), "TERM"));
}

#[test]
fn at_a_clouds_notice_three_servers_are_safe_within_the_grace() {
    let metadata = Metadata::start();
    let source = format!("aws:http://127.0.0.1:{}", metadata.port);
    all_are_safe_within_the_grace(Some(source), |_| {
        metadata.notice.store(true, Ordering::SeqCst);
    });
}

/// systemd-logind on a bus of its own. In the place of the service manager there is a thread, which
/// notes when a shutdown begins, and begins none. Both processes are killed when dropped.
struct Logind {
    bus: Child,
    logind: Child,
    address: String,
    has_begun: Arc<AtomicBool>,
    _dir: tempfile::TempDir,
}

const LOGIND: &str = "/lib/systemd/systemd-logind";
const DBUS: &str = "/usr/bin/dbus-daemon";
const CONFIG: &str = r#"<busconfig><type>system</type><listen>unix:path=PATH</listen>
<auth>EXTERNAL</auth><policy context="default"><allow send_destination="*" eavesdrop="true"/>
<allow eavesdrop="true"/><allow own="*"/><allow user="*"/></policy></busconfig>"#;

/// Answers what logind asks the service manager.
fn manage_services(address: &str, has_begun: &AtomicBool) -> zbus::Result<()> {
    let bus = zbus::blocking::connection::Builder::address(address)?.build()?;
    bus.request_name("org.freedesktop.systemd1")?;
    let path = |path| zbus::zvariant::ObjectPath::try_from(path);
    for message in zbus::blocking::MessageIterator::from(&bus) {
        let message = message?;
        match message.header().member().map(|member| member.as_str()) {
            Some("LoadUnit" | "GetUnit") => bus.reply(&message.header(), &path("/unit")?)?,
            Some("Get") => {
                bus.reply(&message.header(), &zbus::zvariant::Value::from("loaded"))?;
            }
            Some("StartUnit") => {
                has_begun.store(true, Ordering::SeqCst);
                bus.reply(&message.header(), &path("/job")?)?;
            }
            Some("Subscribe") => bus.reply(&message.header(), &())?,
            _ => {}
        }
    }
    Ok(())
}

impl Logind {
    fn start() -> Option<Self> {
        let is_there = [LOGIND, DBUS].iter().all(|program| Path::new(program).exists());
        if !is_there || !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: it takes root, {DBUS} and {LOGIND}");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let (socket, config) = (dir.path().join("bus"), dir.path().join("bus.conf"));
        std::fs::write(&config, CONFIG.replace("PATH", socket.to_str().unwrap())).unwrap();
        let mut bus = Command::new(DBUS);
        let bus = bus.arg("--nofork").arg("--config-file").arg(&config).spawn().unwrap();
        wait_until("a bus", || socket.exists());
        let address = format!("unix:path={}", socket.display());
        let has_begun = Arc::new(AtomicBool::new(false));
        let (noted, on) = (Arc::clone(&has_begun), address.clone());
        // It ends with the bus.
        std::thread::spawn(move || manage_services(&on, &noted));
        // It has a folder of its own for its state: the machine may have another logind.
        let line = format!("mount -t tmpfs tmpfs /run/systemd && exec {LOGIND}");
        std::fs::create_dir_all("/run/systemd").unwrap();
        let mut logind = Command::new("unshare");
        logind.args(["--mount", "sh", "-c", &line]).env("DBUS_SYSTEM_BUS_ADDRESS", &address);
        let logind = logind.stderr(Stdio::null()).spawn().unwrap();
        let found = Self { bus, logind, address, has_begun, _dir: dir };
        wait_until("logind", || found.call("ListSeats", &[]).status.success());
        Some(found)
    }

    fn call(&self, method: &str, arguments: &[&str]) -> Output {
        let mut busctl = Command::new("busctl");
        busctl.args(["--system", "call", "org.freedesktop.login1", "/org/freedesktop/login1"]);
        busctl.args(["org.freedesktop.login1.Manager", method]).args(arguments);
        busctl.env("DBUS_SYSTEM_BUS_ADDRESS", &self.address).output().unwrap()
    }

    /// The locks that make a shutdown wait.
    fn locks(&self) -> String {
        String::from_utf8(self.call("ListInhibitors", &[]).stdout).unwrap()
    }
}

impl Drop for Logind {
    fn drop(&mut self) {
        for child in [&mut self.logind, &mut self.bus] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_shutdown_waits_until_three_servers_are_safe() {
    let Some(logind) = Logind::start() else { return };
    let has_begun = || logind.has_begun.load(Ordering::SeqCst);
    all_are_safe_within_the_grace(Some(format!("logind:{}", logind.address)), |_| {
        assert!(logind.locks().contains(r#""shutdown" "perdura""#), "{}", logind.locks());
        let asked = logind.call("PowerOff", &["b", "false"]);
        assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
        assert!(!has_begun(), "the shutdown did not wait");
    });
    wait_until("the shutdown", has_begun);
    assert!(!logind.locks().contains("perdura"), "{}", logind.locks());
}

#[test]
fn a_shutdown_waits_for_a_process_that_was_told_and_has_not_ended() {
    let Some(logind) = Logind::start() else { return };
    let mut warnings = Warnings::default();
    warnings.add(perdura_warning::open(&format!("logind:{}", logind.address)).unwrap());
    assert_eq!(warnings.look().state, State::Steady);
    assert!(logind.call("PowerOff", &["b", "false"]).status.success());
    let asked = Instant::now();
    let told = warnings.wait_for(State::Ending);
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    // logind's own default: it waits for 5 s.
    let Some(Left::Time(left)) = told.left else { panic!("{told:?}") };
    assert!((Duration::from_secs(4)..Duration::from_secs(5)).contains(&left), "{told:?}");
    std::thread::sleep(Duration::from_secs(1));
    assert!(!logind.has_begun.load(Ordering::SeqCst), "the shutdown did not wait");
}
