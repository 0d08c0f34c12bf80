//! `cargo xtask queues`: libraries for queues of jobs run over a server that is killed again and
//! again, and every job is accounted for.
//!
//! Each library's own program notes in files which jobs it was about to send, which of them the
//! library said it has, and which were carried out. So the server that is tested is never asked.
//! A job that the library has must be carried out at least once, and none but those that were sent.

mod account;
mod crew;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::served::{self, Served};
use crate::{python, run};
use account::Account;
use crew::Crew;

const SCRIPTS: &str = "xtask/src/queues";
/// With these sizes the log is compacted many times in ten minutes.
const SIZES: [&str; 4] = ["--memory", "256MiB", "--budget", "8MiB"];
/// When no further job has been carried out for so long, the missing ones are lost. RQ takes a job
/// that its worker had only half taken again after a minute.
const PATIENCE: Duration = Duration::from_secs(100);
const TURN: Duration = Duration::from_millis(100);

/// A library, its program, and what the program does at the same time.
pub struct Library {
    name: &'static str,
    script: &'static str,
    roles: &'static [&'static str],
}

const LIBRARIES: [Library; 3] = [
    Library {
        name: "rq",
        script: "rq_jobs.py",
        roles: &["produce", "produce", "work", "work", "mend"],
    },
    Library {
        name: "celery",
        script: "celery_jobs.py",
        roles: &["produce", "produce", "work", "work"],
    },
    Library { name: "bullmq", script: "bullmq_jobs.mjs", roles: &["produce", "produce", "work"] },
];

/// How the trial is run.
pub struct Trial<'w> {
    seconds: u64,
    every: u64,
    /// The only library; all without.
    library: Option<&'w str>,
    perdura: Option<&'w str>,
    /// Leave out the process that keeps the memory of a killed server: jobs must be lost then.
    no_holder: bool,
    /// Run a redis-server that syncs every write in the place of the server.
    redis: bool,
}

impl<'w> Trial<'w> {
    /// Reads the options of the command.
    pub fn parse(words: &[&'w str]) -> Result<Self> {
        let mut trial = Self {
            seconds: 600,
            every: 20,
            library: None,
            perdura: None,
            no_holder: false,
            redis: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} without a value"));
            match *word {
                "--seconds" => trial.seconds = value()?.parse().context("--seconds")?,
                "--every" => trial.every = value()?.parse().context("--every")?,
                "--library" => trial.library = Some(value()?),
                "--perdura" => trial.perdura = Some(value()?),
                "--redis" => trial.redis = true,
                "--no-holder" => trial.no_holder = true,
                other => bail!("queues: unknown option {other}"),
            }
        }
        ensure!(trial.every > 0, "--every 0: expected the seconds between two kills");
        Ok(trial)
    }

    /// Runs the libraries, kills the server, and accounts for each job.
    ///
    /// # Errors
    /// A job was lost, or the server did not come back.
    pub fn run(&self) -> Result<()> {
        let libraries: Vec<_> = LIBRARIES
            .iter()
            .filter(|one| self.library.is_none_or(|name| name == one.name))
            .collect();
        ensure!(
            !libraries.is_empty(),
            "--library {:?}: expected rq, celery or bullmq",
            self.library
        );
        let python = python::installed(
            &run::target()?.join("queues-python"),
            &format!("{SCRIPTS}/requirements.txt"),
        )?;
        let node = if libraries.iter().any(|one| one.script.ends_with(".mjs")) {
            Some(node_environment()?)
        } else {
            None
        };
        let place = run::target()?.join("queues");
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        let store = place.join("store");
        fs::create_dir_all(&store)?;
        let log = place.join("serve.log");
        let mut served = if self.redis {
            Served::redis(&store, &log)?
        } else {
            let perdura = served::program(self.perdura)?;
            let options: Vec<&str> =
                SIZES.into_iter().chain(self.no_holder.then_some("--no-holder")).collect();
            Served::start(&perdura, &store, &options, &log)?.0
        };
        let port = served.address().rsplit_once(':').context("an address without a port")?.1;
        let mut crews = Vec::new();
        for library in libraries {
            let folder = place.join(library.name);
            fs::create_dir(&folder)?;
            let program = match &node {
                Some(node) if library.script.ends_with(".mjs") => {
                    (PathBuf::from("node"), node.join(library.script))
                }
                _ => (python.clone(), Path::new(SCRIPTS).join(library.script)),
            };
            crews.push(Crew::start(library.name, program, library.roles, port, folder)?);
        }
        let restarts = self.kill_under_load(&mut served, &mut crews)?;
        let accounts = drain(&mut crews)?;
        drop(crews);
        served.warn()?;
        verdict(&accounts, &restarts)
    }

