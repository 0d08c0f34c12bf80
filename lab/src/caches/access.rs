//! Records loads, stores and flushes at addresses of this process and leads them, through the
//! frames of their pages, into the modelled cache.
//!
//! A page's frame is looked up when the page is first met, and kept; at the end
//! [`Recorder::pages_moved`] says how many pages the kernel has moved meanwhile. Where the kernel
//! does not show frames they are *assumed*: handed out in the order of the first touch, a page at a
//! time, or a bucket at a time where pages come in buckets.

use std::collections::HashMap;

use super::frames::{FrameError, FrameReader, FrameSource};
use super::model::{Cache, CacheShape, CountsByOwner, FlushKind, Owner, ShapeError};
use super::sys::{PAGE_BYTES, populate};

const PAGE: u64 = PAGE_BYTES as u64;
const RECENT: usize = 4096;

/// Feeds the modelled cache.
pub struct Recorder {
    cache: Cache,
    line_bytes: u64,
    reader: FrameReader,
    assumed: Assumed,
    /// For each page met: its frame, and the owner whose access met it first.
    frames: HashMap<u64, (u64, Owner)>,
    /// Page and frame met last, by the page's low bits: spares nearly all look-ups.
    recent: Vec<(u64, u64)>,
    error: Option<FrameError>,
}

/// Frames as a kernel with all memory free would hand them out.
struct Assumed {
    /// Pages that are handed out together.
    together: u64,
    /// First frame of each group of pages.
    groups: HashMap<u64, u64>,
    next: u64,
}

impl Assumed {
    fn frame(&mut self, page: u64) -> u64 {
        let (together, next) = (self.together, &mut self.next);
        let first = *self.groups.entry(page / together).or_insert_with(|| {
            let first = *next;
            *next += together;
            first
        });
        first + page % together
    }
}

impl Recorder {
    /// A recorder with an empty cache. `bucket_bytes` is the group size where frames are assumed.
    ///
    /// # Errors
    /// The cache's shape is impossible.
    pub fn new(
        shape: CacheShape,
        flush: FlushKind,
        reader: FrameReader,
        bucket_bytes: Option<u64>,
    ) -> Result<Self, ShapeError> {
        let together = bucket_bytes.map_or(1, |bytes| (bytes / PAGE).max(1));
        Ok(Self {
            cache: Cache::new(shape, flush)?,
            line_bytes: shape.line_bytes,
            reader,
            assumed: Assumed { together, groups: HashMap::new(), next: 1 },
            frames: HashMap::new(),
            recent: vec![(u64::MAX, 0); RECENT],
            error: None,
        })
    }

    /// Records that bytes were, or are about to be, loaded.
    pub fn load(&mut self, address: u64, len_bytes: u64, owner: Owner) {
        self.each_line(address, len_bytes, owner, |cache, line| {
            cache.access(line, owner, false);
        });
    }

    /// Records that bytes were, or are about to be, stored.
    pub fn store(&mut self, address: u64, len_bytes: u64, owner: Owner) {
        self.each_line(address, len_bytes, owner, |cache, line| {
            cache.access(line, owner, true);
        });
    }

    /// Records a flush of a 64-byte line: all modelled lines that overlap it are flushed.
    pub fn flush(&mut self, address: u64, owner: Owner) {
        self.each_line(address, 64, owner, |cache, line| cache.flush(line, owner));
    }

    /// Counts since the last [`Recorder::forget_counts`].
    pub fn counts(&self) -> CountsByOwner {
        self.cache.counts()
    }

    /// Sets the counts to zero; the cache keeps its lines.
    pub fn forget_counts(&mut self) {
        self.cache.forget_counts();
    }

    /// Where the frame numbers come from.
    pub fn source(&self) -> FrameSource {
        self.reader.source()
    }

    /// Pages met between two addresses, in order, each with the owner whose access met it first.
    pub fn pages_between(&self, from: u64, to: u64) -> Vec<(u64, Owner)> {
        let met = self.met_between(from, to);
        met.into_iter().map(|(page, _, owner)| (page, owner)).collect()
    }

    fn met_between(&self, from: u64, to: u64) -> Vec<(u64, u64, Owner)> {
        let inside = |page: u64| (from..to).contains(&(page * PAGE));
        let all = self.frames.iter().map(|(page, (frame, owner))| (*page, *frame, *owner));
        let mut found: Vec<_> = all.filter(|(page, ..)| inside(*page)).collect();
        found.sort_unstable_by_key(|(page, ..)| *page);
        found
    }

