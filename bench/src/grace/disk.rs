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
    device: String,
    /// The device's number, as the throttle names it.
    number: String,
    mount: PathBuf,
    is_throttled: bool,
    is_mounted: bool,
    _dir: tempfile::TempDir,
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
        let device = ask(Command::new("losetup").args(["--find", "--show"]).arg(&file))?;
        let mount = place.path().join("data");
        let mut disk = Self {
            device,
            number: String::new(),
            mount,
            is_throttled: false,
            is_mounted: false,
            _dir: place,
        };
        fs::create_dir(&disk.mount).map_err(io)?;
        let number = fs::metadata(&disk.device).map_err(io)?.rdev();
        disk.number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        disk.mount()?;
        Ok(disk)
    }

    /// Where it is mounted.
    pub fn place(&self) -> &Path {
        &self.mount
    }

    /// Mounts it, as after a start of the machine.
    pub fn mount(&mut self) -> Result<(), GraceError> {
        ask(Command::new("mount").arg(&self.device).arg(&self.mount))?;
        self.is_mounted = true;
        Ok(())
    }

    /// Lets it write no more than this; 0: as fast as it can.
    pub fn throttle(&mut self, bytes_per_s: u64) -> Result<(), GraceError> {
        let set = fs::write(THROTTLE, format!("{} {bytes_per_s}", self.number));
        set.map_err(|error| failed(THROTTLE, error))?;
        self.is_throttled = bytes_per_s > 0;
        Ok(())
    }

    /// Cuts it off at once, with everything that it does not have yet. Nobody may use it any more.
    pub fn cut(&mut self) -> Result<(), GraceError> {
        ask(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(&self.mount))?;
        // What it was given before is done, throttled or not: a disk ends what it has begun.
        self.throttle(0)?;
        self.unmount()
    }

    fn unmount(&mut self) -> Result<(), GraceError> {
        let began = Instant::now();
        loop {
            match ask(Command::new("umount").arg(&self.mount)) {
                // A process that was killed, such as a snapshot's, takes a while to end.
                Err(_) if began.elapsed() < BUSY_MAX => {
                    std::thread::sleep(Duration::from_millis(5))
                }
                outcome => {
                    outcome?;
                    break;
                }
            }
        }
        self.is_mounted = false;
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Whatever of it is there goes; what fails here leaves a loop device behind, and says so.
        let throttled = if self.is_throttled { self.throttle(0) } else { Ok(()) };
        let unmounted = if self.is_mounted { self.unmount() } else { Ok(()) };
        let detached = ask(Command::new("losetup").args(["--detach", &self.device])).map(drop);
        for error in [throttled, unmounted, detached].into_iter().filter_map(Result::err) {
            eprintln!("perdura: {error}");
        }
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
