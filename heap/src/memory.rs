//! The memory a heap lies in, and how stores to it become durable.
//!
//! Every store that the heap makes to persistent memory goes through here, so that a [`Tap`] sees
//! it: store orders are checked, and lines and fences counted, on what the heap really does.
//!
//! Invariant: nothing but the heap, and the objects' users, changes the bytes while a heap is open.

mod pages;

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use perdura_region::{PagedMemory, Region};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock, ftruncate, open};
use rustix::io::Errno;

use crate::sys::{
    Backed, FlushKind, LINE_BYTES, Mapping, Room, copy_in, copy_out, fence, flush_line,
    prefetch_for_write, stream,
};

/// From here on what nobody reads yet goes past the caches where stores must be flushed anyway.
pub(crate) const STREAM_BYTES: usize = 4096;

/// How a store becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It is at once: the memory outlives the process, and whoever keeps it (a battery-backed
    /// region and its holder) writes it out. Only the order of stores matters.
    Ordered,
    /// When its cache line was written back and a fence has passed: persistent memory, DAX files.
    Flushed,
}

/// Sees what the heap does to persistent memory, in the order of the program: for checking store
/// orders and for counting. Offsets are from the heap's first byte.
pub trait Tap: Send + Sync {
    /// These bytes are being stored. Up to eight aligned bytes arrive whole.
    fn store(&self, offset: u64, bytes: &[u8]);
    /// The line that begins at `line_offset` is being written back.
    fn flush(&self, line_offset: u64);
    /// What this thread wrote back before is durable when this returns.
    fn fence(&self);
    /// These bytes were stored past the caches: durable after the next fence, without a flush. By
    /// default as stored and written back.
    fn stream(&self, offset: u64, bytes: &[u8]) {
        self.store(offset, bytes);
        let lines = offset / LINE_BYTES..(offset + bytes.len() as u64).div_ceil(LINE_BYTES);
        lines.for_each(|line| self.flush(line * LINE_BYTES));
    }
    /// The pages of this range, which serves nobody, are being given up: they read as zeros, but no
    /// fence makes that durable.
    fn empty(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }
}

/// Why memory cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The file cannot be opened, made longer or mapped.
    #[error("{}: cannot {what} a heap file{}: {source}", path.display(), length(what, *len_bytes))]
    File {
        /// The file.
        path: PathBuf,
        /// `open`, `lock`, `extend`, `map`.
        what: &'static str,
        /// Length asked for; of no account where the file was opened or locked.
        len_bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else has the file open as a heap.
    #[error("{}: in use by another heap; end that program first", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The system gives no memory.
    #[error("no {len_bytes} bytes of memory: {source}")]
    Anonymous {
        /// Length asked for.
        len_bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The region notices writes by announcements, so plain stores would be lost.
    #[error(
        "this region tracks writes in barrier mode; a heap that is just stored to needs a region opened in trap mode"
    )]
    NotTrapped,
    /// The memory cannot be bound to a node.
    #[error(
        "capacity memory cannot be bound to NUMA node {node}: {source} (nodes are listed in /sys/devices/system/node)"
    )]
    Node {
        /// The node.
        node: u32,
        /// What the system said.
        source: io::Error,
    },
    /// The memory's file lies where its file system has it, whatever node is asked for.
    #[error(
        "capacity memory in this file cannot be bound to NUMA node {node}: its file system says where pages are; take private memory, a region, or a file on tmpfs"
    )]
    NodeOfFile {
        /// The node.
        node: u32,
    },
    /// Where paged memory lies is its medium's matter.
    #[error(
        "paged capacity memory cannot be bound to NUMA node {node}: it lies on a modelled medium; take private memory, a region, or a file on tmpfs"
    )]
    NodeOfPaged {
        /// The node.
        node: u32,
    },
}

