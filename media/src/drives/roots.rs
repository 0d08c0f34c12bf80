//! Where the kernel's files are, and how they are read.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The most that is read of one of the kernel's files.
const LONGEST_BYTES: u64 = 64 << 10;

/// Where the kernel's files are: the usual places, or those of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// In the place of `/sys`.
    pub sys: PathBuf,
    /// In the place of `/dev`.
    pub dev: PathBuf,
    /// The mounts of this process: `/proc/self/mountinfo`.
    pub mounts: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        let path = PathBuf::from;
        Self { sys: path("/sys"), dev: path("/dev"), mounts: path("/proc/self/mountinfo") }
    }
}

/// The text of a small file, without blanks around it.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(LONGEST_BYTES).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

/// The number in a small file.
pub(crate) fn number(path: &Path) -> io::Result<u64> {
    let text = text(path)?;
    text.parse().map_err(|_| {
        let start: String = text.chars().take(40).collect();
        io::Error::new(io::ErrorKind::InvalidData, format!("expected a number, found {start:?}"))
    })
}

/// The names in a directory, sorted; none if it is not there.
pub(crate) fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let name = |entry: io::Result<std::fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    let mut names = entries.map(name).collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}
