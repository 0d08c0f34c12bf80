//! The kernel's hwmon: sensors of boards, power supplies, processors and drives. Those of energy
//! and of power are read, and no others.

use std::io;
use std::path::{Path, PathBuf};

use super::{Look, Meter};
use crate::drives::{kernel_names, kernel_number, kernel_text};
use crate::units::Watts;

#[derive(Clone, Copy)]
enum Kind {
    /// Microjoules since some time.
    Energy,
    /// Microwatts.
    Power,
}

struct Sensor {
    source: String,
    path: PathBuf,
    kind: Kind,
    device: Option<PathBuf>,
}

impl Meter for Sensor {
    fn source(&self) -> &str {
        &self.source
    }

    fn device(&self) -> Option<&Path> {
        self.device.as_deref()
    }

    fn look(&mut self) -> Result<Look, String> {
        let value = kernel_number(&self.path).map_err(|error| {
            let name = self.path.file_name().unwrap_or_default().to_string_lossy();
            format!("{name}: {error}")
        })?;
        Ok(match self.kind {
            Kind::Energy => Look::Counted { microjoules: value, range: None },
            Kind::Power => Look::Power(Watts(value as f64 / 1e6)),
        })
    }
}

/// The sensors of energy and power. Of one channel, the count of energy is taken before the mean
/// power, and that before the power at the moment.
pub(super) fn find(sys: &Path) -> io::Result<Vec<Box<dyn Meter>>> {
    let all = sys.join("class/hwmon");
    let mut sensors = Vec::<Box<dyn Meter>>::new();
    let mut names_seen = std::collections::HashSet::new();
    for chip in kernel_names(&all)? {
        let dir = all.join(&chip);
        let files = kernel_names(&dir)?;
        let channel = |file: &str, kind: &str, end: &str| {
            let number = file.strip_prefix(kind)?.strip_suffix(end)?;
            number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.to_owned())
        };
        let has_average = |number: &str| files.contains(&format!("power{number}_average"));
        let of = |file: &String| {
            if let Some(number) = channel(file, "energy", "_input") {
                return Some((Kind::Energy, format!("energy{number}")));
            }
            if let Some(number) = channel(file, "power", "_average") {
                return Some((Kind::Power, format!("power{number}")));
            }
            let number = channel(file, "power", "_input")?;
            (!has_average(&number)).then(|| (Kind::Power, format!("power{number}")))
        };
        let found: Vec<_> = files.iter().filter_map(|file| Some((file, of(file)?))).collect();
        if found.is_empty() {
            continue;
        }
        let name = kernel_text(&dir.join("name"))?;
        // Two drives, or two power supplies, have chips of one name.
        let name = match names_seen.insert(name.clone()) {
            true => name,
            false => format!("{name}({chip})"),
        };
        let device = match std::fs::canonicalize(dir.join("device")) {
            Ok(device) => Some(device),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        for (file, (kind, channel)) in found {
            let label = dir.join(format!("{channel}_label"));
            let label = match label.exists() {
                true => kernel_text(&label)?,
                false => channel,
            };
            sensors.push(Box::new(Sensor {
                source: format!("hwmon:{name}/{label}"),
                path: dir.join(file),
                kind,
                device: device.clone(),
            }));
        }
    }
    Ok(sensors)
}
