//! A device on a file or a block device, with `O_DIRECT` and `io_uring` where the system grants
//! them.
//!
//! - Every call that makes bytes, sizes or names durable goes through [`FileSystem`] and
//!   [`OpenFile`]. A type parameter says whether the kernel answers it or simulated files do, so
//!   the choice costs a running program nothing.
//! - Clones share one open file description, one capacity and one latch; so do the queues.
//! - Another process that was handed the descriptor ([`AsFd`], [`FileDevice::from_fd`]) shares the
//!   description, its `flock` and its `O_DIRECT` flag, but not the latch: Linux reports a
//!   write-back failure once per description. A process that takes over therefore writes everything
//!   again that was not durable.
//! - A failed write is returned and changes nothing else; a failed flush latches.
//! - A growth that fails may leave reserved space behind. The space is not truncated away, because
//!   another holder may have grown the file meanwhile.
//! - Space reserved by growing is unwritten: on ext4 the first write to it ran at half to two
//!   thirds of the speed of an overwrite (64 KiB and larger, measured). A flush rate must therefore
//!   be proven on the kind of space that the flush will use.

mod names;
mod options;
mod progress;
mod pwrite;
mod shared;
#[cfg(test)]
mod tests;
mod uring;
mod whole;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::device::{
    BLOCK_BYTES, Device, DeviceError, QUEUE_DEPTH_MAX, ReadAt, WriteQueue, assert_aligned,
    whole_blocks_up,
};
use crate::latch::Latch;
use crate::sys::file::{errno_name, try_lock};
use crate::sys::{BlockBuf, FileKind, Source, WriteRing};
pub use crate::sys::{FileSystem, Kernel, OpenFile};
use names::Access;
pub use names::{parent, replace, sync_parent};
pub use options::{Direct, Engine, OpenMode};
use pwrite::PwriteQueue;
use shared::{Buffering, Shared, io_error, refusal};
use uring::UringQueue;
use whole::{Reach, read_all, write_all};

/// A file (or block device) as a [`Device`]. Cloning is cheap and shares everything.
#[derive(Debug)]
pub struct FileDevice<F = OwnedFd> {
    shared: Arc<Shared<F>>,
}

impl FileDevice {
    /// Opens `path`. No lock is taken: see [`FileDevice::try_lock`].
    ///
    /// # Errors
    /// [`DeviceError::Io`] with `op` `open`, `O_DIRECT` or `io_uring_setup`;
    /// [`DeviceError::NoSpace`] when a new file gets no space.
    pub fn open(
        path: &Path,
        mode: OpenMode,
        engine: Engine,
        direct: Direct,
    ) -> Result<Self, DeviceError> {
        Self::open_in(&Kernel, path, mode, engine, direct)
    }

    /// Takes over a descriptor opened for reading and writing, for example one inherited by a
    /// holder process. `O_DIRECT` stays as the open file description has it.
    ///
    /// # Errors
    /// [`DeviceError::Io`] when the descriptor is no file or block device, or `io_uring` is
    /// demanded and refused.
    pub fn from_fd(fd: OwnedFd, engine: Engine) -> Result<Self, DeviceError> {
        let flags = fd.flags().map_err(|errno| refusal("fcntl", errno))?;
        let is_direct = flags.contains(OFlags::DIRECT);
        Self::over(fd, engine, if is_direct { Direct::On } else { Direct::Off })
    }

    /// Takes the exclusive advisory lock (`flock`) of the file without waiting; `false` when
    /// another open file description holds it. It is released when the last descriptor of this
    /// description, in any process, is closed: a holder process keeps it.
    ///
    /// # Errors
    /// [`DeviceError::Io`] when the file system cannot lock.
    pub fn try_lock(&self) -> Result<bool, DeviceError> {
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        try_lock(self.as_fd(), exclusive).map_err(|errno| refusal("lock", errno))
    }

    /// Takes the lock of the file shared with other readers, without waiting; `false` when another
    /// open file description holds it exclusively.
    ///
    /// # Errors
    /// [`DeviceError::Io`] when the file system cannot lock.
    pub fn try_lock_shared(&self) -> Result<bool, DeviceError> {
        let shared = FlockOperation::NonBlockingLockShared;
        try_lock(self.as_fd(), shared).map_err(|errno| refusal("lock", errno))
    }
}

