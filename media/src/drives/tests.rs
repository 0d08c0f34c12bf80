//! Drives over trees of files that look like the kernel's.
#![allow(clippy::unwrap_used)] // a test's own failure

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::find::{behind_device, behind_mount};
use super::mounts::mount;
use super::{Behind, Bus, Drive, DriveError, DrivePower, Requests, Roots, drives_behind};

/// A tree of files that looks like `/sys` and `/dev`.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for dir in ["sys/dev/block", "sys/class/block", "dev"] {
            std::fs::create_dir_all(tree.0.path().join(dir)).unwrap();
        }
        for subsystem in ["scsi", "virtio", "nvme", "mmc"] {
            let dir = tree.path(&format!("sys/bus/{subsystem}"));
            std::fs::create_dir_all(dir).unwrap();
        }
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn roots(&self) -> Roots {
        let (sys, dev, mounts) = (self.path("sys"), self.path("dev"), self.path("mountinfo"));
        Roots { sys, dev, mounts }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }

    fn link(&self, at: &str, to: &str) {
        let at = self.path(at);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        symlink(self.path(to), at).unwrap();
    }

    /// A block device with this number and directory.
    fn block(&self, number: &str, dir: &str) {
        let dir = format!("sys/devices/{dir}");
        self.write(&format!("{dir}/dev"), number);
        self.link(&format!("sys/dev/block/{number}"), &dir);
        let name = Path::new(&dir).file_name().unwrap().to_str().unwrap();
        self.link(&format!("sys/class/block/{name}"), &dir);
    }

    /// An NVMe drive `nvmeNn1` with one partition, `259:2N` and `259:2N+1`.
    fn nvme(&self, n: u32) {
        let pci = format!("pci0000:00/0000:0{n}:00.0");
        let controller = format!("{pci}/nvme/nvme{n}");
        let disk = format!("{controller}/nvme{n}n1");
        self.block(&format!("259:{}", 2 * n), &disk);
        self.block(&format!("259:{}", 2 * n + 1), &format!("{disk}/nvme{n}n1p1"));
        self.write(&format!("sys/devices/{disk}/nvme{n}n1p1/partition"), "1");
        self.write(&format!("sys/devices/{controller}/transport"), "pcie");
        self.write(&format!("sys/devices/{controller}/dev"), &format!("240:{n}"));
        self.write(&format!("sys/devices/{controller}/power/runtime_status"), "unsupported");
        self.write(&format!("sys/devices/{pci}/power/runtime_status"), "active");
        self.write(&format!("sys/devices/{pci}/power/control"), "auto");
        self.link(&format!("sys/devices/{controller}/device"), &format!("sys/devices/{pci}"));
        self.link(&format!("sys/devices/{disk}/device"), &format!("sys/devices/{controller}"));
        self.link(&format!("sys/devices/{controller}/subsystem"), "sys/bus/nvme");
    }

    /// A drive behind the SCSI layer, with one partition.
    fn scsi(&self, letter: char, vendor: &str) {
        let n = letter as u32 - 'a' as u32;
        let device = format!("pci0000:00/ata{n}/host{n}/{n}:0:0:0");
        let disk = format!("{device}/block/sd{letter}");
        self.block(&format!("8:{}", 16 * n), &disk);
        self.block(&format!("8:{}", 16 * n + 1), &format!("{disk}/sd{letter}1"));
        self.write(&format!("sys/devices/{disk}/sd{letter}1/partition"), "1");
        self.write(&format!("sys/devices/{device}/vendor"), vendor);
        self.write(&format!("sys/devices/{device}/power/runtime_status"), "suspended");
        self.write(&format!("sys/devices/{device}/power/control"), "auto");
        self.link(&format!("sys/devices/{device}/subsystem"), "sys/bus/scsi");
        self.link(&format!("sys/devices/{disk}/device"), &format!("sys/devices/{device}"));
    }

    /// A device over others.
    fn over(&self, number: &str, name: &str, below: &[&str]) {
        self.block(number, &format!("virtual/block/{name}"));
        for one in below {
            let at = format!("sys/devices/virtual/block/{name}/slaves/{one}");
            self.link(&at, &format!("sys/class/block/{one}"));
        }
    }

    fn behind(&self, major: u32, minor: u32) -> Behind {
        behind_device(&self.roots(), major, minor, 0)
    }
}

