//! The memory of one program, and which of its pages were written since the last look.
//!
//! What is known of a page is known from its entry in the page table, so:
//! - own pages of a process (heap, stack, anonymous, data of a program) are exact from their first write on, however long
//!   after the mapping we come, since such a page is there, and not the page of zeros, only because it was written;
//! - a shared page that is there when its mapping is first seen counts as written: it may have been read only;
//! - a fresh huge page counts whole; after the first look the kernel splits it where it is written;
//! - what `mremap` moves counts as written: it loses its registration, and the kernel does not say so.

use std::collections::HashSet;

use rustix::io::Errno;

use super::error::RecordError;
use super::maps::{Area, Maps};
use super::sys::{ForeignUffd, Kept, PageMap, Region};

/// Runs of written pages that one call to the kernel gives: 96 KiB.
const RUNS_A_CALL: usize = 4096;

/// The memory of one program.
#[derive(Debug)]
pub struct Space {
    /// The process.
    pub pid: i32,
    uffd: ForeignUffd,
    pages: PageMap,
    maps: Maps,
    refused: HashSet<(u64, u64)>,
}

/// What a look at a program's memory found besides pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The memory is there.
    There,
    /// The program has ended, or become another.
    Gone,
}

impl Space {
    /// Of a process that stands still, with its descriptor.
    pub fn new(pid: i32, uffd: ForeignUffd, maps: Maps) -> Result<Self, RecordError> {
        let pages = PageMap::open(pid, RUNS_A_CALL).map_err(|cause| RecordError::Read {
            pid,
            what: "opening its page map",
            cause,
        })?;
        Ok(Self { pid, uffd, pages, maps, refused: HashSet::new() })
    }

    /// Gives the pages written since the last look, in the order of addresses, and protects them.
    pub fn look(&mut self, found: &mut dyn FnMut(&Area, Region)) -> Result<Look, RecordError> {
        let areas = self.maps.read().map_err(|cause| RecordError::Read {
            pid: self.pid,
            what: "reading its mappings",
            cause,
        })?;
        for area in areas.iter().filter(|area| can_be_written(area)) {
            match self.look_at(area, found) {
                Ok(()) => {}
                Err(Errno::SRCH) => return Ok(Look::Gone),
                Err(errno @ (Errno::NOTTY | Errno::OPNOTSUPP)) => {
                    return Err(kernel("PAGEMAP_SCAN", errno));
                }
                Err(errno) => {
                    return Err(RecordError::Call { pid: self.pid, what: "PAGEMAP_SCAN", errno });
                }
            }
        }
        Ok(if areas.is_empty() { Look::Gone } else { Look::There })
    }

    /// Mappings that could not be recorded, as another userfaultfd has them or the kernel does not protect their kind.
    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    fn look_at(&mut self, area: &Area, found: &mut dyn FnMut(&Area, Region)) -> Result<(), Errno> {
        let kept = if area.shared { Kept::Shared } else { Kept::Private };
        let (mut at, mut is_new) = (area.start, false);
        while at < area.end {
            let (runs, outcome) = self.pages.take_written(kept, at, area.end);
            for run in runs {
                found(area, *run);
            }
            match outcome {
                Ok(stopped) => at = stopped,
                // Not registered: it is new. Registered and still not, it has changed since the mappings were read; the
                // next look sees what it is.
                Err(Errno::PERM) if !is_new => {
                    is_new = true;
                    if !self.register(area)? {
                        return Ok(());
                    }
                }
                Err(Errno::PERM) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if is_new && kept == Kept::Shared {
            match self.pages.protect_absent(area.start, area.end) {
                // It has changed again.
                Ok(()) | Err(Errno::PERM) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Whether it could be registered.
    fn register(&mut self, area: &Area) -> Result<bool, Errno> {
        if self.refused.contains(&(area.start, area.end)) {
            return Ok(false);
        }
        match self.uffd.register(area.start, area.end) {
            Ok(()) => Ok(true),
            // Somebody else's, or of a kind that cannot be: it will not change while it is there.
            Err(Errno::BUSY | Errno::INVAL | Errno::PERM) => {
                self.refused.insert((area.start, area.end));
                Ok(false)
            }
            // Gone or changed since the mappings were read.
            Err(Errno::NOMEM | Errno::AGAIN) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}

/// An error of a call that the kernel is too old for, or was built without.
pub fn kernel(what: &'static str, errno: Errno) -> RecordError {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    RecordError::Kernel { what, errno, release }
}

/// Memory of the kernel's own, mapped for reading, is none of the program's.
fn can_be_written(area: &Area) -> bool {
    area.writable && !area.name.starts_with("[v")
}
