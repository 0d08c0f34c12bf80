//! The servers of a table, which are started and killed here, with data of their own.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::AnyError;
use crate::settings::Settings;
use crate::side::Side;

pub struct Server {
    name: String,
    child: Child,
    address: String,
    data: PathBuf,
}

impl Server {
    /// Starts Perdura at the first port.
    pub fn perdura(
        program: &str,
        settings: &Settings,
        directory: &str,
        durable: bool,
    ) -> Result<Self, AnyError> {
        Self::perdura_at(program, settings, directory, durable, (settings.port, &settings.budget))
    }

    /// Starts Perdura at a port, with a budget.
    pub fn perdura_at(
        program: &str,
        settings: &Settings,
        directory: &str,
        durable: bool,
        (port, budget): (u16, &str),
    ) -> Result<Self, AnyError> {
        let data = Path::new(directory).join(format!("plain-client-perdura-{port}"));
        let mut command = Command::new(program);
        command.args(["serve", "--memory", &settings.memory, "--budget", budget]);
        command.args(["--holder-wait", "1s"]);
        if let Some(threads) = &settings.threads {
            command.args(["--threads", threads]);
        }
        command.args(["--durability", if durable { "fsync" } else { "warned" }]);
        command.arg("--dir").arg(&data).arg("--port").arg(port.to_string());
        Self::start(&format!("perdura with {budget}"), command, port, data)
    }

    /// Starts Redis or Valkey at a port, without snapshots.
    pub fn redis(
        name: &str,
        program: &str,
        directory: &str,
        durable: bool,
        port: u16,
    ) -> Result<Self, AnyError> {
        let data = Path::new(directory).join(format!("plain-client-redis-{port}"));
        let mut command = Command::new(program);
        command.args(["--save", "", "--auto-aof-rewrite-percentage", "0"]);
        command.args(["--appendonly", if durable { "yes" } else { "no" }]);
        command.args(["--appendfsync", "always", "--bind", "127.0.0.1"]);
        command.arg("--dir").arg(&data).arg("--port").arg(port.to_string());
        Self::start(name, command, port, data)
    }

    fn start(name: &str, mut command: Command, port: u16, data: PathBuf) -> Result<Self, AnyError> {
        let address = format!("127.0.0.1:{port}");
        if TcpStream::connect(&address).is_ok() {
            return Err(format!("{address} is in use already").into());
        }
        std::fs::create_dir_all(&data)?;
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.map_err(|e| format!("{:?}: {e}", command.get_program()))?;
        let mut server = Self { name: name.into(), child, address, data };
        let began = Instant::now();
        while TcpStream::connect(&server.address).is_err() {
            if let Some(status) = server.child.try_wait()? {
                return Err(format!("{command:?} has ended: {status}").into());
            }
            if began.elapsed() > Duration::from_secs(120) {
                return Err(format!("{command:?} does not listen").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// The server as a side of measurements.
    pub fn side(&self) -> Side {
        Side::new(&self.name, &self.address, self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that has ended by itself is no failure of the measurement that is over.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}