fn names(behind: &Behind) -> Vec<(&str, &Bus)> {
    let Behind::Drives(drives) = behind else { panic!("{behind:?}") };
    drives.iter().map(|drive| (drive.name(), drive.bus())).collect()
}

#[test]
fn a_partition_of_an_nvme_drive_leads_to_its_controller() {
    let tree = Tree::new();
    tree.nvme(0);
    tree.nvme(1);
    let bus = Bus::Nvme("nvme1".into());
    assert_eq!(names(&tree.behind(259, 3)), [("nvme1n1", &bus)]);
    assert_eq!(names(&tree.behind(259, 2)), [("nvme1n1", &bus)]);
}

#[test]
fn the_controller_of_an_nvme_subsystem_is_found_if_it_is_the_only_one() {
    let tree = Tree::new();
    let subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys4";
    tree.block("259:9", "virtual/nvme-subsystem/nvme-subsys4/nvme4n1");
    tree.link(&format!("{subsystem}/nvme4n1/device"), subsystem);
    let controller = "sys/devices/pci0000:00/0000:09:00.0/nvme/nvme4";
    tree.write(&format!("{controller}/transport"), "pcie");
    tree.link(&format!("{subsystem}/nvme4"), controller);
    assert_eq!(names(&tree.behind(259, 9)), [("nvme4n1", &Bus::Nvme("nvme4".into()))]);
    tree.write("sys/devices/pci0000:00/0000:0a:00.0/nvme/nvme5/transport", "pcie");
    tree.link(&format!("{subsystem}/nvme5"), "sys/devices/pci0000:00/0000:0a:00.0/nvme/nvme5");
    let several = Bus::Other("nvme by 2 controllers".into());
    assert_eq!(names(&tree.behind(259, 9)), [("nvme4n1", &several)]);
}

#[test]
fn a_disk_that_shares_its_controller_with_another_has_no_power_state_of_its_own() {
    let tree = Tree::new();
    tree.nvme(0);
    let controller = "pci0000:00/0000:00:00.0/nvme/nvme0";
    tree.block("259:20", &format!("{controller}/nvme0n2"));
    tree.link(
        &format!("sys/devices/{controller}/nvme0n2/device"),
        &format!("sys/devices/{controller}"),
    );
    let shared = Bus::Other("nvme with 2 namespaces".into());
    assert_eq!(names(&tree.behind(259, 1)), [("nvme0n1", &shared)]);
    assert_eq!(names(&tree.behind(259, 20)), [("nvme0n2", &shared)]);
    let Behind::Drives(drives) = tree.behind(259, 20) else { panic!("a drive") };
    let why = drives[0].sleep().unwrap_err().to_string();
    assert_eq!(why, "there is no power state to ask for (nvme with 2 namespaces)");
    // With native multipath, the disks are the subsystem's.
    let subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys4";
    for disk in ["nvme4n1", "nvme4n2"] {
        tree.block(&format!("259:3{}", &disk[6..]), &format!("{}/{disk}", &subsystem[12..]));
        tree.link(&format!("{subsystem}/{disk}/device"), subsystem);
    }
    tree.write("sys/devices/pci0000:00/0000:09:00.0/nvme/nvme4/transport", "pcie");
    tree.link(&format!("{subsystem}/nvme4"), "sys/devices/pci0000:00/0000:09:00.0/nvme/nvme4");
    assert_eq!(names(&tree.behind(259, 31)), [("nvme4n1", &shared)]);
}

#[test]
fn an_nvme_drive_of_another_machine_is_not_taken_for_one_of_this() {
    let tree = Tree::new();
    tree.nvme(0);
    tree.write("sys/devices/pci0000:00/0000:00:00.0/nvme/nvme0/transport", "tcp");
    assert_eq!(names(&tree.behind(259, 1)), [("nvme0n1", &Bus::Other("nvme over tcp".into()))]);
}

#[test]
fn what_lies_on_several_drives_leads_to_all_of_them_each_once() {
    let tree = Tree::new();
    tree.scsi('a', "ATA     ");
    tree.scsi('b', "SEAGATE");
    tree.nvme(0);
    tree.over("9:0", "md0", &["sdb1", "sda1"]);
    assert_eq!(names(&tree.behind(9, 0)), [("sda", &Bus::Ata), ("sdb", &Bus::Scsi)]);
    // An encrypted volume over a logical one over md and a partition of a drive that md has, too.
    tree.over("253:0", "dm-0", &["md0", "sda1", "nvme0n1p1"]);
    tree.over("253:1", "dm-1", &["dm-0"]);
    let found = tree.behind(253, 1);
    let found: Vec<_> = names(&found).into_iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(found, ["nvme0n1", "sda", "sdb"]);
}

