//! The memory of one program, and the pages of it that were written since the last look.
//!
//! A page's entry in the page table is all that is known of it, so:
//! - private pages (heap, stack, anonymous memory, a program's data) are exact from their first
//!   write on, even if the recorder comes later, because such a page has memory of its own only if
//!   it was written;
//! - a shared page that has memory when its mapping is first seen counts as written, though it may
//!   have been only read;
//! - a fresh huge page counts whole; after the first look the kernel splits it where it is written;
//! - pages that `mremap` moves count as written, because they lose their registration and the
//!   kernel does not say so.
//!
//! Memory that is registered with another userfaultfd, such as the program's own, is left out: a
//! query would take the written pages away from its owner. So each look first registers all memory,
//! and skips the ranges that are refused.

use std::collections::HashSet;

use perdura_dirty::written::{Kept, PageMap, Run, Watch};
use rustix::io::Errno;

use super::error::RecordError;
use super::maps::{Area, Maps};

/// How many runs of written pages one call to the kernel gives: 96 KiB of them.
const RUNS_A_CALL: usize = 4096;
/// The name of the first thread's stack.
const STACK: &str = "[stack]";
/// The name of a mapping that is the kernel's and lies beyond all of the process.
const VSYSCALL: &str = "[vsyscall]";

/// The memory of one program.
#[derive(Debug)]
pub struct Space {
    /// The number of the process.
    pub pid: i32,
    watch: Watch,
    pages: PageMap,
    maps: Maps,
    refused: HashSet<(u64, u64)>,
    /// Whether the memory was not looked at yet.
    is_fresh: bool,
}

/// Whether the program's memory was still there at a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The memory is there.
    There,
    /// The program has ended, or become another.
    Gone,
}

impl Space {
    /// The memory of a process whose tracee stands still, with its descriptor.
    pub fn new(pid: i32, watch: Watch, mut maps: Maps) -> Result<Self, RecordError> {
        let read = |what| move |cause| RecordError::Read { pid, what, cause };
        let pages = PageMap::open(pid, RUNS_A_CALL).map_err(read("opening its page map"))?;
        let areas = maps.read().map_err(read("reading its mappings"))?;
        let mut space = Self { pid, watch, pages, maps, refused: HashSet::new(), is_fresh: true };
        let refused = space.register(&areas).map_err(|errno| space.failed(errno))?;
        // A program may track memory of its own, but hardly its stack. We are its only tracer now:
        // of two recorders one is first.
        let is_tracked = |area: &Area| area.name == STACK && refused.contains(&area.start);
        if areas.iter().any(is_tracked) { Err(RecordError::Tracked { pid }) } else { Ok(space) }
    }

