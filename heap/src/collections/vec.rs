//! A growing array.

use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Reads, find, named, read_at, with_head, write_at};
use crate::error::HeapError;
use crate::heap::Heap;
use crate::ptr::{Offset, Persist, type_id_of};
use crate::tx::Tx;

const CAPACITY_LEAST: u64 = 8;
/// Bytes that are copied at once when an array grows.
const COPY_BYTES: usize = 16 << 10;

/// An array in persistent memory that grows at its end.
///
/// ```
/// use perdura_heap::collections::PVec;
/// use perdura_heap::{Config, Durability, Heap, HeapError, Memory};
///
/// let heap = Heap::open(Memory::anonymous(4 << 20, Durability::Ordered)?, Config::default())?;
/// let primes = heap.transaction(|tx| {
///     let primes = PVec::<u64>::named(tx, "primes")?;
///     for prime in [2, 3, 5] {
///         primes.push(tx, prime)?;
///     }
///     Ok::<_, HeapError>(primes)
/// })?;
/// assert_eq!(primes.get(&heap, 1)?, Some(3));
/// let found = PVec::<u64>::find(&heap, "primes")?.ok_or(HeapError::Null)?;
/// assert_eq!(found.len(&heap)?, 3);
/// # Ok::<(), HeapError>(())
/// ```
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct PVec<T: 'static> {
    head: u64,
    of: PhantomData<fn() -> T>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    at: u64,
    len: u64,
    capacity: u64,
}

impl Persist for Head {
    const NAME: &'static str = "pvec head";
}

impl<T> Clone for PVec<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for PVec<T> {}

impl<T: Persist> Persist for PVec<T> {
    const NAME: &'static str = "pvec";

    fn type_id() -> u64 {
        type_id_of(Self::NAME, &[T::type_id()])
    }
}

impl<T: Persist> PVec<T> {
    /// Makes an empty array. The caller must link it in the same transaction, or it is a leak.
    ///
    /// # Errors
    /// No memory.
    pub fn new(tx: &mut Tx<'_>) -> Result<Self, HeapError> {
        Ok(with_head(tx.put(Head { at: 0, len: 0, capacity: 0 })?.offset()))
    }

    /// The array that a root names, which is made and named if there is none.
    ///
    /// # Errors
    /// The root is of another type, or no memory.
    pub fn named(tx: &mut Tx<'_>, name: &str) -> Result<Self, HeapError> {
        named(tx, name, Self::new)
    }

    /// The array that a root names; `None` if there is no such root.
    ///
    /// # Errors
    /// The root is of another type.
    pub fn find(heap: &Heap, name: &str) -> Result<Option<Self>, HeapError> {
        find(heap, name)
    }

    /// The number of elements.
    ///
    /// # Errors
    /// The array was freed, or is damaged.
    pub fn len(&self, from: &impl Reads) -> Result<u64, HeapError> {
        Ok(self.head(from)?.len)
    }

    /// Whether there are no elements.
    ///
    /// # Errors
    /// The errors of [`PVec::len`].
    pub fn is_empty(&self, from: &impl Reads) -> Result<bool, HeapError> {
        Ok(self.len(from)? == 0)
    }

    /// Element `index`; `None` if there are not as many.
    ///
    /// # Errors
    /// The errors of [`PVec::len`].
    pub fn get(&self, from: &impl Reads, index: u64) -> Result<Option<T>, HeapError> {
        let head = self.head(from)?;
        if index >= head.len {
            return Ok(None);
        }
        read_at(from, place::<T>(&head, index)).map(Some)
    }

    /// Changes element `index`. Returns false if there are not as many.
    ///
    /// # Errors
    /// The errors of [`PVec::len`], or the log has no room.
    pub fn set(&self, tx: &mut Tx<'_>, index: u64, value: T) -> Result<bool, HeapError> {
        let head = self.head(tx)?;
        if index < head.len {
            write_at(tx, place::<T>(&head, index), &value)?;
        }
        Ok(index < head.len)
    }

    /// Appends an element.
    ///
    /// # Errors
    /// No memory, or no room for the log.
    pub fn push(&self, tx: &mut Tx<'_>, value: T) -> Result<(), HeapError> {
        let mut head = self.head(tx)?;
        if head.len == head.capacity {
            self.grow(tx, &mut head)?;
        }
        write_at(tx, place::<T>(&head, head.len), &value)?;
        head.len += 1;
        write_at(tx, self.head + 8, &head.len)
    }

    /// Takes the last element out.
    ///
    /// # Errors
    /// The errors of [`PVec::set`].
    pub fn pop(&self, tx: &mut Tx<'_>) -> Result<Option<T>, HeapError> {
        let head = self.head(tx)?;
        let Some(last) = head.len.checked_sub(1) else { return Ok(None) };
        let value = read_at(tx, place::<T>(&head, last))?;
        write_at(tx, self.head + 8, &last)?;
        Ok(Some(value))
    }

    /// All elements, in order.
    ///
    /// # Errors
    /// The errors of [`PVec::len`].
    pub fn iter<'f, R: Reads>(&self, from: &'f R) -> Result<VecIter<'f, T, R>, HeapError> {
        Ok(VecIter { from, head: self.head(from)?, next: 0, of: PhantomData })
    }

    /// Frees the array. Objects that its elements refer to are left to the caller.
    ///
    /// # Errors
    /// The errors of [`PVec::len`].
    pub fn free(self, tx: &mut Tx<'_>) -> Result<(), HeapError> {
        let head = self.head(tx)?;
        if let Some(at) = Offset::new(head.at) {
            tx.free(at)?;
        }
        tx.free(Offset::new(self.head).ok_or(HeapError::Null)?)
    }

    fn head(&self, from: &impl Reads) -> Result<Head, HeapError> {
        let head: Head = read_at(from, self.head)?;
        if head.len > head.capacity {
            let (what, offset) = ("head of an array", self.head);
            return Err(HeapError::Corrupt { what, offset, value: head.len });
        }
        Ok(head)
    }

    /// Moves to an array twice as long. The array is new, so none of it is logged.
    fn grow(&self, tx: &mut Tx<'_>, head: &mut Head) -> Result<(), HeapError> {
        let capacity = (head.capacity * 2).max(CAPACITY_LEAST);
        let bytes = capacity.saturating_mul(size_of::<T>().max(1) as u64);
        let at = tx.alloc(bytes)?;
        let (mut done, len) = (0, head.len * size_of::<T>() as u64);
        let mut buffer = vec![0; COPY_BYTES];
        while done < len {
            let piece = &mut buffer[..(len - done).min(COPY_BYTES as u64) as usize];
            tx.read_bytes(Offset::of(head.at + done), piece)?;
            tx.write_bytes(Offset::of(at.get() + done), piece)?;
            done += piece.len() as u64;
        }
        if let Some(old) = Offset::new(head.at) {
            tx.free(old)?;
        }
        (head.at, head.capacity) = (at.get(), capacity);
        write_at(tx, self.head, head)
    }
}

fn place<T>(head: &Head, index: u64) -> u64 {
    head.at + index * size_of::<T>() as u64
}

/// An iterator over the elements of a [`PVec`].
pub struct VecIter<'f, T: 'static, R> {
    from: &'f R,
    head: Head,
    next: u64,
    of: PhantomData<fn() -> T>,
}

impl<T: Persist, R: Reads> Iterator for VecIter<'_, T, R> {
    type Item = Result<T, HeapError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.head.len {
            return None;
        }
        self.next += 1;
        Some(read_at(self.from, place::<T>(&self.head, self.next - 1)))
    }
}
