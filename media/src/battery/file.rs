//! A battery as its operator describes it, and how long it lasts now: with its age, its temperature
//! and the load of the machine's parts (Viyojit, sections 2.2 and 4.3).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::{BatteryError, Cells};
use crate::energy::{Energy, EnergyError};
use crate::units::{Joules, ParseError, Percent, Watts};

const MS_PER_DAY: f64 = 86_400_000.0;
const DAYS_PER_YEAR: f64 = 365.25;

/// The longest file that is read.
const LONGEST_BYTES: u64 = 64 << 10;

/// The file that describes a battery. It is read again each time, so a program that manages the
/// battery may change it.
#[derive(Debug, Clone)]
pub struct BatteryFile {
    path: PathBuf,
}

/// How long a battery lasts, and what that was computed from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lasts {
    /// Time for which the machine runs on what can be relied on.
    pub time: Duration,
    /// Energy that can be relied on.
    pub usable: Joules,
    /// Power that all parts of the machine draw together.
    pub load: Watts,
    /// Age of the battery, years.
    pub age_years: f64,
    /// Temperature of the cells, degrees Celsius.
    pub temperature_c: f64,
}

/// The file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    nameplate: String,
    installed: toml::value::Datetime,
    depth_of_discharge: Option<String>,
    fade_per_year: Option<String>,
    temperature_c: Option<f64>,
    temperature_file: Option<PathBuf>,
    spare: Option<String>,
    other_uses: Option<String>,
    watts: BTreeMap<String, f64>,
}

/// Why a file does not say how long a battery lasts.
#[derive(Debug, thiserror::Error)]
pub enum BatteryFileError {
    /// A file cannot be read.
    #[error("{path}: {error}", path = path.display())]
    Read {
        /// The file of the battery, or that of its temperature.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A file system does not answer.
    #[error("{}: no answer from its file, or from that of the temperature", path.display())]
    NoAnswer {
        /// The file of the battery.
        path: PathBuf,
    },
    /// The text is not what is expected.
    #[error("{path}, line {line}: {why}", path = path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// A value cannot be understood.
    #[error("{path}: {name}: {error}", path = path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The name of the value.
        name: &'static str,
        /// Why.
        error: ParseError,
    },
    /// A value makes no sense.
    #[error("{path}: {why}", path = path.display())]
    Nonsense {
        /// The file.
        path: PathBuf,
        /// Which value, and what is expected.
        why: String,
    },
    /// There is no such battery.
    #[error("{path}: {error}", path = path.display())]
    Battery {
        /// The file.
        path: PathBuf,
        /// Why.
        error: BatteryError,
    },
    /// There is no such load.
    #[error("{path}: {error}", path = path.display())]
    Load {
        /// The file.
        path: PathBuf,
        /// Why.
        error: EnergyError,
    },
}

impl BatteryFile {
    /// The battery that a file describes. Nothing is read before [`BatteryFile::lasts`].
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How long the battery lasts at `unix_ms`, milliseconds since 1970.
    ///
    /// # Errors
    /// The file or that of the temperature cannot be read, a value is not understood or makes no
    /// sense, or nothing is left of the battery.
    pub fn lasts(&self, unix_ms: u64) -> Result<Lasts, BatteryFileError> {
        let document = self.read()?;
        let age_years = self.age_years(&document, unix_ms)?;
        let temperature_c = self.temperature_c(&document)?;
        let share = |name, text: &Option<String>, default: f64| {
            let Some(text) = text else { return Ok(default) };
            let parsed = text.parse().map(|Percent(percent)| percent / 100.0);
            parsed.map_err(|error| self.value(name, error))
        };
        let usual = Cells::default();
        let cells = Cells {
            depth_of_discharge: share(
                "depth_of_discharge",
                &document.depth_of_discharge,
                usual.depth_of_discharge,
            )?,
            years: age_years,
            fade_per_year: share("fade_per_year", &document.fade_per_year, usual.fade_per_year)?,
            temperature_c,
            spare_share: share("spare", &document.spare, usual.spare_share)?,
            other_uses_share: share("other_uses", &document.other_uses, usual.other_uses_share)?,
            ..usual
        };
        let nameplate: Joules =
            document.nameplate.parse().map_err(|error| self.value("nameplate", error))?;
        let usable = cells.reliable_joules(nameplate.0).map(Joules);
        let usable =
            usable.map_err(|error| BatteryFileError::Battery { path: self.path.clone(), error })?;
        let load = self.load(&document)?;
        let time = Energy::Battery { joules: usable, watts: load }.warning_time();
        let time =
            time.map_err(|error| BatteryFileError::Load { path: self.path.clone(), error })?;
        Ok(Lasts { time, usable, load, age_years, temperature_c })
    }