impl<F: OpenFile> FileDevice<F> {
    /// Opens `path` among `files`. No lock is taken.
    ///
    /// # Errors
    /// As for [`FileDevice::open`].
    pub fn open_in(
        files: &impl FileSystem<File = F>,
        path: &Path,
        mode: OpenMode,
        engine: Engine,
        direct: Direct,
    ) -> Result<Self, DeviceError> {
        let access = match mode {
            OpenMode::Create { .. } => Access::New,
            OpenMode::Existing => Access::Write,
            OpenMode::ReadOnly => Access::Read,
        };
        let file = names::open(files, path, access).map_err(|errno| refusal("open", errno))?;
        match mode {
            OpenMode::Existing | OpenMode::ReadOnly => Self::over(file, engine, direct),
            OpenMode::Create { capacity_bytes } => {
                Self::create(files, file, path, capacity_bytes, engine, direct).inspect_err(|_| {
                    // Best effort: the error that is returned matters more than a left-over file.
                    let _removed = files.unlink(path);
                })
            }
        }
    }

    /// Whether reads and writes bypass the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        matches!(self.shared.buffering, Buffering::Direct)
    }

    fn create(
        files: &impl FileSystem<File = F>,
        file: F,
        path: &Path,
        capacity_bytes: u64,
        engine: Engine,
        direct: Direct,
    ) -> Result<Self, DeviceError> {
        sync_parent(files, path).map_err(|errno| refusal("directory sync", errno))?;
        // Space is reserved first, so that the trial read of `O_DIRECT` has something to read.
        let buffered = Self::over(file, Engine::Pwrite, Direct::Off)?;
        buffered.grow(capacity_bytes)?;
        let Some(Shared { file, .. }) = Arc::into_inner(buffered.shared) else {
            unreachable!("a device without clones")
        };
        Self::over(file, engine, direct)
    }

    fn over(file: F, engine: Engine, direct: Direct) -> Result<Self, DeviceError> {
        let kind = file.kind().map_err(|errno| refusal("open", errno))?;
        if kind == FileKind::Other {
            return Err(refusal("open", Errno::NOTBLK));
        }
        let size_bytes = file.end_bytes().map_err(|errno| refusal("open", errno))?;
        let capacity_bytes = size_bytes - size_bytes % BLOCK_BYTES;
        let buffering = choose_buffering(&file, direct, capacity_bytes)?;
        let uring_refused = probe_uring::<F>(engine)?;
        Ok(Self {
            shared: Arc::new(Shared {
                file,
                kind,
                capacity_bytes: AtomicU64::new(capacity_bytes),
                latch: Latch::default(),
                growing: Mutex::new(()),
                engine,
                uring_refused: AtomicI32::new(uring_refused),
                buffering,
            }),
        })
    }
}

impl<F> Clone for FileDevice<F> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl AsFd for FileDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.file.as_fd()
    }
}

impl<F: OpenFile> Device for FileDevice<F> {
    fn capacity_bytes(&self) -> u64 {
        self.shared.capacity_bytes.load(Ordering::Acquire)
    }

