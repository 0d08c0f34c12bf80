//! A disk in a file: an XFS on a loop device, which can be throttled, and cut as a loss of power
//! cuts it.
//!
//! The cut ends the file system without its log (`xfs_io`'s `shutdown`): what is only in the page
//! cache, or only in the file system's log buffers, is lost. What the loop device was given is kept
//! by the file below it, as by a disk without a volatile cache.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::GraceError;

/// The file of the first version of cgroups that limits the writes of a device for everybody.
const THROTTLE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

/// Longest time that processes which were killed keep it busy.
const BUSY_MAX: Duration = Duration::from_secs(10);

/// A disk that is mounted; taken apart when dropped.
#[derive(Debug)]
pub struct Disk {
    file: PathBuf,
    mount: PathBuf,
    /// While it is mounted.
    attached: Option<Attached>,
    _dir: tempfile::TempDir,
}

/// A loop device.
#[derive(Debug)]
struct Attached {
    device: String,
    /// The device's number, as the throttle names it.
    number: String,
    is_throttled: bool,
}

impl Disk {
    /// Makes a disk of `bytes` in a file below `dir`.
    pub fn new(dir: &Path, bytes: u64) -> Result<Self, GraceError> {
        if !rustix::process::geteuid().is_root() {
            return Err(failed("a disk of our own", "only root may make and throttle one"));
        }
        if !Path::new(THROTTLE).exists() {
            return Err(failed(
                THROTTLE,
                "it is not there: throttling a disk takes the blkio controller of cgroups' first \
                 version",
            ));
        }
        let io = |error: std::io::Error| failed(dir.display(), error);
        fs::create_dir_all(dir).map_err(io)?;
        let place = tempfile::Builder::new().prefix("grace-").tempdir_in(dir).map_err(io)?;
        let file = place.path().join("disk");
        let made = fs::File::create(&file).and_then(|file| file.set_len(bytes));
        made.map_err(io)?;
        ask(Command::new("mkfs.xfs").arg("-q").arg(&file))?;
        let mount = place.path().join("data");
        fs::create_dir(&mount).map_err(io)?;
        let mut disk = Self { file, mount, attached: None, _dir: place };
        disk.mount()?;
        Ok(disk)
    }

    /// Where it is mounted.
    pub fn place(&self) -> &Path {
        &self.mount
    }

    /// Mounts it, as after a start of the machine.
    pub fn mount(&mut self) -> Result<(), GraceError> {
        let attached = Attached::new(&self.file)?;
        // The file system has the name of the one that was cut, which may still be mounted
        // somewhere.
        let mut mount = Command::new("mount");
        let mounted = ask(mount.args(["-o", "nouuid", &attached.device]).arg(&self.mount));
        if let Err(error) = mounted {
            attached.detach()?;
            return Err(error);
        }
        self.attached = Some(attached);
        Ok(())
    }

    /// Lets it write no more than this; 0: as fast as it can.
    pub fn throttle(&mut self, bytes_per_s: u64) -> Result<(), GraceError> {
        match &mut self.attached {
            Some(attached) => attached.throttle(bytes_per_s),
            None => Err(failed(self.mount.display(), "it is not mounted")),
        }
    }

    /// Cuts it off at once, with everything that it does not have yet. Nobody may use it any more.
    pub fn cut(&mut self) -> Result<(), GraceError> {
        ask(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(&self.mount))?;
        self.unmount()
    }

    /// Takes it out. What it was given before is done: a disk ends what it has begun.
    fn unmount(&mut self) -> Result<(), GraceError> {
        let Some(mut attached) = self.attached.take() else { return Ok(()) };
        // A throttle stays with the number, which the next device may have.
        let throttled = if attached.is_throttled { attached.throttle(0) } else { Ok(()) };
        let unmounted = self.wait_to_unmount();
        let detached = attached.detach();
        throttled.and(unmounted).and(detached)
    }

    fn wait_to_unmount(&self) -> Result<(), GraceError> {
        let began = Instant::now();
        loop {
            match ask(Command::new("umount").arg(&self.mount)) {
                // A process that was killed, such as a snapshot's, takes a while to end.
                Err(_) if began.elapsed() < BUSY_MAX => {
                    std::thread::sleep(Duration::from_millis(5))
                }
                outcome => return outcome.map(drop),
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What fails here leaves a loop device behind, and says so.
        if let Err(error) = self.unmount() {
            eprintln!("perdura: {error}");
        }
    }
}

impl Attached {
    fn new(file: &Path) -> Result<Self, GraceError> {
        let device = ask(Command::new("losetup").args(["--find", "--show"]).arg(file))?;
        let number = fs::metadata(&device).map(|it| it.rdev()).map_err(|why| failed(&device, why));
        let mut attached = Self { device, number: String::new(), is_throttled: false };
        match number {
            Ok(number) => {
                let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
                attached.number = format!("{major}:{minor}");
                Ok(attached)
            }
            Err(error) => {
                attached.detach()?;
                Err(error)
            }
        }
    }

    fn throttle(&mut self, bytes_per_s: u64) -> Result<(), GraceError> {
        let set = fs::write(THROTTLE, format!("{} {bytes_per_s}", self.number));
        set.map_err(|error| failed(THROTTLE, error))?;
        self.is_throttled = bytes_per_s > 0;
        Ok(())
    }

    /// Lets the device go; at once, or when nobody has it mounted any more.
    fn detach(self) -> Result<(), GraceError> {
        ask(Command::new("losetup").args(["--detach", &self.device])).map(drop)
    }
}

fn failed(what: impl std::fmt::Display, why: impl std::fmt::Display) -> GraceError {
    GraceError::Disk { what: what.to_string(), why: why.to_string() }
}

/// Runs a program of the system and returns what it says.
fn ask(command: &mut Command) -> Result<String, GraceError> {
    let output = command.stdin(Stdio::null()).output();
    let what = format!("{command:?}");
    match output {
        Err(error) => Err(failed(what, error)),
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => Err(failed(what, String::from_utf8_lossy(&output.stderr).trim())),
    }
}
