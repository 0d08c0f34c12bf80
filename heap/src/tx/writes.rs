//! The changes that a transaction has made so far, in DRAM.

use std::collections::HashMap;

use crate::engine::Found;

/// The log that a change goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogAs {
    /// The word log, with 16 B for up to 8 B, which is good for small scattered stores.
    Words,
    /// The object log, with 24 B and the bytes, which is good for large contiguous stores.
    Object,
}

/// A state of a transaction to which an inner one returns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Savepoint {
    pub writes: usize,
    pub bytes: usize,
    pub fresh: usize,
    pub direct: usize,
    pub freed: usize,
}

/// Changes that are searched one by one; of more changes, those of a page are found by its number.
const SEARCHED_MAX: usize = 24;
const PAGE_SHIFT: u32 = 12;

/// The changes, the oldest first. With redo `bytes` holds new values, with undo old ones.
#[derive(Default)]
pub(crate) struct Writes {
    pub list: Vec<Write>,
    pub bytes: Vec<u8>,
    /// Objects that were taken, each with the level of nesting at which it was taken.
    pub fresh: Vec<(u64, u32)>,
    /// Ranges of fresh objects, by offset and length, that were filled and not written back yet.
    pub direct: Vec<(u64, u64)>,
    pub freed: Vec<(u64, Found)>,
    by_page: HashMap<u64, Vec<u32>>,
}

/// One change. Offsets in `bytes` have 32 bits, because a log has less than 4 GiB
/// ([`crate::config::LOG_BYTES_MOST`]).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    pub offset: u64,
    pub len: u32,
    pub at: u32,
    pub log: LogAs,
}

impl Write {
    fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }

    fn pages(&self) -> std::ops::RangeInclusive<u64> {
        self.offset >> PAGE_SHIFT..=(self.end() - 1) >> PAGE_SHIFT
    }
}

impl Writes {
    /// Notes a change.
    #[inline]
    pub fn push(&mut self, offset: u64, bytes: &[u8], log: LogAs) {
        let write = Write { offset, len: bytes.len() as u32, at: self.bytes.len() as u32, log };
        self.bytes.extend_from_slice(bytes);
        self.list.push(write);
        match self.list.len() {
            len if len == SEARCHED_MAX + 1 => (0..len).for_each(|index| self.enter(index)),
            len if len > SEARCHED_MAX => self.enter(len - 1),
            _ => {}
        }
    }

    /// The bytes of a change.
    pub fn bytes_of(&self, write: &Write) -> &[u8] {
        &self.bytes[write.at as usize..][..write.len as usize]
    }

    /// Lays all changes of a range over `out`.
    pub fn overlay(&self, offset: u64, out: &mut [u8]) {
        if out.is_empty() {
            return;
        }
        if self.list.len() <= SEARCHED_MAX {
            self.list.iter().for_each(|write| self.lay(write, offset, out));
            return;
        }
        let last = (offset + out.len() as u64 - 1) >> PAGE_SHIFT;
        let mut touching: Vec<u32> = (offset >> PAGE_SHIFT..=last)
            .filter_map(|page| self.by_page.get(&page))
            .flatten()
            .copied()
            .collect();
        touching.sort_unstable();
        touching.dedup();
        for index in touching {
            self.lay(&self.list[index as usize], offset, out);
        }
    }

    fn lay(&self, write: &Write, offset: u64, out: &mut [u8]) {
        let from = write.offset.max(offset);
        let to = write.end().min(offset + out.len() as u64);
        if from < to {
            let bytes = &self.bytes_of(write)[(from - write.offset) as usize..];
            out[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[..(to - from) as usize]);
        }
    }

    /// The bytes of a change of exactly this range, to be replaced.
    pub fn find_mut(&mut self, offset: u64, len: usize) -> Option<&mut [u8]> {
        let found = self.list.iter().rev().find(|w| w.offset == offset && w.len as usize == len)?;
        Some(&mut self.bytes[found.at as usize..][..len])
    }

    /// Whether the object at `start` was taken at this level of nesting.
    pub fn is_fresh(&self, start: u64, level: u32) -> bool {
        self.fresh.iter().rev().any(|fresh| *fresh == (start, level))
    }

    /// Notes that a fresh object was changed through the log, from an inner level: later changes
    /// must follow that one in the log.
    pub fn log_from_now_on(&mut self, start: u64) {
        for fresh in self.fresh.iter_mut().filter(|fresh| fresh.0 == start) {
            fresh.1 = u32::MAX;
        }
    }

    /// Notes that a fresh object was filled.
    pub fn note_direct(&mut self, offset: u64, len: u64) {
        self.direct.push((offset, len));
    }

    /// Moves the objects that were taken since a savepoint to an outer level.
    pub fn lift(&mut self, since: Savepoint, level: u32) {
        let inner = self.fresh[since.fresh..].iter_mut().filter(|fresh| fresh.1 != u32::MAX);
        inner.for_each(|fresh| fresh.1 = level);
    }

    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            writes: self.list.len(),
            bytes: self.bytes.len(),
            fresh: self.fresh.len(),
            direct: self.direct.len(),
            freed: self.freed.len(),
        }
    }

    /// Forgets the changes since a savepoint. Objects that were taken and freed are left to the
    /// caller.
    pub fn truncate(&mut self, to: Savepoint) {
        while self.list.len() > to.writes {
            let index = self.list.len() as u32 - 1;
            if let Some(write) = self.list.pop()
                && !self.by_page.is_empty()
            {
                for page in write.pages() {
                    if let Some(list) = self.by_page.get_mut(&page) {
                        list.retain(|entry| *entry != index);
                    }
                }
            }
        }
        if self.list.len() <= SEARCHED_MAX {
            self.by_page.clear();
        }
        self.bytes.truncate(to.bytes);
        self.direct.truncate(to.direct);
    }

    pub fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
        self.fresh.clear();
        self.direct.clear();
        self.freed.clear();
        self.by_page.clear();
    }

    fn enter(&mut self, index: usize) {
        for page in self.list[index].pages() {
            self.by_page.entry(page).or_default().push(index as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus as Random;

    #[test]
    fn what_was_written_last_is_read() {
        for seed in 0..50 {
            let mut random = Random::seed_from_u64(seed);
            let mut writes = Writes::default();
            let mut model = vec![0_u8; 20_000];
            let mut saved = None;
            for step in 0..120 {
                match random.random_range(0..10) {
                    0 if saved.is_none() => saved = Some((writes.savepoint(), model.clone())),
                    1 => {
                        if let Some((savepoint, old)) = saved.take() {
                            writes.truncate(savepoint);
                            model = old;
                        }
                    }
                    _ => {
                        let len = random.random_range(1..if step % 7 == 0 { 6000 } else { 40 });
                        let at = random.random_range(0..model.len() - len);
                        let bytes: Vec<u8> = (0..len).map(|_| random.random()).collect();
                        writes.push(at as u64, &bytes, LogAs::Words);
                        model[at..at + len].copy_from_slice(&bytes);
                    }
                }
                let len = random.random_range(0..300);
                let at = random.random_range(0..model.len() - len);
                let mut out = vec![0; len];
                writes.overlay(at as u64, &mut out);
                assert_eq!(out, model[at..at + len], "seed {seed} step {step}");
            }
        }
    }
}
