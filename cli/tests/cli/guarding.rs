//! A guard as a process, and servers that it guards.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::running::*;

/// A budget far below what is written, so that cleaning and waiting are part of each run; and a
/// memory that no writer fills on a fast machine: a refused write would be a gap.
pub const SETTINGS: [&str; 6] = ["--memory", "512MiB", "--budget", "2MiB", "--grace", "10s"];

/// A guard and its parent; both are killed when dropped.
pub struct GuardProcess {
    pub parent: Child,
    pub socket: PathBuf,
    power: PathBuf,
    /// The source of warnings that the guard heeds.
    pub source: String,
    dir: tempfile::TempDir,
}

impl GuardProcess {
    /// A guard that heeds a file.
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// A guard that heeds `source`, or a file.
    pub fn start_with(source: Option<String>) -> Self {
        Self::start_from(Path::new(PERDURA), source)
    }

    /// A guard whose program is another file.
    pub fn start_from(program: &Path, source: Option<String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (socket, power) = (dir.path().join("guard.sock"), dir.path().join("power"));
        let source = source.unwrap_or_else(|| format!("file:{}", power.display()));
        let parent = Self::spawn(program, &socket, &source, &[]);
        Self { parent, socket, power, source, dir }
    }

    /// Starts the guard, after it was ended, with more words on its command line.
    pub fn again_with(&mut self, more: &[&str]) {
        if self.parent.try_wait().unwrap().is_none() {
            self.kill_both();
        }
        self.parent = Self::spawn(Path::new(PERDURA), &self.socket, &self.source, more);
    }

    fn spawn(program: &Path, socket: &Path, source: &str, more: &[&str]) -> Child {
        let mut parent = Command::new(program)
            .args(["guard", "--socket"])
            .arg(socket)
            .args(["--warning", source])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(parent.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("guarding memory"), "{line}");
        parent
    }

    /// Process id of the guard itself, which is the parent's only child.
    pub fn guard(&self) -> u32 {
        let pid = self.parent.id();
        let path = format!("/proc/{pid}/task/{pid}/children");
        let mut found = None;
        // Asked once: the next look may come between two guards.
        wait_until("a guard", || {
            found = std::fs::read_to_string(&path).unwrap().trim().parse().ok();
            found.is_some()
        });
        found.unwrap()
    }

    pub fn kill_both(&mut self) {
        let guard = self.guard();
        self.parent.kill().unwrap();
        signal_process(guard, "KILL");
        self.parent.wait().unwrap();
        // A guard that is still ending has its socket. Nobody here waits for it but this.
        let has_ended = || {
            let stat = std::fs::read_to_string(format!("/proc/{guard}/stat"));
            stat.map_or(true, |stat| stat.contains(") Z"))
        };
        wait_until("the end of the guard", has_ended);
    }

    pub fn data(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn serve(&self, name: &str) -> Server {
        let guard = self.socket.to_str().unwrap();
        let more = ["--guard", guard, "--power-settle", "100ms"];
        Server::start(&self.data(name), &[&SETTINGS[..], &more].concat())
    }

    /// A server whose memory lies in files below `memory_dir`.
    pub fn serve_in_files(&self, name: &str, memory_dir: &Path) -> Server {
        let guard = self.socket.to_str().unwrap();
        let more = ["--guard", guard, "--memory-dir", memory_dir.to_str().unwrap()];
        Server::start(&self.data(name), &[&SETTINGS[..], &more].concat())
    }

    pub fn say(&self, power: &str) {
        std::fs::write(&self.power, power).unwrap();
    }

    pub fn flush(&self, name: &str) -> Output {
        let mut command = Command::new(PERDURA);
        command.args(["flush", "--guard"]).arg(&self.socket).arg("--dir").arg(self.data(name));
        command.output().unwrap()
    }
}

impl Drop for GuardProcess {
    fn drop(&mut self) {
        if self.parent.try_wait().unwrap().is_none() {
            self.kill_both();
        }
    }
}

/// The state of the power, as the server sees it.
pub fn state(server: &Server) -> String {
    let info = server.client().ask(&["INFO", "perdura"]);
    let line = info.lines().find_map(|line| line.strip_prefix("power_state:"));
    line.unwrap_or_else(|| panic!("no power_state in {info}")).trim_end().to_owned()
}
