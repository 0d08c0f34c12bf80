//! A clean Debian with a systemd of its own, in which packages are installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::place;
use crate::deps;
use crate::run::run;
use crate::systemd::Namespace;

const START: &str = include_str!("start.sh");
const SUITE: &str = "bookworm";
/// The packages besides the smallest Debian: what any server has.
const INCLUDED: &str = "--include=systemd,systemd-sysv,dbus,procps,adduser";

/// The running Debian.
pub struct Root {
    /// Its files, as the machine sees them.
    pub files: PathBuf,
    /// Its processes.
    pub namespace: Namespace,
}

impl Root {
    /// Starts a Debian in which `prepare` has laid files. It is a copy of one that was made before,
    /// or is made now.
    pub fn start(prepare: impl FnOnce(&Path) -> Result<()>) -> Result<Self> {
        let clean = clean()?;
        let life = place()?.join("life");
        if life.exists() {
            fs::remove_dir_all(&life)?;
        }
        fs::create_dir(&life)?;
        let files = life.join("root");
        run(Command::new("cp").args(["-a", "--reflink=auto"]).args([&clean, &files]))?;
        prepare(&files)?;
        let mut namespace = Namespace::start(&life, START, &[("ROOT", &files)])?;
        namespace.wait_until("the Debian does not start", |namespace| {
            let state = namespace.command(&["systemctl", "is-system-running"]);
            let state = state.and_then(|mut asked| Ok(asked.output()?));
            // A unit that cannot work in namespaces makes it degraded.
            state.is_ok_and(|said| {
                [&b"running"[..], b"degraded"].contains(&said.stdout.trim_ascii())
            })
        })?;
        Ok(Self { files, namespace })
    }

    /// Ends all processes, and removes the files.
    pub fn remove(self) -> Result<()> {
        drop(self.namespace);
        fs::remove_dir_all(self.files)?;
        Ok(())
    }
}

/// The Debian that others are copied from.
fn clean() -> Result<PathBuf> {
    let clean = place()?.join("root");
    let done = place()?.join("root.done");
    if done.exists() {
        return Ok(clean);
    }
    deps::install_life()?;
    if clean.exists() {
        fs::remove_dir_all(&clean)?;
    }
    run(Command::new("debootstrap").args(["--variant=minbase", INCLUDED, SUITE]).arg(&clean))?;
    fs::write(done, "")?;
    Ok(clean)
}
