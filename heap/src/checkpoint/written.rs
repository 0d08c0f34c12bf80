//! Finding the pages of a range that were written since the last call, in a range that the kernel
//! watches.

use perdura_dirty::written::{PageMap, Watch};
use rustix::io::Errno;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Most runs of pages that one call of the kernel returns.
const RUNS: usize = 128;

/// A watched range of whole pages.
#[derive(Debug)]
pub struct Written {
    /// The protection, which ends when this is dropped.
    _watch: Watch,
    pages: PageMap,
    start: u64,
    end: u64,
}

impl Written {
    /// Watches a mapped range, all of which counts as written at first.
    pub fn watch(start: *mut u8, len: u64) -> Result<Self, Errno> {
        let pages = PageMap::open_own(RUNS);
        let pages = pages.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let watch = Watch::own()?;
        let (start, end) = (start as u64, start as u64 + len);
        watch.register(start, end)?;
        Ok(Self { _watch: watch, pages, start, end })
    }

    /// Hands the numbers of up to `max_pages` pages that were written since they were last handed
    /// out, from page `from` on, to `each`. They are protected again before. Returns the page to go
    /// on from; `None` at the end of the range.
    pub fn take(
        &mut self,
        from: u64,
        max_pages: u64,
        mut each: impl FnMut(std::ops::Range<u64>),
    ) -> Result<Option<u64>, Errno> {
        let (start, end) = (self.start, self.end);
        let from = start + from * PAGE_BYTES;
        let (runs, outcome) = self.pages.take_written_or_new(from, end, max_pages);
        // Pages that come before an error were protected again as well.
        for run in runs {
            let page = |address: u64| (address - start) / PAGE_BYTES;
            each(page(run.start)..page(run.end));
        }
        outcome.map(|stopped| (stopped < end).then_some((stopped - start) / PAGE_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Mapping;

    #[test]
    fn written_pages_are_handed_out_once() {
        let mapping = Mapping::anonymous(64 * PAGE_BYTES).unwrap();
        // Kernels before 6.7 do not have it; who uses it has another way then.
        let Ok(mut watched) = Written::watch(mapping.base(), 64 * PAGE_BYTES) else { return };
        let mut all = || {
            let (mut pages, mut from) = (Vec::new(), Some(0));
            while let Some(at) = from {
                from = watched.take(at, 10, |range| pages.extend(range)).unwrap();
            }
            pages
        };
        assert_eq!(all(), (0..64).collect::<Vec<_>>(), "all at first");
        assert!(all().is_empty());
        for page in [3, 4, 40, 63] {
            // SAFETY: inside the mapping, which nobody else uses.
            unsafe { mapping.base().add(page * 4096 + 17).write_volatile(1) };
        }
        assert_eq!(all(), [3, 4, 40, 63]);
        assert!(all().is_empty());
    }
}
