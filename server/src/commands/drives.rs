//! INFO's lines about the real drives behind devices, and about the machine's meters of energy.
//! Each figure of power has its source beside it.

use std::fmt::Write;

use perdura_media::Watts;
use perdura_media::meters::MeterReading;
use perdura_tier::devices::DeviceStatus;
use perdura_tier::drives::{DriveStatus, DrivesStatus, Observed, Rested};

/// What is told of a device's drives, behind its own fields. `modelled`: the mean power by the
/// model, if there is one.
pub(super) fn of_device(
    status: &DrivesStatus,
    device: &DeviceStatus,
    modelled: Option<f64>,
) -> String {
    let found = status.devices.iter().find(|one| one.number == device.number);
    let drives: Vec<&DriveStatus> =
        found.iter().flat_map(|one| one.drives.iter().map(|n| &status.drives[*n])).collect();
    let words = found.map_or("not looked for yet", |one| one.words.as_str());
    let mut line = format!(",drives={}", clean(words));
    if !drives.is_empty() {
        let states: Vec<_> = drives.iter().map(|drive| short_state(drive)).collect();
        let _ = write!(line, ",power_state={}", clean(&states.join("+")));
    }
    let _ = match watts(status, &drives, modelled) {
        Some((watts, source)) => {
            write!(line, ",watts={watts:.3},watts_source={}", clean(&source))
        }
        None => write!(line, ",watts_source=none"),
    };
    line
}

/// The power of a device and its source: its drives' own meters, else the model, else what the
/// makers say of the drives' states.
fn watts(
    status: &DrivesStatus,
    drives: &[&DriveStatus],
    modelled: Option<f64>,
) -> Option<(f64, String)> {
    let metered = sum(drives.iter().map(|drive| metered(status, drive)));
    if let Some(watts) = metered {
        let sources = drives.iter().flat_map(|drive| &drive.meters);
        let sources: Vec<_> = sources.map(|n| status.meters[*n].source.as_str()).collect();
        return Some((watts, sources.join("+")));
    }
    if let Some(watts) = modelled {
        return Some((watts, "model".into()));
    }
    Some((sum(drives.iter().map(|drive| nameplate(drive)))?, "nameplate".into()))
}

/// The sum of all, if there is one and each is known.
fn sum(parts: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut all = parts.peekable();
    all.peek()?;
    all.sum()
}

/// The power that a drive's own meters show.
fn metered(status: &DrivesStatus, drive: &DriveStatus) -> Option<f64> {
    sum(drive.meters.iter().map(|n| status.meters[*n].power.map(|power| power.0)))
}

fn nameplate(drive: &DriveStatus) -> Option<f64> {
    match &drive.observed {
        Observed::Answer { reading, .. } => reading.nameplate.map(|Watts(watts)| watts),
        Observed::NotYet | Observed::No(_) => None,
    }
}

fn answers_that_it_sleeps(drive: &DriveStatus) -> bool {
    matches!(&drive.observed, Observed::Answer { reading, .. } if reading.state.is_low())
}

/// A drive's power state in a word or two.
fn short_state(drive: &DriveStatus) -> String {
    match (&drive.observed, &drive.runtime) {
        (Observed::Answer { reading, .. }, _) => reading.state.to_string(),
        (_, Some((runtime, _))) if runtime == "suspended" => runtime.clone(),
        _ => "unknown".into(),
    }
}

/// The lines about drives and meters.
pub(super) fn lines(status: &DrivesStatus, now_ns: u64, out: &mut String) -> std::fmt::Result {
    write!(out, "drives:{}\r\n", status.drives.len())?;
    for (index, drive) in status.drives.iter().enumerate() {
        let line = of_drive(status, drive, index, now_ns);
        write!(out, "drive{index}:{line}\r\n")?;
    }
    write!(out, "meters:{}\r\n", status.meters.len())?;
    for (index, meter) in status.meters.iter().enumerate() {
        write!(out, "meter{index}:{}\r\n", of_meter(meter))?;
    }
    Ok(())
}

