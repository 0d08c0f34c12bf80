//! A systemd of its own, as process 1 of a process namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

const START: &str = include_str!("start.sh");
/// Where Debian and others have systemd's program.
const PROGRAMS: [&str; 2] = ["/usr/lib/systemd/systemd", "/lib/systemd/systemd"];
const PATIENCE: Duration = Duration::from_secs(30);

/// A running systemd with one service; its namespace ends with it when it is dropped.
pub struct Manager {
    /// The `unshare` whose only child is systemd.
    child: Child,
    cgroup: PathBuf,
    systemd: String,
}

impl Manager {
    /// Starts systemd with the unit `perdura.service`. The folder `place` is seen as `inside`
    /// there.
    pub fn start(place: &Path, inside: &Path, unit: &str) -> Result<Self> {
        ensure!(
            rustix::process::getuid().is_root(),
            "test-systemd makes namespaces: run it as root"
        );
        let found = PROGRAMS.into_iter().find(|program| Path::new(program).exists());
        let program = found.context("test-systemd needs systemd (Debian package systemd)")?;
        let units = place.join("units");
        fs::create_dir_all(&units)?;
        fs::write(units.join("perdura.service"), unit)?;
        let target = "[Unit]\nDefaultDependencies=no\nWants=perdura.service\n";
        fs::write(units.join("test.target"), target)?;
        let script = place.join("start.sh");
        fs::write(&script, START)?;
        let cgroup = cgroup_root()?.join(format!("perdura-systemd-{}", std::process::id()));
        fs::create_dir_all(&cgroup)?;
        let child = Command::new("sh")
            .arg(&script)
            .envs([("PLACE", place), ("INSIDE", inside), ("CGROUP", &cgroup)])
            .env("SYSTEMD", program)
            .stdin(Stdio::null())
            .spawn()
            .context("sh")?;
        let mut manager = Self { child, cgroup, systemd: String::new() };
        let began = Instant::now();
        while manager.show("ActiveState").map_or(true, |state| state != "active") {
            if let Some(status) = manager.child.try_wait()? {
                bail!("systemd cannot run in namespaces here: {status}");
            }
            ensure!(began.elapsed() < PATIENCE, "systemd does not start the service");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(manager)
    }

    /// The service's property.
    pub fn show(&mut self, property: &str) -> Result<String> {
        let found = self.systemctl(&["show", "--value", "-p", property, "perdura.service"])?;
        Ok(found.trim().to_owned())
    }

    /// Runs `systemctl` with these words.
    pub fn systemctl(&mut self, words: &[&str]) -> Result<String> {
        if self.systemd.is_empty() {
            let id = self.child.id();
            let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
            self.systemd = children.trim().to_owned();
        }
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.systemd, "-p", "-m", "--", "systemctl"]).args(words);
        let done = command.output().context("nsenter")?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "systemctl {}: {said}", words.join(" "));
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }
}

impl Drop for Manager {
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
    found.context("test-systemd needs cgroups of version 2, which are not mounted here")
}