    fn read(&self) -> Result<Document, BatteryFileError> {
        let text = read(&self.path)?;
        toml::from_str(&text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let before = text.bytes().take(at);
            BatteryFileError::Parse {
                path: self.path.clone(),
                line: before.filter(|byte| *byte == b'\n').count() + 1,
                why: error.message().replace('\n', " "),
            }
        })
    }

    fn value(&self, name: &'static str, error: ParseError) -> BatteryFileError {
        BatteryFileError::Value { path: self.path.clone(), name, error }
    }

    fn nonsense(&self, why: String) -> BatteryFileError {
        BatteryFileError::Nonsense { path: self.path.clone(), why }
    }

    fn age_years(&self, document: &Document, unix_ms: u64) -> Result<f64, BatteryFileError> {
        let installed = &document.installed;
        let (Some(date), None) = (installed.date, installed.time) else {
            return Err(self
                .nonsense(format!("installed = {installed}: expected a day, such as 2025-03-01")));
        };
        let since = days_since_1970(date.year.into(), date.month.into(), date.day.into());
        let days = unix_ms as f64 / MS_PER_DAY - since as f64;
        // A day ahead is another time zone's.
        if days < -1.0 {
            return Err(self.nonsense(format!(
                "installed = {installed} is in the future: is the machine's clock right?"
            )));
        }
        Ok(days.max(0.0) / DAYS_PER_YEAR)
    }

    fn temperature_c(&self, document: &Document) -> Result<f64, BatteryFileError> {
        match (document.temperature_c, &document.temperature_file) {
            (None, None) => Ok(Cells::default().temperature_c),
            (Some(degrees), None) => Ok(degrees),
            (None, Some(path)) => {
                let text = read(path)?;
                let thousandths: Result<f64, _> = text.trim().parse();
                thousandths.map(|value| value / 1e3).map_err(|_| BatteryFileError::Nonsense {
                    path: path.clone(),
                    why: format!(
                        "{:?}: expected thousandths of a degree Celsius, such as 25000",
                        text.chars().take(40).collect::<String>()
                    ),
                })
            }
            (Some(_), Some(_)) => Err(self
                .nonsense("temperature_c and temperature_file: expected one of them".to_owned())),
        }
    }

    fn load(&self, document: &Document) -> Result<Watts, BatteryFileError> {
        let mut load = 0.0;
        for (part, watts) in &document.watts {
            if !(watts.is_finite() && *watts >= 0.0) {
                return Err(self.nonsense(format!("watts: {part} = {watts}: expected 0 or more")));
            }
            load += watts;
        }
        Ok(Watts(load))
    }
}

fn read(path: &Path) -> Result<String, BatteryFileError> {
    let read = || {
        // A pipe that nobody writes to would be waited for.
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = File::options().read(true).custom_flags(flags).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("this is no regular file"));
        }
        let mut text = String::new();
        file.take(LONGEST_BYTES + 1).read_to_string(&mut text)?;
        match text.len() as u64 > LONGEST_BYTES {
            true => Err(io::Error::other(format!("longer than {LONGEST_BYTES} bytes"))),
            false => Ok(text),
        }
    };
    read().map_err(|error| BatteryFileError::Read { path: path.to_owned(), error })
}

