//! Measures what XFS adds to a request: a file on XFS beside the loop device that holds it, in
//! pairs and past the page cache.
//!
//! Only root can run this. The file behind the loop device lies in memory. Mount and device are
//! removed even if the measurement fails; after `kill -9` they are left for `umount` and `losetup
//! -d` by hand.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use perdura_media::BlockBuf;
use perdura_media::emulator::Tsc;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::HasteSettings;
use super::programs::{ProgramError, Scratch};
use super::raw::SIZES;
use super::result::FileSystemResult;

/// Why the file system could not be measured.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileSystemError {
    #[error("mounting a file system needs root")]
    NotRoot,
    #[error("{program} is missing or failed ({said}): apt-get install {package}")]
    Program { program: &'static str, package: &'static str, said: String },
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
    #[error(transparent)]
    Scratch(#[from] ProgramError),
}

/// Size of the loop device: mkfs.xfs makes no file system below 300 MB.
const DISK_BYTES: u64 = 400 << 20;
const FILE_BYTES: u64 = 64 << 20;
const PAIRS: usize = 5;
const REQUESTS: u32 = 100;

pub(super) fn measure(settings: &HasteSettings) -> Result<FileSystemResult, FileSystemError> {
    if !rustix::process::geteuid().is_root() {
        return Err(FileSystemError::NotRoot);
    }
    let scratch = Scratch::new(&settings.dir)?;
    let image = scratch.0.join("disk");
    let made = File::create(&image).and_then(|file| file.set_len(DISK_BYTES));
    made.map_err(|source| FileSystemError::System { what: "a file for the disk", source })?;
    let device = LoopDevice::over(&image)?;
    let path = device.0.as_path();
    run("mkfs.xfs", "xfsprogs", Command::new("mkfs.xfs").arg("-q").arg(path))?;
    let point = scratch.0.join("mounted");
    std::fs::create_dir(&point)
        .map_err(|source| FileSystemError::System { what: "a mount point", source })?;
    let mounted = Mounted::at(path, point)?;
    let file = mounted.0.join("data");
    let filled = File::create(&file).and_then(|file| fill(&file));
    filled.map_err(|source| FileSystemError::System { what: "a file on XFS", source })?;
    let on_file = direct(&file)?;
    // The device is read in its last part, which the file system has not used yet.
    let on_device = direct(path)?;
    let added = SIZES.iter().map(|bytes| {
        let read_ns = added_ns(&on_file, &on_device, *bytes, true, settings.seed)?;
        Ok((*bytes, read_ns, added_ns(&on_file, &on_device, *bytes, false, settings.seed)?))
    });
    let added_ns = added
        .collect::<io::Result<_>>()
        .map_err(|source| FileSystemError::System { what: "requests on XFS", source })?;
    Ok(FileSystemResult {
        name: "xfs".into(),
        how: "O_DIRECT on a file less the same on the loop device under it, medians of pairs"
            .into(),
        added_ns,
    })
}

/// Median of the pairs' differences, at least zero, nanoseconds.
fn added_ns(file: &File, device: &File, bytes: u64, is_read: bool, seed: u64) -> io::Result<f64> {
    let mut differences = Vec::with_capacity(PAIRS);
    for pair in 0..PAIRS as u64 {
        let with = mean_ns(file, 0, bytes, is_read, seed + pair)?;
        // Reading the device is harmless anywhere; so is writing back bytes that were just read.
        let without = mean_ns(device, DISK_BYTES - FILE_BYTES, bytes, is_read, seed + pair)?;
        differences.push(with - without);
    }
    differences.sort_by(f64::total_cmp);
    Ok(differences[PAIRS / 2].max(0.0))
}

fn mean_ns(file: &File, base: u64, bytes: u64, is_read: bool, seed: u64) -> io::Result<f64> {
    let (tsc, mut random) = (Tsc::calibrated(), Xoshiro256PlusPlus::seed_from_u64(seed));
    let mut buf = BlockBuf::zeroed((bytes as usize).next_multiple_of(4096));
    let part = &mut buf[..bytes as usize];
    let mut spent = 0;
    for _ in 0..REQUESTS {
        let at = base + random.random_range(0..FILE_BYTES / bytes) * bytes;
        if !is_read {
            file.read_exact_at(part, at)?;
        }
        let from = tsc.ticks();
        if is_read {
            file.read_exact_at(part, at)?
        } else {
            file.write_all_at(part, at)?
        }
        spent += tsc.ticks() - from;
    }
    Ok(tsc.ps(spent) as f64 / 1e3 / f64::from(REQUESTS))
}

fn fill(file: &File) -> io::Result<()> {
    let piece = vec![0x5a; 1 << 20];
    for at in (0..FILE_BYTES).step_by(piece.len()) {
        file.write_all_at(&piece, at)?;
    }
    file.sync_all()
}

fn direct(path: &Path) -> Result<File, FileSystemError> {
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path);
    opened.map_err(|source| FileSystemError::System { what: "opening past the page cache", source })
}

fn run(
    program: &'static str,
    package: &'static str,
    command: &mut Command,
) -> Result<String, FileSystemError> {
    let failed = |said: String| FileSystemError::Program { program, package, said };
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A loop device, released on drop.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn over(image: &Path) -> Result<Self, FileSystemError> {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show"]).arg(image);
        Ok(Self(run("losetup", "util-linux", &mut command)?.into()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) =
            run("losetup", "util-linux", Command::new("losetup").arg("-d").arg(&self.0))
        {
            eprintln!("{} is left behind: {error}", self.0.display());
        }
    }
}

/// A mount, ended on drop; it has to be dropped before its device.
struct Mounted(PathBuf);

impl Mounted {
    fn at(device: &Path, point: PathBuf) -> Result<Self, FileSystemError> {
        run("mount", "mount", Command::new("mount").args(["-t", "xfs"]).arg(device).arg(&point))?;
        Ok(Self(point))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = run("umount", "mount", Command::new("umount").arg(&self.0)) {
            eprintln!("{} is left mounted: {error}", self.0.display());
        }
    }
}
