//! The memory that a heap lies in, and how stores to it become durable.
//!
//! Every store of the heap to persistent memory goes through here, so that a [`Tap`] sees it: store
//! orders are checked, and lines and fences counted, on the heap's real stores.
//!
//! Invariant: while a heap is open, nothing but the heap and the users of its objects changes the
//! bytes.

mod lock;
mod pages;

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use perdura_region::Region;
use perdura_region::paged::PagedMemory;
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags, fallocate, ftruncate, open};
use rustix::io::Errno;

use crate::sys::{
    Backed, FlushKind, LINE_BYTES, Mapping, Room, copy_in, copy_out, fence, flush_line,
    prefetch_for_write, stream,
};
use lock::LockedFile;

/// Least bytes of a range that is stored past the caches if no thread reads it yet and stores must
/// be flushed anyway.
pub(crate) const STREAM_BYTES: usize = 4096;

/// How a store becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// A store is durable at once, because the memory outlives the process and another one writes
    /// it out, such as a battery-backed region and its holder. Only the order of stores matters.
    Ordered,
    /// A store is durable when its cache line was written back and a fence has passed, as in
    /// persistent memory and DAX files.
    Flushed,
}

/// An observer of the heap's stores, flushes and fences in persistent memory, in the order of the
/// program, for checking store orders and for counting. Offsets are from the heap's first byte.
pub trait Tap: Send + Sync {
    /// Bytes are being stored. Up to eight aligned bytes arrive whole.
    fn store(&self, offset: u64, bytes: &[u8]);
    /// The line at `line_offset` is being written back.
    fn flush(&self, line_offset: u64);
    /// A fence: lines that this thread wrote back before are durable when this returns.
    fn fence(&self);
    /// Bytes were stored past the caches: they are durable after the next fence, without a flush.
    /// By default they count as stored and written back.
    fn stream(&self, offset: u64, bytes: &[u8]) {
        self.store(offset, bytes);
        let lines = offset / LINE_BYTES..(offset + bytes.len() as u64).div_ceil(LINE_BYTES);
        lines.for_each(|line| self.flush(line * LINE_BYTES));
    }
    /// The pages of an unused range are being given up: they read as zeros, but no fence makes that
    /// durable.
    fn empty(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }
}

/// Why memory for a heap cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The file cannot be opened, made longer or mapped.
    #[error("{}: cannot {what} a heap file{}: {source}", path.display(), length(what, *len_bytes))]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The step that failed: `open`, `lock`, `extend` or `map`.
        what: &'static str,
        /// Bytes asked for; of no account if the file could not be opened or locked.
        len_bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// Another process, or another heap of this one, has the file open.
    #[error("{}: in use by another heap; end that program first", path.display())]
    InUse {
        /// Path of the file.
        path: PathBuf,
    },
    /// The system gives no memory.
    #[error("no {len_bytes} bytes of memory: {source}")]
    Anonymous {
        /// Bytes asked for.
        len_bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The region notices writes by announcements, so it would lose plain stores.
    #[error(
        "this region tracks writes in barrier mode; a heap that is just stored to needs a region \
         opened in trap mode"
    )]
    NotTrapped,
    /// The memory cannot be bound to a node.
    #[error(
        "capacity memory cannot be bound to NUMA node {node}: {source} (nodes are listed in \
         /sys/devices/system/node)"
    )]
    Node {
        /// The node.
        node: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The file lies where its file system puts it, whatever node is asked for.
    #[error(
        "capacity memory in this file cannot be bound to NUMA node {node}: its file system says \
         where pages are; take private memory, a region, or a file on tmpfs"
    )]
    NodeOfFile {
        /// The node.
        node: u32,
    },
    /// Paged memory lies on a modelled medium, so it cannot be bound to a node.
    #[error(
        "paged capacity memory cannot be bound to NUMA node {node}: it lies on a modelled medium; \
         take private memory, a region, or a file on tmpfs"
    )]
    NodeOfPaged {
        /// The node.
        node: u32,
    },
}

