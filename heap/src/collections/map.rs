//! A hash table: open addressing, linear probing, a state word before each key and value.
//!
//! The table grows as a whole, into a new table of which nothing is logged; only the head changes.
//! A removed entry leaves a mark where a search must go on behind it; growing drops the marks.

use std::marker::PhantomData;

use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Reads, find, named, read_at, with_head, write_at};
use crate::error::HeapError;
use crate::heap::Heap;
use crate::ptr::{Offset, Persist, type_id_of};
use crate::tx::Tx;

const BUCKETS_LEAST: u64 = 16;
const EMPTY: u64 = 0;
/// State of a removed entry, behind which a search goes on.
const GONE: u64 = 1;
/// Bit of the state of every entry that has a key.
const HAS_KEY: u64 = 2;
const STATE_BYTES: u64 = 8;

/// A hash table in persistent memory. Keys are equal if their bytes are.
///
/// ```
/// use perdura_heap::collections::PMap;
/// use perdura_heap::{Config, Durability, Heap, HeapError, Memory};
///
/// let heap = Heap::open(Memory::anonymous(4 << 20, Durability::Ordered)?, Config::default())?;
/// heap.transaction(|tx| {
///     let ages = PMap::<[u8; 8], u64>::named(tx, "ages")?;
///     ages.insert(tx, *b"Ada     ", 36)?;
///     ages.insert(tx, *b"Grace   ", 85)?;
///     ages.remove(tx, *b"Ada     ")
/// })?;
/// let ages = PMap::<[u8; 8], u64>::find(&heap, "ages")?.ok_or(HeapError::Null)?;
/// assert_eq!(ages.get(&heap, *b"Grace   ")?, Some(85));
/// assert_eq!(ages.len(&heap)?, 1);
/// # Ok::<(), HeapError>(())
/// ```
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct PMap<K: 'static, V: 'static> {
    head: u64,
    of: PhantomData<fn() -> (K, V)>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    table: u64,
    /// Number of buckets: a power of two, or 0 as long as there is no table.
    buckets: u64,
    len: u64,
    /// Number of entries and marks.
    used: u64,
}

impl Persist for Head {
    const NAME: &'static str = "pmap head";
}

impl<K, V> Clone for PMap<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for PMap<K, V> {}

impl<K: Persist, V: Persist> Persist for PMap<K, V> {
    const NAME: &'static str = "pmap";

    fn type_id() -> u64 {
        type_id_of(Self::NAME, &[K::type_id(), V::type_id()])
    }
}

impl<K: Persist, V: Persist> PMap<K, V> {
    const KEY: u64 = STATE_BYTES;
    const VALUE: u64 = STATE_BYTES + size_of::<K>() as u64;
    const ENTRY: u64 = (Self::VALUE + size_of::<V>() as u64).next_multiple_of(8);

    /// Makes an empty table. The caller must link it in the same transaction, or it is a leak.
    ///
    /// # Errors
    /// No memory.
    pub fn new(tx: &mut Tx<'_>) -> Result<Self, HeapError> {
        Ok(with_head(tx.put(Head { table: 0, buckets: 0, len: 0, used: 0 })?.offset()))
    }

    /// The table that a root names, which is made and named if there is none.
    ///
    /// # Errors
    /// The root is of another type, or no memory.
    pub fn named(tx: &mut Tx<'_>, name: &str) -> Result<Self, HeapError> {
        named(tx, name, Self::new)
    }

    /// The table that a root names; `None` if there is no such root.
    ///
    /// # Errors
    /// The root is of another type.
    pub fn find(heap: &Heap, name: &str) -> Result<Option<Self>, HeapError> {
        find(heap, name)
    }

    /// The number of entries.
    ///
    /// # Errors
    /// The table was freed, or is damaged.
    pub fn len(&self, from: &impl Reads) -> Result<u64, HeapError> {
        Ok(self.head(from)?.len)
    }

