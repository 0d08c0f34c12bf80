//! A pool in a heap: its objects are objects of the heap, durable when a write returns.

use std::collections::HashMap;
use std::sync::Arc;

use perdura_heap::{Heap, HeapError, Offset};

use crate::access::{ObjectId, Pool};
use crate::error::{AppError, Result};
use crate::scratch::by_malloc;
use crate::sys::object::Object;
use crate::ways::heap::HeapWay;
use crate::ways::heap::directory::KIND_POOL;

const UNIT_BYTES: u64 = 16;
const UNITS: u64 = 4096;

/// The set of a pool's objects, by which the pool can be removed. It takes 512 B of DRAM for 64 KiB
/// of objects.
#[derive(Default)]
pub struct Objects {
    bits: HashMap<u64, Box<[u64; UNITS as usize / 64]>, xxhash_rust::xxh3::Xxh3Builder>,
}

impl Objects {
    fn set(&mut self, offset: u64, is_one: bool) {
        let unit = offset / UNIT_BYTES;
        let words = self.bits.entry(unit / UNITS).or_insert_with(|| Box::new([0; _]));
        let (word, bit) = ((unit % UNITS / 64) as usize, unit % 64);
        words[word] = words[word] & !(1 << bit) | u64::from(is_one) << bit;
    }

    /// Frees all objects.
    pub fn free(self, heap: &Heap) -> std::result::Result<(), HeapError> {
        for (chunk, words) in self.bits {
            for (word, mut bits) in words.into_iter().enumerate() {
                while bits != 0 {
                    let unit = chunk * UNITS + word as u64 * 64 + u64::from(bits.trailing_zeros());
                    bits &= bits - 1;
                    Offset::new(unit * UNIT_BYTES).map_or(Ok(()), |at| heap.persist_free(at))?;
                }
            }
        }
        Ok(())
    }
}

pub struct HeapPool<'a> {
    of: &'a HeapWay,
    heap: Arc<Heap>,
    name: String,
    objects: Objects,
    is_named: bool,
}

impl<'a> HeapPool<'a> {
    pub fn new(of: &'a HeapWay, name: &str) -> Self {
        let (heap, name) = (Arc::clone(&of.heap), name.to_owned());
        Self { of, heap, name, objects: Objects::default(), is_named: false }
    }

    fn object(&self, id: ObjectId, doing: &'static str) -> Result<Object> {
        let none = || HeapError::Foreign { address: id as usize };
        let found = Offset::new(id).ok_or_else(none).and_then(|at| Object::at(&self.heap, at));
        found.map_err(self.of.refused(doing))
    }

    fn outside(&self, id: ObjectId, at: usize, len_bytes: usize, object: Object) -> AppError {
        AppError::Outside {
            way: self.of.way,
            of: format!("object {id:#x} of {}", self.name),
            offset: at as u64,
            len_bytes,
            has_bytes: object.len_bytes() as u64,
        }
    }
}

impl Pool for HeapPool<'_> {
    fn alloc(&mut self, len_bytes: usize) -> Result<ObjectId> {
        let _malloc = by_malloc();
        let failed = self.of.refused("allocate an object");
        let offset = self.heap.persist_alloc(len_bytes as u64).map_err(&failed)?;
        self.objects.set(offset.get(), true);
        if !self.is_named {
            // The first object leads to all others, so the directory gets it.
            let mut directory = self.of.directory.borrow_mut();
            directory.set(&self.name, KIND_POOL, offset).map_err(&failed)?;
            self.is_named = true;
        }
        Ok(offset.get())
    }

    fn free(&mut self, id: ObjectId, _len_bytes: usize) -> Result<()> {
        let _malloc = by_malloc();
        let object = self.object(id, "free an object")?;
        self.objects.set(id, false);
        self.heap.persist_free(object.offset()).map_err(self.of.refused("free an object"))
    }

    fn read(&mut self, id: ObjectId, at: usize, len_bytes: usize) -> Result<&[u8]> {
        self.of.tally.read(len_bytes);
        let object = self.object(id, "read an object")?;
        // SAFETY: freeing or writing an object of this pool needs the pool, which is borrowed as
        // long as the bytes are.
        let bytes = unsafe { object.bytes(&self.heap, at, len_bytes) };
        bytes.ok_or_else(|| self.outside(id, at, len_bytes, object))
    }

    fn write(&mut self, id: ObjectId, at: usize, bytes: &[u8]) -> Result<()> {
        self.of.tally.write(bytes.len());
        let _malloc = by_malloc();
        let object = self.object(id, "write an object")?;
        // SAFETY: as above: no slice of this pool's objects exists.
        let stored = unsafe { object.store(&self.heap, at, bytes) };
        stored.ok_or_else(|| self.outside(id, at, bytes.len(), object))?;
        let from = Offset::new(id + at as u64);
        from.inspect(|&from| self.heap.persist(from, bytes.len() as u64));
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        // Each write was durable on return.
        Ok(())
    }
}

impl Drop for HeapPool<'_> {
    fn drop(&mut self) {
        let _malloc = by_malloc();
        let objects = std::mem::take(&mut self.objects);
        self.of.pools.borrow_mut().insert(std::mem::take(&mut self.name), objects);
    }
}
