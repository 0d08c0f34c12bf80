//! A `perdura serve` that is started for the time of a run.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Figures, FinalFlush, RedisTarget, Session, Target, TargetError};
use crate::workload::Layout;

/// Longest time until a server answers. It may measure its device's rate first.
const START_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Attempts to start: a free port may be taken before the server binds it.
const ATTEMPTS: usize = 5;
/// Longest time for a server's flush.
const STOP_WITHIN: Duration = Duration::from_secs(120);

/// The settings of a server.
#[derive(Debug, Clone)]
pub struct SpawnOptions {
    /// The program, without `serve`.
    pub program: PathBuf,
    /// Folder for its data, which are removed at the end.
    pub dir: PathBuf,
    /// Memory of the server, bytes.
    pub memory_bytes: u64,
    /// Budget of the server, bytes.
    pub budget_bytes: u64,
    /// Further options of `serve`.
    pub extra: Vec<String>,
}

/// A running server. It is stopped with a flush at the end, and by its destructor if the run fails.
#[derive(Debug)]
pub struct SpawnedTarget {
    child: Option<Child>,
    redis: RedisTarget,
    _dir: tempfile::TempDir,
}

impl SpawnedTarget {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// The server does not start; its output is kept then.
    pub fn start(
        options: &SpawnOptions,
        layout: &Layout,
        indexed: bool,
    ) -> Result<Self, TargetError> {
        let at = |source| TargetError::File { path: options.dir.clone(), source };
        std::fs::create_dir_all(&options.dir).map_err(at)?;
        let dir = tempfile::tempdir_in(&options.dir).map_err(at)?;
        for _ in 0..ATTEMPTS {
            let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
            let address = format!("127.0.0.1:{}", port.map_err(at)?.port());
            let log = std::fs::File::create(dir.path().join(LOG_NAME)).map_err(at)?;
            let mut child = Guarded(Some(launch(options, &dir, &address, log)?));
            if wait_for(&mut child, &address) {
                let redis = RedisTarget::connect(&address, None, layout.clone(), indexed)?;
                return Ok(Self { child: child.0.take(), redis, _dir: dir });
            }
        }
        let log = dir.keep().join(LOG_NAME);
        Err(TargetError::Spawned { what: "did not begin to serve", log })
    }
}

const LOG_NAME: &str = "serve.log";

fn launch(
    options: &SpawnOptions,
    dir: &tempfile::TempDir,
    address: &str,
    log: std::fs::File,
) -> Result<Child, TargetError> {
    let at = |source| TargetError::File { path: options.program.clone(), source };
    Command::new(&options.program)
        .args(["serve", "--listen", address, "--dir"])
        .arg(dir.path().join("data"))
        .args(["--memory", &options.memory_bytes.to_string()])
        .args(["--budget", &options.budget_bytes.to_string()])
        // The budget is given, so the warning is long enough for any budget.
        .args(["--grace", "10m"])
        .args(&options.extra)
        .env_remove("PERDURA_PASSWORD")
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(at)?)
        .stderr(log)
        .spawn()
        .map_err(at)
}

/// Whether the server that is our child listens at the address.
fn wait_for(child: &mut Guarded, address: &str) -> bool {
    let began = Instant::now();
    let Some(child) = &mut child.0 else { return false };
    while began.elapsed() < START_WITHIN && matches!(child.try_wait(), Ok(None)) {
        let layout = Layout::new(crate::workload::RecordKind::String, 1, 1, false);
        let found = RedisTarget::connect(address, None, layout, false);
        if found.is_ok_and(|found| found.pid() == Some(child.id())) {
            return true;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    false
}

/// A child process that is killed when this is dropped, unless it was taken out.
struct Guarded(Option<Child>);

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // The process may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Target for SpawnedTarget {
    fn describe(&self) -> String {
        self.redis.describe()
    }

    fn session(&self, pipeline: usize) -> Result<Box<dyn Session + '_>, TargetError> {
        self.redis.session(pipeline)
    }

    fn figures(&self) -> Result<Figures, TargetError> {
        self.redis.figures()
    }

    fn cpu_ns(&self) -> Option<u64> {
        self.redis.cpu_ns()
    }

    /// Stops the server with SIGTERM, as a service manager does. The bytes are those that were
    /// dirty; the server writes a little more.
    fn finish(&mut self) -> Result<Option<FinalFlush>, TargetError> {
        let device_bytes = self.redis.figures()?.get("dirty_bytes").unwrap_or(0);
        let Some(mut child) = self.child.take().map(|child| Guarded(Some(child))) else {
            return Ok(None);
        };
        let began = Instant::now();
        if let Some(child) = &mut child.0 {
            terminate(child);
            while began.elapsed() < STOP_WITHIN && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let elapsed_ns = began.elapsed().as_nanos() as u64;
        Ok(Some(FinalFlush { device_bytes, elapsed_ns }))
    }
}

impl Drop for SpawnedTarget {
    fn drop(&mut self) {
        // Stopped with a flush even if the run failed: a server that is killed leaves a holder with
        // its memory.
        if let Some(mut child) = self.child.take() {
            terminate(&child);
            let began = Instant::now();
            while began.elapsed() < STOP_WITHIN && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(LOOK_EVERY);
            }
            drop(Guarded(Some(child)));
        }
    }
}

fn terminate(child: &Child) {
    if let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32) {
        // The child was not waited for, so its number is still its own. It may have ended, which is
        // no error.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}
