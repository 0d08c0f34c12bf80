//! `cargo xtask moving`: a Redis or Valkey under load is moved to a Perdura, and every key is
//! compared afterwards.
//!
//! A script over another client library, which shares no code with Perdura, fills, writes and
//! compares. The other cases break the move off in its middle, and repeat it.

mod source;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::served::{self, Served};
use crate::{python, run};
use source::Source;

const SCRIPT: &str = "xtask/src/moving/moving.py";
const SIZES: [&str; 4] = ["--memory", "3GiB", "--budget", "16MiB"];
const WRITERS: usize = 3;
/// The longest time from a fault to the end of the import.
const PATIENCE: Duration = Duration::from_secs(90);

/// How the trial is run.
pub struct Trial<'w> {
    seconds: u64,
    keys: &'w str,
    source: &'w str,
    perdura: Option<&'w str>,
    /// Do not stop the source's writers: keys must be missing then.
    no_pause: bool,
}

/// The process that is ended in the middle of a move.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Source,
    Importer,
    Server,
    /// The server, while the import follows the source's changes.
    ServerLater,
}

/// The place and the programs of one case.
struct Place {
    dir: PathBuf,
    perdura: PathBuf,
    python: PathBuf,
    source: Source,
    served: Served,
}

impl<'w> Trial<'w> {
    /// Reads the options of the command.
    pub fn parse(words: &[&'w str]) -> Result<Self> {
        let mut trial = Self {
            seconds: 10,
            keys: "200000",
            source: "redis-server",
            perdura: None,
            no_pause: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} without a value"));
            match *word {
                "--seconds" => trial.seconds = value()?.parse().context("--seconds")?,
                "--keys" => trial.keys = value()?,
                "--source" => trial.source = value()?,
                "--perdura" => trial.perdura = Some(value()?),
                "--no-pause" => trial.no_pause = true,
                other => bail!("moving: unknown option {other}"),
            }
        }
        Ok(trial)
    }

    /// Moves under load, then with each fault.
    ///
    /// # Errors
    /// Something is missing after a move, or a broken move was not noticed.
    pub fn run(&self) -> Result<()> {
        let perdura = served::program(self.perdura)?;
        let environment = run::target()?.join("queues-python");
        let python = python::installed(&environment, "xtask/src/queues/requirements.txt")?;
        let dir = run::target()?.join("moving");
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        let (store, other) = (dir.join("store"), dir.join("source"));
        fs::create_dir_all(&store)?;
        fs::create_dir_all(&other)?;
        let source = Source::start(Path::new(self.source), &other)?;
        let (served, _) = Served::start(&perdura, &store, &SIZES, &dir.join("serve.log"))?;
        let mut place = Place { dir, perdura, python, source, served };
        run::run(&mut place.script(&["fill", &place.source.port(), self.keys]))?;
        place.ask_source(&["SAVE"])?;
        let mut outcome = Ok(());
        if !self.no_pause {
            for fault in [Fault::Source, Fault::Importer, Fault::Server] {
                outcome = outcome.and(place.report(&format!("{fault:?} killed"), |place| {
                    place.break_off(fault)?;
                    place.move_all(&["--flush", "--promote"])
                }));
            }
        }
        let name = format!("under load for {} s", self.seconds);
        outcome = outcome.and(place.report(&name, |place| self.move_under_load(place)));
        println!("{}", if outcome.is_ok() { "PASS" } else { "FAIL" });
        let dir = place.dir.clone();
        drop(place);
        outcome?;
        fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())
    }

    fn move_under_load(&self, place: &mut Place) -> Result<String> {
        let mut writers = Vec::new();
        for number in 0..WRITERS {
            let (port, folder) = (place.source.port(), place.folder());
            let mut program = place.script(&["write", &port, &folder, &number.to_string()]);
            writers.push(Running(program.spawn()?));
        }
        if !self.no_pause {
            place.break_off(Fault::ServerLater)?;
        }
        std::thread::sleep(Duration::from_secs(self.seconds));
        let pause: &[&str] = if self.no_pause { &["--pause", "0s"] } else { &[] };
        let options = [&["--flush", "--promote"], pause].concat();
        let said = finished(place.import(&options)?)?;
        ensure!(said.0, "the import failed: {}", said.1);
        if self.no_pause {
            std::thread::sleep(Duration::from_secs(1));
        }
        place.ask_source(&["CLIENT", "KILL", "TYPE", "normal"])?;
        let unfinished = place.dir.join("moved.new");
        fs::write(&unfinished, place.port()?)?;
        fs::rename(unfinished, place.dir.join("moved"))?;
        for writer in &mut writers {
            let status = writer.0.wait()?;
            ensure!(status.success(), "a writer ended with {status}");
        }
        Ok(format!("{}\n  {}", place.compare()?, said.1.replace('\n', "\n  ")))
    }
}

