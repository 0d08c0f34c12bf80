//! Meters over trees of files that look like the kernel's.
#![allow(clippy::unwrap_used)] // a test's own failure

use std::os::unix::fs::symlink;
use std::path::Path;

use super::ipmi::{Refusal, decode};
use super::{MeterReading, Meters};
use crate::drives::Roots;
use crate::units::{Joules, Watts};

const S: u64 = 1_000_000_000;

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn roots(&self) -> Roots {
        let of = |name| self.0.path().join(name);
        Roots { sys: of("sys"), dev: of("dev"), mounts: of("mountinfo") }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join("sys/class").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }

    fn zone(&self, zone: &str, name: &str, microjoules: u64) {
        self.write(&format!("powercap/{zone}/name"), name);
        self.write(&format!("powercap/{zone}/max_energy_range_uj"), "262143328850");
        self.write(&format!("powercap/{zone}/energy_uj"), &microjoules.to_string());
    }
}

fn one<'r>(readings: &'r [MeterReading], source: &str) -> &'r MeterReading {
    let found = readings.iter().find(|reading| reading.source == source);
    found.unwrap_or_else(|| panic!("{source} is missing in {readings:#?}"))
}

#[test]
fn a_machine_without_meters_has_none() {
    let tree = Tree::new();
    let mut meters = Meters::find(&tree.roots());
    meters.sample(S);
    assert_eq!(meters.readings(), []);
}

#[test]
fn zones_have_the_names_of_those_that_they_are_in_and_no_two_have_one() {
    let tree = Tree::new();
    // The control type has no counter.
    tree.write("powercap/intel-rapl/enabled", "1");
    tree.zone("intel-rapl:0", "package-0", 0);
    tree.zone("intel-rapl:0:0", "core", 0);
    tree.zone("intel-rapl:1", "psys", 0);
    tree.zone("intel-rapl-mmio:0", "package-0", 0);
    let readings = Meters::find(&tree.roots()).readings();
    let mut sources: Vec<_> = readings.into_iter().map(|reading| reading.source).collect();
    sources.sort();
    assert_eq!(
        sources,
        [
            "powercap:package-0",
            "powercap:package-0(intel-rapl:0)",
            "powercap:package-0/core",
            "powercap:psys"
        ]
    );
}

#[test]
fn energy_is_what_the_count_went_up_by_also_beyond_the_end_of_its_range() {
    let tree = Tree::new();
    tree.zone("intel-rapl:0", "package-0", 262_143_000_000);
    let mut meters = Meters::find(&tree.roots());
    meters.sample(S);
    let first = one(&meters.readings(), "powercap:package-0").clone();
    assert_eq!((first.energy, first.power), (None, None), "one look is no interval");
    tree.zone("intel-rapl:0", "package-0", 262_143_328_000);
    meters.sample(2 * S);
    let second = one(&meters.readings(), "powercap:package-0").clone();
    assert_eq!((second.energy, second.power), (Some(Joules(0.328)), Some(Watts(0.328))));
    tree.zone("intel-rapl:0", "package-0", 9_999_150);
    meters.sample(4 * S);
    let third = one(&meters.readings(), "powercap:package-0").clone();
    assert_eq!((third.energy, third.power), (Some(Joules(10.328)), Some(Watts(5.0))));
}

#[test]
fn a_meter_is_not_looked_at_more_than_once_a_second() {
    let tree = Tree::new();
    tree.zone("intel-rapl:0", "package-0", 0);
    let mut meters = Meters::find(&tree.roots());
    meters.sample(S);
    tree.zone("intel-rapl:0", "package-0", 7_000_000);
    meters.sample(2 * S - 1);
    assert_eq!(one(&meters.readings(), "powercap:package-0").energy, None);
    meters.sample(2 * S);
    assert_eq!(one(&meters.readings(), "powercap:package-0").energy, Some(Joules(7.0)));
}

#[test]
fn a_count_that_may_not_be_read_or_is_none_is_told_of_and_not_guessed() {
    let tree = Tree::new();
    tree.zone("intel-rapl:0", "package-0", 0);
    let mut meters = Meters::find(&tree.roots());
    meters.sample(S);
    tree.write("powercap/intel-rapl:0/energy_uj", "many");
    meters.sample(2 * S);
    let broken = one(&meters.readings(), "powercap:package-0").clone();
    assert_eq!((broken.energy, broken.power), (None, None));
    assert!(broken.trouble.unwrap().contains("energy_uj: expected a number, found \"many\""));
    // A directory is refused to everybody, also to the superuser.
    let path = tree.0.path().join("sys/class/powercap/intel-rapl:0/energy_uj");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    meters.sample(3 * S);
    assert!(one(&meters.readings(), "powercap:package-0").trouble.is_some());
    std::fs::remove_dir(&path).unwrap();
    // The gap is not counted: nobody knows whether the count went around in it.
    tree.zone("intel-rapl:0", "package-0", 50_000_000);
    meters.sample(4 * S);
    tree.zone("intel-rapl:0", "package-0", 51_000_000);
    meters.sample(5 * S);
    let back = one(&meters.readings(), "powercap:package-0").clone();
    assert_eq!((back.energy, back.trouble), (Some(Joules(1.0)), None));
}

