//! The power supplies that the kernel knows: mains and batteries in `/sys/class/power_supply`.
//!
//! A battery of a device beside the machine, such as a mouse, does not count. Nothing is notified
//! reliably there, so the files are read five times a second.

use std::cell::RefCell;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use perdura_media::Joules;

use crate::error::WarningError;
use crate::polled::{self, Asker, NoAnswer, Pace};
use crate::reading::{Left, Reading, State};
use crate::source::WarningSource;

/// Where the kernel shows its power supplies.
const SUPPLIES: &str = "/sys/class/power_supply";
const PACE: Pace = Pace { every: Duration::from_millis(200), silence_max: Duration::from_secs(15) };
/// A battery with at most this charge is low where the kernel does not say so itself, percent.
const LOW_PERCENT: u64 = 10;
/// Joules in the kernel's unit of energy, a millionth of a watt-hour.
const JOULES_PER_UWH: f64 = 3_600.0 / 1e6;

/// A folder of power supplies.
struct Supplies {
    dir: PathBuf,
    /// Whether it showed a battery at the last look.
    had_battery: bool,
}

/// Watches the power supplies in `dir`, or the kernel's if that is empty.
///
/// # Errors
/// There is no mains and no battery.
pub(crate) fn open(dir: &str) -> Result<Box<dyn WarningSource>, WarningError> {
    let dir = PathBuf::from(if dir.is_empty() { SUPPLIES } else { dir });
    polled::start(Supplies { dir, had_battery: false }, PACE)
}

/// What the supplies say together.
#[derive(Debug, Default)]
struct Found {
    mains: Option<bool>,
    /// Names and statuses, for people.
    words: Vec<String>,
    batteries: u32,
    is_discharging: bool,
    /// Whether a UPS of its own is discharging: the mains that the machine sees may come from it.
    is_ups_discharging: bool,
    /// Whether a battery's status is known.
    is_status_known: bool,
    is_low: bool,
    /// An attribute that is there and cannot be read.
    unreadable: Option<String>,
    joules: f64,
    watts: f64,
}

impl Supplies {
    fn look(&self) -> std::io::Result<Found> {
        let mut found = Found::default();
        let mut supplies: Vec<PathBuf> = fs::read_dir(&self.dir)?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_, std::io::Error>>()?;
        supplies.sort();
        for supply in &supplies {
            found.add(supply);
        }
        Ok(found)
    }
}

impl Found {
    fn add(&mut self, supply: &Path) {
        let name = supply.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let unreadable = RefCell::new(None);
        let of = |attribute: &str| match word(supply, attribute) {
            Ok(word) => word,
            // Of others a driver may not know the value (`ENODATA`).
            Err(error) if ["type", "status", "online"].contains(&attribute) => {
                *unreadable.borrow_mut() = Some(format!("{name}/{attribute}: {error}"));
                None
            }
            Err(_) => None,
        };
        let kind = of("type");
        match kind.as_deref() {
            Some("Mains" | "USB" | "Wireless") => {
                let is_online = of("online").is_some_and(|online| online != "0");
                self.mains = Some(self.mains.unwrap_or(false) || is_online);
                self.words.push(format!("{name} {}", if is_online { "online" } else { "offline" }));
            }
            Some("Battery" | "UPS") if of("scope").as_deref() != Some("Device") => {
                if of("present").as_deref() == Some("0") {
                    return;
                }
                self.batteries += 1;
                let status = of("status").unwrap_or_else(|| "of unknown status".into());
                let is_discharging = status == "Discharging";
                self.is_discharging |= is_discharging;
                self.is_ups_discharging |= is_discharging && kind.as_deref() == Some("UPS");
                self.is_status_known |=
                    matches!(&*status, "Charging" | "Discharging" | "Not charging" | "Full");
                let number = |attribute: &str| of(attribute)?.parse::<f64>().ok();
                let volts = || Some(number("voltage_now")? / 1e6);
                let uwh = number("energy_now").or_else(|| Some(number("charge_now")? * volts()?));
                let uw = number("power_now").or_else(|| Some(number("current_now")? * volts()?));
                self.joules += uwh.unwrap_or(0.0) * JOULES_PER_UWH;
                self.watts += uw.unwrap_or(0.0).abs() / 1e6;
                let percent = of("capacity").and_then(|text| text.parse::<u64>().ok());
                self.is_low |= match of("capacity_level").as_deref() {
                    Some("Critical" | "Low") => true,
                    Some("Normal" | "High" | "Full") => false,
                    _ => percent.is_some_and(|percent| percent <= LOW_PERCENT),
                };
                let percent = percent.map_or(String::new(), |percent| format!(" {percent}%"));
                self.words.push(format!("{name} {status}{percent}"));
            }
            // Another kind says nothing of the machine's power.
            _ => {}
        }
        self.unreadable = self.unreadable.take().or(unreadable.into_inner());
    }

