//! A server that is killed with SIGKILL while clients wait for elements, with durability fsync.
//! Nobody holds its memory: what the next server has is the image.
//!
//! No element that a client was given is there again. None that was pushed is lost, except by a
//! pop whose client has not heard of it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use perdura_media::device::{Device, DeviceError, WriteQueue};
use perdura_media::file::{Direct, Engine, FileDevice, OpenMode};
use perdura_media::{Clock, RealClock};
use perdura_server::{Durability, Listener, ServerConfig, StopFlag, run};

use crate::running::{Client, config, open_on};

const LIVES: usize = 8;
/// Of an image that is new; it grows.
const IMAGE_BYTES: u64 = 1 << 20;
/// Answered pops and moves after which a server is killed.
const ANSWERS: usize = 40;
const WRITES_BEGIN_AFTER_NS: u64 = 2_000_000;

/// What the clients of all lives have sent and heard.
#[derive(Debug, Default)]
struct Account {
    sent: BTreeSet<String>,
    pushed: BTreeSet<String>,
    popped: BTreeSet<String>,
    moved: BTreeSet<String>,
    /// Pops that were not answered.
    cut_off: usize,
}

/// A server in a process of its own.
struct Killed {
    child: Child,
    addr: SocketAddr,
}

impl Killed {
    fn start(dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::the_server_that_is_killed", "--nocapture"])
            .env("PERDURA_CHILD_DIR", dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let addr = lines
            .map_while(Result::ok)
            .find_map(|line| line.split("serves at ").nth(1).map(|addr| addr.parse().unwrap()));
        let Some(addr) = addr else { panic!("the server does not start: {:?}", child.wait()) };
        Self { child, addr }
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A device whose writes begin late, so that a reply which does not wait for them is heard before
/// they are made.
struct Late(FileDevice);

impl Late {
    fn wait() {
        RealClock.sleep_ns(WRITES_BEGIN_AFTER_NS);
    }
}

impl Device for Late {
    fn capacity_bytes(&self) -> u64 {
        self.0.capacity_bytes()
    }

    fn grow(&self, capacity_bytes: u64) -> Result<(), DeviceError> {
        self.0.grow(capacity_bytes)
    }

    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.0.read_at(offset_bytes, buf)
    }

    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        Self::wait();
        self.0.write_at(offset_bytes, buf)
    }

    fn write_durable_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        Self::wait();
        self.0.write_durable_at(offset_bytes, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.0.flush()
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>, DeviceError> {
        self.0.queue(depth)
    }

    fn describe(&self) -> String {
        format!("{}, late", self.0.describe())
    }
}

/// Is the server if the environment says so, and lives until it is killed or its parent has gone.
#[test]
fn the_server_that_is_killed() {
    let Some(dir) = std::env::var_os("PERDURA_CHILD_DIR") else { return };
    let image = Path::new(&dir).join("image");
    let mode = match image.exists() {
        true => OpenMode::Existing,
        false => OpenMode::Create { capacity_bytes: IMAGE_BYTES },
    };
    let device = FileDevice::open(&image, mode, Engine::Auto, Direct::Auto).unwrap();
    let opened = open_on(Arc::new(Late(device)), true);
    let config = ServerConfig { durability: Durability::Fsync, threads: 3, ..config() };
    let listener = Listener::bind(&config).unwrap();
    println!("serves at {}", listener.local_addr().unwrap());
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    run(listener, &opened.store, &config, &*opened.clock, &StopFlag::new().unwrap()).unwrap();
}

/// Sends a line, and reads so many lines of its reply; `None` if the server has gone.
fn ask(client: &mut Client, line: &str, count: usize) -> Option<String> {
    if !client.write(line) {
        return None;
    }
    let lines = (0..count).map(|_| {
        let line = client.rest_of_one();
        line.strip_suffix("\r\n").map(str::to_owned)
    });
    lines.collect::<Option<Vec<_>>>()?.pop()
}

/// Lets clients push, pop and move until the server is killed by the one that hears the last of so
/// many answers.
fn live(server: Killed, life: usize, account: &Mutex<Account>) {
    let (addr, server, answers) = (server.addr, Mutex::new(server), AtomicUsize::new(0));
    let answered = || {
        if answers.fetch_add(1, SeqCst) + 1 == ANSWERS {
            server.lock().unwrap().child.kill().unwrap();
        }
    };
    let note = |change: &dyn Fn(&mut Account)| change(&mut account.lock().unwrap());
    std::thread::scope(|scope| {
        for pusher in 0..3 {
            let mut client = Client::connect(addr);
            scope.spawn(move || {
                for number in 0.. {
                    let element = format!("{life}-{pusher}-{number}");
                    note(&|account| _ = account.sent.insert(element.clone()));
                    if ask(&mut client, &format!("RPUSH q {element}"), 1).is_none() {
                        break;
                    }
                    note(&|account| _ = account.pushed.insert(element.clone()));
                }
            });
        }
        for popper in 0..4 {
            let (mut client, answered) = (Client::connect(addr), &answered);
            scope.spawn(move || {
                let is_move = popper == 0;
                let (line, lines) =
                    if is_move { ("BLMOVE q done LEFT RIGHT 0", 2) } else { ("BLPOP none q 0", 5) };
                while let Some(element) = ask(&mut client, line, lines) {
                    note(&|account| {
                        let told = if is_move { &mut account.moved } else { &mut account.popped };
                        assert!(told.insert(element.clone()), "{element} was given twice");
                    });
                    answered();
                }
                note(&|account| account.cut_off += usize::from(!is_move));
            });
        }
    });
    assert!(answers.into_inner() >= ANSWERS);
}

fn elements(client: &mut Client, key: &str) -> Vec<String> {
    let reply = client.call(&format!("LRANGE {key} 0 -1"));
    reply.split(' ').skip(1).filter(|word| !word.starts_with('$')).map(str::to_owned).collect()
}

fn check(server: &Killed, account: &Account) {
    let mut client = Client::connect(server.addr);
    let (left, done) = (elements(&mut client, "q"), elements(&mut client, "done"));
    let is_done: BTreeSet<_> = done.iter().cloned().collect();
    let mut found = is_done.clone();
    found.extend(left.iter().cloned());
    assert_eq!(found.len(), left.len() + done.len(), "an element is there twice");
    let again: Vec<_> = found.intersection(&account.popped).collect();
    assert!(again.is_empty(), "popped, and there again: {again:?}");
    let back: Vec<_> = account.moved.difference(&is_done).collect();
    assert!(back.is_empty(), "moved, and not there: {back:?}");
    let unknown: Vec<_> = found.difference(&account.sent).collect();
    assert!(unknown.is_empty(), "never pushed: {unknown:?}");
    found.extend(account.popped.iter().cloned());
    let lost: Vec<_> = account.pushed.difference(&found).collect();
    assert!(lost.len() <= account.cut_off, "lost, with {} pops: {lost:?}", account.cut_off);
}

#[test]
fn after_kill_9_no_element_that_was_popped_is_there_and_none_that_was_pushed_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let account = Mutex::default();
    for life in 0..LIVES {
        let server = Killed::start(dir.path());
        check(&server, &account.lock().unwrap());
        live(server, life, &account);
    }
    let (server, account) = (Killed::start(dir.path()), account.into_inner().unwrap());
    check(&server, &account);
    assert!(account.popped.len() > 100 && account.moved.len() > 20, "{account:?}");
}