    fn grow(&self, capacity_bytes: u64) -> Result<(), DeviceError> {
        self.shared.grow(whole_blocks_up(capacity_bytes))
    }

    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        assert_aligned(offset_bytes, buf.as_ptr(), buf.len());
        self.shared.check_range(offset_bytes, buf.len() as u64)?;
        read_all(&self.shared.file, offset_bytes, buf)
            .map_err(|source| io_error("read", offset_bytes, buf.len() as u64, source))
    }

    fn read_many(&self, reads: &mut [ReadAt<'_>]) {
        let refused = self.shared.uring_refused.load(Ordering::Relaxed) != 0;
        let is_alone = self.shared.engine == Engine::Pwrite || refused || reads.len() < 2;
        let within = |read: &ReadAt<'_>| {
            self.shared.check_range(read.offset_bytes, read.buf.len() as u64).is_ok()
        };
        if is_alone || !reads.iter().all(within) {
            return read_one_by_one(self, reads.iter_mut());
        }
        for read in &*reads {
            assert_aligned(read.offset_bytes, read.buf.as_ptr(), read.buf.len());
        }
        let mut calls: Vec<_> =
            reads.iter_mut().map(|read| (read.offset_bytes, &mut *read.buf)).collect();
        let taken = self.shared.file.pread_many(&mut calls);
        // One that was cut short or interrupted is made again by itself, which tells what it meets.
        let again = reads.iter_mut().zip(taken).filter_map(|(read, taken)| {
            let is_whole = taken.is_ok_and(|bytes| bytes == read.buf.len());
            read.result = Ok(());
            (!is_whole).then_some(read)
        });
        read_one_by_one(self, again);
    }

    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        assert_aligned(offset_bytes, buf.as_ptr(), buf.len());
        self.shared.admit_write(offset_bytes, buf.len() as u64)?;
        write_all(&self.shared.file, offset_bytes, Source::borrowed(buf), Reach::Device)
    }

    fn write_durable_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        assert_aligned(offset_bytes, buf.as_ptr(), buf.len());
        self.shared.admit_write(offset_bytes, buf.len() as u64)?;
        write_all(&self.shared.file, offset_bytes, Source::borrowed(buf), Reach::Medium)
            .map_err(|error| self.shared.latch.set(error))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.shared.latch.check()?;
        // EINTR means that the wait was cut short before a verdict, not that write-back failed, so
        // asking again cannot swallow an error.
        retry_on_intr(|| self.shared.file.fdatasync())
            .map_err(|errno| self.shared.latch.set(refusal("flush", errno)))
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>, DeviceError> {
        assert!((1..=QUEUE_DEPTH_MAX).contains(&depth), "a queue of depth {depth}");
        let shared = Arc::clone(&self.shared);
        if shared.engine == Engine::Pwrite || shared.uring_refused.load(Ordering::Relaxed) != 0 {
            return Ok(Box::new(PwriteQueue::new(shared, depth)));
        }
        match UringQueue::new(Arc::clone(&shared), depth) {
            Ok(queue) => Ok(Box::new(queue)),
            Err(errno) if shared.engine == Engine::Auto => {
                shared.uring_refused.store(errno.raw_os_error(), Ordering::Relaxed);
                Ok(Box::new(PwriteQueue::new(shared, depth)))
            }
            Err(errno) => Err(refusal("io_uring_setup", errno)),
        }
    }

    fn describe(&self) -> String {
        let engine = match (self.shared.engine, self.shared.uring_refused.load(Ordering::Relaxed)) {
            (Engine::Pwrite, _) => "pwrite".to_owned(),
            (_, 0) => "io_uring".to_owned(),
            (_, raw) => {
                let errno = Errno::from_raw_os_error(raw);
                format!("pwrite (io_uring refused: {})", errno_name(errno))
            }
        };
        match self.shared.buffering {
            Buffering::Direct => format!("{engine} + O_DIRECT"),
            Buffering::Buffered { refused: None } => format!("{engine}, buffered"),
            Buffering::Buffered { refused: Some(errno) } => {
                format!("{engine}, buffered (O_DIRECT refused: {})", errno_name(errno))
            }
        }
    }
}

fn read_one_by_one<'r, 'b: 'r>(
    device: &impl Device,
    reads: impl Iterator<Item = &'r mut ReadAt<'b>>,
) {
    for read in reads {
        read.result = device.read_at(read.offset_bytes, read.buf);
    }
}

fn choose_buffering(
    file: &impl OpenFile,
    direct: Direct,
    capacity_bytes: u64,
) -> Result<Buffering, DeviceError> {
    if direct == Direct::Off {
        return Ok(Buffering::Buffered { refused: None });
    }
    let Err(errno) = try_direct(file, capacity_bytes) else { return Ok(Buffering::Direct) };
    if direct == Direct::On {
        return Err(refusal("O_DIRECT", errno));
    }
    set_direct(file, false).map_err(|errno| refusal("fcntl", errno))?;
    Ok(Buffering::Buffered { refused: Some(errno) })
}

/// Tries `O_DIRECT` with a read: some file systems accept the flag and refuse the transfer (a
/// sector larger than a block).
fn try_direct(file: &impl OpenFile, capacity_bytes: u64) -> Result<(), Errno> {
    set_direct(file, true)?;
    if capacity_bytes == 0 {
        return Ok(());
    }
    let mut block = BlockBuf::zeroed(BLOCK_BYTES as usize);
    retry_on_intr(|| file.pread(&mut block, 0)).map(drop)
}

/// Switches `O_DIRECT` for the open file description, so for every process that shares it. It is
/// set after the open, because a refused `open(O_CREAT | O_DIRECT)` leaves the file behind.
fn set_direct(file: &impl OpenFile, is_direct: bool) -> Result<(), Errno> {
    let mut flags = file.flags()?;
    flags.set(OFlags::DIRECT, is_direct);
    file.set_flags(flags)
}

/// Whether `io_uring` works: 0, or the errno of a refusal that [`Engine::Auto`] tolerates.
fn probe_uring<F: OpenFile>(engine: Engine) -> Result<i32, DeviceError> {
    if engine == Engine::Pwrite {
        return Ok(0);
    }
    match F::Ring::new(1) {
        Ok(_) => Ok(0),
        Err(errno) if engine == Engine::Auto => Ok(errno.raw_os_error()),
        Err(errno) => Err(refusal("io_uring_setup", errno)),
    }
}
