//! Names and the objects they lead to, in persistent memory: an array of cache lines, found by a
//! root.
//!
//! An entry is one cache line. Its name and kind are written first; its object's offset, by which
//! the entry exists, last. A full directory is copied to one twice as long, which the root then
//! leads to. An index in DRAM finds entries; it is built when the heap is opened.

use std::collections::HashMap;
use std::sync::Arc;

use perdura_heap::{Heap, HeapError, Offset, Ptr};

use crate::sys::object::Object;

/// Kind of an entry: named data.
pub const KIND_DATA: u64 = 1;
/// Kind of an entry: the first object of a pool.
pub const KIND_POOL: u64 = 2;

const ROOT: &str = "perdura-apps";
const LINE_BYTES: usize = 64;
const NAME_BYTES: usize = 48;
const AT_KIND: usize = NAME_BYTES;
const AT_OFFSET: usize = NAME_BYTES + 8;
const ENTRIES_FIRST: usize = 256;

/// The directory of a heap.
pub struct Directory {
    heap: Arc<Heap>,
    object: Object,
    entries: usize,
    index: HashMap<String, usize>,
    free: Vec<usize>,
}

impl Directory {
    pub fn open(heap: &Arc<Heap>) -> Result<Self, HeapError> {
        let object = match heap.root::<u64>(ROOT)?.and_then(Ptr::offset) {
            Some(offset) => Object::at(heap, offset)?,
            None => {
                let object = empty(heap, ENTRIES_FIRST)?;
                heap.set_root(ROOT, Ptr::<u64>::new(object.offset()))?;
                object
            }
        };
        let heap = Arc::clone(heap);
        let entries = object.len_bytes() / LINE_BYTES;
        let mut directory = Self { heap, object, entries, index: HashMap::new(), free: Vec::new() };
        for entry in (0..entries).rev() {
            let line = directory.line(entry);
            match word(&line, AT_OFFSET) {
                0 => directory.free.push(entry),
                _ => {
                    let name = line[..NAME_BYTES].split(|byte| *byte == 0).next();
                    let name = String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
                    directory.index.insert(name, entry);
                }
            }
        }
        Ok(directory)
    }

    /// Names of a kind, with their objects.
    pub fn of_kind(&self, kind: u64) -> Vec<(String, Offset)> {
        let found = self.index.iter().filter_map(|(name, &entry)| {
            let line = self.line(entry);
            let offset = Offset::new(word(&line, AT_OFFSET))?;
            (word(&line, AT_KIND) == kind).then(|| (name.clone(), offset))
        });
        found.collect()
    }

    /// Makes a name lead to an object. The change is durable on return.
    pub fn set(&mut self, name: &str, kind: u64, offset: Offset) -> Result<(), HeapError> {
        if let Some(&entry) = self.index.get(name) {
            self.store(entry, AT_OFFSET, &offset.get().to_le_bytes());
            return Ok(());
        }
        if name.is_empty() || name.len() > NAME_BYTES {
            return Err(HeapError::RootName { name: name.to_owned(), most: NAME_BYTES });
        }
        let entry = match self.free.pop() {
            Some(entry) => entry,
            None => self.lengthen()?,
        };
        let mut named = [0; AT_OFFSET];
        named[..name.len()].copy_from_slice(name.as_bytes());
        named[AT_KIND..].copy_from_slice(&kind.to_le_bytes());
        self.store(entry, 0, &named);
        self.store(entry, AT_OFFSET, &offset.get().to_le_bytes());
        self.index.insert(name.to_owned(), entry);
        Ok(())
    }

    /// Removes a name durably; `false` if it did not exist.
    pub fn clear(&mut self, name: &str) -> Result<bool, HeapError> {
        let Some(entry) = self.index.remove(name) else { return Ok(false) };
        self.store(entry, AT_OFFSET, &0_u64.to_le_bytes());
        self.free.push(entry);
        Ok(true)
    }

    /// Doubles the directory, and returns a free entry.
    fn lengthen(&mut self) -> Result<usize, HeapError> {
        let longer = empty(&self.heap, 2 * self.entries)?;
        for entry in 0..self.entries {
            let line = self.line(entry);
            store(&self.heap, longer, entry * LINE_BYTES, &line);
        }
        self.heap.persist(longer.offset(), longer.len_bytes() as u64);
        self.heap.set_root(ROOT, Ptr::<u64>::new(longer.offset()))?;
        let shorter = std::mem::replace(&mut self.object, longer);
        self.heap.persist_free(shorter.offset())?;
        let first = self.entries;
        self.entries = longer.len_bytes() / LINE_BYTES;
        self.free.extend((first + 1..self.entries).rev());
        Ok(first)
    }

    fn line(&self, entry: usize) -> [u8; LINE_BYTES] {
        // SAFETY: no other code knows the directory's object; the borrow ends here.
        let bytes = unsafe { self.object.bytes(&self.heap, entry * LINE_BYTES, LINE_BYTES) };
        bytes.and_then(|bytes| bytes.first_chunk().copied()).unwrap_or([0; LINE_BYTES])
    }

    fn store(&self, entry: usize, at: usize, bytes: &[u8]) {
        let at = entry * LINE_BYTES + at;
        store(&self.heap, self.object, at, bytes);
        let from = Offset::new(self.object.offset().get() + at as u64);
        from.inspect(|&from| self.heap.persist(from, bytes.len() as u64));
    }
}

/// A directory without entries; each entry will have a line of its own.
fn empty(heap: &Heap, entries: usize) -> Result<Object, HeapError> {
    let bytes = (entries * LINE_BYTES) as u64;
    let offset = heap.persist_alloc_aligned(bytes, LINE_BYTES as u64)?;
    let object = Object::at(heap, offset)?;
    store(heap, object, 0, &vec![0; object.len_bytes()]);
    heap.persist(offset, object.len_bytes() as u64);
    Ok(object)
}

fn store(heap: &Heap, object: Object, at: usize, bytes: &[u8]) {
    // SAFETY: no other code knows the directory's object, and no slice of it is held.
    let stored = unsafe { object.store(heap, at, bytes) };
    debug_assert!(stored.is_some(), "entries lie within the directory");
}

fn word(line: &[u8; LINE_BYTES], at: usize) -> u64 {
    line[at..].first_chunk().copied().map_or(0, u64::from_le_bytes)
}
