//! Perdura's heap: an object's address in a word of persistent memory.

use std::error::Error;
use std::path::Path;

use perdura_heap::{Config, Durability, Heap, Memory, Offset};

use crate::{HEAP_BYTES, Pairs, failed, touch};

/// An object is replaced in one call.
pub struct Words {
    heap: Heap,
    table: Offset,
}

impl Words {
    pub fn open(dir: &Path, objects: usize) -> Result<Self, Box<dyn Error>> {
        let file = dir.join(format!("heap-{}", std::fs::read_dir(dir)?.count()));
        let memory = Memory::file(&file, HEAP_BYTES, Durability::Flushed)?;
        println!("perdura_heap in {}", memory.describe());
        let heap = Heap::open(memory, Config::default())?;
        let table = heap.persist_alloc(objects as u64 * 8)?;
        // SAFETY: the table has eight bytes for each object, and nobody else has it yet.
        unsafe { heap.pointer(table).write_bytes(0, objects * 8) };
        heap.persist(table, objects as u64 * 8);
        Ok(Self { heap, table })
    }

    fn place(&self, index: usize) -> Offset {
        match Offset::new(self.table.get() + index as u64 * 8) {
            Some(place) => place,
            None => failed("a place", &"zero"),
        }
    }
}

impl Pairs for Words {
    fn replace(&self, index: usize, bytes: usize) {
        match self.heap.replace_at(self.place(index), bytes as u64) {
            Ok(new) => touch(self.heap.pointer(new), index),
            Err(error) => failed("replace_at", &error),
        }
    }
}

/// An object is freed and another allocated, each durably on return.
pub struct InTwo(pub Words);

impl Pairs for InTwo {
    fn replace(&self, index: usize, bytes: usize) {
        let place = self.0.place(index);
        if let Err(error) = self.0.heap.free_from(place) {
            failed("free_from", &error);
        }
        match self.0.heap.alloc_into(place, bytes as u64) {
            Ok(new) => touch(self.0.heap.pointer(new), index),
            Err(error) => failed("alloc_into", &error),
        }
    }
}
