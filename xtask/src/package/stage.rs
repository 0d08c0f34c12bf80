//! The folder in which everything that packages take from a build is collected. It is laid out as
//! the target folder of a release build, which is what cargo-deb expects.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Wanted, place};
use crate::run::{self, cargo, run};
use crate::steps;

pub const PROGRAM: &str = "perdura";
pub const LIBRARY: &str = "libperdura_interpose.so";
/// The shells, and the files that their packages look for.
pub const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "perdura"), ("zsh", "_perdura"), ("fish", "perdura.fish")];

/// The folder, filled.
pub struct Stage {
    /// The target folder that it stands for.
    pub target: PathBuf,
    /// Whether this is for users, and not to try something soon.
    pub is_release: bool,
}

impl Stage {
    /// Builds what is wanted, and collects it.
    pub fn fill(wanted: &Wanted) -> Result<Self> {
        let built = build(wanted)?;
        let is_release = !wanted.is_dev && wanted.perdura.is_none();
        let stage = Self { target: place()?.join("stage"), is_release };
        let files = stage.files();
        if files.exists() {
            fs::remove_dir_all(&files)?;
        }
        fs::create_dir_all(files.join("completions"))?;
        let program = wanted.perdura.map_or_else(|| built.join(PROGRAM), PathBuf::from);
        copy(&program, &stage.program())?;
        copy(&built.join(LIBRARY), &files.join(LIBRARY))?;
        let pages = files.join("man");
        run(Command::new(stage.program()).arg("man").arg(&pages))?;
        let pages = fs::read_dir(pages)?.map(|entry| Ok(entry?.path()));
        run(Command::new("gzip").arg("-9n").args(pages.collect::<Result<Vec<_>>>()?))?;
        for (shell, name) in COMPLETIONS {
            let said = Command::new(stage.program()).args(["completions", shell]).output()?;
            ensure!(said.status.success(), "perdura completions {shell}: {}", said.status);
            fs::write(files.join("completions").join(name), said.stdout)?;
        }
        Ok(stage)
    }

    /// Where the files lie.
    pub fn files(&self) -> PathBuf {
        self.target.join("release")
    }

    /// The program.
    pub fn program(&self) -> PathBuf {
        self.files().join(PROGRAM)
    }
}

/// Builds the program, unless it is given, and the library. Returns the folder of both.
fn build(wanted: &Wanted) -> Result<PathBuf> {
    const LIBRARY: [&str; 3] = ["build", "-p", "perdura-interpose"];
    match (wanted.perdura, wanted.is_dev) {
        (Some(_), _) => cargo(&LIBRARY)?,
        (None, true) => cargo(&[&LIBRARY[..], &["-p", "perdura-cli"]].concat())?,
        (None, false) => {
            steps::release()?;
            return Ok(run::target()?.join("release"));
        }
    }
    Ok(run::target()?.join("debug"))
}

/// Copies a file.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}
