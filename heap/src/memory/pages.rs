//! Where a range of memory gets its pages from, and who has them: buckets, kinds, nodes, forks.
//!
//! Invariant: these are ranges that nobody uses at the time; what capacity memory held in them is
//! gone afterwards.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use perdura_region::{BLOCK_BYTES, Region};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstatfs, ftruncate, open};
use rustix::io::Errno;

use super::{Memory, MemoryError, Source};
use crate::engine::Kind;
use crate::sys::{Advice, Backed, HUGE_PAGE_BYTES, Mapping, check_node};

impl Memory {
    /// Gives a range that now serves `kind` its pages, if `contiguous` one behind the other where
    /// the kernel can: that is what a bucket is for (pMem, "Contiguity-Bucket-based Page
    /// Allocator"). What capacity memory held is gone.
    pub(crate) fn enter_bucket(
        &self,
        kind: Kind,
        offset: u64,
        len: u64,
        contiguous: bool,
        numa_node: Option<u32>,
    ) -> Result<(), Errno> {
        let (mapping, room, file) = match &self.source {
            Source::Mapped { mapping, room, file } => (mapping, room, file),
            Source::Region(region) => {
                set_kind(region, kind, offset, len)?;
                return match (kind, numa_node) {
                    (Kind::Capacity, Some(node)) => bind(region, offset, len, node),
                    _ => Ok(()),
                };
            }
            // Its pages come when they are touched, contiguous or not; that they are zeros is all
            // there is to do.
            Source::Paged(_) => {
                return if self.take_pages(offset, len) { Ok(()) } else { Err(Errno::IO) };
            }
        };
        const HUGE: u64 = HUGE_PAGE_BYTES as u64;
        let whole = offset.is_multiple_of(HUGE) && len.is_multiple_of(HUGE);
        if contiguous && !whole && numa_node.is_none() && self.gather(offset, len).is_ok() {
            // Taking the pages of a piece would tear its huge page, in which others may live.
            // SAFETY: inside the mapping (`at` checks), and nobody uses it.
            unsafe { std::ptr::write_bytes(self.at(offset, len), 0, len as usize) };
            return Ok(());
        }
        let is_zero = self.take_pages(offset, len);
        if let Some(node) = numa_node {
            // Before it has pages. A bucket may have served the other kind before.
            match kind {
                Kind::Capacity => mapping.bind(offset, len as usize, node)?,
                Kind::Persistent => mapping.unbind(offset, len as usize)?,
            }
        }
        if let Some(room) = room {
            room.reserve(mapping, offset..offset + len)?;
        }
        if let (Some(file), Backed::File | Backed::Dax, false) =
            (file, mapping.backed(), contiguous)
        {
            // Nothing touches these pages yet; their room went when they were last given back.
            match fallocate(file, FallocateFlags::KEEP_SIZE, offset, len) {
                Ok(()) | Err(Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(errno),
            }
        }
        if !is_zero {
            self.clear(offset, len);
        }
        if contiguous && !(whole && self.gather(offset, len).is_ok()) {
            // SAFETY: this changes no byte. Where it is refused, pages come one by one as ever.
            let _ = unsafe { mapping.advise(offset, len as usize, Advice::Populate) };
        }
        Ok(())
    }

    /// Puts the huge pages in which a range lies in place, contents as they are; quick where they
    /// are.
    pub(crate) fn gather(&self, offset: u64, len: u64) -> Result<(), Errno> {
        const HUGE: u64 = HUGE_PAGE_BYTES as u64;
        let Source::Mapped { mapping, .. } = &self.source else { return Ok(()) };
        let (start, end) = (offset / HUGE * HUGE, (offset + len).next_multiple_of(HUGE));
        if end > self.len_bytes {
            return Err(Errno::INVAL);
        }
        // SAFETY: this changes no byte.
        unsafe { mapping.advise(start, (end - start) as usize, Advice::Collapse) }
    }

    /// Whether this memory can be bound to a node: said when a heap is opened, not at some later
    /// allocation.
    pub(crate) fn check_node(&self, node: u32) -> Result<(), MemoryError> {
        let refused = |source: Errno| MemoryError::Node { node, source: source.into() };
        check_node(node).map_err(refused)?;
        let obeys = match &self.source {
            Source::Paged(_) => return Err(MemoryError::NodeOfPaged { node }),
            Source::Mapped { file: Some(file), .. } => obeys_bindings(file).map_err(refused)?,
            Source::Mapped { room: Some(room), .. } => match room.descriptor() {
                Some(file) => obeys_bindings(file).map_err(refused)?,
                // There was none left for it, so nobody can say.
                None => false,
            },
            _ => true,
        };
        if obeys { Ok(()) } else { Err(MemoryError::NodeOfFile { node }) }
    }

    /// Whether this memory is all zeros because nobody had it before.
    pub(crate) fn is_fresh(&self) -> bool {
        matches!(&self.source, Source::Mapped { room: Some(_), .. } | Source::Paged(_))
            || matches!(&self.source, Source::Mapped { mapping, .. } if mapping.backed() == Backed::Nothing)
    }

    /// In a forked child: puts a file of its own in the place of the one without a name that it
    /// shares with its parent, with the same bytes in `ranges`, those of `bound` on a node. Nothing
    /// is to do where memory is private.
    pub(crate) fn part_from_parent(
        &self,
        dir: &Path,
        ranges: impl Iterator<Item = Range<u64>>,
        bound: Option<(u32, impl Iterator<Item = Range<u64>>)>,
    ) -> Result<(), Errno> {
        let (mapping, room) = match &self.source {
            Source::Mapped { mapping, room: Some(room), .. } => (mapping, room),
            Source::Mapped { mapping, .. } if mapping.backed() == Backed::Nothing => return Ok(()),
            // Whoever opens a named file has its lock, too.
            _ => return Err(Errno::OPNOTSUPP),
        };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let own = open(dir, flags, Mode::RUSR | Mode::WUSR)?;
        ftruncate(&own, self.len_bytes)?;
        let own = File::from(own);
        if bound.is_some() {
            // The binding is the file's, and stays when this view of it goes.
            bind_ranges(&Mapping::file(&own, self.len_bytes)?, bound)?;
        }
        let own = OwnedFd::from(own);
        for range in ranges {
            mapping.copy_to(&own, range)?;
        }
        mapping.replace(&own)?;
        room.replace(own);
        Ok(())
    }

    /// A private copy of `ranges` of memory that a forked child would share with its parent;
    /// `None`: it would not.
    pub(crate) fn private_copy(
        &self,
        ranges: impl Iterator<Item = Range<u64>>,
        bound: Option<(u32, impl Iterator<Item = Range<u64>>)>,
    ) -> Result<Option<Mapping>, Errno> {
        let Source::Mapped { mapping, room: Some(_), .. } = &self.source else { return Ok(None) };
        if mapping.backed() == Backed::Nothing {
            return Ok(None);
        }
        let copy = Mapping::anonymous(self.len_bytes)?;
        bind_ranges(&copy, bound)?;
        ranges.for_each(|range| mapping.copy_to_private(&copy, range));
        Ok(Some(copy))
    }

    /// In a forked child: puts such a copy in the place of the shared memory.
    pub(crate) fn part_with(&self, copy: Mapping) -> Result<(), Errno> {
        let Source::Mapped { mapping, room: Some(room), .. } = &self.source else { return Ok(()) };
        mapping.replace_by_private(copy)?;
        room.let_go();
        Ok(())
    }

    /// Takes the pages of a range that serves nobody any more. What capacity memory held there is
    /// gone.
    pub(crate) fn leave_bucket(&self, offset: u64, len: u64) {
        match &self.source {
            Source::Mapped { room: Some(_), .. } => {
                // Refused, it keeps its pages, if it has any: a store could still meet a full file
                // system.
                let _ = self.take_pages(offset, len);
            }
            Source::Mapped { .. } | Source::Paged(_) => self.empty(offset, len),
            Source::Region(region) => {
                if let Err(errno) = set_kind(region, Kind::Persistent, offset, len) {
                    // It stays capacity memory, which costs nothing, and is asked again when it is
                    // used.
                    tracing::warn!(offset, len, %errno, "a free bucket did not become persistent");
                }
            }
        }
    }

    /// Makes a range that nobody uses read as zeros, by giving its pages back where that is
    /// possible.
    pub(crate) fn empty(&self, offset: u64, len: u64) {
        if !self.take_pages(offset, len) {
            self.clear(offset, len);
        }
    }

    /// Gives the pages of a range that nobody uses back: it reads as zeros. False: it is as it was,
    /// in a file system that cannot punch holes or in a region.
    fn take_pages(&self, offset: u64, len: u64) -> bool {
        if let Some(tap) = &self.tap {
            tap.empty(offset, len);
        }
        let mapping = match &self.source {
            Source::Mapped { mapping, .. } => mapping,
            Source::Region(_) => return false,
            Source::Paged(paged) => {
                let emptied = paged.discard(offset, len);
                if let Err(error) = &emptied {
                    tracing::error!(offset, len, %error, "paged memory was not emptied");
                }
                return emptied.is_ok();
            }
        };
        // SAFETY: nobody relies on bytes that serve nobody.
        unsafe { mapping.advise(offset, len as usize, Advice::Empty) }.is_ok()
    }

    /// Zeros a range that nobody uses.
    fn clear(&self, offset: u64, len: u64) {
        // SAFETY: inside the memory (`at` checks), and nobody uses it.
        unsafe { std::ptr::write_bytes(self.at(offset, len), 0, len as usize) };
    }
}

/// Other file systems take a binding and do not look at it.
fn obeys_bindings(file: impl AsFd) -> Result<bool, Errno> {
    const TMPFS: u32 = 0x0102_1994;
    const HUGETLBFS: u32 = 0x9584_58f6;
    // The word's width and sign are the architecture's.
    Ok([TMPFS, HUGETLBFS].contains(&(fstatfs(file)?.f_type as u32)))
}

/// Binds ranges before they have pages.
fn bind_ranges(
    mapping: &Mapping,
    bound: Option<(u32, impl Iterator<Item = Range<u64>>)>,
) -> Result<(), Errno> {
    let Some((node, mut ranges)) = bound else { return Ok(()) };
    ranges.try_for_each(|range| mapping.bind(range.start, (range.end - range.start) as usize, node))
}

fn bind(region: &Region, offset: u64, len: u64, node: u32) -> Result<(), Errno> {
    let blocks = offset / BLOCK_BYTES..(offset + len) / BLOCK_BYTES;
    region.bind_capacity(blocks, node).map_err(|error| {
        tracing::error!(%error, "the region did not bind capacity memory");
        Errno::IO
    })
}

/// A heap's spans are a region's blocks.
fn set_kind(region: &Region, kind: Kind, offset: u64, len: u64) -> Result<(), Errno> {
    let kind = match kind {
        Kind::Persistent => perdura_region::Kind::Persistent,
        Kind::Capacity => perdura_region::Kind::Capacity,
    };
    region.set_kind(offset / BLOCK_BYTES..(offset + len) / BLOCK_BYTES, kind).map_err(|error| {
        tracing::error!(%error, "the region did not change the kind of memory");
        Errno::IO
    })
}
