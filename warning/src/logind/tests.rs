//! A logind that fails, hangs or has begun a shutdown, on a bus of its own.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pipe::{PipeFlags, pipe_with};
use zbus::Message;
use zbus::blocking::{Connection, MessageIterator, connection};
use zbus::zvariant::{Fd, Value};

use super::*;

const DBUS: &str = "/usr/bin/dbus-daemon";
const CONFIG: &str = r#"<busconfig><type>system</type><listen>unix:path=PATH</listen>
<auth>EXTERNAL</auth><policy context="default"><allow send_destination="*" eavesdrop="true"/>
<allow eavesdrop="true"/><allow own="*"/><allow user="*"/></policy></busconfig>"#;

/// What the logind of a test does when it is asked whether a shutdown is being prepared.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Does {
    Answers(bool),
    Fails,
    Hangs,
}

#[derive(Debug)]
struct Script {
    does: Does,
    /// Whether a shutdown has begun, so that no lock is given.
    has_begun: bool,
    /// The other ends of the locks that were given.
    locks: Vec<OwnedFd>,
}

/// A bus with a logind on it, which end when dropped.
struct Bus {
    daemon: Child,
    address: String,
    script: Arc<Mutex<Script>>,
}

impl Bus {
    /// A bus in `dir`; `None` where no program for it is installed.
    fn start(dir: &Path) -> Option<Self> {
        if !Path::new(DBUS).exists() {
            eprintln!("SKIPPED: it takes {DBUS}");
            return None;
        }
        let (socket, config) = (dir.join("bus"), dir.join("bus.conf"));
        std::fs::write(&config, CONFIG.replace("PATH", socket.to_str().unwrap())).unwrap();
        let mut daemon = Command::new(DBUS)
            .args(["--nofork", "--print-address", "--config-file"])
            .arg(&config)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It is ready when it says where it listens.
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = format!("unix:path={}", socket.display());
        assert!(line.starts_with(&address), "{line:?}");
        let script = Script { does: Does::Answers(false), has_begun: false, locks: Vec::new() };
        let script = Arc::new(Mutex::new(script));
        let bus = connection::Builder::address(address.as_str()).unwrap().build().unwrap();
        let (calls, follows) = (MessageIterator::from(&bus), Arc::clone(&script));
        bus.request_name(SERVICE).unwrap();
        // It ends with the bus.
        std::thread::spawn(move || {
            for call in calls.map_while(Result::ok) {
                answer(&bus, &call, &mut follows.lock().unwrap());
            }
        });
        Some(Self { daemon, address, script })
    }

    fn set(&self, does: Does) {
        self.script.lock().unwrap().does = does;
    }

    /// Which of the locks that were given are held.
    fn held(&self) -> Vec<bool> {
        let script = self.script.lock().unwrap();
        script.locks.iter().map(is_held).collect()
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Whether the lock with this other end is held.
fn is_held(lock: &OwnedFd) -> bool {
    let mut lock = std::fs::File::from(lock.try_clone().unwrap());
    !matches!(lock.read(&mut [0]), Ok(0))
}

fn answer(bus: &Connection, call: &Message, script: &mut Script) {
    let header = call.header();
    let property = || call.body().deserialize::<(String, String)>().map(|(_, name)| name);
    let answered = match header.member().map(|member| member.as_str()) {
        Some("Inhibit") if script.has_begun => bus.reply_error(&header, BEGUN, &"it has begun"),
        Some("Inhibit") => {
            let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
            let (ours, lock) = pipe_with(flags).unwrap();
            script.locks.push(ours);
            bus.reply(&header, &Fd::from(&lock))
        }
        Some("Get") => match (property().as_deref(), script.does) {
            (Ok("InhibitDelayMaxUSec"), _) => bus.reply(&header, &Value::from(5_000_000_u64)),
            (Ok("PreparingForShutdown"), Does::Answers(is_so)) => {
                bus.reply(&header, &Value::from(is_so))
            }
            (Ok("PreparingForShutdown"), Does::Hangs) => Ok(()),
            _ => bus.reply_error(&header, "org.freedesktop.DBus.Error.Failed", &"not now"),
        },
        _ => Ok(()),
    };
    // One that has gone gets no answer.
    let _ = answered;
}

#[test]
fn a_message_that_fails_or_is_not_answered_lets_go_of_no_lock() {
    let dir = tempfile::tempdir().unwrap();
    let Some(bus) = Bus::start(dir.path()) else { return };
    let mut logind = Logind::on(&bus.address);
    assert_eq!(logind.ask().unwrap().state, State::Steady);
    for does in [Does::Fails, Does::Hangs] {
        bus.set(does);
        assert!(matches!(logind.ask(), Err(NoAnswer::Unreached(_))), "{does:?}");
        assert_eq!(bus.held(), [true], "{does:?}");
    }
    bus.set(Does::Answers(false));
    assert_eq!(logind.ask().unwrap().state, State::Steady);
    assert_eq!(bus.held(), [true], "another lock was taken");
    bus.set(Does::Answers(true));
    let end = logind.ask().unwrap();
    let left = Duration::from_secs(5) - PACE.every;
    assert_eq!((end.state, end.left), (State::Ending, Some(Left::Time(left))));
    drop(logind);
    assert_eq!(bus.held(), [true], "what is in memory is not saved yet");
}

#[test]
fn a_lock_that_is_refused_because_a_shutdown_has_begun_is_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let Some(bus) = Bus::start(dir.path()) else { return };
    bus.script.lock().unwrap().has_begun = true;
    let end = Logind::on(&bus.address).ask().unwrap();
    assert_eq!(end, Reading::new(State::Ending, "logind: the machine is being shut down"));
}

#[test]
fn after_the_end_of_the_connection_the_lock_is_held_until_there_is_another_or_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let Some(bus) = Bus::start(dir.path()) else { return };
    let mut logind = Logind::on(&bus.address);
    assert_eq!(logind.ask().unwrap().state, State::Steady);
    // Another bus in the place of the old one, whose logind has perhaps begun a shutdown.
    let mut again = |old: Bus, has_begun| {
        let first = old.script.lock().unwrap().locks.remove(0);
        drop(old);
        while !logind.link.as_ref().unwrap().is_over() {
            std::thread::yield_now();
        }
        assert!(matches!(logind.ask(), Err(NoAnswer::Unreached(_))));
        assert!(is_held(&first));
        let bus = Bus::start(dir.path()).unwrap();
        bus.script.lock().unwrap().has_begun = has_begun;
        let state = logind.ask().unwrap().state;
        assert_eq!(state == State::Ending, has_begun);
        assert_eq!(is_held(&first), has_begun);
        bus
    };
    let bus = again(bus, false);
    assert_eq!(bus.held(), [true]);
    again(bus, true);
}