    /// Gives the pages written since the last look, in the order of addresses, and protects them.
    pub fn look(&mut self, found: &mut dyn FnMut(&Area, Run)) -> Result<Look, RecordError> {
        let areas = self.maps.read().map_err(|cause| RecordError::Read {
            pid: self.pid,
            what: "reading its mappings",
            cause,
        })?;
        match self.look_at_all(&areas, found) {
            Ok(()) if areas.is_empty() => Ok(Look::Gone),
            Ok(()) => Ok(Look::There),
            Err(Errno::SRCH) => Ok(Look::Gone),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Mappings that could not be recorded, as another userfaultfd has them or the kernel does not
    /// protect their kind.
    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    fn look_at_all(
        &mut self,
        areas: &[Area],
        found: &mut dyn FnMut(&Area, Run),
    ) -> Result<(), Errno> {
        let mut fresh = HashSet::new();
        for area in areas.iter().filter(|area| area.shared && can_be_written(area)) {
            if self.is_fresh || !self.pages.is_tracked(area.start)? {
                fresh.insert(area.start);
            }
        }
        // Before anything is protected: what is not ours must be left to its owner.
        let refused = self.register(areas)?;
        for area in areas.iter().filter(|area| can_be_written(area)) {
            if !refused.contains(&area.start) {
                self.look_at(area, found)?;
                if fresh.contains(&area.start) {
                    self.protect_absent(area)?;
                }
            }
        }
        self.is_fresh = false;
        Ok(())
    }

    fn look_at(&mut self, area: &Area, found: &mut dyn FnMut(&Area, Run)) -> Result<(), Errno> {
        let kept = if area.shared { Kept::Shared } else { Kept::Private };
        let mut at = area.start;
        while at < area.end {
            let (runs, outcome) = self.pages.take_written(kept, at, area.end);
            for run in runs {
                found(area, *run);
            }
            match outcome {
                Ok(stopped) => at = stopped,
                // Another mapping since the mappings were read; the next look sees what it is.
                Err(Errno::PERM) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn protect_absent(&self, area: &Area) -> Result<(), Errno> {
        match self.pages.protect_absent(area.start, area.end) {
            // It has changed again.
            Ok(()) | Err(Errno::PERM) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Makes all that can be written protectable, and gives the starts of those areas of which that
    /// is refused.
    ///
    /// In spans with the gaps between areas: a range that ends inside a mapping splits it, and a
    /// mapping may be there by now that was not when the mappings were read. The program could no
    /// longer move such a half with `mremap`, which the C library's `realloc` does.
    fn register(&mut self, areas: &[Area]) -> Result<HashSet<u64>, Errno> {
        let mut refused = HashSet::new();
        let mut first = 0_usize;
        for at in 0..=areas.len() {
            if areas.get(at).is_some_and(|area| !is_border(area)) {
                continue;
            }
            let (before, behind) = (first.checked_sub(1), areas.get(at));
            let span = &areas[first..at];
            first = at + 1;
            let ([begins, ..], [.., ends]) = (span, span) else { continue };
            let start = before.map_or(begins.start, |border| areas[border].end);
            let end = behind.filter(|border| border.name != VSYSCALL).map_or(ends.end, |b| b.start);
            if !span.iter().any(can_be_written) || self.register_one(start, end)? == Answer::Done {
                continue;
            }
            for area in span.iter().filter(|area| can_be_written(area)) {
                match self.register_one(area.start, area.end)? {
                    Answer::Done => continue,
                    Answer::Refused => {
                        self.refused.insert((area.start, area.end));
                    }
                    Answer::Gone => {}
                }
                refused.insert(area.start);
            }
        }
        Ok(refused)
    }

    /// Registers a range; what is registered already stays as it is.
    fn register_one(&self, start: u64, end: u64) -> Result<Answer, Errno> {
        match self.watch.register(start, end) {
            Ok(()) => Ok(Answer::Done),
            Err(Errno::BUSY | Errno::INVAL | Errno::PERM) => Ok(Answer::Refused),
            Err(Errno::NOMEM | Errno::AGAIN) => Ok(Answer::Gone),
            Err(errno) => Err(errno),
        }
    }

    fn failed(&self, errno: Errno) -> RecordError {
        let pid = self.pid;
        match errno {
            Errno::NOTTY | Errno::OPNOTSUPP => kernel("PAGEMAP_SCAN", errno),
            Errno::SRCH => RecordError::NoProcess { pid },
            errno => RecordError::Call { pid, what: "asking for the pages it wrote", errno },
        }
    }
}

/// The kernel's answer to the request to make a range protectable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Done,
    /// The range belongs to another descriptor, or is of a kind that cannot be protected.
    Refused,
    /// Gone or changed since the mappings were read, as all of it is when the program ends.
    Gone,
}

/// The error of a call that the kernel is too old for, or was built without.
pub fn kernel(what: &'static str, errno: Errno) -> RecordError {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    RecordError::Kernel { what, errno, release }
}

/// Whether a mapping can hold writes of the program; those of the kernel's own cannot.
fn can_be_written(area: &Area) -> bool {
    area.writable && !area.name.starts_with("[v")
}

/// Whether no span has it in it: code and constants of files need no protection and are slower with
/// it, and of some others, the kernel's own among them, it would be refused, and with it that of
/// the span.
fn is_border(area: &Area) -> bool {
    let is_own_memory = !area.shared && area.inode == 0 && !area.name.starts_with("[v");
    !area.writable && (!is_own_memory || area.name.starts_with("[u"))
}

#[cfg(test)]
mod tests {
    use super::super::attach::attach;
    use super::super::sys::test_program::Program;

    #[test]
    fn a_mapping_that_came_after_the_mappings_were_read_is_registered_whole_and_can_be_moved() {
        let mut program = Program::start();
        // The middle of a place that is as large as what comes later: the kernel puts that there
        // again.
        let place = program.tell("private 4000");
        let before = place + (1500 << 12);
        program.tell(&format!("unmap {place} 1500"));
        program.tell(&format!("unmap {} 1500", before + (1000 << 12)));
        let mut space = attach(program.pid()).unwrap();
        space.look(&mut |_, _| {}).unwrap();
        let areas = space.maps.read().unwrap();
        program.tell(&format!("unmap {before} 1000"));
        let start = program.tell("private 4000");
        assert!(
            start < before && before < start + (4000 << 12),
            "it lies over where the other was"
        );
        space.register(&areas).unwrap();
        // The kernel moves no piece of which halves differ.
        let moved = program.tell(&format!("move {start} 4000 40000"));
        assert_ne!(start, moved);
        program.tell_to_end();
    }
}
