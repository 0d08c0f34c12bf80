//! Data as objects of a persistent heap. A directory, which a root leads to, finds them by name;
//! they are read and written in place.
//!
//! With capacity, the application's other allocations are in the same heap's capacity memory, by
//! the allocator of this program. The heap is a file on a tmpfs, which stands for persistent memory
//! in all but speed.
//!
//! Named data begin with their length. They are written and made durable as a whole and then
//! entered in the directory by one word, so they are whole or absent at every instant. An object is
//! freed when it is no longer read.
//!
//! Allocations of the way itself and of the heap under it outlive a run: each method first directs
//! its thread back to malloc.

mod capacity;
mod directory;
mod pool;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use perdura_heap::{Config, Durability, Heap, HeapError, Memory, Offset};

use crate::access::{Access, Input, Output, Pool, Tally, Usage};
use crate::error::{AppError, Result};
use crate::scratch::{Scratch, by_malloc};
use crate::sys::object::Object;
use crate::ways::bytes::InMemory;
use capacity::Capacity;
use directory::{Directory, KIND_DATA};
use pool::{HeapPool, Objects};

/// Bytes of the length, and padding that keeps the data aligned.
const HEAD_BYTES: usize = 16;

/// Settings of a heap.
#[derive(Debug, Clone, Copy)]
pub struct HeapSettings {
    /// Length of the heap.
    pub len_bytes: u64,
    /// Whether stores are written back from the caches. If not, they are only ordered.
    pub flushed: bool,
    /// Whether the application's allocations are in the heap's capacity memory. If not, they are
    /// malloc's.
    pub capacity: bool,
}

/// Named data in a heap.
pub struct HeapWay {
    way: &'static str,
    heap: Arc<Heap>,
    directory: RefCell<Directory>,
    data: RefCell<HashMap<String, Rc<Data>>>,
    pools: RefCell<HashMap<String, Objects>>,
    capacity: Option<Capacity>,
    file: File,
    tally: Tally,
}

/// The heap's file, removed when it is dropped.
struct File {
    path: PathBuf,
}

impl Drop for File {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            eprintln!("perdura-apps: {} stays: {error}", self.path.display());
        }
    }
}

impl HeapWay {
    /// Makes a heap in a file that must not exist yet.
    ///
    /// # Errors
    /// The file or the heap cannot be made.
    pub fn create(way: &'static str, path: PathBuf, settings: HeapSettings) -> Result<Self> {
        if let Some(above) = path.parent() {
            fs::create_dir_all(above).map_err(AppError::io("make", above))?;
        }
        if path.exists() {
            let source = std::io::ErrorKind::AlreadyExists.into();
            return Err(AppError::Io { what: "make", path, source });
        }
        Self::open(way, File { path }, settings)
    }

    /// Abandons this heap as a killed process does, and opens it again.
    ///
    /// # Errors
    /// The heap cannot be opened.
    pub fn reopen(self, settings: HeapSettings) -> Result<Self> {
        let Self { way, heap, directory, data, pools, capacity, file, tally } = self;
        drop((directory, data, pools, capacity, tally));
        drop(heap);
        Self::open(way, file, settings)
    }

    fn open(way: &'static str, file: File, settings: HeapSettings) -> Result<Self> {
        let refused = |doing| move |source| AppError::Heap { way, doing, source };
        let durability = match settings.flushed {
            true => Durability::Flushed,
            false => Durability::Ordered,
        };
        let memory = Memory::file(&file.path, settings.len_bytes, durability)
            .map_err(|error| refused("open the file")(HeapError::Memory(error)))?;
        let heap = Heap::open(memory, Config::default()).map_err(refused("open the heap"))?;
        let heap = Arc::new(heap);
        let directory = Directory::open(&heap).map_err(refused("read the directory"))?;
        let capacity = settings.capacity.then(|| Capacity::register(way, &heap)).transpose()?;
        let mut data = HashMap::new();
        for (name, offset) in directory.of_kind(KIND_DATA) {
            let found = Data::at(&heap, offset).map_err(refused("open data"))?;
            data.insert(name, Rc::new(found));
        }
        Ok(Self {
            way,
            heap,
            directory: RefCell::new(directory),
            data: RefCell::new(data),
            pools: RefCell::default(),
            capacity,
            file,
            tally: Tally::default(),
        })
    }