    /// Kills the server again and again. Returns the time of each restart.
    fn kill_under_load(&self, served: &mut Served, crews: &mut [Crew]) -> Result<Vec<Duration>> {
        let (began, mut restarts) = (Instant::now(), Vec::new());
        let every = Duration::from_secs(self.every);
        while began.elapsed() < Duration::from_secs(self.seconds) {
            std::thread::sleep(TURN);
            crews.iter_mut().try_for_each(Crew::revive)?;
            if began.elapsed() >= every * (restarts.len() as u32 + 1) {
                let restart = served.restart().with_context(|| served.said())?;
                eprintln!("  kill {}: served again after {restart:.0?}", restarts.len() + 1);
                restarts.push(restart);
            }
        }
        Ok(restarts)
    }
}

/// Stops who sends jobs, and waits until every job has been carried out, or no more come.
fn drain(crews: &mut [Crew]) -> Result<Vec<Account>> {
    crews.iter_mut().try_for_each(Crew::stop_producing)?;
    let (mut changed, mut left) = (Instant::now(), usize::MAX);
    loop {
        let accounts = crews.iter().map(Crew::account).collect::<Result<Vec<_>>>()?;
        let now = accounts.iter().map(Account::open).sum();
        if now != left {
            (changed, left) = (Instant::now(), now);
        }
        if left == 0 || changed.elapsed() > PATIENCE {
            return Ok(accounts);
        }
        std::thread::sleep(TURN);
        crews.iter_mut().try_for_each(Crew::revive)?;
    }
}

fn verdict(accounts: &[Account], restarts: &[Duration]) -> Result<()> {
    let mut sorted = restarts.to_vec();
    sorted.sort();
    let ms = |index: usize| sorted.get(index).map_or(0.0, Duration::as_secs_f64) * 1e3;
    println!(
        "{} kills; served again after {:.0} ms (median; {:.0} ms at most)",
        sorted.len(),
        ms(sorted.len() / 2),
        ms(sorted.len().saturating_sub(1)),
    );
    for account in accounts {
        println!("{account}");
    }
    let is_sound = accounts.iter().all(Account::is_sound);
    println!("{}", if is_sound { "PASS" } else { "FAIL" });
    ensure!(is_sound, "jobs were lost, or came from nowhere; see {}", run::target()?.display());
    Ok(())
}

/// A folder that has the scripts for node and the packages that they need.
fn node_environment() -> Result<PathBuf> {
    let place = run::target()?.join("queues-node");
    fs::create_dir_all(&place)?;
    let required = fs::read_to_string(format!("{SCRIPTS}/package.json"))?;
    let installed = fs::read_to_string(place.join("package.json")).unwrap_or_default();
    if installed != required || !place.join("node_modules").exists() {
        fs::write(place.join("package.json"), &required)?;
        let mut npm = std::process::Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]).arg(&place);
        run::run(&mut npm).context("packages of npm; the network is needed once")?;
    }
    for library in LIBRARIES.iter().filter(|one| one.script.ends_with(".mjs")) {
        fs::copy(Path::new(SCRIPTS).join(library.script), place.join(library.script))?;
    }
    Ok(place)
}
