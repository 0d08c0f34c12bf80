//! A systemd of its own with one unit, beside the machine's files.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::namespace::Namespace;

const START: &str = include_str!("start.sh");
/// Where Debian and others have systemd's program.
const PROGRAMS: [&str; 2] = ["/usr/lib/systemd/systemd", "/lib/systemd/systemd"];

/// A running systemd with one service.
pub struct Manager(Namespace);

impl Manager {
    /// Starts systemd with the unit `perdura.service`. The folder `place` is seen as `inside`
    /// there.
    pub fn start(place: &Path, inside: &Path, unit: &str) -> Result<Self> {
        let found = PROGRAMS.into_iter().map(Path::new).find(|program| program.exists());
        let program = found.context("test-systemd needs systemd (Debian package systemd)")?;
        let units = place.join("units");
        fs::create_dir_all(&units)?;
        fs::write(units.join("perdura.service"), unit)?;
        let target = "[Unit]\nDefaultDependencies=no\nWants=perdura.service\n";
        fs::write(units.join("test.target"), target)?;
        let places = [("PLACE", place), ("INSIDE", inside), ("SYSTEMD", program)];
        let mut manager = Self(Namespace::start(place, START, &places)?);
        manager.0.wait_until("systemd does not start the service", |namespace| {
            show(namespace, "ActiveState").is_ok_and(|state| state == "active")
        })?;
        Ok(manager)
    }

    /// The service's property.
    pub fn show(&mut self, property: &str) -> Result<String> {
        show(&mut self.0, property)
    }

    /// Runs `systemctl` with these words.
    pub fn systemctl(&mut self, words: &[&str]) -> Result<String> {
        self.0.run(&[&["systemctl"], words].concat())
    }
}

fn show(namespace: &mut Namespace, property: &str) -> Result<String> {
    let words = ["systemctl", "show", "--value", "-p", property, "perdura.service"];
    Ok(namespace.run(&words)?.trim().to_owned())
}