fn of_drive(status: &DrivesStatus, drive: &DriveStatus, index: usize, now_ns: u64) -> String {
    let devices = status.devices.iter().filter(|device| device.drives.contains(&index));
    let devices: Vec<_> = devices.map(|device| device.number.to_string()).collect();
    let mut line = format!(
        "name={},bus={},devices={}",
        clean(&drive.name),
        clean(&drive.bus),
        devices.join("+"),
    );
    if let Some((runtime, control)) = &drive.runtime {
        let (runtime, control) = (clean(runtime), clean(control));
        let _ = write!(line, ",runtime_status={runtime},runtime_control={control}");
    }
    let _ = match &drive.observed {
        Observed::NotYet => write!(line, ",observed=not yet"),
        Observed::No(why) => write!(line, ",observed=no: {}", clean(why)),
        Observed::Answer { reading, at_ns } => write!(
            line,
            ",observed=yes,power_state={},observed_seconds_ago={}",
            clean(&reading.state.to_string()),
            now_ns.saturating_sub(*at_ns) / 1_000_000_000,
        ),
    };
    let _ = match &drive.rested {
        Rested::Off => write!(line, ",sleep=off"),
        Rested::LeftAlone(why) => write!(line, ",sleep=left alone: {}", clean(why)),
        Rested::Awake => write!(line, ",sleep=awake"),
        Rested::Asleep if answers_that_it_sleeps(drive) => write!(line, ",sleep=asleep"),
        // Some drives, and some machines' models of them, take the command and change nothing.
        Rested::Asleep => write!(line, ",sleep=told to sleep; it answers otherwise"),
        Rested::Refused(why) => write!(line, ",sleep=refused: {}", clean(why)),
    };
    let _ = write!(line, ",sleeps={}", drive.sleeps);
    if let Some(watts) = nameplate(drive) {
        let _ = write!(line, ",nameplate_watts={watts:.4}");
    }
    line
}

fn of_meter(meter: &MeterReading) -> String {
    let mut line = format!("source={}", clean(&meter.source));
    if let Some(power) = meter.power {
        let _ = write!(line, ",watts={:.3}", power.0);
    }
    if let Some(energy) = meter.energy {
        let _ = write!(line, ",joules={:.3}", energy.0);
    }
    if let Some(trouble) = &meter.trouble {
        let _ = write!(line, ",trouble={}", clean(trouble));
    }
    line
}