/// The length in a message about what was done to a file, where it has to do with it.
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
    /// A file stays locked while it is mapped.
    Mapped {
        /// A file without a name has room where a bucket is, and no more. Before the mapping: it
        /// lives no longer.
        room: Option<Room>,
        mapping: Mapping,
        file: Option<File>,
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
    /// A file: on a DAX file system real persistent memory, on any other one memory that survives
    /// the process (and a crash of the machine only as far as the kernel has written it). Made, or
    /// made longer, if need be.
    ///
    /// # Errors
    /// The file cannot be had, or another heap has it.
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
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(MemoryError::InUse { path: path.to_owned() }),
            Err(errno) => return Err(failed("lock", errno.into())),
        }
        let found = file.metadata().map_err(|source| failed("open", source))?.len();
        let len_bytes = len_bytes.max(found);
        if found < len_bytes {
            // Reserved, so that no store meets a full file system; where that is unknown, it is
            // only made longer.
            match fallocate(&file, FallocateFlags::empty(), 0, len_bytes) {
                Ok(()) => {}
                Err(Errno::OPNOTSUPP) => {
                    file.set_len(len_bytes).map_err(|source| failed("extend", source))?;
                }
                Err(errno) => {
                    // Nothing was there before, or what was is as it was.
                    let _ = file.set_len(found);
                    return Err(failed("extend", errno.into()));
                }
            }
        }
        let mapping =
            Mapping::file(&file, len_bytes).map_err(|errno| failed("map", errno.into()))?;
        Ok(Self::of(Source::Mapped { mapping, file: Some(file), room: None }, durability))
    }

    /// A file without a name in a directory: memory on that medium, gone with the process, for
    /// capacity only. It gets room in the file system as it is used.
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

    /// A private copy of a file that nobody has open as a heap, and that nobody can while this
    /// lives: to look at it. What is changed is not in the file.
    ///
    /// # Errors
    /// The file cannot be read, or a heap has it open.
    pub fn copy_of(path: &Path) -> Result<Self, MemoryError> {
        let failed = |what, len_bytes, source: io::Error| MemoryError::File {
            path: path.to_owned(),
            what,
            len_bytes,
            source,
        };
        let file = File::open(path).map_err(|source| failed("open", 0, source))?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(MemoryError::InUse { path: path.to_owned() }),
            Err(errno) => return Err(failed("lock", 0, errno.into())),
        }
        let len_bytes = file.metadata().map_err(|source| failed("open", 0, source))?.len();
        let mapping = Mapping::copy(&file, len_bytes)
            .map_err(|errno| failed("map", len_bytes, errno.into()))?;
        let source = Source::Mapped { mapping, file: Some(file), room: None };
        // The mapping of an empty file has a page; the heap has what the file has.
        Ok(Self { len_bytes, ..Self::of(source, Durability::Flushed) })
    }

    /// Private memory with these bytes: to look at an image of a heap.
    ///
    /// # Errors
    /// The system gives none.
    pub fn copy_of_bytes(bytes: &[u8]) -> Result<Self, MemoryError> {
        let memory = Self::anonymous(bytes.len() as u64, Durability::Flushed)?;
        memory.write(0, bytes);
        Ok(memory)
    }

    /// Private memory, gone with the process: for tests, for measuring, for capacity only.
    ///
    /// # Errors
    /// The system gives none.
    pub fn anonymous(len_bytes: u64, durability: Durability) -> Result<Self, MemoryError> {
        let mapping = Mapping::anonymous(len_bytes)
            .map_err(|errno| MemoryError::Anonymous { len_bytes, source: errno.into() })?;
        let source = Source::Mapped { mapping, file: None, room: None };
        // A mapping has a page at least.
        Ok(Self { len_bytes, ..Self::of(source, durability) })
    }

    /// A region in trap mode: battery-backed memory with a bounded dirty set. Stores just store.
    ///
    /// # Errors
    /// The region is in barrier mode.
    pub fn region(region: Arc<Region>) -> Result<Self, MemoryError> {
        if region.trapped().is_none() {
            return Err(MemoryError::NotTrapped);
        }
        Ok(Self::of(Source::Region(region), Durability::Ordered))
    }

    /// Memory of which only so much is in DRAM: gone with the process, for capacity larger than
    /// DRAM and for media that this machine does not have. A heap's own tables lie in it, too.
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

    /// Writes lines back with another instruction than the one found best, as long as this
    /// processor has it.
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

    /// First byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// How stores become durable.
    pub fn durability(&self) -> Durability {
        if self.flush.is_some() { Durability::Flushed } else { Durability::Ordered }
    }

    /// The region it lies in, if it does.
    pub fn as_region(&self) -> Option<&Arc<Region>> {
        match &self.source {
            Source::Region(region) => Some(region),
            Source::Mapped { .. } | Source::Paged(_) => None,
        }
    }

    /// What it is, for people.
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

    /// The address of a byte inside.
    #[inline]
    pub(crate) fn at(&self, offset: u64, len: u64) -> *mut u8 {
        if offset.checked_add(len).is_none_or(|end| end > self.len_bytes) {
            leaves(offset, len, self.len_bytes);
        }
        self.base.wrapping_add(offset as usize)
    }

    /// Which byte an address is; `None`: none of this memory.
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

    /// What the word holds.
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

    /// Copies bytes, whole aligned lines of them, past the caches where they must be flushed
    /// anyway: a sixth of what writing them back costs. Durable after [`Memory::fence`], and seen
    /// by other threads only then. False: nothing was done.
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

    /// Copies bytes to where nobody reads yet; durable after [`Memory::fence`].
    pub(crate) fn fill(&self, offset: u64, bytes: &[u8]) {
        if bytes.len() < STREAM_BYTES || !self.stream(offset, bytes) {
            self.write(offset, bytes);
            self.flush(offset, bytes.len() as u64);
        }
    }

    /// Fills whole lines of a log, which nobody reads soon, as [`Memory::stream`] does. The last
    /// line is filled up with zeros. Durable after [`Memory::fence`].
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

    /// Writes the lines of a range back; durable after [`Memory::fence`].
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

    /// Waits until what this thread wrote back is durable. Orders stores even where nothing is
    /// flushed.
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

    /// Zeros a range and makes that durable.
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
