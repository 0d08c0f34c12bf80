//! The dual-use heap: persistent objects and capacity memory in one range of bytes.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use perdura_heap::{Config, Durability, HEAP_BYTES_MAX, HEAP_BYTES_MIN, HeapError, Memory};
use perdura_region::{Promise, TrackingKind, TrapKind, directory};

use crate::closing::{Closing, Flushed};
use crate::error::{CloseError, OpenError};
use crate::guarded;
use crate::options::Options;

/// Length of a new heap if none is given.
const NEW_BYTES: u64 = 1 << 30;

/// A heap of objects that survive, and of plain memory on the same medium.
///
/// A heap lies in a file ([`Heap::open`]: persistent memory on a DAX file system, the page cache on
/// any other) or in a directory with a bounded dirty set ([`Heap::open_in`]). It has all methods of
/// [`perdura_heap::Heap`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("visits.heap");
/// use perdura::Heap;
/// use perdura::heap_types::HeapError;
///
/// let heap = Heap::options().len_bytes(16 << 20).open(&path)?;
/// heap.transaction(|tx| -> Result<(), HeapError> {
///     let visit = tx.put([1_u64, 0])?;
///     tx.set_root("last visit", visit)
/// })?;
/// heap.close()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Heap {
    heap: Arc<perdura_heap::Heap>,
    beneath: Option<Beneath>,
}

/// The region of a directory's heap.
struct Beneath {
    region: Arc<perdura_region::Region>,
    promise: Promise,
    closing: Arc<Closing>,
}

/// How a heap is opened.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let heap = perdura::Heap::options().len_bytes(32 << 20).open(dir.path().join("heap"))?;
/// assert!(heap.root::<u64>("nothing yet")?.is_none());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "options do nothing until a heap is opened with them"]
pub struct HeapOptions {
    len_bytes: Option<u64>,
    durability: Durability,
    config: Config,
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heap")
            .field("memory", self.heap.memory())
            .field("is_in_directory", &self.beneath.is_some())
            .finish_non_exhaustive()
    }
}

impl Heap {
    /// Opens the heap in a file, or makes it with 1 GiB.
    ///
    /// # Errors
    /// The file cannot be had, or holds something else.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::options().open(path)
    }

    /// Opens the heap in a directory, or makes it: memory with a bounded dirty set, kept by
    /// `options` as a [`TrappedRegion`](crate::TrappedRegion) is.
    ///
    /// # Errors
    /// The directory cannot be had, holds something else, or its promise cannot be kept.
    pub fn open_in(dir: impl AsRef<Path>, options: &Options) -> Result<Self, OpenError> {
        Self::options().open_in(dir, options)
    }

    /// Settings of a heap.
    pub fn options() -> HeapOptions {
        HeapOptions { len_bytes: None, durability: Durability::Flushed, config: Config::default() }
    }

    /// The promise of a directory's heap: the budget, and the time of its flush.
    pub fn promise(&self) -> Option<Promise> {
        self.beneath.as_ref().map(|beneath| beneath.promise)
    }

    /// The region below a directory's heap: budget, dirty bytes, counters, checkpoints.
    pub fn region(&self) -> Option<&Arc<perdura_region::Region>> {
        self.beneath.as_ref().map(|beneath| &beneath.region)
    }

    /// Leaves as little as possible to recover, durably; a directory's memory is flushed, and the
    /// flush reported. Other threads must have ended what they do. Nothing may be changed later.
    ///
    /// # Errors
    /// The flush failed, or the logs could not be shortened; the heap is as whole as after a crash.
    pub fn close(&self) -> Result<Option<Flushed>, CloseError> {
        if self.heap.is_forked() {
            // Everything belongs to the parent.
            return Ok(None);
        }
        let compacted = self.heap.compact();
        let flushed = self.beneath.as_ref().map(Beneath::close).transpose()?;
        compacted?;
        Ok(flushed)
    }
}

impl Deref for Heap {
    type Target = perdura_heap::Heap;

    fn deref(&self) -> &Self::Target {
        &self.heap
    }
}

