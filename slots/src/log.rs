//! The undo log: what words and bytes were before an operation changed them.
//!
//! One log per lead lane. Its head lies at the front of the lane block; when full, it goes on in
//! larger and larger chunks from the allocator. A chunk:
//! ```text
//! 0  used bytes of entries    8  next chunk, or 0    16…  entries
//! entry: word   address | old value                          (16 B)
//!        bytes  address + 2^63 | length | old bytes, padded to 8
//! ```
//! An entry counts once `used` covers it, and it is made to before the store it undoes. `used = 0`
//! in the head voids everything: that one store is the commit. Chunks after the head count only
//! while it is not 0.

use perdura_region::{LaneGuard, LaneId, Region, RegionError};

use crate::error::Stop;
use crate::heap::Heap;
use crate::lane::Lane;
use crate::layout::LOG_BYTES;

const AT_USED: u64 = 0;
const AT_NEXT: u64 = 8;
const AT_ENTRIES: u64 = 16;
const BYTES_FLAG: u64 = 1 << 63;
/// Longest byte record: the first entry always fits the head, whose `used` says whether a chain
/// counts.
pub(crate) const RECORD_BYTES_MAX: usize = 16 << 10;
const _: () = assert!(AT_ENTRIES + 16 + RECORD_BYTES_MAX as u64 <= LOG_BYTES);

/// One thing to be put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Undo {
    Word { offset: u64, old: u64 },
    Bytes { offset: u64, old: Vec<u8> },
}

/// The writing end of one operation's log.
#[derive(Debug)]
pub(crate) struct Log {
    head: u64,
    chunk: u64,
    chunk_bytes: u64,
    used: u64,
    /// Chunks after the head.
    pub more: Vec<u64>,
}

impl Log {
    pub fn at(head: u64) -> Self {
        Self { head, chunk: head, chunk_bytes: LOG_BYTES, used: 0, more: Vec::new() }
    }

    /// Whether anything was recorded.
    pub fn is_empty(&self) -> bool {
        self.used == 0 && self.more.is_empty()
    }

    pub fn word(&mut self, heap: &Heap, lead: &mut Lane<'_>, undo: [u64; 2]) -> Result<(), Stop> {
        let mut entry = [0; 16];
        entry[..8].copy_from_slice(&undo[0].to_le_bytes());
        entry[8..].copy_from_slice(&undo[1].to_le_bytes());
        let at = self.room(heap, lead, 16)?;
        lead.guard.write(at, &entry).map_err(Stop::Need)?;
        self.count(heap, lead, 16)
    }

    pub fn bytes(
        &mut self,
        heap: &Heap,
        lead: &mut Lane<'_>,
        offset: u64,
        old: &[u8],
    ) -> Result<(), Stop> {
        assert!(old.len() <= RECORD_BYTES_MAX);
        let len = 16 + (old.len() as u64).next_multiple_of(8);
        let at = self.room(heap, lead, len)?;
        let entry = lead.guard.announced_mut(at, len as usize, None).map_err(Stop::Need)?;
        entry[..8].copy_from_slice(&(offset | BYTES_FLAG).to_le_bytes());
        entry[8..16].copy_from_slice(&(old.len() as u64).to_le_bytes());
        entry[16..16 + old.len()].copy_from_slice(old);
        self.count(heap, lead, len)
    }

    /// Where an entry of `len` bytes goes; a new chunk if the present one is full.
    fn room(&mut self, heap: &Heap, lead: &mut Lane<'_>, len: u64) -> Result<u64, Stop> {
        heap.burn()?;
        if AT_ENTRIES + self.used + len > self.chunk_bytes {
            let chunk = lead.alloc((self.chunk_bytes * 2).min(1 << 20).max(AT_ENTRIES + len))?;
            let linked = start_chunk(&mut lead.guard, self.chunk, chunk);
            // A chunk of an operation that ends is freed by it, whether it was linked or not.
            self.more.push(chunk);
            linked?;
            (self.chunk, self.chunk_bytes) = (chunk, lead.usable_bytes(chunk));
            self.used = 0;
        }
        Ok(self.chunk + AT_ENTRIES + self.used)
    }

