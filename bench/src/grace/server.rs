//! The servers, each with the settings that keep most in such a case.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};

use super::GraceError;
use crate::target::Connection;

/// Longest time until a server answers. It may measure its device, or load its data, first.
const START_WITHIN: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The part of its output that an error shows, bytes.
const OUTPUT_SHOWN: usize = 2_000;

/// The programs of the servers.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `perdura`.
    pub perdura: PathBuf,
    /// `redis-server`.
    pub redis: PathBuf,
    /// `valkey-server`.
    pub valkey: PathBuf,
}

/// A server, and how it saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `perdura serve`.
    Perdura,
    /// Redis with snapshots: its default.
    RedisRdb,
    /// Redis with a log that is synced every second.
    RedisAofEverysec,
    /// Redis with a log that is synced before each reply.
    RedisAofAlways,
    /// Redis that saves nothing: what the oracle must find lost.
    RedisNothing,
    /// Valkey with snapshots.
    ValkeyRdb,
    /// Valkey with a log that is synced every second.
    ValkeyAofEverysec,
    /// Valkey with a log that is synced before each reply.
    ValkeyAofAlways,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Perdura,
        Self::RedisRdb,
        Self::RedisAofEverysec,
        Self::RedisAofAlways,
        Self::RedisNothing,
        Self::ValkeyRdb,
        Self::ValkeyAofEverysec,
        Self::ValkeyAofAlways,
    ];

    /// The name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Perdura => "perdura",
            Self::RedisRdb => "redis-rdb",
            Self::RedisAofEverysec => "redis-aof-everysec",
            Self::RedisAofAlways => "redis-aof-always",
            Self::RedisNothing => "redis-nothing",
            Self::ValkeyRdb => "valkey-rdb",
            Self::ValkeyAofEverysec => "valkey-aof-everysec",
            Self::ValkeyAofAlways => "valkey-aof-always",
        }
    }

    /// The server's program.
    pub fn program(self, programs: &Programs) -> &Path {
        match self {
            Self::Perdura => &programs.perdura,
            Self::ValkeyRdb | Self::ValkeyAofEverysec | Self::ValkeyAofAlways => &programs.valkey,
            _ => &programs.redis,
        }
    }

    /// The words after the program. Snapshots come as often as by default.
    fn words(self, dir: &Path, port: u16, memory_bytes: u64, grace: Duration) -> Vec<String> {
        let dir = dir.display().to_string();
        let (snapshots, log, sync) = match self {
            Self::Perdura => {
                let listen = format!("127.0.0.1:{port}");
                let grace = format!("{}ms", grace.as_millis());
                let memory = memory_bytes.to_string();
                let words =
                    ["serve", "--dir", &dir, "--listen", &listen, "--memory", &memory, "--grace"];
                return words.into_iter().map(str::to_owned).chain([grace]).collect();
            }
            Self::RedisRdb | Self::ValkeyRdb => ("3600 1 300 100 60 10000", "no", "everysec"),
            Self::RedisAofEverysec | Self::ValkeyAofEverysec => ("", "yes", "everysec"),
            Self::RedisAofAlways | Self::ValkeyAofAlways => ("", "yes", "always"),
            Self::RedisNothing => ("", "no", "everysec"),
        };
        let words = [
            ("--port", port.to_string()),
            ("--bind", "127.0.0.1".into()),
            ("--dir", dir),
            ("--save", snapshots.into()),
            ("--appendonly", log.into()),
            ("--appendfsync", sync.into()),
            ("--daemonize", "no".into()),
        ];
        words.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}

/// A running server. It and all that it started are killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    dir: PathBuf,
    log: PathBuf,
    /// Where it listens.
    pub address: String,
}

impl Server {
    /// Starts a server with its data in `dir`. Its output goes to the file `log`.
    pub fn start(
        kind: Kind,
        programs: &Programs,
        dir: &Path,
        log: &Path,
        memory_bytes: u64,
        grace: Duration,
    ) -> Result<Self, GraceError> {
        let program = kind.program(programs);
        let at = |error: std::io::Error| GraceError::Server {
            server: program.display().to_string(),
            why: error.to_string(),
            output: String::new(),
        };
        std::fs::create_dir_all(dir).map_err(at)?;
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = free.map_err(at)?.port();
        let output = File::create(log).map_err(at)?;
        let child = Command::new(program)
            .args(kind.words(dir, port, memory_bytes, grace))
            .env_remove("PERDURA_PASSWORD")
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(at)?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .map_err(at)?;
        let address = format!("127.0.0.1:{port}");
        Ok(Self { child, dir: dir.to_owned(), log: log.to_owned(), address })
    }

    /// Waits until it answers a question with the answer that `is_right` takes. Returns the time
    /// that this took.
    pub fn wait_for(
        &mut self,
        is_right: impl Fn(&mut Connection) -> bool,
        is_over: &AtomicBool,
    ) -> Result<Duration, GraceError> {
        let began = Instant::now();
        while began.elapsed() < START_WITHIN {
            if is_over.load(Ordering::Relaxed) {
                return Err(GraceError::Interrupted);
            }
            if let Ok(mut connection) = Connection::open(&self.address, None)
                && is_right(&mut connection)
            {
                return Ok(began.elapsed());
            }
            if !self.is_running() {
                return Err(self.failed("it ended, and did not serve"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(self.failed("it does not answer"))
    }

    /// Warns it: SIGTERM.
    pub fn warn(&self) {
        if let Some(pid) = self.pid() {
            // It may have ended.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Whether its process runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Whether it has ended by itself, and says that all is well.
    pub fn has_succeeded(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some_and(|status| status.success()))
    }

    /// Kills it, its children and its holder, as the end of the power does.
    pub fn kill(&mut self) {
        if let Some(group) = self.pid() {
            // They may have ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
        while let Some(pid) = user_of(&self.dir) {
            let _ = kill_process(pid, Signal::KILL);
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.child.id()).ok()?)
    }

    fn failed(&self, why: &str) -> GraceError {
        let output = std::fs::read(&self.log).unwrap_or_default();
        let shown = &output[output.len().saturating_sub(OUTPUT_SHOWN)..];
        GraceError::Server {
            server: self.dir.display().to_string(),
            why: why.to_owned(),
            output: String::from_utf8_lossy(shown).into_owned(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A process that names the directory on its command line, such as a holder.
fn user_of(dir: &Path) -> Option<Pid> {
    let dir = dir.as_os_str().as_encoded_bytes();
    let is_user = |pid: u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == dir)
    };
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let own = std::process::id();
    let found = pids.find(|pid: &u32| *pid != own && is_user(*pid))?;
    Pid::from_raw(i32::try_from(found).ok()?)
}