    /// Addresses at which the heap is mapped.
    pub fn addresses(&self) -> std::ops::Range<usize> {
        let memory = self.heap.memory();
        let start = memory.base().addr();
        start..start + memory.len_bytes() as usize
    }

    fn refused(&self, doing: &'static str) -> impl Fn(HeapError) -> AppError + use<> {
        let way = self.way;
        move |source| AppError::Heap { way, doing, source }
    }

    fn enter(&self, name: &str, offset: Offset) -> Result<()> {
        let failed = self.refused("enter a name");
        let found = Rc::new(Data::at(&self.heap, offset).map_err(&failed)?);
        self.directory.borrow_mut().set(name, KIND_DATA, offset).map_err(&failed)?;
        let replaced = self.data.borrow_mut().insert(name.to_owned(), found);
        replaced.inspect(|replaced| replaced.let_go());
        Ok(())
    }
}

impl Access for HeapWay {
    fn way(&self) -> &'static str {
        self.way
    }

    fn get(&self, name: &str) -> Result<Box<dyn Input + '_>> {
        let found = self.data.borrow().get(name).cloned();
        let missing = || AppError::Missing { name: name.to_owned(), way: self.way };
        let data = found.ok_or_else(missing)?;
        Ok(Box::new(InMemory::new(Held(data), &self.tally)))
    }

    fn put(&self, name: &str, capacity_bytes: usize) -> Result<Box<dyn Output + '_>> {
        let _malloc = by_malloc();
        let failed = self.refused("allocate data");
        let bytes = (HEAD_BYTES + capacity_bytes) as u64;
        let object = self.heap.persist_alloc(bytes).map_err(&failed)?;
        let object = Object::at(&self.heap, object).map_err(&failed)?;
        Ok(Box::new(HeapOutput {
            of: self,
            name: name.to_owned(),
            object: Some(object),
            end: HEAD_BYTES,
        }))
    }

    fn remove(&self, name: &str) -> Result<bool> {
        let _malloc = by_malloc();
        let failed = self.refused("remove a name");
        let was_there = self.directory.borrow_mut().clear(name).map_err(&failed)?;
        let removed = self.data.borrow_mut().remove(name);
        removed.inspect(|removed| removed.let_go());
        let objects = self.pools.borrow_mut().remove(name);
        let was_pool = objects.is_some();
        objects.map_or(Ok(()), |objects| objects.free(&self.heap)).map_err(&failed)?;
        Ok(was_there || was_pool)
    }

    fn names(&self) -> Result<Vec<String>> {
        let (data, pools) = (self.data.borrow(), self.pools.borrow());
        Ok(data.keys().chain(pools.keys()).cloned().collect())
    }

    fn pool(&self, name: &str) -> Result<Box<dyn Pool + '_>> {
        let _malloc = by_malloc();
        self.remove(name)?;
        Ok(Box::new(HeapPool::new(self, name)))
    }

    fn scratch(&self) -> Scratch {
        self.capacity.as_ref().map_or_else(Scratch::default, Capacity::scratch)
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn usage(&self) -> Result<Usage> {
        let capacity = self.capacity.as_ref();
        let capacity_peak_bytes = capacity.map_or(Ok(0), |one| one.peak_bytes(self.way))?;
        let persistent_bytes = self.heap.stats().persistent_bytes;
        Ok(Usage { persistent_bytes, capacity_peak_bytes, file_bytes: 0 })
    }
}

/// Finished data. They are never changed; the last reader frees them once they have no name.
struct Data {
    heap: Arc<Heap>,
    object: Object,
    len_bytes: usize,
    is_let_go: std::cell::Cell<bool>,
}