    fn reading(&self, dir: &Path) -> Option<Reading> {
        let told_by = format!("{}: {}", dir.display(), self.words.join(", "));
        if let Some(unreadable) = &self.unreadable {
            return Some(Reading::lost(format!("{told_by}; {unreadable}")));
        }
        if self.mains.is_none() && self.batteries > 0 && !self.is_status_known {
            return Some(Reading::lost(told_by));
        }
        let state = match (self.mains, self.batteries) {
            (_, _) if self.is_ups_discharging && self.is_low => State::Low,
            (_, _) if self.is_ups_discharging => State::OnBattery,
            (None, 0) => return None,
            // Without a battery the machine would be off.
            (Some(true), _) | (Some(false), 0) => State::Steady,
            (None, _) if !self.is_discharging => State::Steady,
            (_, _) if self.is_low => State::Low,
            (_, _) => State::OnBattery,
        };
        let left = match (self.joules > 0.0, self.watts > 0.0) {
            (false, _) => None,
            (true, true) => {
                Duration::try_from_secs_f64(self.joules / self.watts).ok().map(Left::Time)
            }
            (true, false) => Some(Left::Energy(Joules(self.joules))),
        };
        Some(Reading {
            left: left.filter(|_| state != State::Steady),
            ..Reading::new(state, told_by)
        })
    }
}

