//! A server as a process, and a client that knows what was acknowledged.
#![allow(dead_code)] // each test file uses its part

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

pub const PERDURA: &str = env!("CARGO_BIN_EXE_perdura");
const NOBODY: u32 = 65534;
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory for a region. Its holder, if there is one at the end, is ended with it.
pub struct TestDir(tempfile::TempDir);

impl TestDir {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        end_holder(self.path());
    }
}

/// A running `perdura serve`; killed when dropped.
pub struct Server {
    pub child: Child,
    pub port: u16,
    pub banner: String,
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Server {
    pub fn start(dir: &Path, extra: &[&str]) -> Self {
        Self::start_by(Command::new(PERDURA), dir, extra)
    }

    /// Starts a server by `program`, which runs the program and the arguments that it is given.
    pub fn start_by(mut program: Command, dir: &Path, extra: &[&str]) -> Self {
        let port = free_port();
        let mut child = program
            .args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--dir"])
            .arg(dir)
            .args(extra)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        // The banner ends where serving begins.
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut banner = String::new();
        while !banner.contains("not covered") {
            assert_ne!(lines.read_line(&mut banner).unwrap(), 0, "no banner: {banner}");
        }
        // Keep reading, or the server would meet a closed pipe when it says goodbye.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Self { child, port, banner }
    }

    /// The number in a line `name ...: number` of `/proc/PID/status`, or the first in it.
    pub fn status(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Bytes that the process has written so far to file systems that count them.
    pub fn written_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/io", self.child.id())).unwrap();
        let count = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        count.unwrap().parse().unwrap()
    }

    /// A line of INFO as a number.
    pub fn figure(&self, name: &str) -> u64 {
        let info = self.client().ask(&["INFO"]);
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{name} in {info}")).parse().unwrap()
    }

    pub fn client(&self) -> Client {
        Client::connect(self.port)
    }

    pub fn signal(&self, signal: &str) {
        signal_process(self.child.id(), signal);
    }

    /// Waits for the end; the exit code, `None` if a signal ended it.
    pub fn wait(&mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < PATIENCE, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program run by a user who is not root. If root runs the test and only root can reach the
/// program, a copy of it in `folder` is run.
pub fn unprivileged(program: &Path, folder: &Path) -> Command {
    if !rustix::process::getuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new(for_everybody(program, folder));
    command.uid(NOBODY).gid(NOBODY);
    command
}

/// The file, or a copy of it in `folder` if not everybody can reach it.
pub fn for_everybody(file: &Path, folder: &Path) -> PathBuf {
    let may = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o005 == 0o005;
    if file.ancestors().all(may) {
        return file.to_owned();
    }
    let copy = folder.join(file.file_name().unwrap());
    std::fs::copy(file, &copy).unwrap();
    copy
}

pub fn signal_process(pid: u32, signal: &str) {
    let status =
        Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -{signal} {pid}");
    if signal == "STOP" {
        // A busy machine lets the threads go on for a moment.
        wait_until("a stop", || is_stopped(pid));
    }
}

/// Whether all threads of a process are stopped.
fn is_stopped(pid: u32) -> bool {
    std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, fields)| fields.starts_with('T'))
    })
}

/// The holder of a directory, found by its command line.
pub fn holder_of(dir: &Path) -> Option<u32> {
    program_of("holder", dir)
}

/// The process of a subcommand with this directory among its words.
pub fn program_of(subcommand: &str, dir: &Path) -> Option<u32> {
    let name = dir.to_str().unwrap();
    std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let words = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<&str> =
            words.split(|b| *b == 0).filter_map(|w| std::str::from_utf8(w).ok()).collect();
        (words.get(1) == Some(&subcommand) && words.contains(&name)).then_some(pid)
    })
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until no process has the image of a directory: what a killed one had open by io_uring the
/// kernel closes a moment after its end.
pub fn wait_until_nobody_has_the_image(dir: &Path) {
    let image = std::fs::File::open(dir.join("image.perdura")).unwrap();
    let how = FlockOperation::NonBlockingLockExclusive;
    wait_until("that nobody has the image", || rustix::fs::flock(&image, how).is_ok());
}

