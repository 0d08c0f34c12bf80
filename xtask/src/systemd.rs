//! `cargo xtask test-systemd`: a server beneath systemd with `Restart=always` and `RestartSec=0` is
//! killed under load again and again. Every start must succeed at once, and what was acknowledged
//! must be there.
//!
//! systemd is process 1 of namespaces of its own, whatever process 1 of the machine is. It needs
//! root.

mod manager;
mod namespace;

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::oracle::{Oracle, PIPELINE};
use crate::{run, served};
use manager::Manager;
pub use namespace::Namespace;

const NOBODY: u32 = 65534;
/// How many writes are acknowledged between two kills.
const WRITES: u64 = 160;
/// Words of the log while the server waits for an address.
const WAITS: &str = "waiting 2s at most";
/// The longest wait for another server.
const PATIENCE: Duration = Duration::from_secs(60);

struct Case {
    name: &'static str,
    /// Lines of the unit's section `[Service]`.
    settings: &'static str,
    options: &'static str,
    /// One kill in so many of those of the first case.
    share: u64,
}

const CASES: [Case; 4] = [
    Case {
        name: "the unit of docs/operating.md",
        settings: "KillMode=process\n",
        options: "",
        share: 1,
    },
    Case {
        name: "with epoll",
        settings: "KillMode=process\n",
        options: "--events epoll",
        share: 10,
    },
    Case {
        name: "systemd's own KillMode, which the holder escapes",
        settings: "",
        options: "",
        share: 10,
    },
    Case {
        name: "a user who may not leave the cgroup: systemd warns the holder, which flushes",
        settings: "User=65534\n",
        options: "",
        share: 10,
    },
];

/// Kills the server of the first case so many times, and those of the others a tenth of it.
pub fn test(kills: u64, perdura: Option<&str>) -> Result<()> {
    let perdura = served::program(perdura)?;
    for case in &CASES {
        let began = Instant::now();
        let found = case.run(&perdura, (kills / case.share).max(2));
        let found = found.with_context(|| format!("FAIL  {}", case.name))?;
        println!("ok    {}: {found}", case.name);
        eprintln!("  {:.0} s", began.elapsed().as_secs_f64());
    }
    Ok(())
}

impl Case {
    fn run(&self, perdura: &Path, kills: u64) -> Result<String> {
        let place = run::target()?.join("systemd");
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        let data = place.join("data");
        fs::create_dir_all(&data)?;
        chown(&data, Some(NOBODY), Some(NOBODY))?;
        fs::copy(perdura, place.join("perdura"))?;
        let address = format!("127.0.0.1:{}", served::free_port()?);
        let inside = PathBuf::from(format!("/run/perdura-{}", std::process::id()));
        let seen = inside.display();
        let unit = format!(
            "[Unit]\nDefaultDependencies=no\nStartLimitIntervalSec=0\n\n[Service]\nType=notify\n\
             ExecStart={seen}/perdura serve --dir {seen}/data --listen {address} --memory 256MiB \
             --budget 4MiB {}\nRestart=always\nRestartSec=0\nStandardError=append:{seen}/log\n{}",
            self.options, self.settings
        );
        let mut manager = Manager::start(&place, &inside, &unit)?;
        let log =
            || fs::read_to_string(place.join("log")).unwrap_or_else(|error| error.to_string());
        let pauses = kill_under_load(&address, &inside.join("data"), kills);
        let mut pauses = pauses.with_context(|| format!("the server's log: {}", log()))?;
        let restarts = manager.show("NRestarts")?;
        let waited = log().matches(WAITS).count();
        ensure!(
            restarts == kills.to_string() && waited == 0,
            "{kills} kills, {restarts} restarts, {waited} waits for an address: {}",
            log()
        );
        manager.systemctl(&["stop", "perdura.service"])?;
        let status = manager.show("ExecMainStatus")?;
        ensure!(status == "0", "the server ended with {status} when it was stopped: {}", log());
        pauses.sort();
        let of = |index: usize| pauses.get(index).map_or(0.0, Duration::as_secs_f64) * 1e3;
        Ok(format!(
            "{kills} kills, {restarts} restarts, none failed, none waited; served again after \
             {:.0} ms (median; {:.0} ms at most)",
            of(pauses.len() / 2),
            of(pauses.len().saturating_sub(1)),
        ))
    }
}

/// Kills the server again and again, and checks each time what the next one has. Returns the times
/// from each kill to the first connection after it.
fn kill_under_load(address: &str, data: &Path, kills: u64) -> Result<Vec<Duration>> {
    let (mut starts, mut pauses) = (vec![], Vec::new());
    let (mut pid, mut killed) = (None, Instant::now());
    let mut acked = 0;
    for kill in 0..=kills {
        let (mut oracle, next) = another(address, data, pid)?;
        if kill > 0 {
            pauses.push(killed.elapsed());
        }
        pid = Some(next);
        let found = oracle.verify(&starts).with_context(|| format!("kill {kill}"))?;
        let most = acked + PIPELINE;
        ensure!(
            (acked..=most).contains(&found),
            "kill {kill}: {acked} acknowledged, {found} found"
        );
        if kill == kills {
            break;
        }
        starts.push(found);
        let noted = Arc::new(AtomicU64::new(found));
        let (note, run) = (Arc::clone(&noted), starts.len() - 1);
        let writer = std::thread::spawn(move || {
            oracle.write(found, run, |n| note.store(n, Ordering::Release))
        });
        while noted.load(Ordering::Acquire) < found + WRITES {
            ensure!(!writer.is_finished(), "kill {kill}: the load ended early");
            std::thread::yield_now();
        }
        killed = Instant::now();
        kill_process(next, Signal::KILL)?;
        let written = writer.join().map_err(|_| anyhow!("the client panicked"))?;
        if let Some(refusal) = written.refusal {
            bail!("write {} was refused: {refusal:?}", written.acked);
        }
        acked = written.acked;
    }
    Ok(pauses)
}

/// Connects to a server that is not the process `not`.
fn another(address: &str, data: &Path, not: Option<Pid>) -> Result<(Oracle, Pid)> {
    let began = Instant::now();
    loop {
        if let (Some(pid), Ok(oracle)) =
            (served::process(data, "serve"), Oracle::try_connect(address))
            && Some(pid) != not
        {
            return Ok((oracle, pid));
        }
        ensure!(began.elapsed() < PATIENCE, "no server after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