    /// Whether there are no entries.
    ///
    /// # Errors
    /// The errors of [`PMap::len`].
    pub fn is_empty(&self, from: &impl Reads) -> Result<bool, HeapError> {
        Ok(self.len(from)? == 0)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// The errors of [`PMap::len`].
    pub fn get(&self, from: &impl Reads, key: K) -> Result<Option<V>, HeapError> {
        let head = self.head(from)?;
        match self.search(from, &head, &key)? {
            Spot::Found(entry) => read_at(from, entry + Self::VALUE).map(Some),
            Spot::Free(..) | Spot::NoTable => Ok(None),
        }
    }

    /// Gives a key a value, and returns the value that the key had.
    ///
    /// # Errors
    /// No memory, or no room for the log.
    pub fn insert(&self, tx: &mut Tx<'_>, key: K, value: V) -> Result<Option<V>, HeapError> {
        let mut head = self.head(tx)?;
        let mut spot = self.search(tx, &head, &key)?;
        if let Spot::Found(entry) = spot {
            let old = read_at(tx, entry + Self::VALUE)?;
            write_at(tx, entry + Self::VALUE, &value)?;
            return Ok(Some(old));
        }
        if (head.used + 1) * 8 > head.buckets * 7 {
            self.grow(tx, &mut head)?;
            spot = self.search(tx, &head, &key)?;
        }
        let Spot::Free(entry, was_mark) = spot else {
            unreachable!("a table with room has a free place for a key it lacks")
        };
        let mut bytes = vec![0; Self::ENTRY as usize];
        fill::<K, V>(&mut bytes, self.state_of(&key), &key, &value);
        tx.write_bytes(Offset::new(entry).ok_or(HeapError::Null)?, &bytes)?;
        head.len += 1;
        head.used += u64::from(!was_mark);
        write_at(tx, self.head, &head)?;
        Ok(None)
    }

    /// Takes a key out, and returns its value.
    ///
    /// # Errors
    /// No room for the log.
    pub fn remove(&self, tx: &mut Tx<'_>, key: K) -> Result<Option<V>, HeapError> {
        let mut head = self.head(tx)?;
        let Spot::Found(entry) = self.search(tx, &head, &key)? else { return Ok(None) };
        let old = read_at(tx, entry + Self::VALUE)?;
        let index = (entry - head.table) / Self::ENTRY;
        let next = head.table + ((index + 1) & (head.buckets - 1)) * Self::ENTRY;
        // With no entry behind it no search comes past this one.
        let is_last = read_at::<u64>(tx, next)? == EMPTY;
        write_at(tx, entry, &if is_last { EMPTY } else { GONE })?;
        head.len -= 1;
        head.used -= u64::from(is_last);
        write_at(tx, self.head, &head)?;
        Ok(Some(old))
    }

    /// All entries, in no order.
    ///
    /// # Errors
    /// The errors of [`PMap::len`].
    pub fn iter<'f, R: Reads>(&self, from: &'f R) -> Result<MapIter<'f, K, V, R>, HeapError> {
        Ok(MapIter { from, head: self.head(from)?, next: 0, of: PhantomData })
    }

    /// Frees the table. Objects that its values refer to are left to the caller.
    ///
    /// # Errors
    /// The errors of [`PMap::len`].
    pub fn free(self, tx: &mut Tx<'_>) -> Result<(), HeapError> {
        let head = self.head(tx)?;
        if let Some(table) = Offset::new(head.table) {
            tx.free(table)?;
        }
        tx.free(Offset::new(self.head).ok_or(HeapError::Null)?)
    }

    fn head(&self, from: &impl Reads) -> Result<Head, HeapError> {
        let head: Head = read_at(from, self.head)?;
        let is_table = head.buckets == 0 || head.buckets.is_power_of_two();
        if !is_table || head.len > head.used || head.used > head.buckets {
            let (what, offset) = ("head of a hash table", self.head);
            return Err(HeapError::Corrupt { what, offset, value: head.buckets });
        }
        Ok(head)
    }

    /// The state of an entry with this key, which is neither of the two states without a key.
    fn state_of(&self, key: &K) -> u64 {
        // The head is a part of the hash, so that tables do not fill in one another's order.
        xxh3_64_with_seed(key.as_bytes(), self.head) | HAS_KEY
    }

    fn search(&self, from: &impl Reads, head: &Head, key: &K) -> Result<Spot, HeapError> {
        if head.buckets == 0 {
            return Ok(Spot::NoTable);
        }
        let state = self.state_of(key);
        let mut mark = None;
        for step in 0..head.buckets {
            let index = (state >> 2).wrapping_add(step) & (head.buckets - 1);
            let entry = head.table + index * Self::ENTRY;
            match read_at::<u64>(from, entry)? {
                EMPTY => {
                    return Ok(mark.map_or(Spot::Free(entry, false), |mark| Spot::Free(mark, true)));
                }
                GONE => mark = mark.or(Some(entry)),
                found if found == state => {
                    let other: K = read_at(from, entry + Self::KEY)?;
                    if other.as_bytes() == key.as_bytes() {
                        return Ok(Spot::Found(entry));
                    }
                }
                found => check_state(entry, found)?,
            }
        }
        Ok(mark.map_or(Spot::NoTable, |mark| Spot::Free(mark, true)))
    }

    /// Moves to a table with room, without marks.
    fn grow(&self, tx: &mut Tx<'_>, head: &mut Head) -> Result<(), HeapError> {
        let is_full = head.len * 2 >= head.buckets;
        let buckets = if is_full { head.buckets * 2 } else { head.buckets }.max(BUCKETS_LEAST);
        let len = buckets.saturating_mul(Self::ENTRY);
        let table = tx.alloc(len)?;
        let mut image = vec![0; len as usize];
        for entry in self.iter(tx)? {
            let (key, value) = entry?;
            let state = self.state_of(&key);
            let mut index = (state >> 2) & (buckets - 1);
            loop {
                let at = (index * Self::ENTRY) as usize;
                let bytes = &mut image[at..at + Self::ENTRY as usize];
                if bytes[..STATE_BYTES as usize] == [0; STATE_BYTES as usize] {
                    fill::<K, V>(bytes, state, &key, &value);
                    break;
                }
                index = (index + 1) & (buckets - 1);
            }
        }
        tx.write_bytes(table, &image)?;
        if let Some(old) = Offset::new(head.table) {
            tx.free(old)?;
        }
        *head = Head { table: table.get(), buckets, len: head.len, used: head.len };
        write_at(tx, self.head, head)
    }
}