impl Drop for Heap {
    /// A directory's memory is flushed as by [`Heap::close`], if that has not been done. A failure
    /// is logged only. A file's heap is left as it is, and the next opening recovers it.
    fn drop(&mut self) {
        if self.heap.is_forked() {
            // To drop the heap could wait for a thread that does not exist in this process.
            std::mem::forget(Arc::clone(&self.heap));
            if let Some(beneath) = &self.beneath {
                std::mem::forget(Arc::clone(&beneath.region));
            }
            return;
        }
        if let Some(beneath) = &self.beneath {
            beneath.closing.close_at_drop(&beneath.region);
        }
    }
}

impl Beneath {
    fn close(&self) -> Result<Flushed, CloseError> {
        self.closing.close(&self.region)
    }
}

impl HeapOptions {
    /// Bytes of the heap, at least 1 MiB; a file that is there is never made smaller. Default: as
    /// large as it is, and 1 GiB if it is new. For a directory, [`Options::memory_bytes`] counts.
    pub fn len_bytes(mut self, bytes: u64) -> Self {
        self.len_bytes = Some(bytes);
        self
    }

    /// How stores to a file become durable. Default: [`Durability::Flushed`]. A directory's memory
    /// needs no flush.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Logging, bookkeeping, NUMA node and the rest. Default: `Config::default()`.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Opens the heap in a file, or makes it.
    ///
    /// # Errors
    /// The errors of [`Heap::open`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<Heap, OpenError> {
        let path = path.as_ref();
        let found_bytes = std::fs::metadata(path).map_or(0, |found| found.len());
        let len_bytes = self.len_bytes.unwrap_or(if found_bytes > 0 { 0 } else { NEW_BYTES });
        if found_bytes == 0 {
            // Checked before a file is made in vain.
            check_len(len_bytes)?;
        }
        let memory = Memory::file(path, len_bytes, self.durability)?;
        let heap = perdura_heap::Heap::open(memory, self.config)?;
        Ok(Heap { heap: Arc::new(heap), beneath: None })
    }

    /// Opens the heap in a directory, or makes it.
    ///
    /// # Errors
    /// The errors of [`Heap::open_in`].
    pub fn open_in(self, dir: impl AsRef<Path>, options: &Options) -> Result<Heap, OpenError> {
        options.check_plain_stores()?;
        let dir = dir.as_ref();
        let is_new = !directory::has_image(dir);
        let len_bytes = options.asked_bytes().or(is_new.then_some(NEW_BYTES));
        let len_bytes = len_bytes.unwrap_or(HEAP_BYTES_MIN);
        check_len(len_bytes)?;
        let options = options.clone().memory_bytes(len_bytes);
        let opened = options.open(dir, TrackingKind::Trap(TrapKind::Auto))?;
        let beneath = Beneath {
            region: Arc::new(opened.region),
            promise: opened.promise,
            closing: opened.closing,
        };
        guarded::follow(opened.following, &beneath.region, &beneath.closing)?;
        let memory = Memory::region(Arc::clone(&beneath.region))?;
        // A region of somebody, whose first page may be empty.
        let opened = match !is_new && memory.has_data_without_heap() {
            true => Err(HeapError::NotAHeap { found: 0 }),
            false => perdura_heap::Heap::open(memory, self.config),
        };
        match opened {
            Ok(heap) => Ok(Heap { heap: Arc::new(heap), beneath: Some(beneath) }),
            Err(error) => {
                // The holder must not keep a memory that was not opened. The first error says more
                // than one of this closing would.
                beneath.closing.close_at_drop(&beneath.region);
                Err(error.into())
            }
        }
    }
}

fn check_len(bytes: u64) -> Result<(), HeapError> {
    if (HEAP_BYTES_MIN..=HEAP_BYTES_MAX).contains(&bytes) {
        return Ok(());
    }
    let (least_bytes, most_bytes) = (HEAP_BYTES_MIN, HEAP_BYTES_MAX);
    Err(HeapError::Size { what: "a heap", bytes, least_bytes, most_bytes })
}