#[test]
fn a_layer_that_leads_nowhere_makes_all_unknown() {
    let tree = Tree::new();
    tree.scsi('a', "ATA");
    tree.over("9:0", "md0", &["sda1", "sdz1"]);
    assert!(matches!(tree.behind(9, 0), Behind::Unknown { why } if why.contains("sdz1")));
    assert!(matches!(tree.behind(9, 7), Behind::Unknown { why } if why.contains("9:7")));
    // A circle, which the kernel never has.
    tree.over("253:0", "dm-0", &["dm-1"]);
    tree.over("253:1", "dm-1", &["dm-0"]);
    assert!(matches!(tree.behind(253, 1), Behind::Unknown { why } if why.contains("layers")));
}

#[test]
fn other_buses_are_named() {
    let tree = Tree::new();
    tree.block("254:0", "pci0000:00/virtio0/block/vda");
    tree.link("sys/devices/pci0000:00/virtio0/block/vda/device", "sys/devices/pci0000:00/virtio0");
    tree.link("sys/devices/pci0000:00/virtio0/subsystem", "sys/bus/virtio");
    tree.block("179:0", "mmc0/block/mmcblk0");
    tree.link("sys/devices/mmc0/block/mmcblk0/device", "sys/devices/mmc0");
    tree.link("sys/devices/mmc0/subsystem", "sys/bus/mmc");
    tree.block("252:0", "virtual/block/zram0");
    assert_eq!(names(&tree.behind(254, 0)), [("vda", &Bus::Virtio)]);
    assert_eq!(names(&tree.behind(179, 0)), [("mmcblk0", &Bus::Other("mmc".into()))]);
    assert_eq!(names(&tree.behind(252, 0)), [("zram0", &Bus::Other("virtual".into()))]);
    let Behind::Drives(drives) = tree.behind(254, 0) else { panic!("a drive") };
    let why = drives[0].observe().unwrap_err().to_string();
    assert_eq!(why, "there is no power state to ask for (virtio)");
}

#[test]
fn memory_and_other_machines_have_no_drive_and_a_union_is_unknown() {
    let tree = Tree::new();
    tree.write("mountinfo", "7 1 0:40 / /tmp rw - tmpfs tmpfs rw\n8 1 0:41 / / rw - overlay o rw");
    let of = |number| {
        let mount = mount(&tree.roots(), number).unwrap().unwrap();
        behind_mount(&tree.roots(), &mount, 0)
    };
    assert_eq!(of(7), Behind::NoDrive { file_system: "tmpfs".into() });
    assert_eq!(of(8), Behind::Unknown { why: "overlay".into() });
    assert_eq!(mount(&tree.roots(), 9).unwrap(), None);
}

#[test]
fn a_btrfs_leads_to_all_its_devices() {
    let tree = Tree::new();
    tree.scsi('a', "ATA");
    tree.scsi('c', "ATA");
    tree.over("253:0", "dm-0", &["sdc1"]);
    tree.write("dev/dm-0", "");
    tree.link("dev/mapper/data", "dev/dm-0");
    tree.write("sys/fs/btrfs/features/x", "1");
    tree.write("sys/fs/btrfs/uuid-of-another/devices/sdb1", "");
    tree.write("sys/fs/btrfs/uuid/devices/dm-0", "");
    tree.write("sys/fs/btrfs/uuid/devices/sda1", "");
    tree.write("mountinfo", "7 1 0:40 / /srv rw - btrfs /dev/mapper/data rw");
    let mount = mount(&tree.roots(), 7).unwrap().unwrap();
    let found = behind_mount(&tree.roots(), &mount, 0);
    assert_eq!(names(&found), [("sda", &Bus::Ata), ("sdc", &Bus::Ata)]);
}

