//! One area: its memory, its store of pages, and the state of each page.
//!
//! The store has two page tables, of 8 B (slot and sum) for each page, and then twice as many slots
//! as the area has pages.

use xxhash_rust::xxh3::xxh3_64;

use super::written::{PAGE_BYTES, Written};
use super::{CheckpointError, PageTracking};
use crate::compartments::Compartment;
use crate::error::HeapError;
use crate::heap::Heap;

const PAGE: usize = PAGE_BYTES as usize;
/// Entry in `next` of a page that is as in the last checkpoint.
const SAME: u64 = u64::MAX;
/// Entry of a page that is all zeros, and has no slot.
const ZEROS: u64 = 0;

/// Bytes of the store of an area.
pub(super) fn store_bytes(len_bytes: u64) -> u64 {
    let pages = len_bytes / PAGE_BYTES;
    table_bytes(pages) * 2 + pages * 2 * PAGE_BYTES
}

fn table_bytes(pages: u64) -> u64 {
    (pages * 8).next_multiple_of(PAGE_BYTES)
}

/// The entry of a page that has a slot.
fn entry_of(slot: u32, sum: u32) -> u64 {
    (u64::from(slot) + 1) | (u64::from(sum) << 32)
}

/// The slot that an entry names; `None` for a page of zeros.
fn slot_of(entry: u64) -> Option<u32> {
    (entry as u32).checked_sub(1)
}

fn sum_of(page: &[u8]) -> u32 {
    xxh3_64(page) as u32
}

/// An area that is registered.
pub(super) struct AreaState {
    pub name: String,
    memory: Compartment,
    store: u64,
    pages: u64,
    /// The entry of each page in the last checkpoint.
    now: Vec<u64>,
    /// The entry of each page in the next checkpoint, or [`SAME`].
    next: Vec<u64>,
    changed: Vec<u32>,
    /// Pages in which the table that does not count differs from `now`; `None` if it may differ
    /// anywhere.
    behind: Option<Vec<u32>>,
    free: Vec<u32>,
    watched: Option<Written>,
    /// The page at which the round of copying goes on.
    at: u64,
}

impl AreaState {
    pub fn open(
        heap: &Heap,
        name: &str,
        memory: Compartment,
        store: Compartment,
        number: u64,
        is_known: bool,
    ) -> Result<Self, CheckpointError> {
        let pages = memory.len_bytes / PAGE_BYTES;
        let base = heap.pointer(memory.offset);
        let mut area = Self {
            name: name.to_owned(),
            memory,
            store: store.offset.get(),
            pages,
            now: vec![ZEROS; pages as usize],
            next: vec![SAME; pages as usize],
            changed: Vec::new(),
            behind: None,
            free: Vec::new(),
            watched: Written::watch(base, memory.len_bytes).ok(),
            at: 0,
        };
        let mut is_free = vec![true; pages as usize * 2];
        if is_known {
            for page in 0..pages {
                let entry = heap.core.memory.load(area.table_at(number) + page * 8);
                let slot = slot_of(entry).map(|slot| is_free.get_mut(slot as usize));
                match slot {
                    // A sum without a slot is not the entry of a page of zeros.
                    None if entry == ZEROS => {}
                    Some(Some(is_free)) if *is_free => *is_free = false,
                    _ => {
                        let (what, offset) = ("page table", area.table_at(number) + page * 8);
                        return Err(HeapError::Corrupt { what, offset, value: entry }.into());
                    }
                }
                area.now[page as usize] = entry;
            }
        }
        let slots = (0..pages as u32 * 2).rev();
        area.free = slots.filter(|slot| is_free[*slot as usize]).collect();
        Ok(area)
    }

    pub fn tracking(&self) -> PageTracking {
        match self.watched {
            Some(_) => PageTracking::Protected,
            None => PageTracking::Compared,
        }
    }

    pub fn compare_pages(&mut self) {
        self.watched = None;
    }

    /// Offset of the table of a checkpoint.
    fn table_at(&self, number: u64) -> u64 {
        self.store + number % 2 * table_bytes(self.pages)
    }

    fn slot_at(&self, slot: u32) -> u64 {
        self.store + table_bytes(self.pages) * 2 + u64::from(slot) * PAGE_BYTES
    }

    /// Begins a new round, which looks for changed pages from the first page on.
    pub fn begin_round(&mut self) {
        self.at = 0;
    }

    /// Copies changed pages, and looks at `most` pages at most. Returns how many were copied, and
    /// whether the round is over.
    pub fn copy(&mut self, heap: &Heap, most: u64) -> Result<(u64, bool), CheckpointError> {
        let Some(watched) = &mut self.watched else { return Ok(self.compare(heap, most)) };
        let mut found = Vec::new();
        let most = if most == u64::MAX { 0 } else { most };
        let next = watched
            .take(self.at, most, |range| found.push(range))
            .map_err(|errno| CheckpointError::Tracking { source: errno.into() })?;
        let mut copied = 0;
        for page in found.into_iter().flatten() {
            self.copy_page(heap, page, &read_page(heap, self.memory, page));
            copied += 1;
        }
        self.at = next.unwrap_or(self.pages);
        Ok((copied, next.is_none()))
    }

