//! Structures to start from: a growing array and a hash table, in persistent memory.
//!
//! Both are handles of eight bytes that name a head in the heap: they may be copied, lie in other objects, or be
//! found by a root's name, and stay valid wherever the heap is mapped. They change within a transaction only, so a
//! crash finds them before or after it. As with all objects, two threads that change one must exclude each other.

mod map;
mod vec;

use crate::error::HeapError;
use crate::heap::Heap;
use crate::ptr::{Offset, Persist};
use crate::tx::Tx;

pub use map::{MapIter, PMap};
pub use vec::{PVec, VecIter};

/// What a structure is read through: a heap, as committed, or a transaction, with its own changes.
pub trait Reads: sealed::Sealed {
    /// Copies bytes out.
    ///
    /// # Errors
    /// They do not lie in one object.
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

fn read_at<T: Persist>(from: &impl Reads, offset: u64) -> Result<T, HeapError> {
    let mut value = T::new_zeroed();
    from.bytes_at(Offset::new(offset).ok_or(HeapError::Null)?, value.as_mut_bytes())?;
    Ok(value)
}

fn write_at<T: Persist>(tx: &mut Tx<'_>, offset: u64, value: &T) -> Result<(), HeapError> {
    tx.write_bytes(Offset::new(offset).ok_or(HeapError::Null)?, value.as_bytes())
}