    /// Number of pages met whose frame has changed since; 0 where frames are assumed.
    ///
    /// # Errors
    /// Frames cannot be read, now or when a page was met.
    pub fn pages_moved(&mut self) -> Result<u64, FrameError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.reader.source() == FrameSource::Hidden {
            return Ok(0);
        }
        let mut moved = 0;
        for (page, (frame, _)) in &self.frames {
            // A page that was given back meanwhile has not moved.
            let now = self.reader.frame(page * PAGE)?;
            moved += u64::from(now.is_some_and(|now| now != *frame));
        }
        Ok(moved)
    }

    fn each_line(
        &mut self,
        address: u64,
        len_bytes: u64,
        owner: Owner,
        mut visit: impl FnMut(&mut Cache, u64),
    ) {
        if len_bytes == 0 {
            return;
        }
        let (first, last) =
            (address / self.line_bytes, (address + len_bytes - 1) / self.line_bytes);
        let lines_per_page = PAGE / self.line_bytes;
        for line in first..=last {
            let frame = self.frame(line / lines_per_page, owner);
            visit(&mut self.cache, frame * lines_per_page + line % lines_per_page);
        }
    }

    fn frame(&mut self, page: u64, owner: Owner) -> u64 {
        let slot = page as usize % RECENT;
        let (known, frame) = self.recent[slot];
        if known == page {
            return frame;
        }
        let frame = match self.frames.get(&page) {
            Some((frame, _)) => *frame,
            None => {
                let frame = self.find(page);
                self.frames.insert(page, (frame, owner));
                frame
            }
        };
        self.recent[slot] = (page, frame);
        frame
    }

    fn find(&mut self, page: u64) -> u64 {
        let looked_up = self.reader.frame(page * PAGE).and_then(|found| match found {
            // The access is about to be made; making its page present a moment earlier changes
            // nothing.
            None if self.reader.source() != FrameSource::Hidden => {
                populate(page * PAGE, PAGE_BYTES).map_err(|errno| FrameError {
                    address: page * PAGE,
                    pages: 1,
                    source: errno.into(),
                })?;
                self.reader.frame(page * PAGE)
            }
            found => Ok(found),
        });
        match looked_up {
            Ok(Some(frame)) => frame,
            Ok(None) => self.assumed.frame(page),
            Err(error) => {
                self.error.get_or_insert(error);
                self.assumed.frame(page)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sys::{Backing, Pages};
    use super::*;

    fn recorder(bucket_bytes: Option<u64>) -> Recorder {
        let reader = FrameReader::hidden();
        Recorder::new(CacheShape::default(), FlushKind::Drops, reader, bucket_bytes).unwrap()
    }

    fn frames(recorder: &Recorder) -> Vec<(u64, u64)> {
        let met = recorder.met_between(0, 100 * PAGE);
        met.into_iter().map(|(page, frame, _)| (page, frame)).collect()
    }

    #[test]
    fn a_range_is_as_many_accesses_as_it_has_lines() {
        let mut recorder = recorder(None);
        recorder.load(0x10_0030, 0x20, Owner::CapacityData);
        recorder.store(0x10_0000, 64, Owner::PersistentData);
        recorder.store(0x10_0000, 0, Owner::PersistentData);
        let counts = recorder.counts();
        assert_eq!((counts.capacity_data.accesses, counts.capacity_data.misses), (2, 2));
        assert_eq!((counts.persistent_data.accesses, counts.persistent_data.misses), (1, 0));
    }

    #[test]
    fn assumed_frames_follow_the_first_touch_or_the_bucket() {
        let mut demand = recorder(None);
        [9, 3, 4].into_iter().for_each(|page| demand.load(page * PAGE, 8, Owner::Log));
        assert_eq!(frames(&demand), [(3, 2), (4, 3), (9, 1)]);
        let mut buckets = recorder(Some(4 * PAGE));
        [9, 3, 4, 8].into_iter().for_each(|page| buckets.load(page * PAGE, 8, Owner::Log));
        assert_eq!(frames(&buckets), [(3, 8), (4, 9), (8, 1), (9, 2)]);
    }

    #[test]
    fn real_frames_are_those_of_the_page_map() {
        let pages = Pages::map(Backing::MemoryFile, 3 * PAGE_BYTES).unwrap();
        let mut recorder =
            Recorder::new(CacheShape::default(), FlushKind::Drops, FrameReader::open(), None)
                .unwrap();
        // The page was not touched before: the recorder comes first.
        recorder.store(pages.address() + PAGE, 8, Owner::PersistentData);
        let found = recorder.met_between(pages.address(), pages.address() + 3 * PAGE);
        assert_eq!(found.len(), 1);
        let real = FrameReader::open().frame(pages.address() + PAGE).unwrap();
        assert_eq!(real.is_some(), recorder.source() != FrameSource::Hidden);
        if let Some(real) = real {
            assert_eq!(found[0].1, real);
        }
        assert_eq!(recorder.pages_moved().unwrap(), 0);
    }
}