    fn count(&mut self, heap: &Heap, lead: &mut Lane<'_>, len: u64) -> Result<(), Stop> {
        heap.burn()?;
        lead.guard.store(self.chunk + AT_USED, self.used + len).map_err(Stop::Need)?;
        self.used += len;
        Ok(())
    }

    /// Voids the log. All it touches was announced by this operation, whose lane is still held.
    pub fn void(&mut self, lead: &mut Lane<'_>) {
        void(&mut lead.guard, self.head);
        (self.chunk, self.chunk_bytes, self.used) = (self.head, LOG_BYTES, 0);
    }

    /// What to put back, the oldest first.
    pub fn entries(&self, lead: &Lane<'_>) -> Vec<Undo> {
        // A chain written by this process reads back; a damaged one is met on open.
        read(&|offset, len| Some(lead.bytes(offset, len)), self.head).unwrap_or_default()
    }
}

fn start_chunk(lead: &mut LaneGuard<'_>, before: u64, chunk: u64) -> Result<(), Stop> {
    lead.store(chunk + AT_USED, 0).map_err(Stop::Need)?;
    lead.store(chunk + AT_NEXT, 0).map_err(Stop::Need)?;
    lead.store(before + AT_NEXT, chunk).map_err(Stop::Need)
}

fn void(lead: &mut LaneGuard<'_>, head: u64) {
    for word in [head + AT_USED, head + AT_NEXT] {
        if lead.load(word) != 0 {
            // What is not zero was stored, so announced, by the operation that holds the lane.
            let stored = lead.store(word, 0);
            assert!(stored.is_ok(), "the head of an undo log in use is always announced");
        }
    }
}

/// Voids the log of a process that is gone.
pub(crate) fn void_left(region: &Region, lane: LaneId, head: u64) -> Result<(), RegionError> {
    for word in [head + AT_USED, head + AT_NEXT] {
        set_word(region, lane, word, 0)?;
    }
    Ok(())
}

/// Stores a word outside any operation.
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

/// Reads the log at `head`, the oldest entry first. `Err`: where it makes no sense, and what was
/// there.
pub(crate) fn read<'m>(
    bytes: &impl Fn(u64, usize) -> Option<&'m [u8]>,
    head: u64,
) -> Result<Vec<Undo>, (u64, u64)> {
    let word = |at: u64| {
        let raw = bytes(at, 8).and_then(|raw| raw.first_chunk::<8>()).ok_or((at, 0))?;
        Ok::<u64, (u64, u64)>(u64::from_le_bytes(*raw))
    };
    let mut undo = Vec::new();
    if word(head + AT_USED)? == 0 {
        return Ok(undo);
    }
    let mut chunk = head;
    let mut seen = std::collections::HashSet::new();
    while chunk != 0 {
        // A chain that comes round would be read for ever; an address at the end of all would leave
        // the numbers.
        if !seen.insert(chunk) || chunk > u64::MAX / 4 {
            return Err((chunk, chunk));
        }
        let used = word(chunk + AT_USED)?;
        let mut at = chunk + AT_ENTRIES;
        let end = at.checked_add(used).ok_or((chunk + AT_USED, used))?;
        while at < end {
            let (offset, second) = (word(at)?, word(at + 8)?);
            if offset & BYTES_FLAG == 0 {
                undo.push(Undo::Word { offset, old: second });
                at += 16;
            } else {
                let raw = bytes(at + 16, second as usize).ok_or((at + 8, second))?;
                undo.push(Undo::Bytes { offset: offset & !BYTES_FLAG, old: raw.to_vec() });
                at += 16 + second.checked_next_multiple_of(8).ok_or((at + 8, second))?;
            }
        }
        chunk = word(chunk + AT_NEXT)?;
    }
    Ok(undo)
}
