//! Plain memory by malloc: no files, and nothing survives. All other ways are compared with it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::access::{Access, Input, ObjectId, Output, Pool, Tally, Usage};
use crate::error::{AppError, Result};
use crate::scratch::Scratch;
use crate::ways::bytes::InMemory;

const WAY: &str = "dram";

/// Named data in allocations of their own.
#[derive(Debug, Default)]
pub struct Dram {
    named: RefCell<HashMap<String, Rc<Vec<u8>>>>,
    tally: Tally,
}

/// A reader's share of the data, which live as long as they are read.
struct Held(Rc<Vec<u8>>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Access for Dram {
    fn way(&self) -> &'static str {
        WAY
    }

    fn get(&self, name: &str) -> Result<Box<dyn Input + '_>> {
        let bytes = self.named.borrow().get(name).cloned();
        let bytes = bytes.ok_or_else(|| AppError::Missing { name: name.to_owned(), way: WAY })?;
        Ok(Box::new(InMemory::new(Held(bytes), &self.tally)))
    }

    fn put(&self, name: &str, capacity_bytes: usize) -> Result<Box<dyn Output + '_>> {
        let bytes = Vec::with_capacity(capacity_bytes);
        Ok(Box::new(DramOutput { into: self, name: name.to_owned(), bytes }))
    }

    fn remove(&self, name: &str) -> Result<bool> {
        Ok(self.named.borrow_mut().remove(name).is_some())
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(self.named.borrow().keys().cloned().collect())
    }

    fn pool(&self, _name: &str) -> Result<Box<dyn Pool + '_>> {
        Ok(Box::new(DramPool { objects: Vec::new(), freed: Vec::new(), tally: &self.tally }))
    }

    fn scratch(&self) -> Scratch {
        Scratch::default()
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn usage(&self) -> Result<Usage> {
        Ok(Usage::default())
    }
}

struct DramOutput<'a> {
    into: &'a Dram,
    name: String,
    bytes: Vec<u8>,
}

impl Output for DramOutput<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.into.tally.write(bytes.len());
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let Self { into, name, bytes } = *self;
        into.named.borrow_mut().insert(name, Rc::new(bytes));
        Ok(())
    }
}

struct DramPool<'a> {
    /// The objects; the first has number 1.
    objects: Vec<Box<[u8]>>,
    freed: Vec<ObjectId>,
    tally: &'a Tally,
}

impl DramPool<'_> {
    fn object(&mut self, id: ObjectId, at: usize, len_bytes: usize) -> Result<&mut [u8]> {
        let object = (id as usize).checked_sub(1).and_then(|number| self.objects.get_mut(number));
        let object = object.map_or(&mut [][..], |object| &mut object[..]);
        let has_bytes = object.len() as u64;
        let piece = at.checked_add(len_bytes).and_then(|end| object.get_mut(at..end));
        piece.ok_or_else(|| AppError::Outside {
            way: WAY,
            of: format!("object {id}"),
            offset: at as u64,
            len_bytes,
            has_bytes,
        })
    }
}

impl Pool for DramPool<'_> {
    fn alloc(&mut self, len_bytes: usize) -> Result<ObjectId> {
        let object = vec![0; len_bytes].into_boxed_slice();
        if let Some(id) = self.freed.pop() {
            self.objects[id as usize - 1] = object;
            return Ok(id);
        }
        self.objects.push(object);
        Ok(self.objects.len() as ObjectId)
    }

    fn free(&mut self, id: ObjectId, len_bytes: usize) -> Result<()> {
        self.object(id, 0, len_bytes)?;
        self.objects[id as usize - 1] = Box::default();
        self.freed.push(id);
        Ok(())
    }

    fn read(&mut self, id: ObjectId, at: usize, len_bytes: usize) -> Result<&[u8]> {
        self.tally.read(len_bytes);
        Ok(self.object(id, at, len_bytes)?)
    }

    fn write(&mut self, id: ObjectId, at: usize, bytes: &[u8]) -> Result<()> {
        self.tally.write(bytes.len());
        self.object(id, at, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
}