/// The part of a message that names the length of a file, where it has to do with the failure.
fn length(what: &str, len_bytes: u64) -> String {
    match what {
        "open" | "lock" => String::new(),
        _ => format!(" of {len_bytes} bytes"),
    }
}

/// A range of memory for a heap.
pub struct Memory {
    base: *mut u8,
    len_bytes: u64,
    flush: Option<FlushKind>,
    tap: Option<Arc<dyn Tap>>,
    source: Source,
}

enum Source {
    /// A mapping; a file stays locked while it is mapped.
    Mapped {
        /// The room of a file without a name, which has room only where buckets are. It stands
        /// before the mapping so that it is dropped first.
        room: Option<Room>,
        mapping: Mapping,
        file: Option<LockedFile>,
    },
    Region(Arc<Region>),
    Paged(Arc<PagedMemory>),
}

// SAFETY: the pointer is to the mapping or the region that `source` owns, which may be shared
// between threads; bytes are reached as the methods below say.
unsafe impl Send for Memory {}
// SAFETY: as for Send.
unsafe impl Sync for Memory {}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} bytes, {})", self.len_bytes, self.describe())
    }
}

impl Memory {
    /// A heap's file, which is made or made longer if need be. On a DAX file system this is real
    /// persistent memory. On any other it is memory that survives the process, and survives a crash
    /// of the machine only as far as the kernel has written it.
    ///
    /// # Errors
    /// The file cannot be opened, made longer or mapped, or another heap has it.
    pub fn file(path: &Path, len_bytes: u64, durability: Durability) -> Result<Self, MemoryError> {
        let failed = |what, source: io::Error| MemoryError::File {
            path: path.to_owned(),
            what,
            len_bytes,
            source,
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|source| failed("open", source))?;
        let locked = match LockedFile::lock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(locked) => locked,
            Err(Errno::WOULDBLOCK) => return Err(MemoryError::InUse { path: path.to_owned() }),
            Err(errno) => return Err(failed("lock", errno.into())),
        };
        let file = locked.file();
        let found = file.metadata().map_err(|source| failed("open", source))?.len();
        let len_bytes = len_bytes.max(found);
        if found < len_bytes {
            // Room is reserved, so that no store meets a full file system. A file system that
            // cannot reserve only makes the file longer.
            match fallocate(file, FallocateFlags::empty(), 0, len_bytes) {
                Ok(()) => {}
                Err(Errno::OPNOTSUPP) => {
                    file.set_len(len_bytes).map_err(|source| failed("extend", source))?;
                }
                Err(errno) => {
                    // The file gets its old length back, and its bytes are as they were.
                    let _ = file.set_len(found);
                    return Err(failed("extend", errno.into()));
                }
            }
        }
        let mapping =
            Mapping::file(file, len_bytes).map_err(|errno| failed("map", errno.into()))?;
        Ok(Self::of(Source::Mapped { mapping, file: Some(locked), room: None }, durability))
    }

    /// A file without a name in a directory: memory on that medium for capacity memory, gone with
    /// the process. The file gets room in the file system as it is used.
    ///
    /// # Errors
    /// The directory's file system has no such files, or the system gives no addresses.
    pub fn unnamed_file(dir: &Path, len_bytes: u64) -> Result<Self, MemoryError> {
        let failed = |what, errno: Errno| MemoryError::File {
            path: dir.to_owned(),
            what,
            len_bytes,
            source: errno.into(),
        };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = open(dir, flags, Mode::RUSR | Mode::WUSR).map_err(|e| failed("open", e))?;
        ftruncate(&fd, len_bytes).map_err(|e| failed("extend", e))?;
        let file = File::from(fd);
        let mapping = Mapping::file(&file, len_bytes).map_err(|e| failed("map", e))?;
        let room = Room::of(file.into());
        // The heap's first words are stored before any bucket is taken.
        room.reserve(&mapping, 0..4096).map_err(|e| failed("extend", e))?;
        let source = Source::Mapped { mapping, file: None, room: Some(room) };
        Ok(Self::of(source, Durability::Ordered))
    }

    /// A private copy of a heap's file, to look at it. No process may have the file open as a heap,
    /// and none can while the copy lives. Changes are not written to the file.
    ///
    /// # Errors
    /// The file cannot be read, or a heap has it open.
    pub(crate) fn copy_of(path: &Path) -> Result<Self, MemoryError> {
        let failed = |what, len_bytes, source: io::Error| MemoryError::File {
            path: path.to_owned(),
            what,
            len_bytes,
            source,
        };
        let file = File::open(path).map_err(|source| failed("open", 0, source))?;
        let locked = match LockedFile::lock(file, FlockOperation::NonBlockingLockShared) {
            Ok(locked) => locked,
            Err(Errno::WOULDBLOCK) => return Err(MemoryError::InUse { path: path.to_owned() }),
            Err(errno) => return Err(failed("lock", 0, errno.into())),
        };
        let file = locked.file();
        let len_bytes = file.metadata().map_err(|source| failed("open", 0, source))?.len();
        let mapping = Mapping::copy(file, len_bytes)
            .map_err(|errno| failed("map", len_bytes, errno.into()))?;
        let source = Source::Mapped { mapping, file: Some(locked), room: None };
        // The mapping of an empty file has a page, but the heap has as many bytes as the file.
        Ok(Self { len_bytes, ..Self::of(source, Durability::Flushed) })
    }

    /// Private memory with these bytes, to look at the image of a heap.
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn copy_of_bytes(bytes: &[u8]) -> Result<Self, MemoryError> {
        const PAGE: usize = 4 << 10;
        let memory = Self::anonymous(bytes.len() as u64, Durability::Flushed)?;
        // The memory is zeros already, and the kernel gives a page only when it is written: most of
        // an image are zeros.
        let offsets = (0..).step_by(PAGE);
        for (offset, page) in offsets.zip(bytes.chunks(PAGE)) {
            if *page != [0; PAGE][..page.len()] {
                memory.write(offset, page);
            }
        }
        Ok(memory)
    }

    /// Private memory that is gone with the process, for tests, for measuring, and for capacity
    /// memory.
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn anonymous(len_bytes: u64, durability: Durability) -> Result<Self, MemoryError> {
        let mapping = Mapping::anonymous(len_bytes)
            .map_err(|errno| MemoryError::Anonymous { len_bytes, source: errno.into() })?;
        let source = Source::Mapped { mapping, file: None, room: None };
        // A mapping has a page at least.
        Ok(Self { len_bytes, ..Self::of(source, durability) })
    }

    /// A region in trap mode: battery-backed memory with a bounded dirty set, to which plain stores
    /// are enough.
    ///
    /// # Errors
    /// The region is in barrier mode.
    pub fn region(region: Arc<Region>) -> Result<Self, MemoryError> {
        if region.trapped().is_none() {
            return Err(MemoryError::NotTrapped);
        }
        Ok(Self::of(Source::Region(region), Durability::Ordered))
    }

    /// Memory of which only a part is in DRAM, and that is gone with the process: for capacity
    /// memory larger than DRAM, and for media that this machine does not have. The heap's own
    /// tables lie in it, too.
    pub fn paged(paged: Arc<PagedMemory>) -> Self {
        Self::of(Source::Paged(paged), Durability::Ordered)
    }

    fn of(source: Source, durability: Durability) -> Self {
        let (base, len_bytes) = match &source {
            Source::Mapped { mapping, .. } => (mapping.base(), mapping.len_bytes()),
            Source::Region(region) => {
                let memory = region.trapped();
                (memory.map_or(std::ptr::null_mut(), |memory| memory.as_ptr()), region.len_bytes())
            }
            Source::Paged(paged) => (paged.base(), paged.len_bytes()),
        };
        let flush = (durability == Durability::Flushed).then(FlushKind::detect);
        Self { base, len_bytes, flush, tap: None, source }
    }

    /// Chooses the instruction that writes lines back, if this processor has it, in the place of
    /// the one that was found best.
    #[must_use]
    pub fn with_flush(mut self, kind: FlushKind) -> Self {
        if self.flush.is_some() {
            self.flush = Some(kind);
        }
        self
    }

    pub(crate) fn set_tap(&mut self, tap: Option<Arc<dyn Tap>>) {
        self.tap = tap;
    }

    /// The address of the first byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// The number of bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// How stores to this memory become durable.
    pub fn durability(&self) -> Durability {
        if self.flush.is_some() { Durability::Flushed } else { Durability::Ordered }
    }

    /// A description of the memory for messages.
    pub fn describe(&self) -> String {
        let what = match &self.source {
            Source::Region(_) => "a region in trap mode",
            Source::Paged(_) => "paged memory",
            Source::Mapped { mapping, .. } => match mapping.backed() {
                Backed::Dax => "a DAX file",
                Backed::File => "a file",
                Backed::Nothing => "private memory",
                Backed::Copy => "a private copy of a file",
            },
        };
        match self.flush {
            Some(kind) => format!("{what}, flushed with {}", kind.name()),
            None => format!("{what}, stores only ordered"),
        }
    }

    /// The address of a range, which must lie inside.
    #[inline]
    pub(crate) fn at(&self, offset: u64, len: u64) -> *mut u8 {
        if offset.checked_add(len).is_none_or(|end| end > self.len_bytes) {
            leaves(offset, len, self.len_bytes);
        }
        self.base.wrapping_add(offset as usize)
    }

    /// The offset of an address; `None` if the address lies outside.
    #[inline]
    pub(crate) fn offset_of(&self, at: *const u8) -> Option<u64> {
        let offset = (at as u64).wrapping_sub(self.base as u64);
        (offset < self.len_bytes).then_some(offset)
    }

    /// The aligned 8-byte word at `offset`.
    #[inline]
    pub(crate) fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "a word at {offset}");
        // SAFETY: inside the mapping (checked) and aligned; atomics accept any bytes and shared
        // change.
        unsafe { &*self.at(offset, 8).cast::<AtomicU64>() }
    }

    /// Reads the aligned 8-byte word at `offset`.
    #[inline]
    pub(crate) fn load(&self, offset: u64) -> u64 {
        self.word(offset).load(Acquire)
    }

    /// Changes a word in one store.
    #[inline]
    pub(crate) fn store_word(&self, offset: u64, value: u64) {
        if let Some(tap) = &self.tap {
            tap.store(offset, &value.to_le_bytes());
        }
        self.word(offset).store(value, Release);
    }

    /// Copies bytes in.
    #[inline]
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        let to = self.at(offset, bytes.len() as u64);
        if let Some(tap) = &self.tap {
            tap.store(offset, bytes);
        }
        // SAFETY: inside the mapping (checked), of which nobody borrows bytes; others reach them as
        // this does, or, where a user changes memory by plain stores, have promised not to.
        unsafe { copy_in(to, bytes) };
    }

    /// Copies whole aligned lines past the caches, where they must be flushed anyway: that costs a
    /// sixth of writing them back. They are durable after [`Memory::fence`], and only then seen by
    /// other threads. Returns false if nothing was done.
    #[inline]
    pub(crate) fn stream(&self, offset: u64, bytes: &[u8]) -> bool {
        let to = self.at(offset, bytes.len() as u64);
        let is_streamed = self.flush.is_some()
            && offset.is_multiple_of(LINE_BYTES)
            && bytes.len().is_multiple_of(LINE_BYTES as usize)
            // SAFETY: inside the mapping, aligned, and of a length that it accepts (all just
            // checked). Nobody else uses these bytes: they are of a log, or of an object that
            // nobody reaches yet.
            && unsafe { stream(to, bytes) };
        if let (true, Some(tap)) = (is_streamed, &self.tap) {
            tap.stream(offset, bytes);
        }
        is_streamed
    }

    /// Copies bytes to a place that no thread reads yet. They are durable after [`Memory::fence`].
    pub(crate) fn fill(&self, offset: u64, bytes: &[u8]) {
        if bytes.len() < STREAM_BYTES || !self.stream(offset, bytes) {
            self.write(offset, bytes);
            self.flush(offset, bytes.len() as u64);
        }
    }

    /// Fills whole lines of a log, which no thread reads soon, as [`Memory::stream`] does. The last
    /// line is filled up with zeros. The lines are durable after [`Memory::fence`].
    pub(crate) fn write_lines(&self, offset: u64, bytes: &[u8]) {
        const LINE: usize = LINE_BYTES as usize;
        assert!(offset.is_multiple_of(LINE_BYTES), "lines at {offset}");
        let (whole, rest) = bytes.split_at(bytes.len() - bytes.len() % LINE);
        self.write_whole_lines(offset, whole);
        if !rest.is_empty() {
            let mut last = [0; LINE];
            last[..rest.len()].copy_from_slice(rest);
            self.write_whole_lines(offset + whole.len() as u64, &last);
        }
    }

    #[inline]
    fn write_whole_lines(&self, offset: u64, bytes: &[u8]) {
        if !self.stream(offset, bytes) {
            self.write(offset, bytes);
            self.flush(offset, bytes.len() as u64);
        }
    }

    /// Starts loading the first lines of a range, to be changed.
    #[inline]
    pub(crate) fn expect_write(&self, offset: u64, len: u64) {
        const LINES_MAX: u64 = 8;
        let first = offset / LINE_BYTES;
        for line in first..(offset + len).div_ceil(LINE_BYTES).min(first + LINES_MAX) {
            prefetch_for_write(self.base.wrapping_add((line * LINE_BYTES) as usize));
        }
    }

    /// Copies bytes out.
    #[inline]
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) {
        let from = self.at(offset, out.len() as u64);
        // SAFETY: inside the mapping (checked); else as for writing.
        unsafe { copy_out(from, out) };
    }

    /// Writes the lines of a range back. They are durable after [`Memory::fence`].
    #[inline]
    pub(crate) fn flush(&self, offset: u64, len: u64) {
        let Some(kind) = self.flush else { return };
        if len == 0 {
            return;
        }
        let mut line = offset & !(LINE_BYTES - 1);
        let end = offset + len;
        let _ = self.at(offset, len);
        while line < end {
            if let Some(tap) = &self.tap {
                tap.flush(line);
            }
            // SAFETY: inside the mapping, which was checked.
            unsafe { flush_line(kind, self.base.wrapping_add(line as usize)) };
            line += LINE_BYTES;
        }
    }

    /// Waits until all lines that this thread wrote back are durable. The fence orders stores even
    /// where nothing is flushed.
    #[inline]
    pub(crate) fn fence(&self) {
        if self.flush.is_some() {
            fence();
            if let Some(tap) = &self.tap {
                tap.fence();
            }
        } else {
            std::sync::atomic::fence(Release);
        }
    }

    /// Stores a word and makes it durable.
    pub(crate) fn persist_word(&self, offset: u64, value: u64) {
        self.store_word(offset, value);
        self.flush(offset, 8);
        self.fence();
    }

    /// Zeros a range, durably.
    pub(crate) fn zero(&self, offset: u64, len: u64) {
        const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
        let mut at = offset;
        while at < offset + len {
            let piece = (offset + len - at).min(ZEROS.len() as u64);
            self.fill(at, &ZEROS[..piece as usize]);
            at += piece;
        }
        self.fence();
    }
}

#[cold]
#[inline(never)]
fn leaves(offset: u64, len: u64, len_bytes: u64) -> ! {
    panic!("access of {len} bytes at {offset} leaves a heap of {len_bytes} bytes");
}
