//! The undo log: the words and bytes that an operation has changed, as they were before.
//!
//! Each lane has a log, which serves the operations that lead with this lane. Its head lies at the
//! front of the lane block; a full log goes on in larger and larger chunks from the allocator:
//! ```text
//! 0  used bytes of entries    8  next chunk, or 0    16…  entries
//! entry: word   address | old value                          (16 B)
//!        bytes  address + 2^63 | length | old bytes, padded to 8
//! ```
//! An entry counts once `used` covers it, which is before the store that it undoes. `used = 0` in
//! the head voids the whole log: that one store is the commit. Chunks behind the head count only
//! while the head's `used` is not 0.

use perdura_region::{LaneGuard, LaneId, Need, Region, RegionError};

use crate::error::Stop;
use crate::fuse::Fuse;
use crate::lane::Lane;
use crate::layout::{GRAIN_BYTES, LOG_BYTES};

const AT_USED: u64 = 0;
const AT_NEXT: u64 = 8;
const AT_ENTRIES: u64 = 16;
const BYTES_FLAG: u64 = 1 << 63;
/// Most bytes that one entry undoes: so the first entry always fits the head, whose `used` says
/// whether the log counts.
pub(crate) const RECORD_BYTES_MAX: usize = 16 << 10;
const _: () = assert!(AT_ENTRIES + 16 + RECORD_BYTES_MAX as u64 <= LOG_BYTES);
/// Most bytes of a chunk that holds more than one entry.
const CHUNK_BYTES_MAX: u64 = 1 << 20;

/// The memory that one entry of a log puts back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Undo {
    Word { offset: u64, old: u64 },
    Bytes { offset: u64, old: Vec<u8> },
}

/// An entry of a log as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Region offset of the entry itself.
    pub at: u64,
    /// The memory that the entry puts back.
    pub undo: Undo,
}

/// The writing end of one operation's log.
#[derive(Debug)]
pub(crate) struct Log {
    head: u64,
    /// Offset of the chunk that entries are appended to.
    chunk: u64,
    chunk_bytes: u64,
    /// Bytes of entries in that chunk.
    used: u64,
    /// Chunks behind the head, which the operation frees when it ends.
    pub more: Vec<u64>,
}

impl Log {
    /// The log whose head lies at `head`, without entries.
    pub fn at(head: u64) -> Self {
        Self { head, chunk: head, chunk_bytes: LOG_BYTES, used: 0, more: Vec::new() }
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.used == 0 && self.more.is_empty()
    }

    /// Records the word at an offset: `undo` is the offset and the old value.
    pub fn word(&mut self, fuse: &Fuse, lead: &mut Lane<'_>, undo: [u64; 2]) -> Result<(), Stop> {
        let mut entry = [0; 16];
        entry[..8].copy_from_slice(&undo[0].to_le_bytes());
        entry[8..].copy_from_slice(&undo[1].to_le_bytes());
        let at = self.room(fuse, lead, 16)?;
        lead.guard.write(at, &entry).map_err(Stop::Need)?;
        self.count(fuse, lead, 16)
    }

    /// Records that the bytes at `offset` were `old`.
    pub fn bytes(
        &mut self,
        fuse: &Fuse,
        lead: &mut Lane<'_>,
        offset: u64,
        old: &[u8],
    ) -> Result<(), Stop> {
        assert!(old.len() <= RECORD_BYTES_MAX);
        let len = 16 + (old.len() as u64).next_multiple_of(8);
        let at = self.room(fuse, lead, len)?;
        let entry = lead.guard.announced_mut(at, len as usize, None).map_err(Stop::Need)?;
        entry[..8].copy_from_slice(&(offset | BYTES_FLAG).to_le_bytes());
        entry[8..16].copy_from_slice(&(old.len() as u64).to_le_bytes());
        entry[16..16 + old.len()].copy_from_slice(old);
        self.count(fuse, lead, len)
    }

    /// The place of the next entry, of `len` bytes; in a new chunk if the present one is full.
    fn room(&mut self, fuse: &Fuse, lead: &mut Lane<'_>, len: u64) -> Result<u64, Stop> {
        fuse.burn()?;
        if AT_ENTRIES + self.used + len > self.chunk_bytes {
            let bytes = (self.chunk_bytes * 2).min(CHUNK_BYTES_MAX).max(AT_ENTRIES + len);
            let chunk = lead.alloc(bytes)?;
            let linked = start_chunk(&mut lead.guard, self.chunk, chunk);
            // The operation frees the chunk when it ends, whether the chunk was linked or not.
            self.more.push(chunk);
            linked?;
            (self.chunk, self.chunk_bytes) = (chunk, lead.usable_bytes(chunk));
            self.used = 0;
        }
        Ok(self.chunk + AT_ENTRIES + self.used)
    }