/// Without what would end a field or a line.
fn clean(text: &str) -> String {
    text.replace(['\r', '\n'], " ").replace(',', ";")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use perdura_media::Joules;
    use perdura_media::drives::{AtaMode, PowerReading, PowerState};
    use perdura_tier::devices::DeviceState;
    use perdura_tier::drives::DeviceDrives;

    use super::*;

    fn drive(name: &str, state: PowerState, nameplate: Option<f64>) -> DriveStatus {
        let reading = PowerReading { state, nameplate: nameplate.map(Watts) };
        DriveStatus {
            name: name.into(),
            bus: "nvme".into(),
            runtime: Some(("active".into(), "auto".into())),
            observed: Observed::Answer { reading, at_ns: 1_000_000_000 },
            rested: Rested::Asleep,
            sleeps: 3,
            meters: Vec::new(),
        }
    }

    fn nvme(name: &str, nameplate: f64) -> DriveStatus {
        let state = PowerState::Nvme { number: 4, count: 5, is_operational: false };
        drive(name, state, Some(nameplate))
    }

    fn meter(source: &str, watts: Option<f64>) -> MeterReading {
        MeterReading {
            source: source.into(),
            energy: watts.map(|watts| Joules(watts * 10.0)),
            power: watts.map(Watts),
            trouble: watts.is_none().then(|| "energy_uj: Permission denied, or so".into()),
            device: None,
        }
    }

    /// Device 7 on these drives.
    fn status(drives: Vec<DriveStatus>) -> DrivesStatus {
        let words = drives.iter().map(|drive| drive.name.as_str()).collect::<Vec<_>>().join("+");
        let of = (0..drives.len()).collect();
        let device = DeviceDrives { number: 7, place: "/a".into(), words, drives: of };
        DrivesStatus { drives, devices: vec![device], meters: Vec::new() }
    }

    fn device() -> DeviceStatus {
        DeviceStatus {
            number: 7,
            place: "/a".into(),
            state: DeviceState::Online,
            is_full: false,
            is_idle: false,
            live_bytes: 0,
            used_bytes: 0,
            suspect_segments: 0,
            reads: 0,
            failed_reads: 0,
            read_bytes: 0,
            writes: 0,
            written_bytes: 0,
            busy_ns: 0,
            quiet_ns: 0,
            wakeups: 0,
            open_ns: 0,
        }
    }

    #[test]
    fn a_devices_power_has_its_source_and_a_meter_wins_over_the_model_over_the_nameplate() {
        let mut both = status(vec![nvme("nvme0n1", 0.005), nvme("nvme1n1", 0.0025)]);
        assert_eq!(
            of_device(&both, &device(), None),
            ",drives=nvme0n1+nvme1n1,power_state=ps4 (of 0 to 4; non-operational)+ps4 (of 0 to 4; \
             non-operational),watts=0.007,watts_source=nameplate"
        );
        let source = |status: &DrivesStatus, modelled| {
            let line = of_device(status, &device(), modelled);
            line.split_once(",watts=").unwrap().1.to_owned()
        };
        assert_eq!(source(&both, Some(2.5)), "2.500,watts_source=model");
        both.meters = vec![meter("hwmon:nvme/power1", Some(4.0))];
        both.drives[0].meters = vec![0];
        assert_eq!(source(&both, Some(2.5)), "2.500,watts_source=model", "one has no meter");
        both.meters.push(meter("hwmon:nvme(hwmon3)/power1", Some(1.0)));
        both.drives[1].meters = vec![1];
        let expected = "5.000,watts_source=hwmon:nvme/power1+hwmon:nvme(hwmon3)/power1";
        assert_eq!(source(&both, Some(2.5)), expected);
    }

    #[test]
    fn a_device_whose_power_nobody_knows_says_so() {
        let ata = drive("sda", PowerState::Ata(AtaMode::Standby), None);
        let one = status(vec![ata.clone(), nvme("nvme0n1", 1.0)]);
        let line = of_device(&one, &device(), None);
        assert!(line.ends_with(",watts_source=none") && line.contains("=standby+ps4"), "{line}");
        let mut nowhere = status(Vec::new());
        nowhere.devices[0].words = "none (tmpfs)".into();
        assert_eq!(of_device(&nowhere, &device(), None), ",drives=none (tmpfs),watts_source=none");
        let none = DrivesStatus::default();
        let expected = ",drives=not looked for yet,watts_source=none";
        assert_eq!(of_device(&none, &device(), None), expected);
        let suspended = DriveStatus {
            observed: Observed::No("suspended".into()),
            runtime: Some(("suspended".into(), "auto".into())),
            ..ata
        };
        let line = of_device(&status(vec![suspended]), &device(), None);
        assert!(line.contains(",power_state=suspended,"), "{line}");
    }

    #[test]
    fn drives_and_meters_have_a_line_each() {
        let mut all = status(vec![nvme("nvme0n1", 0.005), nvme("nvme1n1", 0.1)]);
        all.drives.push(drive("sda", PowerState::Ata(AtaMode::ActiveOrIdle), None));
        all.drives[1].observed = Observed::No("needs CAP_SYS_ADMIN, or more".into());
        all.drives[1].rested = Rested::Refused("no, never".into());
        all.meters = vec![meter("powercap:package-0", Some(12.5)), meter("hwmon:psu", None)];
        let mut out = String::new();
        lines(&all, 4_500_000_000, &mut out).unwrap();
        assert_eq!(
            out,
            "drives:3\r\n\
             drive0:name=nvme0n1,bus=nvme,devices=7,runtime_status=active,runtime_control=auto,\
             observed=yes,power_state=ps4 (of 0 to 4; non-operational),observed_seconds_ago=3,\
             sleep=asleep,sleeps=3,nameplate_watts=0.0050\r\n\
             drive1:name=nvme1n1,bus=nvme,devices=7,runtime_status=active,runtime_control=auto,\
             observed=no: needs CAP_SYS_ADMIN; or more,sleep=refused: no; never,sleeps=3\r\n\
             drive2:name=sda,bus=nvme,devices=,runtime_status=active,runtime_control=auto,\
             observed=yes,power_state=active or idle,observed_seconds_ago=3,\
             sleep=told to sleep; it answers otherwise,sleeps=3\r\n\
             meters:2\r\n\
             meter0:source=powercap:package-0,watts=12.500,joules=125.000\r\n\
             meter1:source=hwmon:psu,trouble=energy_uj: Permission denied; or so\r\n"
        );
    }
}
