//! A `perdura serve` of our own, for the time of a run.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Figures, FinalFlush, RedisTarget, Session, Target, TargetError};
use crate::workload::Layout;

/// A server may prove its device's rate first.
const START_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A port seen free may be taken by the time the server binds it.
const ATTEMPTS: usize = 5;
/// How long a server may take to flush.
const STOP_WITHIN: Duration = Duration::from_secs(120);

/// What to start.
#[derive(Debug, Clone)]
pub struct SpawnOptions {
    /// The program, without `serve`.
    pub program: PathBuf,
    /// Folder for its data, which are removed at the end.
    pub dir: PathBuf,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Budget, bytes.
    pub budget_bytes: u64,
    /// Further options of `serve`.
    pub extra: Vec<String>,
}

/// A running server; stopped with a flush at the end, killed if the run fails.
#[derive(Debug)]
pub struct SpawnedTarget {
    child: Option<Child>,
    redis: RedisTarget,
    _dir: tempfile::TempDir,
}

impl SpawnedTarget {
    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// It does not start; its words are kept then.
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
        // A budget is what is measured here, not a warning: any fits.
        .args(["--grace", "10m"])
        .args(&options.extra)
        .env_remove("PERDURA_PASSWORD")
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(at)?)
        .stderr(log)
        .spawn()
        .map_err(at)
}

/// Whether the server that is our child listens there.
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

/// Killed unless taken.
struct Guarded(Option<Child>);

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Gone already, or going now.
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

    /// SIGTERM, as a service manager stops it. The bytes are those that were dirty: what it then
    /// writes is a little more.
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
        // A flush also when the run failed: a server that is killed leaves a holder with its
        // memory.
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
        // It is our child and not waited for, so the number is still its own; gone already is fine.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}