    /// Makes the entry of `len` bytes behind the last one count.
    fn count(&mut self, fuse: &Fuse, lead: &mut Lane<'_>, len: u64) -> Result<(), Stop> {
        fuse.burn()?;
        lead.guard.store(self.chunk + AT_USED, self.used + len).map_err(Stop::Need)?;
        self.used += len;
        Ok(())
    }

    /// Voids the log. The operation whose lane is still held has announced all words of this.
    pub fn void(&mut self, lead: &mut Lane<'_>) {
        for word in [self.head + AT_USED, self.head + AT_NEXT] {
            if lead.guard.load(word) != 0 {
                let stored = lead.guard.store(word, 0);
                assert!(stored.is_ok(), "the head of an undo log in use is always announced");
            }
        }
        (self.chunk, self.chunk_bytes, self.used) = (self.head, LOG_BYTES, 0);
    }

    /// The memory that the log puts back, the oldest entry first.
    pub fn entries(&self, lead: &Lane<'_>) -> Vec<Undo> {
        match read(&|offset, len| Some(lead.bytes(offset, len)), self.head) {
            Ok(entries) => entries.into_iter().map(|entry| entry.undo).collect(),
            Err((offset, value)) => {
                panic!("the undo log that this operation writes has {value:#x} at {offset:#x}")
            }
        }
    }
}

fn start_chunk(lead: &mut LaneGuard<'_>, before: u64, chunk: u64) -> Result<(), Stop> {
    lead.store(chunk + AT_USED, 0).map_err(Stop::Need)?;
    lead.store(chunk + AT_NEXT, 0).map_err(Stop::Need)?;
    lead.store(before + AT_NEXT, chunk).map_err(Stop::Need)
}

/// Voids the log at `head` that a killed process has left.
pub(crate) fn void_left(region: &Region, lane: LaneId, head: u64) -> Result<(), RegionError> {
    for word in [head + AT_USED, head + AT_NEXT] {
        set_word(region, lane, word, 0)?;
    }
    Ok(())
}

/// Stores a word outside of any operation.
pub(crate) fn set_word(
    region: &Region,
    lane: LaneId,
    offset: u64,
    value: u64,
) -> Result<(), RegionError> {
    let mut credit = 0;
    loop {
        let mut guard = region.lock_with(lane, credit);
        if guard.load(offset) == value {
            return Ok(());
        }
        let Err(need) = guard.store(offset, value) else { return Ok(()) };
        drop(guard);
        credit = region.satisfy(need)?;
    }
}

/// Writes bytes outside of any operation.
pub(crate) fn set_bytes(
    region: &Region,
    lane: LaneId,
    offset: u64,
    bytes: &[u8],
) -> Result<(), RegionError> {
    let mut credit = 0;
    loop {
        let mut guard = region.lock_with(lane, credit);
        let Err(need) = guard.write(offset, bytes) else { return Ok(()) };
        // The cleaner may need this very lane to make room.
        drop(guard);
        credit = region.satisfy(whole(need, bytes.len() as u64))?;
    }
}

/// The need of a whole range of `len` bytes, where `need` is that of its first grains: a range is
/// not to be waited for grain by grain.
pub(crate) fn whole(need: Need, len: u64) -> Need {
    match need {
        Need::Room { bytes } => Need::Room { bytes: bytes.max(len + 2 * GRAIN_BYTES) },
        Need::Buffer => Need::Buffer,
    }
}