fn fill<K: Persist, V: Persist>(bytes: &mut [u8], state: u64, key: &K, value: &V) {
    let (key_at, value_at) = (STATE_BYTES as usize, STATE_BYTES as usize + size_of::<K>());
    bytes[..key_at].copy_from_slice(&state.to_le_bytes());
    bytes[key_at..value_at].copy_from_slice(key.as_bytes());
    bytes[value_at..value_at + size_of::<V>()].copy_from_slice(value.as_bytes());
}

/// Refuses a state that is none of an entry with a key.
fn check_state(offset: u64, state: u64) -> Result<(), HeapError> {
    match state & HAS_KEY {
        0 => Err(HeapError::Corrupt { what: "entry of a hash table", offset, value: state }),
        _ => Ok(()),
    }
}

/// The place where a search ended.
enum Spot {
    /// The entry of the key.
    Found(u64),
    /// The place for an entry of the key, and whether a mark is there.
    Free(u64, bool),
    /// The table has no place for an entry.
    NoTable,
}

/// An iterator over the entries of a [`PMap`].
pub struct MapIter<'f, K: 'static, V: 'static, R> {
    from: &'f R,
    head: Head,
    next: u64,
    of: PhantomData<fn() -> (K, V)>,
}

impl<K: Persist, V: Persist, R: Reads> Iterator for MapIter<'_, K, V, R> {
    type Item = Result<(K, V), HeapError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.next < self.head.buckets {
            let entry = self.head.table + self.next * PMap::<K, V>::ENTRY;
            self.next += 1;
            match read_at::<u64>(self.from, entry) {
                Ok(EMPTY | GONE) => {}
                Ok(state) => {
                    if let Err(error) = check_state(entry, state) {
                        return Some(Err(error));
                    }
                    let key = read_at(self.from, entry + PMap::<K, V>::KEY);
                    let value = || read_at(self.from, entry + PMap::<K, V>::VALUE);
                    return Some(key.and_then(|key| Ok((key, value()?))));
                }
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }
}
