//! The state that the clones and queues of one file device share: open file, capacity, latch.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::io::{Errno, retry_on_intr};

use super::options::Engine;
use super::progress;
use super::whole::{Reach, write_all};
use crate::device::{BLOCK_BYTES, DeviceError, check_range};
use crate::latch::Latch;
use crate::sys::{BlockBuf, FileKind, OpenFile, Source};

#[derive(Debug)]
pub(super) struct Shared<F> {
    pub(super) file: F,
    pub(super) kind: FileKind,
    pub(super) capacity_bytes: AtomicU64,
    pub(super) latch: Latch,
    pub(super) growing: Mutex<()>,
    pub(super) engine: Engine,
    /// Errno with which `io_uring` was refused under [`Engine::Auto`]; 0 while it was not.
    pub(super) uring_refused: AtomicI32,
    pub(super) buffering: Buffering,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Buffering {
    Direct,
    Buffered { refused: Option<Errno> },
}

impl<F: OpenFile> Shared<F> {
    pub(super) fn admit_write(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), DeviceError> {
        self.latch.check()?;
        self.check_range(offset_bytes, len_bytes)
    }

    /// Looks at the file again before refusing: another holder may have grown it.
    pub(super) fn check_range(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), DeviceError> {
        let known_bytes = self.capacity_bytes.load(Ordering::Acquire);
        if check_range(offset_bytes, len_bytes, known_bytes).is_ok() {
            return Ok(());
        }
        let size_bytes = self.file.end_bytes().map_err(|errno| refusal("seek", errno))?;
        let whole_bytes = size_bytes - size_bytes % BLOCK_BYTES;
        let before_bytes = self.capacity_bytes.fetch_max(whole_bytes, Ordering::AcqRel);
        check_range(offset_bytes, len_bytes, before_bytes.max(whole_bytes))
    }

    pub(super) fn grow(&self, capacity_bytes: u64) -> Result<(), DeviceError> {
        self.latch.check()?;
        let _one_at_a_time = self.growing.lock();
        let old_bytes = self.capacity_bytes.load(Ordering::Acquire);
        if capacity_bytes == 0 {
            return Ok(());
        }
        match self.kind {
            FileKind::Regular => self.reserve(old_bytes, capacity_bytes)?,
            _ if capacity_bytes <= old_bytes => {}
            _ => return Err(grow_error(old_bytes, capacity_bytes, Errno::NOSPC)),
        }
        self.capacity_bytes.fetch_max(capacity_bytes, Ordering::AcqRel);
        Ok(())
    }

    fn reserve(&self, old_bytes: u64, capacity_bytes: u64) -> Result<(), DeviceError> {
        match retry_on_intr(|| self.file.fallocate(capacity_bytes)) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                fill_with_zeros(&self.file, old_bytes, capacity_bytes)
            }
            Err(errno) => Err(grow_error(old_bytes, capacity_bytes, errno)),
        }
    }
}

/// Reserves space by using it, for file systems without `fallocate`.
pub(super) fn fill_with_zeros(
    file: &impl OpenFile,
    from_bytes: u64,
    to_bytes: u64,
) -> Result<(), DeviceError> {
    let zeros = BlockBuf::zeroed(ZEROS_BYTES);
    let mut at_bytes = from_bytes;
    while at_bytes < to_bytes {
        let len_bytes = (to_bytes - at_bytes).min(ZEROS_BYTES as u64) as usize;
        let zeros = Source::borrowed(&zeros[..len_bytes]);
        write_all(file, at_bytes, zeros, Reach::Device)?;
        at_bytes += len_bytes as u64;
    }
    Ok(())
}

pub(super) fn refusal(op: &'static str, errno: Errno) -> DeviceError {
    io_error(op, 0, 0, errno.into())
}

fn grow_error(old_bytes: u64, capacity_bytes: u64, errno: Errno) -> DeviceError {
    let len_bytes = capacity_bytes.saturating_sub(old_bytes);
    progress::write_error("grow", old_bytes, len_bytes as usize, errno)
}

pub(super) fn io_error(
    op: &'static str,
    offset_bytes: u64,
    len_bytes: u64,
    source: io::Error,
) -> DeviceError {
    DeviceError::Io { op, offset_bytes, len_bytes, source }
}

const ZEROS_BYTES: usize = 1 << 20;