/// Stops a server, which lets its holder go.
pub fn stop(mut server: Server, dir: &Path) {
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    wait_until("the holder's end", || holder_of(dir).is_none());
}

/// Ends the holder of a directory, whatever state it is in.
pub fn end_holder(dir: &Path) {
    if let Some(pid) = holder_of(dir) {
        signal_process(pid, "KILL");
        wait_until("the holder's end", || holder_of(dir).is_none());
    }
}

/// A minimal client, which reads simple and bulk replies.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(port: u16) -> Self {
        Self::try_connect(port).unwrap()
    }

    pub fn try_connect(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub fn send(&mut self, words: &[&str]) -> std::io::Result<()> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(request.as_bytes())
    }

    /// Reads a reply; `None`: the connection has ended.
    pub fn reply(&mut self) -> Option<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).ok()? == 0 || !line.ends_with('\n') {
            return None;
        }
        let line = line.trim_end();
        match line.split_at(1) {
            ("$", "-1") => Some("(nil)".into()),
            ("$", len) => {
                let mut bytes = vec![0; len.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut bytes).ok()?;
                Some(String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned())
            }
            _ => Some(line.to_owned()),
        }
    }

    pub fn ask(&mut self, words: &[&str]) -> String {
        self.send(words).unwrap();
        self.reply().expect("a reply")
    }
}

/// Value of the n-th write: different for every write, long enough to span grains.
pub fn value(n: u64) -> String {
    format!("{n:08}").repeat(40 + (n % 90) as usize)
}

pub fn key(n: u64) -> String {
    format!("key:{n}")
}

/// Writes `key:0`, `key:1`, … in order, sixteen on their way at a time, until the connection ends.
/// Returns how many were acknowledged.
pub fn write_until_cut(port: u16, from: u64) -> std::thread::JoinHandle<u64> {
    std::thread::spawn(move || {
        let mut client = Client::connect(port);
        let (mut sent, mut acknowledged) = (from, from);
        loop {
            while sent - acknowledged < 16 {
                if client.send(&["SET", &key(sent), &value(sent)]).is_err() {
                    return acknowledged;
                }
                sent += 1;
            }
            match client.reply().as_deref() {
                Some("+OK") => acknowledged += 1,
                _ => return acknowledged,
            }
        }
    })
}

/// Writes the first `count` keys.
pub fn fill(server: &Server, count: u64) {
    let mut client = server.client();
    for n in 0..count {
        assert_eq!(client.ask(&["SET", &key(n), &value(n)]), "+OK");
    }
}

/// Every key below `acknowledged` must be there and right; returns how many follow without a gap.
pub fn verify(server: &Server, acknowledged: u64) -> u64 {
    let mut client = server.client();
    let keys: Vec<u64> = (0..acknowledged).collect();
    // Many on their way at a time: one after another took half of the time of these tests.
    for some in keys.chunks(256) {
        some.iter().for_each(|n| client.send(&["GET", &key(*n)]).unwrap());
        for n in some {
            let found = client.reply().expect("a reply");
            assert_eq!(found, value(*n), "key {n} of {acknowledged} acknowledged");
        }
    }
    present_prefix(&mut client, acknowledged)
}

/// The number of the first key from `from` on that is missing. Each key before it must be whole,
/// and none may follow the gap.
pub fn present_prefix(client: &mut Client, from: u64) -> u64 {
    let mut n = from;
    loop {
        let found = client.ask(&["GET", &key(n)]);
        if found == "(nil)" {
            break;
        }
        assert_eq!(found, value(n), "key {n}");
        n += 1;
    }
    for gap in n..n + 64 {
        assert_eq!(client.ask(&["GET", &key(gap)]), "(nil)", "key {gap} follows a gap at {n}");
    }
    n
}
