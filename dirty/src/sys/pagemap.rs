//! `PAGEMAP_SCAN` (Linux 6.7), called without a library. It finds the pages that were written since
//! they were last protected, and protects them again in the same step. The ranges are registered
//! with a userfaultfd, see `Watch` in [`crate::written`].

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::io::Errno;

use super::uffd::last_errno;

/// A run of pages that were written.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Run {
    /// First byte.
    pub start: u64,
    /// The byte behind the last one.
    pub end: u64,
    categories: u64,
}

impl Run {
    /// Whether the run is a huge page, of which the kernel records writes only as a whole.
    pub fn is_huge(&self) -> bool {
        self.categories & HUGE != 0
    }
}

#[repr(C)]
#[derive(Default)]
struct ScanArgs {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

impl ScanArgs {
    /// A scan of a range that asks for nothing yet.
    fn of(flags: u64, start: u64, end: u64) -> Self {
        Self { size: size_of::<Self>() as u64, flags, start, end, ..Self::default() }
    }
}

const SCAN: u64 = 3 << 30 | (size_of::<ScanArgs>() as u64) << 16 | (b'f' as u64) << 8 | 16;
const _: () = assert!(size_of::<ScanArgs>() == 96 && SCAN == 0xc060_6610);
const _: () = assert!(size_of::<Run>() == 24);

const WP_MATCHING: u64 = 1 << 0;
const CHECK_WPASYNC: u64 = 1 << 1;

const WRITTEN: u64 = 1 << 1;
const FILE: u64 = 1 << 2;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const ZEROS: u64 = 1 << 5;
const HUGE: u64 = 1 << 6;

/// Whether a mapping is private or shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The mapping is private. A page becomes the process's own when it is written; until then it
    /// is the file's, or the page of zeros.
    Private,
    /// The mapping is shared: its pages are the file's.
    Shared,
}

/// The page map of a process.
#[derive(Debug)]
pub struct PageMap {
    file: File,
    /// The runs that the last scan found; zeros behind them.
    found: Vec<Run>,
    found_count: usize,
}

impl PageMap {
    /// Opens the page map of a process, with room for `room` runs of a scan. After an exec it is
    /// empty, because it belongs to the program that runs now.
    pub fn open(pid: i32, room: usize) -> std::io::Result<Self> {
        Self::of(&format!("/proc/{pid}/pagemap"), room)
    }

    /// Opens the page map of this process, with room for `room` runs of a scan.
    pub fn open_own(room: usize) -> std::io::Result<Self> {
        Self::of("/proc/self/pagemap", room)
    }

    fn of(path: &str, room: usize) -> std::io::Result<Self> {
        Ok(Self { file: File::open(path)?, found: vec![Run::default(); room], found_count: 0 })
    }

    /// Finds the pages of a range that were written since they were last protected, and protects
    /// them. Also returns the address at which the scan stopped: the end, or earlier if there was
    /// no room for more runs. `PERM`: a part of the range is not registered; the pages before it
    /// are protected and in the result.
    ///
    /// A page without an entry in the page table counts as not written. Newer kernels would call it
    /// written, and to protect it would cost a page table.
    pub fn take_written(
        &mut self,
        kept: Kept,
        start: u64,
        end: u64,
    ) -> (&[Run], Result<u64, Errno>) {
        let not = if kept == Kept::Private { FILE | ZEROS } else { 0 };
        self.take(ScanArgs {
            category_inverted: not,
            category_mask: WRITTEN | not,
            category_anyof_mask: PRESENT | SWAPPED,
            return_mask: WRITTEN | HUGE,
            ..ScanArgs::of(WP_MATCHING | CHECK_WPASYNC, start, end)
        })
    }

    /// Finds and protects written pages as [`PageMap::take_written`] does, of a range that the
    /// caller registered and keeps. A page without an entry counts as written until it was returned
    /// once, because the contents of its file are unknown. At most `pages_max` pages are returned,
    /// if that is not 0.
    pub fn take_written_or_new(
        &mut self,
        start: u64,
        end: u64,
        pages_max: u64,
    ) -> (&[Run], Result<u64, Errno>) {
        self.take(ScanArgs {
            max_pages: pages_max,
            category_mask: WRITTEN,
            return_mask: WRITTEN,
            ..ScanArgs::of(WP_MATCHING, start, end)
        })
    }

    fn take(&mut self, mut args: ScanArgs) -> (&[Run], Result<u64, Errno>) {
        self.found[..self.found_count].fill(Run::default());
        args.vec = self.found.as_mut_ptr() as u64;
        args.vec_len = self.found.len() as u64;
        let outcome = self.scan(&mut args);
        // After an error the kernel does not say how many runs it found and protected before.
        self.found_count = match outcome {
            Ok(count) => count,
            Err(_) => self.found.iter().position(|run| run.end == 0).unwrap_or(self.found.len()),
        };
        (&self.found[..self.found_count], outcome.map(|_| args.walk_end))
    }

    /// Whether the mapping at an address is registered by any userfaultfd that opens its pages at
    /// stores. Also true where there is no mapping any more.
    pub fn is_tracked(&self, at: u64) -> Result<bool, Errno> {
        const PAGE_BYTES: u64 = 4096;
        let mut args =
            ScanArgs { category_mask: WRITTEN, ..ScanArgs::of(CHECK_WPASYNC, at, at + PAGE_BYTES) };
        match self.scan(&mut args) {
            Ok(_) => Ok(true),
            Err(Errno::PERM) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Protects the pages of a range that have no entry in the page table, so that an entry made by
    /// a read does not count as a write.
    pub fn protect_absent(&self, start: u64, end: u64) -> Result<(), Errno> {
        let mut args = ScanArgs {
            category_inverted: PRESENT,
            category_mask: PRESENT,
            ..ScanArgs::of(WP_MATCHING | CHECK_WPASYNC, start, end)
        };
        self.scan(&mut args).map(drop)
    }

    fn scan(&self, args: &mut ScanArgs) -> Result<usize, Errno> {
        // SAFETY: the structure is what SCAN takes (asserted above) and outlives the call; its
        // vector, if any, has room for `vec_len` runs. Of the process's memory only protection
        // changes, which its stores undo.
        let count = unsafe { libc::ioctl(self.file.as_raw_fd(), SCAN as _, &raw mut *args) };
        if count < 0 { Err(last_errno()) } else { Ok(count as usize) }
    }
}
