//! A `perdura serve` of the commands that kill it, and its holder.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
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
    program: Command,
    address: String,
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
        let mut program = Command::new(perdura);
        program.args(["serve", "--listen", &address, "--dir"]).arg(dir).args(options);
        let served = Self::launch(program, address, dir, log)?;
        let oracle = Oracle::try_connect(&served.address)?;
        Ok((served, oracle))
    }

    /// Starts a redis-server that has each write on its disk before it answers.
    pub fn redis(dir: &Path, log: &Path) -> Result<Self> {
        let port = free_port()?.to_string();
        let mut program = Command::new("redis-server");
        program.args(["--port", &port, "--appendonly", "yes", "--appendfsync", "always", "--dir"]);
        program.arg(dir);
        Self::launch(program, format!("127.0.0.1:{port}"), dir, log)
    }

    fn launch(mut program: Command, address: String, dir: &Path, log: &Path) -> Result<Self> {
        let child = spawn(&mut program, File::create(log)?)?;
        let (dir, log) = (dir.to_owned(), log.to_owned());
        let mut served = Self { child, program, address, dir, log };
        served.wait_until_it_answers()?;
        Ok(served)
    }

    /// The address that the server listens on.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Kills the server without its holder, and starts another with the same options in the same
    /// directory. Returns the time from the kill to the first answer.
    pub fn restart(&mut self) -> Result<Duration> {
        let began = Instant::now();
        self.child.kill()?;
        self.child.wait()?;
        self.child = spawn(&mut self.program, File::options().append(true).open(&self.log)?)?;
        self.wait_until_it_answers()?;
        Ok(began.elapsed())
    }

    fn wait_until_it_answers(&mut self) -> Result<()> {
        let began = Instant::now();
        while !answers(&self.address) {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status}: {}", self.said());
            }
            ensure!(began.elapsed() < PATIENCE, "the server does not start: {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
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

fn spawn(program: &mut Command, log: File) -> Result<Child> {
    program.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    program.spawn().with_context(|| format!("{program:?}"))
}

/// Whether a server at the address answers `PING`.
pub fn answers(address: &str) -> bool {
    let ask = || -> std::io::Result<[u8; 7]> {
        let mut connection = TcpStream::connect(address)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.write_all(b"PING\r\n")?;
        let mut reply = [0; 7];
        connection.read_exact(&mut reply)?;
        Ok(reply)
    };
    ask().is_ok_and(|reply| reply == *b"+PONG\r\n")
}

/// A port that nobody listens on now.
pub fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