    fn compare(&mut self, heap: &Heap, most: u64) -> (u64, bool) {
        let mut copied = 0;
        let end = self.pages.min(self.at.saturating_add(most));
        for page in self.at..end {
            let bytes = read_page(heap, self.memory, page);
            let entry = match self.next[page as usize] {
                SAME => self.now[page as usize],
                next => next,
            };
            let is_same = match slot_of(entry) {
                None => is_zeros(&bytes),
                Some(slot) => {
                    let mut copy = [0; PAGE];
                    heap.core.memory.read(self.slot_at(slot), &mut copy);
                    copy == bytes
                }
            };
            if !is_same {
                self.copy_page(heap, page, &bytes);
                copied += 1;
            }
        }
        self.at = end;
        (copied, end == self.pages)
    }

    fn copy_page(&mut self, heap: &Heap, page: u64, bytes: &[u8; PAGE]) {
        let next = self.next[page as usize];
        if next == SAME {
            self.changed.push(page as u32);
        }
        let own = if next == SAME { None } else { slot_of(next) };
        if is_zeros(bytes) {
            self.free.extend(own);
            self.next[page as usize] = ZEROS;
            return;
        }
        let slot = match own.or_else(|| self.free.pop()) {
            Some(slot) => slot,
            None => unreachable!("two slots a page are enough for two checkpoints"),
        };
        let at = self.slot_at(slot);
        heap.core.memory.fill(at, bytes);
        self.next[page as usize] = entry_of(slot, sum_of(bytes));
    }

    /// Writes the table of checkpoint `number`, which does not count yet. The caller makes the
    /// table durable with a fence.
    pub fn write_table(&mut self, heap: &Heap, number: u64) {
        let table = self.table_at(number);
        let write = |page: u64| {
            let next = self.next[page as usize];
            let entry = if next == SAME { self.now[page as usize] } else { next };
            heap.core.memory.store_word(table + page * 8, entry);
        };
        match &self.behind {
            None => {
                (0..self.pages).for_each(write);
                heap.core.memory.flush(table, self.pages * 8);
            }
            Some(behind) => {
                let mut pages: Vec<u32> = behind.iter().chain(&self.changed).copied().collect();
                pages.sort_unstable();
                pages.dedup();
                let mut flushed = u64::MAX;
                for page in pages {
                    write(u64::from(page));
                    let line = (table + u64::from(page) * 8) / crate::sys::LINE_BYTES;
                    // Pages ascend, so a line is written back when the next one begins.
                    if flushed != u64::MAX && flushed != line {
                        heap.core.memory.flush(flushed * crate::sys::LINE_BYTES, 8);
                    }
                    flushed = line;
                }
                if flushed != u64::MAX {
                    heap.core.memory.flush(flushed * crate::sys::LINE_BYTES, 8);
                }
            }
        }
    }

    /// Notes that the checkpoint counts, and frees the slots that only the checkpoint before has.
    pub fn settle(&mut self) {
        for page in &self.changed {
            let page = *page as usize;
            self.free.extend(slot_of(self.now[page]));
            self.now[page] = self.next[page];
            self.next[page] = SAME;
        }
        self.behind = Some(std::mem::take(&mut self.changed));
    }

    /// Fills the area from the last checkpoint.
    pub fn restore(&mut self, heap: &Heap) -> Result<(), CheckpointError> {
        let memory = &heap.core.memory;
        for page in 0..self.pages {
            let entry = self.now[page as usize];
            let mut bytes = [0; PAGE];
            if let Some(slot) = slot_of(entry) {
                memory.read(self.slot_at(slot), &mut bytes);
                let (found, expected) = (sum_of(&bytes), (entry >> 32) as u32);
                if found != expected {
                    let name = self.name.clone();
                    return Err(CheckpointError::Damaged { name, page, found, expected });
                }
            } else if is_zeros(&read_page(heap, self.memory, page)) {
                continue;
            }
            let at = heap.pointer(self.memory.offset).wrapping_add((page * PAGE_BYTES) as usize);
            // SAFETY: inside the area; that nobody else uses it now is what `restore` asks of its
            // caller.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, PAGE) };
        }
        // The pages that were just filled do not count as changed.
        if let Some(watched) = &mut self.watched {
            let mut from = Some(0);
            while let Some(at) = from {
                from = watched
                    .take(at, 0, |_| {})
                    .map_err(|errno| CheckpointError::Tracking { source: errno.into() })?;
            }
        }
        for page in std::mem::take(&mut self.changed) {
            let next = std::mem::replace(&mut self.next[page as usize], SAME);
            self.free.extend(slot_of(next));
        }
        Ok(())
    }
}

fn read_page(heap: &Heap, memory: Compartment, page: u64) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    heap.core.memory.read(memory.offset.get() + page * PAGE_BYTES, &mut bytes);
    bytes
}

fn is_zeros(bytes: &[u8; PAGE]) -> bool {
    bytes.as_chunks::<16>().0.iter().all(|chunk| u128::from_ne_bytes(*chunk) == 0)
}