/// The text of an attribute, if the supply has it.
fn word(supply: &Path, attribute: &str) -> std::io::Result<Option<String>> {
    match fs::read_to_string(supply.join(attribute)) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        // A supply may go at any moment.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl Asker for Supplies {
    fn name(&self) -> String {
        self.dir.display().to_string()
    }

    fn ask(&mut self) -> Result<Reading, NoAnswer> {
        let name = self.name();
        let refused = |why: String| WarningError::Refused { name: name.clone(), why };
        let found = self.look().map_err(|error| NoAnswer::Refused(refused(error.to_string())))?;
        let none = || NoAnswer::Refused(refused("it shows no mains and no battery".into()));
        let is_gone = std::mem::replace(&mut self.had_battery, found.batteries > 0);
        if is_gone && found.batteries == 0 && found.mains != Some(true) {
            self.had_battery = true;
            return Ok(Reading::lost(format!("{name}: the battery is not shown any more")));
        }
        found.reading(&self.dir).ok_or_else(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Confidence;

    /// Makes the supplies as folders of files: name, then pairs of attribute and text.
    fn supplies(all: &[(&str, &[(&str, &str)])]) -> (tempfile::TempDir, Result<Reading, NoAnswer>) {
        let dir = tempfile::tempdir().unwrap();
        for (name, attributes) in all {
            let supply = dir.path().join(name);
            fs::create_dir(&supply).unwrap();
            for (attribute, text) in *attributes {
                fs::write(supply.join(attribute), format!("{text}\n")).unwrap();
            }
        }
        let reading = Supplies { dir: dir.path().to_owned(), had_battery: false }.ask();
        (dir, reading)
    }

    fn state(all: &[(&str, &[(&str, &str)])]) -> State {
        supplies(all).1.unwrap().state
    }

    const MAINS: (&str, &[(&str, &str)]) = ("AC", &[("type", "Mains"), ("online", "1")]);
    const NO_MAINS: (&str, &[(&str, &str)]) = ("AC", &[("type", "Mains"), ("online", "0")]);
    const MOUSE: (&str, &[(&str, &str)]) = (
        "mouse",
        &[("type", "Battery"), ("scope", "Device"), ("status", "Discharging"), ("capacity", "1")],
    );

    #[test]
    fn mains_and_batteries_have_their_states() {
        let battery = |attributes| ("BAT0", attributes);
        let discharging: &[_] =
            &[("type", "Battery"), ("status", "Discharging"), ("capacity", "60")];
        let low: &[_] = &[("type", "Battery"), ("status", "Discharging"), ("capacity", "10")];
        let said_low: &[_] =
            &[("type", "UPS"), ("status", "Discharging"), ("capacity_level", "Critical")];
        let normal: &[_] = &[
            ("type", "Battery"),
            ("status", "Discharging"),
            ("capacity_level", "Normal"),
            ("capacity", "5"),
        ];
        let full: &[_] = &[("type", "Battery"), ("status", "Full"), ("capacity", "100")];
        assert_eq!(state(&[MAINS]), State::Steady);
        assert_eq!(state(&[NO_MAINS]), State::Steady, "a machine without a battery is on");
        assert_eq!(state(&[MAINS, battery(low)]), State::Steady);
        assert_eq!(state(&[battery(full)]), State::Steady);
        assert_eq!(state(&[battery(discharging)]), State::OnBattery);
        assert_eq!(state(&[NO_MAINS, battery(full)]), State::OnBattery);
        assert_eq!(state(&[NO_MAINS, battery(discharging), MOUSE]), State::OnBattery);
        assert_eq!(state(&[NO_MAINS, battery(low)]), State::Low);
        assert_eq!(state(&[NO_MAINS, battery(said_low)]), State::Low);
        assert_eq!(state(&[NO_MAINS, battery(normal)]), State::OnBattery);
    }

    #[test]
    fn what_is_left_is_time_if_the_power_is_known_and_energy_otherwise() {
        let with = |extra: &[(&'static str, &'static str)]| {
            let mut attributes = vec![("type", "Battery"), ("status", "Discharging")];
            attributes.extend_from_slice(extra);
            supplies(&[("BAT0", &attributes)]).1.unwrap().left
        };
        // 50 Wh at 25 W.
        let two_hours = Some(Left::Time(Duration::from_secs(7_200)));
        assert_eq!(with(&[("energy_now", "50000000"), ("power_now", "25000000")]), two_hours);
        let by_charge = [("charge_now", "5000000"), ("voltage_now", "10000000")];
        assert_eq!(with(&by_charge), Some(Left::Energy(Joules(180_000.0))));
        let mut and_current = by_charge.to_vec();
        and_current.push(("current_now", "-2500000"));
        assert_eq!(with(&and_current), two_hours);
        assert_eq!(with(&[("capacity", "50")]), None);
    }

    #[test]
    fn what_cannot_be_read_or_is_not_known_is_lost_and_a_ups_that_discharges_is_no_mains() {
        let lost = |all: &[(&str, &[(&str, &str)])]| {
            supplies(all).1.unwrap().confidence == Confidence::Lost
        };
        let unknown: &[_] = &[("type", "Battery"), ("status", "Unknown"), ("capacity", "3")];
        let without: &[_] = &[("type", "Battery"), ("capacity", "3")];
        let ups: &[_] =
            &[("type", "UPS"), ("status", "Discharging"), ("capacity_level", "Critical")];
        assert!(lost(&[("BAT0", unknown)]) && lost(&[("BAT0", without)]));
        assert!(!lost(&[MAINS, ("BAT0", unknown)]));
        assert_eq!(supplies(&[MAINS, ("UPS0", ups)]).1.unwrap().state, State::Low);
        assert_eq!(supplies(&[MAINS, ("UPS0", &ups[..2])]).1.unwrap().state, State::OnBattery);
        // A folder in the place of a file cannot be read.
        let (dir, _) = supplies(&[NO_MAINS, ("BAT0", &unknown[..1])]);
        let mut watched = Supplies { dir: dir.path().to_owned(), had_battery: false };
        assert_eq!(watched.ask().unwrap().state, State::OnBattery);
        let status = dir.path().join("BAT0/status");
        fs::create_dir(&status).unwrap();
        let told = watched.ask().unwrap();
        assert!(told.confidence == Confidence::Lost && told.told_by.contains("BAT0/status"));
        // A battery that is gone while the mains are.
        fs::remove_dir_all(dir.path().join("BAT0")).unwrap();
        for _ in 0..2 {
            assert_eq!(watched.ask().unwrap().confidence, Confidence::Lost);
        }
    }

    #[test]
    fn a_folder_without_mains_or_battery_is_refused() {
        for all in [&[][..], &[MOUSE][..], &[("x", &[("type", "BMS")][..])][..]] {
            assert!(matches!(supplies(all).1, Err(NoAnswer::Refused(_))));
        }
        let error = open("/no/such/folder").err().unwrap().to_string();
        assert!(error.starts_with("/no/such/folder refuses"), "{error}");
    }
}
