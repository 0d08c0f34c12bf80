//! Real ENOSPC, where the tests may mount a file system of their own.

use std::fs::File;
use std::process::Command;

use super::*;

/// A file system of 1 MiB, unmounted on drop; `None`, with the reason printed, without the right to
/// mount.
struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    fn mount() -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=1m", "perdura-test"]).arg(dir.path());
        match command.output() {
            Ok(output) if output.status.success() => Some(Self { dir }),
            other => {
                println!("skipped: cannot mount a small tmpfs: {other:?}");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg(self.dir.path()).status();
    }
}

#[test]
fn a_full_disk_refuses_growth_and_the_device_stays_as_it_was() {
    let Some(disk) = SmallDisk::mount() else { return };
    let path = disk.dir.path().join("image");
    let mode = OpenMode::Create { capacity_bytes: MIB / 2 };
    let device = FileDevice::open(&path, mode, Engine::Auto, Direct::Auto).unwrap();
    let error = device.grow(2 * MIB).unwrap_err();
    assert!(matches!(error, DeviceError::NoSpace { op: "grow", .. }), "{error}");
    assert_eq!(device.capacity_bytes(), MIB / 2);
    device.write_at(0, &filled(1, 1)).unwrap();
    device.flush().unwrap();
}

#[test]
fn a_file_that_gets_no_space_is_removed() {
    let Some(disk) = SmallDisk::mount() else { return };
    let path = disk.dir.path().join("image");
    let mode = OpenMode::Create { capacity_bytes: 2 * MIB };
    let error = FileDevice::open(&path, mode, Engine::Auto, Direct::Auto).unwrap_err();
    assert!(matches!(error, DeviceError::NoSpace { op: "grow", .. }), "{error}");
    assert!(!path.exists());
}

#[test]
fn a_full_disk_fails_the_write_typed_and_does_not_latch() {
    for engine in [Engine::Auto, Engine::Pwrite] {
        for direct in [Direct::Auto, Direct::Off] {
            let Some(disk) = SmallDisk::mount() else { return };
            let path = disk.dir.path().join("image");
            // The file is a hole: it has the size, and no space.
            File::create(&path).unwrap().set_len(4 * MIB).unwrap();
            let device = FileDevice::open(&path, OpenMode::Existing, engine, direct).unwrap();
            let buf = filled(1, 512);
            let mut queue = device.queue(2).unwrap();
            submit(&mut queue, 1, 0, &buf).unwrap();
            let mut out = Vec::new();
            queue.wait(1, &mut out).unwrap();
            let result = &out[0].result;
            assert!(
                matches!(
                    result,
                    Err(DeviceError::NoSpace { op: "write", len_bytes: 2_097_152, .. })
                ),
                "{}: {result:?}",
                device.describe()
            );
            device.write_at(0, &filled(2, 1)).unwrap();
            device.flush().unwrap();
        }
    }
}