impl Data {
    fn at(heap: &Arc<Heap>, offset: Offset) -> std::result::Result<Self, HeapError> {
        let object = Object::at(heap, offset)?;
        // SAFETY: named objects are finished: they are not written any more, nor freed while this
        // exists.
        let head = unsafe { object.bytes(heap, 0, 8) };
        let word = head.and_then(|head| head.first_chunk().copied()).map(u64::from_le_bytes);
        let value = word.unwrap_or(u64::MAX);
        if value > (object.len_bytes() - HEAD_BYTES) as u64 {
            return Err(HeapError::Corrupt {
                what: "length of named data",
                offset: offset.get(),
                value,
            });
        }
        let is_let_go = std::cell::Cell::new(false);
        Ok(Self { heap: Arc::clone(heap), object, len_bytes: value as usize, is_let_go })
    }

    fn let_go(&self) {
        self.is_let_go.set(true);
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: finished, and freed by the drop of `self` at the earliest.
        let bytes = unsafe { self.object.bytes(&self.heap, HEAD_BYTES, self.len_bytes) };
        // The range was checked when the data were opened.
        bytes.unwrap_or_default()
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let _malloc = by_malloc();
        if self.is_let_go.get()
            && let Err(error) = self.heap.persist_free(self.object.offset())
        {
            eprintln!("perdura-apps: {} stays: {error}", self.object.offset());
        }
    }
}

/// A reader's share of the data, which live as long as they are read.
struct Held(Rc<Data>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// Data that are being written and have no name yet.
struct HeapOutput<'a> {
    of: &'a HeapWay,
    name: String,
    /// `None` once the data are finished.
    object: Option<Object>,
    end: usize,
}

impl HeapOutput<'_> {
    /// The object, made large enough for so many bytes.
    fn roomy(&mut self, bytes: usize) -> Result<Object> {
        let heap = &self.of.heap;
        let failed = self.of.refused("lengthen data");
        let object = match self.object {
            Some(object) if object.len_bytes() >= bytes => return Ok(object),
            Some(object) => object,
            None => return Err(AppError::malformed(&self.name, "written after it was finished")),
        };
        let _malloc = by_malloc();
        let more = bytes.max(2 * object.len_bytes()) as u64;
        let longer = heap.persist_realloc(object.offset(), more).map_err(&failed)?;
        let longer = Object::at(heap, longer).map_err(&failed)?;
        self.object = Some(longer);
        Ok(longer)
    }

    fn store(&self, object: Object, at: usize, bytes: &[u8]) -> Result<()> {
        // SAFETY: no other code knows the object of an unfinished output.
        let stored = unsafe { object.store(&self.of.heap, at, bytes) };
        stored.ok_or_else(|| AppError::Outside {
            way: self.of.way,
            of: self.name.clone(),
            offset: at as u64,
            len_bytes: bytes.len(),
            has_bytes: object.len_bytes() as u64,
        })
    }
}

impl Output for HeapOutput<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.of.tally.write(bytes.len());
        let object = self.roomy(self.end + bytes.len())?;
        self.store(object, self.end, bytes)?;
        self.end += bytes.len();
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let _malloc = by_malloc();
        let failed = self.of.refused("finish data");
        let object = self.roomy(self.end)?;
        let heap = &self.of.heap;
        self.store(object, 0, &((self.end - HEAD_BYTES) as u64).to_le_bytes())?;
        let fitting = heap.persist_realloc(object.offset(), self.end as u64).map_err(&failed)?;
        self.object = Some(Object::at(heap, fitting).map_err(&failed)?);
        heap.persist(fitting, self.end as u64);
        self.of.enter(&self.name, fitting)?;
        self.object = None;
        Ok(())
    }
}

impl Drop for HeapOutput<'_> {
    fn drop(&mut self) {
        let _malloc = by_malloc();
        if let Some(object) = self.object
            && let Err(error) = self.of.heap.persist_free(object.offset())
        {
            eprintln!("perdura-apps: {} stays: {error}", object.offset());
        }
    }
}
