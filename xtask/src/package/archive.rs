//! An archive to be unpacked into a folder such as `/usr/local`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::place;
use super::stage::{LIBRARY, PROGRAM, Stage, copy};
use crate::run::run;

/// Where the unit of the archive starts the program.
const UNPACKED: &str = "/usr/local/bin/perdura";

/// Writes the archive, and returns its path.
pub fn write(stage: &Stage) -> Result<PathBuf> {
    let said = Command::new(stage.program()).arg("--version").output().context("perdura")?;
    let version = String::from_utf8_lossy(&said.stdout).trim().replace(' ', "-");
    let name = format!("{version}-{}-linux", std::env::consts::ARCH);
    let place = place()?;
    let folder = place.join(&name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    lay_out(stage, &folder)?;
    let path = place.join(format!("{name}.tar.gz"));
    let owner = ["--owner=0", "--group=0", "--sort=name"];
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&place).args(owner).arg("-czf").arg(&path).arg(&name);
    run(&mut tar)?;
    fs::remove_dir_all(folder)?;
    Ok(path)
}

fn lay_out(stage: &Stage, folder: &Path) -> Result<()> {
    let files = stage.files();
    copy(&stage.program(), &folder.join("bin").join(PROGRAM))?;
    copy(&files.join(LIBRARY), &folder.join("lib/perdura").join(LIBRARY))?;
    for entry in fs::read_dir(files.join("man"))? {
        let entry = entry?;
        copy(&entry.path(), &folder.join("share/man/man1").join(entry.file_name()))?;
    }
    for (name, to) in [
        ("perdura", "bash-completion/completions"),
        ("_perdura", "zsh/site-functions"),
        ("perdura.fish", "fish/vendor_completions.d"),
    ] {
        copy(&files.join("completions").join(name), &folder.join("share").join(to).join(name))?;
    }
    let share = folder.join("share/perdura");
    let documents = [
        "packages",
        "operating",
        "guard",
        "server",
        "security",
        "encryption",
        "backup",
        "watching",
        "devices",
        "fault-model",
    ];
    let documents = documents.map(|page| format!("docs/{page}.md"));
    let others = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"].map(str::to_owned);
    for page in documents.into_iter().chain(others) {
        let name = Path::new(&page).file_name().context("a name")?;
        copy(Path::new(&page), &share.join(name))?;
    }
    copy(Path::new("packaging/perdura.toml"), &share.join("perdura.toml"))?;
    let unit = fs::read_to_string("packaging/perdura.service")?;
    fs::write(share.join("perdura.service"), unit.replace("/usr/bin/perdura", UNPACKED))?;
    Ok(())
}