/// Reads the log at `head`, the oldest entry first. `bytes` gives bytes of the log's lane, if there
/// are such. `Err` holds the offset and the value of the first word that no correct program writes.
pub(crate) fn read<'m>(
    bytes: &impl Fn(u64, usize) -> Option<&'m [u8]>,
    head: u64,
) -> Result<Vec<Entry>, (u64, u64)> {
    let word =
        |at: u64| -> Option<u64> { Some(u64::from_le_bytes(*bytes(at, 8)?.first_chunk::<8>()?)) };
    let mut entries = Vec::new();
    let used_of_head = word(head + AT_USED).ok_or((head, 0))?;
    if used_of_head == 0 {
        return Ok(entries);
    }
    // A chunk is found damaged by the word that leads to it.
    let (mut chunk, mut link) = (head, head);
    let mut seen = std::collections::HashSet::new();
    while chunk != 0 {
        // A chain that came round would be read for ever.
        let is_chunk = seen.insert(chunk) && chunk.is_multiple_of(8) && chunk <= u64::MAX / 4;
        let used = is_chunk.then(|| word(chunk + AT_USED)).flatten().ok_or((link, chunk))?;
        let end = (chunk + AT_ENTRIES).checked_add(used).ok_or((chunk + AT_USED, used))?;
        let mut at = chunk + AT_ENTRIES;
        while at < end {
            let (first, second) = word(at).zip(word(at + 8)).ok_or((chunk + AT_USED, used))?;
            let (undo, len) = if first & BYTES_FLAG != 0 {
                let is_record = second <= RECORD_BYTES_MAX as u64;
                let old = is_record.then(|| bytes(at + 16, second as usize)).flatten();
                let old = old.ok_or((at + 8, second))?.to_vec();
                (Undo::Bytes { offset: first & !BYTES_FLAG, old }, second.next_multiple_of(8))
            } else if first.is_multiple_of(8) {
                (Undo::Word { offset: first, old: second }, 0)
            } else {
                return Err((at, first));
            };
            entries.push(Entry { at, undo });
            at += 16 + len;
        }
        if at != end {
            return Err((chunk + AT_USED, used));
        }
        link = chunk + AT_NEXT;
        chunk = word(link).ok_or((link, 0))?;
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: u64 = 512;
    const CHUNK: u64 = 40_000;
    const MEMORY_BYTES: u64 = 64 << 10;

    /// Memory with these words in it.
    fn memory(words: &[(u64, u64)]) -> Vec<u8> {
        let mut memory = vec![0; MEMORY_BYTES as usize];
        for (at, value) in words {
            memory[*at as usize..][..8].copy_from_slice(&value.to_le_bytes());
        }
        memory
    }

    fn read_from(memory: &[u8]) -> Result<Vec<Entry>, (u64, u64)> {
        let bytes = |at: u64, len: usize| memory.get(at as usize..)?.get(..len);
        read(&bytes, HEAD)
    }

    #[test]
    fn a_log_reads_back_through_its_chunks_the_oldest_entry_first() {
        let first = HEAD + AT_ENTRIES;
        for len in [0, 1, 7, 8, 9, 16, 100, RECORD_BYTES_MAX as u64] {
            let padded = len.next_multiple_of(8);
            let mut memory = memory(&[
                (HEAD + AT_USED, 16 + 16 + padded + 16),
                (HEAD + AT_NEXT, CHUNK),
                (first, 64),
                (first + 8, 7),
                (first + 16, BYTES_FLAG | 77),
                (first + 24, len),
                (first + 32 + padded, 72),
                (first + 40 + padded, 8),
                (CHUNK + AT_USED, 16),
                (CHUNK + AT_ENTRIES, 80),
                (CHUNK + AT_ENTRIES + 8, u64::MAX),
            ]);
            let old: Vec<u8> = (0..len).map(|at| at as u8 | 1).collect();
            memory[first as usize + 32..][..old.len()].copy_from_slice(&old);
            let entry = |at, undo| Entry { at, undo };
            let expected = [
                entry(first, Undo::Word { offset: 64, old: 7 }),
                entry(first + 16, Undo::Bytes { offset: 77, old }),
                entry(first + 32 + padded, Undo::Word { offset: 72, old: 8 }),
                entry(CHUNK + AT_ENTRIES, Undo::Word { offset: 80, old: u64::MAX }),
            ];
            assert_eq!(read_from(&memory).unwrap(), expected, "{len} bytes");
        }
    }

    #[test]
    fn a_log_whose_head_is_void_has_no_entries_whatever_lies_behind_it() {
        let left = [(HEAD + AT_NEXT, CHUNK), (HEAD + AT_ENTRIES, 64), (CHUNK + AT_USED, 16)];
        assert_eq!(read_from(&memory(&left)), Ok(vec![]));
    }

    #[test]
    fn a_word_that_leads_nowhere_is_named_by_its_place_and_value() {
        let (used, next) = (HEAD + AT_USED, HEAD + AT_NEXT);
        let (first, second) = (HEAD + AT_ENTRIES, HEAD + AT_ENTRIES + 8);
        let longest = RECORD_BYTES_MAX as u64;
        type Word = (u64, u64);
        let cases: [(&[Word], Word); 9] = [
            (&[(used, 8)], (used, 8)),
            (&[(used, MEMORY_BYTES)], (used, MEMORY_BYTES)),
            (&[(used, u64::MAX)], (used, u64::MAX)),
            (&[(used, 16), (first, 9)], (first, 9)),
            (&[(used, 16), (first, BYTES_FLAG), (second, longest + 1)], (second, longest + 1)),
            (&[(used, 16), (first, BYTES_FLAG), (second, 1)], (used, 16)),
            (&[(used, 16), (next, HEAD)], (next, HEAD)),
            (&[(used, 16), (next, CHUNK + 4)], (next, CHUNK + 4)),
            (&[(used, 16), (next, MEMORY_BYTES)], (next, MEMORY_BYTES)),
        ];
        for (words, blamed) in cases {
            assert_eq!(read_from(&memory(words)), Err(blamed), "{words:x?}");
        }
    }
}
