//! Durable bytes for code that just stores.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use perdura_region::{Prepared, Promise, RegionError, TrackingKind, TrapKind, TrappedMemory};

use crate::closing::{Closing, Flushed};
use crate::error::{AccessError, CloseError, OpenError};
use crate::guarded;
use crate::options::Options;
use crate::region::check_range;

/// Durable bytes for code that just stores: all of them at one address, the first store to a clean
/// page noticed by a page fault.
///
/// The pages are tracked by userfaultfd, or by mprotect where that is refused. Threads that store
/// must not block SIGBUS (with mprotect: SIGSEGV), and a handler for it that is installed after the
/// opening must pass on what it does not know. A forked child has no such memory. Once the region
/// is closed, a thread that stores waits until the process ends.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path().join("data");
/// use perdura::{Options, TrappedRegion};
///
/// let region = TrappedRegion::open_with(&dir, &Options::new().memory_bytes(64 << 20))?;
/// region.write(4096, b"plain stores")?;
/// region.commit()?;
/// region.close()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct TrappedRegion {
    region: Arc<perdura_region::Region>,
    promise: Promise,
    closing: Arc<Closing>,
}

impl std::fmt::Debug for TrappedRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrappedRegion")
            .field("len_bytes", &self.len_bytes())
            .field("promise", &self.promise)
            .finish_non_exhaustive()
    }
}

impl TrappedRegion {
    /// Opens the bytes in a directory, or makes them, with the default [`Options`]. A directory
    /// that [`Region`](crate::Region) or [`Store`](crate::Store) made is refused: it is tracked in
    /// finer grains.
    ///
    /// # Errors
    /// The directory cannot be had, holds something else, or its promise cannot be kept; or the
    /// system refuses to trap stores.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(dir, &Options::default())
    }

    /// Opens the bytes in a directory, or makes them.
    ///
    /// # Errors
    /// The errors of [`TrappedRegion::open`], or an option is refused, such as
    /// [`Durability::Fsync`], because nobody sees when a plain store is done.
    ///
    /// [`Durability::Fsync`]: crate::Durability::Fsync
    pub fn open_with(dir: impl AsRef<Path>, options: &Options) -> Result<Self, OpenError> {
        options.check_plain_stores()?;
        let opened = options.open(dir.as_ref(), TrackingKind::Trap(TrapKind::Auto))?;
        let region = Arc::new(opened.region);
        guarded::follow(opened.following, &region, &opened.closing)?;
        Ok(Self { region, promise: opened.promise, closing: opened.closing })
    }

    /// The first byte. All [`TrappedRegion::len_bytes`] may be read and stored to while the region
    /// lives; a store may wait for the budget.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory().map_or(std::ptr::null_mut(), |memory| memory.as_ptr())
    }

    /// Number of bytes.
    pub fn len_bytes(&self) -> u64 {
        self.region.len_bytes()
    }

    /// Copies bytes out. Words that other threads are changing come out old or new.
    ///
    /// # Errors
    /// The range leaves the region.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), AccessError> {
        check_range(self.len_bytes(), offset, out.len() as u64)?;
        self.memory()?.read(offset, out);
        Ok(())
    }

    /// Stores bytes, whole aligned words in one store each. Waits if the budget is used up.
    ///
    /// # Errors
    /// The range leaves the region, or the region is closed.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        check_range(self.len_bytes(), offset, bytes.len() as u64)?;
        self.region.check_open()?;
        self.memory()?.write(offset, bytes);
        Ok(())
    }

    /// Opens the pages of a range for a write that no page fault shows: by a system call or a
    /// device. Hold the result for the time of that one transfer.
    ///
    /// # Errors
    /// The range leaves the region or is larger than half the budget; the SSD has failed, or the
    /// region is closed.
    pub fn prepare_write(&self, range: Range<u64>) -> Result<Prepared<'_>, AccessError> {
        let len_bytes = range.end.saturating_sub(range.start);
        check_range(self.len_bytes(), range.start, len_bytes)?;
        Ok(self.memory()?.prepare_write(range.start..range.start + len_bytes)?)
    }

    /// Makes everything that was stored before durable before it returns.
    ///
    /// # Errors
    /// The SSD has failed, or the region is closed.
    pub fn commit(&self) -> Result<(), RegionError> {
        self.region.commit_group()
    }

    /// Makes the state of this moment the one that an unwarned loss goes back to.
    ///
    /// # Errors
    /// The SSD has failed, or the region is closed.
    pub fn checkpoint(&self) -> Result<(), RegionError> {
        self.region.checkpoint()
    }

    /// The promise: the budget, and the time of its flush.
    pub fn promise(&self) -> Promise {
        self.promise
    }

    /// Stops writers for good, flushes within the warning, lets the holder go, and reports. A
    /// second call repeats the report.
    ///
    /// # Errors
    /// The flush failed, and the call may be repeated; or the holder did not end.
    pub fn close(&self) -> Result<Flushed, CloseError> {
        self.closing.close(&self.region)
    }

    /// Whether this process was forked from the one that opened the region. It has no such memory.
    pub fn is_forked(&self) -> bool {
        self.closing.is_forked()
    }

    /// The region below: budget, dirty bytes, counters.
    pub fn inner(&self) -> &Arc<perdura_region::Region> {
        &self.region
    }

    fn memory(&self) -> Result<TrappedMemory<'_>, RegionError> {
        // The region was opened in trap mode, and a region never changes its mode.
        self.region.trapped().ok_or(RegionError::Closed)
    }
}

impl Drop for TrappedRegion {
    /// Flushes as [`TrappedRegion::close`] does, if that has not been done. A failure is logged
    /// only.
    fn drop(&mut self) {
        if self.closing.is_forked() {
            // Everything belongs to the parent, which a destructor here would disturb.
            std::mem::forget(Arc::clone(&self.region));
            return;
        }
        self.closing.close_at_drop(&self.region);
    }
}
