//! A systemd of its own, as process 1 of a process namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

const PATIENCE: Duration = Duration::from_secs(30);

/// Namespaces in which systemd runs; all their processes end when it is dropped.
pub struct Namespace {
    /// The `unshare` whose only child is systemd.
    child: Child,
    cgroup: PathBuf,
    /// The process systemd, once it was found.
    systemd: String,
}

impl Namespace {
    /// Runs a shell script that makes the namespaces and becomes systemd. It is put into the folder
    /// `place`, and has these variables besides `CGROUP`, a new cgroup of version 2.
    pub fn start(place: &Path, script: &str, variables: &[(&str, &Path)]) -> Result<Self> {
        ensure!(
            rustix::process::getuid().is_root(),
            "a systemd of its own takes namespaces: run this as root"
        );
        let file = place.join("start.sh");
        fs::write(&file, script)?;
        let cgroup = cgroup_root()?.join(format!("perdura-systemd-{}", std::process::id()));
        fs::create_dir_all(&cgroup)?;
        let mut shell = Command::new("sh");
        shell.arg(&file).envs(variables.iter().copied()).env("CGROUP", &cgroup);
        let child = shell.stdin(Stdio::null()).spawn().context("sh")?;
        Ok(Self { child, cgroup, systemd: String::new() })
    }

    /// Waits until something is so, or fails with the sentence `otherwise`.
    pub fn wait_until(
        &mut self,
        otherwise: &str,
        mut is_so: impl FnMut(&mut Self) -> bool,
    ) -> Result<()> {
        let began = Instant::now();
        while !is_so(self) {
            if let Some(status) = self.child.try_wait()? {
                bail!("systemd cannot run in namespaces here: {status}");
            }
            ensure!(began.elapsed() < PATIENCE, "{otherwise}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Runs a program in the namespaces to its end, and returns what it says.
    pub fn run(&mut self, words: &[&str]) -> Result<String> {
        let done = self.command(words)?.output().context("nsenter")?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "{}: {said}", words.join(" "));
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }

    /// A program to be run in the namespaces.
    pub fn command(&mut self, words: &[&str]) -> Result<Command> {
        if self.systemd.is_empty() {
            let id = self.child.id();
            let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
            self.systemd = children.trim().to_owned();
        }
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.systemd, "-p", "-m", "--"]).args(words);
        Ok(command)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The namespace's processes, the server and its holder among them, are killed with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let began = Instant::now();
        while let Err(error) = remove_cgroup(&self.cgroup) {
            if began.elapsed() > PATIENCE {
                eprintln!("xtask: {}: {error}", self.cgroup.display());
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Removes a cgroup and those below it.
fn remove_cgroup(cgroup: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(cgroup)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_cgroup(&entry.path())?;
        }
    }
    fs::remove_dir(cgroup)
}

/// Where cgroups of version 2 are mounted, alone or beside those of version 1.
fn cgroup_root() -> Result<&'static Path> {
    let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let found = places.into_iter().find(|place| place.join("cgroup.procs").exists());
    found.context("a systemd of its own needs cgroups of version 2, which are not mounted here")
}
