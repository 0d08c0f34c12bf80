//! The two servers of the measurement, as processes that speak the Redis protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// How many commands are under way at once while a server is filled.
const PIPELINE: u64 = 256;
/// The longest wait for a server's first answer.
const START_MAX: Duration = Duration::from_secs(120);

/// A running server, which begins with an empty folder and is killed when dropped.
pub struct Server {
    name: &'static str,
    child: Child,
    client: BufReader<TcpStream>,
}

impl Server {
    pub fn redis(dir: &Path) -> Result<Self> {
        let mut program = Command::new("redis-server");
        program.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
        // The values are random bytes, which compression would only slow down.
        program.args(["--rdbcompression", "no"]);
        Self::start("redis-server", &mut program, dir, "--port", |port| port.to_string())
    }

    /// Starts a server with room for `size_mib` MiB of values.
    pub fn perdura(dir: &Path, size_mib: u64, budget: &str) -> Result<Self> {
        let mut program = Command::new("target/release/perdura");
        let memory = format!("{}MiB", size_mib * 7 / 5 + 256);
        program.args(["serve", "--memory", &memory, "--budget", budget, "--log", "130%"]);
        program.args(["--grace", "120s"]);
        Self::start("perdura", &mut program, dir, "--listen", |port| format!("127.0.0.1:{port}"))
    }

    fn start(
        name: &'static str,
        program: &mut Command,
        dir: &Path,
        listen: &str,
        address: impl Fn(u16) -> String,
    ) -> Result<Self> {
        let dir = dir.join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
        }
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = program
            .args([listen, &address(port), "--dir"])
            .arg(&dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{name} does not start: is it installed?"))?;
        let client = connect(port).with_context(|| format!("{name} does not answer"))?;
        let mut server = Self { name, child, client: BufReader::new(client) };
        ensure!(server.ask(&["PING"])? == "PONG", "{name} does not answer PING");
        Ok(server)
    }

    pub fn name(&self) -> &str {
        self.name
    }

    /// Sets `keys` keys, each to random bytes that follow from the seed.
    pub fn fill(&mut self, keys: u64, value_bytes: usize, seed: u64) -> Result<()> {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut batch = Vec::new();
        for first in (0..keys).step_by(PIPELINE as usize) {
            batch.clear();
            let last = keys.min(first + PIPELINE);
            for key in first..last {
                let head = format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n${value_bytes}\r\n");
                batch.extend_from_slice(head.as_bytes());
                for at in 0..value_bytes {
                    if at % 8 == 0 {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                    }
                    batch.push(random.to_le_bytes()[at % 8]);
                }
                batch.extend_from_slice(b"\r\n");
            }
            self.client.get_mut().write_all(&batch)?;
            for _ in first..last {
                let reply = self.reply()?;
                ensure!(reply == "OK", "{}: SET was answered {reply:?}", self.name);
            }
        }
        Ok(())
    }

    pub fn keys(&mut self) -> Result<u64> {
        self.ask(&["DBSIZE"])?.parse().context("DBSIZE")
    }

    /// Saves, and returns the seconds that the client waited.
    pub fn save(&mut self) -> Result<f64> {
        let began = Instant::now();
        let reply = self.ask(&["SAVE"])?;
        ensure!(reply == "OK", "SAVE was answered {reply:?}");
        Ok(began.elapsed().as_secs_f64())
    }

    /// Flushes a full budget, and returns the seconds of the flush as the server timed it.
    pub fn drill(&mut self) -> Result<f64> {
        let text = self.ask(&["PERDURA", "DRILL"])?;
        let field = |name: &str| -> Result<u64> {
            let lines = text.lines().filter_map(|line| line.split_once(':'));
            let value = lines.filter(|(field, _)| *field == name).map(|(_, value)| value).next();
            value
                .and_then(|value| value.trim().parse().ok())
                .with_context(|| format!("{name}: {text}"))
        };
        let (used, budget) = (field("used_bytes")?, field("budget_bytes")?);
        ensure!(used >= budget / 100 * 98, "the drill flushed {used} B of a budget of {budget} B");
        Ok(field("elapsed_ns")? as f64 / 1e9)
    }

    /// Ends the server and waits for it.
    pub fn end(mut self) -> Result<()> {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-TERM", &pid]).status().context("kill")?;
        ensure!(status.success(), "kill -TERM {pid}: {status}");
        let ended = self.child.wait().context(self.name)?;
        ensure!(ended.success(), "{} ended with {ended}", self.name);
        Ok(())
    }

    fn ask(&mut self, words: &[&str]) -> Result<String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.client.get_mut().write_all(request.as_bytes())?;
        self.reply()
    }

    /// Reads a reply that is a simple string, a number or a bulk string.
    fn reply(&mut self) -> Result<String> {
        let mut head = String::new();
        self.client.read_line(&mut head)?;
        let head = head.trim_end();
        match head.split_at_checked(1) {
            Some(("+" | ":", text)) => Ok(text.to_owned()),
            Some(("$" | "=", len)) => {
                let len: usize = len.parse().with_context(|| format!("{}: {head:?}", self.name))?;
                let mut bytes = vec![0; len + 2];
                self.client.read_exact(&mut bytes)?;
                Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
            }
            _ => bail!("{} answered {head:?}", self.name),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail if the server has ended, which does no harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects to a server that is starting, and tries again until [`START_MAX`] has passed.
fn connect(port: u16) -> Result<TcpStream> {
    let began = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return Ok(stream),
            Err(error) if began.elapsed() > START_MAX => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
