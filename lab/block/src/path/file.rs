//! Files read and written in the ways that programs have today: system calls, io_uring, io_uring
//! with polling, mapped memory.
//!
//! A [`FilePath`] is one thread's access to one file of fixed length. Each request is complete when
//! the call returns, and only one is under way. A way that the system or the file refuses is an
//! error that says which and why. The only fallback is from one kind of polling to the other, which
//! [`FilePath::how`] names.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use perdura_media::DeviceError;
use rustix::fs::{Mode, OFlags};

use super::sys::{Map, Polling, Ring};

#[cfg(test)]
mod tests;

/// A way to read and write a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileWay {
    /// `pread` and `pwrite`.
    Pread,
    /// io_uring, where one system call submits and waits.
    IoUring,
    /// io_uring with a kernel thread that polls for submissions and, where possible, the device;
    /// the calling thread polls for completions.
    IoUringPolled,
    /// A shared mapping of the file.
    Mmap,
}

impl FileWay {
    /// All ways.
    pub const ALL: [Self; 4] = [Self::Pread, Self::IoUring, Self::IoUringPolled, Self::Mmap];

    /// The way's name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pread => "pread",
            Self::IoUring => "io_uring",
            Self::IoUringPolled => "io_uring_polled",
            Self::Mmap => "mmap",
        }
    }
}

impl fmt::Display for FileWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A way that the system or the file refuses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilePathError {
    /// The file cannot be opened, examined or mapped.
    #[error("{op} of {path} failed: {source}")]
    File {
        /// The operation that was refused.
        op: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The kernel refused a ring of this kind.
    #[error("{way} was refused: {source}")]
    Ring {
        /// The way that was asked for.
        way: FileWay,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// One thread's access to a file in one way.
#[derive(Debug)]
pub struct FilePath {
    kind: Kind,
    way: FileWay,
    len_bytes: u64,
    how: String,
}

#[derive(Debug)]
enum Kind {
    Calls(File),
    Ring { file: File, ring: Box<Ring> },
    Map(Map),
}

impl FilePath {
    /// Opens the file at `path`, without the page cache where the file system allows that. A
    /// mapping always uses the page cache.
    ///
    /// # Errors
    /// The system refuses the file or the way.
    pub fn open(path: &Path, way: FileWay) -> Result<Self, FilePathError> {
        let (file, is_direct) = open(path, way != FileWay::Mmap)
            .map_err(|source| FilePathError::File { op: "open", path: path.to_owned(), source })?;
        let cache = if is_direct { "O_DIRECT" } else { "page cache" };
        let at = |op| move |source| FilePathError::File { op, path: path.to_owned(), source };
        let len_bytes = file.metadata().map_err(at("stat"))?.len();
        let refused = |source| FilePathError::Ring { way, source };
        let (kind, how) = match way {
            FileWay::Pread => (Kind::Calls(file), cache.to_owned()),
            FileWay::IoUring => {
                let ring = Ring::new(Polling::None).map_err(refused)?;
                (Kind::Ring { file, ring: Box::new(ring) }, cache.to_owned())
            }
            FileWay::IoUringPolled => {
                let (ring, polled) = polled(&file, is_direct, len_bytes).map_err(refused)?;
                (Kind::Ring { file, ring: Box::new(ring) }, format!("{cache}, {polled}"))
            }
            FileWay::Mmap => {
                let map = Map::shared(&file, len_bytes as usize).map_err(at("mapping"))?;
                (Kind::Map(map), cache.to_owned())
            }
        };
        Ok(Self { kind, way, len_bytes, how })
    }

    /// The way that was asked for.
    #[must_use]
    pub fn way(&self) -> FileWay {
        self.way
    }

    /// Whether requests bypass the page cache, and what is polled.
    #[must_use]
    pub fn how(&self) -> &str {
        &self.how
    }

    /// Length of the file when it was opened.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Reads all of `buf`.
    ///
    /// # Errors
    /// The range is beyond the end, or the system refuses. Without the page cache a range that is
    /// not aligned is refused, too.
    pub fn read(&mut self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.check(offset_bytes, buf.len())?;
        let done = match &mut self.kind {
            Kind::Calls(file) => {
                rustix::io::pread(&*file, &mut *buf, offset_bytes).map_err(io::Error::from)
            }
            Kind::Ring { file, ring } => ring.read(file.as_fd(), offset_bytes, buf),
            Kind::Map(map) => {
                map.read(offset_bytes as usize, buf);
                return Ok(());
            }
        };
        complete("read", offset_bytes, buf.len(), done)
    }

    /// Writes all of `buf`. No flush is made, so the bytes are as durable as the way makes them.
    ///
    /// # Errors
    /// The range is beyond the end, or the system refuses. Without the page cache a range that is
    /// not aligned is refused, too.
    pub fn write(&mut self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.check(offset_bytes, buf.len())?;
        let done = match &mut self.kind {
            Kind::Calls(file) => {
                rustix::io::pwrite(&*file, buf, offset_bytes).map_err(io::Error::from)
            }
            Kind::Ring { file, ring } => ring.write(file.as_fd(), offset_bytes, buf),
            Kind::Map(map) => {
                map.write(offset_bytes as usize, buf);
                return Ok(());
            }
        };
        complete("write", offset_bytes, buf.len(), done)
    }

    fn check(&self, offset_bytes: u64, len: usize) -> Result<(), DeviceError> {
        let (len_bytes, capacity_bytes) = (len as u64, self.len_bytes);
        match offset_bytes.checked_add(len_bytes) {
            Some(end) if end <= capacity_bytes => Ok(()),
            _ => Err(DeviceError::OutOfRange { offset_bytes, len_bytes, capacity_bytes }),
        }
    }
}

/// Turns a short transfer into an error: the range was checked, and files do not transfer less.
fn complete(
    op: &'static str,
    offset_bytes: u64,
    len: usize,
    done: io::Result<usize>,
) -> Result<(), DeviceError> {
    let source = match done {
        Ok(moved) if moved == len => return Ok(()),
        Ok(_) => io::Error::from(io::ErrorKind::UnexpectedEof),
        Err(source) => source,
    };
    Err(DeviceError::Io { op, offset_bytes, len_bytes: len as u64, source })
}

/// Opens the file, and tells whether it bypasses the page cache.
fn open(path: &Path, direct: bool) -> io::Result<(File, bool)> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    if direct {
        match rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty()) {
            Ok(file) => return Ok((file.into(), true)),
            // This file system cannot bypass the page cache.
            Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok((rustix::fs::open(path, flags, Mode::empty())?.into(), false))
}

/// Opens a ring with as much polling as the device allows. Its first request shows whether the
/// device can be polled.
fn polled(file: &File, is_direct: bool, len_bytes: u64) -> io::Result<(Ring, String)> {
    const PROBE_BYTES: usize = 4096;
    let why = if !is_direct {
        "the file is in the page cache".to_owned()
    } else {
        let tried = Ring::new(Polling::Both).and_then(|mut ring| {
            let mut buf = perdura_media::BlockBuf::zeroed(PROBE_BYTES);
            if len_bytes >= PROBE_BYTES as u64 {
                ring.read(file.as_fd(), 0, &mut buf)?;
            }
            Ok(ring)
        });
        match tried {
            Ok(ring) => return Ok((ring, "submission and device polled".to_owned())),
            Err(error) => error.to_string(),
        }
    };
    let ring = Ring::new(Polling::Submission)?;
    Ok((ring, format!("submission polled (SQPOLL), device not (IOPOLL: {why})")))
}