/// Days from 1970-01-01 to a day of the Gregorian calendar.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that the leap day is a year's last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days_before_month = (153 * month + 2) / 5;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 1970-01-01 is the day 719,468 after 0000-03-01.
    365 * year + leap_days + days_before_month + day - 1 - 719_468
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use super::*;

    const INSTALLED_MS: u64 = 1_704_067_200_000; // 2024-01-01
    const YEAR_MS: u64 = 31_557_600_000;

    fn file(dir: &tempfile::TempDir, text: &str) -> BatteryFile {
        let path = dir.path().join("battery.toml");
        std::fs::write(&path, text).unwrap();
        BatteryFile::new(path)
    }

    const PLAIN: &str = "nameplate = '60kJ'\ninstalled = 2024-01-01\n[watts]\ncpu = 80\nssd = 20\n";

    #[test]
    fn what_is_no_file_or_too_long_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        let long = dir.path().join("long");
        std::fs::write(&long, vec![b'#'; LONGEST_BYTES as usize + 1]).unwrap();
        for (path, why) in [
            (&*pipe, "no regular file"),
            (Path::new("/dev/zero"), "no regular file"),
            (&*long, "longer than 65536 bytes"),
        ] {
            let error = BatteryFile::new(path).lasts(INSTALLED_MS).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (date, days) in [
            ((1970, 1, 1), 0),
            ((1969, 12, 31), -1),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2024, 1, 1), 19_723),
            ((2100, 3, 1), 47_541),
        ] {
            assert_eq!(days_since_1970(date.0, date.1, date.2), days, "{date:?}");
        }
    }

    #[test]
    fn it_lasts_for_the_usable_part_over_the_load_of_all_parts() {
        let dir = tempfile::tempdir().unwrap();
        let lasts = file(&dir, PLAIN).lasts(INSTALLED_MS).unwrap();
        assert_eq!((lasts.usable, lasts.load), (Joules(30_000.0), Watts(100.0)));
        assert_eq!((lasts.time, lasts.age_years), (Duration::from_secs(300), 0.0));
    }

    #[test]
    fn it_lasts_for_less_with_age_heat_cold_and_other_uses() {
        let dir = tempfile::tempdir().unwrap();
        let after = |years: u64, more: &str| {
            let text = format!("{more}\n{PLAIN}");
            file(&dir, &text).lasts(INSTALLED_MS + years * YEAR_MS).unwrap().time.as_secs_f64()
        };
        let near = |value: f64, expected: f64| {
            assert!((value - expected).abs() < 0.01, "{value} and not {expected}");
        };
        near(after(4, ""), 300.0 * 0.8);
        near(after(4, "temperature_c = 35"), 300.0 * 0.6);
        near(after(0, "temperature_c = 0"), 300.0 * 0.8);
        near(after(0, "other_uses = '30%'"), 300.0 * 0.7);
        near(after(0, "depth_of_discharge = '80%'"), 480.0);
        near(after(0, "spare = '100%'"), 150.0);
        near(after(2, "fade_per_year = '10%'"), 240.0);
    }

    #[test]
    fn the_temperature_is_that_of_the_sensor_now() {
        let dir = tempfile::tempdir().unwrap();
        let sensor = dir.path().join("temp");
        let text = format!("temperature_file = '{}'\n{PLAIN}", sensor.display());
        let battery = file(&dir, &text);
        for (said, degrees) in [("25000\n", 25.0), ("-5500", -5.5)] {
            std::fs::write(&sensor, said).unwrap();
            assert_eq!(battery.lasts(INSTALLED_MS).unwrap().temperature_c, degrees);
        }
        std::fs::write(&sensor, "warm").unwrap();
        let error = battery.lasts(INSTALLED_MS).unwrap_err().to_string();
        assert!(error.contains("thousandths"), "{error}");
        std::fs::remove_file(&sensor).unwrap();
        assert!(battery.lasts(INSTALLED_MS).unwrap_err().to_string().contains("temp"));
    }

    #[test]
    fn mistakes_are_named() {
        let dir = tempfile::tempdir().unwrap();
        for (text, word) in [
            (PLAIN.replace("60kJ", "60"), "nameplate"),
            (PLAIN.replace("nameplate", "name"), "name"),
            (PLAIN.replace("2024-01-01", "2090-01-01"), "in the future"),
            (PLAIN.replace("2024-01-01", "2024-01-01T10:00:00"), "expected a day"),
            (PLAIN.replace("80", "-80"), "cpu = -80"),
            (PLAIN.replace("80", "nan"), "cpu = NaN"),
            (PLAIN.replace("80", "0").replace("20\n", "0\n"), "power (W) is zero"),
            (PLAIN.replace("60kJ", "0J"), "energy (J) is zero"),
            (format!("temperature_c = 99\n{PLAIN}"), "temperature"),
            (format!("other_uses = '100%'\n{PLAIN}"), "other uses"),
            (format!("temperature_c = 9\ntemperature_file = 'x'\n{PLAIN}"), "one of them"),
            (format!("fade_per_year = 5\n{PLAIN}"), "line 1: invalid type: integer"),
            (format!("{PLAIN}gpu = many"), "line 6"),
            (String::new(), "nameplate"),
        ] {
            let error = file(&dir, &text).lasts(INSTALLED_MS).unwrap_err().to_string();
            assert!(error.contains(word), "{word:?} is missing in: {error}");
        }
        let old = file(&dir, PLAIN).lasts(INSTALLED_MS + 21 * YEAR_MS).unwrap_err();
        assert!(old.to_string().contains("nothing of the battery is left"), "{old}");
    }
}
