//! The pages of a heap's memory: buckets and kinds, NUMA nodes, forks.
//!
//! Invariant: no thread uses the ranges at the time, and the contents of capacity memory in them
//! are gone afterwards.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use perdura_region::{BLOCK_BYTES, Region};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstatfs, ftruncate, open};
use rustix::io::Errno;

use super::lock::LockedFile;
use super::{Memory, MemoryError, Source};
use crate::engine::Kind;
use crate::sys::{Advice, Backed, HUGE_PAGE_BYTES, Mapping, check_node};

impl Memory {
    /// Gives a range that now serves `kind` its pages; if `contiguous`, one behind the other where
    /// the kernel can, which is the use of buckets (pMem, "Contiguity-Bucket-based Page
    /// Allocator"). The contents of capacity memory are gone.
    pub(crate) fn enter_bucket(
        &self,
        kind: Kind,
        offset: u64,
        len: u64,
        contiguous: bool,
        numa_node: Option<u32>,
    ) -> Result<(), Errno> {
        let (mapping, room, file) = match &self.source {
            Source::Mapped { mapping, room, file } => {
                (mapping, room, file.as_ref().map(LockedFile::file))
            }
            Source::Region(region) => {
                set_kind(region, kind, offset, len)?;
                return match (kind, numa_node) {
                    (Kind::Capacity, Some(node)) => bind(region, offset, len, node),
                    _ => Ok(()),
                };
            }
            // Pages come when they are touched, contiguous or not; they only have to be zeros.
            Source::Paged(_) => {
                return if self.take_pages(offset, len) { Ok(()) } else { Err(Errno::IO) };
            }
        };
        const HUGE: u64 = HUGE_PAGE_BYTES as u64;
        let whole = offset.is_multiple_of(HUGE) && len.is_multiple_of(HUGE);
        if contiguous && !whole && numa_node.is_none() && self.gather(offset, len).is_ok() {
            // Taking the pages of a part would tear its huge page, in which other objects may lie.
            // SAFETY: inside the mapping (`at` checks), and nobody uses the range.
            unsafe { std::ptr::write_bytes(self.at(offset, len), 0, len as usize) };
            return Ok(());
        }
        let is_zero = self.take_pages(offset, len);
        if let Some(node) = numa_node {
            // The kind is set before the bucket has pages. The bucket may have served the other
            // kind before.
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
            // No thread touches these pages yet; their room was given up when they were last given
            // back.
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

    /// Makes huge pages of a range's pages, whose contents stay. This is quick where they are huge
    /// already.
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

    /// Whether this memory can be bound to a node. A heap asks when it is opened, so that no later
    /// allocation fails.
    pub(crate) fn check_node(&self, node: u32) -> Result<(), MemoryError> {
        let refused = |source: Errno| MemoryError::Node { node, source: source.into() };
        check_node(node).map_err(refused)?;
        let obeys = match &self.source {
            Source::Paged(_) => return Err(MemoryError::NodeOfPaged { node }),
            Source::Mapped { file: Some(locked), .. } => {
                obeys_bindings(locked.file()).map_err(refused)?
            }
            Source::Mapped { room: Some(room), .. } => match room.descriptor() {
                Some(file) => obeys_bindings(file).map_err(refused)?,
                // The room could not be reserved, so this is unknown.
                None => false,
            },
            _ => true,
        };
        if obeys { Ok(()) } else { Err(MemoryError::NodeOfFile { node }) }
    }

    /// Whether this memory is all zeros because no process had it before.
    pub(crate) fn is_fresh(&self) -> bool {
        matches!(&self.source, Source::Mapped { room: Some(_), .. } | Source::Paged(_))
            || matches!(
                &self.source,
                Source::Mapped { mapping, .. } if mapping.backed() == Backed::Nothing
            )
    }

    /// Puts, in a forked child, a file of its own in the place of the file without a name that it
    /// shares with its parent. The file has the same bytes in `ranges`, and those of `bound` lie on
    /// a node. Private memory needs nothing.
    pub(crate) fn part_from_parent(
        &self,
        dir: &Path,
        ranges: impl Iterator<Item = Range<u64>>,
        bound: Option<(u32, impl Iterator<Item = Range<u64>>)>,
    ) -> Result<(), Errno> {
        let (mapping, room) = match &self.source {
            Source::Mapped { mapping, room: Some(room), .. } => (mapping, room),
            Source::Mapped { mapping, .. } if mapping.backed() == Backed::Nothing => return Ok(()),
            // A child cannot have a named file of its own, because the parent has the file's lock.
            _ => return Err(Errno::OPNOTSUPP),
        };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let own = open(dir, flags, Mode::RUSR | Mode::WUSR)?;
        ftruncate(&own, self.len_bytes)?;
        let own = File::from(own);
        if bound.is_some() {
            // The binding belongs to the file, and stays when this mapping goes.
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

    /// A private copy of `ranges` of memory that a forked child would share with its parent; `None`
    /// if the child would not share it.
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

    /// Puts, in a forked child, a private copy in the place of the shared memory.
    pub(crate) fn part_with(&self, copy: Mapping) -> Result<(), Errno> {
        let Source::Mapped { mapping, room: Some(room), .. } = &self.source else { return Ok(()) };
        mapping.replace_by_private(copy)?;
        room.let_go();
        Ok(())
    }

    /// Takes the pages of a range that holds nothing any more. The contents of capacity memory
    /// there are gone.
    pub(crate) fn leave_bucket(&self, offset: u64, len: u64) {
        match &self.source {
            Source::Mapped { room: Some(_), .. } => {
                // If the system refuses, the range keeps its pages, if any: a store could still
                // meet a full file system.
                let _ = self.take_pages(offset, len);
            }
            Source::Mapped { .. } | Source::Paged(_) => self.empty(offset, len),
            Source::Region(region) => {
                if let Err(errno) = set_kind(region, Kind::Persistent, offset, len) {
                    // The range stays capacity memory, which costs nothing, and is asked again when
                    // it is used.
                    tracing::warn!(offset, len, %errno, "a free bucket did not become persistent");
                }
            }
        }
    }

    /// Makes an unused range read as zeros, by giving its pages back where that is possible.
    pub(crate) fn empty(&self, offset: u64, len: u64) {
        if !self.take_pages(offset, len) {
            self.clear(offset, len);
        }
    }

    /// Gives the pages of an unused range back, so that it reads as zeros. Returns false if nothing
    /// was done, as in a region and in a file system that cannot punch holes.
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

    /// Zeros an unused range.
    fn clear(&self, offset: u64, len: u64) {
        // SAFETY: inside the memory (`at` checks), and nobody uses it.
        unsafe { std::ptr::write_bytes(self.at(offset, len), 0, len as usize) };
    }
}

/// Whether a file's file system obeys a binding: others take one and ignore it.
fn obeys_bindings(file: impl AsFd) -> Result<bool, Errno> {
    const TMPFS: u32 = 0x0102_1994;
    const HUGETLBFS: u32 = 0x9584_58f6;
    // Width and sign of the word depend on the architecture.
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