#[test]
fn a_loop_device_leads_to_what_its_file_lies_on() {
    let tree = Tree::new();
    tree.block("7:0", "virtual/block/loop0");
    tree.write("sys/devices/virtual/block/loop0/loop/backing_file", "/nonexistent/image");
    assert!(matches!(tree.behind(7, 0), Behind::Unknown { why } if why.contains("/nonexistent")));
    // A loop device without a file is none's.
    tree.block("7:1", "virtual/block/loop1");
    assert_eq!(names(&tree.behind(7, 1)), [("loop1", &Bus::Other("virtual".into()))]);
}

#[test]
fn the_directory_of_this_test_lies_somewhere_and_a_missing_one_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let here = drives_behind(&Roots::default(), dir.path());
    assert!(!here.to_string().is_empty());
    let missing = drives_behind(&Roots::default(), &dir.path().join("missing"));
    assert!(matches!(missing, Behind::Unknown { why } if why.contains("missing")));
}

fn first(behind: Behind) -> Drive {
    let Behind::Drives(mut drives) = behind else { panic!("{behind:?}") };
    drives.remove(0)
}

#[test]
fn the_kernels_counts_of_requests_are_read() {
    let tree = Tree::new();
    tree.scsi('a', "ATA");
    let drive = first(tree.behind(8, 0));
    let stat = "sys/devices/pci0000:00/ata0/host0/0:0:0:0/block/sda/stat";
    assert!(drive.requests().is_err());
    tree.write(stat, "  100  1 2 3  20  5 6 7  4  8 9  1000  10 11 12  5000 13");
    assert_eq!(drive.requests().unwrap(), Requests { done: 6120, under_way: 4 });
    tree.write(stat, "100 1 2 3 20 5 6 7 0 8 9");
    assert_eq!(drive.requests().unwrap(), Requests { done: 120, under_way: 0 });
    tree.write(stat, "100 1 2");
    assert!(drive.requests().is_err());
    tree.write(stat, "100 1 2 3 20 5 6 7 x 8 9");
    assert!(drive.requests().is_err());
}

#[test]
fn a_drive_that_the_kernel_has_suspended_is_not_asked() {
    let tree = Tree::new();
    tree.scsi('a', "ATA");
    tree.nvme(0);
    let suspended = first(tree.behind(8, 0));
    assert_eq!(suspended.runtime(), Some(("suspended".into(), "auto".into())));
    assert!(matches!(suspended.observe(), Err(DriveError::Suspended)));
    assert!(matches!(suspended.sleep(), Err(DriveError::Suspended)));
    // What counts of an NVMe drive is its PCI device.
    let awake = first(tree.behind(259, 0));
    assert_eq!(awake.runtime(), Some(("active".into(), "auto".into())));
    let pci = "sys/devices/pci0000:00/0000:00:00.0/power/runtime_status";
    tree.write(pci, "suspending");
    assert!(matches!(awake.observe(), Err(DriveError::Suspended)));
}

#[test]
fn a_file_that_is_not_the_drives_device_is_not_asked() {
    let tree = Tree::new();
    tree.nvme(0);
    let drive = first(tree.behind(259, 0));
    assert!(matches!(
        drive.observe(),
        Err(DriveError::System { path, .. }) if path.ends_with("dev/nvme0")
    ));
    tree.write("dev/nvme0", "no device");
    let why = drive.observe().unwrap_err().to_string();
    assert!(why.ends_with("dev/nvme0 is device 0:0, and the drive is device 240:0"), "{why}");
    // A device that takes no such command: the null device.
    std::fs::remove_file(tree.path("dev/nvme0")).unwrap();
    symlink("/dev/null", tree.path("dev/nvme0")).unwrap();
    tree.write("sys/devices/pci0000:00/0000:00:00.0/nvme/nvme0/dev", "1:3");
    let why = drive.observe().unwrap_err().to_string();
    assert!(why.starts_with("Identify Controller on ") && why.contains("ioctl"), "{why}");
}

#[test]
fn a_meter_of_a_drives_device_is_the_drives() {
    let tree = Tree::new();
    tree.nvme(0);
    tree.nvme(1);
    let drive = first(tree.behind(259, 0));
    let controller = |n: u32| {
        std::fs::canonicalize(
            tree.path(&format!("sys/devices/pci0000:00/0000:0{n}:00.0/nvme/nvme{n}")),
        )
        .unwrap()
    };
    assert!(drive.owns(&controller(0)));
    assert!(!drive.owns(&controller(1)));
    tree.block("252:0", "virtual/block/zram0");
    assert!(!first(tree.behind(252, 0)).owns(&controller(0)), "a drive without a device");
}