#[test]
fn sensors_of_power_are_added_up_over_time_and_those_of_energy_are_counts() {
    let tree = Tree::new();
    tree.write("hwmon/hwmon0/name", "acpitz");
    tree.write("hwmon/hwmon0/temp1_input", "45000");
    tree.write("hwmon/hwmon1/name", "psu");
    tree.write("hwmon/hwmon1/power1_input", "999000000");
    tree.write("hwmon/hwmon1/power1_average", "100000000");
    tree.write("hwmon/hwmon1/power1_label", "PSU1 in");
    tree.write("hwmon/hwmon1/power2_input", "3000000");
    tree.write("hwmon/hwmon1/power2_input_highest", "7");
    tree.write("hwmon/hwmon2/name", "psu");
    tree.write("hwmon/hwmon2/energy3_input", "1000000");
    let mut meters = Meters::find(&tree.roots());
    meters.sample(S);
    tree.write("hwmon/hwmon1/power1_average", "200000000");
    tree.write("hwmon/hwmon2/energy3_input", "5000000");
    meters.sample(3 * S);
    let readings = meters.readings();
    assert_eq!(readings.len(), 3, "{readings:#?}");
    let supply = one(&readings, "hwmon:psu/PSU1 in");
    assert_eq!((supply.energy, supply.power), (Some(Joules(300.0)), Some(Watts(200.0))));
    let second = one(&readings, "hwmon:psu/power2");
    assert_eq!((second.energy, second.power), (Some(Joules(6.0)), Some(Watts(3.0))));
    let other = one(&readings, "hwmon:psu(hwmon2)/energy3");
    assert_eq!((other.energy, other.power), (Some(Joules(4.0)), Some(Watts(2.0))));
    // A count of no known range that goes down was reset.
    tree.write("hwmon/hwmon2/energy3_input", "500000");
    meters.sample(4 * S);
    let energy = one(&meters.readings(), "hwmon:psu(hwmon2)/energy3").energy;
    assert_eq!(energy, Some(Joules(4.5)));
}

#[test]
fn a_sensor_says_which_device_it_is_of() {
    let tree = Tree::new();
    let device = tree.0.path().join("sys/devices/pci0000:00/nvme/nvme0");
    std::fs::create_dir_all(&device).unwrap();
    tree.write("hwmon/hwmon0/name", "nvme");
    tree.write("hwmon/hwmon0/power1_input", "5000000");
    symlink(&device, tree.0.path().join("sys/class/hwmon/hwmon0/device")).unwrap();
    let readings = Meters::find(&tree.roots()).readings();
    let expected = std::fs::canonicalize(&device).unwrap();
    assert_eq!(one(&readings, "hwmon:nvme/power1").device.as_deref(), Some(expected.as_path()));
}

#[test]
fn a_class_that_cannot_be_listed_is_told_of() {
    let tree = Tree::new();
    tree.write("hwmon", "no directory");
    let readings = Meters::find(&tree.roots()).readings();
    assert!(one(&readings, "hwmon").trouble.is_some());
}

#[test]
fn a_management_controllers_answer_has_the_power_where_the_specification_has_it() {
    let mut answer = vec![0x00, 0xDC, 0x2C, 0x01, 0x64, 0x00, 0x90, 0x01, 0x20, 0x01];
    answer.extend([0xA8, 0x13, 0x5E, 0x5F, 0xE8, 0x03, 0x00, 0x00, 0x40]);
    assert_eq!(decode(&answer), Ok(Watts(300.0)));
    answer[18] = 0x00;
    assert_eq!(decode(&answer), Err(Refusal::Inactive));
    assert_eq!(decode(&answer[..18]), Err(Refusal::Form(answer[..18].to_vec())));
    assert_eq!(decode(&[0xC1]), Err(Refusal::Code(0xC1)));
    assert_eq!(decode(&[]), Err(Refusal::Form(Vec::new())));
    answer[1] = 0xDD;
    assert!(matches!(decode(&answer), Err(Refusal::Form(_))));
}

#[test]
fn a_controllers_file_that_is_no_controller_is_told_of() {
    let tree = Tree::new();
    let dev = tree.0.path().join("dev");
    std::fs::create_dir_all(&dev).unwrap();
    std::fs::write(dev.join("ipmi0"), "").unwrap();
    let mut meters = Meters::find(&tree.roots());
    meters.sample(S);
    let readings = meters.readings();
    let trouble = one(&readings, "ipmi:dcmi").trouble.clone().unwrap();
    assert!(trouble.contains(&Path::new("dev/ipmi0").display().to_string()), "{trouble}");
}
