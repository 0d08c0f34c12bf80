//! Collections in persistent memory: a growing array and a hash table.
//!
//! Both are handles of eight bytes that name a head in the heap. Handles may be copied, lie in
//! other objects, or be found by a root's name, and stay valid wherever the heap is mapped.
//! Collections change within a transaction only, so a crash leaves one as it was before or after.
//! As with all objects, two threads that change one must exclude each other.

mod map;
mod vec;

use crate::error::HeapError;
use crate::heap::Heap;
use crate::ptr::{Offset, Persist, Ptr};
use crate::tx::Tx;

pub use map::{MapIter, PMap};
pub use vec::{PVec, VecIter};

/// A view through which a collection is read: a heap, as committed, or a transaction, with its own
/// changes.
pub trait Reads: sealed::Sealed {
    /// Copies bytes out.
    ///
    /// # Errors
    /// The bytes do not lie in one object.
    fn bytes_at(&self, offset: Offset, out: &mut [u8]) -> Result<(), HeapError>;
}

impl Reads for Heap {
    fn bytes_at(&self, offset: Offset, out: &mut [u8]) -> Result<(), HeapError> {
        self.read_bytes(offset, out)
    }
}

impl Reads for Tx<'_> {
    fn bytes_at(&self, offset: Offset, out: &mut [u8]) -> Result<(), HeapError> {
        self.read_bytes(offset, out)
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::heap::Heap {}
    impl Sealed for crate::tx::Tx<'_> {}
}

/// The collection whose head a root names, which is made and named if there is none.
fn named<C: Persist>(
    tx: &mut Tx<'_>,
    name: &str,
    new: impl FnOnce(&mut Tx<'_>) -> Result<C, HeapError>,
) -> Result<C, HeapError> {
    let head = tx.root_or_make::<C>(name, |tx| {
        let mut head = [0; 8];
        head.copy_from_slice(new(tx)?.as_bytes());
        Ok(Ptr::new(Offset::new(u64::from_le_bytes(head)).ok_or(HeapError::Null)?))
    })?;
    Ok(with_head(head.offset()))
}

/// The collection whose head a root names; `None` if there is no such root.
fn find<C: Persist>(heap: &Heap, name: &str) -> Result<Option<C>, HeapError> {
    Ok(heap.root::<C>(name)?.map(|found| with_head(found.offset())))
}

/// The collection with this head.
fn with_head<C: Persist>(head: Option<Offset>) -> C {
    const { assert!(size_of::<C>() == size_of::<u64>()) };
    let mut made = C::new_zeroed();
    made.as_mut_bytes().copy_from_slice(&head.map_or(0, Offset::get).to_le_bytes());
    made
}

fn read_at<T: Persist>(from: &impl Reads, offset: u64) -> Result<T, HeapError> {
    let mut value = T::new_zeroed();
    from.bytes_at(Offset::new(offset).ok_or(HeapError::Null)?, value.as_mut_bytes())?;
    Ok(value)
}

fn write_at<T: Persist>(tx: &mut Tx<'_>, offset: u64, value: &T) -> Result<(), HeapError> {
    tx.write_bytes(Offset::new(offset).ok_or(HeapError::Null)?, value.as_bytes())
}
