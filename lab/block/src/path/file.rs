//! The same requests by the ways that programs have today: system calls, io_uring, io_uring with
//! polling, mapped memory.
//!
//! A [`FilePath`] is one thread's way to one file of fixed length; each request is complete when
//! the call returns, and only one is under way. A way that the system or the file refuses is an
//! error that says which and why: there is no falling back, but from one kind of polling to the
//! other, which [`FilePath::how`] names.

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

/// A way to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileWay {
    /// `pread` and `pwrite`.
    Pread,
    /// io_uring: one system call submits and waits.
    IoUring,
    /// io_uring that a thread of the kernel polls for submissions, the device is polled where it
    /// can be, and this thread polls for completions.
    IoUringPolled,
    /// Mapped, shared.
    Mmap,
}

impl FileWay {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pread, Self::IoUring, Self::IoUringPolled, Self::Mmap];

    /// Name in results.
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

/// A way that cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilePathError {
    /// The file cannot be opened, looked at or mapped.
    #[error("{op} of {path} failed: {source}")]
    File {
        /// What was refused.
        op: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel gives no ring of this kind.
    #[error("{way} was refused: {source}")]
    Ring {
        /// Which way.
        way: FileWay,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// One thread's way to a file.
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
    /// A way to the file at `path`, around the page cache where the file system can (but not where
    /// it is mapped).
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

    /// Which way it is.
    #[must_use]
    pub fn way(&self) -> FileWay {
        self.way
    }

    /// Past the cache or not, and what is polled.
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
    /// The range is beyond the end, or the system refuses; without the page cache also what is not
    /// aligned.
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

    /// Writes all of `buf`. It is as durable as the way makes it: nothing is synchronised.
    ///
    /// # Errors
    /// As of a read.
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

/// Short is an error: these are files, and the range was checked.
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

/// The file, and whether it goes around the page cache.
fn open(path: &Path, direct: bool) -> io::Result<(File, bool)> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    if direct {
        match rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty()) {
            Ok(file) => return Ok((file.into(), true)),
            // This file system has no way around it.
            Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok((rustix::fs::open(path, flags, Mode::empty())?.into(), false))
}

/// The most that is polled here: whether a device can be shows at its first request.
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
