//! A `perdura serve` of the commands that kill it, and its holder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::oracle::Oracle;
use crate::run;

/// The longest wait for a server's or a holder's start or end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program at `path`, or the one of this workspace, which is built.
pub fn program(path: Option<&str>) -> Result<PathBuf> {
    if let Some(path) = path {
        return fs::canonicalize(path).with_context(|| format!("--perdura {path}"));
    }
    run::cargo(&["build", "--quiet", "-p", "perdura-cli"])?;
    Ok(run::target()?.join("debug/perdura"))
}

/// A running server; killed when dropped.
pub struct Served {
    child: Child,
    port: u16,
    dir: PathBuf,
    log: PathBuf,
}

impl Served {
    /// Starts the server, whose output goes to the file `log`, and connects to it.
    pub fn start(
        perdura: &Path,
        dir: &Path,
        options: &[&str],
        log: &Path,
    ) -> Result<(Self, Oracle)> {
        let port = free_port()?;
        let address = format!("127.0.0.1:{port}");
        let (out, err) = (File::create(log)?, File::options().append(true).open(log)?);
        let mut program = Command::new(perdura);
        program.args(["serve", "--listen", &address, "--dir"]).arg(dir).args(options);
        let child = program.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        let child = child.with_context(|| format!("{program:?}"))?;
        let mut served = Self { child, port, dir: dir.to_owned(), log: log.to_owned() };
        let began = Instant::now();
        loop {
            if let Ok(oracle) = Oracle::try_connect(&address) {
                return Ok((served, oracle));
            }
            if let Some(status) = served.child.try_wait()? {
                bail!("the server ended with {status}: {}", served.said());
            }
            ensure!(began.elapsed() < PATIENCE, "the server does not start: {}", served.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Where it listens on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server and its holder, so that nothing is left of its memory.
    pub fn kill_with_holder(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        let began = Instant::now();
        while let Some(holder) = process(&self.dir, "holder") {
            ensure!(began.elapsed() < PATIENCE, "the holder does not end");
            // It may have ended in the meantime.
            let _ = kill_process(holder, Signal::KILL);
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Warns the server, and waits until it has ended with success.
    pub fn warn(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let began = Instant::now();
        while self.child.try_wait()?.is_none() || process(&self.dir, "holder").is_some() {
            ensure!(began.elapsed() < PATIENCE, "the server does not end: {}", self.said());
            std::thread::sleep(Duration::from_millis(2));
        }
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}: {}", self.said());
        Ok(())
    }

    /// What the server has printed.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_else(|error| error.to_string())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // All of it fails if the processes have ended, which does no harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(holder) = process(&self.dir, "holder") {
            let _ = kill_process(holder, Signal::KILL);
        }
    }
}

/// The process that runs this command of `perdura` for the directory, found by its command line.
pub fn process(dir: &Path, command: &str) -> Option<Pid> {
    let name = dir.as_os_str().as_encoded_bytes();
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let id: i32 = entry.file_name().to_str()?.parse().ok()?;
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<_> = words.split(|byte| *byte == 0).collect();
        let is_wanted = words.get(1) == Some(&command.as_bytes()) && words.contains(&name);
        if is_wanted { Pid::from_raw(id) } else { None }
    })
}

/// A port that nobody listens on now.
pub fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
