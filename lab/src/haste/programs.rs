//! Unmodified databases: transactional updates of Berkeley DB, and queries in SQLite on databases
//! of the same shape as the slides'.
//!
//! A program runs once while its requests are recorded (`perdura-lab run --record`); the recording
//! is replayed on every system. A second run at the real pace of a fast system shows the error of
//! the model.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use perdura_media::model::Model;
use perdura_media::profile::System;
use perdura_media::recording::{Kind, Recording, RecordingError, replay};

use super::HasteSettings;
use super::kernels::Scale;
use super::result::{PaceCheck, ProgramResult, TimeOn};

/// Why a program could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The program, or a library it needs, is not installed.
    #[error("{needs}")]
    Missing {
        /// The package to install.
        needs: String,
    },
    /// The program could not be started, or its files could not be created.
    #[error("{what}: {source}")]
    System {
        /// The action that failed.
        what: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The program ended with an error.
    #[error("{name}, {phase}, ended with {status}: {said}")]
    Failed {
        /// Name of the program.
        name: &'static str,
        /// Phase in which it ended: loading or asking.
        phase: &'static str,
        /// Exit status or signal.
        status: String,
        /// The last lines that it printed.
        said: String,
    },
    /// The recording of the program cannot be read.
    #[error("{name}: {source}")]
    Recording {
        /// Name of the program.
        name: &'static str,
        /// What is wrong with the recording.
        #[source]
        source: RecordingError,
    },
    /// The program made more requests than the recording has room for.
    #[error("{name}: {requests} requests more than the recording holds")]
    CutOff {
        /// Name of the program.
        name: &'static str,
        /// Requests that were left out.
        requests: u64,
    },
}

/// A database program and its data.
pub(super) struct Program {
    pub(super) name: &'static str,
    about: &'static str,
    paper_footprint_bytes: u64,
    kind: ProgramKind,
}

