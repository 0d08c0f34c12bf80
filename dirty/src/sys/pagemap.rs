//! `PAGEMAP_SCAN` (Linux 6.7), by hand: what was written since it was last protected, protected
//! again in the same step. The ranges asked about are registered with a userfaultfd
//! ([`Watch`](crate::written::Watch)).

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::io::Errno;

use super::uffd::last_errno;

/// A run of pages of one kind.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Run {
    /// First byte.
    pub start: u64,
    /// Behind the last byte.
    pub end: u64,
    categories: u64,
}

impl Run {
    /// Whether the page table has it as a huge page, of which the kernel knows writes only as a
    /// whole.
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
    /// A scan that asks for nothing yet.
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

/// Whose copy of the pages a mapping has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The process's own. A page is its own only once it was written: until then it is the file's,
    /// or the page of zeros.
    Private,
    /// The file's.
    Shared,
}

/// The page map of a process.
#[derive(Debug)]
pub struct PageMap {
    file: File,
    /// All zeros but for what the last scan found.
    found: Vec<Run>,
    found_count: usize,
}

impl PageMap {
    /// Opens it, with room for `room` runs a scan. It stays that of the program that runs now:
    /// after an exec it is empty.
    pub fn open(pid: i32, room: usize) -> std::io::Result<Self> {
        Self::of(&format!("/proc/{pid}/pagemap"), room)
    }

    /// As [`PageMap::open`], that of this process.
    pub fn open_own(room: usize) -> std::io::Result<Self> {
        Self::of("/proc/self/pagemap", room)
    }

    fn of(path: &str, room: usize) -> std::io::Result<Self> {
        Ok(Self { file: File::open(path)?, found: vec![Run::default(); room], found_count: 0 })
    }

    /// Pages of a range that were written since they were last protected; protects them. Gives
    /// where it stopped: at the end, or with its room full. `PERM`: something in the range is not
    /// registered; what lies before it is protected and in what is given.
    ///
    /// A page without an entry was not written: newer kernels would call it so, and protecting it
    /// would cost a table.
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

    /// As [`PageMap::take_written`] of a range that its user registered and keeps: a page without
    /// an entry counts as written until it was given once, for nobody knows what its file has; and
    /// at most `pages_max` pages are given, if that is not 0.
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
        // An error says nothing about what was found before it, and protected.
        self.found_count = match outcome {
            Ok(count) => count,
            Err(_) => self.found.iter().position(|run| run.end == 0).unwrap_or(self.found.len()),
        };
        (&self.found[..self.found_count], outcome.map(|_| args.walk_end))
    }

    /// Whether the mapping at an address is registered, by anybody, so that stores open its pages
    /// without anybody waiting. Where there is no mapping any more nothing speaks against it.
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

    /// Protects pages of a range that have no entry, so that an entry made by a read is not taken
    /// for a write.
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