impl Place {
    fn report(&mut self, name: &str, case: impl FnOnce(&mut Self) -> Result<String>) -> Result<()> {
        let outcome = case(self);
        match &outcome {
            Ok(said) => println!("ok    {name}: {said}"),
            Err(error) => println!("FAIL  {name}: {error:#}"),
        }
        outcome.map(drop)
    }

    /// Imports, and kills one of the three in the middle.
    fn break_off(&mut self, fault: Fault) -> Result<()> {
        let is_later = fault == Fault::ServerLater;
        // Otherwise the keys of the case before would count as those of this import.
        ask(self.port()?, &["FLUSHALL"])?;
        let mut import =
            self.import(if is_later { &["--flush"] } else { &["--flush", "--promote"] })?;
        let began = Instant::now();
        // Half of the keys are in database 0, and those are in the dump's first part.
        while self.keys()? < 2_000 {
            ensure!(
                import.0.try_wait()?.is_none(),
                "the import ended early: {:?}",
                finished(import)?
            );
            ensure!(began.elapsed() < PATIENCE, "the import brings no keys");
            std::thread::sleep(Duration::from_millis(1));
        }
        if is_later {
            // The last key of the dump has come when the source says that its replica is in step.
            let in_step = || self.ask_source(&["INFO", "replication"]);
            while !in_step()?.contains("state=online") {
                ensure!(began.elapsed() < PATIENCE, "the import does not reach the source");
                std::thread::sleep(Duration::from_millis(10));
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        let killed = Instant::now();
        match fault {
            Fault::Source => self.source.kill()?,
            Fault::Importer => import.0.kill()?,
            Fault::Server | Fault::ServerLater => drop(self.served.restart()?),
        }
        let (succeeded, said) = finished(import)?;
        ensure!(!succeeded, "{fault:?} was killed, and the import succeeded: {said}");
        ensure!(
            killed.elapsed() < PATIENCE,
            "{fault:?} was killed, and the import went on: {said}"
        );
        if fault == Fault::Source {
            ensure!(said.contains("source"), "the import does not name the source: {said}");
            self.source.again()?;
        }
        ensure!(self.keys()? > 0, "nothing is left of the import");
        let (succeeded, said) = finished(self.import(&["--promote"])?)?;
        ensure!(!succeeded && said.contains("--flush"), "a second import was not refused: {said}");
        Ok(())
    }

    fn move_all(&self, options: &[&str]) -> Result<String> {
        let (succeeded, said) = finished(self.import(options)?)?;
        ensure!(succeeded, "the import failed: {said}");
        self.compare()
    }

    fn import(&self, options: &[&str]) -> Result<Running> {
        let mut program = Command::new(&self.perdura);
        let from = format!("redis://127.0.0.1:{}", self.source.port());
        program.args(["import", &from, "--to", self.served.address()]).args(options);
        program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Running(program.spawn()?))
    }

    fn compare(&self) -> Result<String> {
        let words = ["compare", &self.source.port(), self.port()?, &self.folder()];
        let Output { status, stdout, stderr } = self.script(&words).output()?;
        let said = String::from_utf8_lossy(&[stdout, stderr].concat()).trim().to_owned();
        ensure!(status.success(), "the servers differ: {said}");
        Ok(said)
    }

    fn script(&self, words: &[&str]) -> Command {
        let mut program = Command::new(&self.python);
        program.arg(SCRIPT).args(words).stdin(Stdio::null());
        program
    }

    /// Keys of the server's database 0.
    fn keys(&self) -> Result<u64> {
        let said = ask(self.port()?, &["DBSIZE"])?;
        said.parse().with_context(|| format!("DBSIZE: {said}"))
    }

    fn ask_source(&self, words: &[&str]) -> Result<String> {
        ask(&self.source.port(), words)
    }

    fn port(&self) -> Result<&str> {
        Ok(self.served.address().rsplit_once(':').context("an address without a port")?.1)
    }

    fn folder(&self) -> String {
        self.dir.display().to_string()
    }
}

/// A running process; killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It fails if the process has ended, which does no harm.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for the end of an import. Returns whether it succeeded, and its words.
fn finished(mut import: Running) -> Result<(bool, String)> {
    let mut said = String::new();
    for from in [
        import.0.stdout.take().map(|out| Box::new(out) as Box<dyn std::io::Read>),
        import.0.stderr.take().map(|err| Box::new(err) as Box<dyn std::io::Read>),
    ] {
        std::io::Read::read_to_string(&mut from.context("an import without output")?, &mut said)?;
    }
    Ok((import.0.wait()?.success(), said.trim().to_owned()))
}

/// The output of `redis-cli` for a command.
fn ask(port: &str, words: &[&str]) -> Result<String> {
    let output = Command::new("redis-cli").args(["-p", port]).args(words).output()?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(output.status.success() && !said.starts_with("ERR"), "{words:?}: {said}");
    Ok(said)
}