#[derive(Clone, Copy)]
enum ProgramKind {
    Berkeley(&'static str),
    Queries(&'static str),
}

pub(super) const ALL: [Program; 4] = [
    Program {
        name: "Berkeley-DB Btree",
        about: "transactional updates of a B-tree, one record each, a commit each",
        paper_footprint_bytes: 16_000_000_000,
        kind: ProgramKind::Berkeley("btree"),
    },
    Program {
        name: "Berkeley-DB HashTable",
        about: "transactional updates of a hash table, one record each, a commit each",
        paper_footprint_bytes: 16_000_000_000,
        kind: ProgramKind::Berkeley("hash"),
    },
    Program {
        name: "Biology",
        about: "instead of BiologicalNetworks: genes of a kind two interactions away, SQLite on a \
                generated catalogue",
        paper_footprint_bytes: 35_000_000_000,
        kind: ProgramKind::Queries("biology"),
    },
    Program {
        name: "Sky survey",
        about: "instead of PTF: objects in a cone whose brightness changed, SQLite on a generated \
                catalogue",
        paper_footprint_bytes: 50_000_000_000,
        kind: ProgramKind::Queries("sky"),
    },
];

const PYTHON: &str = "/usr/bin/python3";
const BERKELEY: &str = include_str!("scripts/berkeley.py");
const QUERIES: &str = include_str!("scripts/queries.py");

impl Program {
    pub(super) fn run(
        &self,
        settings: &HasteSettings,
        software_ps: u64,
    ) -> Result<(ProgramResult, PaceCheck), ProgramError> {
        self.is_here()?;
        let dir = Scratch::new(&settings.dir)?;
        self.finish("load", self.script("load", settings, &dir.0))?;
        let footprint_bytes = bytes_in(&dir.0)?;
        // Both runs begin with the same files.
        let pristine = Scratch::new(&settings.dir)?;
        copy(&dir.0, &pristine.0)?;
        let trace = Scratch::new(&settings.dir)?;
        let file = trace.0.join("recording");
        let asked = self.under(settings, &dir.0, &["--record".as_ref(), file.as_os_str()]);
        let answer = self.finish("asking, recorded", asked)?;
        let mut recording = Recording::open(&file)
            .map_err(|source| ProgramError::Recording { name: self.name, source })?;
        if recording.cut_off_steps > 0 {
            return Err(ProgramError::CutOff {
                name: self.name,
                requests: recording.cut_off_steps,
            });
        }
        for step in &mut recording.steps {
            step.think_ps = step.think_ps.saturating_add(software_ps);
        }
        let times = settings.systems.iter().map(|system| time_on(system, &recording, software_ps));
        let requests = [Kind::Read, Kind::Write, Kind::Flush]
            .map(|kind| recording.steps.iter().filter(|step| step.kind == kind).count() as u64);
        let check = self.at_real_pace(settings, &pristine.0, &trace.0)?;
        let result = ProgramResult {
            name: self.name.into(),
            about: self.about.into(),
            footprint_bytes,
            paper_footprint_bytes: self.paper_footprint_bytes,
            requests,
            answer,
            times: times.collect(),
        };
        Ok((result, check))
    }

    /// Runs the program at the real pace of a system; returns the modelled and the measured time of
    /// its requests, as they are counted where they are served.
    fn at_real_pace(
        &self,
        settings: &HasteSettings,
        dir: &Path,
        trace: &Path,
    ) -> Result<PaceCheck, ProgramError> {
        let report = trace.join("report.json");
        let media = settings.paced.name.as_str();
        let words =
            ["--media".as_ref(), media.as_ref(), "--report-json".as_ref(), report.as_os_str()];
        self.finish("asking, at real pace", self.under(settings, dir, &words))?;
        let text = fs::read_to_string(&report).map_err(system(&report))?;
        let (modelled_s, measured_s) = seconds_of(&text).map_err(system(&report))?;
        let what = format!("{}: its requests", self.name);
        Ok(PaceCheck { what, system: settings.paced.name.clone(), modelled_s, measured_s })
    }

    fn is_here(&self) -> Result<(), ProgramError> {
        let (module, package) = match self.kind {
            ProgramKind::Berkeley(_) => ("bsddb3", "python3-bsddb3"),
            ProgramKind::Queries(_) => ("sqlite3", "python3"),
        };
        let tried = Command::new(PYTHON)
            .args(["-c", &format!("import {module}")])
            .stderr(Stdio::null())
            .status();
        match tried {
            Ok(status) if status.success() => Ok(()),
            _ => Err(ProgramError::Missing {
                needs: format!(
                    "{PYTHON} with its module {module} is missing: apt-get install {package}"
                ),
            }),
        }
    }

    /// Arguments of the script: phase, folder and amount.
    fn words(&self, phase: &str, settings: &HasteSettings, dir: &Path) -> Vec<String> {
        let seed = settings.seed.to_string();
        let dir = dir.display().to_string();
        match self.kind {
            ProgramKind::Berkeley(table) => {
                let (records, transactions) = match settings.scale {
                    Scale::Tiny => (2_000u64, 200),
                    Scale::Small => (40_000, 3_000),
                    Scale::Medium => (400_000, 20_000),
                    Scale::Paper => (40_000_000, 1_000_000),
                };
                // An eighth of the table's pages fits in the database's own cache.
                let cache = (records * 400 * 3 / 2 / 8).max(256 << 10);
                let numbers = [records, 400, transactions, cache].map(|number| number.to_string());
                let script =
                    [BERKELEY.to_owned(), phase_of(phase, "update"), dir, table.to_owned()];
                script.into_iter().chain(numbers).chain([seed]).collect()
            }
            ProgramKind::Queries(which) => {
                let (rows, queries) = match settings.scale {
                    Scale::Tiny => (20_000u64, 20),
                    Scale::Small => (300_000, 200),
                    Scale::Medium => (3_000_000, 1_000),
                    Scale::Paper => (350_000_000, 10_000),
                };
                let cache_kib = rows * 100 / 8 / 1024;
                let numbers = [rows, queries, cache_kib].map(|number| number.to_string());
                let script = [
                    QUERIES.to_owned(),
                    phase_of(phase, "query"),
                    which.to_owned(),
                    format!("{dir}/catalogue.db"),
                ];
                script.into_iter().chain(numbers).chain([seed]).collect()
            }
        }
    }

    fn script(&self, phase: &str, settings: &HasteSettings, dir: &Path) -> Command {
        let mut command = Command::new(PYTHON);
        command.arg("-c").args(self.words(phase, settings, dir));
        command
    }

    /// A command that runs the script under `perdura-lab run` with these options.
    fn under(&self, settings: &HasteSettings, dir: &Path, options: &[&std::ffi::OsStr]) -> Command {
        let mut command = Command::new(&settings.program);
        command.arg("run").arg("--at").arg(dir).args(options);
        command.args(["--", PYTHON, "-c"]).args(self.words("ask", settings, dir));
        command
    }

    fn finish(&self, phase: &'static str, mut command: Command) -> Result<String, ProgramError> {
        let Output { status, stdout, stderr } = command
            .stdin(Stdio::null())
            .output()
            .map_err(system(Path::new(command.get_program())))?;
        if !status.success() {
            let said = String::from_utf8_lossy(&stderr);
            let last: Vec<&str> = said.lines().rev().take(3).collect();
            let said = last.into_iter().rev().collect::<Vec<_>>().join(" / ");
            return Err(ProgramError::Failed {
                name: self.name,
                phase,
                status: status.to_string(),
                said,
            });
        }
        Ok(String::from_utf8_lossy(&stdout).trim().to_owned())
    }
}

/// Sums the modelled and the measured seconds of a report, which has a line for each process.
fn seconds_of(report: &str) -> io::Result<(f64, f64)> {
    let (mut modelled_ns, mut measured_ns) = (0, 0);
    for line in report.lines() {
        let found: serde_json::Value = serde_json::from_str(line)?;
        let ns = |name: &str| {
            let lacks =
                || io::Error::other(format!("{name} is not a number of nanoseconds in {line}"));
            found[name].as_u64().ok_or_else(lacks)
        };
        modelled_ns += ns("modelled_ns")?;
        measured_ns += ns("measured_ns")?;
    }
    if modelled_ns == 0 {
        return Err(io::Error::other("no request was served at the medium's pace"));
    }
    Ok((modelled_ns as f64 / 1e9, measured_ns as f64 / 1e9))
}

/// The script's word for a phase: `load`, or the word for the program's timed phase.
fn phase_of(phase: &str, asked: &str) -> String {
    if phase == "load" { phase.to_owned() } else { asked.to_owned() }
}

fn time_on(system: &System, recording: &Recording, software_ps: u64) -> TimeOn {
    // A disk keeps its full size: a small footprint on it means short seeks.
    let model = Model::new(system, system.capacity().0.max(recording.medium_bytes));
    let replayed = replay(&recording.steps, &model);
    let software_s = (recording.steps.len() as u64 * software_ps) as f64 / 1e12;
    TimeOn {
        system: system.name.clone(),
        way: "files, recorded and replayed".into(),
        compute_s: replayed.think_ps as f64 / 1e12 - software_s,
        software_s,
        medium_s: replayed.medium_ps as f64 / 1e12,
        medium_j: Some(model.energy(replayed.elapsed_ps).equal_time.0),
    }
}

/// A folder that is removed on drop.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new(parent: &Path) -> Result<Self, ProgramError> {
        let made = tempfile::Builder::new()
            .prefix("perdura-haste-")
            .tempdir_in(parent)
            .map_err(system(parent))?;
        Ok(Self(made.keep()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that cannot be removed is recognised by its prefix; drop cannot report it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), ProgramError> {
    for entry in fs::read_dir(from).map_err(system(from))? {
        let entry = entry.map_err(system(from))?;
        fs::copy(entry.path(), to.join(entry.file_name())).map_err(system(to))?;
    }
    Ok(())
}

fn bytes_in(dir: &Path) -> Result<u64, ProgramError> {
    let sizes = fs::read_dir(dir).map_err(system(dir))?.map(|entry| Ok(entry?.metadata()?.len()));
    sizes.sum::<io::Result<u64>>().map_err(system(dir))
}

fn system(path: &Path) -> impl FnOnce(io::Error) -> ProgramError + use<> {
    let what = path.display().to_string();
    move |source| ProgramError::System { what, source }
}

#[cfg(test)]
mod tests {
    use super::seconds_of;

    #[test]
    fn a_report_without_times_is_no_comparison() {
        let whole = "{\"modelled_ns\": 2000000000, \"measured_ns\": 3000000000}\n";
        assert_eq!(seconds_of(&whole.repeat(2)).unwrap(), (4.0, 6.0));
        for (report, expected) in [
            ("", "no request"),
            ("{\"modelled_ns\": 1}", "measured_ns is not a number"),
            ("{\"modelled_ns\": -1, \"measured_ns\": 1}", "modelled_ns is not a number"),
            ("{", "EOF"),
        ] {
            let error = seconds_of(report).unwrap_err().to_string();
            assert!(error.contains(expected), "{report}: {error}");
        }
    }
}
