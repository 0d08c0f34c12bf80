//! The server that is moved away from: a Redis or a Valkey of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::served::{answers, free_port};

const PATIENCE: Duration = Duration::from_secs(120);

/// A running Redis or Valkey; killed when dropped.
pub struct Source {
    program: PathBuf,
    dir: PathBuf,
    port: u16,
    child: Child,
}

impl Source {
    /// Starts the server in a directory, from the dump there if there is one.
    pub fn start(program: &Path, dir: &Path) -> Result<Self> {
        let port = free_port()?;
        let child = spawn(program, dir, port)?;
        let source = Self { program: program.to_owned(), dir: dir.to_owned(), port, child };
        source.wait()?;
        Ok(source)
    }

    /// The port that the server listens on.
    pub fn port(&self) -> String {
        self.port.to_string()
    }

    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts the killed server anew, from its last dump.
    pub fn again(&mut self) -> Result<()> {
        self.child = spawn(&self.program, &self.dir, self.port)?;
        self.wait()
    }

    fn wait(&self) -> Result<()> {
        let began = Instant::now();
        while !answers(&format!("127.0.0.1:{}", self.port)) {
            ensure!(began.elapsed() < PATIENCE, "{} does not start", self.program.display());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // It fails if the process has ended, which does no harm.
        let _ = self.kill();
    }
}

fn spawn(program: &Path, dir: &Path, port: u16) -> Result<Child> {
    let log = File::options().create(true).append(true).open(dir.join("log"))?;
    let mut command = Command::new(program);
    command.args(["--port", &port.to_string(), "--save", "", "--repl-diskless-sync-delay", "0"]);
    // Changes that are made during the full sync wait in the source's memory.
    command.args(["--client-output-buffer-limit", "replica 0 0 0", "--dir"]).arg(dir);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| program.display().to_string())
}
